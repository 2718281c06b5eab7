"""Running a program on a GPU, through cuda.core: one sequence of launches on one stream.

Written as the library documents it. It has not been run on hardware yet: docs/cuda.md says what has been proved and
how, and what `make gpu-check` does on a machine with a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.errors import ArgumentError
from ...ir.graph import Graph
from ...ir.symbolic import evaluate
from ...ir.types import DType, dtype
from ..arrays import as_plain
from ..options import CompileOptions
from ..stages import Stages
from .build import Program
from .compiler import compile_launches
from .executable import raise_errors, report_of, sizes_of
from .launch import Launch, blocks

if TYPE_CHECKING:
    from cuda.core import Buffer, Kernel, Stream

    from ..report import Report

ALIGN = 256  # of the arena, and of every vector access


class DeviceExecutable:
    """A graph's kernels, loaded. Takes arrays in the host's memory or the device's; results are of the same kind."""

    target = "cuda"

    def __init__(self, graph: Graph, program: Program, options: CompileOptions, stages: Stages):
        from cuda.core import Device, ObjectCode

        self.graph = graph
        self.program = program
        self.stages = stages
        self.device = Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        architecture = options.architecture or f"sm_{self.device.arch}"
        with stages.timed("ptx and machine code"):
            compiled = compile_launches(program.source, program.launches, architecture)
        with stages.timed("load"):
            self.kernels: list[Kernel] = [ObjectCode.from_cubin(item.cubin).get_kernel(item.entry) for item in compiled]

    @property
    def report(self) -> Report:
        return report_of(self.program, self.stages)

    def launcher(self, shapes: Sequence[tuple[int, ...]]) -> DeviceLauncher:
        """How to call this code for parameters of these shapes."""
        return DeviceLauncher(self, sizes_of(self.graph, shapes))

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return self.launcher([tuple(array.shape) for array in arrays])(arrays)


class DeviceLauncher:
    """The call for one set of sizes: all that can be known beforehand is."""

    def __init__(self, executable: DeviceExecutable, sizes: dict[str, int]):
        program = executable.program
        self.executable = executable
        self.sizes = sizes
        self.arena = evaluate(program.arena, sizes) if program.arena != 0 else 0
        self.offsets = {name: evaluate(offset, sizes) for name, offset in program.offsets.items()}
        self.stored = [
            (name, kind, tuple(evaluate(size, sizes) for size in dims)) for name, kind, dims in program.stored
        ]
        self.shapes = [tuple(evaluate(size, sizes) for size in value.shape) for value in executable.graph.results]

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        from cuda.core import LaunchConfig, launch

        executable, program = self.executable, self.executable.program
        executable.device.set_current()
        stream = executable.stream
        memory = Memory(stream)
        addresses = {name: memory.take(array) for name, array in zip(program.params, arrays, strict=True)}
        results = [memory.empty(kind, shape, like=arrays[0] if arrays else None) for _, kind, shape in self.stored]
        addresses |= {name: address_of(item) for (name, _, _), item in zip(self.stored, results, strict=True)}
        base = memory.allocate(self.arena)
        addresses |= {name: base + offset for name, offset in self.offsets.items()}
        errors = np.zeros(3 * max(len(program.places), 1), np.int64)
        noted = memory.copy(errors)
        for item, kernel in zip(program.launches, executable.kernels, strict=True):
            count = evaluate(item.count, self.sizes)
            if count > 0:
                config = LaunchConfig(grid=blocks(item, count), block=item.threads)
                launch(stream, config, kernel, *self._arguments(item, addresses, noted))
        if any(item.sites for item in program.launches):
            memory.read(noted, errors)
        found = [memory.give(item) for item in results]
        stream.sync()
        raise_errors(executable.graph, program, errors)
        return self._collect(arrays, found)

    def _arguments(self, item: Launch, addresses: dict[str, int], errors: int) -> list[Any]:
        integer = np.int32 if item.narrow else np.int64
        given: list[Any] = [np.uint64(addresses[buffer.name]) for buffer in item.buffers]
        given += [integer(self.sizes[symbol.name]) for symbol in item.sizes]
        return [*given, np.uint64(errors)] if item.sites else given

    def _collect(self, arrays: Sequence[Any], stored: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        for shape, (how, number) in zip(self.shapes, self.executable.program.sources, strict=True):
            array = (arrays[number] if how == "parameter" else stored[number]).reshape(shape)
            results.append(array if how == "own" else _copy(array))
        return results


class DeviceArray:
    """A result where the caller's own arrays are of no library that is known: others read it by its interface."""

    def __init__(self, buffer: Buffer, kind: DType, shape: tuple[int, ...], stream: Stream):
        self.buffer = buffer
        self.dtype = kind.numpy
        self.shape = shape
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (int(self.buffer.handle), False),
            "strides": None,
            "stream": int(self.stream.handle),
            "version": 3,
        }

    def reshape(self, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.buffer, dtype(self.dtype), shape, self.stream)


