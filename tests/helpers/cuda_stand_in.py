"""A stand-in for cuda.core and the driver: a GPU whose memory is the host's, and whose kernels Numba's simulator runs.

What smelt calls of the library is here, with the same signatures (test_cuda_device.py compares them). Streams run at
once, but what is captured runs only when its graph is launched. Everything is noted in `Gpu.log`.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from smelt.backend.cuda.codegen.launch import Launch
from smelt.backend.cuda.toolchain.code import Compiled, Resources
from smelt.backend.store import cache
from smelt.ir.symbolic import evaluate, product
from smelt.ir.types import DType, bf16, bool_

GARBAGE = 0xA5
ENOUGH = 1 << 32
EDGE = 256  # bytes of each allocation on both sides that nobody may touch


class Gpu:
    """One for the whole test: all memory, all streams, and what happened."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.blocks: dict[int, tuple[np.ndarray, int]] = {}  # by address: the memory, and how many bytes are of use
        self.freed: dict[int, list[np.ndarray]] = {}  # by size
        self.streams: dict[int, Stream] = {}
        self.launches: dict[str, tuple[Any, Launch]] = {}  # by function
        self.current = 0
        self.everywhere = False  # whether all of the host's memory is the GPU's
        self.fails = ""  # the call of the driver's that is to fail

    def noted(self, kind: str) -> list[tuple[Any, ...]]:
        return [item for item in self.log if item[0] == kind]

    # Memory.

    def allocate(self, size: int) -> int:
        """Memory of so many bytes: what was freed last, as pools do it."""
        memory = self.freed[size].pop() if self.freed.get(size) else np.empty(size + 3 * EDGE, np.uint8)
        memory[:] = GARBAGE
        start = memory.ctypes.data + EDGE
        start += -start % EDGE
        self.blocks[start] = (memory, size)
        return start

    def free(self, address: int) -> None:
        memory, size = self.blocks.pop(address)
        first = address - memory.ctypes.data
        edges = np.concatenate([memory[:first], memory[first + size :]])
        assert (edges == GARBAGE).all(), "something was written beside an allocation"
        self.freed.setdefault(size, []).append(memory)

    def place(self, array: np.ndarray) -> int:
        """A copy of an array on the GPU: its address."""
        address = self.allocate(max(array.nbytes, 1))
        self.bytes(address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return address

    def bytes(self, address: int, size: int) -> np.ndarray:
        """Bytes that must be allocated."""
        extent = self.extent(address)
        assert size <= extent, f"{size} bytes at {address:#x}, where there are {extent}"
        if not size:
            return np.empty(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def extent(self, address: int) -> int:
        """Allocated bytes from an address on."""
        if self.everywhere:
            return ENOUGH
        known = [(start, size) for start, (_, size) in self.blocks.items()]
        return max((start + size - address for start, size in known if start <= address <= start + size), default=0)

    def read(self, address: int, kind: np.dtype, shape: Sequence[int]) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return self.bytes(address, size).copy().view(kind).reshape(shape)

    # What runs on streams.

    def enqueue(self, handle: int, work: Callable[[], None]) -> None:
        stream = self.streams[handle]
        if stream.building is None:
            work()
        else:
            stream.building.append(work)

    def driver(self, name: str, work: Callable[..., None]) -> Callable[..., tuple[Any]]:
        def call(*arguments: Any) -> tuple[Any]:
            from cuda.bindings.driver import CUresult

            if name == self.fails:
                return (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
            *given, handle = arguments
            self.log.append((name, *given))
            self.enqueue(handle, lambda: work(*given))
            return (CUresult.CUDA_SUCCESS,)

        return call

    def fill(self, width: int) -> Callable[[int, int, int], None]:
        def work(address: int, value: int, count: int) -> None:
            self.bytes(address, width * count).view(f"u{width}")[:] = value

        return work

    def to_host(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, self.bytes(source, size).ctypes.data, size)

    def to_device(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(self.bytes(target, size).ctypes.data, source, size)

    def on_device(self, target: int, source: int, size: int) -> None:
        self.bytes(target, size)[:] = self.bytes(source, size)

    # Kernels.

    def compile(self, source: str, launches: Sequence[Launch], architecture: str) -> list[Compiled]:
        """In place of NVIDIA's compilers: names of functions as machine code."""
        from smelt.backend.cuda.simulator.simulate import Simulated

        program: Any = SimpleNamespace(source=source.replace(", alignment=16", ""), launches=launches)
        kernels = Simulated(program).kernels
        made: list[Compiled] = []
        for launch in launches:
            entry = f"{launch.function}_{len(self.launches)}"
            self.launches[entry] = (kernels[launch.function], launch)
            made.append(Compiled(launch.function, entry, "", entry.encode(), Resources(1, 0, 0, 0)))
        self.log.append(("compile", architecture, [launch.function for launch in launches]))
        return made

    def run(self, name: str, grid: int, values: Sequence[int]) -> None:
        from smelt.backend.cuda.simulator.simulate import BLOCKS
        from smelt.backend.cuda.simulator.turn_taking import Memory, Notes, taking_turns

        kernel, launch = self.launches[name]
        count = len(launch.buffers)
        sizes = {symbol.name: value for symbol, value in zip(launch.sizes, values[count:])}
        arguments: list[Any] = []
        for buffer, address in zip(launch.buffers, values):
            assert address % 16 == 0, f"{buffer.name} is not aligned"
            kind = memory_type(buffer.dtype)
            try:
                size = evaluate(product(buffer.shape), sizes) * kind.itemsize
            except KeyError:  # a size that the kernel does not need
                size = self.extent(address) // kind.itemsize * kind.itemsize
            arguments.append(Memory(self.bytes(address, size).view(kind)))
        integer = np.int32 if launch.narrow else np.int64
        arguments += [integer(size) for size in sizes.values()]
        if launch.sites:
            arguments.append(Notes(self.bytes(values[-1], self.extent(values[-1]) // 8 * 8).view(np.int64)))
        with warnings.catch_warnings(), taking_turns() as choose:
            warnings.simplefilter("ignore", RuntimeWarning)
            choose(launch.kind)
            kernel[min(grid, BLOCKS), launch.threads](*arguments)


def memory_type(kind: DType) -> np.dtype:
    return np.dtype(np.uint8) if kind is bool_ else np.dtype(np.uint16) if kind is bf16 else kind.numpy


GPU = Gpu()


class Handle(int):
    """What int() makes a number of."""


class Stream:
    def __init__(self, handle: int):
        self.handle = Handle(handle)
        self.building: list[Callable[[], None]] | None = None
        GPU.streams[handle] = self

    def wait(self, event_or_stream: Any) -> None:
        GPU.log.append(("wait", int(self.handle), int(event_or_stream.handle)))

    def sync(self) -> None:
        GPU.log.append(("sync", int(self.handle)))

    @staticmethod
    def from_handle(handle: int) -> Stream:
        return GPU.streams.get(handle) or Stream(handle)


class Buffer:
    def __init__(self, size: int, stream: Any):
        self.handle = Handle(GPU.allocate(size))
        self.size = size
        self.stream = stream
        self.is_closed = False
        GPU.log.append(("allocate", size, int(stream.handle)))

    def close(self, stream: Any = None) -> None:
        if not self.is_closed and int(self.handle) in GPU.blocks:  # which are others in the next test
            GPU.free(int(self.handle))
        self.is_closed = True

    def __del__(self) -> None:
        self.close()


class Device:
    arch = "80"

    def __init__(self, device_id: Any = None):
        self.device_id = GPU.current if device_id is None else int(device_id)

    def set_current(self, ctx: Any = None) -> None:
        GPU.current = self.device_id

    def create_stream(self, obj: Any = None, options: Any = None) -> Stream:
        return Stream(1000 + len(GPU.streams))

    def allocate(self, size: int, *, stream: Any) -> Buffer:
        return Buffer(size, stream)

    def create_graph_builder(self) -> GraphBuilder:
        return GraphBuilder()


class Kernel:
    def __init__(self, name: str):
        self.name = name


class ObjectCode:
    def __init__(self, code: bytes):
        self.code = code

    @staticmethod
    def from_cubin(module: Any, *, name: str = "", symbol_mapping: Any = None) -> ObjectCode:
        return ObjectCode(module)

    def get_kernel(self, name: Any) -> Kernel:
        assert name.encode() == self.code
        return Kernel(name)


class GraphBuilder:
    def __init__(self) -> None:
        self.stream = Stream(2000 + len(GPU.streams))
        self.works: list[Callable[[], None]] = []

    def begin_building(self, mode: Any = "relaxed") -> GraphBuilder:
        self.stream.building = self.works
        return self

    def end_building(self) -> GraphBuilder:
        self.stream.building = None
        return self

    def complete(self, options: Any = None) -> Graph:
        assert self.stream.building is None
        GPU.log.append(("capture", len(self.works)))
        return Graph(self.works)

    def close(self) -> None:
        pass


class Graph:
    def __init__(self, works: list[Callable[[], None]]):
        self.works = works

    def launch(self, stream: Any) -> None:
        GPU.log.append(("graph", int(stream.handle)))
        for work in self.works:
            work()


def launch(stream: Any, config: Any, kernel: Any, *kernel_args: Any) -> None:
    """Arguments go through the library's own packing: what kernels get are those bytes."""
    from cuda.core._kernel_arg_handler import ParamHolder

    _, item = GPU.launches[kernel.name]
    count, integer = len(item.buffers), np.int32 if item.narrow else np.int64
    kinds = [int] * count + [integer] * len(item.sizes) + [int] * item.sites
    assert [type(value) for value in kernel_args] == kinds
    holder = ParamHolder(kernel_args)
    pointers = (ctypes.c_void_p * len(kernel_args)).from_address(holder.ptr)
    values: list[int] = []
    for pointer, kind in zip(pointers, kinds):
        wide = ctypes.c_int32 if kind is np.int32 else ctypes.c_int64
        values.append(wide.from_address(pointer).value)
    grid, threads = config.grid[0], config.block[0]
    assert config.grid[1:] == config.block[1:] == (1, 1) and threads == item.threads
    target = stream.stream if isinstance(stream, GraphBuilder) else stream
    GPU.log.append(("launch", item.function, grid, threads, tuple(values), int(target.handle)))
    GPU.enqueue(int(target.handle), lambda: GPU.run(kernel.name, grid, values))


class StridedMemoryView:
    """Of arrays that have the interface: as an array's library and the driver tell."""

    def __init__(self, obj: Any = None, stream_ptr: int | None = None):
        found = obj.__cuda_array_interface__
        self.ptr = found["data"][0]
        self.shape = found["shape"]
        self.dtype = np.dtype(found["typestr"])
        steps = found.get("strides")
        self.strides = None if steps is None else tuple(step // self.dtype.itemsize for step in steps)
        self.device_id = getattr(obj, "device_id", 0)
        self.exporting_obj = obj
        if stream_ptr != -1 and found.get("stream") is not None:
            GPU.log.append(("wait", stream_ptr, found["stream"]))

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        shape: Any,
        strides: Any = None,
        *,
        itemsize: Any = None,
        dtype: Any = None,
        is_readonly: bool = False,
    ) -> StridedMemoryView:
        steps = strides and tuple(step * dtype.itemsize for step in strides)
        data = {"data": (int(buffer.handle), False), "shape": shape, "strides": steps, "typestr": dtype.str}
        return cls(SimpleNamespace(__cuda_array_interface__=data))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device_id

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        GPU.log.append(("dlpack", stream))
        return self.ptr


@contextmanager
def gpu() -> Iterator[Gpu]:
    """cuda.core and the driver replaced."""
    from cuda import core
    from cuda.bindings import driver
    from cuda.core import utils
    from smelt.backend.cuda import compile
    from smelt.backend.cuda.codegen import library
    from smelt.backend.cuda.run import arrays
    from smelt.backend.cuda.toolchain import compiler

    GPU.__init__()  # type: ignore[misc]
    library.names()  # those of the simulator
    replaced = {
        "Device": Device,
        "Stream": Stream,
        "ObjectCode": ObjectCode,
        "launch": launch,
        "LEGACY_DEFAULT_STREAM": Stream(1),
    }
    calls = {
        "cuMemcpyHtoDAsync": GPU.to_device,
        "cuMemcpyDtoHAsync": GPU.to_host,
        "cuMemcpyDtoDAsync": GPU.on_device,
        "cuMemsetD8Async": GPU.fill(1),
        "cuMemsetD16Async": GPU.fill(2),
        "cuMemsetD32Async": GPU.fill(4),
    }
    with ExitStack() as stack:
        for name, item in replaced.items():
            stack.enter_context(patch.object(core, name, item))
        for name, work in calls.items():
            stack.enter_context(patch.object(driver, name, GPU.driver(name, work)))
        stack.enter_context(patch.object(utils, "StridedMemoryView", StridedMemoryView))
        for module in (library, compile):
            stack.enter_context(patch.object(module, "is_simulated", lambda: False))
        stack.enter_context(patch.object(compiler, "compile_launches", GPU.compile))
        stack.enter_context(patch.object(compiler, "check_architecture", lambda architecture: None))
        stack.enter_context(patch.object(cache._current, "cache", cache.Cache(None)))
        stack.enter_context(patch.object(arrays, "_own_streams", {}))
        yield GPU
