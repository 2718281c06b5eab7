"""Write scalar ops as LLVM instructions, on one lane or many: a kernels.scalar.ScalarBuilder that makes text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.errors import CompileError
from ....ir.record import Record
from ....ir.types import DType, bf16, bool_, c64, c128, f16, f32, i16, i32, i64, u8, u32
from ....kernels.scalar.float8 import FROM_BYTE, TO_BYTE
from ....kernels.scalar.table import COMBINERS, SCALARS, spelling
from ..llvm.types import REGISTER, Lanes, constant, register_type, stored_literal, suffix, vector
from . import halves

FLAGS = "contract "  # a * b + c may be contracted to an FMA, but not inside of an expansion


class OutlinedVectors(Record):
    """Bytes of the vectors in outlined code."""

    rare: int = 64  # the largest register
    # Steps of two registers overlap; more would wait for the lane with the most steps. Measured: polynomials 1.4 times
    # as fast as with one.
    loop: int = 128


OUTLINED = OutlinedVectors()


# (condition, first, second): `first()` under the condition, else `second`.
Branch = Callable[[str, Callable[[], Lanes], Lanes], Lanes]


# Writes the body of an outlined function; returns its attributes and its result.
Outliner = Callable[["ScalarEmitter", Callable[..., Any], Sequence[Lanes]], tuple[str, Lanes]]


class ScalarEmitter:
    """Writer of instructions through `line`; collects the module's declarations and outlined functions."""

    def __init__(self, line: Callable[[str], None], declarations: set[str], branch: Branch, bits: int = 128):
        self._line = line
        self.bits = bits  # of the widest vectors for which instructions are used
        self._branch = branch
        self.declarations = declarations
        self.outlined: set[str] = set()
        self.counter = 0
        self.flags = FLAGS

    def fresh(self) -> str:
        self.counter += 1
        return f"%v{self.counter}"

    def instruction(self, text: str) -> str:
        """Write `%v = text`; return %v."""
        name = self.fresh()
        self._line(f"{name} = {text}")
        return name

    def hidden(self, value: str) -> str:
        """Make an i64 opaque to LLVM, so that nothing computed from it is folded to a constant."""
        return self.instruction(f'call i64 asm "", "=r,0"(i64 {value})')

    def call(self, result: str, function: str, *operands: tuple[str, str], flags: str = "") -> str:
        """Call an intrinsic on (type, value) pairs, and declare it."""
        types = ", ".join(kind for kind, _ in operands)
        self.declarations.add(f"declare {result} @{function}({types})")
        arguments = ", ".join(f"{kind} {value}" for kind, value in operands)
        return self.instruction(f"call {flags}{result} @{function}({arguments})")

    # kernels.scalar.ScalarBuilder

    def constant(self, value: Any, dtype: DType) -> Lanes:
        if dtype.is_complex:
            number = complex(value)
            return Lanes(dtype, 1, (constant(number.real, dtype.real, 1), constant(number.imag, dtype.real, 1)))
        return Lanes(dtype, 1, (constant(value, dtype, 1),))

    def splat(self, operand: Lanes, lanes: int) -> Lanes:
        """Broadcast a value to all lanes."""
        if operand.lanes == lanes:
            return operand
        element = REGISTER[operand.dtype.real.name]
        parts: list[str] = []
        for part in operand.parts:
            if not part.startswith("%"):
                parts.append(f"splat ({element} {part})")
                continue
            wide = vector(element, lanes)
            first = self.instruction(f"insertelement {wide} poison, {element} {part}, i64 0")
            parts.append(
                self.instruction(f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer")
            )
        return Lanes(operand.dtype, lanes, tuple(parts), self._stored_alike(lanes, operand))

    def op(self, name: str, *operands: Lanes) -> Lanes:
        """Write a scalar op of the table."""
        row = SCALARS[name]
        dtype = operands[-1].dtype
        if name in ("real", "imag") and dtype.is_complex:
            return Lanes(dtype.real, operands[0].lanes, (operands[0].parts[name == "imag"],))
        lanes = max(operand.lanes for operand in operands)
        if name == "complex":
            pair = [self.splat(operand, lanes) for operand in operands]
            return Lanes(COMPLEX_OF[pair[0].dtype.name], lanes, (pair[0].name, pair[1].name))
        if dtype.is_complex:
            return self._expand(row.complex_expansion, name, *operands)
        text = spelling(row, dtype)
        if text is None:
            return self._expand(row.expansion, name, *operands)
        wide = [self.splat(operand, lanes) for operand in operands]
        kind = register_type(dtype, lanes)
        result = bool_ if row.result == "bool" else dtype
        if text.startswith("llvm."):
            flags = self.flags if dtype.is_float else ""
            function = f"{text}.{suffix(REGISTER[dtype.name], lanes)}"
            extra = [("i1", "false")] if text in WITH_FLAG else []
            part = self.call(kind, function, *((kind, item.name) for item in wide), *extra, flags=flags)
        else:
            names = dict(zip("abc", (item.name for item in wide), strict=False))
            part = self.instruction(text.format(t=kind, f=self.flags, m=vector("i1", lanes), **names))
        if name == "where":
            return Lanes(result, lanes, (part,), self._chosen_stored(wide[0].name, operands[1], operands[2], lanes))
        return Lanes(result, lanes, (part,))

    def _stored_alike(self, lanes: int, operand: Lanes) -> tuple[DType, str] | None:
        """Broadcast the stored bits of a uniform value."""
        if operand.stored is None:
            return None
        dtype, bits = operand.stored
        return dtype, self.splat(Lanes(i16, 1, (bits,)), lanes).name

    def _chosen_stored(self, mask: str, yes: Lanes, no: Lanes, lanes: int) -> tuple[DType, str] | None:
        """Select between stored bits if both operands have them: copies keep every bit. LLVM removes them if unused."""
        dtypes = [item.stored[0] for item in (yes, no) if item.stored is not None]
        if not dtypes:
            return None
        found: list[str] = []
        for item in (yes, no):
            bits = stored_literal(item.name, dtypes[0]) if item.stored is None else item.stored[1]
            if bits is None or (item.stored is not None and item.stored[0] is not dtypes[0]):
                return None
            found.append(self.splat(Lanes(i16, item.lanes, (bits,)), lanes).name)
        kind = vector("i16", lanes)
        return dtypes[0], self.instruction(f"select {vector('i1', lanes)} {mask}, {kind} {found[0]}, {kind} {found[1]}")

    def _expand(self, expansion: Callable[..., Lanes] | None, name: str, *operands: Lanes) -> Lanes:
        if expansion is None:
            raise CompileError(f"{name} on {operands[-1].dtype} has neither an LLVM spelling nor an expansion")
        outer, self.flags = self.flags, ""  # expansions rely on every rounding
        result = expansion(self, *operands)
        self.flags = outer
        return result

    def cast(self, operand: Lanes, dtype: DType) -> Lanes:
        """Convert between register types. Values out of range saturate, they are never undefined."""
        source = operand.dtype
        if source is dtype:
            return operand
        if source.kind == "e":
            byte = Lanes(u8, operand.lanes, operand.parts)
            return self.cast(self._expand(FROM_BYTE[source.name], "cast", self.cast(byte, i32)), dtype)
        if dtype.kind == "e":
            bits = self._expand(TO_BYTE[dtype.name], "cast", self.cast(operand, f32))
            return Lanes(dtype, operand.lanes, self.cast(bits, u8).parts)
        if dtype.is_complex:
            if source.is_complex:
                parts = [
                    self.cast(Lanes(source.real, operand.lanes, (part,)), dtype.real).name for part in operand.parts
                ]
                return Lanes(dtype, operand.lanes, tuple(parts))
            real = self.cast(operand, dtype.real)
            return Lanes(dtype, operand.lanes, (real.name, constant(0.0, dtype.real, operand.lanes)))
        if source.is_complex:
            if dtype.kind == "b":
                return self.op("ne", operand, self.constant(0, source))
            return self.cast(Lanes(source.real, operand.lanes, operand.parts[:1]), dtype)
        if dtype.kind == "b":
            return self.op("ne", operand, self.constant(0, source))
        lanes = operand.lanes
        old, new = register_type(source, lanes), register_type(dtype, lanes)
        if source.is_float and dtype.is_float:
            how = "fpext" if dtype.bits > source.bits else "fptrunc"
        elif source.is_float:
            # Narrow integers wrap, as in a conversion through a wide integer: PyTorch's semantics.
            wide = i32 if dtype.bits < 32 else i64 if dtype is u32 else dtype
            middle = register_type(wide, lanes)
            ends = f"{suffix(REGISTER[wide.name], lanes)}.{suffix(REGISTER[source.name], lanes)}"
            function = f"llvm.fpto{'ui' if wide.kind == 'u' else 'si'}.sat.{ends}"
            part = self.call(middle, function, (old, operand.name))
            return self.cast(Lanes(wide, lanes, (part,)), dtype) if wide is not dtype else Lanes(dtype, lanes, (part,))
        elif dtype.is_float:
            how = "sitofp" if source.kind == "i" else "uitofp"
        elif source.kind == "b" or (source.kind == "u" and dtype.bits > source.bits):
            how = "zext"
        elif dtype.bits > source.bits:
            how = "sext"
        elif dtype.bits < source.bits:
            how = "trunc"
        else:
            return Lanes(dtype, lanes, operand.parts)
        return Lanes(dtype, lanes, (self.instruction(f"{how} {old} {operand.name} to {new}"),))

    def bitcast(self, operand: Lanes, dtype: DType) -> Lanes:
        old, new = register_type(operand.dtype, operand.lanes), register_type(dtype, operand.lanes)
        return Lanes(dtype, operand.lanes, (self.instruction(f"bitcast {old} {operand.name} to {new}"),))

    def rare(self, condition: Lanes, fast: Lanes, slow: Callable[..., Lanes], operands: Sequence[Lanes]) -> Lanes:
        """Branch around an outlined call that is rarely needed; select the lanes that need it."""
        lanes = max(item.lanes for item in (condition, fast, *operands))
        some = self._some(condition)
        mask = self.splat(condition, lanes).name
        fast = self.splat(fast, lanes)
        wide = [self.splat(operand, lanes) for operand in operands]

        def outside() -> Lanes:
            return self.select(mask, lanes, self._call_outlined(self._rare_text, slow, wide, fast.dtype), fast)

        return self._branch(some, outside, fast)

    def _some(self, condition: Lanes) -> str:
        """Whether a condition holds in some lane."""
        if condition.lanes == 1:
            return condition.name
        function = f"llvm.vector.reduce.or.{suffix('i1', condition.lanes)}"
        return self.call("i1", function, (vector("i1", condition.lanes), condition.name))

    def loop(self, step: Callable[..., Sequence[Lanes]], state: Sequence[Lanes]) -> Lanes:
        """Call an outlined loop, which runs until no lane goes on."""
        lanes = max(operand.lanes for operand in state)
        wide = [self.splat(operand, lanes) for operand in state]
        return self._call_outlined(self._loop_text, step, wide, wide[0].dtype)

    def _call_outlined(
        self, write: Outliner, expansion: Callable[..., Any], operands: Sequence[Lanes], result: DType
    ) -> Lanes:
        """Call the outlined expansion for all lanes, split in halves down to one register: rarely run code should be
        quick to compile, and loops end soon where their lanes are few."""
        lanes = operands[0].lanes
        most = OUTLINED.loop if write is self._loop_text else OUTLINED.rare
        if lanes * result.bytes > most and lanes % 2 == 0:
            half = lanes // 2
            parts = [
                self._call_outlined(write, expansion, [self._half(item, first) for item in operands], result)
                for first in (0, half)
            ]
            return self._shuffle(parts[0], parts[1], range(lanes))
        function = self._outlined(write, expansion, operands, result)
        given = ", ".join(f"{register_type(item.dtype, lanes)} {item.name}" for item in operands)
        return Lanes(result, lanes, (self.instruction(f"call {register_type(result, lanes)} {function}({given})"),))

    def _half(self, operand: Lanes, first: int) -> Lanes:
        return self._shuffle(operand, None, range(first, first + operand.lanes // 2))

    def _outlined(
        self, write: Outliner, expansion: Callable[..., Any], operands: Sequence[Lanes], result: DType
    ) -> str:
        """Outline the expansion as a function of the module, compiled once for all calls."""
        lanes = operands[0].lanes
        kinds = [register_type(operand.dtype, lanes) for operand in operands]
        function = f"@rare.{expansion.__name__}.{suffix(REGISTER[operands[0].dtype.name], lanes)}"
        if function not in self.outlined:
            self.outlined.add(function)
            lines: list[str] = []
            inner = ScalarEmitter(lines.append, self.declarations, lambda some, yes, no: yes(), self.bits)
            inner.flags, inner.outlined = "", self.outlined
            given = [Lanes(operand.dtype, lanes, (f"%a{place}",)) for place, operand in enumerate(operands)]
            attributes, value = write(inner, expansion, given)
            body = "\n  ".join([*lines, f"ret {register_type(result, lanes)} {value.name}"])
            parameters = ", ".join(f"{kind} %a{place}" for place, kind in enumerate(kinds))
            head = f"define {register_type(result, lanes)} {function}({parameters}) {attributes} #0"
            self.declarations.add(f"{head} {{\n  {body}\n}}")
        return function

    @staticmethod
    def _rare_text(inner: ScalarEmitter, slow: Callable[..., Lanes], given: Sequence[Lanes]) -> tuple[str, Lanes]:
        """Write the body of an outlined branch; return the function's attributes and its result."""
        return "noinline cold", inner.splat(slow(inner, *given), given[0].lanes)

    @staticmethod
    def _loop_text(
        inner: ScalarEmitter, step: Callable[..., Sequence[Lanes]], given: Sequence[Lanes]
    ) -> tuple[str, Lanes]:
        """Write the body of an outlined loop; return the function's attributes and its result."""
        lanes = given[0].lanes
        state = [Lanes(item.dtype, lanes, (f"%s{place}",)) for place, item in enumerate(given)]
        lines: list[str] = []
        outer, inner._line = inner._line, lines.append
        more, *following = step(inner, *state)
        mask = inner.splat(more, lanes)
        kept = [inner.select(mask.name, lanes, new, old) for new, old in zip(following, state, strict=True)]
        some = inner._some(mask)
        inner._line = outer
        phis = [
            f"{old.name} = phi {register_type(old.dtype, lanes)} [ {first.name}, %entry ], [ {new.name}, %step ]"
            for old, first, new in zip(state, given, kept, strict=True)
        ]
        for line in ("entry:", "br label %step", "step:", *phis, *lines):
            inner._line(line)
        for line in (f"br i1 {some}, label %step, label %done", "done:"):
            inner._line(line)
        return "noinline", kept[0]

    # Conversions at loads and stores.

    def from_memory(self, part: str, dtype: DType, lanes: int) -> Lanes:
        """Convert a loaded value to a register."""
        if dtype.kind == "b":
            memory = vector("i8", lanes)
            return Lanes(dtype, lanes, (self.instruction(f"icmp ne {memory} {part}, {_zero(lanes)}"),))
        if dtype.name == "bf16":
            wide = vector("i32", lanes)
            bits = self.instruction(f"zext {vector('i16', lanes)} {part} to {wide}")
            high = self.op("bitwise_left_shift", Lanes(i32, lanes, (bits,)), self.constant(16, i32))
            return Lanes(f32, lanes, (self.bitcast(high, f32).name,), (dtype, part))
        if dtype.name == "f16":
            return Lanes(f32, lanes, (halves.load(self, part, lanes),), (dtype, part))
        return Lanes(dtype, lanes, (part,))

    def to_memory(self, operand: Lanes, dtype: DType) -> str:
        """Convert a register to a stored value. Loaded bits are stored again unchanged."""
        lanes = operand.lanes
        if operand.stored is not None and operand.stored[0] is dtype:
            return operand.stored[1]
        if dtype.kind == "b":
            return self.instruction(f"zext {vector('i1', lanes)} {operand.name} to {vector('i8', lanes)}")
        if dtype.name == "bf16":
            return self._to_bf16(operand)
        if dtype.name == "f16":
            return halves.store(self, operand.name, lanes)
        return operand.name

    def round_bf16(self, operand: Lanes) -> Lanes:
        return self.from_memory(self.to_memory(operand, bf16), bf16, operand.lanes)

    def _to_bf16(self, operand: Lanes) -> str:
        """Round to nearest even at bit 16; NaN stays NaN."""
        lanes = operand.lanes
        bits = self.bitcast(operand, i32)
        wide = vector("i32", lanes)
        high = self.instruction(f"lshr {wide} {bits.name}, {constant(16, i32, lanes)}")
        odd = self.instruction(f"and {wide} {high}, {constant(1, i32, lanes)}")
        bias = self.instruction(f"add {wide} {odd}, {constant(0x7FFF, i32, lanes)}")
        total = self.instruction(f"add {wide} {bits.name}, {bias}")
        quiet = self.instruction(f"or {wide} {bits.name}, {constant(0x400000, i32, lanes)}")
        odd_one = self.op("isnan", operand)
        chosen = self.instruction(f"select {vector('i1', lanes)} {odd_one.name}, {wide} {quiet}, {wide} {total}")
        high = self.instruction(f"lshr {wide} {chosen}, {constant(16, i32, lanes)}")
        return self.instruction(f"trunc {wide} {high} to {vector('i16', lanes)}")

    def round_f16(self, operand: Lanes) -> Lanes:
        return self.from_memory(self.to_memory(operand, f16), f16, operand.lanes)

    # Operations across lanes.

    def iota(self, lanes: int, element: str = "i64") -> str:
        return "<" + ", ".join(f"{element} {lane}" for lane in range(lanes)) + ">"

    def horizontal(self, combiner: str, values: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Reduce all lanes to one by a fixed tree: halves onto halves."""
        while values[0].lanes > 1:
            lanes = values[0].lanes
            half = lanes // 2
            halves: list[tuple[Lanes, ...]] = []
            for start in (0, half):
                taken: list[Lanes] = []
                for value in values:
                    taken.append(self._take(value, start, half))
                halves.append(tuple(taken))
            values = COMBINERS[combiner].combine(self, halves[0], halves[1])
        return values

    def prefix(self, combiner: str, value: Lanes) -> Lanes:
        """Scan over lanes (inclusive), in log2 steps of distance 1, 2, 4, ..."""
        (identity,) = COMBINERS[combiner].identity(value.dtype)
        neutral = self.splat(self.constant(identity, value.dtype), value.lanes)
        step = 1
        while step < value.lanes:
            chosen = [lane - step if lane >= step else value.lanes for lane in range(value.lanes)]
            (value,) = COMBINERS[combiner].combine(self, (self._shuffle(value, neutral, chosen),), (value,))
            step *= 2
        return value

    def last(self, value: Lanes) -> Lanes:
        """Broadcast the last lane."""
        return self._shuffle(value, None, [value.lanes - 1] * value.lanes)

    def _shuffle(self, left: Lanes, right: Lanes | None, chosen: Sequence[int]) -> Lanes:
        """Shuffle the lanes of two vectors of equal length; the right one's lanes are numbered after the left one's.

        Bools are shuffled as bytes: LLVM's code generator does not terminate on some shuffles of i1 with constants."""
        if left.dtype.kind == "b":
            bytes_left = Lanes(u8, left.lanes, (self.to_memory(left, bool_),))
            bytes_right = None if right is None else Lanes(u8, right.lanes, (self.to_memory(right, bool_),))
            return self.from_memory(self._shuffle(bytes_left, bytes_right, chosen).name, bool_, len(chosen))
        kind = register_type(left.dtype.real, left.lanes)
        places = ", ".join(f"i32 {lane}" for lane in chosen)
        parts = [
            self.instruction(f"shufflevector {kind} {a}, {kind} {b}, <{len(chosen)} x i32> <{places}>")
            for a, b in zip(left.parts, right.parts if right else ["poison"] * len(left.parts), strict=True)
        ]
        return Lanes(left.dtype, len(chosen), tuple(parts))

    def _take(self, value: Lanes, start: int, size: int) -> Lanes:
        if size > 1:
            return self._shuffle(value, None, range(start, start + size))
        wide = register_type(value.dtype.real, value.lanes)
        parts = [self.instruction(f"extractelement {wide} {part}, i64 {start}") for part in value.parts]
        return Lanes(value.dtype, 1, tuple(parts))

    def select(self, mask: str, lanes: int, yes: Lanes, no: Lanes) -> Lanes:
        kind = register_type(yes.dtype.real, lanes)
        yes, no = self.splat(yes, lanes), self.splat(no, lanes)
        parts = [
            self.instruction(f"select {vector('i1', lanes)} {mask}, {kind} {a}, {kind} {b}")
            for a, b in zip(yes.parts, no.parts, strict=True)
        ]
        return Lanes(yes.dtype, lanes, tuple(parts))


# Intrinsics with a trailing flag "is poison for some input", always false here.
WITH_FLAG = {"llvm.abs", "llvm.ctlz", "llvm.cttz"}


def _zero(lanes: int) -> str:
    return "0" if lanes == 1 else "zeroinitializer"


COMPLEX_OF = {"f32": c64, "f64": c128}
