"""The closed table of scalar ops: what one element's computation may use.

One row = one scalar op: its name, how NumPy computes it (the reference), how LLVM spells it, or an expansion
into other scalar ops. A back end that has every row without an expansion can compile every elementwise op.

LLVM spellings are by the kind of the operand type (b u i f): either an intrinsic ("llvm.sqrt"), called on
operands of one type, or an instruction template with {t} for the type, {a} {b} {c} for the operands and {f}
for the fast-math flags. Both serve scalars and vectors alike. In registers a bool is an i1, f16 and bf16 are f32.

An expansion is a function `(b, *operands) -> operand` over a ScalarBuilder. It must be straight-line code:
it is inlined into vector loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..ir.types import DType


class Operand(Protocol):
    """What a builder hands around: opaque but for its element type."""

    dtype: DType


class ScalarBuilder(Protocol):
    """What an expansion may say."""

    def op(self, name: str, *operands: Any) -> Any:
        """Another scalar op. Operands have one type (the condition of `where` apart)."""

    def constant(self, value: Any, dtype: DType) -> Any: ...

    def cast(self, operand: Any, dtype: DType) -> Any: ...

    def bitcast(self, operand: Any, dtype: DType) -> Any:
        """The same bits as another type of the same width."""


@dataclass(frozen=True)
class ScalarOp:
    """One row of the table."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    llvm: Mapping[str, str] | None = None
    expansion: Callable[..., Any] | None = None
    result: str = "same"  # same | bool | real | complex
    cost: int = 1  # in additions, roughly: what recomputing it costs


SCALARS: dict[str, ScalarOp] = {}


def scalar(name: str, arity: int, numpy: Callable[..., Any], **fields: Any) -> None:
    """Add a row."""
    if name in SCALARS:
        raise ValueError(f"scalar op {name} is defined twice")
    SCALARS[name] = ScalarOp(name, arity, numpy, **fields)


scalar("add", 2, np.add, llvm={"f": "fadd {f} {t} {a}, {b}", "iu": "add {t} {a}, {b}", "b": "or {t} {a}, {b}"})
scalar("mul", 2, np.multiply, llvm={"f": "fmul {f} {t} {a}, {b}", "iu": "mul {t} {a}, {b}", "b": "and {t} {a}, {b}"})
