"""Lower fused groups to loop IR: one function for each kind of op, never for each op.

`builder.py` writes statements and knows no groups, `elements.py` knows where the elements of values come from. The
lowering of a kind is registered with `lowers`: a loop tree (loop_tree.py) unless the kind has kernels of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.loop.ir import Concurrent, Kernel, Loop, Statement
from ...kernels.machine import DEFAULT, Machine
from ...ops.kinds import Contract, Generate, View, registered
from ...ops.pointwise import cast
from ..fusion.fused import Fused
from ..fusion.groups import Group
from . import compact, gemm, loop_tree, scan, scatter, sort  # noqa: F401  (they register lowerings)
from .elements import LOWERINGS, Lowering


def lower_group(lowering: Lowering, group: Group) -> list[Statement]:
    """Return the statements of one group."""
    lowering.begin_group(group)
    kind = group.ops[0].defn.kind
    assert kind is not None
    (LOWERINGS[Contract] if group.product is not None else registered(LOWERINGS, kind))(lowering, group)
    return lowering.statements


def kernel_name(groups: Sequence[Group], number: int) -> str:
    """Return a kernel's name: its number and the most telling ops."""
    names: list[str] = []
    for group in groups:
        for op in group.ops:
            if isinstance(op.defn.kind, (View, Generate)) or op.defn is cast:
                continue
            if op.name not in names:
                names.append(op.name)
    if len(names) > 4:
        weight = {name: SCALE.get(name, 0) for name in names}
        names = sorted(sorted(names, key=lambda name: -weight[name])[:4], key=names.index)
    return "_".join([f"k{number}", *names]) if names else f"k{number}_copy"


# Weights of ops: the name of a kernel has its four heaviest.
SCALE = dict.fromkeys(
    ("sum", "amax", "amin", "prod", "argmax", "argmin", "bmm", "cumsum", "any", "all"), 2
) | dict.fromkeys(
    (
        "exp",
        "log",
        "tanh",
        "erf",
        "sigmoid",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "pow",
        "select_along",
        "gather_along",
        "cat",
    ),
    1,
)


def _side_by_side(bodies: Sequence[Sequence[Statement]]) -> list[Statement]:
    """Put independent groups side by side: their last loops share a parallel region, so do the loops before those."""
    steps: list[Statement] = []
    loops = [[item for item in body if isinstance(item, Loop)] for body in bodies]
    for left in range(max(map(len, loops)), 0, -1):
        branches = [body[-left] for body in loops if len(body) >= left]
        steps.append(Concurrent(tuple(branches)) if len(branches) > 1 else branches[0])
    return steps


def lower(fused: Fused, machine: Machine = DEFAULT, gpu: bool = False) -> list[Kernel]:
    """Lower every launch of a fused graph to a kernel, all loops serial. Matrix products are tiled for the machine, or
    for the blocks of a GPU."""
    taken = buffer_names(fused)
    return [lower_launch(fused, number, taken, machine, gpu) for number in range(len(fused.launches))]


def buffer_names(fused: Fused) -> set[str]:
    """Return the names of buffers, which registers and variables must not take."""
    return {f"%{name}" for name in fused.names.values()}


def lower_launch(fused: Fused, number: int, taken: set[str], machine: Machine = DEFAULT, gpu: bool = False) -> Kernel:
    """Lower one launch to a kernel; `taken`: names of buffers."""
    groups = fused.launches[number]
    lowering = Lowering(fused, kernel_name(groups, number), taken, machine, gpu)
    bodies = [lower_group(lowering, group) for group in groups]
    body = bodies[0] if len(bodies) == 1 else _side_by_side(bodies)
    return Kernel(lowering.name, tuple(lowering.buffers.values()), tuple(body), tuple(lowering.sites))
