"""Typed values of the LLVM builder: each has a C type, declared by ctypes, and its operators write instructions.

A pointer to a structure has the structure's fields as attributes: reading one writes a load, assigning to one a store.
So one ctypes declaration is the layout for Python and for native code.
"""

from __future__ import annotations

import ctypes
from ctypes import Array, Structure
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..abi import F64, I1, I8, I32, I64, U32, U64, to

if TYPE_CHECKING:
    from .writer import Function

_set = object.__setattr__
Type = Any  # a type of ctypes; None is C's void
_SPELLED = {None: "void", I1: "i1", I8: "i8", I32: "i32", U32: "i32", I64: "i64", U64: "i64", F64: "double"}
_UNSIGNED = {I1, I8, U32, U64}


def spelled(kind: Type) -> str:
    """Spell a C type in LLVM. Text is taken as it is: vector types have no ctypes."""
    return kind if isinstance(kind, str) else _SPELLED.get(kind, "ptr")


def is_pointer(kind: Type) -> bool:
    return kind not in _SPELLED


def is_unsigned(kind: Type) -> bool:
    """Whether a C type is unsigned, as pointers are."""
    return kind in _UNSIGNED or is_pointer(kind)


def in_memory(kind: Type) -> str:
    """Spell the LLVM type of a place in memory."""
    return f"[{ctypes.sizeof(kind)} x i8]" if _stands_for_itself(kind) else spelled(kind)


@lru_cache
def _fields(kind: Type) -> dict[str, tuple[Type, int]]:
    return {name: (field, getattr(kind, name).offset) for name, field, *_ in kind._fields_}


def _stands_for_itself(kind: Type) -> bool:
    """Whether a place of this type decays to its address, as C's arrays; structures do, too."""
    return isinstance(kind, type) and issubclass(kind, (Structure, Array))


