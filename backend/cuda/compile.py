"""The driver of this target: a graph in, something that runs on a GPU, or in Numba's simulator, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.errors import CompileError
from ...ir.graph import Graph
from ..options import CompileOptions
from ..stages import Stages

if TYPE_CHECKING:
    from ..plan import StageHook

INSTALL = 'target "cuda" needs the package numba-cuda: install smelt with the extra [cuda]'
NO_DEVICE = (
    "no NVIDIA GPU was found: {reason}. Without one, run the program in Numba's simulator (set NUMBA_ENABLE_CUDASIM=1 "
    "before Python starts; it is slow), or look at the code with smelt dump --target cuda --stage ptx"
)
ARCHITECTURE = "sm_80"  # of the code that is shown where there is no GPU


def compile_for_cuda(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Any:
    """Compile for a GPU. Who asks for the stages needs none: they see the code of options.architecture."""
    try:
        import numba.cuda
    except ImportError as error:
        raise CompileError(f"{INSTALL} ({error})") from None
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


def _show(graph: Graph, options: CompileOptions, stages: Stages, on_stage: StageHook) -> None:
    """All stages, for those who want to see them."""
    from .build import build

    program = build(graph, options, stages, on_stage, False)
    from .compiler import compile_launches, sass

    made = compile_launches(program.source, program.launches, options.architecture or ARCHITECTURE)
    on_stage("ptx", "\n".join(item.ptx for item in made))
    if options.want_asm:
        on_stage("sass", "\n".join(sass(item.cubin) for item in made))


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
