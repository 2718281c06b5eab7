"""Map the loops of a kernel to a GPU: grid, blocks, warps and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...ir.proofs import ceil_divide, floor_divide, limit, minimum, remainder
from ...ir.symbolic import Compound, Dim, Expr, Symbol, product, symbols_of
from ...kernels.gpu import GPU, Gpu, block_threads
from ...kernels.loop.analysis import count, independent, stride
from ...kernels.loop.ir import (
    Accumulator,
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Gemm,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Matrix,
    Register,
    Statement,
    Store,
    Transpose,
    fresh,
    own_scratch,
    prefixes,
    walk,
    with_body,
)
from ...kernels.loop.roles import allocates
from ..memory.arena import buffer_bytes
from ..registry import loop_pass
from .substitute import substitute_statement

PURE = (Let, Load, Index, Check)


@loop_pass("grid")
def grid(kernel: Kernel, *, gpu: Gpu = GPU) -> Kernel:
    """Map each loop tree to a grid of threads.

        serial %i in 0..M {                  grid<256> %t0 in 0..(M * N // 4) {
          serial %j in 0..N { ... }    ->      vector<4> %j in ... { ... }
        }                                    }

        serial %i in 0..4096 {               block<256> %i in 0..4096 {
          serial %j in 0..4000 reduce ...  ->  thread %j in 0..4000 reduce ...
          serial %j in 0..4000 { ... }         thread %j in 0..4000 { ... }
        }                                    }

    A thread computes one independent element or a vector of them. A row with inner loops goes to a warp or a block, by
    its length; where memory is adjacent from row to row instead, as for sums of columns, a row goes to one thread.
    Loops that threads cannot share run in one of them. Sizes alone decide, so the bits are the same on every GPU.
    """
    return replace(kernel, body=tuple(_top(item, _Names(kernel, gpu)) for item in kernel.body))


class _Names:
    """Fresh symbols for a kernel, and the GPU that it is mapped to."""

    def __init__(self, kernel: Kernel, gpu: Gpu):
        self.gpu = gpu
        self.fresh: Iterator[str] = (f"%g{number}" for number in fresh(kernel, "%g{}"))

    def symbol(self, extent: Dim) -> Symbol:
        return Symbol(next(self.fresh), 0, extent - 1)


def _top(statement: Statement, names: _Names) -> Statement:
    if isinstance(statement, Concurrent):
        branches = [_top(branch, names) for branch in statement.branches]
        return Concurrent(tuple(branch for branch in branches if isinstance(branch, Loop)))
    return _tree(statement, names) if isinstance(statement, Loop) else statement


def _tree(loop: Loop, names: _Names) -> Loop:
    nest, body = _nest(loop)
    if not nest:
        return _together([], (loop,), names)
    if not any(isinstance(item, (Loop, Alloc, Gemm, Transpose)) for item in body):
        return _elements(nest, body, names)
    if not any(isinstance(item, (Alloc, Gemm)) for item in walk(body)):
        inner = [item for item in body if isinstance(item, Loop)]
        if _adjacent(nest[-1], body) > sum(map(_best, inner)) or _length(body) <= names.gpu.alone:
            return _threads(nest, body, names)
    return _together(nest, body, names)


def _nest(loop: Loop) -> tuple[list[Loop], tuple[Statement, ...]]:
    """Return a nest of loops whose iterations are all independent, and its body. Statements between the loops sink into
    the body: on a GPU, a load for each thread costs less than loops that cannot be collapsed."""
    nest: list[Loop] = []
    around: list[Statement] = []
    while not loop.accumulators and _free(loop):
        nest.append(loop)
        *before, last = loop.body
        variables = {item.variable for item in nest}
        positions = {item.symbol for item in before if isinstance(item, Check)}
        if not isinstance(last, Loop) or not all(isinstance(item, PURE) for item in before):
            break
        if (variables | positions) & (symbols_of(last.start) | symbols_of(last.stop)) or last.accumulators:
            break
        if not _free(last):
            break
        around += before
        loop = last
    return nest, (*around, *nest[-1].body) if nest else ()


def _free(loop: Loop) -> bool:
    """Whether iterations may run in any order, at once."""
    return independent(loop) or (loop.extent == 1 and not prefixes(loop))


def _flat(nest: Sequence[Loop], body: Sequence[Statement], names: _Names) -> tuple[Symbol, Dim, tuple[Statement, ...]]:
    """Collapse a nest: return one variable for all iterations, their number, and the body in that variable."""
    if len(nest) == 1 and nest[0].start == 0:
        return nest[0].variable, nest[0].stop, tuple(body)
    total = product(item.extent for item in nest)
    variable = names.symbol(total)
    rest: Dim = variable.expr()
    places: dict[Symbol, Dim] = {}
    for item in reversed(nest[1:]):
        places[item.variable] = item.start + remainder(rest, item.extent)
        rest = floor_divide(rest, item.extent)
    places[nest[0].variable] = nest[0].start + rest
    return variable, total, tuple(substitute_statement(item, places) for item in body)


def _block(total: Dim, gpu: Gpu) -> int:
    """Return the threads of a block: whole warps, not more than there is work for."""
    return min(gpu.threads, -(-total // gpu.warp) * gpu.warp) if isinstance(total, int) and total else gpu.threads


def _threads(nest: Sequence[Loop], body: Sequence[Statement], names: _Names) -> Loop:
    """Map each iteration to a thread."""
    variable, total, inside = _flat(nest, body, names)
    return Loop("grid", variable, 0, total, inside, _block(total, names.gpu))


def _elements(nest: list[Loop], body: tuple[Statement, ...], names: _Names) -> Loop:
    """Map elements to threads: a vector of adjacent ones to each, if possible."""
    last = nest[-1]
    width = _width(last, body, names.gpu)
    whole = isinstance(last.extent, int) and last.extent % width == 0
    if width == 1 or last.start != 0 or (len(nest) > 1 and not whole):
        return _threads(nest, body, names)
    part = names.symbol(ceil_divide(last.extent, width))
    start = part.expr() * width
    stop = start + width if whole else minimum(start + width, last.stop)
    inner = Loop("vector", last.variable, start, stop, body, width)
    outer = Loop("serial", part, 0, ceil_divide(last.extent, width), (inner,))
    return _threads([*nest[:-1], outer], (inner,), names)


def _width(loop: Loop, body: Sequence[Statement], gpu: Gpu) -> int:
    """Return how many iterations move 16 bytes; 1 if memory is not adjacent along the loop."""
    accesses = [item for item in walk(body) if isinstance(item, (Load, Store))]
    near = [item.buffer.dtype for item in accesses if stride(item, loop.variable) == 1]
    plain = all(isinstance(item, (Let, Load, Index, Store)) for item in body)
    scattered = any(stride(item, loop.variable) not in (0, 1) for item in accesses)
    if not near or scattered or not plain or any(item.is_complex for item in near):
        return 1
    width = gpu.access // max(item.bytes for item in near)
    if isinstance(loop.extent, int) and loop.extent < 2 * width:
        return 1
    return min(width, 8)


def _adjacent(loop: Loop, body: Sequence[Statement]) -> int:
    """Count the adjacent accesses along a loop less the scattered ones."""
    score = 0
    for item in walk(body):
        if isinstance(item, (Load, Store)):
            step = stride(item, loop.variable)
            score += 1 if step == 1 else 0 if step == 0 else -1
    return score


def _best(loop: Loop) -> int:
    """Return the most adjacent accesses that a loop of this subtree could have."""
    inner = sum(_best(item) for item in loop.body if isinstance(item, Loop))
    return max(_adjacent(loop, loop.body), inner)


def _length(body: Sequence[Statement]) -> int:
    """Return the iterations of the longest inner nest."""
    inner = [item for item in body if isinstance(item, Loop)]
    return max((_most(item.extent) * max(_length(item.body), 1) for item in inner), default=0)


def _most(extent: Dim) -> int:
    """Return the number of iterations, or a bound where the extent is dynamic."""
    upper = _upper(extent)
    return count(extent) if upper is None else upper


def _upper(extent: Dim) -> int | None:
    """Return an upper bound of an extent, or None."""
    if isinstance(extent, int):
        return extent
    found = [limit(extent, True)]
    for monomial, coefficient in extent.terms:
        smaller = monomial[0] if len(monomial) == 1 and coefficient == 1 else None
        if isinstance(smaller, Compound) and smaller.operator == "min":
            # min(32 * q + 32, N) - 32 * q is at most 32.
            rest = extent - Expr(((monomial, 1),))
            found += [limit(rest + part, True) for part in (smaller.left, smaller.right)]
    return min((item for item in found if isinstance(item, int)), default=None)


def _together(nest: Sequence[Loop], body: Sequence[Statement], names: _Names) -> Loop:
    """Map each iteration to a warp or block, whose threads share the inner loops."""
    length = _length(body)
    variable, total, inside = _flat(nest, body, names) if nest else (names.symbol(1), 1, tuple(body))
    products = [item for item in walk(inside) if isinstance(item, Gemm)]
    if products:
        tile = products[0].output.row_stride
        assert isinstance(tile, int)
        kind, width = "block", block_threads(tile)
    elif nest and length <= names.gpu.warp_row and not any(isinstance(item, Transpose) for item in inside):
        kind, width = "warp", names.gpu.warp
    else:
        kind, width = (
            "block",
            min(
                names.gpu.most_threads, max(2 * names.gpu.warp, 1 << max(length // names.gpu.each - 1, 1).bit_length())
            ),
        )
    shared = tuple(_share(item, width, names) for item in inside)
    if kind == "warp":
        kept = _scratch_bytes(shared) - sum(count(buffer_bytes(item)) for item in own_scratch(shared))
        width *= min(
            names.gpu.row_warps, max(1, count(total)), names.gpu.shared // kept if kept else names.gpu.row_warps
        )
    return Loop(kind, variable, 0, total, shared, width)


def _scratch_bytes(statements: Sequence[Statement]) -> int:
    """Return the bytes that statements allocate."""
    return sum(count(buffer_bytes(buffer)) for item in walk(statements) for buffer in allocates(item))


def _transposed(statement: Transpose, names: _Names) -> Loop:
    """Write a transposition as loops: the inner one runs along global memory, so that accesses coalesce."""
    source, target = statement.source, statement.target
    row, column = names.symbol(statement.rows), names.symbol(statement.columns)

    def place(matrix: Matrix) -> tuple[Buffer, tuple[Dim, ...]]:
        at = matrix.offset + row.expr() * matrix.row_stride + column.expr() * matrix.column_stride
        return replace(matrix.buffer, shape=(product(matrix.buffer.shape),)), (at,)

    # Half precision is converted and back: no bit changes.
    register = Register(next(names.fresh), source.buffer.dtype.compute)
    body = (Load(register, *place(source)), Store(*place(target), register))
    loops = [(row, statement.rows), (column, statement.columns)]
    if source.buffer.role != "scratch":
        loops.reverse()
    (outer, height), (inner, width) = loops
    return Loop("serial", outer, 0, height, (Loop("serial", inner, 0, width, body),))


def _share(statement: Statement, lanes: int, names: _Names) -> Statement:
    """Share an inner loop out to the threads of a warp or block."""
    if isinstance(statement, Transpose):
        statement = _transposed(statement, names)
    if not isinstance(statement, Loop):
        return statement
    pair = _pair(statement, names)
    if pair is not None:
        return pair
    loop = _merged(statement, names)
    inner = [item for item in loop.body if isinstance(item, Loop)]
    free = loop is not statement or independent(
        replace(loop, body=tuple(item for item in loop.body if item not in prefixes(loop)))
    )
    # Memory allocated inside is private to each thread, and a matrix product is for a whole block.
    free = (
        free
        and _scratch_bytes(loop.body) <= names.gpu.own
        and not any(isinstance(item, Gemm) for item in walk(loop.body))
    )
    if inner:
        if free and not prefixes(loop) and _adjacent(loop, loop.body) > sum(map(_best, inner)):
            return replace(loop, kind="thread")
        return with_body(loop, [_share(item, lanes, names) for item in loop.body])
    if not free:
        return loop
    return replace(loop, kind="thread") if prefixes(loop) else _in_vectors(loop, lanes, names)


def _pair(loop: Loop, names: _Names) -> Loop | None:
    """Collapse two nested independent loops into one loop for threads. Ends that depend on the block are replaced by
    their upper bounds; loops of one iteration or none guard the iterations past the true end.

        serial %i in 0..(min(64, N)) {        thread %g0 in 0..1024 {
          serial %j in 0..(min(64, M)) {        serial %i in (%g0 // 16)..(min(%g0 // 16 + 1, N)) {
            ...                          ->       vector<4> %j in (4 * (%g0 % 16))..(min(4 * (%g0 % 16) + 4, M)) {
    """
    (inner, *rest) = loop.body or (None,)
    if not isinstance(inner, Loop) or rest or loop.accumulators or inner.accumulators or prefixes(inner):
        return None
    if any(isinstance(item, Loop) for item in inner.body) or loop.variable in symbols_of(inner.start + inner.stop):
        return None
    if not (independent(loop) and independent(inner)):
        return None
    height, across = _upper(loop.extent), _upper(inner.extent)
    if height is None or across is None or any(isinstance(item, (Alloc, Gemm)) for item in inner.body):
        return None
    width = _width(replace(inner, start=0, stop=across), inner.body, names.gpu)
    steps = ceil_divide(across, width)
    number = names.symbol(height * steps)
    row = loop.start + floor_divide(number.expr(), steps)
    column = inner.start + remainder(number.expr(), steps) * width
    body = _cut(inner, column, width, across)
    return Loop("thread", number, 0, height * steps, _cut(replace(loop, body=body), row, 1, height))


def _cut(loop: Loop, start: Dim, width: int, most: int) -> tuple[Statement, ...]:
    """Return `width` iterations of a loop from `start` on, those past its end cut off."""
    whole = loop.extent == most and most % width == 0
    if width == 1 and whole:
        return tuple(substitute_statement(item, {loop.variable: start}) for item in loop.body)
    stop = start + width if whole else minimum(start + width, loop.stop)
    return (replace(loop, kind="vector" if width > 1 else "serial", width=width, start=start, stop=stop),)


def _merged(loop: Loop, names: _Names) -> Loop:
    """Collapse perfectly nested loops with independent iterations and the same reductions into one."""
    while True:
        (inner, *rest) = loop.body or (None,)
        if not isinstance(inner, Loop) or rest:
            return loop
        if (
            loop.variable in symbols_of(inner.start + inner.stop)
            or prefixes(inner)
            or not (independent(loop) and independent(inner))
        ):
            return loop
        if [item.values for item in loop.accumulators] != [item.results for item in inner.accumulators]:
            return loop
        if [item.combiner for item in loop.accumulators] != [item.combiner for item in inner.accumulators]:
            return loop
        variable, total, body = _flat([loop, inner], inner.body, names)
        accumulators = tuple(
            Accumulator(item.results, item.combiner, part.values)
            for item, part in zip(loop.accumulators, inner.accumulators, strict=True)
        )
        loop = Loop("serial", variable, 0, total, body, 1, accumulators)


def _in_vectors(loop: Loop, lanes: int, names: _Names) -> Loop:
    """Return a loop for threads in which each takes a vector of adjacent iterations, if there are enough."""
    width = _width(loop, loop.body, names.gpu)
    extent = loop.extent
    if width == 1 or not isinstance(extent, int) or extent % width or extent < width * lanes:
        return replace(loop, kind="thread")
    part = names.symbol(extent // width)
    start = loop.start + part.expr() * width
    parts = tuple(
        replace(item, results=tuple(Register(f"{result.name}.part", result.dtype) for result in item.results))
        for item in loop.accumulators
    )
    inner = replace(loop, kind="vector", width=width, start=start, stop=start + width, accumulators=parts)
    whole = tuple(
        Accumulator(item.results, item.combiner, piece.results)
        for item, piece in zip(loop.accumulators, parts, strict=True)
    )
    return Loop("thread", part, 0, extent // width, (inner,), 1, whole)
