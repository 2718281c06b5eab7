"""Reuse kernels among launches that differ in values only, such as the layers of a model: lower one, rename the others.

A launch's key has all facts that lowering depends on: its ops, the inline ops that they read, types and attributes, the
axes and the loop trees of its groups. Values, locations and axes are numbered in the order of their first mention.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...ir.graph import Location, Op, Value
from ...ir.record import Record
from ...kernels.loop.ir import Kernel, Site, own_names
from ...ops.kinds import Gather, Scatter
from ...ops.shapes import are_ints
from ..fusion.axes import Axes, AxisSet
from ..fusion.fused import Fused
from ..fusion.groups import Group
from ..graph.cleanup import argument_key
from ..loop.rename import Renaming
from .lower import kernel_name


class Form(Record):
    """The key of a launch, and the values and locations that the key's numbers stand for."""

    key: tuple[Any, ...]
    values: list[Value]
    locations: list[Location | None]
    groups: list[int]  # numbers of the groups, which are part of the names of scratch


def form(fused: Fused, groups: Sequence[Group], special: Mapping[str, Container[str]] = {}) -> Form:
    """Return the form of a launch. `special`: buffers that passes treat specially, by the option that names them."""
    reader = _Reader(fused, groups)
    parts = tuple(map(reader.group, groups))
    values = list(reader.numbers)
    names = [f"%{fused.names[value]}" for value in values]
    apart = [tuple(number for number, name in enumerate(names) if name in found) for found in special.values()]
    extents = tuple(fused.axes.extent[axis] for axis in reader.ranks)
    key = (parts, tuple(reader.lines), extents, tuple(apart))
    return Form(key, values, reader.locations, [group.number for group in _with_left(groups)])


def _with_left(groups: Iterable[Group]) -> Iterator[Group]:
    for group in groups:
        yield group
        if group.left is not None:
            yield group.left


class _Reader:
    """Numbers the values, locations and sites of a launch in the order of their first mention."""

    def __init__(self, fused: Fused, groups: Sequence[Group]):
        self.fused = fused
        self.members = {op for group in groups for op in group.ops}
        self.numbers: dict[Value, int] = {}
        self.lines: list[tuple[Any, ...]] = []  # one for each op and each value of another launch
        self.locations: list[Location | None] = []
        self.places: dict[int, int] = {}  # indices in that list, by identity of the location
        self.sites: dict[Site, int] = {}  # sites that checks may report
        # Decisions may depend on the order of two axes, but not on their numbers.
        found = {fused.axes.find(axis) for group in _with_left(groups) for axis in _axes(group)}
        self.ranks = {axis: rank for rank, axis in enumerate(sorted(found))}

    def group(self, group: Group) -> tuple[Any, ...]:
        left = None if group.left is None else self.group(group.left)
        ops = tuple(self.number(op.results[0]) for op in group.ops)
        structure = group.structure
        tree = structure and (
            self.set(structure.outer),
            self.set(structure.inner),
            self.ops(structure.secondary),
            self.ops(structure.post),
        )
        return (
            (group.kind, left, ops, tree),
            tuple((self.number(value), self.axes(axes)) for value, axes in group.touch.items()),
            tuple((self.number(value), name) for value, name in group.opaque.items()),
            tuple((self.number(value), *self.ops([op]), self.axes(at)) for (value, op), at in group.row_reads.items()),
            tuple((self.set(cell), cost) for cell, cost in group.cells.items()),
            tuple((*self.ops([op]), self.set(space), self.set(over)) for op, space, over in group.reduces),
            tuple((*self.ops([op]), self.axes(axes)) for op, axes in group.operand_axes.items()),
            tuple(self.output(value) for value in group.outputs),
            *(None if value is None else self.number(value) for value in (group.product, group.tile)),
        )

    def ops(self, ops: Iterable[Op]) -> tuple[int, ...]:
        return tuple(sorted(self.number(op.results[0]) for op in ops))

    def axes(self, axes: Axes) -> Axes:
        find, ranks = self.fused.axes.find, self.ranks
        return tuple(axis if axis is None or axis < 0 else ranks[find(axis)] for axis in axes)

    def set(self, axes: AxisSet) -> tuple[int, ...]:
        find, ranks = self.fused.axes.find, self.ranks
        return tuple(sorted(ranks[find(axis)] for axis in axes))

    def output(self, value: Value) -> tuple[Any, ...]:
        """Describe a stored value and its place."""
        part = self.fused.parts.get(value)
        if part is None:
            return self.number(value), self.number(self.fused.stored(value))
        join = part.whole.op
        assert join is not None
        line = self.place(join.loc)  # location of the stores
        return self.number(value), self.number(part.whole), part.dims, part.dim, part.start, line

    def number(self, value: Value) -> int:
        """Return a value's number. Its operands come first, without recursion: a chain of ops may be long."""
        known = self.numbers.get(value)
        if known is not None:
            return known
        pending = [value]
        while pending:
            item = pending[-1]
            if item not in self.numbers:
                op = item.op
                own = op is not None and (op in self.members or op in self.fused.inline)
                needed = op.operands if op is not None and own else self.source(item)
                missing = [operand for operand in needed if operand not in self.numbers]
                if missing:
                    pending.extend(reversed(missing))
                    continue
                if op is not None and own:
                    self.op(op)
                else:
                    self.lines.append((item.type, *(self.numbers[source] for source in needed)))
                    self.numbers[item] = len(self.numbers)
            pending.pop()
        return self.numbers[value]

    def source(self, value: Value) -> tuple[Value, ...]:
        """Return the value that one of another launch aliases, if any."""
        stored = self.fused.stored(value)
        return () if stored is value else (stored,)

    def place(self, location: Location | None) -> int:
        """Return a location's number."""
        place = self.places.setdefault(id(location), len(self.locations))
        if place == len(self.locations):
            self.locations.append(location)
        return place

    def op(self, op: Op) -> None:
        place = self.place(op.loc)
        # The types of the results follow from these arguments.
        self.lines.append((op.defn.name, place, *map(self.argument, op.arguments.values())))
        if isinstance(op.defn.kind, (Gather, Scatter)):
            # Checks of one line have one site, though their ops have locations of their own.
            self.lines.append(("site", self.sites.setdefault(Site(op.name, op.loc), len(self.sites))))
        for value in op.results:
            self.numbers[value] = len(self.numbers)

    def argument(self, argument: Any) -> Any:
        kind = argument.__class__
        if kind is Value:
            return self.numbers[argument]
        if kind is tuple and not are_ints(argument):
            return "tuple", *map(self.argument, argument)
        return argument if kind is str or argument is None else argument_key(argument)


