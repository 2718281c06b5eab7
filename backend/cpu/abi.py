"""Records that native code and Python share. One ctypes declaration is the layout for both: compiled code uses the
slots of `ctx`, the run time's native code and Python use fields."""

from __future__ import annotations

import ctypes
from ctypes import Structure
from functools import lru_cache
from typing import Any, TypeVar

from ...kernels.machine import CACHE_LINE

I1, I8, I32, I64 = ctypes.c_bool, ctypes.c_uint8, ctypes.c_int32, ctypes.c_int64
U32, U64, F64, PTR = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
NULL = None

S = TypeVar("S", bound=Structure)


@lru_cache
def to(target: Any) -> Any:
    """Return the type of pointers to a type."""
    return type(f"to_{target.__name__}", (PTR,), {"target": target})


def line(*fields: tuple[str, Any]) -> list[tuple[str, Any]]:
    """Pad fields to a whole cache line."""
    size = ctypes.sizeof(type("Fields", (Structure,), {"_fields_": list(fields)}))
    return [*fields, (f"_{fields[0][0]}_line", I8 * (CACHE_LINE - size))]


def aligned(kind: type[S]) -> tuple[S, Any]:
    """Make a zeroed record aligned to a cache line; return it and the object that owns its memory."""
    memory = ctypes.create_string_buffer(ctypes.sizeof(kind) + CACHE_LINE)
    start = ctypes.addressof(memory)
    return kind.from_address(start + -start % CACHE_LINE), memory


def slots(kind: type[Structure]) -> list[int]:
    """Map a record's fields to their offsets in 64-bit words."""
    return [getattr(kind, name).offset // 8 for name, *_ in kind._fields_]


class Problem(Structure):
    """The first index out of range in a call."""

    _fields_ = [("found", I64), ("site", I64), ("index", I64), ("bound", I64)]


class Context(Structure):
    """`ctx`, the one argument of native code; sizes, parameters and results of the graph follow it."""

    _fields_ = [
        ("parallel", PTR),  # function that runs a job
        ("pool", PTR),  # its threads
        ("arena", PTR),
        ("scratch", PTR),
        ("scratch_stride", I64),
        ("error", to(Problem)),
        ("products", PTR),  # tables of GEMM routines, one for each of PRODUCT_TYPES
        ("workers", I64),  # number of threads that have scratch memory
    ]


class Arguments(Structure):
    """Head of a kernel's arguments; sizes, buffers, then numbers and addresses of scratch follow it."""

    _fields_ = [("context", to(Context)), ("first_site", I64)]


PARALLEL, POOL, ARENA, SCRATCH, SCRATCH_STRIDE, ERROR, PRODUCTS, WORKERS = slots(Context)
FIRST_FREE = ctypes.sizeof(Context) // 8
ALIGN = CACHE_LINE  # bytes; alignment of the arena and of each thread's scratch
PRODUCT_TYPES = ("f32", "f64", "bf16")  # element types whose GEMM routines have a table at PRODUCTS
# Entries of such a table, null where a graph does not use them. Tiles are those of the remainder rows (M mod MR).
ROUTINES = ("gemm", "pack", "tile4", "tile2", "tile1", "dots")
