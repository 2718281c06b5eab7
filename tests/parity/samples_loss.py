"""Samples of the losses and their named backwards."""

from __future__ import annotations

from .table import FLOAT, FULL, Entry, S, Sample, T, entry, index, t, values

IGNORED = values(0, 2, -100, 1, dtype="i64")
SAME = values(0.0, 1.0, -2.0)
F = "nn.functional."


def pair(name: str, *extra: Sample, left: T | None = None, right: T | None = None, **fields: object) -> Entry:
    """A loss of two tensors of one shape, under each reduction."""
    a, b = left or t(4, 5), right or t(4, 5)
    samples = [S(a, b), *(S(a, b, reduction=reduction) for reduction in ("none", "sum")), *extra]
    return entry(*samples, torch=F + name, **fields)


def positive(*shape: int) -> T:
    return t(*shape, low=0.1, high=2.0)


def weight(*shape: int) -> T:
    """The weight of each class, which torch has no derivative for."""
    return t(*shape, low=0.1, high=2.0, differentiate=False)


def share(*shape: int) -> T:
    """Probabilities."""
    return t(*shape, low=0.05, high=0.95)


def signs(*items: float) -> T:
    return values(*items, differentiate=False)


# Of integers: the losses and their sum are integers.
WHOLE = [
    S(values(-5, 2, 3, dtype="i32"), values(1, -1, -1, dtype="i32"), reduction=how).forward_only()
    for how in ("none", "sum")
]
NATIVE = {"dtypes": FULL, "derivative": False}

