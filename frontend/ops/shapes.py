"""Arithmetic on shapes, shared by type rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import gcd

from ..ir import asked
from ..ir.decided import needed
from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import ceil_divide, differs, floor_divide, maximum, minimum, non_negative, remainder
from ..ir.symbolic import (
    Compound,
    Dim,
    Expr,
    SizeNeeded,
    UndecidedSize,
    coefficients_of,
    evaluate,
    product,
    split,
    symbols_of,
)
from ..ir.types import DType

Shape = tuple[Dim, ...]


def fits_into(size: Expr, type: DType) -> bool:
    """Whether an integer type holds a size: by proof, or for the sizes at hand, which becomes a limit of the program.
    Without sizes at hand, types of 32 bits and more are assumed to hold it."""
    low, high = type.bounds
    if non_negative(high - size) and non_negative(size - low):
        return True
    trace = asked.current()
    if trace is None or not all(symbol.name in trace.hints for symbol in symbols_of(size)):
        if type.bits < 32:
            raise SizeNeeded(size)
        return True
    if not low <= evaluate(size, trace.hints) <= high:
        return False
    trace.limits += [(size, high), (-size, -low)]
    trace.where.append(f"{type} has to hold {size!r}")
    return True


def equal(left: Dim, right: Dim) -> bool:
    """Whether two sizes are equal; raises UndecidedSize if that depends on run-time sizes."""
    if left == right:
        return True
    if (isinstance(left, int) and isinstance(right, int)) or differs(left, right):
        return False
    raise UndecidedSize(left, right)


def at_least(size: Dim, least: Dim) -> bool:
    """Whether a size is at least another; raises UndecidedSize if that depends on run-time sizes."""
    gap = size - least
    if isinstance(gap, int):
        return gap >= 0
    if non_negative(gap):
        return True
    if non_negative(-1 - gap):
        return False
    if needed(gap, f"a size that data decide is too small: {size} must be at least {least}, and {size} is"):
        return True
    raise UndecidedSize(size, least - 1, f"the size {size} is at least {least}", is_wanted=True)


def divides(size: Dim, parts: Dim) -> bool:
    """Whether a size is a multiple of another; raises UndecidedSize if that depends on run-time sizes."""
    rest = remainder(*_without_common_factors(size, parts))
    if isinstance(rest, int):
        return rest == 0
    if differs(rest, 0):
        return False
    raise UndecidedSize(rest, 0, f"the size {size} is a multiple of {parts}")


def _without_common_factors(size: Dim, parts: Dim) -> tuple[Dim, Dim]:
    """Return two sizes without common factors, N * M and 2 * M as N and 2, which simplifies the test of
    divisibility."""
    coefficients = [number for item in (size, parts) for number in coefficients_of(item)]
    factors: list[Dim] = [gcd(*coefficients)]
    if isinstance(parts, Expr):
        factors += [atom.expr() for atom in parts.terms[0][0]]
    for factor in factors:
        (whole, rest), (others, left) = split(size, factor), split(parts, factor)
        if rest == 0 and left == 0:
            size, parts = whole, others
    return size, parts


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that all of these broadcast to."""
    first: Shape = ()
    for shape in shapes:
        if shape is not first and shape:
            if not first:
                first = shape
            elif shape != first:
                break
    else:
        return first
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = []
    for position in range(-rank, 0):
        size: Dim = 1
        for shape in shapes:
            if -position > len(shape):
                continue
            dim = shape[position]
            if dim == 1 or dim == size:
                continue
            if size == 1 or equal(size, 1):
                size = dim
            elif not equal(dim, 1) and not equal(dim, size):
                shown = ", ".join(str(list(shape)) for shape in shapes)
                raise ShapeError(f"shapes {shown} do not broadcast: {dim} meets {size} in dimension {position}")
        result.append(size)
    return tuple(result)


def dimension(dim: int, rank: int) -> int:
    """Return a dimension counted from the front. A 0-dim tensor counts as having one dimension."""
    if isinstance(dim, Expr):
        raise SizeNeeded(dim)
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ArgumentError(f"dim must be an int, got {dim!r}")
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise ArgumentError(
            f"dim {dim} is out of range for a tensor of {rank} dimensions: expected {-limit} to {limit - 1}"
        )
    return dim % limit


