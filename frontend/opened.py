"""Functions whose `len(x)`, `np.arange(n)` and `np.ones(shape)` keep open sizes open while they are traced.

Python's `len` must return an int, and NumPy allocates its arrays, so each size would need a program of its own. A
function that calls them is traced as a copy with the same code whose globals dict returns stand-ins under these names.
A stand-in acts as the original where no size is open, and makes an OpenArray where one is. The stand-in of `type`
returns int and np.ndarray for open sizes and arrays. A function that uses one of the names otherwise than in a call,
such as to compare `np.ones` with another function, is traced with the originals.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .ir.graph import Value
from .ir.open_size import OpenSize, expression
from .ir.symbolic import Dim, Expr
from .ir.types import dtype as dtype_of
from .ir.types import i64
from .ops.define import REGISTRY
from .ops.open_array import OpenArray


def _length(item: Any, /) -> Any:
    """len; an open size where the length is open."""
    if isinstance(item, (Value, OpenArray)) and item.shape and type(item.shape[0]) is OpenSize:
        return item.shape[0]
    return len(item)


def _type(*args: Any, **rest: Any) -> Any:
    """type; int for an open size and np.ndarray for an open array."""
    if len(args) == 1 and not rest and type(args[0]) in (OpenSize, OpenArray):
        return args[0].__class__
    return type(*args, **rest)


def _arange(*args: Any, dtype: Any = None, **rest: Any) -> Any:
    """np.arange, also where a bound is open."""
    is_open = any(type(item) is OpenSize for item in args)
    if not is_open or rest or len(args) > 3 or not all(isinstance(item, (int, np.integer)) for item in args):
        return np.arange(*args, dtype=dtype, **rest)
    first, last, step = map(expression, (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3])
    if not isinstance(step, int) or step != 1:
        return np.arange(*args, dtype=dtype)  # raises SizeNeeded for the numbers
    count = last - first
    if not Expr.non_negative(count):
        return np.arange(*args, dtype=dtype)
    numbers = REGISTRY["iota"]((count,), dim=0, dtype=i64)
    if not isinstance(first, int) or first != 0:
        numbers = numbers + first
    return OpenArray(numbers) if dtype is None else OpenArray(numbers).astype(dtype)


def _filled(original: Callable[..., Any], number: float) -> Callable[..., Any]:
    def fill(shape: Any, dtype: Any = None, *order: Any, **rest: Any) -> Any:
        sizes = _open_shape(shape)
        if sizes is None or order or rest:
            return original(shape, dtype, *order, **rest)
        return _constant(sizes, number, np.float64 if dtype is None else dtype)

    return fill


def _full(shape: Any, fill_value: Any, dtype: Any = None, *order: Any, **rest: Any) -> Any:
    """np.full of a number, also where a size is open."""
    if type(fill_value) is OpenSize:
        fill_value = fill_value.__index__()  # asks for the number
    sizes = _open_shape(shape)
    if sizes is None or order or rest or not isinstance(fill_value, (bool, int, float, complex, np.generic)):
        return np.full(shape, fill_value, dtype, *order, **rest)
    number = np.asarray(fill_value, dtype)
    return _constant(sizes, number.item(), number.dtype)


def _constant(sizes: tuple[Dim, ...], number: Any, wanted: Any) -> OpenArray:
    return OpenArray(REGISTRY["full"](sizes, number, dtype=dtype_of(np.dtype(wanted))))


def _open_shape(shape: Any) -> tuple[Dim, ...] | None:
    """Return the sizes of a shape if one of them is open, else None."""
    sizes = expression(tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))
    return sizes if any(isinstance(size, Expr) for size in sizes) else None


# Stand-ins by name. `empty` may hold any numbers: zeros.
NUMPY: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "ones": _filled(np.ones, 1),
    "zeros": _filled(np.zeros, 0),
    "empty": _filled(np.empty, 0),
    "full": _full,
}
BUILTIN: dict[str, Callable[..., Any]] = {"len": _length, "type": _type}
_STAND_INS: dict[int, Any] = {
    id(getattr(module, name)): function
    for module, functions in ((np, NUMPY), (builtins, BUILTIN))
    for name, function in functions.items()
}
_NAMES = frozenset((*BUILTIN, *NUMPY))


class _NumPy:
    """The module numpy with stand-ins in place of these functions."""

    def __getattr__(self, name: str) -> Any:
        return NUMPY.get(name) or getattr(np, name)


_numpy = _NumPy()


class _Globals(dict):
    """A function's globals with stand-ins. The dict itself holds the names that the interpreter reads directly, without
    this class's methods."""

    def __init__(self, own: dict[str, Any]):
        super().__init__({name: item for name, item in own.items() if name.startswith("__")})
        found = own.get("__builtins__", builtins)
        known = dict(vars(found) if isinstance(found, ModuleType) else found)
        known |= {name: item for name, item in BUILTIN.items() if known.get(name) is getattr(builtins, name)}
        self["__builtins__"] = known
        self.own = own

    def __getitem__(self, name: str) -> Any:
        item = self.own[name]
        if item is np:
            return _numpy
        return _STAND_INS.get(id(item), item)

    # For readers of a frame's globals (tracebacks, warnings): the function's own.

    def get(self, name: str, default: Any = None) -> Any:
        return self.own.get(name, default)

    def values(self) -> Any:
        return self.own.values()

    def items(self) -> Any:
        return self.own.items()

    def keys(self) -> Any:
        return self.own.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __contains__(self, name: object) -> bool:
        return name in self.own

    def __len__(self) -> int:
        return len(self.own)


