"""Connectionist temporal classification: the likelihood of a sequence of labels under probabilities for each step.

The labels with a blank before, between and after them are the states. `log_alpha` has the logarithm of the probability
of all ways to a state at a step. The number of steps is known while compiling: each is a kernel of its own.
"""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, Expr, SizeNeeded
from ..ir.types import f32, f64, i64
from .concat_pad import constant_pad_nd, stack
from .create import full, iota, number_of, zeros
from .define import Tensor, composite
from .elementary import exp, log
from .indexing import gather, index, scatter_add
from .loss import Reduction, _reduce, _reduction
from .minmax import clamp_max, clamp_min, maximum
from .pointwise import convert, eq, ge, logical_and, logical_or, lt, ne, where
from .scan import cumsum
from .view import expand, permute, reshape, select, slice, unsqueeze

NEVER = float("-inf")


def _either(first: Tensor, *others: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials."""
    largest = first
    for other in others:
        largest = maximum(largest, other)
    never = eq(largest, NEVER)
    shift = where(never, 0, largest)
    mass = exp(first - shift)
    for other in others:
        mass = mass + exp(other - shift)
    # log(0) would be the same number, but it has no derivative.
    return where(never, NEVER, log(where(never, 1, mass)) + shift)


class Paths:
    """The states of a batch: their labels, which of them are reached past a blank, and their log-probabilities."""

    def __init__(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int):
        if log_probs.ndim != 3:
            raise ShapeError(f"log_probs has {log_probs.ndim} dimensions, expected 3 (steps, batch, classes)")
        if log_probs.dtype not in (f32, f64):
            raise ArgumentError(f"log_probs is {log_probs.type}, accepted are f32 and f64")
        steps, batch, classes = log_probs.shape
        if isinstance(steps, Expr):
            raise SizeNeeded(steps)
        if isinstance(classes, int) and not 0 <= blank < classes:
            raise ArgumentError(f"blank is {blank}, expected 0 to {classes - 1}")
        for name, item in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
            if item.ndim != 1 or not item.dtype.is_integer:
                raise ShapeError(f"{name} is {item.type}, expected whole numbers in one dimension")
        self.steps, self.batch, self.classes = steps, batch, classes
        self.inputs, self.lengths = convert(input_lengths, i64), convert(target_lengths, i64)
        labels = self._rows(convert(targets, i64))
        self.width: Dim = labels.shape[1]
        inside = lt(iota((1, self.width), dim=1, dtype=i64), unsqueeze(self.lengths, 1))
        labels = where(inside, labels, blank)
        # Blanks at even states, labels at odd ones.
        pairs = stack([full(labels.shape, blank, dtype=i64), labels], 2)
        self.states: Dim = 2 * self.width + 1
        self.labels = constant_pad_nd(reshape(pairs, (batch, 2 * self.width)), (0, 1), blank)
        before = slice(constant_pad_nd(self.labels, (2, 0), blank), 1, 0, self.states)
        self.skips = logical_and(ne(self.labels, blank), ne(self.labels, before))
        self.last = unsqueeze(self.lengths * 2, 1)
        self.place = iota((1, self.states), dim=1, dtype=i64)
        self.log_probs = gather(log_probs, 2, expand(unsqueeze(self.labels, 0), (steps, batch, self.states)))

    def _rows(self, targets: Tensor) -> Tensor:
        """Return the labels as padded rows; given one after the other, each row is as long as all of them."""
        if targets.ndim == 2:
            return targets
        if targets.ndim != 1:
            raise ShapeError(f"targets has {targets.ndim} dimensions, expected 1 or 2")
        width = targets.shape[0]
        if width == 0:
            return zeros((self.batch, 0), dtype=i64)
        starts = unsqueeze(cumsum(self.lengths, 0) - self.lengths, 1)
        places = clamp_max(starts + iota((1, width), dim=1, dtype=i64), number_of(width - 1, i64))
        return index(targets, (places,))

    def _moved(self, value: Tensor, by: int) -> Tensor:
        """Return at each state the value of the one `by` states before it."""
        padded = constant_pad_nd(value, (by, 0), NEVER)
        return slice(padded, 1, 0, self.states)

    def alpha(self) -> Tensor:
        """Return the log-probability of all ways to each state, as [steps, batch, states]."""
        begins = logical_and(lt(self.place, 2), logical_or(eq(self.place, 0), lt(0, self.last)))
        rows = [where(begins, select(self.log_probs, 0, 0), NEVER)]
        for step in range(1, self.steps):
            before = rows[-1]
            skipped = where(self.skips, self._moved(before, 2), NEVER)
            found = _either(before, self._moved(before, 1), skipped) + select(self.log_probs, 0, step)
            rows.append(where(logical_or(lt(self.last, self.place), ge(step, unsqueeze(self.inputs, 1))), NEVER, found))
        return stack(rows)

    def beta(self) -> Tensor:
        """Return the log-probability of all ways from each state, that of the state included."""
        ends = logical_or(eq(self.place, self.last), logical_and(eq(self.place + 1, self.last), lt(0, self.last)))
        skips = slice(constant_pad_nd(self.skips, (0, 2), False), 1, 2, self.states + 2)
        rows: list[Tensor] = []
        inputs = unsqueeze(self.inputs, 1)
        after = full((self.batch, self.states), NEVER, dtype=self.log_probs.dtype)
        for step in reversed(range(self.steps)):
            here = select(self.log_probs, 0, step)
            following = slice(constant_pad_nd(after, (0, 1), NEVER), 1, 1, self.states + 1)
            skipped = where(skips, slice(constant_pad_nd(after, (0, 2), NEVER), 1, 2, self.states + 2), NEVER)
            found = where(lt(step, inputs - 1), _either(after, following, skipped) + here, NEVER)
            after = where(eq(step, inputs - 1), where(ends, here, NEVER), found)
            rows.append(after)
        return stack(rows[::-1])

    def likelihood(self, alpha: Tensor) -> Tensor:
        """Return the log-probability of each sequence of labels."""
        row = iota((self.batch,), dim=0, dtype=i64)
        step, state = clamp_min(self.inputs - 1, 0), self.lengths * 2
        whole = index(alpha, (step, row, state))
        open_end = index(alpha, (step, row, clamp_min(state - 1, 0)))
        found = _either(whole, where(eq(state, 0), NEVER, open_end))
        return where(eq(self.inputs, 0), where(eq(state, 0), 0, NEVER), found)


@composite
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """-log of the probability of each sequence of targets, and of all ways to each state ([batch, steps, states])."""
    paths = Paths(log_probs, targets, input_lengths, target_lengths, blank)
    if paths.steps == 0:
        raise ShapeError("log_probs has no steps, expected at least 1")
    alpha = paths.alpha()
    return -paths.likelihood(alpha), permute(alpha, (1, 0, 2))


@_ctc_loss.vjp
def _ctc_loss_vjp(grads, results, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    return {
        "log_probs": _ctc_loss_backward(
            grads[0], log_probs, targets, input_lengths, target_lengths, *results, blank, zero_infinity
        )
    }


@composite(differentiable=False)
def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """The gradient of _ctc_loss by the logits whose log_softmax log_probs is, as in PyTorch."""
    paths = Paths(log_probs, targets, input_lengths, target_lengths, blank)
    alpha = permute(log_alpha, (1, 0, 2))
    loss = reshape(neg_log_likelihood, (1, paths.batch, 1))
    ways = alpha + paths.beta()
    # A state that no way passes adds nothing, also where its log-probability is -inf.
    share = where(eq(ways, NEVER), where(eq(loss, float("inf")), float("nan"), 0), exp(ways + loss - paths.log_probs))
    labels = expand(unsqueeze(paths.labels, 0), share.shape)
    passed = scatter_add(zeros(log_probs.shape, dtype=share.dtype), 2, labels, share)
    found = (exp(log_probs) - passed) * reshape(grad, (1, paths.batch, 1))
    counts = lt(iota((paths.steps, 1, 1), dim=0, dtype=i64), reshape(paths.inputs, (1, paths.batch, 1)))
    if zero_infinity:
        counts = logical_and(counts, ne(loss, float("inf")))
    return where(counts, found, 0)


@composite
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: Reduction = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """_ctc_loss, its mean over the lengths of targets and then over the batch, or its sum."""
    if log_probs.ndim == 2:
        lengths = [reshape(item, (1,)) for item in (input_lengths, target_lengths)]
        rows = targets if targets.ndim == 2 else unsqueeze(targets, 0)
        loss = _ctc_loss(unsqueeze(log_probs, 1), rows, *lengths, blank, zero_infinity)[0]
    else:
        loss = _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = where(eq(loss, float("inf")), 0, loss)
    if _reduction(reduction) == "mean":
        loss = loss / convert(clamp_min(reshape(target_lengths, (-1,)), 1), loss.dtype)
    if log_probs.ndim == 2 and _reduction(reduction) == "none":
        return reshape(loss, ())
    return _reduce(loss, reduction, loss.dtype)
