"""Padding by the tensor's own elements: reflect, replicate and circular."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim
from . import reduce
from .concat_pad import cat, constant_pad_nd, padding_of
from .define import Scalar, Tensor, composite
from .shapes import at_least
from .view import alias, expand, flip, slice


def _signs(value: Tensor, pad: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """Split the amounts into added and cropped elements."""
    if len(pad) % 2 or len(pad) > 2 * value.ndim:
        raise ArgumentError(f"pad {list(pad)} must be pairs for at most {value.ndim} dimensions")
    cropped = [size if isinstance(size, int) and size < 0 else 0 for size in pad]
    return [0 if crop else size for size, crop in zip(pad, cropped)], cropped


def edged(value: Tensor, dim: int, before: Dim, after: Dim, mode: str) -> Tensor:
    """Pad one dimension by its own elements."""
    size = value.shape[dim]
    parts: list[Tensor] = []
    if mode == "replicate":
        grown = [list(value.shape), list(value.shape)]
        grown[0][dim], grown[1][dim] = before, after
        if before != 0:
            parts.append(expand(slice(value, dim, 0, 1), grown[0]))
        parts.append(value)
        if after != 0:
            parts.append(expand(slice(value, dim, size - 1, size), grown[1]))
        return cat(parts, dim)
    gap = 1 if mode == "reflect" else 0
    for amount in (before, after):
        if amount != 0 and not at_least(size, amount + gap):
            raise ShapeError(f"{mode} padding by {amount} needs {amount + gap} elements, dimension {dim} has {size}")
    if mode == "reflect":
        if before != 0:
            parts.append(flip(slice(value, dim, 1, before + 1), (dim,)))
        parts.append(value)
        if after != 0:
            parts.append(flip(slice(value, dim, size - 1 - after, size - 1), (dim,)))
    else:
        if before != 0:
            parts.append(slice(value, dim, size - before, size))
        parts.append(value)
        if after != 0:
            parts.append(slice(value, dim, 0, after))
    return cat(parts, dim)


@composite
def pad(self: Tensor, pad: Sequence[Dim], mode: str = "constant", value: Scalar | None = None) -> Tensor:
    """self padded at its last dimensions (the last first): by a value, or by its own elements, by mode."""
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ArgumentError(f"mode is {mode!r}, accepted are 'constant', 'reflect', 'replicate' and 'circular'")
    if mode == "constant":
        return constant_pad_nd(self, pad, 0 if value is None else value)
    grown, cropped = _signs(self, pad)
    result = self
    for position in range(0, len(pad), 2):
        before, after = grown[position : position + 2]
        if before != 0 or after != 0:
            result = edged(result, self.ndim - 1 - position // 2, before, after, mode)
    return constant_pad_nd(result, cropped) if any(size != 0 for size in cropped) else alias(result)


def _folded(grad: Tensor, dim: int, before: Dim, after: Dim, mode: str) -> Tensor:
    """Apply the transpose of `edged`: add the padded elements to their sources."""
    rank = grad.ndim
    size = grad.shape[dim] - before - after
    result = slice(grad, dim, before, before + size)
    first, last = slice(grad, dim, 0, before), slice(grad, dim, before + size, before + size + after)
    if mode == "reflect":
        parts = (flip(first, (dim,)), flip(last, (dim,)))
        gaps = ((1, size - 1 - before), (size - 1 - after, 1))
    else:
        parts = (reduce.sum(first, dim, True), reduce.sum(last, dim, True))
        gaps = ((0, size - 1), (size - 1, 0))
    for part, (left, right), amount in zip(parts, gaps, (before, after)):
        if amount != 0:
            result = result + constant_pad_nd(part, padding_of(rank, dim, left, right))
    return result


def _gradient(grad_output: Tensor, self: Tensor, padding: Sequence[Dim], mode: str) -> Tensor:
    grown, cropped = _signs(self, padding)
    result = grad_output
    if any(size != 0 for size in cropped):
        result = constant_pad_nd(result, tuple(-size for size in cropped))
    for position in reversed(range(0, len(padding), 2)):
        before, after = grown[position : position + 2]
        if before != 0 or after != 0:
            result = _folded(result, self.ndim - 1 - position // 2, before, after, mode)
    return alias(result) if result is grad_output else result


def _declare(name: str, mode: str, rank: int) -> None:
    """Declare a padding op of the last `rank` dims and its backward."""

    def check(self: Tensor, padding: Sequence[Dim]) -> None:
        if len(padding) != 2 * rank:
            raise ArgumentError(f"padding {list(padding)} has {len(padding)} sizes, expected {2 * rank}")
        if self.ndim not in (rank + 1, rank + 2):
            raise ShapeError(f"self has {self.ndim} dimensions, expected {rank + 1} or {rank + 2}")

    def forward(self: Tensor, padding: Sequence[Dim]) -> Tensor:
        check(self, padding)
        return pad(self, padding, mode)

    def backward(grad_output: Tensor, self: Tensor, padding: Sequence[Dim]) -> Tensor:
        check(self, padding)
        return _gradient(grad_output, self, padding, mode)

    how = "mirrored" if mode == "reflect" else "repeated"
    forward.__name__, backward.__name__ = name, f"{name}_backward"
    forward.__doc__ = f"The last {rank} dims of self padded by their elements, {how} at the edges."
    backward.__doc__ = f"grad_output, where the edges of {name} are added to the elements that they came from."
    padded, gradient = composite(forward), composite(backward)
    padded.vjp(lambda grad, self, padding: gradient(grad, self, padding))
    gradient.vjp(lambda grad, padding: {"grad_output": padded(grad, padding)})


for _name, _mode in (("reflection_pad", "reflect"), ("replication_pad", "replicate")):
    for _rank in (1, 2, 3):
        _declare(f"{_name}{_rank}d", _mode, _rank)
