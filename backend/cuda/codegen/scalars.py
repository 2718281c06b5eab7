"""Write scalar ops as Python text that numba.cuda compiles and that its simulator runs.

Values have the types of NumPy's scalars. Spellings are from the scalar table (kernels/scalar/table.py): Python
operators, and functions with CUDA's names (expf for f32, exp for f64), provided by library.py. A row without a spelling
is expanded once per module, as a device function. A complex number is a pair of texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.errors import CompileError
from ....ir.types import DType, bool_, c64, c128, f32, f64, i32, i64, u32
from ....kernels.scalar.float8 import FROM_BYTE, TO_BYTE
from ....kernels.scalar.table import COMBINERS, SCALARS, ScalarOp, cuda_spelling, result_dtype

# NumPy's names of register types.
NAMES = {
    "bool": "bool_",
    "u8": "uint8",
    "f8_e4m3fn": "uint8",
    "f8_e5m2": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}

COMPLEX_OF = {"f32": c64, "f64": c128}


@dataclass(frozen=True)
class Text:
    """An operand: one name or literal, two for a complex number."""

    dtype: DType
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        (part,) = self.parts
        return part


class Functions:
    """The device functions of a module by name, callees before callers."""

    def __init__(self) -> None:
        self.sources: dict[str, list[str]] = {}

    def add(self, name: str, operands: Sequence[DType], body: Callable[..., Sequence[Text]]) -> str:
        """Define a function that returns the value made by `body(builder, *operands)`, unless it is defined."""
        if name not in self.sources:
            self.sources[name] = []  # under construction
            names = [
                [f"{letter}{part}" for part in range(2 if item.is_complex else 1)]
                for item, letter in zip(operands, "abcdefgh", strict=False)
            ]
            lines: list[str] = []
            builder = TextBuilder(lines.append, self, inside=True)
            results = body(builder, *(Text(item, tuple(parts)) for item, parts in zip(operands, names, strict=True)))
            returned = ", ".join(part for item in results for part in item.parts)
            head = f"def {name}({', '.join(part for parts in names for part in parts)}):"
            del self.sources[name]  # reinserted after its callees
            self.sources[name] = ["@device", head, *(f"    {line}" for line in [*lines, f"return {returned}"])]
        return name


class TextBuilder:
    """A ScalarBuilder (kernels/scalar/table.py) that writes one line per op. Expansions rely on every rounding: in them
    no product is contracted with a sum to an FMA."""

    def __init__(self, line: Callable[[str], None], functions: Functions, inside: bool = False):
        self.line = line
        self.functions = functions
        self.inside = inside
        self.counter = 0
        self.wanted: str | None = None  # name of the next result

    def fresh(self) -> str:
        self.counter += 1
        return f"{'s' if self.inside else 'e'}{self.counter}"

    def assign(self, text: str, dtype: DType) -> Text:
        name, self.wanted = self.wanted or self.fresh(), None
        self.line(f"{name} = {text}")
        return Text(dtype, (name,))

    def constant(self, value: Any, dtype: DType) -> Text:
        if dtype.is_complex:
            number = complex(value)
            return Text(dtype, (literal(number.real, dtype.real), literal(number.imag, dtype.real)))
        return Text(dtype, (literal(value, dtype),))

    def op(self, name: str, *operands: Text) -> Text:
        row = SCALARS[name]
        dtype = operands[-1].dtype
        if name in ("real", "imag") and dtype.is_complex:
            return Text(dtype.real, (operands[0].parts[name == "imag"],))
        if name == "complex":
            return Text(COMPLEX_OF[operands[0].dtype.name], (operands[0].name, operands[1].name))
        text = None if dtype.is_complex else self.spelled(row, dtype, operands)
        if text is not None:
            return self.assign(text, result_dtype(row, dtype))
        expansion = row.complex_expansion if dtype.is_complex else row.expansion
        if expansion is None:
            raise CompileError(f"{name} on {dtype} has neither a spelling for CUDA nor an expansion")
        return self.called(f"{name}_{dtype}", expansion, operands, result_dtype(row, dtype))

    def spelled(self, row: ScalarOp, dtype: DType, operands: Sequence[Text]) -> str | None:
        """Spell a row of the table on real operands; None if it must be expanded."""
        names = [operand.name for operand in operands]
        if row.name == "mul" and dtype.is_float and self.inside:
            return f"{'fmul_rn' if dtype is f32 else 'dmul_rn'}({', '.join(names)})"
        text = cuda_spelling(row, dtype)
        if text is None:
            return None
        if text.isidentifier():
            return f"{function_name(text, dtype)}({', '.join(names)})"
        wide = NAMES[dtype.name if dtype.bits >= 32 else "i32"]
        return text.format(t=NAMES[dtype.name], w=wide, **dict(zip("abc", names, strict=False)))

    def called(self, name: str, expansion: Callable[..., Text], operands: Sequence[Text], result: DType) -> Text:
        """Call an expansion as a device function."""
        kinds = [operand.dtype for operand in operands]
        function = self.functions.add(name, kinds, lambda builder, *given: [expansion(builder, *given)])
        arguments = ", ".join(part for operand in operands for part in operand.parts)
        name, self.wanted = self.wanted or self.fresh(), None
        names = (f"{name}_re", f"{name}_im") if result.is_complex else (name,)
        self.line(f"{', '.join(names)} = {function}({arguments})")
        return Text(result, names)

    def cast(self, operand: Text, dtype: DType) -> Text:
        """Convert: from float to integer towards zero, saturating, nan to 0."""
        source = operand.dtype
        if source is dtype:
            return operand
        if source.kind == "e":
            bits = self.assign(f"int32({operand.name})", i32)
            return self.cast(self.called(f"from_{source}", FROM_BYTE[source.name], [bits], f32), dtype)
        if dtype.kind == "e":
            bits = self.called(f"to_{dtype}", TO_BYTE[dtype.name], [self.cast(operand, f32)], i32)
            return self.assign(f"uint8({bits.name})", dtype)
        if dtype.is_complex:
            if source.is_complex:
                parts = [self.cast(Text(source.real, (part,)), dtype.real).name for part in operand.parts]
                return Text(dtype, tuple(parts))
            return Text(dtype, (self.cast(operand, dtype.real).name, literal(0.0, dtype.real)))
        if source.is_complex:
            if dtype.kind == "b":
                return self.op("ne", operand, self.constant(0, source))
            return self.cast(Text(source.real, operand.parts[:1]), dtype)
        if dtype.kind == "b":
            return self.op("ne", operand, self.constant(0, source))
        if source.is_float and dtype.is_integer:
            wide = i32 if dtype.bits < 32 else i64 if dtype is u32 else dtype
            whole = self.assign(f"{NAMES[source.name]}_to_{NAMES[wide.name]}({operand.name})", wide)
            return whole if wide is dtype else self.cast(whole, dtype)
        return self.assign(f"{NAMES[dtype.name]}({operand.name})", dtype)

    def bitcast(self, operand: Text, dtype: DType) -> Text:
        if {operand.dtype.kind, dtype.kind} <= {"i", "u"}:
            return self.assign(f"{NAMES[dtype.name]}({operand.name})", dtype)
        return self.assign(f"{BITCASTS[operand.dtype.name, dtype.name]}({operand.name})", dtype)

    def rare(self, condition: Text, fast: Text, slow: Callable[..., Text], operands: Sequence[Text]) -> Text:
        """Branch around an expansion that is rarely needed."""
        name = f"{slow.__name__.replace('.', '_')}_{operands[0].dtype}"
        function = self.functions.add(
            name, [operand.dtype for operand in operands], lambda builder, *given: [slow(builder, *given)]
        )
        arguments = ", ".join(operand.name for operand in operands)
        return self.assign(f"{function}({arguments}) if {condition.name} else {fast.name}", fast.dtype)

    def loop(self, step: Callable[..., Sequence[Text]], state: Sequence[Text]) -> Text:
        """Call a device function that repeats the step."""
        kinds = [operand.dtype for operand in state]
        function = self.functions.add(
            f"{step.__name__.replace('.', '_')}_{kinds[0]}",
            kinds,
            lambda builder, *given: [builder.repeated(step, given)],
        )
        return self.assign(f"{function}({', '.join(operand.name for operand in state)})", kinds[0])

    def repeated(self, step: Callable[..., Sequence[Text]], state: Sequence[Text]) -> Text:
        """Write the loop over parameters of a device function, which hold the state."""
        self.line("while True:")
        inner = TextBuilder(lambda text: self.line(f"    {text}"), self.functions, inside=True)
        more, *following = step(inner, *state)
        inner.line(f"if not {more.name}:")
        inner.line("    break")
        inner.line(f"{', '.join(item.name for item in state)} = {', '.join(item.name for item in following)}")
        return state[0]

    def combiner(self, name: str, dtypes: Sequence[DType]) -> str:
        """Name the device function that combines two partial results, given as left parts, then right parts."""
        count = len(dtypes)
        return self.functions.add(
            f"combine_{name}_{dtypes[0]}",
            [*dtypes, *dtypes],
            lambda builder, *given: COMBINERS[name].combine(builder, given[:count], given[count:]),
        )

    def round_to(self, operand: Text, name: str) -> Text:
        """Round an f32 to the precision of f16 or bf16."""
        return self.assign(f"from_{name}(to_{name}({operand.name}))", f32)


BITCASTS = {
    ("f32", "i32"): "float_as_int",
    ("i32", "f32"): "int_as_float",
    ("f64", "i64"): "double_as_longlong",
    ("i64", "f64"): "longlong_as_double",
}


def function_name(name: str, dtype: DType) -> str:
    return name if dtype is f64 else f"{name}f"


def literal(value: Any, dtype: DType) -> str:
    """Spell a number of a type in Python."""
    if dtype is bool_:
        return str(bool(value))
    name = NAMES[dtype.name]
    if dtype.kind == "e":
        return f"uint8({np.asarray(value, np.float32).astype(dtype.numpy).view(np.uint8)})"
    if dtype.is_float:
        number = float(value)
        if math.isnan(number):
            return f"{name}(nan)"
        if math.isinf(number):
            return f"{name}({'-' if number < 0 else ''}inf)"
        return f"{name}({number!r})"
    number = int(value)
    # The smallest i64 has no literal: the number is read before the minus sign.
    return f"{name}({number + 1} - 1)" if dtype is i64 and number == -(2**63) else f"{name}({number})"


def memory_name(dtype: DType) -> str:
    """Return NumPy's name of a buffer's elements in memory: bools are bytes, bf16 and float8 their bits."""
    return {"bool": "uint8", "bf16": "uint16", "f16": "float16"}.get(dtype.name) or NAMES[dtype.name]


def from_memory(text: str, dtype: DType) -> str:
    """Convert a loaded element to a register."""
    if dtype is bool_:
        return f"{text} != 0"
    return f"from_{dtype.name}({text})" if dtype.compute is not dtype else text


def to_memory(value: Text, dtype: DType) -> str:
    """Convert a register to a stored element."""
    if dtype is bool_:
        return f"uint8({value.name})"
    if dtype.is_complex:
        return f"{NAMES[dtype.name]}(complex({value.parts[0]}, {value.parts[1]}))"
    return f"to_{dtype.name}({value.name})" if dtype.compute is not dtype else value.name
