"""Run a program on a GPU through cuda.core: a sequence of launches on one stream, or a CUDA graph of them.

Written by the library's documentation, and tested with stand-ins for it. It has not been run on hardware yet:
docs/cuda.md has the tests that were done, and those of `make gpu-check` on a machine with a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.errors import CompileError
from ....ir.graph import Graph
from ....ir.record import Record
from ....ir.symbolic import evaluate
from ...arrays import as_plain
from ...call_plan import SizedPlan, Sizes
from ...report.timings import Stages
from ...store.cache import Lookup
from ..codegen.launch import Launch, blocks, fits
from ..toolchain.code import Code
from ..variant import Variant
from .arrays import OTHER, Argument, Constant, allocate, first_argument, own_stream, stream_of
from .driver import clear, copy, read, write, write_number
from .executable import raise_errors, report_of

if TYPE_CHECKING:
    from cuda.core import Device, Kernel, LaunchConfig, Stream
    from cuda.core.graph import Graph as CapturedGraph
    from cuda.core.graph import GraphBuilder

    from ...report.report import Report

NO_DEVICE = (
    "no NVIDIA GPU was found: {reason}. Without one, run the program in Numba's simulator (set NUMBA_ENABLE_CUDASIM=1 "
    "before Python starts; it is slow), or look at the code with smelt dump --target cuda --stage ptx"
)


class DeviceLimits(Record):
    """Limits of calls on a GPU; chosen, no measurement is recorded."""

    arena: int = 256  # bytes; alignment of parts of the arena
    graphs: int = 8  # CUDA graphs kept per set of sizes, each for other addresses
    launches: int = 2  # least launches of a CUDA graph: a single launch costs as much as a graph


LIMITS = DeviceLimits()


def current_device() -> Device:
    """Return the current GPU of this thread."""
    from cuda.core import Device

    try:
        device = Device()
        device.set_current()
    except Exception as error:  # any failure of the driver is the reason
        raise CompileError(NO_DEVICE.format(reason=" ".join(str(error).split()).rstrip("."))) from None
    return device


@contextmanager
def current(device: int) -> Iterator[None]:
    """Make a GPU the current one of this thread, within the block."""
    from cuda.core import Device

    before = current_device()
    if before.device_id == device:
        yield
        return
    Device(device).set_current()
    try:
        yield
    finally:
        before.set_current()


class DeviceExecutable:
    """A compiled graph. Takes arrays all in the host's memory or all in one GPU's; results are of the same kind."""

    target = "cuda"

    def __init__(
        self,
        graph: Graph,
        variant: Variant,
        code: Code,
        compile: Callable[[Variant], Code],
        cache: Lookup,
        stages: Stages,
    ):
        self.graph = graph
        self.compile = compile
        self.cache = cache
        self.stages = stages
        self.artifact = code.program
        self.plan = self.artifact.plan(graph)
        self.codes = {variant: code}
        self.loaded: dict[tuple[int, bool], Loaded] = {}
        self.lock = threading.Lock()

    @property
    def report(self) -> Report:
        return report_of(self.artifact, self.cache, self.stages)

    def launcher(self, plan: SizedPlan) -> DeviceLauncher:
        """Make the launcher for a plan."""
        return DeviceLauncher(self, plan)

    def load(self, device: Device, wide: bool) -> Loaded:
        """Load the code on a GPU, compiled for its architecture."""
        with self.lock:
            found = self.loaded.get((device.device_id, wide))
            if found is None:
                variant = Variant(f"sm_{device.arch}", wide)
                if variant not in self.codes:
                    self.codes[variant] = self.compile(variant)
                with self.stages.timed("load"):
                    found = self.loaded[device.device_id, wide] = Loaded(self.codes[variant])
            return found

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return DeviceLauncher(self, self.plan.for_arrays(arrays))(arrays)


class Loaded:
    """A program's functions, loaded on one GPU."""

    def __init__(self, code: Code):
        from cuda.core import ObjectCode

        self.program = code.program
        self.kernels: list[Kernel] = [
            ObjectCode.from_cubin(item.cubin).get_kernel(item.entry) for item in code.compiled
        ]


