"""Elementwise ops: arithmetic, comparison, logic, bits, exponentials, trigonometry, rounding, casts."""

from __future__ import annotations

from ..ir.types import ANY, FLOAT, DType
from .define import Scalar, Tensor, prim
from .kinds import Elementwise


@prim(Elementwise("cast", promote="fixed", result="cast"), dtypes=ANY)
def cast(self: Tensor, dtype: DType) -> Tensor:
    """self converted to dtype."""


@cast.vjp
def cast_vjp(grad, self):
    return cast(grad, self.dtype)


@prim(Elementwise("add"))
def add(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self + alpha * other."""
    return None if alpha == 1 else {"other": other * alpha, "alpha": 1}


@add.vjp
def add_vjp(grad):
    return grad, grad


@prim(Elementwise("mul"))
def mul(self: Tensor, other: Tensor) -> Tensor:
    """self * other."""


@mul.vjp
def mul_vjp(grad, self, other):
    return grad * other, grad * self


@prim(Elementwise("exp", promote="float"), dtypes=FLOAT)
def exp(self: Tensor) -> Tensor:
    """e to the power of self."""


@exp.vjp
def exp_vjp(grad, result):
    return grad * result
