"""Orthogonal polynomials whose degree is a tensor. As in PyTorch they have no derivatives."""

from __future__ import annotations

from ..ir.types import FLOAT
from .define import Tensor, prim
from .kinds import Elementwise


@prim(Elementwise("chebyshev_t", promote="float"), dtypes=FLOAT, differentiable=False)
def special_chebyshev_polynomial_t(x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the first kind of degree n."""


@prim(Elementwise("chebyshev_u", promote="float"), dtypes=FLOAT, differentiable=False)
def special_chebyshev_polynomial_u(x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the second kind of degree n."""


@prim(Elementwise("chebyshev_v", promote="float"), dtypes=FLOAT, differentiable=False)
def special_chebyshev_polynomial_v(x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the third kind of degree n."""


@prim(Elementwise("chebyshev_w", promote="float"), dtypes=FLOAT, differentiable=False)
def special_chebyshev_polynomial_w(x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomial of the fourth kind of degree n."""


@prim(Elementwise("shifted_chebyshev_t", promote="float"), dtypes=FLOAT, differentiable=False)
def special_shifted_chebyshev_polynomial_t(x: Tensor, n: Tensor) -> Tensor:
    """special_chebyshev_polynomial_t(2 * x - 1, n)."""


@prim(Elementwise("shifted_chebyshev_u", promote="float"), dtypes=FLOAT, differentiable=False)
def special_shifted_chebyshev_polynomial_u(x: Tensor, n: Tensor) -> Tensor:
    """special_chebyshev_polynomial_u(2 * x - 1, n)."""


@prim(Elementwise("shifted_chebyshev_v", promote="float"), dtypes=FLOAT, differentiable=False)
def special_shifted_chebyshev_polynomial_v(x: Tensor, n: Tensor) -> Tensor:
    """special_chebyshev_polynomial_v(2 * x - 1, n)."""


@prim(Elementwise("shifted_chebyshev_w", promote="float"), dtypes=FLOAT, differentiable=False)
def special_shifted_chebyshev_polynomial_w(x: Tensor, n: Tensor) -> Tensor:
    """special_chebyshev_polynomial_w(2 * x - 1, n)."""


@prim(Elementwise("hermite_h", promote="float"), dtypes=FLOAT, differentiable=False)
def special_hermite_polynomial_h(x: Tensor, n: Tensor) -> Tensor:
    """The physicists' polynomial of Hermite of degree n."""


@prim(Elementwise("hermite_he", promote="float"), dtypes=FLOAT, differentiable=False)
def special_hermite_polynomial_he(x: Tensor, n: Tensor) -> Tensor:
    """The probabilists' polynomial of Hermite of degree n."""


@prim(Elementwise("laguerre_l", promote="float"), dtypes=FLOAT, differentiable=False)
def special_laguerre_polynomial_l(x: Tensor, n: Tensor) -> Tensor:
    """Laguerre's polynomial of degree n."""


@prim(Elementwise("legendre_p", promote="float"), dtypes=FLOAT, differentiable=False)
def special_legendre_polynomial_p(x: Tensor, n: Tensor) -> Tensor:
    """Legendre's polynomial of degree n."""
