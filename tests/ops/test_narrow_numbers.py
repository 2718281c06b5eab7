"""Numbers and 0-dim tensors beside f16 and bf16 tensors, against PyTorch eager on the CPU.

Whether a number is rounded to the tensor's type first, or used in f32, is a choice of each op in PyTorch. The table
has every op that takes one; each runs over one in 16 of all f16 or bf16 numbers and the roundings of the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from smelt import ops
from smelt.ir.types import DTYPES
from support import BACKENDS, evaluate, from_torch, to_torch

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = (0.1, 1 / 3, 65536.0, 3e-6, -0.7, 3, 100000, -5)
NARROW = ("f16", "bf16")
ZERO_DIM = ("f16", "bf16", "f32", "f64", "i64")


@dataclass(frozen=True)
class Row:
    """An op with a number among its arguments.

    `ulps` is how far results may be apart, where PyTorch rounds several times; None: any distance."""

    call: Callable[[Any, Any, Any, Any], Any]  # of the library, two tensors and the number
    tensors: bool = True  # whether the number may be a 0-dim tensor
    ulps: float | None = 0
    aten: bool = False  # the function is in torch.ops.aten
    limit: float = np.inf  # of operands: beyond it PyTorch's steps are out of range


def binary(name: str, **fields: Any) -> dict[str, Row]:
    """The number as second and as first operand."""
    return {
        name: Row(lambda m, x, y, s: getattr(m, name)(x, s), **fields),
        f"{name}, number first": Row(lambda m, x, y, s: getattr(m, name)(s, x), **fields),
    }


ROWS: dict[str, Row] = {
    **binary("add"),
    **binary("sub"),
    **binary("true_divide"),
    **binary("pow", ulps=1),  # x ** 3 is rounded twice in PyTorch
    **binary("maximum"),
    **binary("minimum"),
    **binary("fmax"),
    **binary("fmin"),
    **binary("eq"),
    **binary("ne"),
    **binary("lt"),
    **binary("le"),
    **binary("gt"),
    **binary("ge"),
    **binary("copysign"),
    **binary("nextafter"),
    **binary("atan2", ulps=1),
    **binary("hypot"),
    **binary("logaddexp", ulps=1),
    **binary("xlogy", ulps=2),
    **binary("heaviside"),
    "mul": Row(lambda m, x, y, s: m.mul(x, s)),
    "floor_divide": Row(lambda m, x, y, s: m.floor_divide(x, s)),
    "div, trunc": Row(lambda m, x, y, s: m.div(x, s, rounding_mode="trunc")),
    "div, floor": Row(lambda m, x, y, s: m.div(x, s, rounding_mode="floor")),
    "remainder": Row(lambda m, x, y, s: m.remainder(x, s), limit=1e30),
    "fmod": Row(lambda m, x, y, s: m.fmod(x, s), limit=1e30),
    "rsub": Row(lambda m, x, y, s: m.rsub(x, s)),
    "add, alpha": Row(lambda m, x, y, s: m.add(x, y, alpha=s), tensors=False),
    "sub, alpha": Row(lambda m, x, y, s: m.sub(x, y, alpha=s), tensors=False),
    "rsub, alpha": Row(lambda m, x, y, s: m.rsub(x, y, alpha=s), tensors=False),
    "add, number and alpha": Row(lambda m, x, y, s: m.add(x, s, alpha=0.3)),
    "where": Row(lambda m, x, y, s: m.where(y > 0, x, s)),
    "where, number first": Row(lambda m, x, y, s: m.where(y > 0, s, x)),
    "clamp_min": Row(lambda m, x, y, s: m.clamp(x, s, None)),
    "clamp_max": Row(lambda m, x, y, s: m.clamp(x, None, s)),
    "clamp": Row(lambda m, x, y, s: m.clamp(x, s, 0.7), tensors=False),
    "lerp": Row(lambda m, x, y, s: m.lerp(x, y, s)),
    "addcmul": Row(lambda m, x, y, s: m.addcmul(x, y, s)),
    "addcmul, value": Row(lambda m, x, y, s: m.addcmul(x, y, y, value=s), tensors=False),
    "addcdiv, value": Row(lambda m, x, y, s: m.addcdiv(x, y, y, value=s), tensors=False),
    "masked_fill": Row(lambda m, x, y, s: m.masked_fill(x, y > 0, s)),
    "full_like": Row(lambda m, x, y, s: m.full_like(x, s), tensors=False),
    "fill": Row(lambda m, x, y, s: m.fill(x, s)),
    "nan_to_num": Row(lambda m, x, y, s: m.nan_to_num(x, s, s, -s), tensors=False),
    "isin": Row(lambda m, x, y, s: m.isin(x, s), tensors=False),
    "threshold": Row(lambda m, x, y, s: m.threshold(x, s, -s), tensors=False),
    "logit": Row(lambda m, x, y, s: m.logit(x, abs(s)), tensors=False, ulps=None),
    "renorm": Row(lambda m, x, y, s: m.renorm(x.reshape(4, -1), 2, 0, abs(s)), tensors=False, ulps=1),
    "hardshrink": Row(lambda m, x, y, s: m.hardshrink(x, abs(s)), tensors=False, aten=True),
    "softshrink": Row(lambda m, x, y, s: m.softshrink(x, abs(s)), tensors=False, aten=True),
    "leaky_relu": Row(lambda m, x, y, s: m.leaky_relu(x, s), tensors=False, aten=True),
    "elu, alpha": Row(lambda m, x, y, s: m.elu(x, s), tensors=False, aten=True, ulps=1),
    "elu, scale": Row(lambda m, x, y, s: m.elu(x, 1, s), tensors=False, aten=True, ulps=1),
    "elu, input_scale": Row(lambda m, x, y, s: m.elu(x, 1, 1, s), tensors=False, aten=True, ulps=1),
    "celu": Row(lambda m, x, y, s: m.celu(x, s), tensors=False, aten=True, ulps=1),
    "hardtanh": Row(lambda m, x, y, s: m.hardtanh(x, -abs(s), abs(s)), tensors=False, aten=True),
    "softplus, beta": Row(lambda m, x, y, s: m.softplus(x, s), tensors=False, aten=True, ulps=1),
    "softplus, threshold": Row(lambda m, x, y, s: m.softplus(x, 1, s), tensors=False, aten=True, ulps=1),
    "threshold_backward": Row(lambda m, x, y, s: m.threshold_backward(y, x, s), tensors=False, aten=True),
    "hardshrink_backward": Row(lambda m, x, y, s: m.hardshrink_backward(y, x, abs(s)), tensors=False, aten=True),
    "softshrink_backward": Row(lambda m, x, y, s: m.softshrink_backward(y, x, abs(s)), tensors=False, aten=True),
    "leaky_relu_backward": Row(lambda m, x, y, s: m.leaky_relu_backward(y, x, s, False), tensors=False, aten=True),
    "hardtanh_backward": Row(lambda m, x, y, s: m.hardtanh_backward(y, x, -abs(s), abs(s)), tensors=False, aten=True),
    "elu_backward": Row(lambda m, x, y, s: m.elu_backward(y, s, s, s, False, x), tensors=False, aten=True, ulps=1),
    "softplus_backward": Row(
        lambda m, x, y, s: m.softplus_backward(y, x, s, 2.0), tensors=False, aten=True, ulps=1, limit=1e30
    ),
}  # fmt: skip

# PyTorch's own faults, and where smelt differs on purpose.
KNOWN = {
    "mul, number first": "PyTorch's CPU kernel rounds a 0-dim first operand, but not a second one; its GPU kernel and "
    "Inductor round neither, and smelt neither on any target",
    "floor_divide, number first": "PyTorch computes the remainder in f16 and divides what is left: off by one",
    "remainder, fmod of bf16": "PyTorch's vector code gives NaN for quotients from about 2 ** 128 on",
    "softplus_backward of bf16": "grad * exp(x) is out of range before it is divided",
    "isclose, huber_loss, smooth_l1_loss, ldexp": "PyTorch rounds after each of several steps, smelt once",
}


def operands(element: str) -> tuple[np.ndarray, np.ndarray]:
    """One in 16 of all numbers of a type, with one NaN alone among their bits, beside the same in another order."""
    numbers = np.arange(0, 65536, 16, dtype=np.uint16).view(DTYPES[element].numpy).copy()
    numbers[np.isnan(numbers)] = np.nan
    for place, number in enumerate(NUMBERS):
        numbers[64 * place + 5] = np.float32(number).astype(numbers.dtype)
        numbers[64 * place + 7] = -np.float32(number).astype(numbers.dtype)
    finite = numbers[np.isfinite(numbers.astype(np.float32))]
    return numbers, np.resize(np.random.default_rng(0).permutation(finite), numbers.shape)


def apart(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Units in the last place between two arrays: 0 for NaN beside NaN, infinite where just one is finite."""
    if got.dtype.kind == "b":
        return np.where(got == wanted, 0.0, np.inf)
    info = ml_dtypes.finfo(got.dtype)
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(wanted), float(info.smallest_normal))
        distance = np.abs(got - wanted) / (np.exp2(np.floor(np.log2(size))) * float(info.eps))
    equal = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return np.where(equal, 0.0, np.where(np.isfinite(distance), distance, np.inf))


