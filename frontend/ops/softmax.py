"""Softmax and its logarithm: exponentials and reductions along one dimension, one kernel each.

f16 and bf16 tensors are computed in f32 and the result is rounded once. A derivative is the named backward op,
which reads the result instead of computing it again.
"""

from __future__ import annotations

from ..ir.errors import DTypeError
from ..ir.types import DType, bool_, f32, float_of
from .define import Tensor, composite
from .elementary import exp, log
from .pointwise import convert, eq, reciprocal, where, widen
from .reduce import amax
from .reduce import sum as total
from .shapes import dimension
from .view import detach, reshape


def _is_empty(value: Tensor, dim: int) -> bool:
    size = value.shape[dim] if value.ndim else 1
    return isinstance(size, int) and size == 0


def _shifted(value: Tensor, dim: int) -> Tensor:
    """Return value minus its maximum along dim, in its compute type."""
    wide = widen(value)
    # The shift cancels out, so the maximum needs no derivative.
    return wide if _is_empty(wide, dim) else wide - detach(amax(wide, dim, True))


def _converted(value: Tensor, dtype: DType | None) -> Tensor:
    if dtype is None:
        return value
    if not dtype.is_float:
        raise DTypeError(f"dtype is {dtype}, accepted are floats: exponentials have no other type")
    return convert(value, dtype)


@composite
def softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(self) / sum(exp(self)) along dim."""
    return _softmax(_converted(self, dtype), dim, False)


@composite
def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(self) / sum(exp(self)) along dim; half_to_float keeps the f32 result of a half input."""
    dim = dimension(dim, self.ndim)
    target = f32 if half_to_float else float_of(self.dtype)
    powers = exp(_shifted(self, dim))
    # One division per row, then multiplications, which are much faster.
    return convert(powers * reciprocal(total(powers, dim, True)), target)


@composite
def _safe_softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Softmax along dim, and zero where all of a row is -inf."""
    value = _converted(self, dtype)
    dim = dimension(dim, value.ndim)
    if _is_empty(value, dim):
        return value
    masked = eq(detach(amax(value, dim, True)), float("-inf"))
    return where(masked, 0.0, _softmax(value, dim, False))


@softmax.vjp
@_softmax.vjp
@_safe_softmax.vjp
def softmax_vjp(grad, result, self, dim):
    return _softmax_backward_data(grad, result, dim, self.dtype)


@composite
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """output * (grad_output - sum(grad_output * output)) along dim."""
    dim = dimension(dim, output.ndim)
    weighted = widen(grad_output) * widen(output)
    return convert(weighted - widen(output) * total(weighted, dim, True), input_dtype)


@composite
def log_softmax(self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """self - log(sum(exp(self))) along dim."""
    return _log_softmax(_converted(self, dtype), dim, False)


@composite
def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """self - log(sum(exp(self))) along dim; half_to_float keeps the f32 result of a half input."""
    dim = dimension(dim, self.ndim)
    target = f32 if half_to_float else float_of(self.dtype)
    shifted = _shifted(self, dim)
    return convert(shifted - log(total(exp(shifted), dim, True)), target)


@log_softmax.vjp
@_log_softmax.vjp
def log_softmax_vjp(grad, result, self, dim):
    return _log_softmax_backward_data(grad, result, dim, self.dtype)


@composite
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """grad_output - exp(output) * sum(grad_output) along dim."""
    dim = dimension(dim, output.ndim)
    gradient = widen(grad_output)
    return convert(gradient - exp(widen(output)) * total(gradient, dim, True), input_dtype)


def _mask_over(self: Tensor, mask: Tensor, mask_type: int | None) -> Tensor:
    """Return the mask as it broadcasts against self: over rows and columns (0), over rows of a batch (1), or as it
    is."""
    if mask.dtype is not bool_:
        raise DTypeError(f"mask is {mask.dtype}, accepted is bool")
    if mask_type == 0 and mask.ndim == 2:
        return mask
    if mask_type == 1 and mask.ndim == 2 and self.ndim == 4:
        return reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))
    return mask


@composite
def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """Softmax along dim (the last one) of the elements where mask does not hold; zero where it does."""
    where_not = where(_mask_over(self, mask, mask_type), float("-inf"), self)
    return _softmax(where_not, -1 if dim is None else dim, False)


@_masked_softmax.vjp
def _masked_softmax_vjp(grad, result, self, mask, dim, mask_type):
    return _masked_softmax_backward(grad, result, _mask_over(self, mask, mask_type), dim), None


@composite
def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """_softmax_backward_data of the elements where mask does not hold; zero where it does."""
    kept = where(mask, 0, output)
    found = _softmax_backward_data(where(mask, 0, grad_output), kept, -1 if dim is None else dim, output.dtype)
    return where(mask, 0, found)
