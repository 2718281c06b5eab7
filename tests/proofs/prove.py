"""What the verifier proves of a graph's kernels, for both targets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from smelt.backend.cpu import build as cpu
from smelt.backend.cpu.host import host
from smelt.backend.cuda import build as cuda
from smelt.backend.cuda.codegen.module import emit_module
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages
from smelt.ir.errors import VerifyError
from smelt.ir.graph import Graph
from smelt.kernels.loop.bounds import Account, Bounds
from smelt.kernels.loop.ir import Kernel
from smelt.kernels.loop.memory import Proof, verify_program
from smelt.passes.fusion.names import interface

TARGETS = ("cpu", "cuda")
# What is wrong with memory, by what the messages say.
FAULTS = {"unwritten": ("not all",), "conflicts": (" by one iteration of ", "branch", "is loaded before", "its team")}


class Enough(Exception):
    """The kernels are there: the rest of the build is not needed."""


def kernels_of(graph: Graph, target: str) -> tuple[list[Kernel], Any]:
    """The kernels that a target runs, and the fused graph that they are of."""
    found: dict[str, Any] = {}

    def hook(stage: str, thing: Any) -> None:
        found[stage] = thing
        if stage == "loops":
            raise Enough

    options = CompileOptions(target=target)
    try:
        if target == "cpu":
            cpu.build(graph, options, host().machine, Stages(), hook)
        else:
            cuda.build(graph, options, Stages(), hook, False)
    except Enough:
        pass
    return list(found["loops"]), found["fuse"]


def prove(graph: Graph, target: str) -> tuple[dict[str, int], list[str]]:
    """How many facts are proved, by what; and what is not."""
    kernels, fused = kernels_of(graph, target)
    proof, account, errors = Proof(), Account(), list[str]()

    def note(kernel: Kernel, number: int | None, message: str) -> None:
        errors.append(f"{target} @{kernel.name}: {message}")

    for kernel in kernels:
        bounds = Bounds(kernel, lambda number, message, kernel=kernel: note(kernel, number, message))
        bounds.run()
        account += bounds.account
    found = interface(fused)
    verify_program(kernels, found.params, found.results, note, proof)
    if target == "cuda":
        try:
            cuda.verify_scratch(kernels, emit_module(kernels).common)
        except VerifyError as error:
            errors.append(f"{target} {error}")
    kinds = {name: sum(any(word in text for word in words) for text in errors) for name, words in FAULTS.items()}
    return asdict(proof) | asdict(account) | kinds, errors
