"""The records that native code and Python share. One declaration, by ctypes, is the layout for both: compiled code
finds the slots of `ctx`, the run time's own code and Python find fields."""

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
    """The type of pointers to another type."""
    return type(f"to_{target.__name__}", (PTR,), {"target": target})


def line(*fields: tuple[str, Any]) -> list[tuple[str, Any]]:
    """Fields that fill a cache line."""
    size = ctypes.sizeof(type("Fields", (Structure,), {"_fields_": list(fields)}))
    return [*fields, (f"_{fields[0][0]}_line", I8 * (CACHE_LINE - size))]


def aligned(kind: type[S]) -> tuple[S, Any]:
    """A record of zeros that starts at a cache line, and the object that keeps its memory."""
    memory = ctypes.create_string_buffer(ctypes.sizeof(kind) + CACHE_LINE)
    start = ctypes.addressof(memory)
    return kind.from_address(start + -start % CACHE_LINE), memory


def slots(kind: type[Structure]) -> list[int]:
    """The places of a record's fields, in 64-bit words."""
    return [getattr(kind, name).offset // 8 for name, *_ in kind._fields_]


class Problem(Structure):
    """The first index out of range that a call meets."""

    _fields_ = [("found", I64), ("site", I64), ("index", I64), ("bound", I64)]


class Context(Structure):
    """`ctx`, the one argument of native code; behind it the sizes, the parameters and the results of a graph."""

    _fields_ = [
        ("parallel", PTR),  # the function that runs a job
        ("pool", PTR),  # its threads
        ("arena", PTR),
        ("scratch", PTR),
        ("scratch_stride", I64),
        ("error", to(Problem)),
        ("products", PTR),  # a table for each of PRODUCT_TYPES
        ("workers", I64),  # that have scratch memory
    ]


class Arguments(Structure):
    """The head of a kernel's arguments; behind it sizes, buffers, then numbers and addresses of scratch."""

    _fields_ = [("context", to(Context)), ("first_site", I64)]


PARALLEL, POOL, ARENA, SCRATCH, SCRATCH_STRIDE, ERROR, PRODUCTS, WORKERS = slots(Context)
FIRST_FREE = ctypes.sizeof(Context) // 8
ALIGN = CACHE_LINE  # of the arena and of each thread's scratch, in bytes
PRODUCT_TYPES = ("f32", "f64", "bf16")  # element types whose routines of matrix products are in the table at PRODUCTS
# What such a table has: null where a graph does not need it. The tiles are those for rows that are left over.
ROUTINES = ("gemm", "pack", "tile4", "tile2", "tile1", "dots")
