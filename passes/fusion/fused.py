"""Define fused graphs, and print them: the graph's own lines, gathered by kernel, with the refusals below."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Op, Value
from ...ir.printer import COMMENT_COLUMN, Printer
from ...ops.create import constant
from .axes import AxisUnion
from .concat_in_place import Part
from .groups import Group
from .reasons import Refusal


@dataclass
class Fused:
    """A graph with its kernels: each launch is one group, or several independent ones in one parallel region."""

    graph: Graph
    launches: list[list[Group]]
    inline: set[Op]
    aliases: dict[Value, Value]
    refusals: list[Refusal]
    axes: AxisUnion
    parts: dict[Value, Part]  # values whose memory is a part of a joined value's
    names: dict[Value, str]  # of buffers

    def stored(self, value: Value) -> Value:
        """Return the value whose memory holds a value."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def __str__(self) -> str:
        return print_fused(self)


def print_fused(fused: Fused, *, locations: bool = True) -> str:
    """Print a fused graph, with the user's line beside each op if `locations`."""

    def line(op: Op) -> str:
        return _located(op, printer.op_line(op)) if locations else printer.op_line(op)

    printer = Printer(fused.graph)
    lines = [printer.header().replace("graph @", "fused @", 1)]
    shown = {op for groups in fused.launches for group in groups for op in group.ops}
    joins = {part.whole: None for part in fused.parts.values()}
    free = [op for op in fused.graph.ops if op not in shown and op.defn is not constant and op.results[0] not in joins]
    if free:
        lines.append("  // views and index arithmetic: worked out where they are read")
        lines.extend(map(line, free))
    if joins:
        lines.append("  // joins: the kernels that make the parts store them there")
        lines.extend(line(value.op) for value in joins if value.op is not None)
    for number, groups in enumerate(fused.launches):
        together = "" if len(groups) == 1 else f" // {len(groups)} independent loop nests in one parallel region"
        lines.append(f"  kernel {number} {{{together}")
        for group in groups:
            lines.append(f"    // {_about(fused, group)}")
            lines.extend("  " + line(op) for op in group.ops)
        lines.append("  }")
    lines.extend([printer.return_line(), "}"])
    lines.extend(f"// not fused: {refusal}" for refusal in fused.refusals)
    return "\n".join(lines)


def _located(op: Op, line: str) -> str:
    """Add the user's line to an op's line."""
    return line if op.loc is None else f"{line:<{COMMENT_COLUMN - 12}}  // {op.loc}"


def _about(fused: Fused, group: Group) -> str:
    structure = group.structure
    before = "" if group.left is None else f"{_about(fused, group.left)}; then "
    if structure is None:
        return f"{before}{group.label}: a kernel of its own kind"

    def extents(axes: frozenset[int]) -> str:
        return " x ".join(str(fused.axes.extent[axis]) for axis in sorted(axes)) or "1"

    if structure.inner:
        text = f"rows {extents(structure.outer)}, each over {extents(structure.inner)}"
    else:
        text = f"pointwise over {extents(structure.outer)}"
    if structure.secondary:
        text += f"; across rows: {', '.join(sorted(op.name for op in structure.secondary))}"
    return before + text
