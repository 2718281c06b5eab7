"""Reductions over dimensions: sums, products, minima, maxima, means, variances, norms."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import COMPLEX, REAL, DType, bf16, bool_, c64, c128, f32, f64, float_of, i64, u8
from . import elementary, minmax, pointwise
from .create import iota, number_of
from .define import Dims, Scalar, Tensor, composite, prim
from .kinds import Reduce
from .opdef import OpDef
from .shapes import at_least, broadcast, dimensions, reduced
from .view import detach, expand, reshape


def restored(value: Tensor, shape: Sequence[Dim], dims: Sequence[int], keepdim: bool) -> Tensor:
    """Return a reduction's result (or its gradient) with the reduced dimensions restored as size 1."""
    return value if keepdim or not dims else reshape(value, reduced(tuple(shape), dims, True))


def _not_empty(value: Tensor, dims: Sequence[int]) -> None:
    for dim in dims:
        if not at_least(value.shape[dim], 1):
            raise ShapeError(f"dimension {dim} has no elements, so there is no result")


def accumulable(value: Tensor, dtype: DType | None) -> Tensor:
    """Return value in the accumulation type of a reduction: the requested one, or i64 for integers and bools."""
    return pointwise.convert(value, dtype or (value.dtype if value.dtype.is_inexact else i64))


def _kept(dtype: DType | None) -> DType | None:
    """Return the dtype attribute to keep: only one that stops integers from becoming i64, as the operand tells the
    rest."""
    return None if dtype is None or dtype.is_inexact or dtype is i64 else dtype


def _floating(value: Tensor, dtype: DType | None = None) -> Tensor:
    """Return the operand in its compute type: f16 and bf16 are rounded once, at the end."""
    wanted = dtype or value.dtype
    if not wanted.is_inexact:
        raise DTypeError(f"self is {value.dtype}, expected a float or complex type: cast it first")
    return pointwise.convert(value, wanted.compute)


def _count(value: Tensor, dims: Sequence[int]) -> int | Tensor:
    """Return the number of elements that are reduced into one."""
    return number_of(product(value.shape[dim] for dim in dims), value.dtype.real)


# Primitives


