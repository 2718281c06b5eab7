"""What compiled code calls: nothing that a process might not have."""

from __future__ import annotations

import json

import pytest
from smelt.backend.cpu.codegen.scalars import ScalarEmitter
from smelt.backend.cpu.image.image import _address
from smelt.backend.cpu.llvm.engine import engine
from smelt.backend.cpu.llvm.parts import Part
from smelt.backend.cpu.llvm.types import MEMORY, Lanes, vector
from smelt.ir.errors import CompileError
from smelt.ir.types import DType, bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8
from smelt.kernels.scalar.table import BASE, SCALARS

# Functions of C's library and of its mathematics, which images look for by themselves.
ALLOWED = {"memcpy", "memset", "memmove", "fmod", "fmodf"}
SOME = ("add", "asinh", "copysign", "erf", "fmax", "fmin", "fmod", "sinh", "sqrt", "trunc")  # unless --long is given
KINDS = ((bool_,), (u8, i8, i16, i32, i64), (c64, c128), (f16, bf16, f32, f64))
STORED = (bool_, i8, i64, f16, bf16, f32, f64)
ATTRIBUTES = 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }'


class Functions:
    """Functions that load operands, compute, and store what they found."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.declarations: set[str] = set()

    def add(self, name: str, dtype: DType, stored: DType, lanes: int) -> None:
        """Store a result of an op: by way of the f16 or bf16 that it would be in a register, or both."""
        lines: list[str] = []
        emitter = ScalarEmitter(lines.append, self.declarations, lambda some, yes, no: yes())
        operands = [self.load(emitter, dtype, lanes, f"%p{place}") for place in range(SCALARS[name].arity)]
        if name in ("where", "select"):
            operands[0] = self.load(emitter, bool_, lanes, "%p0")
        result = emitter.op(name, *operands)
        result = emitter.splat(Lanes(result.dtype.real, result.lanes, result.parts[:1]), lanes)
        rounded = self.converted(emitter, result, stored)
        kind = vector(MEMORY[stored.name], lanes)
        lines.append(f"store {kind} {emitter.to_memory(rounded, stored)}, ptr %q, align 1")
        for way, place in ((f64, "%q1"), (f32, "%q2")):  # there and back again
            again = self.converted(emitter, emitter.cast(rounded, way), stored)
            lines.append(f"store {kind} {emitter.to_memory(again, stored)}, ptr {place}, align 1")
        head = f"define void @f{len(self.texts)}(ptr %p0, ptr %p1, ptr %p2, ptr %q, ptr %q1, ptr %q2) #0"
        self.texts.append("\n  ".join([head + " {", *lines, "ret void"]) + "\n}")

    @staticmethod
    def converted(emitter: ScalarEmitter, value: Lanes, stored: DType) -> Lanes:
        value = emitter.cast(value, stored.compute)
        rounding = {"f16": emitter.round_f16, "bf16": emitter.round_bf16}.get(stored.name)
        return value if rounding is None else rounding(value)

    @staticmethod
    def load(emitter: ScalarEmitter, dtype: DType, lanes: int, place: str) -> Lanes:
        kind = vector(MEMORY[dtype.real.name], lanes)
        parts = [emitter.instruction(f"load {kind}, ptr {place}, align 1") for _ in range(2 if dtype.is_complex else 1)]
        if dtype.is_complex:
            return Lanes(dtype, lanes, tuple(parts))
        return emitter.from_memory(parts[0], dtype, lanes)

    def symbols(self) -> set[str]:
        """What they call."""
        text = "\n".join([*self.texts, *sorted(self.declarations), ATTRIBUTES])
        head = engine().object_code([Part(text, plain=False)]).partition(b"\n")[0]
        return set(json.loads(head)["outside"])


def called(name: str, kinds: tuple[DType, ...], lanes: int) -> set[str] | None:
    """What the functions of an op on some types call; None if there are none."""
    functions = Functions()
    try:
        for dtype in kinds:
            for stored in STORED:
                functions.add(name, dtype, stored, lanes)
        return functions.symbols()
    except (CompileError, KeyError):
        return None  # no op of these types


@pytest.mark.parametrize("lanes", [1, 16])
def test_scalar_ops_call_nothing(request: pytest.FixtureRequest, lanes: int) -> None:
    is_long = request.config.getoption("--long")
    found: dict[str, set[str]] = {}
    for name in SCALARS:
        if name in BASE or not (is_long or name in SOME):
            continue
        results = [called(name, kinds, lanes) for kinds in (KINDS if is_long else KINDS[-1:])]
        assert not is_long or any(item is not None for item in results), name
        for item in results:
            if item and item - ALLOWED:
                found[name] = item - ALLOWED
    assert not found


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_may_be_called_is_found(name: str) -> None:
    assert _address(name)
