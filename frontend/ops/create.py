"""Ops without operands: constants, ranges, fills."""

from __future__ import annotations

import math
from typing import Any

from ..ir.errors import ArgumentError, DTypeError
from ..ir.proofs import ceil_divide
from ..ir.symbolic import Dim, Expr
from ..ir.types import DType, TensorType, bool_, f32, f64, i64, scalar_dtype
from .captures import ArrayConstant
from .define import Scalar, Size, Tensor, composite, prim, scalar_value
from .kinds import Arguments, Captured, ElementBuilder, Generate, Index
from .registry import as_held, lookup
from .registry import constant as make_constant
from .shapes import at_least


def _constant_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.constant(arguments["value"], arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], ()), _constant_element))
def constant(*, value: Scalar, dtype: DType) -> Tensor:
    """A number as a 0-dim tensor; printed as a literal such as 0.5:f32."""


@prim(Captured())
def captured(*, array: ArrayConstant) -> Tensor:
    """An array that the traced function refers to; tracing makes it a parameter."""


def _iota_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.cast(builder.index(index[arguments["dim"]]), arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], a["size"]), _iota_element), differentiable=False)
def iota(size: Size, *, dim: int, dtype: DType) -> Tensor:
    """Each element is its own index along dim."""


def _entryelement(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.cast(builder.index(arguments["value"]), arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], ()), _entryelement), differentiable=False)
def extent(*, value: Dim, dtype: DType) -> Tensor:
    """A size, which may be symbolic, as a 0-dim tensor."""


def number_of(size: Dim, dtype: DType) -> int | Tensor:
    """Return a size as a number, or as a 0-dim tensor if it is open."""
    return extent(value=size, dtype=dtype) if isinstance(size, Expr) else size


def _full_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.constant(arguments["fill_value"], arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], a["size"]), _full_element))
def full(size: Size, fill_value: Scalar, *, dtype: DType | None = None) -> Tensor:
    """fill_value everywhere; the type is that of the number unless given."""
    for entry in size:
        if not at_least(entry, 0):
            raise ArgumentError(f"size {list(size)} has a negative entry")
    wanted = scalar_dtype(fill_value) if dtype is None else dtype
    return {"fill_value": scalar_value(fill_value, wanted), "dtype": wanted}


@full.vjp
def full_vjp():
    return None


@composite
def zeros(size: Size, *, dtype: DType | None = None) -> Tensor:
    """0 everywhere."""
    return full(size, 0, dtype=dtype or f32)


@composite
def ones(size: Size, *, dtype: DType | None = None) -> Tensor:
    """1 everywhere."""
    return full(size, 1, dtype=dtype or f32)


@composite
def empty(size: Size, *, dtype: DType | None = None) -> Tensor:
    """0 everywhere: smelt has no uninitialised memory."""
    return full(size, 0, dtype=dtype or f32)


@composite
def full_like(self: Tensor, fill_value: Scalar, *, dtype: DType | None = None) -> Tensor:
    """fill_value in the shape of self."""
    return full(self.shape, fill_value, dtype=dtype or self.dtype)


@composite
def zeros_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """0 in the shape of self."""
    return full(self.shape, 0, dtype=dtype or self.dtype)


@composite
def ones_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """1 in the shape of self."""
    return full(self.shape, 1, dtype=dtype or self.dtype)


