"""What has no memory of its own: ops that are worked out where they are read, and aliases.

Inline are views, constants, iota and cheap arithmetic on those, and on parameters where only a join reads it. An
inline op is forced to have a buffer all the same where it is a result of the program, where another shape of its
memory is asked for, or where a matrix product reads it and it is no view of memory with strides. What scatters and
scans absorb (absorb_producers.py) is inline, too.
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
    """A size for decisions: a symbolic one counts as large."""
    return value if isinstance(value, int) else ASSUMED_SIZE


def elements(value: Value) -> int:
    """How many elements a value has, for decisions."""
    return _elements(value.type.shape)


@lru_cache(maxsize=1024)
def _elements(shape: tuple[Dim, ...]) -> int:
    return math.prod(map(static, shape))


def op_cost(op: Op) -> int:
    """What one element costs, in additions."""
    kind = op.defn.kind
    if isinstance(kind, Elementwise):
        return SCALARS[kind.scalar].cost if kind.scalar in SCALARS else 1
    if isinstance(kind, View):
        return 0
    if isinstance(kind, Generate):
        return 40 if op.operands else 1
    return 2


def panel_width(op: Op, machine: Machine | None) -> int:
    """Columns of the panels in which the right matrix of a product may lie in memory; 0 if it needs strides."""
    (result,) = op.results
    if machine is None or result.dtype.name not in BYTES or any(size == 0 or size == 1 for size in result.shape[1:]):
        return 0
    return RegisterTile(result.dtype.name, machine).width


class Inlining:
    """Which ops of a graph are inline, and which values are other shapes of another's memory."""

    def __init__(self, graph: Graph, machine: Machine | None = None):
        self.graph = graph
        self.machine = machine  # if products may read what is packed for its vectors
        self.uses = graph.uses()
        self.results = set(graph.results)
        self.candidates: set[Op] = set()  # inline, unless something forces them into memory
        self.forced: set[Op] = set()
        self.returned: dict[Op, Value] = {}  # reshapes that are results and live in another value's memory
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
        self._force_matrices()
        self._drop_readers_of_memory()
        self._absorb()

    def __contains__(self, op: Op) -> bool:
        return op in self.candidates and op not in self.forced

    def ops(self) -> set[Op]:
        """All inline ops."""
        return self.candidates - self.forced

    def _absorb(self) -> None:
        found = absorbed(self.graph, self.uses, self.__contains__)
        for op in found:
            # A reshape is an alias of memory, unless there is none.
            if not is_alias(op) or op.operands[0].op in found:
                self.candidates.add(op)
                self.forced.discard(op)

    def alias(self, op: Op) -> Value | None:
        """The value whose memory the op's result is in another shape, if it is one."""
        if op in self.forced:
            return None
        if op in self.returned:
            return self.returned[op]
        return op.operands[0] if is_alias(op) else None

    def _only_multiplied(self, value: Value) -> bool:
        """Whether matrix products alone read a value: they can find each matrix of a batch anywhere."""
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
            number = op.results[0].ndim == 0  # computed once before the loops that read it
            if number or op_cost(op) <= COSTS.recompute:
                return all(self._is_free_value(value, number or op in self.joined) for value in op.operands)
        return False

    def _only_joined(self) -> set[Op]:
        """Arithmetic that only a join reads, each element of it once, perhaps through more of the kind."""
        joined: set[Op] = set()
        for op in reversed(self.graph.ops):
            if isinstance(op.defn.kind, Elementwise) and op.results[0] not in self.results:
                users = self.uses[op.results[0]]
                if len(users) == 1 and (isinstance(users[0].defn.kind, Join) or users[0] in joined):
                    joined.add(op)
        return joined

    def _drop_joined_for_others(self) -> None:
        """What is joined after more arithmetic that is not inline is part of that arithmetic's loop."""
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
        """Whether a value costs its readers next to nothing: made of no memory, or of parameters if those will do."""
        if value.op is None:
            return parameters
        return value.op in self.candidates and isinstance(value.op.defn.kind, (Generate, Elementwise))

    def _force_results(self) -> None:
        """A result has memory, and no other result has the same."""
        stored: set[Value] = set()
        for value in self.graph.results:
            op = value.op
            if op is None:
                continue
            if not keeps_order(op):
                if op in self.candidates:
                    self.forced.add(op)
                continue
            # A reshape can be returned as it is only if it is the one result that lives in that memory.
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

    def _force_matrices(self) -> None:
        """The operands of matrix products lie in memory, where they may be read through views with strides."""
        products = [op for op in self.graph.ops if isinstance(op.defn.kind, Contract)]
        matrices = [(op.arguments["self"], 0) for op in products]
        matrices += [(op.arguments["mat2"], panel_width(op, self.machine)) for op in products]
        # What is stored for one product may be what another one reads through views.
        while unreadable := {value.op for value, panel in matrices if value.op and not self._is_readable(value, panel)}:
            for op in unreadable:
                if is_alias(op) and (source := op.operands[0].op) is not None:
                    # Who makes the source can store it in this order himself; in other dims he could not.
                    self.candidates.discard(op)
                    self.forced.add(source)
                else:
                    self.forced.add(op)

    def _is_readable(self, value: Value, panel: int) -> bool:
        """Whether a batched matrix can be read where it lies."""
        return batched_matrix(value, self.__contains__, panel) is not None

    def _drop_readers_of_memory(self) -> None:
        """Who reads inline arithmetic works it out and waits for no kernel: nothing behind it may be in memory."""
        for op in self.graph.ops:
            if op in self.candidates and isinstance(op.defn.kind, Elementwise):
                if any(value.op is not None and value.op not in self for value in op.operands):
                    self.candidates.discard(op)

    def peel(self, value: Value) -> tuple[Value, tuple[int | None, ...] | None]:
        """The value behind inline views, and for each of its dims the dim of `value` it becomes (None: opaque)."""
        dims: tuple[int | None, ...] | None = tuple(range(value.ndim))
        while value.op is not None and isinstance(value.op.defn.kind, View) and value.op in self:
            step = rigid_map(value.op)
            (value,) = value.op.operands
            dims = None if step is None or dims is None else tuple(None if at is None else dims[at] for at in step)
        return value, dims

    def memory(self, value: Value) -> Iterator[Value]:
        """The values in memory that a value is made of: itself, unless it is inline."""
        pending, seen = [value], {value}
        while pending:
            item = pending.pop()
            if item.op is None or item.op not in self:
                yield item
                continue
            pending.extend(operand for operand in item.op.operands if operand not in seen)
            seen.update(item.op.operands)

    def readers(self, value: Value) -> Iterator[Op]:
        """The ops with a loop that read a value, through inline ops too."""
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
