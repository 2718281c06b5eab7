"""Compile source of CUDA kernels to PTX, by libNVVM, and to machine code, by nvJitLink, without driver or GPU."""

from __future__ import annotations

import linecache
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ....ir.errors import CompileError, suggest
from ....ir.types import DType
from ..codegen.launch import Launch
from ..codegen.library import NATIVE_SOURCE, names
from ..codegen.scalars import memory_name
from .code import Compiled, Resources


def capability(architecture: str) -> tuple[int, int]:
    """Return the compute capability of an architecture: (8, 0) of sm_80."""
    return divmod(int(re.sub(r"\D", "", architecture)), 10)


def functions(source: str, architecture: str) -> dict[str, Any]:
    """Execute generated source; return its Python functions, for Numba."""
    whole = NATIVE_SOURCE + source
    filename = f"<smelt cuda {abs(hash(whole)):x}>"
    linecache.cache[filename] = (len(whole), None, whole.splitlines(keepends=True), filename)
    space = dict(names(capability(architecture) >= (8, 0)))
    exec(compile(whole, filename, "exec"), space)
    return space


def signature(launch: Launch) -> Any:
    """Return the types of a launch's parameters: pointers, sizes, the array of errors."""
    from numba import types

    integer = types.int32 if launch.narrow else types.int64
    given: list[Any] = [types.CPointer(_element(buffer.dtype)) for buffer in launch.buffers]
    given += [integer] * len(launch.sizes)
    given += [types.CPointer(types.int64)] if launch.sites else []
    return types.void(*given)


def _element(dtype: DType) -> Any:
    from numba import types

    return getattr(types, memory_name(dtype))


def to_ptx(function: Any, launch: Launch, architecture: str) -> str:
    """Compile one launch's function to PTX, for an architecture such as sm_80."""
    from numba import cuda

    # Numba compiles a device function for the current GPU, whatever its caller's architecture is.
    device = SimpleNamespace(compute_capability=capability(architecture))
    with patch("numba.cuda.dispatcher.get_current_device", lambda: device):
        text, _ = cuda.compile(
            function,
            signature(launch),
            cc=capability(architecture),
            device=False,
            abi="numba",
            output="ptx",
            opt=True,
            launch_bounds=launch.threads,
        )
    return text


def to_cubin(ptx: str, architecture: str) -> tuple[bytes, Resources]:
    """Assemble PTX to machine code; return it with its resources."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=LinkerOptions(arch=architecture, verbose=True))
    code = linker.link("cubin")
    log = linker.get_info_log()
    return bytes(code.code), _resources(log if isinstance(log, str) else log.decode())


def _resources(log: str) -> Resources:
    """Parse the resources from the output of ptxas -v."""

    def number(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, log)))

    return Resources(
        registers=number(r"Used (\d+) registers"),
        shared=number(r"(\d+) bytes smem"),
        stack=number(r"(\d+) bytes stack frame"),
        spills=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
    )


def compile_launches(source: str, launches: Sequence[Launch], architecture: str) -> list[Compiled]:
    """Compile all kernels of a program for one architecture. Those that differ in names alone are compiled once."""
    space = functions(source, architecture)
    known: dict[Any, Compiled] = {}
    made: list[Compiled] = []
    for launch in launches:
        key = meaning(space[launch.function], launch)
        if key not in known:
            ptx = to_ptx(space[launch.function], launch, architecture)
            cubin, resources = to_cubin(ptx, architecture)
            entry = re.search(r"\.entry\s+(\w+)", ptx)
            assert entry is not None
            known[key] = Compiled(launch.function, entry[1], ptx, cubin, resources)
        made.append(replace(known[key], name=launch.function))
    return made


def meaning(function: Any, launch: Launch) -> tuple[Any, ...]:
    """Make a key of a kernel's code, without its local names: bytecode has numbers for them. Constants are compared by
    their text."""
    code = function.__code__
    return (code.co_code, repr(code.co_consts), code.co_names, str(signature(launch)), launch.threads)


def sass(cubin: bytes) -> str:
    """Disassemble machine code, by nvdisasm."""
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        raise CompileError("nvdisasm is not installed: it comes with the package nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        shown = subprocess.run([tool, "--print-code", file.name], capture_output=True, text=True)
    if shown.returncode:
        raise CompileError(f"nvdisasm failed: {shown.stderr.strip()}")
    return shown.stdout


SHOWN = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")  # one of each generation


@lru_cache(maxsize=1)
def supported() -> tuple[str, ...]:
    """Return all architectures that the installed libNVVM supports."""
    from numba.cuda.cudadrv import nvrtc

    if not hasattr(nvrtc, "get_supported_ccs"):
        raise CompileError("numba.cuda is not numba-cuda of a version that smelt knows: pip install 'smelt[cuda]'")
    return tuple(f"sm_{major}{minor}" for major, minor in nvrtc.get_supported_ccs())


def architectures() -> tuple[str, ...]:
    """Return the supported architectures that tests compile for."""
    return tuple(name for name in SHOWN if name in supported())


def check_architecture(architecture: str) -> None:
    known = supported()
    if architecture not in known:
        close = suggest(architecture, known)
        raise CompileError(f"unknown architecture {architecture!r}{close}; there are {', '.join(known)}")
