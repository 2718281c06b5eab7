"""Provide the names that generated source uses: CUDA's functions, or their substitutes in Numba's simulator.

`names()` returns them as the globals of a module. In the simulator each CUDA thread is a Python thread and works on
NumPy scalars; features it lacks (shuffles, functions of CUDA's library, vector accesses) are emulated here.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ....ir.types import DType, bf16, dtype, f16
from ....kernels.scalar import reference
from ....kernels.scalar.table import SCALARS, cuda_function
from ..simulated import is_simulated
from .scalars import NAMES

INTEGERS = ("int32", "int64", "uint32", "uint64")
# CUDA's conversions from float to integer: towards zero, saturating. Only the first converts NaN to 0, the others to
# the smallest integer: NATIVE_SOURCE has the calls.
CONVERSIONS = {
    ("float32", "int32"): "float2int_rz",
    ("float32", "int64"): "float2ll_rz",
    ("float64", "int32"): "double2int_rz",
    ("float64", "int64"): "double2ll_rz",
    ("float32", "uint64"): "float2ull_rz",
    ("float64", "uint64"): "double2ull_rz",
}
BITS = ("float_as_int", "int_as_float", "double_as_longlong", "longlong_as_double")


@lru_cache(maxsize=2)
def names(modern: bool = True) -> dict[str, Any]:
    """Return the globals of generated source, in this process. modern: for GPUs from sm_80 on."""
    from numba import cuda

    found: dict[str, Any] = {name: getattr(np, name) for name in NAMES.values()}
    found |= {"inf": math.inf, "nan": math.nan, "cuda": cuda}
    return found | (_simulated() if is_simulated() else _native(modern))


@lru_cache(maxsize=1)
def reserved() -> frozenset[str]:
    """Return the names that generated source must not define."""
    return frozenset({*names(), *dir(builtins), *re.findall(r"def (\w+)", NATIVE_SOURCE + SIMULATED_SOURCE)})


# In the simulator.


def _simulated() -> dict[str, Any]:
    found: dict[str, Any] = {"device": lambda function: function}
    for row in SCALARS.values():
        name = cuda_function(row)
        for kind, suffix in ((np.float32, "f"), (np.float64, "")) if name else ():
            found[f"{name}{suffix}"] = _scalar(row.numpy, kind)
    for source, target in CONVERSIONS:
        found[f"{source}_to_{target}"] = _conversion(dtype(target))
    for name in INTEGERS:
        kind = getattr(np, name)
        found[f"divide_{name}"] = _scalar(SCALARS["raw_divide"].numpy, kind)
        found[f"remainder_{name}"] = _scalar(SCALARS["raw_remainder"].numpy, kind)
    for name in BITS:
        found[name] = _viewed(_BIT_TYPES[name.split("_as_")[1]])
    found |= {
        "sum32": lambda *terms: np.int32(sum(map(int, terms))),  # or an error, where there are more digits
        "fetch1": lambda array, place: array[place],
        "fmaf": lambda a, b, c: np.float32(float(a) * float(b) + float(c)),
        "fma": _fused,
        "fmul_rn": lambda a, b: a * b,
        "dmul_rn": lambda a, b: a * b,
        "maximum": lambda a, b: a if a > b or a != a else b,
        "minimum": lambda a, b: a if a < b or a != a else b,
        "from_f16": np.float32,
        "to_f16": np.float16,
        "from_bf16": lambda bits: np.asarray(bits, np.uint16).view(bf16.numpy).astype(np.float32)[()],
        "to_bf16": lambda value: np.asarray(value).astype(bf16.numpy).view(np.uint16)[()],
    }
    for width in (2, 4, 8):
        found[f"load{width}"] = found[f"fetch{width}"] = _loaded(width)
        found[f"store{width}"] = _store
    return found


_BIT_TYPES = {
    "int": np.int32,
    "float": np.float32,
    "longlong": np.int64,
    "double": np.float64,
}


def _scalar(function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    return lambda *values: kind(function(*map(kind, values)))


def _fused(a: Any, b: Any, c: Any) -> Any:
    """Compute reference.fma on scalars, faster: most of the time of simulated GEMMs is spent here."""
    a, b, c = float(a), float(b), float(c)
    product = a * b
    large_a, large_b = a * 134217729.0, b * 134217729.0
    high_a, high_b = large_a - (large_a - a), large_b - (large_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    back = total - product
    rest = (product - (total - back)) + (c - back) + error
    result = total + rest
    return np.float64(result if math.isfinite(result) and rest else total)


def _conversion(kind: DType) -> Callable[[Any], Any]:
    return lambda value: kind.numpy.type(reference.cast(value, kind))


def _loaded(width: int) -> Callable[[Any, Any], tuple[Any, ...]]:
    def load(array: Any, place: Any) -> tuple[Any, ...]:
        _check_aligned(place, width)
        return tuple(array[int(place) + step] for step in range(width))

    return load


def _check_aligned(place: Any, width: int) -> None:
    if place % width:
        raise IndexError(f"a vector access of {width} elements at index {place}, which is not a multiple of the width")


def _viewed(kind: Any) -> Callable[[Any], Any]:
    return lambda value: value.view(kind)


def _store(array: Any, place: Any, values: tuple[Any, ...]) -> None:
    _check_aligned(place, len(values))
    for step, value in enumerate(values):
        array[int(place) + step] = value


# Source of emulated functions that use the simulator's own `cuda`: the simulator replaces that name in a kernel's own
# module.
SIMULATED_SOURCE = """
slots = {}
turns = {}


def exchange(value, source):
    # Two slots a thread, in turn: none can be two exchanges ahead of another.
    thread = cuda.threadIdx.x
    turn = turns.get(thread, 0) ^ 1
    turns[thread] = turn
    slots[thread, turn] = value
    cuda.exchange_registers()
    return slots.get((source, turn), value)


def shuffle_xor(value, mask):
    return exchange(value, cuda.threadIdx.x ^ mask)


def shuffle_up(value, distance):
    return exchange(value, cuda.threadIdx.x - distance)


def shuffle_from(value, lane):
    return exchange(value, (cuda.threadIdx.x & ~31) + lane)


def sync_warp():
    cuda.syncthreads()
"""

NATIVE_SOURCE = """
@device
def shuffle_xor(value, mask):
    return cuda.shfl_xor_sync(0xFFFFFFFF, value, mask)


@device
def shuffle_up(value, distance):
    return cuda.shfl_up_sync(0xFFFFFFFF, value, distance)


@device
def shuffle_from(value, lane):
    return cuda.shfl_sync(0xFFFFFFFF, value, lane)


@device
def sync_warp():
    cuda.syncwarp()


@device
def from_f16(value):
    return float32(value)


@device
def to_f16(value):
    return float16(value)


@device
def from_bf16(value):
    return int_as_float(int32(int32(value) << 16))
""" + "".join(
    f"""

@device
def {source}_to_{target}(value):
    return {name}(value) if value == value else {target}(0)
"""
    for (source, target), name in CONVERSIONS.items()
)


# On a GPU.


def _native(modern: bool) -> dict[str, Any]:
    from numba import cuda
    from numba.cuda import libdevice

    from .intrinsics import intrinsics

    found: dict[str, Any] = {"device": cuda.jit(device=True), "float16": f16.numpy.type}
    for name in filter(None, map(cuda_function, SCALARS.values())):
        for suffix in ("f", ""):
            found[name + suffix] = getattr(libdevice, name + suffix)
    for name in (*CONVERSIONS.values(), *BITS, "fmul_rn", "dmul_rn"):
        found[name] = getattr(libdevice, name)
    return found | intrinsics(modern)