class DeviceLauncher:
    """Calls compiled code for one set of sizes."""

    def __init__(self, executable: DeviceExecutable, plan: SizedPlan):
        self.executable = executable
        self.plan = plan
        self.wide = not fits(executable.artifact.reaches, plan.sizes)
        self.ready: dict[int, Ready] = {}  # by device
        self.results = [(item.dtype, shape) for item, shape in zip(plan.plan.results, plan.shapes, strict=True)]

    def on(self, device: int) -> Ready:
        """Return the prepared launches for one GPU."""
        found = self.ready.get(device)
        if found is None:
            from cuda.core import Device

            found = self.ready[device] = Ready(self.plan, self.executable.load(Device(device), self.wide))
        return found

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        first = first_argument(arrays)
        if first is None:
            return self._on_host(arrays, current_device().device_id)
        with current(first.device):
            return self._on_device(arrays, first)

    def _on_host(self, arrays: Sequence[Any], device: int) -> list[np.ndarray]:
        """Run on NumPy arrays, copied to the GPU and back."""
        ready = self.on(device)
        stream = own_stream(device)
        parts = Parts(ready.size)
        params = [None if isinstance(item, Constant) else parts.add(item.nbytes) for item in arrays]
        places = [parts.add(size) for size in self.plan.result_bytes()]
        memory, base = allocate(device, parts.size, stream)
        addresses = [
            item.address(device) if place is None else base + place for item, place in zip(arrays, params, strict=True)
        ]
        plain = [(as_plain(item), base + place) for item, place in zip(arrays, params) if place is not None]
        for item, address in plain:
            write(address, item, stream)
        ready.run(stream, addresses, [base + place for place in places], base)
        found = [np.empty(shape, kind.numpy) for kind, shape in self.results]
        for array, place in zip(found, places, strict=True):
            read(base + place, array, stream)
        ready.raise_errors(stream, base)
        stream.sync()
        memory.close(stream)
        return found

    def _on_device(self, arrays: Sequence[Any], first: Argument) -> list[Any]:
        """Run on arrays on the GPU; only numbers are copied there. No synchronization with the host, as a rule."""
        ready = self.on(first.device)
        stream = stream_of(first.stream)
        others = self._join(arrays, stream)
        parts = Parts(ready.size)
        small = {at: parts.add(item.nbytes) for at, item in enumerate(arrays) if isinstance(item, np.ndarray)}
        memory, base = first.library.memory(first, parts.size, stream) if parts.size else (None, 0)
        for at, place in small.items():
            write_number(base + place, arrays[at], stream)
        addresses = [
            base + small[at]
            if at in small
            else item.address
            if isinstance(item, Argument)
            else item.address(first.device)
            for at, item in enumerate(arrays)
        ]
        made = [first.library.empty(first, kind, shape, stream) for kind, shape in self.results]
        ready.run(stream, addresses, [address for _, address in made], base)
        for other in others:
            other.wait(stream)  # before the owner reuses the memory
        ready.raise_errors(stream, base)
        if any(isinstance(item, Argument) and item.library is OTHER for item in arrays):
            stream.sync()  # an unknown library cannot tell when the memory is free
        del memory  # not before all uses are enqueued
        return [result for result, _ in made]

    def _join(self, arrays: Sequence[Any], stream: Stream) -> list[Stream]:
        """Let a stream wait for the other streams of the arguments; return these."""
        own = int(stream.handle)
        handles = dict.fromkeys(item.stream for item in arrays if isinstance(item, Argument))
        found = [stream_of(handle) for handle in handles if handle != own]
        for other in found:
            stream.wait(other)
        return found


class Parts:
    """Bump allocation in one block of memory."""

    def __init__(self, size: int):
        self.size = size

    def add(self, size: int) -> int:
        """Add a part; return its offset."""
        place = self.size + -self.size % LIMITS.arena
        self.size = place + size
        return place


