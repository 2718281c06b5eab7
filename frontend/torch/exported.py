"""Programs of `torch.export` without PyTorch's tracing: `smelt.from_exported(torch.export.export(model, args))`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ..ir.errors import ArgumentError
from ..ir.graph import Graph
from .backend import Options, compile_program, read_options
from .program import Program


class Exported:
    """An exported program as a function: call it like the module that was exported."""

    def __init__(self, exported: ExportedProgram, options: Options):
        # Of aten's ops, only those that have no definition of their own in PyTorch are left.
        self.exported = exported.run_decompositions({})
        self.signature = self.exported.graph_signature
        self.program: Program = compile_program("exported", options, self.exported.graph_module)

    def _inputs(self, given: Sequence[Any]) -> list[Any]:
        """What the graph takes: the module's own tensors, and those of a call."""
        remaining = iter(given)
        found: list[Any] = []
        for item in self.signature.input_specs:
            if item.kind is InputKind.USER_INPUT:
                found.append(next(remaining))
            elif item.kind is InputKind.CONSTANT_TENSOR or (item.kind is InputKind.BUFFER and not item.persistent):
                found.append(self.exported.constants[item.target])
            elif item.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                found.append(self.exported.state_dict[item.target])
            else:
                raise ArgumentError(f"an exported program with an input of kind {item.kind.name} is not supported")
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given, structure = pytree.tree_flatten((args, kwargs))
        expected = self.exported.call_spec.in_spec
        if structure != expected:
            raise ArgumentError(f"the program was exported for arguments {expected}, got {structure}")
        with torch.no_grad():
            inputs = self._inputs(given)
            results = self.program(list(inputs))
            leaves: list[Any] = []
            for item, result in zip(self.signature.output_specs, results, strict=True):
                if item.kind is OutputKind.USER_OUTPUT:
                    leaves.append(result)
                elif item.kind is OutputKind.BUFFER_MUTATION:
                    self.exported.state_dict[item.target].copy_(result)
                elif item.kind is OutputKind.USER_INPUT_MUTATION:
                    names = [entry.arg.name for entry in self.signature.input_specs]
                    inputs[names.index(item.target)].copy_(result)
                else:
                    raise ArgumentError(f"an exported program with a result of kind {item.kind.name} is not supported")
        assert self.exported.call_spec.out_spec is not None
        return pytree.tree_unflatten(leaves, self.exported.call_spec.out_spec)

    @property
    def graphs(self) -> list[Graph]:
        """What smelt compiled, one graph for each native call."""
        return [version.traced.graph for step in self.program.natives for version in step.versions]

    def report(self) -> str:
        return "\n".join(str(version.executable.report) for step in self.program.natives for version in step.versions)


def from_exported(exported: ExportedProgram, options: dict[str, Any] | None = None) -> Exported:
    """A function that runs an exported program; the options are those of torch.compile's back end."""
    return Exported(exported, read_options(options))


def from_module(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Exported:
    """A module, exported for inputs like these."""
    return from_exported(torch.export.export(module, inputs))