@composite
def empty_like(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """0 in the shape of self."""
    return full(self.shape, 0, dtype=dtype or self.dtype)


@composite
def new_full(self: Tensor, size: Size, fill_value: Scalar, *, dtype: DType | None = None) -> Tensor:
    """fill_value everywhere, in the type of self."""
    return full(size, fill_value, dtype=dtype or self.dtype)


@composite
def new_zeros(self: Tensor, size: Size, *, dtype: DType | None = None) -> Tensor:
    """0 everywhere, in the type of self."""
    return full(size, 0, dtype=dtype or self.dtype)


@composite
def new_ones(self: Tensor, size: Size, *, dtype: DType | None = None) -> Tensor:
    """1 everywhere, in the type of self."""
    return full(size, 1, dtype=dtype or self.dtype)


@composite
def new_empty(self: Tensor, size: Size, *, dtype: DType | None = None) -> Tensor:
    """0 everywhere, in the type of self."""
    return full(size, 0, dtype=dtype or self.dtype)


@composite
def fill(self: Tensor, value: Tensor | Scalar) -> Tensor:
    """value everywhere, in the shape and type of self."""
    if isinstance(value, Tensor):
        return value.to(self.dtype).expand(self.shape)
    return full(self.shape, value, dtype=self.dtype)


@composite
def scalar_tensor(s: Scalar, *, dtype: DType | None = None) -> Tensor:
    """A number as a 0-dim tensor, f32 unless told otherwise."""
    return make_constant(s, dtype or f32)


def _whole(*values: object) -> bool:
    return all(isinstance(value, int | Expr) and not isinstance(value, bool) for value in values)


def _steps(start: Any, end: Any, step: Any) -> Dim:
    if not _whole(start, end, step):
        return math.ceil((end - start) / step)
    return ceil_divide(end - start, step) if step > 0 else ceil_divide(start - end, -step)


@composite(differentiable=False)
def arange(
    start: Dim | float, end: Dim | float | None = None, step: float = 1, *, dtype: DType | None = None
) -> Tensor:
    """start, start + step, ..., without end; with one number, from 0 to it."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ArgumentError("step is 0")
    count = _steps(start, end, step)
    if not at_least(count, 0):
        raise ArgumentError(f"a step of {step} does not lead from {start} to {end}")
    wanted = dtype or (i64 if _whole(start, end, step) else f32)
    if isinstance(start, Expr):
        if step < 0:
            raise ArgumentError(f"a step of {step} from the symbolic size {start}: count upwards and flip")
        return iota((end,), dim=0, dtype=wanted).slice(0, start, end, step)
    # Integers are exact in the result's own type; fractions are rounded once, from f64.
    exact = float(start).is_integer() and float(step).is_integer()
    working = wanted.compute if exact and not wanted.is_complex and wanted is not bool_ else f64
    result = iota((count,), dim=0, dtype=working)
    if step != 1:
        result = result * step
    if start != 0:
        result = result + start
    return result.to(wanted)


@composite(differentiable=False)
def linspace(start: Scalar, end: Scalar, steps: int, *, dtype: DType | None = None) -> Tensor:
    """steps numbers evenly from start to end, both included."""
    if steps < 0:
        raise ArgumentError(f"steps is {steps}, expected at least 0")
    wanted = dtype or f32
    if wanted.is_complex:
        raise DTypeError("a complex range is not supported")
    # Evenly spaced integers lie between integers, as in PyTorch.
    start, end = as_held(start, wanted), as_held(end, wanted)
    place = iota((steps,), dim=0, dtype=f64)
    if steps < 2:
        return (place + start).to(wanted)
    step = (end - start) / (steps - 1)  # type: ignore[operator]
    # Computed from both ends, so that both are exact.
    from_end = end - (steps - 1 - place) * step
    return lookup("where")(place < steps // 2, start + place * step, from_end).to(wanted)


@composite(differentiable=False)
def logspace(start: Scalar, end: Scalar, steps: int, base: float = 10.0, *, dtype: DType | None = None) -> Tensor:
    """base to the powers of steps numbers evenly from start to end."""
    wanted = dtype or f32
    if steps > 1:
        start, end = as_held(start, wanted), as_held(end, wanted)
    return (base ** linspace(start, end, steps, dtype=f64)).to(wanted)


@composite(differentiable=False)
def eye(n: Dim, m: Dim | None = None, *, dtype: DType | None = None) -> Tensor:
    """1 where row and column are the same, else 0."""
    shape = (n, n if m is None else m)
    return (iota(shape, dim=0, dtype=i64) == iota(shape, dim=1, dtype=i64)).to(dtype or f32)


@composite(differentiable=False)
def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class that self names, 0 at all others, along a new last dimension."""
    if num_classes < 1:
        raise ArgumentError(f"num_classes is {num_classes}: give the number, the shape cannot depend on the data")
    if not self.dtype.is_integer:
        raise DTypeError(f"self is {self.dtype}, expected an integer type")
    classes = iota((num_classes,), dim=0, dtype=i64)
    named = classes.select_along(0, self)  # self, with a run-time check of the class
    return (named.unsqueeze(-1) == classes).to(i64)
