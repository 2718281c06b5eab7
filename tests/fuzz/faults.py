"""Where PyTorch eager is no reference, by name: its own faults, and what it leaves undefined.

Each excuse is a test of a call: operands that are tensors, all arguments. A call that it holds for is drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from smelt.ir.types import DTYPES

from .program import Ref, Type

Operands = Sequence[torch.Tensor]
Arguments = Mapping[str, Any]
Call = Callable[[Operands, Arguments], bool]


def always(operands: Operands, arguments: Arguments) -> bool:
    return True


def _broadcast(operands: Operands, arguments: Arguments) -> bool:
    """The derivative of the mean counts the elements of the input, before it is broadcast."""
    return len({item.shape for item in operands}) > 1 and arguments.get("reduction", 1) == 1


def _all_dims(operands: Operands, arguments: Arguments) -> bool:
    """dim=() reduces all dimensions, while the derivative counts the elements of none."""
    return arguments.get("dim") == ()


def _one_element(operands: Operands, arguments: Arguments) -> bool:
    """What is left of x / |x| is eps times rounding errors."""
    return math.prod(arguments["normalized_shape"]) == 1


def _backwards(operands: Operands, arguments: Arguments) -> bool:
    """The gradient is zero where start is negative."""
    return type(arguments["start"]) is not int or arguments["start"] < 0


def _empty(operands: Operands, arguments: Arguments) -> bool:
    return any(item.numel() == 0 for item in operands)


def _unlike(operands: Operands, arguments: Arguments) -> bool:
    """Without a check, one operand's elements are taken for the others': the result depends on the memory's layout."""
    return _empty(operands, arguments) or len({item.shape for item in operands[:2]}) > 1


def _unsigned(operands: Operands, arguments: Arguments) -> bool:
    return any(item.dtype is torch.uint8 for item in operands)


def _tie(operands: Operands, arguments: Arguments) -> bool:
    """Forward mode gives a tie to another operand than reverse mode."""
    return len(operands) < 2 or any(bool((operands[0] == item).any()) for item in operands[1:])


def _tie_with_bound(operands: Operands, arguments: Arguments) -> bool:
    """Forward mode gives a tie to the bound, reverse mode to the operand."""
    return len(operands) > 1 and _tie(operands, arguments)


def _kink(operands: Operands, arguments: Arguments) -> bool:
    """The kink at 0 is on another side in each order."""
    return any(bool((item == 0).any()) for item in operands)


def _at_threshold(operands: Operands, arguments: Arguments) -> bool:
    """The kink is on another side in each order."""
    beta, threshold = arguments.get("beta", 1), arguments.get("threshold", 20)
    if not isinstance(beta, (int, float)) or not isinstance(threshold, (int, float)):
        return True
    return bool((operands[0] * beta == threshold).any())


def _no_power(operands: Operands, arguments: Arguments) -> bool:
    """The slope by the base takes an exponent of 0 for a constant."""
    return isinstance(arguments.get("exponent"), Ref) and bool((operands[-1] == 0).any())


def _steep(operands: Operands, arguments: Arguments) -> bool:
    """exp overflows in the backward formula: inf / inf."""
    return bool((operands[0].double() * operands[1].double()).abs().gt(80).any())


def _short(operands: Operands, arguments: Arguments) -> bool:
    """The gradient passes norms below eps, which the values do not depend on."""
    dim, eps = arguments.get("dim", 1), arguments.get("eps", 1e-8)
    wide = torch.broadcast_tensors(*(item.double() for item in operands))
    return any(bool(item.norm(dim=dim).le(eps).any()) for item in wide)


def _double(operands: Operands, arguments: Arguments) -> bool:
    """The series of the derivative has few terms (1e-10), or a factor of it is rounded to f32."""
    return any(item.dtype not in (torch.float32, torch.float16, torch.bfloat16) for item in operands)


def _inexact_inverse(operands: Operands, arguments: Arguments) -> bool:
    """alpha and its inverse are rounded to f32."""
    alpha = float(arguments.get("alpha", 1))
    return alpha == 0 or any(float(np.float32(item)) != item for item in (alpha, 1 / alpha))


def _negative_power(operands: Operands, arguments: Arguments) -> bool:
    """The derivative takes 2 to a negative integer for an integer: 0."""
    other = operands[-1] if isinstance(arguments["other"], Ref) else torch.tensor(arguments["other"])
    return not (other.is_floating_point() or other.is_complex()) and bool((other < 0).any())


def _unequal_share(operands: Operands, arguments: Arguments) -> bool:
    """Elements of self that are left out take a share of the gradient where they are equal to the result."""
    left_out = arguments.get("include_self") is False and arguments["reduce"] in ("amax", "amin")
    return left_out and bool(torch.isin(operands[0], operands[-1]).any())


