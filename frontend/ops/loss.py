"""Losses: elementwise distances and their reductions.

`reduction` is "none", "mean" or "sum", or aten's 0, 1, 2. Losses of f16 and bf16 tensors are computed in f32
and rounded once. Where aten names a backward op, the derivative is that op.
"""

from __future__ import annotations

import math

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import DType, float_of, i64, promote, promote_pair
from .activation import log_sigmoid
from .create import iota, number_of, zeros
from .define import Tensor, composite, constant
from .elementary import exp, log, log1p, sigmoid, sqrt
from .indexing import gather, select_along
from .minmax import clamp_min, minimum
from .pointwise import abs, added, convert, logical_and, ne, promoted, sign, where, widen
from .reduce import amax, linalg_vector_norm, total_over
from .reduce import sum as total
from .registry import as_held
from .shapes import broadcast
from .softmax import _log_softmax, _log_softmax_backward_data
from .special import xlogy
from .view import detach, expand, reshape, squeeze, unsqueeze

REDUCTIONS = ("none", "mean", "sum")
Reduction = int | str


def _reduction(reduction: Reduction) -> str:
    if isinstance(reduction, str) and reduction in REDUCTIONS:
        return reduction
    if isinstance(reduction, int) and not isinstance(reduction, bool) and 0 <= reduction < 3:
        return REDUCTIONS[reduction]
    raise ArgumentError(f"reduction is {reduction!r}, expected one of {', '.join(map(repr, REDUCTIONS))} (or 0, 1, 2)")


def _reduce(loss: Tensor, reduction: Reduction, dtype: DType) -> Tensor:
    """Reduce the losses and round the result to dtype."""
    how = _reduction(reduction)
    if not dtype.is_inexact:
        if how != "mean":
            return total(loss) if how == "sum" else loss
        loss, dtype = widen(loss), float_of(dtype)
    if how == "mean":
        loss = total(loss) / number_of(loss.type.numel, loss.dtype)
    elif how == "sum":
        loss = total(loss)
    return convert(loss, dtype)


def _spread(grad_output: Tensor, reduction: Reduction, *operands: Tensor) -> Tensor:
    """Return the gradient of each element's loss, from that of the reduced loss."""
    gradient = widen(grad_output)
    if _reduction(reduction) != "mean":
        return gradient
    return gradient / number_of(product(broadcast([operand.shape for operand in operands])), gradient.dtype)


def _common(*operands: Tensor) -> DType:
    return float_of(promote([operand.type for operand in operands]))


def _met(*operands: Tensor) -> list[Tensor]:
    """Return operands in their promoted compute type. Widened one by one, integers beside f64 would become f32."""
    wanted = _common(*operands).compute
    return [convert(operand, wanted) for operand in operands]


def _difference(self: Tensor, target: Tensor) -> Tensor:
    left, right = _met(self, target)
    return left - right


def _whole(*operands: Tensor) -> bool:
    """Whether the loss of these operands, before a mean, is of an integer type."""
    return promote([operand.type for operand in operands]).is_integer


def _weighted(loss: Tensor, weight: Tensor | None) -> Tensor:
    return loss if weight is None else loss * widen(weight)


# Distances


@composite
def mse_loss(self: Tensor, target: Tensor, reduction: Reduction = 1) -> Tensor:
    """(self - target) squared."""
    difference = _difference(self, target)
    return _reduce(difference * difference, reduction, _common(self, target))


@mse_loss.vjp
def mse_loss_vjp(grad, self, target, reduction):
    gradient = mse_loss_backward(grad, self, target, reduction)
    return gradient, -gradient


@composite
def mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: Reduction) -> Tensor:
    """2 * (self - target) * grad_output."""
    difference = _difference(self, target)
    return convert(difference * (2.0 * _spread(grad_output, reduction, self, target)), _common(self, target))


@composite
def l1_loss(self: Tensor, target: Tensor, reduction: Reduction = 1) -> Tensor:
    """|self - target|."""
    if _whole(self, target):
        left, right = promoted(self, target)
        return _reduce(abs(left - right), reduction, left.dtype)
    return _reduce(abs(_difference(self, target)), reduction, _common(self, target).real)


