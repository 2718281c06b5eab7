"""Compile given kernels, without a graph, to one callable: their text is the program."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.loop.ir import Kernel, Store, walk
from ...kernels.loop.verify import verify_kernel, verify_kernels
from ...passes.fusion.names import Interface
from ...passes.lower.libraries import kernel_libraries
from ...passes.manager import PASSES
from ...passes.memory.scratch import plan_kernel
from ...passes.stages import Finished, find_in_place, gather_kernels, plan_cpu_memory, signature
from ..artifact import Artifact, Overwrites, find_places
from ..options import CompileOptions
from ..report.timings import Stages
from ..store.cache import Lookup
from .build import begin, emit, finish, hand_over
from .call.executable import Executable
from .host import host


def compile_kernels(kernels: Sequence[Kernel], options: CompileOptions) -> Executable:
    """Compile kernels for this machine without running any pass. Buffers read before any kernel stores them are the
    parameters, all stored buffers the results. Always verified first, as a text may hold anything."""
    graph = signature(kernels)
    given, stored = ([f"%{value.name}" for value in values] for values in (graph.params, graph.results))
    for kernel in kernels:
        verify_kernel(kernel, memory=False)
    verify_kernels(kernels, given, stored)
    if options.check_bounds:
        kernels = [PASSES["check_bounds"](kernel) for kernel in kernels]
    machine = host().machine.with_vector_bits(options.vector_bits)
    sources = [("own", number) for number in range(len(stored))]
    sizes = [symbol.name for symbol in graph.sizes]
    interface = Interface(sizes, given, list(graph.results), stored, sources, [], {})
    finished = [Finished(item, None, kernel_libraries(item, machine), plan_kernel(item, machine)) for item in kernels]
    unit = begin(options, machine)
    emit(unit, finished)
    memory = plan_cpu_memory(finished, interface)
    hand_over(unit, finish(unit, interface, memory))
    times = find_in_place(gather_kernels(finished), interface)
    stores = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Store)]
    streamed = {item.buffer.name for item in stores if item.stream}
    artifact = Artifact(
        stored=[(value.dtype, value.shape) for value in graph.results],
        sources=sources,
        scratch=memory.shared,
        alone=memory.lone,
        arena=memory.arena.size,
        products=sorted({name for item in finished for name in item.libraries}),
        is_long=unit.emitter.is_long,
        vector_bits=machine.vector_bits,
        overwrites=Overwrites(times.reads, times.writes, times.same_place),
        streamed=[number for number, name in enumerate(stored) if name in streamed],
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report={},
        code=unit.code.image(),
    )
    return Executable(graph, artifact, Lookup("off", "kernels are not kept"), Stages())