def _no_slope(operands: Operands, arguments: Arguments) -> bool:
    """No element times an infinite slope; slopes that cancel."""
    return _empty(operands, arguments) or arguments["tensor1"] == arguments["tensor2"]


def _larger_source(operands: Operands, arguments: Arguments) -> bool:
    """The gradient of src has the shape of index, and is broadcast."""
    return len(operands) > 2 and operands[1].shape != operands[2].shape


def _large_order(operands: Operands, arguments: Arguments) -> bool:
    """inf / inf in the derivative of norms with a large p."""
    return 10 < arguments.get("p", 2) < math.inf


# Calls whose derivatives are not compared, in any mode.
DERIVATIVES: dict[str, Call] = {
    "soft_margin_loss": _steep,
    "pdist": _empty,  # the process ends by a division by zero
    "cdist": _large_order,
    "cosine_similarity": _short,
    "digamma": _double,
    "polygamma": _double,
    "ldexp": _negative_power,
    "scatter": _larger_source,
    "scatter_add": _larger_source,
    "scatter_reduce": lambda operands, arguments: (
        _larger_source(operands, arguments) or _unequal_share(operands, arguments)
    ),
    "addcdiv": _no_slope,
    "celu": _inexact_inverse,
    "hardsigmoid": _double,
    "std": _all_dims,
    "var": _all_dims,
    "std_mean": _all_dims,
    "var_mean": _all_dims,
    "rms_norm": _one_element,
    "mse_loss": _broadcast,
    "smooth_l1_loss": _broadcast,
    "huber_loss": _broadcast,
    "narrow_copy": _backwards,
    "polar": lambda operands, arguments: bool((operands[0] < 0).any()),  # the derivative by abs has its sign
    "atan2": _unsigned,  # the derivative negates the operand in its own type
    "block_diag": _empty,  # gradients behind a matrix without elements are those of other places
}
# The same in forward mode alone.
FORWARD: dict[str, Call] = {
    "rsub": always,  # forgets the tangent of other
    "zero": always,  # zeroes the tangent of the operand
    "gaussian_nll_loss": always,  # differentiates the bound of var, which reverse mode leaves out
    "logcumsumexp": always,  # scales by the exponential of the row's maximum, which cancels the smaller terms
    # Forgets the tangent of weight.
    **dict.fromkeys(
        ("nll_loss", "nll_loss_forward", "nll_loss2d_forward"), lambda operands, arguments: "weight" in arguments
    ),
    "scatter_reduce": lambda operands, arguments: arguments["reduce"] == "prod",  # forgets the tangent of self
    "fmax": _tie,
    "clamp": _tie_with_bound,
    "clip": _tie_with_bound,
    "prelu": _kink,
    "softplus": _at_threshold,
}
# The same in second derivatives alone.
SECOND: dict[str, Call] = {
    "dist": always,  # 0 / 0 for equal points
    "binary_cross_entropy": always,  # adds 1e-12 to denominators
    "mvlgamma": _double,
    "lgamma": _double,
    "pow": _no_power,
    "float_power": _no_power,
    "prelu": _kink,
    "softplus": _at_threshold,
}
MODES = {"reverse": (DERIVATIVES,), "forward": (DERIVATIVES, FORWARD), "second": (DERIVATIVES, SECOND)}


def _nan(operands: Operands, arguments: Arguments) -> bool:
    """The sign of a NaN is not defined, nor is its order among numbers."""
    return any(bool(item.isnan().any()) for item in operands)


def _nan_in_order(operands: Operands, arguments: Arguments) -> bool:
    """The search goes past any NaN that it meets: the last place or an earlier one, as the row's length has it."""
    return any(bool(item.isnan().any()) for item in operands)


def _extreme_order(operands: Operands, arguments: Arguments) -> bool:
    """Powers leave the range, or lose digits in roots of such an order."""
    order = arguments.get("p", arguments.get("ord"))
    return isinstance(order, (int, float)) and math.isfinite(order) and order != 0 and not 0.5 <= order <= 10


def _zeros(operands: Operands, arguments: Arguments) -> bool:
    """The sign of a zero that is a sum of one -0.0 differs."""
    return all(bool((item == 0).any()) for item in operands)


def _complex_zeros(operands: Operands, arguments: Arguments) -> bool:
    """0 to the power of 0 is NaN for a tensor of exponents, 1 for a number, as in NumPy."""
    return (
        isinstance(arguments["exponent"], Ref) and any(item.is_complex() for item in operands) and _zeros(operands, {})
    )


def _huge(operands: Operands, arguments: Arguments) -> bool:
    """Vector code makes NaN of quotients that overflow."""
    return any(bool((item.abs() > 1e30).any()) for item in operands if item.is_floating_point())


