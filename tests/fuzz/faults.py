"""Where PyTorch eager is no reference, by name: its own faults, and what it leaves undefined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

# Derivatives of these ops are not compared.
DERIVATIVES = {
    "soft_margin_loss": "exp overflows in the backward formula: inf / inf",
    "pdist": "no points: the process ends by a division by zero",
    "dist": "0 / 0 in the second derivative of equal points",
    "cdist": "inf / inf in the derivative of norms with a large p",
    "rsub": "forward mode forgets the tangent of other",
    "cosine_similarity": "the gradient passes norms below eps, which the values do not depend on",
    "digamma": "the series of its derivative has few terms (1e-10)",
    "mvlgamma": "the series of its second derivative has few terms (1e-10)",
    "lgamma": "the series of its second derivative has few terms (1e-10)",
    "nll_loss_forward": "forward mode forgets the tangent of weight",
    "nll_loss2d_forward": "forward mode forgets the tangent of weight",
    "nll_loss": "forward mode forgets the tangent of weight",
    "zero": "forward mode zeroes the tangent of the operand",
    "ldexp": "the derivative is 0",
    "celu": "1 / alpha is rounded to float32",
    "gaussian_nll_loss": "forward mode differentiates the bound of var, which reverse mode leaves out",
    "logcumsumexp": "forward mode scales by the exponential of the row's maximum, which cancels the smaller terms",
    "hardsigmoid": "the slope in float64 is that of float32, 1 / 6 rounded",
}


Call = Callable[[Sequence[torch.Tensor], Mapping[str, Any]], bool]


def _broadcast(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The derivative of the mean counts the elements of the input, before it is broadcast."""
    return len({item.shape for item in operands}) > 1


def _all_dims(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """dim=() reduces all dimensions, while the derivative counts the elements of none."""
    return arguments.get("dim") == ()


def _one_element(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """What is left of x / |x| is eps times rounding errors."""
    return math.prod(arguments["normalized_shape"]) == 1


def _backwards(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The gradient is zero where start is negative."""
    return type(arguments["start"]) is not int or arguments["start"] < 0


def _empty(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """Gradients behind a matrix without elements are those of other places."""
    return any(item.numel() == 0 for item in operands)


def _unsigned(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The derivative negates the operand in its own type."""
    return any(item.dtype is torch.uint8 for item in operands)


def _tie(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """Forward mode gives a tie to the other operand than reverse mode."""
    return len(operands) < 2 or bool((operands[0] == operands[1]).any())


def _kink(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The kink at 0 is on another side in each order."""
    return any(bool((item == 0).any()) for item in operands)


def _at_threshold(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The kink is on another side in each order."""
    beta, threshold = arguments.get("beta", 1), arguments.get("threshold", 20)
    if not isinstance(beta, (int, float)) or not isinstance(threshold, (int, float)):
        return True
    return bool((operands[0] * beta == threshold).any())


# Derivatives of these calls are not compared.
CALLS: dict[str, Call] = {
    "std": _all_dims,
    "var": _all_dims,
    "rms_norm": _one_element,
    "scatter_reduce": lambda operands, arguments: arguments["reduce"] == "prod",  # forward mode forgets self
    "mse_loss": _broadcast,
    "smooth_l1_loss": _broadcast,
    "huber_loss": _broadcast,
    "narrow_copy": _backwards,
    "fmax": _tie,
    "polar": lambda operands, arguments: bool((operands[0] < 0).any()),  # the derivative by abs has its sign
    "atan2": _unsigned,
    "softplus": _at_threshold,
    "prelu": _kink,
    "block_diag": _empty,
}
# These ops are not compared.
VALUES = {
    "fmod": "nan where the quotient overflows",
    "var_mean": "the mean of infinities is nan",
    "std_mean": "the mean of infinities is nan",
    "pixel_unshuffle": "empty images keep their shape",
    "polygamma": "large numbers in place of infinities at the poles",
}


def _nan(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The sign of a NaN is not defined."""
    return any(bool(item.isnan().any()) for item in operands)


def _extreme_order(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """Powers leave the range, or lose digits in roots of such an order."""
    order = arguments.get("p", arguments.get("ord"))
    return isinstance(order, (int, float)) and math.isfinite(order) and order != 0 and not 0.1 <= order <= 10


def _zeros(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """The sign of a zero that is a sum of one -0.0 differs."""
    return all(bool((item == 0).any()) for item in operands)


def _huge(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """Vector code makes NaN of quotients that overflow."""
    return any(bool((item.abs() > 1e30).any()) for item in operands if item.is_floating_point())


def _infinite(operands: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> bool:
    """Vector code makes NaN of infinity on some processors."""
    return any(bool(item.isinf().any()) for item in operands)


# These calls are not compared.
UNDEFINED: dict[str, Call] = {
    "signbit": _nan,
    "copysign": _nan,
    "gelu": _infinite,
    **dict.fromkeys(("norm", "linalg_vector_norm", "normalize", "renorm", "dist"), _extreme_order),
    "cdist": _infinite,  # by a product of matrices, where there are many rows
    "remainder": _huge,
    "cumprod": _huge,  # a running product that leaves the range of f32 and comes back: PyTorch's is f64
    "atan2": _zeros,
}
