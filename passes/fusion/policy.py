"""Decide which legal merges pay, which ops run early, and which groups run side by side."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Graph, Op, Value
from ...ops.create import constant
from ...ops.kinds import Reduce
from .costs import COSTS
from .groups import Group, Partition
from .inline import elements
from .reasons import Obstacle, Reason


def cost_obstacle(left: Group, right: Group, max_cost: int) -> Obstacle | None:
    """Return why one kernel of both groups would be slower than two; None if it would not."""
    if left.cost + right.cost > max_cost:
        return Reason.COST(max_cost)
    if max(left.basis, right.basis) >= min(left.limit, right.limit):
        return Reason.EARLY()
    return None


def constants_first(graph: Graph) -> Graph:
    """Return the graph with its constants first, in the order of their first use. Programs share constants, so their
    serial numbers depend on what the process compiled before."""
    constants: dict[Op, None] = {}
    for value in (*(value for op in graph.ops for value in op.operands), *graph.results):
        if value.op is not None and value.op.defn is constant:
            constants.setdefault(value.op)
    others = [op for op in graph.ops if op not in constants]
    return Graph(graph.name, graph.params, (*constants, *others), graph.results)


def early_ops(graph: Graph) -> tuple[dict[Value, int], dict[Op, int]]:
    """Return the elements of the largest value that each value depends on, and the ops to compute before others.

    Early are reductions of little data that much larger values depend on, with their producers. In a kernel with the
    larger values such a reduction would only be complete when all rows are done, and its consumers (the gradient of a
    mean over the valid labels needs their number) would have to wait in memory for another kernel."""
    basis: dict[Value, int] = {param: elements(param) for param in graph.params}
    for op in graph.ops:
        size = max((basis[value] for value in op.operands), default=0)
        basis.update((value, max(size, elements(value))) for value in op.results)
    after: dict[Value, int] = {}  # elements of the largest value that depends on a value
    early: dict[Op, int] = {}
    needed: dict[Value, int] = {}
    for op in reversed(graph.ops):
        later = max(after.get(value, 0) for value in op.results)
        limit = min((needed[value] for value in op.results if value in needed), default=0)
        if not limit and isinstance(op.defn.kind, Reduce) and basis[op.results[0]] * COSTS.much <= later:
            limit = later
        if limit:
            early[op] = limit
            needed.update((value, min(limit, needed.get(value, limit))) for value in op.operands)
        size = max(later, *(elements(value) for value in op.results))
        for value in op.operands:
            after[value] = max(after.get(value, 0), size)
    return basis, early


def siblings(partition: Partition) -> Iterator[tuple[Value, int, int]]:
    """Yield a value and the numbers of two groups that read it along axes, as they are before any merge."""
    readers: dict[Value, list[int]] = {}
    for number in sorted(partition.groups):
        for value in partition.groups[number].touch:
            readers.setdefault(value, []).append(number)
    for value, numbers in readers.items():
        size = value.type.numel
        if value.ndim == 0 or (isinstance(size, int) and size < COSTS.shared_elements):
            continue
        for first, second in zip(numbers, numbers[1:], strict=False):
            yield value, first, second


def launches(partition: Partition, max_cost: int, products_together: bool) -> list[list[Group]]:
    """Return the launches in order. Groups of one launch are independent and share parallel regions, which saves
    barriers. Matrix products come first, as their tiles are long; other groups fill the gaps."""
    groups, ancestors = partition.groups, partition.dependences.ancestors
    depth: dict[int, int] = {}
    # A group has more ancestors than each of its producers, so their number gives a topological order.
    for number in sorted(groups, key=lambda number: ancestors[number].bit_count()):
        producers = partition.producers(groups[number])
        last = max((depth[producer.number] for producer in producers), default=-1)
        depth[number] = last + (groups[number].kind != "join")
    found: list[list[Group]] = []
    open_launch: dict[int, list[Group]] = {}
    products = {number for number, group in groups.items() if group.product is not None and products_together}
    for number in sorted(groups, key=lambda item: (depth[item], item not in products, item)):
        group = groups[number]
        if group.kind == "join":
            continue
        is_single = group.kind != "loops" or group.structure is None or group.structure.secondary
        if is_single and number not in products:
            found.append([group])
            continue
        company = open_launch.get(depth[number])
        if company is not None and sum(item.cost for item in company) + group.cost <= max_cost:
            company.append(group)
        else:
            open_launch[depth[number]] = company = [group]
            found.append(company)
    return found