def dimensions(dim: int | Sequence[int] | None, rank: int, empty_is_all: bool = True) -> tuple[int, ...]:
    """Return sorted dimensions counted from the front; None means all of them."""
    if dim is None or (empty_is_all and not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(rank))
    wanted = [dim] if isinstance(dim, int) else list(dim)
    found = [dimension(item, rank) for item in wanted]
    if len(set(found)) != len(found):
        raise ArgumentError(f"dim {tuple(wanted)} names a dimension twice")
    return tuple(sorted(item for item in found if item < rank))


def reduced(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if position in dims else size for position, size in enumerate(shape))
    return tuple(size for position, size in enumerate(shape) if position not in dims)


def are_ints(items: tuple) -> bool:
    """Whether all items are ints: no symbolic size and no bool."""
    return _INT.issuperset(map(type, items))


_INT = frozenset((int,))


def resolve_reshape(old: Shape, new: Sequence[Dim]) -> Shape:
    """Return the new shape with -1 resolved, checked against the number of elements."""
    wanted = tuple(new)
    if are_ints(wanted) and are_ints(old) and min(wanted, default=0) >= 0 and math.prod(wanted) == math.prod(old):
        return wanted
    total = product(old)
    unknown = [position for position, size in enumerate(wanted) if isinstance(size, int) and size == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one size of {list(wanted)} may be -1")
    if any(size < -1 if isinstance(size, int) else not at_least(size, 0) for size in wanted):
        raise ShapeError(f"sizes of {list(wanted)} must not be negative")
    if unknown:
        known = product(size for size in wanted if not (isinstance(size, int) and size == -1))
        if known == 0 or not divides(total, known):
            raise ShapeError(f"cannot reshape {list(old)} to {list(wanted)}: {total} elements do not divide by {known}")
        filled = floor_divide(total, known)
        return tuple(filled if position == unknown[0] else size for position, size in enumerate(wanted))
    if not equal(product(wanted), total):
        raise ShapeError(f"cannot reshape {list(old)} to {list(wanted)}: {total} elements into {product(wanted)}")
    return wanted


def clamp_slice(size: Dim, start: Dim | None, end: Dim | None) -> tuple[Dim, Dim]:
    """Return start and end of a slice, negative ones counted from the end, clamped into 0..size."""
    if are_ints((size, 0 if start is None else start, 0 if end is None else end)):
        first, last, _ = slice(start, end).indices(size)  # type: ignore[arg-type]
        return first, max(first, last)

    def wrap(value: Dim, largest: Dim | None) -> Dim:
        if (isinstance(value, int) and value < 0) or (not isinstance(value, int) and not at_least(value, 0)):
            return maximum(size + value, 0)
        # PyTorch encodes "to the end" as the largest integer.
        if isinstance(value, int) and value >= 2**62:
            return size
        return value if largest is None else minimum(value, largest)

    begin, low = (wrap(0 if start is None else start, largest) for largest in (None, size))
    high = size if end is None else wrap(end, size)
    # The length is max(high - begin, 0): the unclamped start gives the shorter expression, also for nested slices.
    return low, low + maximum(high - begin, 0)


def slice_of_slice(size: Dim, outer: tuple[Dim, Dim, int], inner: tuple[Dim, Dim, int]) -> tuple[Dim, Dim, int]:
    """Return start, end and step of slice `inner` of slice `outer` of a size; both are clamped. The start of an empty
    slice is arbitrary, so the sum of the starts is clamped once."""
    inner_size = ceil_divide(outer[1] - outer[0], outer[2])
    start = minimum(_unclamped(outer[0], size) + _unclamped(inner[0], inner_size) * outer[2], size)
    return start, start + (inner[1] - inner[0] - 1) * outer[2] + 1, outer[2] * inner[2]


def _unclamped(start: Dim, size: Dim) -> Dim:
    """Return the operand of a clamp to `size`, if the expression is one; else the expression."""
    atom = None if isinstance(start, int) else start.atom
    return atom.left if isinstance(atom, Compound) and atom.operator == "min" and atom.right == size else start