@composite
def smooth_l1_loss(self: Tensor, target: Tensor, reduction: Reduction = 1, beta: float = 1.0) -> Tensor:
    """d*d / (2 * beta) where d = |self - target| < beta, else d - beta / 2."""
    if beta < 0:
        raise ArgumentError(f"beta is {beta}, expected at least 0")
    difference = _difference(self, target)
    distance = abs(difference)
    if beta > 0:
        # Not the square of the absolute value, which has a kink at zero.
        distance = where(distance < beta, difference * difference * (0.5 / beta), distance - 0.5 * beta)
    return _reduce(distance, reduction, _common(self, target))


@smooth_l1_loss.vjp
def smooth_l1_loss_vjp(grad, self, target, reduction, beta):
    gradient = smooth_l1_loss_backward(grad, self, target, reduction, beta)
    return gradient, -gradient


@composite
def smooth_l1_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: Reduction, beta: float
) -> Tensor:
    """(self - target) / beta clamped to -1..1, times grad_output."""
    difference = _difference(self, target)
    slope = sign(difference)
    if beta > 0:
        slope = where(abs(difference) >= beta, slope, difference / beta)  # NaN stays NaN
    return convert(slope * _spread(grad_output, reduction, self, target), _common(self, target))


@composite
def huber_loss(self: Tensor, target: Tensor, reduction: Reduction = 1, delta: float = 1.0) -> Tensor:
    """d*d / 2 where d = |self - target| < delta, else delta * (d - delta / 2)."""
    if delta <= 0:
        raise ArgumentError(f"delta is {delta}, expected more than 0")
    difference = _difference(self, target)
    distance = abs(difference)
    loss = where(distance < delta, 0.5 * difference * difference, delta * (distance - 0.5 * delta))
    return _reduce(loss, reduction, _common(self, target))


@huber_loss.vjp
def huber_loss_vjp(grad, self, target, reduction, delta):
    gradient = huber_loss_backward(grad, self, target, reduction, delta)
    return gradient, -gradient


@composite
def huber_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: Reduction, delta: float
) -> Tensor:
    """(self - target) clamped to -delta..delta, times grad_output."""
    difference = _difference(self, target)
    slope = where(abs(difference) >= delta, delta * sign(difference), difference)  # NaN stays NaN
    return convert(slope * _spread(grad_output, reduction, self, target), _common(self, target))


# Losses of probabilities


@composite
def binary_cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Reduction = 1
) -> Tensor:
    """-target * log(self) - (1 - target) * log(1 - self), each logarithm at least -100."""
    probability, wanted = _met(self, target)
    loss = (wanted - 1.0) * clamp_min(log1p(-probability), -100.0) - wanted * clamp_min(log(probability), -100.0)
    return _reduce(_weighted(loss, weight), reduction, _common(self, target))


