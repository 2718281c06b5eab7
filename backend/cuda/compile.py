"""NVIDIA GPUs as a target: machine code by way of numba.cuda, or kernels in Numba's simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...ir.errors import CompileError, suggest
from ..report.timings import Stages
from ..targets import Target
from .simulated import is_simulated
from .variant import SIMULATOR, Variant

if TYPE_CHECKING:
    import numpy as np

    from ...ir.graph import Graph
    from ..options import CompileOptions
    from ..stages import StageHook
    from ..store.cache import Lookup
    from .run.arrays import Argument, Constant
    from .toolchain.code import Code
    from .toolchain.explain import Report

INSTALL = 'target "cuda" needs the package numba-cuda: install smelt with the extra [cuda]'
# numba alone has an old numba.cuda, which needs a driver. find_spec raises where the parent package is missing, so a
# package comes before its subpackages.
PACKAGES = ("numba_cuda", "cuda", "cuda.core")
ARCHITECTURE = "sm_80"  # of shown code where there is no GPU


class CudaTarget(Target):
    """NVIDIA GPUs. Modules are imported inside the methods: a hit in the cache does not load Numba."""

    name = "cuda"
    takes_parts = True
    stages = ("graph", "decompose", "simplify", "fuse", "loops", "cuda", "ptx", "sass")
    has_architectures = True
    inlines = False
    keeps_watched = True

    def machine(self, options: CompileOptions, is_shown: bool) -> Variant:
        """Return the architecture of the options, else of the current GPU. Showing stages needs none."""
        check_installed()
        if not is_shown and is_simulated():
            return SIMULATOR
        if options.architecture is not None:
            return Variant(options.architecture)
        if is_shown:
            return Variant(ARCHITECTURE)
        from .run.device import current_device

        return Variant(f"sm_{current_device().arch}")

    def chosen(self, options: CompileOptions, machine: Variant) -> dict[str, Any]:
        return {
            "max_cost": options.max_cost,
            "rounding": options.rounding,
            "architecture": machine.architecture,
            "wide": machine.is_wide,
        }

    def environment(self) -> dict[str, Any]:
        check_installed()
        from .toolchain.versions import versions

        return {"cuda": versions()}

    def not_kept(self, machine: Variant) -> str:
        return "the simulator compiles nothing" if machine == SIMULATOR else ""

    def label(self, machine: Variant) -> str:
        return machine.architecture

    def build(
        self,
        graph: Graph,
        options: CompileOptions,
        machine: Variant,
        stages: Stages,
        hook: StageHook | None,
        found: Code | None,
    ) -> Callable[[Stages], Code]:
        """Build the source; `found` with the same source saves NVIDIA's compilers the work."""
        from .build import build
        from .toolchain.code import Code

        simulated = machine == SIMULATOR
        if not simulated:
            from .toolchain.compiler import check_architecture

            check_architecture(machine.architecture)
        program = build(graph, options, stages, hook, simulated, small=not simulated and not machine.is_wide)

        def complete(stages: Stages) -> Code:
            if simulated:
                return Code(program, ())
            if found is not None and found.program.source == program.source:
                code = Code(program, found.compiled)
            else:
                from .toolchain.compiler import compile_launches

                with stages.timed("PTX and machine code"):
                    code = Code(program, compile_launches(program.source, program.launches, machine.architecture))
            if hook is not None:
                show(code, hook)
            return code

        return complete

    def write(self, code: Code) -> tuple[dict[str, Any], bytes]:
        return code.header(), code.content()

    def read(self, header: dict[str, Any], content: bytes) -> Code:
        from .toolchain.code import Code

        return Code.from_entry(header, content)

    def load(
        self, graph: Graph, options: CompileOptions, machine: Variant, code: Code, cache: Lookup, stages: Stages
    ) -> Any:
        if machine == SIMULATOR:
            from .run.executable import Executable

            return Executable(graph, code.program, cache, stages)
        from ..compile import start_code
        from .run.device import DeviceExecutable

        def compile(variant: Variant) -> Code:
            return start_code(self, graph, options, variant, stages)()[0]

        return DeviceExecutable(graph, machine, code, compile, cache, stages)

    def explain(self, graph: Graph, options: CompileOptions) -> Report:
        """Return what a graph's kernels take of a multiprocessor, and lower bounds of their times. Needs no GPU."""
        from ..compile import start_code
        from .toolchain.explain import make_report
        from .toolchain.gpus import ARCHITECTURES

        machine = self.machine(options, True)
        if machine.architecture not in ARCHITECTURES:
            close = suggest(machine.architecture, ARCHITECTURES)
            known = ", ".join(ARCHITECTURES)
            raise CompileError(f"no limits of {machine.architecture!r} are known{close}; there are {known}")
        seen: dict[str, Any] = {}
        code, lookup = start_code(self, graph, options, machine, Stages(), seen.__setitem__)()
        return make_report(graph.name, machine.architecture, code, seen["loops"], lookup)

    def argument(self, leaf: Any, function: str) -> Argument | None:
        from .run.arrays import argument_of

        return argument_of(leaf, function)

    def check_arguments(self, arrays: Sequence[Any], function: str) -> None:
        from .run.arrays import check_places

        check_places(arrays, function)

    def constants(self, arrays: list[np.ndarray]) -> list[Constant]:
        from .run.arrays import Constant

        return list(map(Constant, arrays))

    @staticmethod
    def turned(array: Any, order: Sequence[int]) -> Any:
        from .run.arrays import turned

        return turned(array, order)


def check_installed() -> None:
    if not all(map(find_spec, PACKAGES)):
        raise CompileError(INSTALL)


def show(code: Code, hook: StageHook) -> None:
    """Show the stages after the source: PTX and SASS."""
    from ..stages import Text
    from .toolchain.compiler import sass

    hook("ptx", Text(lambda: "\n".join(item.ptx for item in code.compiled)))
    hook("sass", Text(lambda: "\n".join(sass(item.cubin) for item in code.compiled)))


TARGET = CudaTarget()
