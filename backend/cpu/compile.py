"""The CPU as a target: machine code by way of LLVM, calls through native entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..process.forks import no_forks
from ..targets import Target

if TYPE_CHECKING:
    import numpy as np

    from ...ir.graph import Graph
    from ...kernels.machine import Machine
    from ..artifact import Artifact
    from ..options import CompileOptions
    from ..report.timings import Stages
    from ..stages import StageHook
    from ..store.cache import Lookup
    from .call.entry import Entry
    from .call.executable import Executable, Launcher


class CpuTarget(Target):
    """This machine. Modules are imported inside the methods: a hit in the cache loads neither passes nor LLVM."""

    name = "cpu"
    takes_parts = True
    stages = ("graph", "decompose", "simplify", "fuse", "loops", "llvm", "asm")

    def machine(self, options: CompileOptions, is_shown: bool) -> Machine:
        from .host import host

        return host().machine.with_vector_bits(options.vector_bits)

    def chosen(self, options: CompileOptions, machine: Machine) -> dict[str, Any]:
        from .runtime.records import DATA_OFFSET

        return {
            "vector_bits": machine.vector_bits,
            "max_cost": options.max_cost,
            "rounding": options.rounding,
            "check_bounds": options.check_bounds,
            "replaced": list(options.replaced),
            "shared": list(options.shared),
            "data_offset": None if options.addresses else DATA_OFFSET,
        }

    def environment(self) -> dict[str, Any]:
        from .image.cached import environment

        return environment()

    def build(
        self,
        graph: Graph,
        options: CompileOptions,
        machine: Machine,
        stages: Stages,
        hook: StageHook | None,
        found: Any,
    ) -> Callable[[Stages], Artifact]:
        from .build import build

        artifact, code = build(graph, options, machine, stages, hook)

        def complete(stages: Stages) -> Artifact:
            with stages.timed("llvm"):
                artifact.code = code.image()
            return artifact

        return complete

    def write(self, code: Artifact) -> tuple[dict[str, Any], bytes]:
        return code.header(), code.code

    def read(self, header: dict[str, Any], content: bytes) -> Artifact:
        from ..artifact import Artifact

        return Artifact.from_header(header, content)

    def load(
        self, graph: Graph, options: CompileOptions, machine: Machine, code: Artifact, cache: Lookup, stages: Stages
    ) -> Executable:
        from .call.executable import Executable

        return Executable(graph, code, cache, stages)

    def prepare(self) -> None:
        from .runtime.threads import pool

        pool()

    def make_entry(
        self,
        launcher: Launcher,
        call: Mapping[str, Any],
        draw_seed: Callable[[], np.ndarray] | None,
        structure: Any,
        fixed: dict[int, Any],
    ) -> Entry | None:
        with no_forks():
            from .call.entry import Call, make_entry

        return make_entry(launcher, Call(**call), draw_seed, structure, fixed)


TARGET = CpuTarget()