def _log_odds(probability: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(1 - p), at least -100, and log(1 - p) - log(p), for p = probability; derivatives at 0 and 1 are
    finite."""
    none, sure = probability == 0, probability == 1
    against = where(sure, -100.0, log1p(-where(sure, 0.5, probability)))
    return against, against - where(none, -100.0, clamp_min(log(where(none, 0.5, probability)), -100.0))


@binary_cross_entropy.vjp
def binary_cross_entropy_vjp(grad, self, target, weight, reduction):
    scale = _spread(grad, reduction, self, target)
    against, odds = _log_odds(widen(self))
    by_weight = None if weight is None else scale * (widen(target) * odds - against)
    return (
        binary_cross_entropy_backward(grad, self, target, weight, reduction),
        _weighted(scale * odds, weight),
        by_weight,
    )


@binary_cross_entropy.jvp
def binary_cross_entropy_jvp(self_tangent, target_tangent, weight_tangent, self, target, weight, reduction):
    against, odds = _log_odds(widen(self))
    by_self = by_target = by_weight = None
    if self_tangent is not None:
        by_self = widen(binary_cross_entropy_backward(self_tangent, self, target, weight, 0))
    if target_tangent is not None:
        by_target = _weighted(widen(target_tangent) * odds, weight)
    if weight_tangent is not None:
        by_weight = widen(weight_tangent) * (widen(target) * odds - against)
    change = added(by_self, by_target, by_weight)
    return None if change is None else _reduce(change, reduction, _common(self, target))


@composite
def binary_cross_entropy_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: Reduction = 1
) -> Tensor:
    """grad_output * (self - target) / (self * (1 - self)), the divisor at least 1e-12."""
    probability, wanted = _met(self, target)
    slope = (probability - wanted) / clamp_min((1.0 - probability) * probability, 1e-12)
    scale = _spread(grad_output, reduction, self, target)
    return convert(_weighted(scale * slope, weight), _common(self, target))


@composite
def binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: Reduction = 1,
) -> Tensor:
    """binary_cross_entropy of sigmoid(self); pos_weight multiplies the part of target."""
    logit, wanted = _met(self, target)
    return _reduce(_weighted(_logits_loss(logit, wanted, pos_weight), weight), reduction, _common(self, target))


def _logits_loss(logit: Tensor, target: Tensor, pos_weight: Tensor | None) -> Tensor:
    if pos_weight is None:
        return (1.0 - target) * logit - log_sigmoid(logit)
    return (1.0 - target) * logit - (1.0 + (widen(pos_weight) - 1.0) * target) * log_sigmoid(logit)


@binary_cross_entropy_with_logits.vjp
def binary_cross_entropy_with_logits_vjp(grad, self, target, weight, pos_weight, reduction):
    logit, wanted = _met(self, target)
    plain = _spread(grad, reduction, self, target)
    scale = _weighted(plain, weight)
    by_weight = None if weight is None else plain * _logits_loss(logit, wanted, pos_weight)
    if pos_weight is None:
        return scale * (sigmoid(logit) - wanted), -scale * logit, by_weight, None
    share = widen(pos_weight) * wanted
    by_self = (1.0 - wanted + share) * sigmoid(logit) - share
    by_target = (1.0 - widen(pos_weight)) * log_sigmoid(logit) - logit
    return scale * by_self, scale * by_target, by_weight, -scale * wanted * log_sigmoid(logit)


@composite
def kl_div(self: Tensor, target: Tensor, reduction: Reduction = 1, *, log_target: bool = False) -> Tensor:
    """target * (log(target) - self), target a logarithm if log_target; "batchmean" divides by the batch."""
    estimate, truth = _met(self, target)
    loss = exp(truth) * (truth - estimate) if log_target else xlogy(truth, truth) - truth * estimate
    result = _common(self, target)
    if reduction == "batchmean":
        return convert(total(loss) / number_of(loss.shape[0] if loss.ndim else 1, loss.dtype), result)
    return _reduce(loss, reduction, result)


@composite
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = 1,
) -> Tensor:
    """exp(input) - target * input, or input - target * log(input + eps); full adds about log(target!)."""
    rate, count = _met(input, target)
    loss = exp(rate) - count * rate if log_input else rate - count * log(rate + eps)
    if full:
        known = where(count > 1.0, count, 1.0)
        stirling = known * log(known) - known + 0.5 * log(2.0 * math.pi * known)
        loss = loss + where(count > 1.0, stirling, 0.0)
    return _reduce(loss, reduction, _common(input, target))


@composite
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = 1,
) -> Tensor:
    """(log(var) + (input - target)**2 / var) / 2 with var at least eps; full adds log(2 * pi) / 2."""
    value, wanted, spread = _met(input, target, var)
    if spread.ndim == value.ndim - 1:
        spread = unsqueeze(spread, -1)
    # Only the value is clamped: a variance that is too small still has a gradient.
    spread = spread + detach(clamp_min(spread, eps) - spread)
    difference = value - wanted
    loss = 0.5 * (log(spread) + difference * difference / spread)
    if full:
        loss = loss + 0.5 * math.log(2.0 * math.pi)
    return _reduce(loss, reduction, _common(input, target, var))


# Classes


def _class_dim(self: Tensor) -> int:
    if self.ndim == 0:
        raise ShapeError("self has no dimension of classes")
    return 0 if self.ndim == 1 else 1


def _classes_of(target: Tensor) -> Tensor:
    """Return the target in a type that holds all classes and the ignored index."""
    if not target.dtype.is_integer:
        raise ArgumentError(f"target is {target.type}, expected class indices of an integer type")
    return convert(target, i64) if target.dtype.bits < 32 else target


def _counts(target: Tensor, ignore_index: Dim) -> Tensor:
    """Return the mask of rows that are not ignored."""
    return ne(_classes_of(target), ignore_index)


def _class_index(target: Tensor, ignore_index: Dim) -> tuple[Tensor, Tensor]:
    """Return the target with index 0 for ignored rows, and the mask of rows that count."""
    counts, classes = _counts(target, ignore_index), _classes_of(target)
    return where(counts, classes, constant(0, classes.dtype)), counts


def _by_class(weight: Tensor, self: Tensor) -> Tensor:
    """Reshape the weights of classes to broadcast against self."""
    return widen(weight) if self.ndim == 1 else reshape(widen(weight), (weight.shape[0], *(1,) * (self.ndim - 2)))


def _is_target(self: Tensor, target: Tensor, ignore_index: Dim) -> Tensor:
    """Return the mask of elements of self at their row's class; ignored rows have none."""
    dim = _class_dim(self)
    sizes = tuple(size if position == dim else 1 for position, size in enumerate(self.shape))
    wanted = unsqueeze(_classes_of(target), dim)
    classes = iota(sizes, dim=dim, dtype=wanted.dtype)
    return logical_and(classes.eq(wanted), ne(wanted, ignore_index))


def _row_weights(self: Tensor, target: Tensor, weight: Tensor | None, ignore_index: Dim) -> Tensor:
    """Return the weight of each row's class, 0 for ignored rows."""
    index, counts = _class_index(target, ignore_index)
    if weight is None:
        return convert(counts, float_of(self.dtype).compute)
    if self.shape[_class_dim(self)] == 0:
        return zeros(counts.shape, dtype=widen(weight).dtype)  # _picked has checked that no row counts
    picked = select_along(widen(weight), 0, index)
    return where(counts, picked, 0.0)


def _picked(self: Tensor, target: Tensor, ignore_index: Dim) -> Tensor:
    """Return the element of each row's class."""
    dim = _class_dim(self)
    index, counts = _class_index(target, ignore_index)
    value = widen(self)
    if self.shape[dim] == 0:
        # Ignored rows take the only class there is; any other class is out of range.
        value = zeros((*value.shape[:dim], 1, *value.shape[dim + 1 :]), dtype=value.dtype)
        index = convert(counts, index.dtype)
    return squeeze(gather(value, dim, unsqueeze(index, dim)), dim)


@composite
def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, ignore_index: Dim
) -> tuple[Tensor, Tensor]:
    """-weight * self at each row's class (dimension 1), and the sum of the weights."""
    weights = _row_weights(self, target, weight, ignore_index)
    # Ignored rows are selected away, not multiplied by 0: they may hold infinities.
    loss = where(_counts(target, ignore_index), -_picked(self, target, ignore_index) * weights, 0.0)
    how = _reduction(reduction)
    if how == "none" and self.ndim > 1:
        return convert(loss, self.dtype), constant(0.0, self.dtype)
    mass = total(weights)
    result = total(loss) / mass if how == "mean" else total(loss)
    return convert(result, self.dtype), convert(mass, self.dtype)


