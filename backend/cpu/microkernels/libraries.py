"""Compile the libraries of GEMM routines that are not in the cache, in the background of the program's passes."""

from __future__ import annotations

from collections.abc import Iterable

from ....ir.process import process
from ....kernels.gemm import DotTile, RegisterTile
from ..host import host
from ..image.cached import Kept
from ..llvm.engine import Started, engine
from ..llvm.parts import Module
from ..runtime.threads import get_num_threads
from .dots import dots_library
from .gemm import Routines, gemm_library, rest_library
from .loaded import add, find, is_ready
from .pairs import Pairs

_started: dict[tuple[str, int], tuple[Kept, Started]] = process.keep("libraries that are being compiled", {})


def library(name: str, bits: int) -> Module:
    """Write a library by its name: "f32", GEMM of any strides; "f32 rest", its remainder tiles; "f32 dots"."""
    dtype, _, kind = name.partition(" ")
    machine = host().machine.with_vector_bits(bits)
    if kind == "dots":
        return dots_library(DotTile(dtype, machine))
    shape = RegisterTile(dtype, machine)
    routines = Routines(shape) if shape.together == 1 else Pairs(shape)
    return {"": gemm_library, "rest": rest_library}[kind](routines)


def start(names: Iterable[str], bits: int) -> None:
    """Start to compile, in threads, the libraries that are neither loaded, cached nor started."""
    for key in ((name, bits) for name in names):
        kept = None if key in _started else find(*key)
        if kept is not None:
            threads = get_num_threads()
            _started[key] = kept, engine().start(library(*key).parts(threads), threads)


def finish(names: Iterable[str], bits: int) -> None:
    """Wait for libraries to be compiled; load and cache them."""
    start(names, bits)
    for name in names:
        while not is_ready(name, bits):
            start([name], bits)  # again, if the thread that was to load it failed
            found = _started.get((name, bits))
            if found is None:
                continue  # loaded by another thread
            kept, started = found
            try:
                code = started.image()
                add(name, bits, code)  # before it leaves `_started`: other threads find it in one of both
            finally:
                _started.pop((name, bits), None)
            kept.store(code)
