"""Divides a graph into nodes that smelt compiles and nodes that PyTorch runs, in levels.

Each node is tried with smelt's ops, with numbers for all sizes; a node that they refuse is left to PyTorch. Nodes get
levels, even ones for smelt and odd ones for PyTorch, as early as their arguments allow. A level is one step of the
program, so a graph without a refusal is one native call. A node of PyTorch's that depends on known numbers alone is a
constant of the program, not a step. PyTorch also runs the nodes of a step whose compile fails (native.py).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from ..ir.decided import NotTraced
from ..ir.graph import Value
from ..ir.symbolic import Dim, SizeNeeded, Symbol, UndecidedSize
from ..ir.types import TensorType
from .data_sizes import check, decides
from .importer import Importer, Unsupported, extents_of, op_name, result_tensors
from .limits import LIMITS
from .memory import root_of
from .rules import RANDOM
from .sizes import symbol_of
from .types import DTYPE, is_supported, number_type, refusal

# Ops that only check sizes.
CHECKS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


@dataclass
class Level:
    """Nodes that run in one step, in order."""

    native: bool
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Partition:
    levels: list[Level]
    refused: dict[Node, str]  # with the reason
    constants: list[Node]  # PyTorch computes them once, when the program is made
    writes: list[Node]  # copy_ of results into the caller's tensors, after all steps
    sizes: dict[Symbol, int]  # of the symbols while tracing
    deciding: set[Node]  # nodes whose sizes data decide, steps of their own (data_sizes.py)


def is_size(node: Node) -> bool:
    """Whether a node is a symbolic number, or computed from such."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def draws(node: Node) -> bool:
    """Whether a node advances PyTorch's generator."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _is_constant(node: Node, given_away: set[Node]) -> bool:
    """Whether a node of PyTorch's depends on known numbers alone, so that its result can be kept.

    Not if the caller gets the result, which may be overwritten: each call has to return a new one.
    """
    target, tensor = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(tensor, torch.Tensor) or node.all_input_nodes:
        return False
    is_fixed = target.namespace == "aten" and target._schema.name[6:] not in RANDOM and not draws(node)
    is_small = tensor.layout is torch.strided and tensor.untyped_storage().nbytes() <= LIMITS.constant
    return is_fixed and is_small and not node.is_impure() and node not in given_away


def traced_sizes(graph: Graph) -> dict[Symbol, int]:
    """Return PyTorch's size hints for all symbols in the graph."""
    found: dict[Symbol, int] = {}

    def note(size: Any) -> None:
        if not isinstance(size, torch.SymInt):
            return
        environment = size.node.shape_env
        for symbol in size.node.expr.free_symbols:
            hint = environment.backed_var_to_val.get(symbol)
            # The ragged dim of a nested tensor is a symbol whose hint is not an integer.
            known = getattr(hint, "is_Integer", isinstance(hint, int))
            found[symbol_of(symbol, environment)] = int(hint) if known else LIMITS.some_size

    for node in graph.nodes:
        for item in result_tensors(node) if "val" in node.meta else ():
            if isinstance(item, torch.Tensor):
                for size in extents_of(item):
                    note(size)
            else:
                note(item)
    return found


def partition(graph: Graph, eager_random: bool, returned: int | None = None) -> Partition:
    """Partition a graph. `returned`: the number of results that the caller gets, None for all."""
    sizes = traced_sizes(graph)
    pinned: dict[Symbol, Dim] = dict(sizes.items())
    importer = Importer(pinned, eager_random)
    values: dict[Node, Any] = {}
    refused: dict[Node, str] = {}
    eager: set[Node] = set()
    deciding: set[Node] = set()
    level: dict[Node, int] = {}
    levels: dict[int, Level] = {}
    writes: list[Node] = []
    constants: list[Node] = []
    (output,) = (node for node in graph.nodes if node.op == "output")
    results = output.args[0]
    given = results[:returned] if isinstance(results, (tuple, list)) else [results]
    given_away = {root_of(item) for item in given if isinstance(item, Node)}
    last_draw = 1  # the level of the last node that draws from PyTorch's generator

    def fresh(item: Any) -> Any:
        """Return a value that stands for a result of PyTorch's in trials of smelt's ops."""
        if isinstance(item, torch.Tensor):
            if not is_supported(item):
                return None
            shape = tuple(importer.size(size) for size in item.shape)
            return Value(TensorType(DTYPE[item.dtype], shape), name="trial")
        number = number_type(item)
        if number is not None:
            return Value(TensorType(number, ()), name="trial")
        return importer.size(item) if isinstance(item, torch.SymInt) else item

    def lookup(node: Node) -> Any:
        if values[node] is None:
            reasons = [refusal(item) for item in result_tensors(node) if isinstance(item, torch.Tensor)]
            raise Unsupported(next((reason for reason in reasons if reason), f"{op_name(node)} makes no tensor"))
        return values[node]

    for node in graph.nodes:
        if node.op == "output":
            continue
        if node.op in ("placeholder", "get_attr"):
            found = [fresh(item) for item in result_tensors(node)]
            values[node], level[node] = found[0] if len(found) == 1 else tuple(found), -1
            continue
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":  # type: ignore[union-attr]
            writes.append(node)
            values[node] = values[node.args[0]]  # type: ignore[index]
            continue
        before = [level[item] for item in node.all_input_nodes if item in level]
        if is_size(node):
            # Python computes sizes: at an odd level, or before all steps.
            values[node] = fresh(node.meta["val"])
            level[node] = max([at if at % 2 else at + 1 for at in before], default=-1)
            if level[node] >= 0:
                levels.setdefault(level[node], Level(False)).nodes.append(node)
            continue
        if node.target in CHECKS:
            # Python checks sizes, too.
            values[node], level[node] = None, max([at if at % 2 else at + 1 for at in before], default=1)
            level[node] = max(level[node], 1)
            levels.setdefault(level[node], Level(False)).nodes.append(node)
            continue
        follows = node.target is operator.getitem and node.args[0] in eager
        is_decided = decides(node)
        if not follows and not is_decided:
            try:
                values[node] = importer.call(node, lookup)
                level[node] = max([at + at % 2 for at in before], default=0)
                levels.setdefault(max(level[node], 0), Level(True)).nodes.append(node)
                level[node] = max(level[node], 0)
                continue
            except Unsupported as error:
                if _is_constant(node, given_away):
                    constants.append(node)
                    values[node], level[node] = fresh(node.meta["val"]), -1
                    continue
                is_decided = isinstance(error.__cause__, NotTraced)
                if not is_decided:
                    refused[node] = str(error)
        if is_decided:
            try:
                check(importer, node, lookup)
                deciding.add(node)
            except (Unsupported, UndecidedSize, SizeNeeded) as error:
                refused[node] = str(error)
        eager.add(node)
        items = [fresh(item) for item in result_tensors(node)]
        values[node] = tuple(items) if isinstance(node.meta.get("val"), (tuple, list)) else items[0]
        level[node] = max([at if at % 2 else at + 1 for at in before if at >= 0], default=1)
        if draws(node):
            # In program order, as in eager mode.
            level[node] = last_draw = max(level[node], last_draw)
        levels.setdefault(level[node], Level(False)).nodes.append(node)
    return Partition([levels[at] for at in sorted(levels)], refused, constants, writes, sizes, deciding)