ENTRIES = {
    "mse_loss": pair("mse_loss", S(t(), t()), S(t(dtype="f64"), values(3, 4, dtype="i64", differentiate=False))),
    "l1_loss": pair("l1_loss", *WHOLE),
    "smooth_l1_loss": pair("smooth_l1_loss", S(t(9), t(9), beta=0.5), S(SAME, SAME)),
    "huber_loss": pair("huber_loss", S(t(9), t(9), delta=0.5), S(SAME, SAME)),
    "binary_cross_entropy": pair(
        "binary_cross_entropy",
        S(share(9), share(9), positive(9)),
        left=share(4, 5),
        right=share(4, 5),
        loose=2,
    ),
    "binary_cross_entropy_with_logits": pair(
        "binary_cross_entropy_with_logits",
        S(t(4, 5), share(4, 5), positive(5)),
        S(t(4, 5), share(4, 5), pos_weight=positive(5)),
        S(t(9, low=-40, high=40), share(9)),
        S(values(0.0, -0.0, 1.0), share(3), pos_weight=positive(3)),
        right=share(4, 5),
    ),
    "nll_loss": entry(
        S(t(4, 5), index(4, below=5)),
        *(S(t(4, 5), index(4, below=5), reduction=item) for item in ("none", "sum")),
        S(t(4, 5), index(4, below=5), weight(5)),
        S(t(4, 3), IGNORED),
        S(t(4, 3), IGNORED, weight(3), reduction="mean"),
        S(t(4, 3), IGNORED, reduction="none"),
        S(t(4, 3), index(4, below=3), ignore_index=1),
        S(t(2, 3, 4), index(2, 4, below=3)),
        S(t(5), index(below=5)),
        torch=F + "nll_loss",
    ),
    "nll_loss_forward": entry(
        S(t(4, 5), index(4, below=5), None, 1, -100),
        S(t(4, 3), IGNORED, positive(3), 2, -100),
        S(t(4, 3), IGNORED, None, 0, -100),
        S(t(3, 0), values(-100, -100, -100, dtype="i64"), t(0), 0, -100),
        **NATIVE,
    ),
    "nll_loss_backward": entry(
        S(t(), t(4, 5), index(4, below=5), None, 1, -100, values(4.0, shape=(), differentiate=False)),
        S(t(4), t(4, 3), IGNORED, positive(3), 0, -100, values(0.0, shape=(), differentiate=False)),
        **NATIVE,
    ),
    "nll_loss2d_forward": entry(S(t(2, 3, 4, 2), index(2, 4, 2, below=3), None, 1, -100), **NATIVE),
    "cross_entropy": entry(
        S(t(4, 5), index(4, below=5)),
        *(S(t(4, 5), index(4, below=5), reduction=item) for item in ("none", "sum")),
        S(t(4, 5), index(4, below=5), weight(5)),
        S(t(4, 3), IGNORED),
        S(t(4, 3), IGNORED, weight(3)),
        S(t(4, 3), index(4, below=3), label_smoothing=0.1),
        S(t(4, 3), IGNORED, weight(3), label_smoothing=0.2),
        S(t(4, 3), share(4, 3)),
        S(t(4, 3), share(4, 3), weight(3), label_smoothing=0.1),
        S(t(2, 3, 4), index(2, 4, below=3)),
        S(t(5), index(below=5)),
        torch=F + "cross_entropy",
    ),
    "cross_entropy_loss": entry(
        S(t(4, 5), index(4, below=5)),
        S(t(4, 5), index(4, below=5), weight(5), 2),
        S(t(4, 3), IGNORED, None, 1, -100, 0.1),
    ),
    "kl_div": pair(
        "kl_div",
        S(t(4, 5), t(4, 5), reduction="batchmean"),
        S(t(4, 5), t(4, 5), log_target=True),
        right=positive(4, 5),
    ),
    "poisson_nll_loss": pair(
        "poisson_nll_loss",
        S(positive(9), positive(9), log_input=False),
        S(t(9), positive(9), full=True),
        right=positive(4, 5),
    ),
    "soft_margin_loss": pair(
        "soft_margin_loss",
        S(values(0.0, -0.0, 1.0), signs(1, -1, 1)),
        left=t(5),
        right=signs(1, -1, 1, 1, -1),
    ),
    "hinge_embedding_loss": pair(
        "hinge_embedding_loss",
        S(t(5), signs(1, -1, 1, 1, -1), margin=0.5),
        *WHOLE,
        left=t(5),
        right=signs(1, -1, 1, 1, -1),
    ),
    "margin_ranking_loss": entry(
        S(t(5), t(5), signs(1, -1, 1, 1, -1)),
        S(t(5), t(5), signs(1, -1, 1, 1, -1), margin=0.5, reduction="sum"),
        torch=F + "margin_ranking_loss",
    ),
    "cosine_embedding_loss": entry(
        S(t(5, 4), t(5, 4), signs(1, -1, 1, 1, -1)),
        S(t(5, 4), t(5, 4), signs(1, -1, 1, 1, -1), margin=0.2, reduction="none"),
        S(t(3, 4, dtype="bool"), t(3, 4, dtype="f16"), signs(1, -1, 1)).forward_only(),
        S(t(3, 4, dtype="i64"), t(3, 4, dtype="bf16"), signs(1, -1, 1)).forward_only(),
        torch=F + "cosine_embedding_loss",
    ),
    "triplet_margin_loss": entry(
        S(t(5, 4), t(5, 4), t(5, 4)),
        S(t(5, 4), t(5, 4), t(5, 4), margin=0.5, p=1.0, reduction="sum"),
        S(t(5, 4), t(5, 4), t(5, 4), swap=True),
        S(t(5, 4, dtype="c64"), t(5, 4, dtype="c64"), t(5, 4, dtype="c64")).forward_only(),
        torch=F + "triplet_margin_loss",
    ),
    "gaussian_nll_loss": entry(
        S(t(5, 4), t(5, 4), positive(5, 4)),
        S(t(5, 4), t(5, 4), positive(5, 1), full=True, reduction="sum"),
        S(t(5, 4), t(5, 4), positive(5, 4), reduction="none"),
        torch=F + "gaussian_nll_loss",
    ),
    "mse_loss_backward": entry(
        S(t(), t(9), t(9), 1), S(t(9), t(9), t(9), 0), S(t(), t(9), t(9), 2), special=False, dtypes=FLOAT
    ),
    "smooth_l1_loss_backward": entry(
        S(t(), t(9), t(9), 1, 1.0),
        S(t(9), t(9), t(9), 0, 0.5),
        S(t(), t(9), t(9), 2, 0.5),
        special=False,
        dtypes=FULL,
    ),
    "huber_loss_backward": entry(
        S(t(), t(9), t(9), 1, 1.0),
        S(t(9), t(9), t(9), 0, 0.5),
        S(t(), t(9), t(9), 2, 0.5),
        special=False,
        dtypes=FULL,
    ),
    "binary_cross_entropy_backward": entry(
        S(t(), share(9), share(9), None, 1),
        S(t(9), share(9), share(9), positive(9), 0),
        special=False,
        dtypes=FULL,
    ),
    "soft_margin_loss_backward": entry(S(t(), t(5), signs(1, -1, 1, 1, -1), 1), special=False, dtypes=FULL),
    "nll_loss2d_backward": entry(
        S(
            t(),
            t(2, 3, 4, 2),
            index(2, 4, 2, below=3),
            None,
            1,
            -100,
            values(16.0, shape=(), differentiate=False),
        ),
        **NATIVE,
    ),
}
