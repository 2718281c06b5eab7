"""Bessel functions of orders 0 and 1, and Airy's function.

As in PyTorch, i0, i0e, i1 and i1e have derivatives, and the others have none.
"""

from __future__ import annotations

from ..ir.types import FLOAT, float_of
from .define import Tensor, composite, prim
from .kinds import Elementwise
from .pointwise import convert, eq, isinf, rounded_once, sgn, where
from .special import sinc_slope


def _over(result: Tensor, self: Tensor) -> Tensor:
    """result / self, of a function that is self / 2 at 0."""
    zero = eq(self, 0)
    return where(zero, 0.5, result / where(zero, 1, self))


@prim(Elementwise("i0", promote="float"), dtypes=FLOAT)
def i0(self: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""


@i0.vjp
def i0_vjp(grad, self):
    return grad * special_i1(self)


@prim(Elementwise("i1", promote="float"), dtypes=FLOAT)
def special_i1(self: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""


@special_i1.vjp
def special_i1_vjp(grad, self, result):
    return grad * (i0(self) - _over(result, self))


@prim(Elementwise("i0e", promote="float"), dtypes=FLOAT)
def special_i0e(self: Tensor) -> Tensor:
    """i0(self) * exp(-abs(self))."""


@special_i0e.vjp
def special_i0e_vjp(grad, self, result):
    return grad * (special_i1e(self) - sgn(self) * result)


@prim(Elementwise("i1e", promote="float"), dtypes=FLOAT)
def special_i1e(self: Tensor) -> Tensor:
    """i1(self) * exp(-abs(self))."""


@special_i1e.vjp
def special_i1e_vjp(grad, self, result):
    return grad * (special_i0e(self) - sgn(self) * result - _over(result, self))


@composite(differentiable=False)
def special_modified_bessel_i0(self: Tensor) -> Tensor:
    """i0(self)."""
    return i0(self)


@composite(differentiable=False)
def special_modified_bessel_i1(self: Tensor) -> Tensor:
    """special_i1(self)."""
    return special_i1(self)


@prim(Elementwise("k0", promote="float"), dtypes=FLOAT, differentiable=False)
def special_modified_bessel_k0(self: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 0."""


@prim(Elementwise("k1", promote="float"), dtypes=FLOAT, differentiable=False)
def special_modified_bessel_k1(self: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 1."""


@prim(Elementwise("scaled_k0", promote="float"), dtypes=FLOAT, differentiable=False)
def special_scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """special_modified_bessel_k0(x) * exp(x)."""


@prim(Elementwise("scaled_k1", promote="float"), dtypes=FLOAT, differentiable=False)
def special_scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """special_modified_bessel_k1(x) * exp(x)."""


@prim(Elementwise("j0", promote="float"), dtypes=FLOAT, differentiable=False)
def special_bessel_j0(self: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 0."""


@prim(Elementwise("j1", promote="float"), dtypes=FLOAT, differentiable=False)
def special_bessel_j1(self: Tensor) -> Tensor:
    """The Bessel function of the first kind, of order 1."""


@prim(Elementwise("y0", promote="float"), dtypes=FLOAT, differentiable=False)
def special_bessel_y0(self: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 0."""


@prim(Elementwise("y1", promote="float"), dtypes=FLOAT, differentiable=False)
def special_bessel_y1(self: Tensor) -> Tensor:
    """The Bessel function of the second kind, of order 1."""


@composite(differentiable=False)
@rounded_once
def special_spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x: 1 at 0, 0 at infinity."""
    return where(isinf(x), 0, sinc_slope(convert(x, float_of(x.dtype)), 0))


@prim(Elementwise("airy_ai", promote="float"), dtypes=FLOAT, differentiable=False)
def special_airy_ai(x: Tensor) -> Tensor:
    """Airy's function Ai."""
