"""Programs of `torch.export` without PyTorch's tracing: `smelt.from_exported(torch.export.export(model, args))`."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from ..backend.report.report import KernelReport, Report
from ..ir.errors import ArgumentError
from ..ir.graph import Graph, current_location
from .backend import Options, compile_frozen, compile_program, read_options
from .freeze import Frozen
from .memory import depends_on_order, lie_alike, root_of
from .program import Program
from .whole_ops import sized_overloads, whole_ops

WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(frozen=True)
class ExportedReport:
    """The compilation reports of an exported program's graphs, in order."""

    graphs: list[Report]

    @property
    def kernels(self) -> list[KernelReport]:
        return [kernel for report in self.graphs for kernel in report.kernels]

    def json(self) -> str:
        return json.dumps([json.loads(report.json()) for report in self.graphs], indent=2)

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs))


class Exported:
    """An exported program as a function: call it like the module that was exported."""

    def __init__(self, exported: ExportedProgram, options: Options):
        self.options = options
        self.source = exported  # for pickling: it shares the tensors, and compiling does not change its graph
        # Decomposed to the aten ops that PyTorch does not decompose further.
        with warnings.catch_warnings(), whole_ops():
            # PyTorch warns about its own copies of pytree structures.
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            self.exported = exported.run_decompositions(sized_overloads())
        self.signature = self.exported.graph_signature
        nodes = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        traced = [(node.meta.get("val"), item) for node, item in zip(nodes, self.signature.input_specs)]
        self.examples = [value for value, item in traced if item.kind is InputKind.USER_INPUT]
        examples = self.exported.example_inputs
        self.repeated = [] if examples is None else _repeated([item for _, item in self._place(examples)])
        self.own = {
            str(item.target): (tuple(value.shape), value.dtype, value.device)
            for value, item in traced
            if item.kind is not InputKind.USER_INPUT and isinstance(value, torch.Tensor)
        }
        graph_module = self.exported.graph_module
        self.snapshots = self._overwritten(graph_module)
        self.is_ordered = depends_on_order(graph_module.graph)
        self.program: Program | Frozen
        if options.freeze:
            own = {
                at: str(item.target)
                for at, item in enumerate(self.signature.input_specs)
                if item.kind is not InputKind.USER_INPUT
            }
            self.program = compile_frozen("exported", options, graph_module, own)
        else:
            self.program = compile_program("exported", options, graph_module)

    def __reduce__(self) -> Any:
        """Pickle the program and its tensors as torch.export.save writes them; the other process compiles the program,
        or finds its code in the cache."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata that PyTorch leaves out of the file, which no call needs
            torch.export.save(self.source, file)
        return _unpickled, (file.getvalue(), self.options)

    def _overwritten(self, module: GraphModule) -> list[int]:
        """Return the positions of results that alias an input which is overwritten after the call.

        In a functional graph they have the elements from before the write, as in a delay line of buffers, so they are
        copied.
        """
        targets = {item.target for item in self.signature.output_specs if item.kind in WRITES}
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        written = {
            node
            for node, item in zip(nodes, self.signature.input_specs, strict=True)
            if (item.arg.name if item.kind is InputKind.USER_INPUT else item.target) in targets
        }
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        return [at for at, item in enumerate(output.args[0]) if isinstance(item, Node) and root_of(item) in written]

    def _inputs(self, given: Sequence[Any]) -> list[Any]:
        """Return the inputs of the graph: the module's own tensors, then those of a call."""
        remaining = iter(given)
        found: list[Any] = []
        for item in self.signature.input_specs:
            if item.kind is InputKind.USER_INPUT:
                found.append(next(remaining))
            elif item.kind in (InputKind.CONSTANT_TENSOR, InputKind.PARAMETER, InputKind.BUFFER):
                found.append(self._tensor(item.target))
            else:
                raise ArgumentError(f"an exported program with an input of kind {item.kind.name} is not supported")
        return found

    def _tensor(self, name: str) -> Any:
        """Return one of the module's own tensors. Non-persistent buffers are among the constants."""
        state = self.exported.state_dict
        found = state[name] if name in state else self.exported.constants[name]
        kind = tuple(found.shape), found.dtype, found.device
        if name in self.own and kind != self.own[name]:
            raise ArgumentError(f"{name} was {_tensor_text(*self.own[name])} when exported, is {_tensor_text(*kind)}")
        return found

    def _check(self, placed: Sequence[tuple[Any, Any]]) -> None:
        """Raise unless arguments have the types, sizes and devices of the program: native code could read out of bounds
        otherwise."""
        try:
            self.exported._check_input_constraints(placed)
        except RuntimeError as error:
            raise ArgumentError(f"not what the program was exported for: {error}") from error
        for (path, item), wanted in zip(placed, self.examples):
            if not isinstance(wanted, torch.Tensor):
                continue
            for name in ("dtype", "device", "layout"):
                if getattr(item, name, None) != getattr(wanted, name):
                    found = getattr(item, name, type(item).__name__)
                    where = pytree.keystr(path)
                    raise ArgumentError(f"the program was exported for {getattr(wanted, name)} at {where}, got {found}")
            if self.is_ordered and not lie_alike(item, wanted):
                raise ArgumentError(
                    f"as_strided or resize_ in the program depends on how {pytree.keystr(path)} lies in memory, which "
                    f"has other strides than when it was exported: {item.stride()}, then {tuple(wanted.stride())}"
                )

        for first, again in self.repeated:
            if not _is_same(placed[first][1], placed[again][1]):
                paths = [pytree.keystr(placed[at][0]) for at in (first, again)]
                raise ArgumentError(
                    f"the program was exported with one tensor for {' and '.join(paths)}, and torch.export made one "
                    "input of them: export it with a tensor for each to call it so"
                )

    def _place(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> list[tuple[Any, Any]]:
        """Return the leaves of the arguments with their paths, in the order of the program."""
        placed, structure = pytree.tree_flatten_with_path(arguments)
        expected = self.exported.call_spec.in_spec
        assert expected is not None
        if structure != expected:
            # Keyword arguments and dict entries may come in any order.
            with contextlib.suppress(ValueError):
                ordered = pytree.tree_unflatten(expected.flatten_up_to(arguments), expected)
                placed, structure = pytree.tree_flatten_with_path(ordered)
        if structure != expected:
            raise ArgumentError(
                f"the program was exported for arguments {_structure_text(expected)}, got {_structure_text(structure)}"
            )
        return placed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        placed = self._place((args, kwargs))
        self._check(placed)
        given = [item for _, item in placed]
        with torch.no_grad():
            inputs = self._inputs(given)
            results = self.program(list(inputs))
            for at in self.snapshots:
                results[at] = results[at].clone()
            leaves: list[Any] = []
            for item, result in zip(self.signature.output_specs, results, strict=True):
                if item.kind is OutputKind.USER_OUTPUT:
                    leaves.append(result)
                elif item.kind is OutputKind.BUFFER_MUTATION:
                    self._tensor(item.target).copy_(result)
                elif item.kind is OutputKind.USER_INPUT_MUTATION:
                    names = [entry.arg.name for entry in self.signature.input_specs]
                    inputs[names.index(item.target)].copy_(result)
                else:
                    raise ArgumentError(f"an exported program with a result of kind {item.kind.name} is not supported")
        assert self.exported.call_spec.out_spec is not None
        return pytree.tree_unflatten(leaves, self.exported.call_spec.out_spec)

    @property
    def graphs(self) -> list[Graph]:
        """The compiled graphs, one for each native call."""
        return [version.traced.graph for step in self.program.natives for version in step.versions]

    def report(self) -> ExportedReport:
        return ExportedReport([version.executable.report for step in self.program.natives for version in step.versions])


def _tensor_text(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    return f"{dtype} of shape {list(shape)} on {device}"


def _repeated(examples: Sequence[Any]) -> list[tuple[int, int]]:
    """Return pairs of positions of arguments that were one tensor at export."""
    first: dict[int, int] = {}
    tensors = [(at, item) for at, item in enumerate(examples) if isinstance(item, torch.Tensor)]
    numbered = [(first.setdefault(id(item), at), at) for at, item in tensors]
    return [(one, at) for one, at in numbered if one != at]


def _is_same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor is other or (tensor.data_ptr() == other.data_ptr() and tensor.stride() == other.stride())


def _unpickled(content: bytes, options: Options) -> Exported:
    return Exported(torch.export.load(io.BytesIO(content)), options)


class _Leaf:
    def __repr__(self) -> str:
        return "..."


def _structure_text(structure: pytree.TreeSpec) -> str:
    """Return the structure of arguments as text: (..., mask=...)"""
    args, kwargs = pytree.tree_unflatten([_Leaf()] * structure.num_leaves, structure)
    return f"({', '.join([*map(repr, args), *(f'{name}={item!r}' for name, item in kwargs.items())])})"


def from_exported(exported: ExportedProgram, options: dict[str, Any] | None = None) -> Exported:
    """Return a function that runs an exported program; the options are those of torch.compile's back end."""
    if not isinstance(exported, ExportedProgram):
        raise ArgumentError(
            f"from_exported takes what torch.export.export(module, inputs) returns, got {type(exported).__name__}",
            current_location(),
        )
    return Exported(exported, read_options(options))


def from_module(module: torch.nn.Module, inputs: tuple[Any, ...] | dict[str, Any]) -> Exported:
    """Export a module for inputs like these and compile it; a dict has the inputs by name."""
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, None)
    return from_exported(torch.export.export(module, args, kwargs))
