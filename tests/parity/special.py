"""Special values in every sample of every op: one place of one tensor is NaN, infinite, the largest number and so on.

One place alone, so that what reductions and products make of it does not depend on their order. And the same samples
with dimensions of size 1 and 0 where they had more. Nothing here names an op: a new one joins with its samples.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from smelt.ops.opdef import OpDef

from .compare import ULPS, describe, spacing, wide
from .runner import Case, Refused, elementwise, entry_of, evaluate_all, traces
from .table import FLOAT, Sample, T

# As fractions of what a type holds: functions of its finfo.
VALUES = {
    "nan": lambda info: np.nan,
    "inf": lambda info: np.inf,
    "-inf": lambda info: -np.inf,
    "0": lambda info: 0.0,
    "-0": lambda info: -0.0,
    "least": lambda info: float(info.smallest_subnormal),
    "-least": lambda info: -float(info.smallest_subnormal),
    "normal": lambda info: float(info.smallest_normal),
    "-most": lambda info: float(info.min),
    "most": lambda info: float(info.max),
    "1": lambda info: 1.0,
    "root": lambda info: float(info.max) ** 0.5 * 1.5,  # whose square is out of range
}
SAMPLES = 6  # of an op, spread

# "op sample-dtype-value" patterns, and why smelt differs there.
TAIL = "PyTorch's vector code and its code for the last elements differ; smelt is the former"
WELFORD = "PyTorch updates a mean and makes inf - inf of an infinite element; the mean is infinite"
FOLDED = "PyTorch folds the statistics into a factor and an offset, and adds infinities of both signs"
ORDER = "products of the largest numbers in another order"
ROUNDING = "the order of a sum of products"
UNCHECKED = "PyTorch does not check, or leaves out, operands without elements"
UNSORTED = "the boundaries are not sorted any more"
SERIES = "PyTorch's series has few terms (1e-10), NaN at infinity"
ANGLE = "SciPy subtracts pi / 4 from an operand that is too large for it"
LEVEL = "a level that no 64-bit integer holds: undefined in PyTorch, the end of the range in smelt"
ZEROS = "a weight of zero meets an infinity: NaN where it is multiplied, nothing where it is left out"
FAILS = "an assertion that fails, as in PyTorch"
QUOTIENTS = "quotients by the smallest number, as in PyTorch's own gradient of "
NO_QUOTIENT = "a product divided by an infinity or NaN, as in PyTorch's own gradient of scatter_reduce"
KNOWN = {
    "hardshrink_backward *-nan": TAIL,
    "softshrink_backward *-nan": TAIL,
    "hardtanh_backward *-nan": TAIL,
    "hardswish_backward *-nan": TAIL,
    "elu_backward *-nan": TAIL,
    "logit_backward *--0": TAIL,
    "var_mean *inf": WELFORD,
    "std_mean *inf": WELFORD,
    "native_layer_norm *inf": WELFORD,
    "native_layer_norm *most": WELFORD,
    "layer_norm *most": WELFORD,
    "native_group_norm *inf": WELFORD,
    "group_norm *inf": FOLDED,
    "group_norm *most": FOLDED,
    "group_norm 3-*-3 to 1": FOLDED,
    "instance_norm *inf": FOLDED,
    "*batch_norm* *inf": FOLDED,
    "native_*_norm_backward *inf": FOLDED,
    "native_*_norm_backward *most": FOLDED,
    "native_layer_norm_backward *root": FOLDED,
    "addbmm *most": ORDER,
    "_pdist_backward 0-*most": ORDER,
    "_pdist_backward 2-*-least": "a distance that is less than that of the points: their quotient is out of range",
    "_cdist_backward *root": ORDER,
    "scaled_dot_product_attention *most": ORDER,
    "convolution_backward 6-*0": ROUNDING,
    "*choose_qparams_per_token_asymmetric* *nan": LEVEL,
    "fake_quantize_per_channel_affine* *inf": LEVEL,
    "fake_quantize_per_channel_affine* *most": LEVEL,
    "_fake_quantize_learnable_per_* *0": LEVEL,
    "_fake_quantize_learnable_per_* *inf": LEVEL,
    "_fake_quantize_learnable_per_* *most": LEVEL,
    "prod_of_others *least": QUOTIENTS + "prod",
    "prod_of_others *most": QUOTIENTS + "prod",
    "running_product_* *least": QUOTIENTS + "cumprod",
    "running_product_* *most": QUOTIENTS + "cumprod",
    "_cdist_forward *-nan": "PyTorch's maximum leaves NaN out for p = inf",
    "_pdist_forward *root": "1 / p in f32, PyTorch's in f64",
    "binary_cross_entropy_backward *-f64-1": "PyTorch's least divisor is 1e-12 in f32 also where all else is f64",
    "hardsigmoid_backward *-f64-*": "PyTorch's 1 / 6 is f32 also where all else is f64",
    "mode *-nan": "PyTorch compares with <, which leaves elements beside a NaN unsorted",
    "bucketize *least": UNSORTED,
    "bucketize *most": UNSORTED,
    "searchsorted 4-*inf": UNSORTED,
    "searchsorted 4-*-nan": UNSORTED,
    "cast [69]-*": "what no integer holds: undefined in PyTorch, the nearest integer and 0 for NaN in smelt",
    "conv* * to 0": UNCHECKED,
    "gather * to 0": UNCHECKED,
    "index_add * to 0": UNCHECKED,
    "take_along_dim * to 1": UNCHECKED,
    "pixel_unshuffle * to 0": UNCHECKED,
    "cross_entropy* * to 0": UNCHECKED,
    "fmod *least": "PyTorch's vector code gives NaN for large quotients",
    "grid_sampler_2d 15-f64-*": ROUNDING,
    "grid_sampler_2d 25-*most": "a place that no integer holds",
    "linear 4-f64-*": ROUNDING,
    "mv 1-f64-*": ROUNDING,
    "logaddexp2 *": "log2 of a sum that is nearly 1",
    "tanhshrink 4-*": "x - tanh(x) cancels",
    "native_dropout_backward *inf": "PyTorch multiplies what was dropped with 0: NaN of an infinite gradient",
    "scaled_dot_product_attention *-nan": "PyTorch makes rows with NaN 0",
    "poisson_nll_loss *most": "a product out of range, which a fused multiplication and addition does not round",
    "soft_margin_loss *root": "PyTorch's exp overflows where log(1 + exp(x)) is x",
    "softplus_backward *most": "PyTorch multiplies with exp(x) before it divides by it",
    "special_zeta *most": "PyTorch's sum of powers that vanish is NaN",
    "special_bessel_j0 *root": ANGLE,
    "special_bessel_j0 *most": ANGLE,
    "special_bessel_y0 *most": ANGLE,
    "special_bessel_j1 *-f64-normal": "SciPy rounds its result, which is denormal, twice",
    "polygamma 2-*inf": SERIES,
    "trigamma *-f64-*": SERIES,
    "_assert_async *0": FAILS,
    "_assert_scalar *0": FAILS,
    "_ctc_loss_backward *inf": "the logarithm of a probability is infinite",
    "_masked_softmax_backward *inf": "PyTorch subtracts the sum before it multiplies, here alone",
    "_segment_reduce_backward 2-*-nan": "PyTorch looks for the largest element with ==, and finds no NaN",
    "*upsample_bicubic2d* *-f64-*": ROUNDING,
    "*upsample_*linear* *inf": ZEROS,
    "*upsample_*cubic* *inf": ZEROS,
    "*upsample_*cubic* *nan": ZEROS,
    "*upsample_bicubic2d*_backward *most": ROUNDING,
    "_flash_attention_forward *inf": "the logarithm of a sum with an infinite term is that of inf - inf",
    "conv_tbc * to ?": UNCHECKED,
    "_segment_reduce_backward 4-*inf": "PyTorch divides the product by the element: inf / inf",
    "conv_tbc_backward *inf": ZEROS,
    "_weight_int8pack_mm *": ROUNDING,
    "segment_reduce * to ?": UNCHECKED,
    "slow_conv* * to ?": UNCHECKED,
    "tetragamma *-inf": SERIES,
    "scatter_other_products *least": QUOTIENTS + "scatter_reduce",
    "scatter_other_products *inf": NO_QUOTIENT,
    "scatter_other_products *nan": NO_QUOTIENT,
    "scatter_other_products *most": ORDER,
    "grid_sampler_3d_backward *most": ORDER,
    "grid_sampler_3d_backward 1-*inf": "a place that no integer holds",
    "fractional_max_pool[23]d * to [01]": "PyTorch reads beyond the end of too few random_samples; smelt refuses them",
    "fractional_max_pool3d *-f16-*": "PyTorch places the windows in f16",
    "run_add * to [01]": "runs that end beyond src, which smelt refuses",
    "special_legendre_polynomial_p 6-f64-*": "the recurrence cancels beside a root",
}
# Reasons that hold only where vectors are of some length, ours or PyTorch's.
OF_SOME_MACHINES = {TAIL, ROUNDING}


def tensors(sample: Sample) -> list[T]:
    """The float tensors under test among the arguments."""
    return [item for item in (*sample.args, *sample.kwargs.values()) if isinstance(item, T) and item.dtype is None]


def resized(sample: Sample, old: int, new: int) -> Sample:
    """The sample with all dimensions of one size of another one."""

    def place(item: Any) -> Any:
        if isinstance(item, T) and item.kind != "values":
            return replace(item, shape=tuple(new if size == old else size for size in item.shape))
        return [place(part) for part in item] if isinstance(item, (list, tuple)) else item

    return replace(sample, args=tuple(map(place, sample.args)), kwargs={k: place(v) for k, v in sample.kwargs.items()})


def resizable(op: OpDef) -> bool:
    """Not what only PyTorch itself calls: there nothing checks sizes, and it crashes."""
    return not op.name.startswith("_") and not any(part in op.name for part in ("backward", "unpool", "mkldnn"))


class SpecialCase(Case):
    """A case with a special value put into it, compared without an absolute tolerance."""

    what = ""

    @property
    def terms(self) -> float:
        """The largest finite term that a sum may have: an input, or a product of two; 10 at most."""
        found = [wide(array) for array in self.call.arrays if is_float(array) and array.size]
        largest = sorted((float(np.abs(item[np.isfinite(item)]).max(initial=0)) for item in found), reverse=True)
        return min(max(largest[0], largest[0] * largest[1] if len(largest) > 1 else 0.0), 10.0) if largest else 0.0

    def put(self, value: str) -> None:
        self.what = value
        candidates = [place for place, array in enumerate(self.call.arrays) if is_float(array) and array.size]
        if not candidates:
            return
        pick = np.random.default_rng(zlib.crc32(f"{self.op.name} {self.number} {value}".encode()))
        array = self.call.arrays[pick.choice(candidates)]
        array.reshape(-1)[pick.integers(array.size)] = VALUES[value](ml_dtypes.finfo(array.dtype))

    @property
    def name(self) -> str:
        return f"{self.number}-{self.dtype}-{self.what}"

    def check(self, results: Any, backend: str) -> str:
        if self.expected is None:
            return ""
        if len(results) != len(self.expected):
            return f"{len(results)} results, expected {len(self.expected)}"
        for position, (got, wanted) in enumerate(zip(results, self.expected, strict=True)):
            message = "" if wanted is None else self.compare(got, wanted, position, backend)
            if message:
                return f"result {position}: {message}"
        return ""

    def compare(self, got: np.ndarray, wanted: np.ndarray, position: int, backend: str) -> str:
        if got.dtype != wanted.dtype:
            return f"dtype {got.dtype}, expected {wanted.dtype}"
        if got.shape != wanted.shape:
            return f"shape {got.shape}, expected {wanted.shape}"
        if got.size == 0:
            return ""
        if got.dtype.kind in "biu":
            wrong = got != wanted
            return describe(wrong, got, wanted, None) if wrong.any() else ""
        if got.dtype.kind == "c":
            parts = (got.real, got.imag), (wanted.real, wanted.imag)
            wrong = sum(~((a == b) | (np.isnan(a) & np.isnan(b)) | np.isclose(a, b, 1e-5)) for a, b in zip(*parts))
            return describe(wrong > 0, got, wanted, None) if wrong.any() else ""
        high = self.exact(position)()
        exact = wanted if high is None or high.shape != wanted.shape else high
        with np.errstate(all="ignore"):
            rounded = wide(exact.astype(got.dtype))
            one, other = wide(got), wide(wanted)
            finite = np.isfinite(one) & np.isfinite(other) & np.isfinite(rounded)
            # As close to the exact result as PyTorch, or by some units: where it is a sum, of what was added up.
            size = np.abs(rounded)
            if not elementwise(self.op, self.call):
                size = np.maximum(size, self.terms)
            loose = self.entry.loose * (8 if self.dtype in ("f32", "f64") else 2)
            allowed = np.abs(other - rounded) * 2 + loose * ULPS * spacing(size, self.dtype)
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            same |= (one == rounded) | (np.isnan(one) & np.isnan(rounded))
            good = np.where(finite, np.abs(one - rounded) <= allowed, same)
        return describe(~good, got, wanted, high) if not good.all() else ""


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def cases(op: OpDef, spread: int) -> Iterator[SpecialCase]:
    """Special values in the samples of an op, every `spread`-th, in turn in all float types."""
    entry = entry_of(op)
    if entry is None:
        return
    elements = [element for element in FLOAT if element in entry.dtypes]
    samples = [
        (number, sample)
        for number, sample in enumerate(entry.samples)
        if "forward" in sample.modes
        and tensors(sample)
        and (sample.dtypes is None or set(elements) <= set(sample.dtypes))
    ]
    if not samples or not elements:
        return
    every = -(-len(samples) // SAMPLES)
    chosen = samples[::every]
    turn = zlib.crc32(op.name.encode())
    for element in elements:
        for place, value in enumerate(VALUES):
            turn += 1
            if turn % spread:
                continue
            number, sample = chosen[(place + turn) % len(chosen)]
            case = SpecialCase(op, entry, number, sample, element, "forward")
            case.put(value)
            yield case
    if not resizable(op):
        return
    for number, sample in chosen:
        sizes = {size for item in tensors(sample) if item.kind != "values" for size in item.shape if size > 1}
        for old in sorted(sizes):
            for new in (1, 0):
                turn += 1
                if turn % spread:
                    continue
                changed = resized(sample, old, new)
                case = SpecialCase(op, entry, number, changed, elements[turn % len(elements)], "forward")
                case.what = f"{old} to {new}"
                yield case


def run(op: OpDef, backend: str, spread: int = 1, only: str = "*") -> list[tuple[SpecialCase, str]]:
    """The cases of an op that disagree with PyTorch, with what is wrong; those alone that match a pattern."""
    found: list[tuple[SpecialCase, str]] = []
    ready: list[SpecialCase] = []
    for case in cases(op, spread):
        if not fnmatch.fnmatchcase(f"{op.name} {case.name}", only):
            continue
        try:
            if not case.prepare() or case.expected is None:
                continue
        except (Refused, ValueError, ZeroDivisionError, LookupError):
            continue  # PyTorch does not take this
        try:
            traces(case)
        except Exception as error:
            found.append((case, f"{type(error).__name__}: {error}"))
        else:
            ready.append(case)
    for case, result in zip(ready, evaluate_all(ready, backend), strict=True):
        message = f"{type(result).__name__}: {result}" if isinstance(result, Exception) else case.check(result, backend)
        if message:
            found.append((case, message))
    return found


def unexplained(op: OpDef, backend: str, spread: int) -> list[str]:
    """What disagrees with PyTorch and is not in KNOWN."""
    return [
        f"{op.name}{case.shown}, {case.name}: {message}"
        for case, message in run(op, backend, spread)
        if not any(fnmatch.fnmatchcase(f"{op.name} {case.name}", pattern) for pattern in KNOWN)
    ]
