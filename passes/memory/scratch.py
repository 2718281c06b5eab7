"""Place the scratch of regions, allocated buffers and packed panels of GEMM, by their live ranges.

Each thread has scratch of its own for parallel regions. Regions that the caller runs alone need scratch once: in the
caller's own if that is large enough, else in the arena, among the temporaries that are live at the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...ir.proofs import limit, maximum, non_negative
from ...ir.record import Record
from ...ir.symbolic import Dim
from ...kernels.gemm import RegisterTile, is_dots
from ...kernels.loop.analysis import parallel_regions
from ...kernels.loop.ir import Concurrent, Gemm, Kernel, Let, Loop, Statement, walk
from ...kernels.loop.roles import allocates
from ...kernels.machine import Machine
from .arena import Plan, buffer_bytes, place
from .lifetime import Lifetimes, Owner, Span


def scratch_sizes(statements: Sequence[Statement], machine: Machine) -> dict[Owner, Dim]:
    """Return the bytes that each owner needs, in the order of the statements."""
    sizes: dict[Owner, Dim] = {}
    for statement in walk(statements):
        if isinstance(statement, Let):
            continue  # the most frequent statement
        for buffer in allocates(statement):
            # Successive loops may use one name for buffers of different sizes.
            sizes[buffer.name] = maximum(sizes.get(buffer.name, 0), buffer_bytes(buffer))
        if isinstance(statement, Gemm) and not is_dots(statement):
            sizes[id(statement)] = packed_bytes(statement, machine)
    return sizes


def packed_bytes(statement: Gemm, machine: Machine) -> int:
    """Return the bytes that a GEMM needs to pack its own panels (backend/cpu/microkernels/gemm.py packs them)."""
    tile = RegisterTile(statement.left.buffer.dtype.name, machine)
    rows = limit(statement.rows, True)
    return tile.scratch_bytes(rows, statement.depth, not statement.left.panel, not statement.right.panel)


def most(sizes: Iterable[Dim]) -> Dim:
    """Return the largest of some sizes; 0 if there are none."""
    found: Dim = 0
    for size in sizes:
        found = maximum(found, size)
    return found


def plan_scratch(statements: Sequence[Statement], machine: Machine) -> Plan[Owner]:
    """Place a region's scratch in a thread's memory."""
    sizes = scratch_sizes(statements, machine)
    spans = Lifetimes(statements).spans if len(sizes) > 1 else {}
    # A buffer that is allocated and never used has no live range.
    return place(sizes, {owner: spans.get(owner, (0, 0)) for owner in sizes})


class Use(Record):
    """The live ranges of a kernel's memory: the same for all kernels that are the same code."""

    length: int  # times in the kernel
    buffers: tuple[Span, ...]  # live range of each buffer
    alone: tuple[tuple[int, Span], ...]  # scratch of regions that the caller runs alone: bytes, live range
    offsets: tuple[Dim, ...]  # its offsets, in bytes, if it is placed by itself
    room: Dim  # bytes of all of it then


Place = str | tuple[int, int]  # a buffer; or the number of a kernel, and which item of its `Use.alone`


def kernel_use(kernel: Kernel, alone: Mapping[Owner, int]) -> Use:
    if len(kernel.body) == 1 and not alone:
        # One loop: all memory that it touches is live to its end.
        return Use(1, ((0, 0),) * len(kernel.buffers), (), (), 0)
    lives = Lifetimes(kernel.body)
    length = max(lives.length, 1)
    whole = (0, length - 1)  # live range of buffers that are passed and not used
    spans = {owner: lives.spans.get(owner, whole) for owner in alone}
    apart = place(alone, spans)
    return Use(
        length,
        tuple(lives.spans.get(buffer.name, whole) for buffer in kernel.buffers),
        tuple((size, spans[owner]) for owner, size in alone.items()),
        tuple(apart.offsets[owner] for owner in alone),
        apart.size,
    )


def lone_scratch(kernel: Kernel, machine: Machine) -> dict[Owner, int]:
    """Return the scratch, with its bytes, of statements that the caller runs alone, if plan_arena shall place it.

    Empty where some size is symbolic: the arena would add up sizes that cannot be compared, while a thread's scratch
    needs the largest of any region only. Empty for kernels with branches, too, which have arguments of their own."""
    if any(isinstance(item, Concurrent) for item in kernel.body):
        return {}
    alone = [item for item in kernel.body if not (isinstance(item, Loop) and item.kind == "parallel")]
    sizes = scratch_sizes(alone, machine)
    static = {owner: size for owner, size in sizes.items() if isinstance(size, int)}
    return static if len(static) == len(sizes) else {}