@nll_loss_forward.vjp
def nll_loss_forward_vjp(grads, results, self, target, weight, reduction, ignore_index):
    gradient = grads[0]
    by_self = nll_loss_backward(gradient, self, target, weight, reduction, ignore_index, results[1])
    if weight is None:
        return by_self, None, None
    loss = -_picked(self, target, ignore_index)
    extra = grads.known(1) if _reduction(reduction) != "none" or self.ndim == 1 else None
    by_weight = _class_weight_gradient(
        gradient, loss, results[0], results[1], self, target, reduction, ignore_index, extra
    )
    return by_self, None, by_weight


def _class_weight_gradient(gradient, loss, result, mass, self, target, reduction, ignore_index, by_mass=None):
    """Return the gradient by the weights of classes; `loss` is each row's loss before weighting."""
    dim = _class_dim(self)
    if _reduction(reduction) == "mean":
        loss = (loss - widen(result)) / widen(mass)
    row = loss * widen(gradient)
    if by_mass is not None:
        row = row + widen(by_mass)
    by_class = where(_is_target(self, target, ignore_index), unsqueeze(row, dim), 0.0)
    return total_over(by_class, [position for position in range(self.ndim) if position != dim])


@composite
def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    ignore_index: Dim,
    total_weight: Tensor,
) -> Tensor:
    """-weight * grad_output at each row's class, 0 elsewhere."""
    how = _reduction(reduction)
    gradient = widen(grad_output)
    if how == "mean":
        gradient = gradient / widen(total_weight)
    elif how == "none":
        gradient = unsqueeze(gradient, _class_dim(self))
    if weight is not None:
        gradient = gradient * _by_class(weight, self)
    # A comparison instead of a scatter: it fuses into the gradient's consumers.
    hot = _is_target(self, target, ignore_index)
    return convert(expand(where(hot, -gradient, 0.0), self.shape), self.dtype)


