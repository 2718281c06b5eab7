"""Drive this target: compile a graph to an executable for a GPU, or for Numba's simulator."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...ir.errors import CompileError, suggest
from ...ir.graph import Graph
from ..options import CompileOptions
from ..report.timings import Stages
from .simulated import is_simulated

if TYPE_CHECKING:
    from ..stages import StageHook
    from .toolchain.explain import Report

INSTALL = 'target "cuda" needs the package numba-cuda: install smelt with the extra [cuda]'
ARCHITECTURE = "sm_80"  # of shown code where there is no GPU


def compile_for_cuda(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Any:
    """Compile for a GPU. Showing stages needs none; with a named architecture, none is needed before the first call."""
    check_installed()
    stages = Stages()
    if on_stage is not None:
        return _show(graph, options, stages, on_stage)
    if is_simulated():
        from .build import build
        from .run.executable import Executable

        return Executable(graph, build(graph, options, stages, None, True), stages)
    from .run.device import DeviceExecutable

    return DeviceExecutable(graph, options, wanted_architecture(options), stages)


def wanted_architecture(options: CompileOptions) -> str:
    """Return the architecture of the options, else of the current GPU."""
    if options.architecture is not None:
        return options.architecture
    from .run.device import current_device

    return f"sm_{current_device().arch}"


def check_installed() -> None:
    # The numba.cuda bundled with numba is old, and needs a driver.
    if find_spec("numba_cuda") is None or find_spec("cuda") is None or find_spec("cuda.core") is None:
        raise CompileError(INSTALL)


def _show(graph: Graph, options: CompileOptions, stages: Stages, on_stage: StageHook) -> None:
    """Show all stages to the hook."""
    from ..stages import Text
    from .toolchain.cached import compiled_code
    from .toolchain.compiler import sass

    architecture = options.architecture or ARCHITECTURE
    code, _ = compiled_code(graph, options, architecture, stages, on_stage)
    on_stage("ptx", Text(lambda: "\n".join(item.ptx for item in code.compiled)))
    on_stage("sass", Text(lambda: "\n".join(sass(item.cubin) for item in code.compiled)))


def explain_for_cuda(graph: Graph, options: CompileOptions) -> Report:
    """Report a graph's resources on a GPU and a lower bound of its time; needs no GPU."""
    check_installed()
    from .toolchain.cached import compiled_code
    from .toolchain.explain import make_report
    from .toolchain.gpus import ARCHITECTURES

    architecture = options.architecture or ARCHITECTURE
    if architecture not in ARCHITECTURES:
        close = suggest(architecture, ARCHITECTURES)
        raise CompileError(f"no limits of {architecture!r} are known{close}; there are {', '.join(ARCHITECTURES)}")
    seen: dict[str, Any] = {}
    code, lookup = compiled_code(graph, options, architecture, Stages(), seen.__setitem__)
    return make_report(graph.name, architecture, code, seen["loops"], lookup)