class KernelScratch(Record):
    """The places of a kernel's scratch."""

    plans: Mapping[int, Plan[Owner]]  # in a thread's scratch, by the id() of the first statement of a region
    alone: Mapping[Owner, int]  # bytes of scratch of the regions that the caller runs alone, for the arena
    use: Use
    regions: tuple[tuple[str, Dim], ...]  # each is "shared" by threads, "lone" or "placed" in the arena; bytes


def plan_kernel(kernel: Kernel, machine: Machine) -> KernelScratch:
    """Return the places of a kernel's scratch."""
    alone = lone_scratch(kernel, machine)
    plans: dict[int, Plan[Owner]] = {}
    use = kernel_use(kernel, alone)
    regions: list[tuple[str, Dim]] = []
    for region in parallel_regions(kernel):
        first = region[0]
        branches = first.branches if isinstance(first, Concurrent) else (first,)
        how = "placed" if alone else "lone"
        for branch in branches:
            if isinstance(branch, Loop) and branch.kind == "parallel":
                how = "shared"
                plans[id(branch)] = plan_scratch(branch.body, machine)
            elif not alone:
                plans[id(branch)] = plan_scratch([branch] if isinstance(first, Concurrent) else region, machine)
        size = use.room if how == "placed" else most(plans[id(branch)].size for branch in branches)
        regions.append((how, size))
    return KernelScratch(plans, alone, use, tuple(regions))


def region_scratch(kernels: Iterable[KernelScratch], how: str) -> list[Dim]:
    """Return the sizes that regions of this kind need, each once."""
    return list(dict.fromkeys(size for kernel in kernels for kind, size in kernel.regions if kind == how))


class Arena(Record):
    """The places of temporaries, and of the scratch of regions that the caller runs alone."""

    offsets: Mapping[Place, Dim]
    size: Dim
    unshared: Mapping[Place, Dim]  # offsets of scratch that is in the caller's own instead


def plan_arena(kernels: Sequence[Kernel], uses: Sequence[Use], outside: Iterable[str], own: Dim) -> Arena:
    """Place all buffers but parameters and results, and scratch that the caller needs alone. `own`: bytes of scratch
    that each thread has for parallel regions; the caller's are free while it runs alone."""
    known = set(outside)
    sizes: dict[Place, Dim] = {}
    spans: dict[Place, Span] = {}
    unshared: dict[Place, Dim] = {}
    now = 0
    for number, (kernel, use) in enumerate(zip(kernels, uses, strict=True)):
        for buffer, (first, last) in zip(kernel.buffers, use.buffers, strict=True):
            if buffer.name not in known:
                sizes.setdefault(buffer.name, buffer_bytes(buffer))
                spans[buffer.name] = spans.get(buffer.name, (now + first, 0))[0], now + last
        for position, (size, (first, last)) in enumerate(use.alone):
            if non_negative(own - use.room):
                unshared[number, position] = use.offsets[position]
            else:
                sizes[number, position] = size
                spans[number, position] = now + first, now + last
        now += use.length
    plan = place(sizes, spans)
    return Arena(plan.offsets, plan.size, unshared)


class Memory(Record):
    """The memory of a program beside its parameters and results."""

    arena: Arena
    shared: list[Dim]  # bytes of scratch that each thread needs, for regions that threads share
    lone: list[Dim]  # bytes that the caller needs, for other regions that have no place in the arena
    own: Dim  # bytes: the largest of `shared`
    of_kernels: list[Dim]  # bytes of scratch that each running thread needs, by kernel


def plan_program(kernels: Sequence[Kernel], scratch: Sequence[KernelScratch], outside: Iterable[str]) -> Memory:
    """Return the places of temporaries, and of scratch that the caller uses alone. `outside`: parameters, results."""
    shared = region_scratch(scratch, "shared")
    own = most(shared)
    arena = plan_arena(kernels, [item.use for item in scratch], outside, own)
    of_kernels = [most(size for _, size in item.regions) for item in scratch]
    return Memory(arena, shared, region_scratch(scratch, "lone"), own, of_kernels)