def _short_integers(operands: Operands, arguments: Arguments) -> bool:
    """Their difference wraps before it meets floats; smelt.jit makes floats of the operands."""
    return any(item.dtype in (torch.uint8, torch.int8) for item in operands)


def _large_integers(operands: Operands, arguments: Arguments) -> bool:
    """Their products leave the range; smelt.jit makes floats of the operands."""
    return any(bool((item.double().abs() > 1000).any()) for item in operands if not item.is_floating_point())


def _narrow_updates(operands: Operands, arguments: Arguments) -> bool:
    """Many f16 and bf16 numbers may meet in one place: the sum is rounded after each, or once."""
    return operands[0].dtype in (torch.float16, torch.bfloat16) and max(item.numel() for item in operands[1:]) > 64


def _series(operands: Operands, arguments: Arguments) -> bool:
    """Poles are large numbers, and series for f64 have few terms (1e-10)."""
    return _pole(operands, arguments) or (arguments["n"] > 0 and _double(operands, arguments))


def _infinite(operands: Operands, arguments: Arguments) -> bool:
    """Vector code makes NaN of infinity on some processors; so do sums that subtract a mean."""
    return any(bool(item.isinf().any()) for item in operands)


def _tiny_divisor(operands: Operands, arguments: Arguments) -> bool:
    """Vector code makes NaN of quotients that overflow."""
    other = arguments["other"]
    divisor = operands[-1] if isinstance(other, Ref) else torch.tensor(float(other))
    return _huge(operands, arguments) or bool((divisor.double().abs() < 1e-8).any())


def _pole(operands: Operands, arguments: Arguments) -> bool:
    """Large numbers in place of infinities."""
    return any(bool(((item.double() <= 0) & (item.double() == item.double().floor())).any()) for item in operands)


def _of_several_types(operands: Operands, arguments: Arguments) -> bool:
    """The type that meta tensors promise is another than that of the result, where some operand has no dimensions."""
    return len({item.dtype for item in operands}) > 1 and any(item.ndim == 0 for item in operands)


def _out_of_range(operands: Operands, arguments: Arguments) -> bool:
    """Powers that the integers do not hold; a base of 0 or below, whose power is a number only if the exponent is whole
    to the last bit."""
    base = float(arguments.get("base", 10.0))
    if base <= 0:
        return True
    wanted = arguments.get("dtype")
    if not isinstance(wanted, Type) or DTYPES[wanted.name].kind not in "iu":
        return False
    with np.errstate(all="ignore"):
        ends = np.float64(base) ** np.array([float(arguments["start"]), float(arguments["end"])])
    low, high = DTYPES[wanted.name].bounds
    return not bool(((ends >= low) & (ends <= high)).all())


# Calls whose values are not compared.
UNDEFINED: dict[str, Call] = {
    "signbit": _nan,
    "copysign": _nan,
    "gelu": _infinite,
    "var_mean": _infinite,
    "std_mean": _infinite,
    **dict.fromkeys(
        ("norm", "linalg_vector_norm", "normalize", "renorm", "dist", "cdist", "pdist"),
        _extreme_order,
    ),
    **dict.fromkeys(("scatter_add", "scatter_reduce", "index_add", "index_put"), _narrow_updates),
    **dict.fromkeys(
        ("cosine_embedding_loss", "poisson_nll_loss"),
        lambda operands, arguments: _short_integers(operands, arguments) or _large_integers(operands, arguments),
    ),
    **dict.fromkeys(("searchsorted", "bucketize"), _nan_in_order),
    "mode": _nan,  # it may be a number that is rarer than another
    # Wrong in the seventh digit, and NaN at infinity.
    **dict.fromkeys(
        ("special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"), always
    ),
    "binary_cross_entropy": _unlike,  # the mean of no elements is left unwritten, too
    "remainder": _huge,
    "fmod": _tiny_divisor,
    "cumprod": _huge,  # a running product that leaves the range of f32 and comes back: PyTorch's is f64
    "atan2": _zeros,
    **dict.fromkeys(("pow", "float_power"), _complex_zeros),
    "polygamma": _series,
    "pixel_unshuffle": _empty,  # images keep their shape
    "isin": lambda operands, arguments: arguments.get("assume_unique") is True,  # says so of elements that are not
    "logspace": _out_of_range,
    "block_diag": _of_several_types,
    **dict.fromkeys(
        ("margin_ranking_loss", "pairwise_distance", "triplet_margin_loss"),
        lambda operands, arguments: (
            _short_integers(operands, arguments)
            or _large_integers(operands, arguments)
            or _extreme_order(operands, arguments)
        ),
    ),
}