def _axes(group: Group) -> Iterator[int]:
    """Yield every axis that a group mentions, some more than once."""
    for axes in (*group.touch.values(), *group.row_reads.values(), *group.operand_axes.values()):
        yield from (axis for axis in axes if axis is not None and axis >= 0)
    for cell in group.cells:
        yield from cell
    for _, space, _ in group.reduces:
        yield from space
    if group.structure is not None:
        yield from group.structure.outer | group.structure.inner


class Made(Record):
    """A launch with its kernel, which other launches may reuse."""

    number: int
    form: Form
    kernel: Kernel
    own: frozenset[str]  # local names of the kernel


class Recurring:
    """The launches of a program that were lowered so far, by their keys."""

    def __init__(self, fused: Fused, special: Mapping[str, Container[str]] = {}):
        self.fused = fused
        self.special = special
        self.made: dict[tuple[Any, ...], Made] = {}
        self.form: Form | None = None  # form of the launch that `find` got last

    def find(self, number: int) -> tuple[int, Kernel] | tuple[None, None]:
        """Return the number of an earlier launch with the same key, and its kernel renamed for this one; None if there
        is no such launch, or if a new name is a local name of its kernel."""
        groups = self.fused.launches[number]
        self.form = form(self.fused, groups, self.special)
        known = self.made.get(self.form.key)
        if known is None:
            return None, None
        text = self.fused.names
        pairs = zip(known.form.values, self.form.values, strict=True)
        names = {f"%{text[old]}": f"%{text[new]}" for old, new in pairs}
        if not known.own.isdisjoint(names.get(buffer.name, "") for buffer in known.kernel.buffers):
            return None, None
        name = kernel_name(groups, number)
        starts = [(f"%{known.kernel.name}.", f"%{name}.")]
        starts += [(f"%row{old}.", f"%row{new}.") for old, new in zip(known.form.groups, self.form.groups, strict=True)]
        locations = dict(zip(map(id, known.form.locations), self.form.locations, strict=True))
        return known.number, Renaming(names, starts, locations).kernel(known.kernel, name)

    def add(self, number: int, kernel: Kernel) -> None:
        """Remember the kernel of the launch that `find` got last."""
        assert self.form is not None
        self.made[self.form.key] = Made(number, self.form, kernel, frozenset(own_names(kernel)))
