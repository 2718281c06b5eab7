"""Losses of class scores by margins: multi_margin_loss and multilabel_margin_loss, with their gradients."""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.types import i64
from .create import iota, number_of
from .define import Scalar, Tensor, composite
from .indexing import gather, scatter_add, select_along
from .loss import Reduction, _classes_of, _reduce, _reduction
from .pointwise import convert, eq, ge, gt, logical_and, logical_not, where, widen
from .reduce import any as any_of
from .reduce import sum as total
from .scan import cumsum
from .shapes import equal
from .view import reshape, unsqueeze


def _rows(self: Tensor) -> Tensor:
    """Return the scores as rows, in the compute type."""
    if self.ndim > 2:
        raise ShapeError(f"self has {self.ndim} dimensions, expected at most 2 (rows, classes)")
    return reshape(widen(self), (1,) * (2 - self.ndim) + self.shape)


def _margins(
    self: Tensor, target: Tensor, p: Scalar, margin: Scalar, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return each other class's score over the target's plus the margin where positive, the mask of targets, and the
    rows' weights."""
    if p not in (1, 2):
        raise ArgumentError(f"p is {p}, expected 1 or 2")
    value = _rows(self)
    classes = reshape(_classes_of(target), (value.shape[0],))
    hot = eq(iota((1, value.shape[1]), dim=1, dtype=classes.dtype), unsqueeze(classes, 1))
    over = value - gather(value, 1, unsqueeze(classes, 1)) + margin
    counted = logical_and(gt(over, 0), logical_not(hot))
    weights = None if weight is None else unsqueeze(select_along(widen(weight), 0, classes), 1)
    return where(counted, over, 0), hot, weights


@composite
def multi_margin_loss(
    self: Tensor,
    target: Tensor,
    p: Scalar = 1,
    margin: Scalar = 1,
    weight: Tensor | None = None,
    reduction: Reduction = 1,
) -> Tensor:
    """The mean over classes j of weight * max(0, margin - self[target] + self[j])**p, without the target itself."""
    over, _, weights = _margins(self, target, p, margin, weight)
    loss = over if p == 1 else over * over
    if weights is not None:
        loss = loss * weights
    rows = total(loss, 1) / number_of(over.shape[1], over.dtype)
    return _reduce(rows if self.ndim == 2 else reshape(rows, ()), reduction, self.dtype)


@multi_margin_loss.vjp
def multi_margin_loss_vjp(grad, self, target, p, margin, weight, reduction):
    if weight is not None:
        return NotImplemented
    return multi_margin_loss_backward(grad, self, target, p, margin, weight, reduction), None, None


@composite
def multi_margin_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: Scalar,
    margin: Scalar,
    weight: Tensor | None = None,
    reduction: Reduction = 1,
) -> Tensor:
    """The gradient of multi_margin_loss by self."""
    over, hot, weights = _margins(self, target, p, margin, weight)
    slope = convert(gt(over, 0), over.dtype) if p == 1 else over * 2
    if weights is not None:
        # An infinite weight does not make NaN of the classes that do not count.
        slope = where(gt(over, 0), slope * weights, 0)
    rows = where(hot, -total(slope, 1, True), slope)
    return _in_form(rows * _row_gradient(grad_output, over, reduction), self)


def _row_gradient(grad_output: Tensor, rows: Tensor, reduction: Reduction) -> Tensor:
    """Return the gradient of each row's sum over classes, as a column."""
    count, classes = (number_of(size, rows.dtype) for size in rows.shape)
    how = _reduction(reduction)
    if how == "none":
        return reshape(widen(grad_output), (rows.shape[0], 1)) / classes
    return widen(grad_output) / (classes * count if how == "mean" else classes)


def _in_form(rows: Tensor, self: Tensor) -> Tensor:
    return convert(reshape(rows, self.shape), self.dtype)


def _labels(self: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's classes up to the first negative one as rows with 0 after them, and the mask of those that
    count."""
    if not all(map(equal, self.shape, target.shape)) or self.ndim != target.ndim:
        raise ShapeError(f"target has shape {list(target.shape)}, expected {list(self.shape)} (that of self)")
    classes = reshape(_classes_of(target), (1,) * (2 - self.ndim) + target.shape)
    ended = cumsum(convert(logical_not(ge(classes, 0)), i64), 1)
    counts = eq(ended, 0)
    return where(counts, classes, 0), counts


def _pairs(value: Tensor, classes: Tensor, counts: Tensor, is_target: Tensor) -> Tensor:
    """Return 1 - self[target] + self[j] where positive, for each target of a row and each class j that is none."""
    over = unsqueeze(value, 1) - unsqueeze(gather(value, 1, classes), 2) + 1
    counted = logical_and(logical_and(unsqueeze(counts, 2), logical_not(unsqueeze(is_target, 1))), gt(over, 0))
    return where(counted, over, 0)


@composite
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: Reduction) -> tuple[Tensor, Tensor]:
    """The loss of multilabel_margin_loss, and the mask of targets. A row's targets end before the first negative."""
    value = _rows(self)
    classes, counts = _labels(self, target)
    places = iota((1, 1, value.shape[1]), dim=2, dtype=classes.dtype)
    is_target = any_of(logical_and(eq(unsqueeze(classes, 2), places), unsqueeze(counts, 2)), 1)
    rows = total(_pairs(value, classes, counts, is_target), (1, 2)) / number_of(value.shape[1], value.dtype)
    loss = _reduce(rows if self.ndim == 2 else reshape(rows, ()), reduction, self.dtype)
    return loss, reshape(convert(is_target, self.dtype), self.shape)


@multilabel_margin_loss_forward.vjp
def multilabel_margin_loss_forward_vjp(grads, results, self, target, reduction):
    return multilabel_margin_loss_backward(grads[0], self, target, reduction, results[1]), None


@composite
def multilabel_margin_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: Reduction, is_target: Tensor
) -> Tensor:
    """The gradient of multilabel_margin_loss_forward by self."""
    value = _rows(self)
    classes, counts = _labels(self, target)
    over = _pairs(value, classes, counts, reshape(is_target, value.shape) > 0)
    hit = convert(gt(over, 0), value.dtype)
    slope = scatter_add(total(hit, 1), 1, classes, -total(hit, 2))
    return _in_form(slope * _row_gradient(grad_output, value, reduction), self)


@composite
def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: Reduction = 1) -> Tensor:
    """The sum of max(0, 1 - self[t] + self[j]) over targets t and other classes j, over the number of classes."""
    return multilabel_margin_loss_forward(self, target, reduction)[0]