class Value:
    """A value of a C type; integers follow C's rules: one unsigned operand makes the operation unsigned."""

    __slots__ = ("_f", "_kind", "_name")
    __hash__ = None  # type: ignore[assignment]
    _f: Function
    _kind: Type
    _name: str

    def __init__(self, f: Function, kind: Type, name: str):
        _set(self, "_f", f)
        _set(self, "_kind", kind)
        _set(self, "_name", name)

    def __str__(self) -> str:
        return self._name

    def __bool__(self) -> bool:
        raise TypeError("the truth of a native value is not known while code is written: use if_, select, & and |")

    @property
    def _target(self) -> Type:
        """Return the pointee type of a pointer."""
        return getattr(self._kind, "target", None)

    # Arithmetic.

    def _binary(self, signed: str, unsigned: str, other: Any, kind: Type = None, reverse: bool = False) -> Value:
        operand_kind = other._kind if isinstance(other, Value) and other._kind in _UNSIGNED else self._kind
        first, second = self._name, self._f.operand(other, self._kind)
        if reverse:
            first, second = second, first
        how = unsigned if is_unsigned(operand_kind) else signed
        return self._f.value(kind or operand_kind, f"{how} {spelled(self._kind)} {first}, {second}")

    def __add__(self, other: Any) -> Value:
        if not is_pointer(self._kind):
            return self._binary("add nsw", "add", other)
        step = in_memory(self._target) if self._target else "i8"  # of void: bytes
        place = f"getelementptr {step}, ptr {self}, i64 {self._f.operand(other, I64)}"
        return self._f.value(self._kind, place)

    def __sub__(self, other: Any) -> Value:
        return self._binary("sub nsw", "sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._binary("sub nsw", "sub", other, reverse=True)

    def __mul__(self, other: Any) -> Value:
        return self._binary("mul nsw", "mul", other)

    def __floordiv__(self, other: Any) -> Value:
        return self._binary("sdiv", "udiv", other)

    def __mod__(self, other: Any) -> Value:
        return self._binary("srem", "urem", other)

    def __and__(self, other: Any) -> Value:
        return self._binary("and", "and", other)

    def __or__(self, other: Any) -> Value:
        return self._binary("or", "or", other)

    def __lshift__(self, other: Any) -> Value:
        return self._binary("shl", "shl", other)

    def __rlshift__(self, other: Any) -> Value:
        return self._binary("shl", "shl", other, reverse=True)

    def __rshift__(self, other: Any) -> Value:
        return self._binary("ashr", "lshr", other)

    def __neg__(self) -> Value:
        return 0 - self

    def __invert__(self) -> Value:
        return self._binary("xor", "xor", -1 if self._kind is not I1 else True)

    # Comparisons.

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._binary("icmp eq", "icmp eq", other, I1)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._binary("icmp ne", "icmp ne", other, I1)

    def __lt__(self, other: Any) -> Value:
        return self._binary("icmp slt", "icmp ult", other, I1)

    def __le__(self, other: Any) -> Value:
        return self._binary("icmp sle", "icmp ule", other, I1)

    def __gt__(self, other: Any) -> Value:
        return self._binary("icmp sgt", "icmp ugt", other, I1)

    def __ge__(self, other: Any) -> Value:
        return self._binary("icmp sge", "icmp uge", other, I1)

    def as_(self, kind: Type) -> Value:
        """Cast as C does, between integers and pointers."""
        before, after = spelled(self._kind), spelled(kind)
        if before == after:
            return Value(self._f, kind, self._name)
        if after == "ptr" or before == "ptr":
            how = "inttoptr" if after == "ptr" else "ptrtoint"
        elif ctypes.sizeof(kind) < ctypes.sizeof(self._kind):
            how = "trunc"
        else:
            how = "zext" if self._kind in _UNSIGNED else "sext"
        return self._f.value(kind, f"{how} {before} {self} to {after}")

    # Memory.

    def address(self, field: str) -> Value:
        """Return a pointer to a field, or to the first element if it is an array."""
        fields = _fields(self._target)
        if field not in fields:
            raise AttributeError(f"{self._target.__name__} has no field {field}")
        kind, offset = fields[field]
        target = to(kind._type_ if issubclass(kind, Array) else kind)
        if not offset:
            return Value(self._f, target, self._name)
        return self._f.value(target, f"getelementptr i8, ptr {self}, i64 {offset}")

    def __getattr__(self, field: str) -> Any:
        place = self.address(field)
        return place if _stands_for_itself(_fields(self._target)[field][0]) else place._load()

    def __setattr__(self, field: str, value: Any) -> None:
        self.address(field)._store(value)

    def __getitem__(self, number: Any) -> Value:
        place = self if isinstance(number, int) and number == 0 else self + number
        return place if _stands_for_itself(self._target) else place._load()

    def __setitem__(self, number: Any, value: Any) -> None:
        place = self if isinstance(number, int) and number == 0 else self + number
        place._store(value)

    def _load(self) -> Value:
        return self._f.value(self._target, f"load {spelled(self._target)}, ptr {self}")

    def _store(self, value: Any) -> None:
        self._f.write(f"store {spelled(self._target)} {self._f.operand(value, self._target)}, ptr {self}")

    def atomic(self, field: str | None = None) -> Atomic:
        """Access the pointee, or a field of it, by atomic operations."""
        return Atomic(self if field is None else self.address(field))


class Atomic:
    """A place with atomic operations. Memory orders are LLVM's; sequentially consistent by default."""

    def __init__(self, place: Value):
        self.place, self.f, self.kind = place, place._f, place._target
        self.spelled = spelled(self.kind)

    def load(self, order: str = "seq_cst") -> Value:
        return self.f.value(self.kind, f"load atomic {self.spelled}, ptr {self.place} {order}, align 8")

    def store(self, value: Any, order: str = "seq_cst") -> None:
        operand = self.f.operand(value, self.kind)
        self.f.write(f"store atomic {self.spelled} {operand}, ptr {self.place} {order}, align 8")

    def add(self, value: Any) -> Value:
        """Fetch and add; return the value before."""
        operand = self.f.operand(value, self.kind)
        return self.f.value(self.kind, f"atomicrmw add ptr {self.place}, {self.spelled} {operand} seq_cst")

    def replace(self, expected: Any, value: Any) -> Value:
        """Compare and exchange; return whether the expected value was there."""
        old, new = (f"{self.spelled} {self.f.operand(item, self.kind)}" for item in (expected, value))
        pair = self.f.op(f"cmpxchg ptr {self.place}, {old}, {new} seq_cst seq_cst")
        return self.f.value(I1, f"extractvalue {{ {self.spelled}, i1 }} {pair}, 1")
