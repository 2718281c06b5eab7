"""Declare the roles of statements' fields, and derive queries, the walk and the rewrite from them.

A statement class says beside each field which role it has:

    class Load(Statement):
        result: Register = field(metadata=DEFINES)
        buffer: Buffer = field(metadata=READS)
        index: tuple[Dim, ...] = field(metadata=PLACE)
        guard: Operand | None = field(default=None, metadata=GUARD)
        origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)

A field holds one value, at most one (`| None`) or several (`tuple[..., ...]`). As dataclasses do, a class gets
functions whose text is made of its fields, when its first statement is met: passes mostly traverse kernels, and these
are as fast as written ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ...ir.process import process
from ...ir.symbolic import Dim, Symbol

if TYPE_CHECKING:
    from ...ir.graph import Location
    from .ir import Buffer, Matrix, Operand, Register

Role = Mapping[str, Any]  # the metadata of a field


def _role(*names: str) -> Role:
    return {"roles": frozenset(names)}


DEFINES = _role("defines")  # a register that it assigns
POSITION = _role("defines", "position")  # one that index expressions may name; the statement's `symbol` has its range
USES = _role("uses")  # an operand
GUARD = _role("uses", "guard")  # an operand: where it is false no element is touched
READS = _role("memory", "reads")  # a buffer (the element at PLACE) or a matrix
WRITES = _role("memory", "writes")
COMBINES = _role("combines")  # where this is set, the written element is read, too
ADDRESSES = _role("memory", "addresses")  # a buffer of which no element is read or written
ALLOCATES = _role("memory", "allocates")  # a buffer that it makes
MEMORY = _role("memory")  # the buffer of a matrix, whose role is that of the matrix
PLACE = _role("dims", "place")  # the index of an element
DIMS = _role("dims")  # another index expression
VARIABLE = _role("variable")  # a symbol that it makes, for its body
BODY = _role("body")  # statements inside
ORIGIN = _role("origin")  # the user's line


def parts(kind: type) -> Role:
    """Records of a class that has roles of its own."""
    return {"roles": frozenset(), "kind": kind}


def matrix(role: Role, kind: type, rows: str, columns: str, by_rows: bool = False) -> Role:
    """Return the role of a matrix, with the names of the fields that have its sizes. `by_rows`: packed transposed."""
    return {**role, "kind": kind, "sizes": (rows, columns), "by_rows": by_rows}


class Statement:
    """A part of a body. Its fields have roles."""

    __slots__ = ()


ONE, MAYBE, MANY = "one", "maybe", "many"
Thing = TypeVar("Thing")
Kind = TypeVar("Kind")
Getter = Callable[[Any], tuple[Any, ...]]


def _count(item: Field[Any]) -> str:
    """Return how many values a field holds: ONE, MAYBE or MANY."""
    text = str(item.type)
    return MANY if text.startswith("tuple[") else MAYBE if text.endswith("| None") else ONE


def _roles(item: Field[Any]) -> frozenset[str]:
    return item.metadata.get("roles", frozenset())


@cache
def _all_roles(kind: type) -> frozenset[str]:
    """Return all roles that a class has, with "element" and "block" for the ways in which it touches memory."""
    found: set[str] = set()
    for item in fields(kind):
        record = item.metadata.get("kind")
        found |= _roles(item) | (frozenset() if record is None else _all_roles(record))
        if _roles(item) & {"reads", "writes"}:
            found.add("element" if record is None else "block")
    return frozenset(found)


# Queries.


def _gathered(kind: type, wanted: frozenset[str], item: str) -> str:
    """Write the text of a tuple of all that `item` has in some roles, in the order of its fields."""
    text = ""
    for field in fields(kind):
        path, record, roles = f"{item}.{field.name}", field.metadata.get("kind"), _roles(field)
        if record is not None and _count(field) == MANY:
            inner = _gathered(record, wanted, "part")
            text += f"*[value for part in {path} for value in ({inner})], " if inner else ""
        elif record is not None:
            text += _gathered(record, wanted | {"memory"} if wanted & roles else wanted - {"memory"}, path)
        else:
            if roles & wanted:
                many = {ONE: f"{path}, ", MAYBE: f"*(() if {path} is None else ({path},)), ", MANY: f"*{path}, "}
                text += many[_count(field)]
            if "memory" in roles and "shape" in wanted:
                text += f"*{path}.shape, "
    return text


class Query(Generic[Thing]):
    """The items of a statement itself that have some roles, in the order of its fields."""

    def __init__(self, *roles: str):
        self.roles = frozenset(roles)
        self.getters: dict[type, Getter] = {}

    def __call__(self, statement: Statement) -> tuple[Thing, ...]:
        kind: type = statement.__class__
        if kind not in self.getters:
            self.getters[kind] = self.getter(kind)
        return self.getters[kind](statement)

    def getter(self, kind: type) -> Getter:
        text = self.text(kind)
        alone = re.fullmatch(r"\*([\w.]+), ", text)  # the field is the tuple
        return eval(f"lambda item: {alone[1] if alone else f'({text})'}", globals())  # type: ignore[no-any-return]

    def text(self, kind: type) -> str:
        return _gathered(kind, self.roles, "item")


class Reads(Query[Thing]):
    """The buffers that a statement reads, with those that it combines into."""

    def text(self, kind: type) -> str:
        text = super().text(kind)
        for field in fields(kind):
            if "combines" in _roles(field):
                text += f"*(() if item.{field.name} is None else ({_gathered(kind, frozenset({'writes'}), 'item')})), "
        return text


children: Query[Statement] = Query("body")
defines: Query[Register] = Query("defines")
positions: Query[Register] = Query("position")
uses: Query[Operand] = Query("uses")
guards: Query[Operand] = Query("guard")
buffers: Query[Buffer] = Query("memory")
reads: Query[Buffer] = Reads("reads")
writes: Query[Buffer] = Query("writes")
touches: Query[Buffer] = Reads("reads", "writes")
allocates: Query[Buffer] = Query("allocates")
makes: Query[Register | Symbol | Buffer] = Query("defines", "variable", "allocates")  # all that it gives a name to
dims: Query[Dim] = Query("dims")
origins: Query[Location] = Query("origin")
expressions: Query[Dim] = Query("dims", "shape")  # with the shapes of buffers

_known: dict[type, frozenset[str]] = process.keep("roles of statements", {})
_plain: set[type] = process.keep("statements without a body", set())


def roles_of(statement: Statement) -> frozenset[str]:
    """Return all roles of a statement's fields, so that callers skip queries that would find nothing."""
    kind: type = statement.__class__
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _all_roles(kind)
    return found


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield all statements, outer before inner."""
    plain, getters, pending = _plain, children.getters, list(reversed(statements))
    while pending:
        statement = pending.pop()
        yield statement
        kind = statement.__class__
        if kind not in plain:
            if kind in getters:
                pending.extend(reversed(getters[kind](statement)))
            elif "body" in roles_of(statement):
                pending.extend(reversed(children(statement)))
            else:
                plain.add(kind)


def all_expressions(statements: Sequence[Statement]) -> Iterator[Dim]:
    """Yield every size and index expression of statements and of their bodies."""
    for statement in walk(statements):
        yield from expressions(statement)


def chosen(statement: Statement) -> bool:
    """Whether a statement makes positions that data chooses: without operands they are loop-invariant."""
    return roles_of(statement) >= {"position", "uses"}


# The memory that a statement touches: elements, and blocks that are matrices.


class Element(NamedTuple):
    """One element of a buffer that a statement touches."""

    buffer: Buffer
    place: tuple[Dim, ...]
    guard: Operand | None
    reads: bool
    writes: bool


class Block(NamedTuple):
    """A matrix that a statement reads or writes as a whole."""

    matrix: Matrix
    rows: Dim
    columns: Dim
    writes: bool


class Elements(Query[Element]):
    """The elements that a statement touches."""

    def text(self, kind: type) -> str:
        def path(role: str) -> str:
            return next((f"item.{field.name}" for field in fields(kind) if role in _roles(field)), "None")

        text = ""
        for field in fields(kind):
            roles = _roles(field)
            if roles & {"reads", "writes"} and "kind" not in field.metadata:
                is_read = "True" if "reads" in roles else f"{path('combines')} is not None"
                place = f"item.{field.name}, {path('place')}, {path('guard')}"
                text += f"Element({place}, {is_read}, {'writes' in roles}), "
        return text


class Blocks(Query[Block]):
    """The matrices that a statement touches."""

    def text(self, kind: type) -> str:
        text = ""
        for field in fields(kind):
            if "sizes" in field.metadata:
                name, is_written = f"item.{field.name}", "writes" in _roles(field)
                rows, columns = (f"item.{size}" for size in field.metadata["sizes"])
                block = f"Block({name}, {rows}, {columns}, {is_written})"
                if field.metadata["by_rows"]:
                    block = f"Block({name}, {columns}, {rows}, {is_written}) if {name}.panel else {block}"
                text += f"{block}, "
        return text


elements: Query[Element] = Elements()
blocks: Query[Block] = Blocks()


# The rewrite.

CHANGED = ("defines", "uses", "memory", "dims", "body", "origin")


class Rewrite:
    """Statements with other things in them: `Rewrite(memory=..., dims=...)` has a function for each role to change.

    Bodies are rewritten, too, unless `body` makes others."""

    def __init__(self, body: Callable[[Any], Any] | None = None, **changes: Callable[[Any], Any]):
        self.body = body
        self.changes = changes
        self.roles = tuple(changes)
        self.known: dict[type, Callable[[Any, Any], Any] | None] = {}

    def __call__(self, statement: Kind) -> Kind:
        return self.all((statement,))[0]  # type: ignore[no-any-return]

    def all(self, statements: Sequence[object]) -> tuple[Any, ...]:
        known, body, found = self.known, self.body or self.all, []
        for statement in statements:
            kind = statement.__class__
            change = known[kind] if kind in known else self._learned(kind)
            found.append(statement if change is None else change(statement, body))
        return tuple(found)

    def _learned(self, kind: type) -> Callable[[Any, Any], Any] | None:
        maker = _maker(kind, self.roles)
        self.known[kind] = None if maker is None else maker(**self.changes)
        return self.known[kind]


@cache
def _maker(kind: type, changed: tuple[str, ...]) -> Callable[..., Callable[[Any, Any], Any]] | None:
    """Compile the rewrite of a class: a function of the changes that returns a function of a statement and of the
    rewrite of bodies; None if no field of such a statement changes."""
    kinds: dict[str, type] = {}
    text = _remade(kind, changed, "item", kinds)
    if text == "item":
        return None
    return eval(f"lambda {', '.join(changed)}: lambda item, body: {text}", kinds)  # type: ignore[no-any-return]


def _remade(kind: type, changed: Sequence[str], item: str, kinds: dict[str, type]) -> str:
    """Write the text that makes a changed copy of `item`. `kinds`: filled with the classes that it names."""
    found: list[str] = []
    for field in fields(kind):
        path, count, record = f"{item}.{field.name}", _count(field), field.metadata.get("kind")
        role = next((role for role in CHANGED if role in (*changed, "body") and role in _roles(field)), None)
        if record is not None and count == MANY:
            inner = _remade(record, changed, "part", kinds)
            found.append(path if inner == "part" else f"tuple([{inner} for part in {path}])")
        elif record is not None:
            found.append(_remade(record, changed, path, kinds))
        elif role is None:
            found.append(path)
        elif role == "body":
            found.append(f"tuple(body({path}))")
        elif count == MANY:
            found.append(f"tuple([{role}(value) for value in {path}])")
        elif count == MAYBE and role != "origin":
            found.append(f"None if {path} is None else {role}({path})")
        else:
            found.append(f"{role}({path})")
    if found == [f"{item}.{field.name}" for field in fields(kind)]:
        return item
    kinds[kind.__name__] = kind
    return f"{kind.__name__}({', '.join(found)})"
