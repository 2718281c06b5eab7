"""The loop IR: one kernel is a tree of loops over scalars.

The whole grammar:

    Kernel     buffers, then statements
    Loop       over one variable; its kind says who runs its iterations; may reduce (accumulators)
    Concurrent several parallel loops that do not depend on each other, in one parallel region
    Let        a scalar op of kernels/scalar/table.py on registers and literals
    Index      an index expression as an i64 register
    Load       one element of a buffer (zero where the guard is false)
    Store      one element of a buffer (skipped where the guard is false; may combine with what is there, or
               stream: go to memory without a stay in the caches)
    Fetch      a hint that an element will be read: it comes near, and nothing else happens
    Prefix     a combiner over the iterations of the loop it stands in, up to this one
    Check      a data-dependent index: in range or an error is reported; gives a guard
    Lead       how many elements of a buffer lie before its first whole cache line; no result depends on it
    Alloc      scratch that lives for one iteration of the loop that it stands in (see Pack for the exception)
    Gemm       a matrix product on sub-matrices of buffers
    Transpose  a block of a buffer copied, read along its columns and written along its rows
    Pack       a copy of some columns of a matrix in the order in which Gemm reads them

Registers are assigned once and live until the end of the loop body that assigns them. Buffers are dense and
row-major; an index is one expression a dimension. A scheduling decision is visible here: it is a loop's kind
and width, a split loop, a scratch buffer, never a flag somewhere else.

A `vector` loop of width w runs w iterations at a time; iterations must not depend on each other except
through its accumulators and prefixes. A `parallel` loop hands out runs of `width` iterations to threads.
Accumulators and prefixes combine in an order that depends on the loop's bounds and width alone, so the number of
threads never shows. A loop's bounds may name checked positions: data says how often it runs.

On a GPU, where threads come in warps and blocks of `width` threads, the outermost loop of a tree is

    grid       each thread of the grid takes iterations
    block      each block does: all of its threads run the body together
    warp       each warp does: all of its threads run the body together

and inside of the latter two

    thread     the threads of the block, or of the warp, take iterations; accumulators and prefixes combine across them

What is in no `thread` loop is computed by all threads alike, and stored by one of them. What an Alloc makes is shared
by them; inside of a `thread` loop each thread has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as counter

import numpy as np

from ...ir.graph import Location
from ...ir.symbolic import Dim, Symbol
from ...ir.types import DType
from ..machine import CACHE_LINE
from .roles import (
    ADDRESSES,
    ALLOCATES,
    BODY,
    COMBINES,
    DEFINES,
    DIMS,
    GUARD,
    MEMORY,
    ORIGIN,
    PLACE,
    POSITION,
    READS,
    USES,
    VARIABLE,
    WRITES,
    allocates,
    children,
    makes,
    matrix,
    parts,
    uses,
)
from .roles import Statement as Statement
from .roles import walk as walk

KINDS = ("serial", "parallel", "vector", "grid", "block", "warp", "thread")  # of loops
OUTERMOST = ("parallel", "grid", "block", "warp")  # the kinds of loops that nothing is around
TEAMS = ("block", "warp")  # whose threads run a body together
CONVERSIONS = ("cast", "bitcast", "round_f16", "round_bf16")  # scalar ops whose result has a type of its own


@dataclass(frozen=True, slots=True)
class Register:
    """A scalar value: a name such as %3 and its type. f16 and bf16 occur in buffers only, never here."""

    name: str
    dtype: DType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A number of a type, exactly as the type has it: 0.1 as f32 is 0.10000000149011612."""

    value: bool | int | float | complex
    dtype: DType

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", as_type(self.value, self.dtype))

    def __hash__(self) -> int:
        # 0.0 and -0.0, True and 1 are different literals.
        return hash((repr(self.value), self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and repr(self.value) == repr(other.value) and self.dtype is other.dtype


def as_type(value: bool | int | float | complex, dtype: DType) -> bool | int | float | complex:
    """The Python number that a number is as a type."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        number = dtype.numpy.type(value)
    return float(number) if dtype.kind == "f" else complex(number)


Operand = Register | Literal


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array. role: in, out, temp (made and used by this kernel), or scratch (an Alloc's)."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    role: str


@dataclass(frozen=True, slots=True)
class Let(Statement):
    result: Register = field(metadata=DEFINES)
    op: str  # a scalar op; "cast" converts to the result's type
    operands: tuple[Operand, ...] = field(metadata=USES)
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)  # the user's line


@dataclass(frozen=True, slots=True)
class Index(Statement):
    result: Register = field(metadata=DEFINES)
    expression: Dim = field(metadata=DIMS)


@dataclass(frozen=True, slots=True)
class Load(Statement):
    result: Register = field(metadata=DEFINES)
    buffer: Buffer = field(metadata=READS)
    index: tuple[Dim, ...] = field(metadata=PLACE)
    guard: Operand | None = field(default=None, metadata=GUARD)
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Store(Statement):
    buffer: Buffer = field(metadata=WRITES)
    index: tuple[Dim, ...] = field(metadata=PLACE)
    value: Operand = field(metadata=USES)
    guard: Operand | None = field(default=None, metadata=GUARD)
    combine: str | None = field(default=None, metadata=COMBINES)  # a combiner of kernels/scalar/table.py
    stream: bool = False  # whole aligned vectors, which nothing reads soon
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Fetch(Statement):
    """Brings an element from memory into the second cache. One that lies outside of the buffer is not touched."""

    buffer: Buffer = field(metadata=ADDRESSES)
    index: tuple[Dim, ...] = field(metadata=PLACE)


@dataclass(frozen=True, slots=True)
class Check(Statement):
    """`position` is the index as a register that index expressions may name; `guard` says that it is in range."""

    position: Register = field(metadata=POSITION)
    guard: Register = field(metadata=DEFINES)
    value: Operand = field(metadata=USES)
    size: Dim = field(metadata=DIMS)
    wrap: bool
    site: int  # which of Kernel.sites to blame

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.position.name, 0, self.size - 1)


@dataclass(frozen=True, slots=True)
class Lead(Statement):
    """`position` is a number that index expressions may name; an interpreter may give any in its range."""

    position: Register = field(metadata=POSITION)
    buffer: Buffer = field(metadata=ADDRESSES)

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.position.name, 0, CACHE_LINE // self.buffer.dtype.bytes - 1)


@dataclass(frozen=True, slots=True)
class Prefix(Statement):
    """result = the combiner over `start` and the values of all iterations of the enclosing loop up to this one."""

    result: Register = field(metadata=DEFINES)
    combiner: str
    value: Operand = field(metadata=USES)
    start: Operand = field(metadata=USES)  # known before the loop


@dataclass(frozen=True, slots=True)
class Alloc(Statement):
    buffer: Buffer = field(metadata=ALLOCATES)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """results = the combiner over all iterations' values."""

    results: tuple[Register, ...] = field(metadata=DEFINES)
    combiner: str
    values: tuple[Operand, ...] = field(metadata=USES)


@dataclass(frozen=True, slots=True)
class Loop(Statement):
    kind: str  # one of KINDS
    variable: Symbol = field(metadata=VARIABLE)
    start: Dim = field(metadata=DIMS)
    stop: Dim = field(metadata=DIMS)
    body: tuple[Statement, ...] = field(metadata=BODY)
    width: int = 1
    accumulators: tuple[Accumulator, ...] = field(default=(), metadata=parts(Accumulator))

    @property
    def extent(self) -> Dim:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Concurrent(Statement):
    branches: tuple[Loop, ...] = field(metadata=BODY)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Part of a buffer seen as a matrix: element (r, c) lies at offset + r * row_stride + c * column_stride.

    A packed one consists of panels of `panel` columns. Its rows are as far apart as a panel is wide, and its
    column_stride is the distance of panels: element (r, c) lies at
    offset + r * row_stride + c // panel * column_stride + c % panel.

    Of elements of 16 bits, two rows lie together in a packed one, each element beside the one of the next row, as
    processors read them: element (r, c) lies at
    offset + r // 2 * 2 * row_stride + c // panel * column_stride + c % panel * 2 + r % 2.
    It has an even number of rows, the last of which may be zeros.
    """

    buffer: Buffer = field(metadata=MEMORY)
    offset: Dim = field(metadata=DIMS)
    row_stride: Dim = field(metadata=DIMS)
    column_stride: Dim = field(metadata=DIMS)
    panel: int = 0


@dataclass(frozen=True, slots=True)
class Gemm(Statement):
    """output = left @ right, with `rows` x `depth` times `depth` x `columns`.

    The output's columns are adjacent; the operands may have any strides. Both may be packed: the right one as it is,
    the left one transposed, so that its panels are of rows.
    """

    output: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "columns"))
    left: Matrix = field(metadata=matrix(READS, Matrix, "rows", "depth", by_rows=True))
    right: Matrix = field(metadata=matrix(READS, Matrix, "depth", "columns"))
    rows: Dim = field(metadata=DIMS)
    columns: Dim = field(metadata=DIMS)
    depth: Dim = field(metadata=DIMS)
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Transpose(Statement):
    """target = source, both `rows` x `columns`, where the target's columns are adjacent and the source's rows are.

    The two are different buffers of one type: elements are moved as they lie in memory. As many elements are fetched
    that lie so far `ahead` of the source; where it does not say, a target knows best.
    """

    target: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "columns"))
    source: Matrix = field(metadata=matrix(READS, Matrix, "rows", "columns"))
    rows: Dim = field(metadata=DIMS)
    columns: Dim = field(metadata=DIMS)
    ahead: Dim | None = field(default=None, metadata=DIMS)


@dataclass(frozen=True, slots=True)
class Pack(Statement):
    """output = source, `rows` x `columns`, in panels. What fills up the last panel is not specified.

    `once`: it is the same for all iterations of the loops around, so each thread does it for its first one only. The
    output is scratch that nothing else writes, and lives for as long.
    """

    output: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "columns"))
    source: Matrix = field(metadata=matrix(READS, Matrix, "rows", "columns"))
    rows: Dim = field(metadata=DIMS)
    columns: Dim = field(metadata=DIMS)
    once: bool = False
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Site:
    """What to blame when a Check fails."""

    op: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    sites: tuple[Site, ...] = ()


def prefixes(loop: Loop) -> list[Prefix]:
    """The prefixes that run along a loop."""
    return [item for item in loop.body if isinstance(item, Prefix)]


def with_body(loop: Loop, body: Sequence[Statement]) -> Loop:
    return replace(loop, body=tuple(body))


def own_scratch(statements: Sequence[Statement], inside: bool = False) -> Iterator[Buffer]:
    """What is allocated inside of `thread` loops: memory that each thread of a team has for itself."""
    for item in statements:
        if inside:
            yield from allocates(item)
        yield from own_scratch(children(item), inside or (isinstance(item, Loop) and item.kind == "thread"))


def used(statement: Statement) -> list[str]:
    """The names of the registers that a statement itself uses."""
    return [item.name for item in uses(statement) if item.__class__ is Register]


def names(kernel: Kernel) -> set[str]:
    """All names that mean something in a kernel."""
    return {item.name for item in kernel.buffers} | own_names(kernel)


def own_names(kernel: Kernel) -> set[str]:
    """The names of registers, variables and scratch memory."""
    return {item.name for statement in walk(kernel.body) for item in makes(statement)}


def fresh(kernel: Kernel, *forms: str) -> Iterator[int]:
    """Numbers that give, put into each of some forms such as "%t{}", names that a kernel has not."""
    taken = names(kernel)  # at the first one: most kernels need none
    yield from (number for number in counter() if not any(form.format(number) in taken for form in forms))
