"""Rounding, and ops on how numbers are stored: sign, neighbour, nan and infinities."""

from __future__ import annotations

import builtins
import math

import numpy as np

from ..ir.types import FLOAT
from .define import Tensor, composite, prim, zero_derivative
from .kinds import Elementwise
from .pointwise import REAL_NUMBER, cast, complex, eq, gt, imag, isnan, positive, real, sign, where


@prim(Elementwise("floor"), dtypes=REAL_NUMBER)
def floor(self: Tensor) -> Tensor:
    """The largest integer not above self."""


@prim(Elementwise("ceil"), dtypes=REAL_NUMBER)
def ceil(self: Tensor) -> Tensor:
    """The smallest integer not below self."""


@prim(Elementwise("trunc"), dtypes=REAL_NUMBER)
def trunc(self: Tensor) -> Tensor:
    """self without its fraction."""


@composite
def fix(self: Tensor) -> Tensor:
    """self without its fraction."""
    return trunc(self)


@prim(Elementwise("round"), dtypes=REAL_NUMBER)
def rint(self: Tensor) -> Tensor:
    """The nearest integer, halves to the even one."""


zero_derivative(floor, ceil, trunc, rint)


@composite
def round(self: Tensor, *, decimals: int = 0) -> Tensor:
    """self rounded to `decimals` decimals, halves to even."""
    if decimals == 0:
        return rint(self)
    scale = 10.0 ** builtins.abs(decimals) if builtins.abs(decimals) <= 308 else math.inf
    return rint(self * scale) / scale if decimals > 0 else rint(self / scale) * scale


zero_derivative(round)


@prim(Elementwise("frac"), dtypes=FLOAT)
def frac(self: Tensor) -> Tensor:
    """self - trunc(self)."""


@frac.vjp
def frac_vjp(grad):
    return grad


@prim(Elementwise("rounded_product"), dtypes=FLOAT, commutes=True)
def rounded_product(self: Tensor, other: Tensor) -> Tensor:
    """self * other, rounded before it is added to anything: it never becomes a part of a fused multiply-add."""


@rounded_product.vjp
def rounded_product_vjp(grad, self, other):
    return grad * other, grad * self


@prim(Elementwise("copysign", promote="float"), dtypes=FLOAT)
def copysign(self: Tensor, other: Tensor) -> Tensor:
    """|self| with the sign of other."""


@copysign.vjp
def copysign_vjp(grad, self, other):
    return grad * sign(self) * copysign(1, other), None


@prim(Elementwise("nextafter", narrow=True), dtypes=FLOAT, differentiable=False)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The number next to self towards other."""


@composite(differentiable=False)
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, values at zero."""
    return where(eq(self, 0), values, cast(gt(self, 0), self.dtype))


@composite
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """self with nan and the infinities replaced: by 0 and the largest finite numbers unless given."""
    if not self.dtype.is_inexact:
        return positive(self)
    if self.dtype.is_complex:
        return complex(nan_to_num(real(self), nan, posinf, neginf), nan_to_num(imag(self), nan, posinf, neginf))
    result = where(isnan(self), 0.0 if nan is None else nan, self)
    largest = LARGEST[self.dtype.name]
    result = where(eq(self, math.inf), largest if posinf is None else posinf, result)
    return where(eq(self, -math.inf), -largest if neginf is None else neginf, result)


LARGEST = {
    "f16": 65504.0,
    "bf16": float(np.ldexp(255.0, 120)),
    "f32": float(np.finfo(np.float32).max),
    "f64": float(np.finfo(np.float64).max),
}
