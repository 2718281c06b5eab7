"""The loop IR: one kernel is a tree of loops over scalars.

The whole grammar:

    Kernel     buffers, then statements
    Loop       over one variable; its kind says how its iterations run; may reduce (accumulators)
    Concurrent several parallel loops that do not depend on each other, in one parallel region
    Let        a scalar op of kernels/scalar/table.py on registers and literals
    Index      an index expression as an i64 register
    Load       one element of a buffer (zero where the guard is false)
    Store      one element of a buffer (skipped where the guard is false; may combine with what is there, or
               stream: a non-temporal store, past the caches)
    Fetch      a prefetch of an element into L2; it changes no result
    Prefix     a combiner over the iterations of the loop it stands in, up to this one
    Check      a data-dependent index: in range or an error is reported; gives a guard
    Lead       the number of elements of a buffer before its first whole cache line; no result depends on it
    Alloc      scratch that lives for one iteration of the loop that it stands in (see Pack for the exception)
    Gemm       a matrix product on sub-matrices of buffers
    Transpose  a block of a buffer copied, read along its columns and written along its rows
    Pack       a packed copy of some columns of a matrix, in the order in which Gemm reads them
    Sort       rows of a matrix in sorted order, or the places of their elements

A statement class declares the role of each field (roles.py); passes and proofs take it by its roles. Its meaning is
said in text.py, parser.py and verify.py here, in backend/interp/loops.py and in backend/cpu/codegen/region.py; for GPUs
in backend/cuda/codegen/emit.py, too, and its cost, unless it is 1, in analysis.py.

Registers are assigned once and live until the end of the loop body that assigns them. Buffers are dense and
row-major; an index is one expression a dimension. A scheduling decision is visible here: it is a loop's kind
and width, a split loop, a scratch buffer, never a flag somewhere else.

A `vector` loop of width w runs w iterations at a time; iterations must not depend on each other except
through its accumulators and prefixes. A `parallel` loop hands out runs of `width` iterations to threads.
Accumulators and prefixes combine in an order that depends on the loop's bounds and width alone, so the number of
threads never shows. A loop's bounds may name checked positions: its trip count may depend on data.

On a GPU, where threads come in warps and blocks of `width` threads, the outermost loop of a tree is

    grid       each thread of the grid takes iterations
    block      each block does: all of its threads run the body together
    warp       each warp does: all of its threads run the body together

and inside of the latter two

    thread     the threads of the block, or of the warp, take iterations; accumulators and prefixes combine across them

Statements outside of `thread` loops are computed by all threads alike, and one of them stores. Memory of an Alloc is
shared by them; inside of a `thread` loop it is private to each thread.
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

KINDS = ("serial", "parallel", "vector", "grid", "block", "warp", "thread")  # kinds of loops
OUTERMOST = ("parallel", "grid", "block", "warp")  # kinds of loops that are outermost
TEAMS = ("block", "warp")  # kinds of loops whose threads run a body together
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
    """A constant of a type, rounded to the type: 0.1 as f32 is 0.10000000149011612."""

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
    """Round a number to a type; return it as a Python number."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)  # type: ignore[arg-type]
    with np.errstate(over="ignore"):
        number = dtype.numpy.type(value)
    return float(number) if dtype.kind in "fe" else complex(number)


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
    stream: bool = False  # non-temporal, of whole aligned vectors
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Fetch(Statement):
    """Prefetches an element into L2. The index may be outside of the buffer: nothing is read then."""

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
    site: int  # index into Kernel.sites: the op that a failure is reported for

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
    start: Operand = field(metadata=USES)  # loop-invariant


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

    A packed matrix consists of panels of `panel` columns. Its row stride is the width of a panel, its column_stride is
    the distance of panels: element (r, c) lies at
    offset + r * row_stride + c // panel * column_stride + c % panel.

    A packed matrix of 16-bit elements interleaves pairs of rows, as dot-product instructions read them: element (r, c)
    lies at
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

    The two are different buffers of one type: bits are moved unchanged. `ahead`: prefetch distance, in elements from
    the source; None for the target's default.
    """

    target: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "columns"))
    source: Matrix = field(metadata=matrix(READS, Matrix, "rows", "columns"))
    rows: Dim = field(metadata=DIMS)
    columns: Dim = field(metadata=DIMS)
    ahead: Dim | None = field(default=None, metadata=DIMS)


@dataclass(frozen=True, slots=True)
class Pack(Statement):
    """output = source, `rows` x `columns`, in panels. The padding of the last panel is unspecified.

    `once`: loop-invariant in all loops around, so each thread packs in its first iteration only. The output is scratch
    that nothing else writes, and is live through all iterations.
    """

    output: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "columns"))
    source: Matrix = field(metadata=matrix(READS, Matrix, "rows", "columns"))
    rows: Dim = field(metadata=DIMS)
    columns: Dim = field(metadata=DIMS)
    once: bool = False
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Sort(Statement):
    """target = the elements of each row of `source` in a stable sorted order, or their places in the row: `kept` of
    them, from `first` on.

    NaN is the largest, and equal to NaN; -0.0 and 0.0 are equal. The columns of both are adjacent. `room` is working
    memory, left unspecified: `space` words of 64 bits for each row (kernels/sort.py).
    """

    target: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "kept"))
    source: Matrix = field(metadata=matrix(READS, Matrix, "rows", "length"))
    room: Matrix = field(metadata=matrix(WRITES, Matrix, "rows", "space"))
    rows: Dim = field(metadata=DIMS)
    length: Dim = field(metadata=DIMS)
    first: Dim = field(metadata=DIMS)
    kept: Dim = field(metadata=DIMS)
    space: Dim = field(metadata=DIMS)
    descending: bool = False
    places: bool = False
    origin: Location | None = field(default=None, compare=False, metadata=ORIGIN)


@dataclass(frozen=True, slots=True)
class Site:
    """The op that the failure of a Check is reported for, and the user's line."""

    op: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    sites: tuple[Site, ...] = ()


def prefixes(loop: Loop) -> list[Prefix]:
    """Return the prefixes that run along a loop."""
    return [item for item in loop.body if isinstance(item, Prefix)]


def with_body(loop: Loop, body: Sequence[Statement]) -> Loop:
    return replace(loop, body=tuple(body))


def own_scratch(statements: Sequence[Statement], inside: bool = False) -> Iterator[Buffer]:
    """Yield the buffers allocated inside of `thread` loops: private to each thread of a team."""
    for item in statements:
        if inside:
            yield from allocates(item)
        yield from own_scratch(children(item), inside or (isinstance(item, Loop) and item.kind == "thread"))


def used(statement: Statement) -> list[str]:
    """Return the names of the registers that a statement itself uses."""
    return [item.name for item in uses(statement) if item.__class__ is Register]


def names(kernel: Kernel) -> set[str]:
    """Return all names in a kernel."""
    return {item.name for item in kernel.buffers} | own_names(kernel)


def own_names(kernel: Kernel) -> set[str]:
    """Return the names of registers, variables and scratch."""
    return {item.name for statement in walk(kernel.body) for item in makes(statement)}


def fresh(kernel: Kernel, *forms: str) -> Iterator[int]:
    """Yield numbers that make fresh names of a kernel in all of some forms, such as "%t{}"."""
    taken = names(kernel)  # when the first number is asked for: most kernels need none
    yield from (number for number in counter() if not any(form.format(number) in taken for form in forms))
