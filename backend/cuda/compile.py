"""The driver of this target: a graph in, something that runs on a GPU, or in Numba's simulator, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.errors import CompileError, suggest
from ...ir.graph import Graph
from ..options import CompileOptions
from ..stages import Stages

if TYPE_CHECKING:
    from ..plan import StageHook
    from .explain import Report

INSTALL = 'target "cuda" needs the package numba-cuda: install smelt with the extra [cuda]'
NO_DEVICE = (
    "no NVIDIA GPU was found: {reason}. Without one, run the program in Numba's simulator (set NUMBA_ENABLE_CUDASIM=1 "
    "before Python starts; it is slow), or look at the code with smelt dump --target cuda --stage ptx"
)
ARCHITECTURE = "sm_80"  # of the code that is shown where there is no GPU


def compile_for_cuda(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Any:
    """Compile for a GPU. Who asks for the stages needs none: they see the code of options.architecture."""
    check_installed()
    import numba.cuda

    from .build import build
    from .library import is_simulated

    stages = Stages()
    if on_stage is not None:
        return _show(graph, options, stages, on_stage)
    if is_simulated():
        from .executable import Executable

        return Executable(graph, build(graph, options, stages, _ignore, True), stages)
    if not numba.cuda.is_available():
        raise CompileError(NO_DEVICE.format(reason=_reason()))
    from .device import DeviceExecutable

    return DeviceExecutable(graph, build(graph, options, stages, _ignore, False), options, stages)


def check_installed() -> None:
    try:
        import cuda.core  # noqa: F401
        import numba_cuda  # noqa: F401 (numba alone has an old numba.cuda, which needs a driver)
    except ImportError as error:
        raise CompileError(f"{INSTALL} ({error})") from None


def _show(graph: Graph, options: CompileOptions, stages: Stages, on_stage: StageHook) -> None:
    """All stages, for those who want to see them."""
    from .build import build

    program = build(graph, options, stages, on_stage, False)
    from .compiler import compile_launches, sass

    architecture = options.architecture or ARCHITECTURE
    check_architecture(architecture)
    made = compile_launches(program.source, program.launches, architecture)
    on_stage("ptx", "\n".join(item.ptx for item in made))
    if options.want_asm:
        on_stage("sass", "\n".join(sass(item.cubin) for item in made))


def explain_for_cuda(graph: Graph, options: CompileOptions) -> Report:
    """What a graph takes of a GPU and how long it runs at least, without one."""
    check_installed()
    from .build import build
    from .compiler import compile_launches
    from .explain import make_report

    architecture = options.architecture or ARCHITECTURE
    check_architecture(architecture)
    seen: dict[str, Any] = {}
    program = build(graph, options, Stages(), seen.__setitem__, False)
    compiled = compile_launches(program.source, program.launches, architecture)
    return make_report(graph.name, architecture, program, seen["loops"], compiled)


def check_architecture(architecture: str) -> None:
    from .compiler import architectures

    if architecture not in architectures():
        known = architectures()
        close = suggest(architecture, known)
        raise CompileError(f"unknown architecture {architecture!r}{close}; there are {', '.join(known)}")


def _reason() -> str:
    from numba.cuda.cudadrv.driver import driver
    from numba.cuda.cudadrv.error import CudaSupportError

    try:
        driver.ensure_initialized()
    except CudaSupportError as error:
        return " ".join(str(error).split()).rstrip(".")
    return "the driver lists none"


def _ignore(stage: str, thing: Any) -> None:
    return None