@composite
def nll_loss2d_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, ignore_index: Dim
) -> tuple[Tensor, Tensor]:
    """nll_loss_forward for each pixel."""
    return nll_loss_forward(self, target, weight, reduction, ignore_index)


@composite
def nll_loss2d_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    ignore_index: Dim,
    total_weight: Tensor,
) -> Tensor:
    """nll_loss_backward for each pixel."""
    return nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight)


@composite
def nll_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: Reduction = 1,
    ignore_index: Dim = -100,
) -> Tensor:
    """-self at each row's class, the mean weighted by class."""
    return nll_loss_forward(self, target, weight, reduction, ignore_index)[0]


@composite
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: Reduction = 1,
    ignore_index: Dim = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss of log_softmax(input); target holds class indices, or probabilities in the shape of input."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"label_smoothing is {label_smoothing}, expected 0 to 1")
    if target.dtype.is_float:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    if label_smoothing == 0.0:
        weights = _row_weights(input, target, weight, ignore_index)
        rows = where(_counts(target, ignore_index), _class_losses(input, target, ignore_index) * weights, 0.0)
        if _reduction(reduction) != "mean":
            return _reduce(rows, reduction, input.dtype)
        return convert(total(rows) / total(weights), input.dtype)
    loss = cross_entropy(input, target, weight, reduction, ignore_index)
    dim = _class_dim(input)
    logarithms = widen(_log_softmax(input, dim, False))
    uniform = logarithms if weight is None else logarithms * _by_class(weight, input)
    spread = where(_counts(target, ignore_index), -total(uniform, dim), 0.0)
    how = _reduction(reduction)
    if how == "mean":
        spread = total(spread) / total(_row_weights(input, target, weight, ignore_index))
    elif how == "sum":
        spread = total(spread)
    share = label_smoothing / number_of(input.shape[dim], spread.dtype)
    return convert(widen(loss) * (1.0 - label_smoothing) + spread * share, input.dtype)


def _class_losses(input: Tensor, target: Tensor, ignore_index: Dim) -> Tensor:
    """Return -log_softmax(input) at each row's class. The class is looked up in the input, so that a row is one
    loop."""
    dim = _class_dim(input)
    value = widen(input)
    largest = detach(amax(value, dim, True))
    mass = total(exp(value - largest), dim, True)
    picked = unsqueeze(_picked(input, target, ignore_index), dim)
    return squeeze(log(mass) - (picked - largest), dim)


