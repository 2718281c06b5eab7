"""Derivatives of scatter_combine.

The first derivative of a product by a factor is the product of all other factors. It is an op with a derivative of its
own, so that second derivatives are right at factors of zero, too.
"""

from __future__ import annotations

from .create import ones_like, zeros_like
from .define import Tensor, composite, constant
from .indexing import gather_along, scatter_combine
from .pointwise import cast, convert, eq, where
from .shapes import Shape
from .view import expand


def _crop(value: Tensor, shape: Shape) -> Tensor:
    """Return the leading part of value that a smaller index covers."""
    for dim, size in enumerate(shape):
        if value.shape[dim] != size:
            value = value.slice(dim, 0, size)
    return value


class Factors:
    """The factors of products: an element of self, and all elements of src that go to it. Zeros are counted, and left
    out of the products."""

    def __init__(self, value: Tensor, dim: int, index: Tensor, source: Tensor):
        self.dim, self.index = dim, index
        self.is_zero = eq(value, 0), eq(source, 0)
        self.kept = where(self.is_zero[0], 1, value), where(self.is_zero[1], 1, source)
        self.product = scatter_combine(self.kept[0], dim, index, self.kept[1], combine="mul")
        self.zeros = self.sums(*(convert(item, value.dtype) for item in self.is_zero))

    def sums(self, value: Tensor, source: Tensor) -> Tensor:
        """Return the sum over the factors of each product."""
        return scatter_combine(value, self.dim, self.index, source, combine="add")

    def seen(self, value: Tensor, place: int) -> Tensor:
        """Return a value of each product at its factors: of self (0) or of src (1)."""
        return gather_along(value, self.dim, self.index) if place else value


@composite
def scatter_other_products(self: Tensor, dim: int, index: Tensor, src: Tensor) -> tuple[Tensor, Tensor]:
    """Of each factor of self's products with src at index along dim, the product of all others: of self, and of src."""
    factors = Factors(self, dim, index, src)

    def others(place: int) -> Tensor:
        others = factors.seen(factors.zeros, place) - convert(factors.is_zero[place], self.dtype)
        return where(eq(others, 0), factors.seen(factors.product, place) / factors.kept[place], 0)

    return others(0), others(1)


@scatter_other_products.jvp
def scatter_other_products_jvp(self_tangent, src_tangent, self, dim, index, src):
    return _through_others(
        zeros_like(self) if self_tangent is None else self_tangent,
        zeros_like(src) if src_tangent is None else src_tangent,
        *(self, dim, index, src),
    )


@scatter_other_products.vjp
def scatter_other_products_vjp(grads, self, dim, index, src):
    by_self, by_source = _through_others(grads[0], grads[1], self, dim, index, src)  # the matrix is symmetric
    return {"self": by_self, "src": by_source}


def _through_others(to_self, to_source, self, dim, index, src):
    """Return the products without two factors, times a number for the second one, summed over the second one."""
    factors = Factors(self, dim, index, src)
    moved = to_self, to_source
    ratios = [where(factors.is_zero[place], 0, moved[place] / factors.kept[place]) for place in (0, 1)]
    nonzero = factors.sums(*ratios)
    zero = factors.sums(*(where(factors.is_zero[place], moved[place], 0) for place in (0, 1)))

    def at(place):
        count, product = factors.seen(factors.zeros, place), factors.seen(factors.product, place)
        by_nonzero, by_zero = factors.seen(nonzero, place), factors.seen(zero, place)
        is_zero, kept = factors.is_zero[place], factors.kept[place]
        without_zeros = product / kept * (by_nonzero - ratios[place])
        with_one = product * where(is_zero, by_nonzero, by_zero / kept)
        with_two = where(is_zero, product * (by_zero - moved[place]), 0)
        rest = where(eq(count, 1), with_one, where(eq(count, 2), with_two, 0))
        return where(eq(count, 0), without_zeros, rest)

    return at(0), at(1)


def _slopes(result: Tensor, self: Tensor, dim: int, index: Tensor, src: Tensor, combine: str) -> tuple:
    """Return the derivatives of the result by self and by the elements of src that are read; None is 1."""
    if combine == "add":
        return None, None
    if combine == "write":
        return scatter_combine(ones_like(self), dim, index, constant(0, self.dtype), combine="write"), None
    source = _crop(src, index.shape) if src.ndim else expand(src, index.shape)
    if combine == "mul":
        return scatter_other_products(self, dim, index, source)  # type: ignore[no-any-return]
    # Counts are in the compute type: f16 and bf16 do not represent large ones.
    chosen_self = cast(self == result, self.dtype.compute)
    chosen_source = cast(source == gather_along(result, dim, index), self.dtype.compute)
    count = scatter_combine(chosen_self, dim, index, chosen_source, combine="add")
    return chosen_self / count, chosen_source / gather_along(count, dim, index)


def _times(value: Tensor, slope: Tensor | None) -> Tensor:
    return value if slope is None else value * slope


@scatter_combine.vjp
def scatter_combine_vjp(grad, result, self, dim, index, src, combine):
    by_self, by_source = _slopes(result, self, dim, index, src, combine)
    from_source = _times(gather_along(grad, dim, index), by_source)
    if src.ndim:
        grown = [0] * (2 * src.ndim)
        for position, (size, covered) in enumerate(zip(src.shape, index.shape)):
            grown[2 * (src.ndim - 1 - position) + 1] = size - covered
        if any(amount != 0 for amount in grown):
            from_source = from_source.constant_pad_nd(grown)
    return {"self": _times(grad, by_self), "src": from_source}


@scatter_combine.jvp
def scatter_combine_jvp(self_tangent, src_tangent, result, self, dim, index, src, combine):
    by_self, by_source = _slopes(result, self, dim, index, src, combine)
    base = zeros_like(self) if self_tangent is None else _times(self_tangent, by_self)
    if src_tangent is None:
        return base
    moved = _crop(src_tangent, index.shape) if src.ndim else expand(src_tangent, index.shape)
    return scatter_combine(base, dim, index, _times(moved, by_source), combine="write" if combine == "write" else "add")