def by_torch(row: Row, x: np.ndarray, y: np.ndarray, number: Any) -> np.ndarray | None:
    """PyTorch's result, or None where it does not take the number."""
    try:
        library = torch.ops.aten if row.aten else torch
        return from_torch(row.call(library, to_torch(x), to_torch(y), number))
    except (RuntimeError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("name", ROWS)
def test_numbers_beside_narrow_tensors(name: str, element: str) -> None:
    row = ROWS[name]
    x, y = operands(element)
    x, y = (np.where(np.abs(item.astype(np.float32)) > row.limit, item.dtype.type(1), item) for item in (x, y))
    forms: list[tuple[str, Any, np.ndarray | None]] = [("number", number, None) for number in NUMBERS]
    if row.tensors:
        forms += [
            (kind, None, np.asarray(number).astype(DTYPES[kind].numpy))
            for number in NUMBERS
            for kind in ZERO_DIM
            if kind != "i64" or isinstance(number, int)
        ]
    tried = []
    for kind, number, array in forms:
        wanted = by_torch(row, x, y, number if array is None else to_torch(array))
        if wanted is not None:
            tried.append((kind, number, array, wanted))
    assert tried

    def program(x: Any, y: Any, *tensors: Any) -> list[Any]:
        left = iter(tensors)
        return [row.call(ops, x, y, number if array is None else next(left)) for _, number, array, _ in tried]

    arrays = [x, y, *(array for _, _, array, _ in tried if array is not None)]
    for backend in BACKENDS:
        for (kind, number, array, wanted), got in zip(tried, evaluate(program, arrays, backend), strict=True):
            what = f"{name} of {element} and {kind} {number if array is None else array} on {backend}"
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, what
            # The interpreter rounds after each op of a composite, and alpha * other.
            several = getattr(ops, name.split(",")[0]).is_composite or "alpha" in name
            if row.ulps is None or (backend == "interp" and several):
                continue
            distance = apart(got, wanted)
            worst = np.argmax(distance)
            at = f"at x = {x.flat[worst]}, y = {y.flat[worst]}: got {got.flat[worst]}, PyTorch {wanted.flat[worst]}"
            assert distance.max() <= row.ulps, f"{what}: {np.sum(distance > row.ulps)} differ, {at}"


def test_a_loss_scale_of_another_type_keeps_its_precision() -> None:
    x = np.array([0.0, 2.0**-20, 1.0], np.float16)
    scale = np.float32(65536.0)
    for backend in BACKENDS:
        product, swapped, quotient = evaluate(lambda x, s: (x * s, s * x, x / s), [x, np.asarray(scale)], backend)
        np.testing.assert_array_equal(product, np.array([0.0, 0.0625, np.inf], np.float16))
        np.testing.assert_array_equal(swapped, product)
        np.testing.assert_array_equal(quotient, (x.astype(np.float32) / scale).astype(np.float16))
