"""Decide which ops are inline, computed where they are read and never materialised, and which results are aliases.

Inline are views, constants, iota and cheap arithmetic on those, and on parameters where only a join reads it. An
inline op is forced into a buffer where it is a result of the program, where an alias needs its memory in another shape,
where a kind of kernel reads dense buffers, or where a matrix product reads it and it is no view of memory with
strides. Ops that scatters and scans absorb (absorb_producers.py) are inline, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from ...ir.graph import Graph, Op, Value
from ...ir.symbolic import ASSUMED_SIZE, Dim
from ...kernels.gemm import BYTES, RegisterTile
from ...kernels.machine import Machine
from ...kernels.scalar.table import SCALARS
from ...ops.kinds import Contract, Elementwise, Generate, Join, View
from .absorb_producers import absorbed
from .axes import batched_matrix, is_alias, keeps_order, rigid_map
from .costs import COSTS


def static(value: Dim) -> int:
    """Return a size for decisions: a dynamic one counts as large."""
    return value if isinstance(value, int) else ASSUMED_SIZE


def elements(value: Value) -> int:
    """Return the elements of a value, for decisions."""
    return _elements(value.type.shape)


@lru_cache(maxsize=1024)
def _elements(shape: tuple[Dim, ...]) -> int:
    return math.prod(map(static, shape))


def op_cost(op: Op) -> int:
    """Return the cost of one element, in additions."""
    kind = op.defn.kind
    if isinstance(kind, Elementwise):
        return SCALARS[kind.scalar].cost if kind.scalar in SCALARS else 1
    if isinstance(kind, View):
        return 0
    if isinstance(kind, Generate):
        return 40 if op.operands else 1
    return 2


def panel_width(op: Op, machine: Machine | None) -> int:
    """Return the panel width, in columns, of a packed right matrix that a product may read; 0 if it needs strides."""
    (result,) = op.results
    if machine is None or result.dtype.name not in BYTES or any(size == 0 or size == 1 for size in result.shape[1:]):
        return 0
    return RegisterTile(result.dtype.name, machine).width


class Inlining:
    """The inline ops of a graph, and the values that alias another's memory in another shape."""

    def __init__(self, graph: Graph, machine: Machine | None = None):
        self.graph = graph
        self.machine = machine  # if given, products may read matrices in its packed layout
        self.uses = graph.uses()
        self.results = set(graph.results)
        self.candidates: set[Op] = set()  # inline unless in `forced`
        self.forced: set[Op] = set()
        self.returned: dict[Op, Value] = {}  # reshapes that are results, and the value whose memory each has
        self.joined = self._only_joined()
        for op in graph.ops:
            if self._is_free_op(op):
                self.candidates.add(op)
            elif is_alias(op):
                (source,) = op.operands
                if source.op is not None and source.op in self.candidates:
                    if self._only_multiplied(op.results[0]):
                        self.candidates.add(op)
                    else:
                        self.forced.add(source.op)
        self._drop_joined_for_others()
        self._force_results()
        self._force_dense()
        self._force_matrices()
        self._drop_readers_of_memory()
        self._absorb()

    def __contains__(self, op: Op) -> bool:
        return op in self.candidates and op not in self.forced

    def ops(self) -> set[Op]:
        """Return all inline ops."""
        return self.candidates - self.forced

    def _absorb(self) -> None:
        found = absorbed(self.graph, self.uses, self.__contains__)
        for op in found:
            # A reshape stays an alias if its source is materialised.
            if not is_alias(op) or op.operands[0].op in found:
                self.candidates.add(op)
                self.forced.discard(op)

    def alias(self, op: Op) -> Value | None:
        """Return the value whose memory the op's result aliases in another shape, or None."""
        if op in self.forced:
            return None
        if op in self.returned:
            return self.returned[op]
        return op.operands[0] if is_alias(op) else None

    def _only_multiplied(self, value: Value) -> bool:
        """Whether matrix products alone read a value: they take the offset of each matrix of a batch as it is."""
        if value in self.results or not self.uses[value]:
            return False
        return all(
            isinstance(user.defn.kind, Contract)
            or (isinstance(user.defn.kind, View) and not is_alias(user) and self._only_multiplied(user.results[0]))
            for user in self.uses[value]
        )

    def _is_free_op(self, op: Op) -> bool:
        kind = op.defn.kind
        if isinstance(kind, View):
            return not is_alias(op)
        if isinstance(kind, Generate):
            return not op.operands
        if isinstance(kind, Elementwise):
            number = op.results[0].ndim == 0  # hoisted out of the loops that read it
            if number or op_cost(op) <= COSTS.recompute:
                return all(self._is_free_value(value, number or op in self.joined) for value in op.operands)
        return False

    def _only_joined(self) -> set[Op]:
        """Find elementwise ops whose elements only a join reads, once each, directly or through other such ops."""
        joined: set[Op] = set()
        for op in reversed(self.graph.ops):
            if isinstance(op.defn.kind, Elementwise) and op.results[0] not in self.results:
                users = self.uses[op.results[0]]
                if len(users) == 1 and (isinstance(users[0].defn.kind, Join) or users[0] in joined):
                    joined.add(op)
        return joined

    def _drop_joined_for_others(self) -> None:
        """Drop candidates that a join reads through an op that is not inline: they belong to that op's loop."""
        reading: set[Op] = set()  # inline ops that read parameters, other than numbers
        for op in self.graph.ops:
            if op in self.joined and op in self.candidates:
                if any(value.ndim if value.op is None else value.op in reading for value in op.operands):
                    reading.add(op)
        for op in reversed(self.graph.ops):
            if op in reading:
                (user,) = self.uses[op.results[0]]
                if not isinstance(user.defn.kind, Join) and user not in self.candidates:
                    self.candidates.discard(op)

    def _is_free_value(self, value: Value, parameters: bool) -> bool:
        """Whether inline arithmetic may read a value: one computed from no memory or, if `parameters`, a parameter."""
        if value.op is None:
            return parameters
        return value.op in self.candidates and isinstance(value.op.defn.kind, (Generate, Elementwise))

    def _force_results(self) -> None:
        """Force results into memory, each into memory of its own."""
        stored: set[Value] = set()
        for value in self.graph.results:
            op = value.op
            if op is None:
                continue
            if not keeps_order(op):
                if op in self.candidates:
                    self.forced.add(op)
                continue
            # A reshape can be returned as an alias only if no other result has that memory.
            base = value
            while base.op is not None and keeps_order(base.op):
                (base,) = base.op.operands
            free = base.op is not None and base not in stored and base not in self.results
            if is_alias(op):
                if not free:
                    self.forced.add(op)
            elif free and base.op not in self.candidates and not self.uses[value]:
                self.candidates.discard(op)
                self.returned[op] = base
            else:
                self.forced.add(op)
            stored.add(base)

    def _force_dense(self) -> None:
        """Force operands of kinds that read dense buffers into memory."""
        for op in self.graph.ops:
            if op.defn.kind is not None and op.defn.kind.dense_operands:
                self.forced.update(value.op for value in op.operands if value.op in self.candidates)

    def _force_matrices(self) -> None:
        """Force operands of matrix products into memory, unless they are views of it that have strides."""
        products = [op for op in self.graph.ops if isinstance(op.defn.kind, Contract)]
        matrices = [(op.arguments["self"], 0) for op in products]
        matrices += [(op.arguments["mat2"], panel_width(op, self.machine)) for op in products]
        # A value that is stored for one product may be read through views by another.
        while unreadable := {value.op for value, panel in matrices if value.op and not self._is_readable(value, panel)}:
            for op in unreadable:
                if is_alias(op) and (source := op.operands[0].op) is not None:
                    # Let the producer store the source in this order, as the reshape is an alias then; other views
                    # have to be copied.
                    self.candidates.discard(op)
                    self.forced.add(source)
                else:
                    self.forced.add(op)

    def _is_readable(self, value: Value, panel: int) -> bool:
        """Whether a product can read a batched matrix in place."""
        return batched_matrix(value, self.__contains__, panel) is not None

    def _drop_readers_of_memory(self) -> None:
        """Drop inline arithmetic on values that kernels store: its readers must not wait for another kernel."""
        for op in self.graph.ops:
            if op in self.candidates and isinstance(op.defn.kind, Elementwise):
                if any(value.op is not None and value.op not in self for value in op.operands):
                    self.candidates.discard(op)

    def peel(self, value: Value) -> tuple[Value, tuple[int | None, ...] | None]:
        """Return the source of inline views, and for each of its dims the dim of `value` it becomes (None: opaque)."""
        dims: tuple[int | None, ...] | None = tuple(range(value.ndim))
        while value.op is not None and isinstance(value.op.defn.kind, View) and value.op in self:
            step = rigid_map(value.op)
            (value,) = value.op.operands
            dims = None if step is None or dims is None else tuple(None if at is None else dims[at] for at in step)
        return value, dims

    def memory(self, value: Value) -> Iterator[Value]:
        """Yield the values in memory that a value is computed from: itself, unless it is inline."""
        pending, seen = [value], {value}
        while pending:
            item = pending.pop()
            if item.op is None or item.op not in self:
                yield item
                continue
            pending.extend(operand for operand in item.op.operands if operand not in seen)
            seen.update(item.op.operands)

    def readers(self, value: Value) -> Iterator[Op]:
        """Yield the ops in kernels that read a value, through inline ops too."""
        for user in self.uses[value]:
            if user in self:
                yield from self.readers(user.results[0])
            else:
                yield user

    def escapes(self, value: Value, inside: set[Op]) -> bool:
        """Whether a value is a result, or read by an op that is not among these."""
        if value in self.results:
            return True
        return any(
            self.escapes(user.results[0], inside) if user in self else user not in inside for user in self.uses[value]
        )