class Ready:
    """A program's launches for one set of sizes on one GPU: calls differ only in addresses."""

    def __init__(self, plan: SizedPlan, loaded: Loaded):
        program, sizes = loaded.program, plan.sizes
        self.plan = plan.plan
        arena = Parts(evaluate(program.arena, sizes))  # not the plan's: this code may have 64-bit indices
        self.offsets = {name: evaluate(offset, sizes) for name, offset in program.offsets.items()}
        self.sites = len(program.places) if any(item.sites for item in program.launches) else 0
        self.errors = arena.add(24 * self.sites) if self.sites else 0
        self.size = arena.size  # bytes of a call's temporaries and errors
        self.bytes = plan.result_bytes()
        names = [*program.params, *(name for name, _, _ in program.stored)]
        self.launches = [
            self._prepare(item, kernel, {name: at for at, name in enumerate(names)}, sizes)
            for item, kernel in zip(program.launches, loaded.kernels, strict=True)
            if evaluate(item.count, sizes) > 0
        ]
        self.captured: dict[tuple[int, ...], CapturedGraph | None] = {}  # by addresses; None: seen once
        self.lock = threading.Lock()

    def _prepare(
        self, item: Launch, kernel: Kernel, numbers: dict[str, int], sizes: Sizes
    ) -> tuple[LaunchConfig, Kernel, list[int | None], list[int], list[Any], bool]:
        """Prepare a launch: each buffer is the index of an argument's address, or an offset in the arena."""
        from cuda.core import LaunchConfig

        config = LaunchConfig(grid=blocks(item, evaluate(item.count, sizes)), block=item.threads)
        places = [numbers.get(buffer.name) for buffer in item.buffers]
        offsets = [self.offsets.get(buffer.name, 0) for buffer in item.buffers]
        integer = np.int32 if item.narrow else np.int64
        return config, kernel, places, offsets, [integer(sizes[symbol.name]) for symbol in item.sizes], item.sites

    def run(self, stream: Stream, params: Sequence[int], results: Sequence[int], base: int) -> None:
        """Enqueue all launches on a stream, and the copies of results. base: address of the arena."""
        addresses = (*params, *(results[owner] for owner in self.plan.owners))
        self.launch(stream, addresses, base)
        for at, how, source in self.plan.copies:
            origin = params[source] if how == "parameter" else addresses[len(params) + source]
            copy(results[at], origin, self.bytes[at], stream)

    def launch(self, stream: Stream, addresses: tuple[int, ...], base: int) -> None:
        """Enqueue all launches, for the addresses of parameters and then of stored arrays.

        Addresses seen before are launched as a CUDA graph: allocators return the same ones for similar calls.
        """
        if len(self.launches) < LIMITS.launches:
            self._enqueue(stream, stream, addresses, base)
            return
        key = (base, *addresses)
        with self.lock:
            if key not in self.captured:
                if len(self.captured) >= LIMITS.graphs:
                    del self.captured[next(iter(self.captured))]
                self.captured[key] = None
                graph = None
            else:
                graph = self.captured.pop(key) or self._capture(addresses, base)
                self.captured[key] = graph  # LRU order
            if graph is not None:
                graph.launch(stream)
        if graph is None:
            self._enqueue(stream, stream, addresses, base)

    def _capture(self, addresses: tuple[int, ...], base: int) -> CapturedGraph:
        from cuda.core import Device

        builder = Device().create_graph_builder()
        builder.begin_building()
        self._enqueue(builder, builder.stream, addresses, base)
        graph = builder.end_building().complete()
        builder.close()
        return graph

    def _enqueue(self, target: Stream | GraphBuilder, stream: Stream, addresses: tuple[int, ...], base: int) -> None:
        from cuda.core import launch

        if self.sites:
            clear(base + self.errors, 24 * self.sites, stream)
        for config, kernel, places, offsets, integers, sites in self.launches:
            # cuda.core passes Python integers as addresses, NumPy's with their own type.
            pointers = [
                base + offset if place is None else addresses[place]
                for place, offset in zip(places, offsets, strict=True)
            ]
            noted = [base + self.errors] if sites else []
            launch(target, config, kernel, *pointers, *integers, *noted)

    def raise_errors(self, stream: Stream, base: int) -> None:
        """Wait for the noted errors and raise them, if the program can have any."""
        if self.sites:
            errors = np.empty(3 * self.sites, np.int64)
            read(base + self.errors, errors, stream)
            stream.sync()
            raise_errors(self.plan, errors)