@cross_entropy.vjp
def cross_entropy_vjp(grad, result, input, target, weight, reduction, ignore_index, label_smoothing):
    if target.dtype.is_float or label_smoothing != 0.0:
        return NotImplemented
    dim = _class_dim(input)
    logarithms = _log_softmax(input, dim, False)
    mass = total(_row_weights(input, target, weight, ignore_index))
    slope = nll_loss_backward(grad, logarithms, target, weight, reduction, ignore_index, mass)
    by_input = _log_softmax_backward_data(slope, logarithms, dim, input.dtype)
    if weight is None:
        return by_input, None, None
    loss = _class_losses(input, target, ignore_index)
    return (
        by_input,
        None,
        _class_weight_gradient(grad, loss, result, mass, input, target, reduction, ignore_index),
    )


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: Reduction, label_smoothing: float
) -> Tensor:
    """Cross entropy with a probability for each class."""
    if target.shape != input.shape:
        raise ShapeError(f"target has shape {list(target.shape)}, expected {list(input.shape)} for probabilities")
    dim = _class_dim(input)
    logarithms = _log_softmax(input, dim, False)
    wanted = widen(target)
    if label_smoothing > 0.0:
        share = label_smoothing / number_of(logarithms.shape[dim], wanted.dtype)
        wanted = wanted * (1.0 - label_smoothing) + share
    loss = -widen(logarithms) * wanted
    if weight is not None:
        loss = loss * _by_class(weight, logarithms)
    return _reduce(total(loss, dim), reduction, logarithms.dtype)


@composite
def cross_entropy_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: Reduction = 1,
    ignore_index: Dim = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """cross_entropy under its aten name."""
    return cross_entropy(self, target, weight, reduction, ignore_index, label_smoothing)


# Margins


@composite
def soft_margin_loss(self: Tensor, target: Tensor, reduction: Reduction = 1) -> Tensor:
    """log(1 + exp(-target * self))."""
    wanted, value = _met(target, self)
    return _reduce(-log_sigmoid(wanted * value), reduction, _common(self, target))


@soft_margin_loss.vjp
def soft_margin_loss_vjp(grad, self, target, reduction):
    return (
        soft_margin_loss_backward(grad, self, target, reduction),
        soft_margin_loss_backward(grad, target, self, reduction),
    )


@composite
def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: Reduction) -> Tensor:
    """-target * sigmoid(-target * self) * grad_output."""
    wanted, value = _met(target, self)
    slope = -wanted * sigmoid(-wanted * value)
    return convert(slope * _spread(grad_output, reduction, self, target), _common(self, target))


@composite
def hinge_embedding_loss(self: Tensor, target: Tensor, margin: float = 1.0, reduction: Reduction = 1) -> Tensor:
    """self where target is 1, max(0, margin - self) where it is -1."""
    distance = self if _whole(self) else widen(self)
    near = where(ne(target, -1), distance, 0)
    far = where(ne(target, 1), clamp_min(as_held(margin, distance.dtype) - distance, 0), 0)
    return _reduce(near + far, reduction, self.dtype if _whole(self) else float_of(self.dtype))


@composite
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Reduction = 1
) -> Tensor:
    """max(0, margin - target * (input1 - input2))."""
    left, right, order = _met(input1, input2, target)
    loss = clamp_min(margin - order * (left - right), 0.0)
    return _reduce(loss, reduction, _common(input1, input2, target))


@composite
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: Reduction = 1
) -> Tensor:
    """1 - cosine of the angle where target is 1, max(0, cosine - margin) where it is -1."""
    # Each tensor's squares are computed in its own float type.
    result = promote_pair(float_of(input1.dtype), float_of(input2.dtype))
    left, right = convert(input1, result.compute), convert(input2, result.compute)
    tiny = 1e-12
    lengths = (total(left * left, -1) + tiny) * (total(right * right, -1) + tiny)
    cosine = total(left * right, -1) / sqrt(lengths)
    near = where(target.eq(1), 1.0 - cosine, 0.0)
    far = where(target.eq(-1), clamp_min(cosine - margin, 0.0), 0.0)
    return _reduce(near + far, reduction, result)


@composite
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The norm of order p of x1 - x2 + eps along the last dimension."""
    return linalg_vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = 1,
) -> Tensor:
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative))."""
    start, match, other = _met(anchor, positive, negative)
    near, far = pairwise_distance(start, match, p, eps), pairwise_distance(start, other, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(match, other, p, eps))
    loss = clamp_min(margin + near - far, 0.0)
    return _reduce(loss, reduction, _common(anchor, positive, negative).real)