def opened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function to trace: a copy with stand-ins if it calls one of these names, else the function itself."""
    if isinstance(function, MethodType) and isinstance(function.__func__, FunctionType):
        copy = opened(function.__func__)
        return function if copy is function.__func__ else MethodType(copy, function.__self__)
    if not isinstance(function, FunctionType) or type(function.__globals__) is not dict:
        return function
    codes = list(_codes(function.__code__))
    if not any(_NAMES.intersection(code.co_names) for code in codes):
        return function
    if not all(_is_plain(code, function.__globals__) for code in codes):
        return function
    copy = FunctionType(
        function.__code__,
        _Globals(function.__globals__),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__ = function.__qualname__
    return copy


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and the code of its inner functions."""
    yield code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _codes(item)


def _is_plain(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether code only reads globals by name, uses the module numpy only for its members, and uses a function that
    has a stand-in only in calls."""
    if not _REFLECTIVE.isdisjoint(code.co_names):
        return False
    steps = list(dis.get_instructions(code))
    for step, member, then in zip(steps, steps[1:], (*steps[2:], None)):  # the last one is a return
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            return False
        if step.opname != "LOAD_GLOBAL":
            continue
        is_called = _has_flag(step)
        item = names.get(step.argval, getattr(builtins, step.argval, None))
        if item is np:
            if member.opname not in _MEMBER:
                return False
            if member.argval in NUMPY and not (_has_flag(member) or _is_call(is_called, then)):
                return False
        elif id(item) in _STAND_INS and not is_called:
            return False
    return True


def _has_flag(step: dis.Instruction) -> bool:
    """Whether an instruction loads a callee: by the lowest bit of its argument, or by its opcode."""
    has_bit = step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_ATTR" and sys.version_info >= (3, 12))
    return step.opname == "LOAD_METHOD" or (has_bit and bool((step.arg or 0) & 1))


def _is_call(is_prepared: bool, then: dis.Instruction | None) -> bool:
    """Whether a loaded member is called: the call was prepared before the load, or is right after it."""
    return then is not None and (then.opname == "PUSH_NULL" or (is_prepared and then.opname not in _MEMBER))


_MEMBER = ("LOAD_ATTR", "LOAD_METHOD")
_REFLECTIVE = frozenset(("globals", "locals", "vars", "eval", "exec", "__import__", "super", "__class__"))
