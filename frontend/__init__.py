"""smelt: a small tensor compiler. Op calls in, one native function out."""

from __future__ import annotations

from typing import Any

from . import ops
from .backend.store import sources as _sources  # noqa: F401  (notes when smelt was loaded)
from .ir.errors import SmeltError, suggest
from .ir.types import (
    DType,
    bf16,
    bool_,
    c64,
    c128,
    dtype,
    f8_e4m3fn,
    f8_e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from .jit import CompileOptions, evaluate_op, evaluate_value, forget_programs, jit
from .ops.opdef import OpDef
from .random import manual_seed
from .tensor import set_evaluator
from .trace import ArraySpec, spec
from .transforms import grad, jvp, value_and_grad, vjp

OpDef.evaluate = staticmethod(evaluate_op)  # type: ignore[assignment]
OpDef.on_change = staticmethod(forget_programs)  # type: ignore[assignment]
set_evaluator(evaluate_value)

__all__ = [
    "ArraySpec",
    "CompileOptions",
    "DType",
    "SmeltError",
    "bf16",
    "bool_",
    "c64",
    "c128",
    "dtype",
    "empty_cache",
    "f16",
    "f32",
    "f64",
    "f8_e4m3fn",
    "f8_e5m2",
    "from_exported",
    "get_cache_dir",
    "get_num_threads",
    "grad",
    "i8",
    "i16",
    "i32",
    "i64",
    "jit",
    "jvp",
    "manual_seed",
    "ops",
    "set_cache_dir",
    "set_num_threads",
    "spec",
    "threads",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "vjp",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The run time needs LLVM, which is loaded on first use.
    if name in ("set_num_threads", "get_num_threads", "threads"):
        from .backend.cpu.runtime import threads as module

        return getattr(module, name)
    if name in ("set_cache_dir", "get_cache_dir"):
        from .backend.store import cache

        return getattr(cache, name)
    if name == "empty_cache":
        from .backend.cpu.runtime.allocator import empty_cache

        return empty_cache
    if name == "from_exported":
        from .torch import from_exported

        return from_exported
    hint = f"; did you mean smelt.ops.{name}?" if name in ops.define.REGISTRY else suggest(name, __all__)
    raise AttributeError(f"module 'smelt' has no attribute {name!r}{hint}")
