"""The driver of this target: a graph in, something that runs on a GPU, or in Numba's simulator, out."""

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
ARCHITECTURE = "sm_80"  # of the code that is shown where there is no GPU


def compile_for_cuda(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Any:
    """Compile for a GPU. Neither who asks for the stages needs one, nor who names an architecture, until a call."""
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
    """That of the options, or of the GPU at hand."""
    if options.architecture is not None:
        return options.architecture
    from .run.device import current_device

    return f"sm_{current_device().arch}"


def check_installed() -> None:
    # numba alone has an old numba.cuda, which needs a driver.
    if find_spec("numba_cuda") is None or find_spec("cuda") is None or find_spec("cuda.core") is None:
        raise CompileError(INSTALL)


def _show(graph: Graph, options: CompileOptions, stages: Stages, on_stage: StageHook) -> None:
    """All stages, for those who want to see them."""
    from ..stages import Text
    from .toolchain.cached import compiled_code
    from .toolchain.compiler import sass

    architecture = options.architecture or ARCHITECTURE
    code, _ = compiled_code(graph, options, architecture, stages, on_stage)
    on_stage("ptx", Text(lambda: "\n".join(item.ptx for item in code.compiled)))
    on_stage("sass", Text(lambda: "\n".join(sass(item.cubin) for item in code.compiled)))


def explain_for_cuda(graph: Graph, options: CompileOptions) -> Report:
    """What a graph takes of a GPU and how long it runs at least, without one."""
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