@prim(Reduce("add"), keeps_sign=True)
def sum(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum over dim; integers and bools add up as i64."""
    return {"self": accumulable(self, dtype), "dim": dimensions(dim, self.ndim), "dtype": _kept(dtype)}


@sum.vjp
def sum_vjp(grad, self, dim, keepdim):
    return expand(restored(grad, self.shape, dim, keepdim), self.shape)


def total_over(value: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """The sum over dims; over none of them the value itself."""
    return sum(value, tuple(dims), keepdim) if dims else value


@prim(Reduce("mul"))
def prod(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The product over dim; integers and bools multiply as i64."""
    return {"self": accumulable(self, dtype), "dim": dimensions(dim, self.ndim), "dtype": _kept(dtype)}


@prim(Reduce("max"), dtypes=REAL, keeps_sign=True)
def amax(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element over dim; NaN if there is one."""
    dims = dimensions(dim, self.ndim)
    _not_empty(self, dims)
    return {"dim": dims}


@prim(Reduce("min"), dtypes=REAL, keeps_sign=True)
def amin(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest element over dim; NaN if there is one."""
    dims = dimensions(dim, self.ndim)
    _not_empty(self, dims)
    return {"dim": dims}


def _shares(result: Tensor, self: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    """Return 1 / n at each of the n elements equal to the extreme; 0 elsewhere."""
    return _share(pointwise.eq(self, restored(result, self.shape, dim, keepdim)), self.dtype, dim)


def _share(hit: Tensor, dtype: DType, dim: Sequence[int]) -> Tensor:
    """Return 1 / n at each of the n elements over dim that are hit; 0 elsewhere. n is in the compute type: f16 and bf16
    do not represent large counts."""
    mask = pointwise.cast(hit, dtype.compute)
    return mask / sum(mask, dim, True)


@amax.vjp
@amin.vjp
def extreme_vjp(grad, result, self, dim, keepdim):
    return restored(grad, self.shape, dim, keepdim) * _shares(result, self, dim, keepdim)


@amax.jvp
@amin.jvp
def extreme_jvp(self_tangent, result, self, dim, keepdim):
    return sum(self_tangent * _shares(result, self, dim, keepdim), dim, keepdim)


def _single_dimension(value: Tensor, dim: Dims, keepdim: bool) -> dict:
    """Return the arguments of argmax or argmin over exactly one dimension: without dim, and for 0-dim tensors, of the
    flattened tensor."""
    wanted = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
    if value.ndim == 0:
        dimensions(wanted, 0)
        return {"self": reshape(value, (1,)), "dim": (0,), "keepdim": False}
    if wanted is None:
        lead = (1,) * (value.ndim - 1) if keepdim else ()
        value = reshape(value, (*lead, value.type.numel))
        dims: tuple[int, ...] = (len(lead),)
    else:
        dims = dimensions(wanted, value.ndim)
    if len(dims) != 1:
        raise ArgumentError(f"dim is {dim}, expected one dimension or None")
    _not_empty(value, dims)
    return {"self": value, "dim": dims}


@prim(Reduce("argmax", result="i64"), dtypes=REAL)
def argmax(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element along dim (the first of several), or in the flattened tensor."""
    return _single_dimension(self, dim, keepdim)


@prim(Reduce("argmin", result="i64"), dtypes=REAL)
def argmin(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element along dim (the first of several), or in the flattened tensor."""
    return _single_dimension(self, dim, keepdim)


def _truth(self: Tensor, dim: Dims) -> dict[str, Any]:
    return {"self": pointwise.convert(self, bool_), "dim": dimensions(dim, self.ndim)}


@prim(Reduce("any", result="bool"))
def any_true(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element over dim is not zero, as a bool."""
    return _truth(self, dim)


@prim(Reduce("all", result="bool"))
def all_true(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether no element over dim is zero, as a bool."""
    return _truth(self, dim)


def _found(op: OpDef, self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Apply any or all; an empty dim reduces over no dim, unlike in other reductions."""
    if isinstance(dim, Sequence) and not dim:
        return pointwise.convert(self, bool_)
    return op(self, dim, keepdim)


@composite(differentiable=False)
def any(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element over dim is not zero; a bool, but for u8 a u8."""
    found = _found(any_true, self, dim, keepdim)
    return pointwise.cast(found, u8) if self.dtype is u8 else found


@composite(differentiable=False)
def all(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether no element over dim is zero; a bool, but for u8 a u8."""
    found = _found(all_true, self, dim, keepdim)
    return pointwise.cast(found, u8) if self.dtype is u8 else found


# Means and variances


@composite
def mean(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum over dim divided by the number of elements."""
    value = _floating(self, dtype)
    dims = dimensions(dim, self.ndim)
    return pointwise.convert(sum(value, dims, keepdim) / _count(value, dims), dtype or self.dtype)


@mean.vjp
def mean_vjp(grad, self, dim, keepdim):
    dims = dimensions(dim, self.ndim)
    return expand(restored(grad / _count(self, dims), self.shape, dims, keepdim), self.shape)


def _degrees(value: Tensor, dims: Sequence[int], correction: Scalar | None) -> int | float | Tensor:
    """Return the divisor of a variance: count - correction, at least 0; 0 without elements, whatever the correction."""
    lost = 1 if correction is None else correction
    count = _count(value, dims)
    if isinstance(count, Tensor):
        found = minmax.maximum(count - lost, 0)
        return found if lost >= 0 else pointwise.where(pointwise.eq(count, 0), 0, found)  # type: ignore[operator]
    return builtins.max(count - lost, 0) if count else 0  # type: ignore[operator, type-var]


def _deviation(value: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the mean, and each element's deviation from it. Two passes: no cancellation."""
    middle = sum(value, dims, True) / _count(value, dims)
    return middle, value - middle


def _square(value: Tensor) -> Tensor:
    if value.dtype.is_complex:
        real, imaginary = pointwise.real(value), pointwise.imag(value)
        return real * real + imaginary * imaginary
    return value * value


# Accumulation types of squares, for types in which squares or their sums overflow before the variance or its root does.
_SQUARED_IN = {f32: f64, bf16: f64, c64: c128}


def _moments(self: Tensor, dims: Sequence[int], correction: Scalar | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the variance in its accumulation type, and the mean."""
    value = _floating(self)
    middle, deviation = _deviation(value, dims)
    deviation = pointwise.convert(deviation, _SQUARED_IN.get(self.dtype, deviation.dtype))
    variance = sum(_square(deviation), dims, keepdim) / _degrees(deviation, dims, correction)
    return variance, pointwise.convert(reshape(middle, reduced(self.shape, dims, keepdim)), self.dtype)


@composite
def var_mean(
    self: Tensor, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance (see var) and the mean over dim."""
    variance, middle = _moments(self, dimensions(dim, self.ndim), correction, keepdim)
    return pointwise.convert(variance, self.dtype.real), middle


@var_mean.vjp
def var_mean_vjp(grads, self, dim, correction, keepdim):
    parts = (
        None if grads.known(0) is None else var_vjp(grads[0], self, dim, correction, keepdim),
        None if grads.known(1) is None else mean_vjp(grads[1], self, dim, keepdim),
    )
    return pointwise.added(*parts)


@composite
def var(self: Tensor, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Tensor:
    """The sum of squared deviations from the mean, divided by their number minus correction (1)."""
    return var_mean(self, dim, correction=correction, keepdim=keepdim)[0]


@var.vjp
def var_vjp(grad, self, dim, correction, keepdim):
    dims = dimensions(dim, self.ndim)
    value = _floating(self)
    scale = _floating(grad) * 2 / _degrees(value, dims, correction)
    return pointwise.convert(restored(scale, self.shape, dims, keepdim) * _deviation(value, dims)[1], self.dtype)


@composite
def std_mean(
    self: Tensor, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean over dim."""
    variance, middle = _moments(self, dimensions(dim, self.ndim), correction, keepdim)
    return pointwise.convert(elementary.sqrt(variance), self.dtype.real), middle


@std_mean.vjp
def std_mean_vjp(grads, results, self, dim, correction, keepdim):
    parts = (
        None if grads.known(0) is None else std_vjp(grads[0], results[0], self, dim, correction, keepdim),
        None if grads.known(1) is None else mean_vjp(grads[1], self, dim, keepdim),
    )
    return pointwise.added(*parts)


@composite
def std(self: Tensor, dim: Dims = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Tensor:
    """The square root of the variance."""
    return std_mean(self, dim, correction=correction, keepdim=keepdim)[0]


@std.vjp
def std_vjp(grad, result, self, dim, correction, keepdim):
    return var_vjp(_through_root(grad, result), self, dim, correction, keepdim)


@std_mean.jvp
def std_mean_jvp(self_tangent, results, self, dim, correction, keepdim):
    dims = dimensions(dim, self.ndim)
    value, moved = _floating(self), _floating(self_tangent)
    away = _deviation(value, dims)[1]
    along = pointwise.real(moved * pointwise.conj(away)) if value.dtype.is_complex else moved * away
    change = sum(along, dims, keepdim) * 2 / _degrees(value, dims, correction)
    return _through_root(change, results[0]), mean(self_tangent, dim, keepdim)


def _through_root(change: Tensor, root: Tensor) -> Tensor:
    """Return the derivative of a square root, given that of its operand; at zero it is defined as zero, not
    infinite."""
    zero = root == 0
    return pointwise.where(zero, 0, change / (pointwise.where(zero, 1, root) * 2))


# Extremes


def _selected(value: Tensor, dim: int, keepdim: bool, indices: Tensor) -> Tensor:
    """Return the elements of value at indices along dim: the tangent of an extreme is that of the chosen element."""
    if value.ndim == 0:
        return value
    dims = dimensions(dim, value.ndim)
    picked = value.gather(dims[0], restored(indices, value.shape, dims, keepdim))
    return picked if keepdim else reshape(picked, indices.shape)


def _placed(grad: Tensor, value: Tensor, dim: int, keepdim: bool, indices: Tensor) -> Tensor:
    """Return grad at indices along dim, zero elsewhere. A comparison instead of a scatter: it fuses."""
    if value.ndim == 0:
        return grad
    dims = dimensions(dim, value.ndim)
    extent = tuple(size if position in dims else 1 for position, size in enumerate(value.shape))
    here = iota(extent, dim=dims[0], dtype=i64) == restored(indices, value.shape, dims, keepdim)
    return pointwise.where(here, restored(grad, value.shape, dims, keepdim), 0)


@composite
def max_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The largest element along dim and its index."""
    return amax(self, dim, keepdim), argmax(self, dim, keepdim)


@composite
def min_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest element along dim and its index."""
    return amin(self, dim, keepdim), argmin(self, dim, keepdim)


@max_dim.vjp
@min_dim.vjp
def extreme_dim_vjp(grads, results, self, dim, keepdim):
    return _placed(grads[0], self, dim, keepdim, results[1])


@max_dim.jvp
@min_dim.jvp
def extreme_dim_jvp(self_tangent, results, dim, keepdim):
    return _selected(self_tangent, dim, keepdim, results[1]), None


@composite
def max(self: Tensor, dim: Tensor | Scalar | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element; along dim, with its index; of two tensors, the larger at each place."""
    if dim is None:
        return amax(self)
    return minmax.maximum(self, dim) if isinstance(dim, Tensor) else max_dim(self, dim, keepdim)


@composite
def min(self: Tensor, dim: Tensor | Scalar | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The smallest element; along dim, with its index; of two tensors, the smaller at each place."""
    if dim is None:
        return amin(self)
    return minmax.minimum(self, dim) if isinstance(dim, Tensor) else min_dim(self, dim, keepdim)


@composite
def aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element over dim."""
    return amin(self, dim, keepdim), amax(self, dim, keepdim)


# Sums of something


@composite
def logsumexp(self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum over dim of exp(self), without overflow."""
    wanted = float_of(self.dtype)
    value = _floating(self, wanted)
    dims = dimensions(dim, self.ndim)
    if builtins.any(self.shape[axis] == 0 for axis in dims):
        return pointwise.convert(elementary.log(sum(elementary.exp(value), dims, keepdim)), wanted)
    largest = amax(value, dims, True)
    # An infinite maximum would give inf - inf.
    shift = detach(pointwise.where(pointwise.isfinite(largest), largest, 0))
    total = elementary.log(sum(elementary.exp(value - shift), dims, keepdim))
    return pointwise.convert(total + reshape(shift, total.shape), wanted)


@logsumexp.vjp
def logsumexp_vjp(grad, result, self, dim, keepdim):
    dims = dimensions(dim, self.ndim)
    finite = pointwise.where(result == -math.inf, 0, result)
    weight = elementary.exp(self - restored(finite, self.shape, dims, keepdim))
    return restored(grad, self.shape, dims, keepdim) * weight


@composite
def nansum(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum over dim of the elements that are not NaN."""
    value = pointwise.where(pointwise.isnan(self), 0, self) if self.dtype.is_float else self
    return sum(value, dim, keepdim, dtype=dtype)


@composite
def nanmean(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean over dim of the elements that are not NaN."""
    value = _floating(self, dtype)
    missing = pointwise.isnan(value)
    total = sum(pointwise.where(missing, 0, value), dim, keepdim)
    present = sum(pointwise.cast(~missing, value.dtype), dim, keepdim)
    return pointwise.convert(total / present, dtype or self.dtype)


@composite(differentiable=False)
def count_nonzero(self: Tensor, dim: Dims = None) -> Tensor:
    """How many elements over dim are not zero."""
    return sum(self != 0, dim)


# Norms


@composite
def linalg_vector_norm(
    self: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The sum over dim of |self|**ord, to the power of 1/ord; for ord = inf, -inf the extreme of |self|."""
    value = _floating(self, dtype)
    dims = dimensions(dim, self.ndim)
    if ord != 0 and builtins.all(self.shape[axis] == 1 for axis in dims):
        # One element: no power, which could overflow.
        result = reshape(pointwise.abs(value), reduced(self.shape, dims, keepdim))
    elif ord == 2:
        result = elementary.sqrt(sum(_square(value), dims, keepdim))
    elif ord == 0:
        result = sum(pointwise.cast(value != 0, value.dtype.real), dims, keepdim)
    elif ord == 1:
        result = sum(pointwise.abs(value), dims, keepdim)
    elif math.isinf(ord):
        result = (amax if ord > 0 else amin)(pointwise.abs(value), dims, keepdim)
    else:
        result = sum(pointwise.abs(value) ** ord, dims, keepdim) ** (1 / ord)
    return pointwise.convert(result, (dtype or self.dtype).real)


def _norm_slope(result: Tensor, self: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor | None:
    """Return the derivative of the norm by each element; zero where it does not exist."""
    dims = dimensions(dim, self.ndim)
    length = restored(result, self.shape, dims, keepdim)
    if ord == 0:
        return None
    if ord == 1:
        return pointwise.sgn(self)
    zero = length == 0
    safe = pointwise.where(zero, 1, length)
    if ord == 2:
        return pointwise.where(zero, 0, self / safe)
    if math.isinf(ord):
        return pointwise.sgn(self) * _share(pointwise.abs(self) == length, length.dtype, dims)
    # The branch that `where` drops needs a finite derivative, too.
    none = zero | (self == 0)
    ratio = pointwise.abs(pointwise.where(none, 1, self)) / safe
    return pointwise.where(none, 0, pointwise.sgn(self) * ratio ** (ord - 1))


@linalg_vector_norm.vjp
def linalg_vector_norm_vjp(grad, result, self, ord, dim, keepdim):
    slope = _norm_slope(result, self, ord, dim, keepdim)
    if slope is None:
        return None
    return restored(grad, self.shape, dimensions(dim, self.ndim), keepdim) * slope


@linalg_vector_norm.jvp
def linalg_vector_norm_jvp(self_tangent, result, self, ord, dim, keepdim):
    slope = _norm_slope(result, self, ord, dim, keepdim)
    if slope is None:
        return None
    if self.dtype in COMPLEX:
        return sum(pointwise.real(self_tangent * pointwise.conj(slope)), dim, keepdim)
    return sum(self_tangent * slope, dim, keepdim)


@composite
def norm(
    self: Tensor,
    p: float | str | None = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The vector norm of order p over dim; "fro" is order 2."""
    if isinstance(p, str) and p != "fro":
        raise ArgumentError(f"p is {p!r}, expected a number or 'fro'")
    return linalg_vector_norm(self, 2 if p is None or p == "fro" else p, dim, keepdim, dtype=dtype)


@composite
def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of order p of self - other."""
    return linalg_vector_norm(self - other, p)


@composite
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The sum over dim of x1 * x2, divided by both norms, each at least eps."""
    shape = broadcast([x1.shape, x2.shape])
    x1, x2 = expand(x1, shape), expand(x2, shape)  # dim counts in the broadcast shape, and so do the norms
    norms = [minmax.clamp_min(linalg_vector_norm(x, 2, dim, True), eps) for x in (x1, x2)]
    return sum((x1 / norms[0]) * (x2 / norms[1]), dim)


@composite
def _is_all_true(self: Tensor) -> Tensor:
    """Whether all elements of a bool tensor hold."""
    return all(_truths(self))


@composite
def _is_any_true(self: Tensor) -> Tensor:
    """Whether any element of a bool tensor holds."""
    return any(_truths(self))


def _truths(self: Tensor) -> Tensor:
    if self.dtype is not bool_:
        raise DTypeError(f"self is {self.dtype}, accepted is bool")
    return self