class HostArray:
    """A result that goes to the host's memory at the end."""

    def __init__(self, buffer: Buffer, array: np.ndarray):
        self.buffer = buffer
        self.array = array


class Memory:
    """Memory of one call, from the device's pool; all of it in the order of one stream."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.kept: list[Any] = []  # until the stream has passed

    def allocate(self, size: int) -> int:
        if not size:
            return 0
        buffer = self.stream.device.allocate(size, stream=self.stream)
        self.kept.append(buffer)
        return int(buffer.handle)

    def copy(self, array: np.ndarray) -> int:
        """The address of a copy of an array of the host."""
        from cuda.bindings import driver

        address = self.allocate(max(array.nbytes, ALIGN))
        if array.nbytes:
            check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, int(self.stream.handle)))
        self.kept.append(array)
        return address

    def read(self, address: int, array: np.ndarray) -> None:
        from cuda.bindings import driver

        if array.nbytes:
            check(driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, int(self.stream.handle)))

    def take(self, array: Any) -> int:
        """The address of an argument, which is copied if it is the host's or not laid out as kernels need it."""
        if isinstance(array, np.ndarray):
            return self.copy(as_plain(array))
        from cuda.core.utils import StridedMemoryView

        view = StridedMemoryView(array, int(self.stream.handle))
        if not view.is_device_accessible:
            raise ArgumentError(f"expected an array in a GPU's memory, or NumPy's, got {type(array).__name__}")
        strides = view.strides
        dense = strides is None or tuple(strides) == dense_strides(view.shape)
        if not dense or view.ptr % 16:
            raise ArgumentError("an array on a GPU must be contiguous and aligned to 16 bytes: make a copy of it first")
        self.kept.append(view)
        return view.ptr

    def empty(self, kind: DType, shape: tuple[int, ...], like: Any) -> Any:
        """Memory for a result, of the kind of the caller's arrays."""
        library = type(like).__module__.partition(".")[0]
        if library == "torch":
            return like.new_empty(shape, dtype=getattr(sys.modules["torch"], TORCH[kind.name]))
        if library == "cupy":
            return like.__class__(shape, dtype=kind.numpy)
        size = max(int(np.prod(shape, dtype=np.int64)) * kind.bytes, ALIGN)
        buffer = self.stream.device.allocate(size, stream=self.stream)
        if like is None or library == "numpy":
            return HostArray(buffer, np.empty(shape, kind.numpy))
        return DeviceArray(buffer, kind, shape, self.stream)

    def give(self, result: Any) -> Any:
        """A result as the caller gets it, once the stream has passed."""
        if not isinstance(result, HostArray):
            return result
        self.read(int(result.buffer.handle), result.array)
        self.kept.append(result)
        return result.array


TORCH = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}


def address_of(result: Any) -> int:
    if isinstance(result, (HostArray, DeviceArray)):
        return int(result.buffer.handle)
    return result.data_ptr() if hasattr(result, "data_ptr") else result.data.ptr


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """In elements, of a row-major array."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def check(answer: tuple[Any, ...]) -> None:
    """An error of the driver's as an exception."""
    if int(answer[0]):
        raise RuntimeError(f"the CUDA driver says {answer[0]!r}")


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()
