"""Run a program in Numba's simulator: the same source, with Python threads for CUDA's."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....ir.symbolic import evaluate, product
from ....ir.types import STORAGE, bf16, bool_
from ...interp.loops import garbage
from ..codegen.launch import Launch, blocks
from ..codegen.library import SIMULATED_SOURCE, names
from ..program import Program
from .turn_taking import Memory, Notes, taking_turns

BLOCKS = 2  # grid size; small, since blocks run one after the other, and so that grid-stride loops iterate


class Simulated:
    """The kernels of a program as functions for the simulator."""

    def __init__(self, program: Program):
        from numba import cuda

        self.program = program
        # Source for tracebacks, and for the simulator, which tells shared arrays apart by their lines.
        filename = f"<smelt cuda {id(program)}>"
        source = SIMULATED_SOURCE + program.source
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        space = dict(names())
        exec(compile(source, filename, "exec"), space)
        self.kernels = {item.function: cuda.jit(space[item.function]) for item in program.launches}

    def run(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Run all launches; return all buffers by name, and the noted errors."""
        memory = {name: _device(array) for name, array in arrays.items()}
        errors = Notes(np.zeros(3 * max(len(self.program.places), 1), np.int64))
        with warnings.catch_warnings(), taking_turns() as choose:
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow in NumPy scalars
            for launch in self.program.launches:
                choose(launch.kind)
                self._launch(launch, memory, sizes, errors)
        return {name: item.array for name, item in memory.items()}, errors.array

    def _launch(self, launch: Launch, memory: dict[str, Memory], sizes: Mapping[str, int], errors: Notes) -> None:
        count = evaluate(launch.count, sizes)
        if count <= 0:
            return
        for buffer in launch.buffers:
            if buffer.name not in memory:
                memory[buffer.name] = _device(garbage(evaluate(product(buffer.shape), sizes), buffer.dtype))
        integer = np.int32 if launch.narrow else np.int64
        arguments: list[Any] = [memory[buffer.name] for buffer in launch.buffers]
        arguments += [integer(sizes[symbol.name]) for symbol in launch.sizes]
        arguments += [errors] if launch.sites else []
        self.kernels[launch.function][min(blocks(launch, count), BLOCKS), launch.threads](*arguments)


def _device(array: np.ndarray) -> Memory:
    """Make a flat copy as kernels see it: bools as bytes, bf16 and float8 as their bits."""
    flat = np.array(array).reshape(-1)
    if flat.dtype in (bool_.numpy, *(item.numpy for item in STORAGE)):
        flat = flat.view(np.uint8)
    elif flat.dtype == bf16.numpy:
        flat = flat.view(np.uint16)
    return Memory(flat)


def shaped(array: np.ndarray, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    """Convert a kernel's buffer back to an array of its type and shape."""
    count = int(np.prod(shape, dtype=np.int64))
    return array[:count].view(dtype.numpy).reshape(shape)
