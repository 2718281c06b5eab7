"""Special functions, one each: Bessel functions, the normal distribution, relatives of Gamma, polynomials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .define import Array, Draw, Names, Workload, sizes, workload

LONG = sizes(tiny=(37,), small=(4096,), medium=(1 << 18,), large=(1 << 20,))
Inputs = Callable[[Draw, int], Sequence[Array]]


def normal(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.normal(count, scale=2.0)]


def wide(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(-20.0, 20.0, count)]


def positive(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(0.05, 20.0, count)]


def probability(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(1e-6, 1 - 1e-6, count)]


def exponent_and_place(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(1.1, 20.0, count), draw.uniform(0.05, 20.0, count)]


def order_and_end(draw: Draw, count: int) -> Sequence[Array]:
    order = draw.uniform(0.05, 20.0, count)
    return [order, order * draw.uniform(0.2, 2.0, count)]


def place_and_degree(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(-1.2, 1.2, count), draw.integers(12, count).astype(float)]


# By PyTorch's names in torch.special: what they are given, and whether SciPy has them. PyTorch's J, Y and Ai are left
# out: results are compared, and those are wrong in the seventh digit.
FUNCTIONS: dict[str, tuple[Inputs, bool]] = {
    "i0": (normal, True),
    "i0e": (normal, True),
    "i1": (normal, True),
    "i1e": (normal, True),
    "modified_bessel_k0": (positive, True),
    "modified_bessel_k1": (positive, True),
    "scaled_modified_bessel_k0": (positive, True),
    "scaled_modified_bessel_k1": (positive, True),
    "spherical_bessel_j0": (wide, False),
    "erfcx": (normal, True),
    "log_ndtr": (normal, True),
    "ndtri": (probability, True),
    "zeta": (exponent_and_place, True),
    "gammainc": (order_and_end, True),
    "gammaincc": (order_and_end, True),
    "chebyshev_polynomial_t": (place_and_degree, False),
    "shifted_chebyshev_polynomial_w": (place_and_degree, False),
    "hermite_polynomial_h": (place_and_degree, False),
    "laguerre_polynomial_l": (place_and_degree, False),
    "legendre_polynomial_p": (place_and_degree, False),
}


def measured(name: str, inputs: Inputs, has_numpy: bool) -> Workload:
    def function(xp: Names, *operands: Array) -> Array:
        return xp.special(name, *operands)

    function.__name__ = f"special_{name}"
    function.__doc__ = f"torch.special.{name}."
    return workload("special", inputs, LONG, dtype="f64", has_numpy=has_numpy)(function)


for _name, (_inputs, _has_numpy) in FUNCTIONS.items():
    globals()[f"special_{_name}"] = measured(_name, _inputs, _has_numpy)
