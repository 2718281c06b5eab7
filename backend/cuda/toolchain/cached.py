"""Get the machine code of a graph for one architecture from the disk cache, or compile and store it."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ....ir.graph import Graph
from ....ir.printer import Printer
from ...options import CompileOptions
from ...report.timings import Stages
from ...store.cache import Key, Lookup, current
from ...store.files import Lock
from ...store.sources import fingerprint
from .code import Code

if TYPE_CHECKING:
    from ...stages import StageHook

# The compilers' packages, by the names under which they are installed.
COMPILERS = ("numba-cuda", "numba", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink")


def compiled_code(
    graph: Graph,
    options: CompileOptions,
    architecture: str,
    stages: Stages,
    on_stage: StageHook | None = None,
    wide: bool = False,
) -> tuple[Code, Lookup]:
    """Return the code of a graph, and where it came from. wide: symbolic sizes need 64-bit indices.

    A stage hook and verification run the stages even on a cache hit; only NVIDIA's compilers are skipped then.
    """
    key: Key | None = None
    code: Code | None = None
    lock: Lock | None = None
    lookup = Lookup("off")
    if current().is_on:
        with stages.timed("key"):
            key, reason = cuda_key(graph, options, architecture, wide)
        lookup = Lookup("off", reason)
    if key is not None:
        with stages.timed("look up"):
            code, lookup, lock = current().find_or_lock(key, Code.from_entry)
    if code is not None and on_stage is None and not options.verify:
        return code, lookup
    try:
        from ..build import build
        from .compiler import check_architecture, compile_launches

        check_architecture(architecture)
        program = build(graph, options, stages, on_stage, False, small=not wide)
        if code is not None and code.program.source == program.source:
            return Code(program, code.compiled), lookup
        with stages.timed("PTX and machine code"):
            code = Code(program, compile_launches(program.source, program.launches, architecture))
        if key is not None:
            with stages.timed("store"):
                current().store(key, code.header(), code.content())
        return code, lookup
    finally:
        if lock is not None:
            lock.release()


def cuda_key(graph: Graph, options: CompileOptions, architecture: str, wide: bool = False) -> tuple[Key | None, str]:
    """Make the cache key of a graph's code for an architecture, or return why there is none."""
    printer = Printer(graph)
    text = printer.text(locations=False)
    if printer.unsaid:
        return None, printer.unsaid
    fields = key_fields(
        {"max_cost": options.max_cost, "rounding": options.rounding, "architecture": architecture, "wide": wide}
    )
    if fields is None:
        return None, "smelt's own files were changed since it was imported"
    params = ", ".join(f"{param.name}: {param.type}" for param in graph.params)
    program = hashlib.sha256(f"cuda\n{text}".encode()).hexdigest()
    return Key(f"{graph.name}({params}) for {architecture}", program, fields), ""


def key_fields(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the key's fields beside the program; None if smelt's files changed since they were imported."""
    smelt = fingerprint(current().directory)
    return None if smelt is None else {"options": options, "cuda": versions(), "smelt": smelt}


@lru_cache
def versions() -> dict[str, str]:
    """Return the compilers' versions. NVIDIA libraries not installed as packages are asked themselves."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in COMPILERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            from cuda.bindings import nvjitlink, nvvm

            asked = {"nvidia-nvvm": nvvm.version, "nvidia-nvjitlink": nvjitlink.version}
            found[name] = str(asked[name]()) if name in asked else "none"
    return found
