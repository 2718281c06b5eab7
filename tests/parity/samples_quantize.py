"""Samples of quantisation. Numbers lie next to steps, not on ties: those are in tests/ops/test_quantize.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines torch.ops.quantized_decomposed)

from .table import FLOAT, D, Entry, S, Sample, T, entry, index, t, values

NARROW = ("f32", "f16", "bf16")
I8 = -128, 127, D("i8")
U8 = 0, 255, D("u8")


def decomposed(name: str, *samples: Sample, dtypes: tuple[str, ...] = NARROW, **fields: object) -> Entry:
    def reference(*args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(torch.ops.quantized_decomposed, name)(*args, **kwargs)
        except AssertionError as error:  # how these ops refuse a type
            raise TypeError(str(error)) from error

    return entry(*samples, dtypes=dtypes, torch=reference, derivative=False, special=False, **fields)


def aligned(name: str) -> Any:
    """PyTorch's function on copies: its kernels take any array as aligned to 32 bytes, and NumPy's are not."""

    def call(*args: Any) -> Any:
        copied = [item.clone() if isinstance(item, torch.Tensor) else item for item in args]
        return getattr(torch.ops.aten, name)(*copied)

    return call


def whole(*shape: int, low: int = -128, high: int = 128, dtype: str = "i8") -> T:
    return index(*shape, low=low, below=high, dtype=dtype)


def fixed(*items: float, dtype: str = "f32") -> T:
    """A parameter, which has no derivative."""
    return values(*items, dtype=dtype, differentiate=False)


def learning(*args: object) -> Sample:
    return Sample(args, {}, modes=("forward", "vjp"))


def learned(*items: float) -> T:
    return values(*items)


FAKE = {"dtypes": FLOAT, "forward_mode": False, "outputs": 1, "special": False}
# PyTorch computes these in f32 alone, and has no forward mode: tests/ops/test_quantize.py.
LEARNABLE = {"dtypes": ("f32",), "special": False}
OBSERVED = (values(1, dtype="i64"), values(1, dtype="i64"))
MOVING = (*OBSERVED, fixed(-1.5), fixed(2.5), fixed(1.0), fixed(0, dtype="i32"))
ROWS = (*OBSERVED, fixed(-1, -2, -3), fixed(3, 2, 1), fixed(1, 1, 1), fixed(0, 0, 0, dtype="i32"))

ENTRIES = {
    "rounded_product": entry(S(t(37), t(37)), S(t(2, 1), t(3)), S(t(), t(4)), S(t(0), t(1)), dtypes=FLOAT, torch="mul"),
    "quantize_per_tensor": decomposed(
        "quantize_per_tensor",
        S(t(37), 0.03, 5, *U8),
        S(t(2, 3, 5), 0.013, 0, *I8),
        S(t(), 0.1, 1, *I8),
        S(t(0), 0.1, 1, *I8),
        S(t(9), fixed(0.07, dtype="f64"), fixed(3, dtype="i64"), *U8),
        S(t(9), fixed(0.07), fixed(3, dtype="i64"), fixed(0, dtype="i64"), fixed(255, dtype="i64"), D("u8")),
        S(t(9), 0.001, 0, -32768, 32767, D("i16")),
    ),
    "dequantize_per_tensor": decomposed(
        "dequantize_per_tensor",
        S(whole(37), 0.03, 5, *I8),
        S(whole(2, 3, low=0, high=256, dtype="u8"), 0.013, 128, *U8, out_dtype=D("f32")),
        S(whole(), 0.1, 1, *I8),
        S(whole(0), 0.1, 1, *I8),
        S(whole(9), fixed(0.07, dtype="f64"), fixed(3, dtype="i64"), *I8),
        S(whole(9), fixed(0.07), fixed(3, dtype="i32"), fixed(-128, dtype="i64"), fixed(127, dtype="i64"), D("i8")),
        dtypes=("f32",),
    ),
    "choose_qparams": decomposed(
        "choose_qparams",
        S(t(37), 0, 255, 1e-5, D("u8")),
        S(t(2, 3, low=0.5), -128, 127, 1e-5, D("i8")),
        S(t(), *I8[:2], 1e-5, D("i8")),
    ),
    "choose_qparams_symmetric": decomposed(
        "choose_qparams_symmetric", S(t(37), 0, 255, 1e-5, D("u8")), S(t(2, 3), -127, 127, 1e-5, D("i8"))
    ),
    "choose_qparams_per_token": decomposed("choose_qparams_per_token", S(t(5, 7), D("i8")), S(t(2, 3, 4), D("i8"))),
    "choose_qparams_per_token_asymmetric": decomposed(
        "choose_qparams_per_token_asymmetric", S(t(5, 7), D("i8")), S(t(2, 3, 4, low=0.2), D("i8"))
    ),
    "_choose_qparams_per_token_asymmetric_impl": decomposed(
        "_choose_qparams_per_token_asymmetric_impl", S(t(5, 7), D("i8"))
    ),
    "quantize_per_channel": decomposed(
        "quantize_per_channel",
        S(t(3, 37), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i64"), 0, *I8),
        S(t(2, 3, 4), fixed(0.1, 0.03, 0.007, dtype="f64"), fixed(0, 3, 128, dtype="i32"), 1, *U8),
        S(t(0, 3), fixed(0.1, 0.03, 0.007), fixed(0, 3, 5), 1, *U8),
    ),
    "dequantize_per_channel": decomposed(
        "dequantize_per_channel",
        S(whole(3, 37), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i64"), 0, *I8),
        S(whole(2, 3), fixed(0.1, 0.03, 0.007, dtype="f64"), fixed(0, 3, 128, dtype="i32"), 1, *I8),
        S(whole(2, 3), fixed(0.1, 0.03, 0.007), None, 1, *I8),
        dtypes=("f32",),
    ),
    "fake_quant_per_channel": decomposed(
        "fake_quant_per_channel",
        S(t(3, 37), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i64"), 0, -128, 127),
        S(t(2, 3, 4), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i32"), 1, -8, 7),
        dtypes=("f32",),
    ),
    "quantize_per_token": decomposed(
        "quantize_per_token",
        S(t(3, 37), T((3, 1), 0.01, 0.1, "f32"), whole(3, 1, low=-5, high=5, dtype="i64"), *I8),
        S(t(2, 3, 4), T((2, 3, 1), 0.01, 0.1, "f32"), T((2, 3, 1), -5, 5, "f32"), *I8),
    ),
    "dequantize_per_token": decomposed(
        "dequantize_per_token",
        S(whole(3, 37), T((3, 1), 0.01, 0.1, "f64"), whole(3, 1, low=-5, high=5, dtype="i64"), *I8, D("f32")),
        S(whole(2, 3, 4), T((2, 3, 1), 0.01, 0.1, "f32"), T((2, 3, 1), -5, 5, "f32"), *I8, D("f16")),
        dtypes=("f32",),
    ),
    "quantize_per_channel_group": decomposed(
        "quantize_per_channel_group",
        S(t(3, 8), T((3, 2), 0.01, 0.1, "f32"), whole(3, 2, low=-5, high=5, dtype="i64"), *I8, 4),
        S(t(3, 8), T((3, 1), 0.01, 0.1, "f32"), T((3, 1), -5, 5, "f32"), *I8, 128),
    ),
    "dequantize_per_channel_group": decomposed(
        "dequantize_per_channel_group",
        S(whole(3, 8), T((3, 2), 0.01, 0.1, "f32"), whole(3, 2, low=-5, high=5, dtype="i64"), *I8, 4, D("f32")),
        S(whole(3, 8), T((3, 1), 0.01, 0.1, "f32"), None, *I8, 128, D("f32")),
        dtypes=("f32",),
    ),
    "fake_quantize_per_tensor_affine_cachemask": entry(
        S(t(37), 0.03, 5, -128, 127),
        S(t(2, 3, 5), 0.2, 0, -8, 7),
        S(t(), 0.1, 1, 0, 255),
        S(t(0), 0.1, 1, 0, 255),
        **FAKE,
    ),
    "fake_quantize_per_tensor_affine_cachemask_backward": entry(
        S(t(5), T((5,), dtype="bool")), dtypes=FLOAT, derivative=False, special=False
    ),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": entry(
        *(S(t(37), fixed(0.03), fixed(5, dtype="i32"), fixed(on, dtype="i64"), -64, 63) for on in (0, 1)),
        S(t(), fixed(0.03), fixed(5, dtype="i64"), fixed(1, dtype="i64"), -64, 63),
        **FAKE,
    ),
    "fake_quantize_per_tensor_affine": entry(
        S(t(37), 0.03, 5, -64, 63), S(t(9), fixed(0.03), fixed(5, dtype="i32"), -64, 63), **FAKE
    ),
    "fake_quantize_per_channel_affine_cachemask": entry(
        S(t(3, 37), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i32"), 0, -128, 127),
        S(t(2, 3, 4), fixed(0.1, 0.03, 0.007), fixed(0, 3.5, -5.2), 1, -8, 7),
        **FAKE,
    ),
    "fake_quantize_per_channel_affine_cachemask_backward": entry(
        S(t(5), T((5,), dtype="bool")), dtypes=FLOAT, derivative=False, special=False
    ),
    "fake_quantize_per_channel_affine": entry(
        S(t(3, 37), fixed(0.1, 0.03, 0.007), fixed(0, 3, -5, dtype="i32"), 0, -128, 127), **FAKE
    ),
    "_fake_quantize_learnable_per_tensor_affine": entry(
        learning(t(37), learned(0.03), learned(5.2), -64, 63),
        learning(t(2, 3), learned(0.5), learned(-1.7), -2, 1, 0.3),
        **LEARNABLE,
    ),
    "_fake_quantize_learnable_per_tensor_affine_backward": entry(
        S(t(37), t(37), fixed(0.03), fixed(5.2), -64, 63, 0.5), dtypes=("f32",), derivative=False, special=False
    ),
    "_fake_quantize_learnable_per_channel_affine": entry(
        learning(t(3, 7), learned(0.03, 0.5, 0.2), learned(5.2, -1, 0.3), 0, -64, 63),
        learning(t(4, 3), learned(0.03, 0.5, 0.2), learned(5.2, -1, 0.3), 1, -2, 1, 0.3),
        **LEARNABLE,
    ),
    "_fake_quantize_learnable_per_channel_affine_backward": entry(
        S(t(3, 7), t(3, 7), fixed(0.03, 0.5, 0.2), fixed(5.2, -1, 0.3), 0, -64, 63, 0.5),
        dtypes=("f32",),
        derivative=False,
        special=False,
    ),
    "_fused_moving_avg_obs_fq_helper_functional": entry(
        S(t(37), *MOVING, 0.01, -128, 127, 0),
        S(t(3, 5), *MOVING, 0.1, 0, 255, 0, False, True),
        S(t(3, 5), *ROWS, 0.1, -128, 127, 0, True, True),
        dtypes=("f32",),
        derivative=False,
        special=False,
    ),
    "_fused_moving_avg_obs_fq_helper": entry(
        S(t(37), *MOVING, 0.01, -128, 127, 0), dtypes=("f32",), derivative=False, special=False
    ),
    "_int_mm": entry(
        S(whole(37, 65), whole(65, 19)),
        S(whole(17, 8, low=0, high=256, dtype="u8"), whole(8, 8)),
        dtypes=("f32",),
        derivative=False,
        special=False,
    ),
    "_weight_int8pack_mm": entry(
        S(t(5, 64), whole(12, 64), t(12, low=0.01, high=0.1, differentiate=False)),
        dtypes=NARROW,
        torch=aligned("_weight_int8pack_mm"),
        derivative=False,
        special=False,
    ),
    "_convert_weight_to_int4pack_for_cpu": entry(
        *(S(whole(rows, 64, low=0, high=16, dtype="i32"), 2) for rows in (16, 48, 64, 112)),
        dtypes=("f32",),
        torch=aligned("_convert_weight_to_int4pack_for_cpu"),
        derivative=False,
        special=False,
    ),
    "_weight_int4pack_mm_for_cpu": entry(
        *(
            S(
                t(3, 64),
                whole(rows, 32, low=0, high=256, dtype="u8"),
                32,
                t(2, rows, 2, low=0.01, high=0.1, differentiate=False),
            )
            for rows in (16, 48, 64, 112)
        ),
        dtypes=NARROW,
        torch=aligned("_weight_int4pack_mm_for_cpu"),
        derivative=False,
        special=False,
    ),
}
