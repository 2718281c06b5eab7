"""Where PyTorch eager is no reference, by name: its own faults, and what it leaves undefined."""

from __future__ import annotations

# Derivatives of these ops are not compared.
DERIVATIVES = {
    "soft_margin_loss": "exp overflows in the backward formula: inf / inf",
    "pdist": "no points: the process ends by a division by zero",
    "dist": "0 / 0 in the second derivative of equal points",
    "cdist": "inf / inf in the derivative of norms with a large p",
    "mse_loss": "the mean's gradient is divided by the elements of self, also where self is broadcast",
    "smooth_l1_loss": "the mean's gradient is divided by the elements of self, also where self is broadcast",
    "huber_loss": "the mean's gradient is divided by the elements of self, also where self is broadcast",
    "narrow_copy": "the gradient is zero where start is negative",
    "block_diag": "gradients behind a matrix without elements are those of other places",
    "special_entr": "a second derivative of what is -inf, outside of the domain",
    "rsub": "forward mode forgets the tangent of other",
    "cosine_similarity": "the gradient passes norms below eps, which the values do not depend on",
    "digamma": "the series of its derivative has few terms (1e-10)",
    "mvlgamma": "the series of its second derivative has few terms (1e-10)",
    "lgamma": "the series of its second derivative has few terms (1e-10)",
    "nll_loss_forward": "forward mode forgets the tangent of weight",
    "nll_loss2d_forward": "forward mode forgets the tangent of weight",
    "nll_loss": "forward mode forgets the tangent of weight",
    "hardsigmoid": "the slope in float64 is that of float32, 1 / 6 rounded",
}
# These ops are not compared.
VALUES = {
    "fmod": "nan where the quotient overflows",
    "var_mean": "the mean of infinities is nan",
    "std_mean": "the mean of infinities is nan",
    "pixel_unshuffle": "empty images keep their shape",
    "polygamma": "large numbers in place of infinities at the poles",
}
# Python numbers and results of which nothing is known.
NAN_SIGN = ("signbit", "copysign")  # the sign of a nan is not defined
