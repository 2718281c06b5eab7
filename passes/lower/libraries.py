"""List the GEMM libraries that a program's kernels call: "f32", "f32 rest" for remainder tiles, "f32 dots"."""

from __future__ import annotations

from ...ir.graph import Graph, Value
from ...ir.proofs import is_multiple
from ...kernels.gemm import BYTES, RegisterTile, is_dots, pays_dots
from ...kernels.loop.ir import Gemm, Kernel, walk
from ...kernels.machine import Machine
from ...ops.kinds import Contract
from ...ops.view import expand, permute, reshape


def expected_libraries(graph: Graph, machine: Machine) -> list[str]:
    """Return the libraries that are known to be called before lowering.

    Products of a vector may become plain loops, unless the machine multiplies their narrow type itself; the number of
    rows of a tile is not decided yet.
    """
    expected: set[str] = set()
    for op in graph.ops:
        if not isinstance(op.defn.kind, Contract):
            continue
        (result,) = op.results
        batch, rows, columns = result.shape
        depth = op.arguments["self"].shape[2]
        name, computed = result.dtype.name, result.dtype.compute.real.name
        if computed not in BYTES or 0 in (*result.shape, depth):
            continue
        own = name in BYTES or name in machine.dot_types
        adjacent = own and _is_transposed(op.arguments["mat2"])
        dots = adjacent and pays_dots(name, batch * rows, columns, depth)
        if dots or 1 not in (rows, columns):
            expected.add(f"{name} dots" if dots else name if own else computed)
    return sorted(expected)


def _is_transposed(value: Value) -> bool:
    """Return whether a matrix is a view of another one, transposed."""
    op = value.op
    while op is not None and op.defn in (reshape, expand):
        op = op.operands[0].op
    return op is not None and op.defn is permute and op.arguments["dims"][-1] != len(op.arguments["dims"]) - 1


def kernel_libraries(kernel: Kernel, machine: Machine) -> list[str]:
    """Return the libraries that a kernel calls: for each element type one, one for remainder tiles when most rows are
    in whole register tiles, and one for dot products."""
    found: set[str] = set()
    for item in walk(kernel.body):
        if not isinstance(item, Gemm):
            continue
        dtype = item.left.buffer.dtype.name
        if is_dots(item):
            found.add(f"{dtype} dots")
            continue
        found.add(dtype)
        if not is_multiple(item.rows, RegisterTile(dtype, machine).rows):
            found.add(f"{dtype} rest")
    return sorted(found)
