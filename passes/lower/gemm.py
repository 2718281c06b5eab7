"""Lower a matrix product to loops over tiles, with the ops that follow it in its group.

    parallel over parts:  pack a matrix, if several tiles share it and it is large
    parallel over tiles:  pack a matrix, if it is the same for all: once for each thread
                          gemm of one tile
                          loops over the tile: the ops that follow, reductions of its rows if it has whole ones
                          gemm of their result, if another product follows, and loops over its tile

Where the machine does not multiply f16 and bf16 matrices itself, they are copied to f32 first. Complex matrices are
copied to real ones of twice the depth: with (re, im) for each element of the left matrix and ((re, im), (-im, re)) for
each of the right one, the product is (re, im) again. Products of integers, and of vectors adjacent along the depth, are
plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ir.graph import Value
from ...ir.proofs import ceil_divide, floor_divide, maximum, minimum, remainder
from ...ir.record import Record
from ...ir.symbolic import Dim, product
from ...kernels import gpu
from ...kernels.gemm import (
    BYTES,
    TILING,
    RegisterTile,
    by_dots,
    is_own,
    row_tile,
    tile_shape,
)
from ...kernels.loop.ir import Alloc, Buffer, Gemm, Matrix, Operand, Pack, Store
from ...ops.kinds import Contract
from ..fusion.axes import batched_matrix
from ..fusion.gemm_chain import product_op
from ..fusion.groups import Group
from ..fusion.inline import panel_width
from .elements import Lowering, Saved, lowers
from .loop_tree import Tree


class Source(Record):
    """A batch of matrices that a product reads: the offset of each, the strides, the panel width if packed."""

    buffer: Buffer
    start: Callable[[Dim], Dim]
    row_stride: Dim
    column_stride: Dim
    is_one: bool = False  # the same for the whole batch
    panel: int = 0

    def at(self, number: Dim, row: Dim, column: Dim) -> Matrix:
        """Return a part of a matrix; one of a packed matrix begins at a panel."""
        step = self.column_stride // self.panel if self.panel else self.column_stride
        place = self.start(number) + row * self.row_stride + column * step
        return Matrix(self.buffer, place, self.row_stride, self.column_stride, self.panel)

    def transposed(self) -> Source:
        return self.but(row_stride=self.column_stride, column_stride=self.row_stride)


class Tile(Record):
    """A tile of a product: the number in the batch, where it begins, its size, and the size of a whole tile."""

    at: Dim
    row: Dim
    column: Dim
    many: Dim
    wide: Dim
    height: int
    width: Dim

    def of_columns(self, columns: Dim) -> Tile:
        """Return the tile of the same rows, and of all columns, of another product."""
        return self.but(column=0, wide=columns, width=columns)


class Product:
    """Lowers the group of one batched matrix product."""

    def __init__(self, lowering: Lowering, group: Group, name: str = ""):
        self.l = lowering
        self.group = group
        self.name = name  # prefix of the names of its scratch
        self.op = product_op(group)
        taken = set() if group.left is None else set(group.left.ops)
        self.members = set(group.ops) - taken - {self.op}
        self.left: Value = self.op.arguments["self"]
        self.right: Value = self.op.arguments["mat2"]
        self.output = self.op.results[0]
        self.batch, self.rows, self.columns = self.output.shape
        self.depth = self.left.shape[2]
        self.outputs = {value: None for value in group.outputs if value.op in self.members or value.op is self.op}
        self.is_whole = bool(group.reduces) or group.left is not None or group.tile is not None  # tiles have whole rows
        self.dtype = self.output.dtype.compute.real  # element type of tiles in memory
        self.parts = 2 if self.output.dtype.is_complex else 1
        self.own: list[Pack] = []  # matrices that each thread packs for itself
        self.factors: list[Source] = []
        # The machine multiplies this type and accumulates in f32.
        self.narrow = self.output.dtype.name in lowering.machine.dot_types
        self.factor = self.output.dtype if self.narrow else self.dtype  # the type that is multiplied
        self.dots = False  # whether all elements are dot products: nothing is packed

    def build(self) -> None:
        self.l.members = self.members
        empty = any(size == 0 for size in (*self.output.shape, self.depth))
        if self.l.gpu and self.output.dtype.compute.name in BYTES and not empty and not self._is_dot():
            self._blocks()
        elif not self.l.gpu and self.dtype.name in BYTES and not empty and not self._is_dot():
            self._tiles()
        else:
            self._sums()

    def _is_dot(self) -> bool:
        """Whether the product is a vector times a matrix with a unit stride, or the reverse: plain loops, as each
        element is used once. Dot-product instructions of a narrow type, if the machine has them, are faster."""
        if self.output.dtype is not self.factor or (self.columns != 1 and self.rows != 1):
            return False
        left, right = self._matrix(self.left), self._matrix(self.right)
        if self.narrow and by_dots(left.at(0, 0, 0), right.at(0, 0, 0), self.rows, self.columns, self.depth):
            return False
        matrix = left if self.columns == 1 else right
        return 1 in (matrix.row_stride, matrix.column_stride)

    def _sums(self) -> None:
        """Lower the product to plain loops, one element after the other."""
        lowering, dtype = self.l, self.output.dtype.compute
        index = self._loops(self.output.shape, (1, 1, 1))
        lowering.floor = 1
        b, i, j = index
        inner = lowering.new_variable(self.depth)
        lowering.open(inner, 0, self.depth)
        k = inner.expr()
        factors = [lowering.element(self.left, (b, i, k)), lowering.element(self.right, (b, k, j))]
        ((total,),) = lowering.close([("add", (lowering.let("mul", dtype, factors),))])
        self._store(index, total)
        self._follow(index, total)
        self._close()

    def _store(self, index: tuple[Dim, Dim, Dim], element: Operand) -> None:
        if self.output in self.outputs:
            self.l.store(self.output, index, element)

    def _follow(self, index: tuple[Dim, Dim, Dim], element: Operand) -> dict[int, Dim]:
        """Lower the ops that follow an element of the product; return the element's index on each axis."""
        shaped = self.group.product
        assert shaped is not None
        place = self._shaped(index)
        axes = self.l.fused.axes.root(self.group.touch[shaped])
        coordinate = {axis: at for axis, at in zip(axes, place, strict=True) if axis is not None}
        self.l.scopes[-1].memo[(shaped, self.l._place(shaped, place))] = element
        for value in self.outputs:
            if value is not self.output:
                at = self._at(value, coordinate)
                self.l.store(value, at, self.l.element(value, at))
        return coordinate

    def _at(self, value: Value, coordinate: dict[int, Dim]) -> tuple[Dim, ...]:
        """Return the index of a value of the group, given the index on each axis."""
        return tuple(
            0 if axis is None else coordinate[axis] for axis in self.l.fused.axes.root(self.group.touch[value])
        )

    def _shaped(self, index: tuple[Dim, Dim, Dim]) -> tuple[Dim, ...]:
        """Convert an index of the product to the shape in which it is read: the same rows, regrouped."""
        shaped = self.group.product
        assert shaped is not None
        if shaped.shape == self.output.shape:
            return index
        row: Dim = index[0] * self.rows + index[1]
        place: tuple[Dim, ...] = index[2:]
        sizes = shaped.shape[1:-1]
        if len(sizes) > 0 and sizes[-1] == self.rows:  # spares a remainder whose range could not be proved
            row, place, sizes = index[0], index[1:], sizes[:-1]
        for size in reversed(sizes):
            place = (remainder(row, size), *place)
            row = floor_divide(row, size)
        return (row, *place) if shaped.ndim > 1 else place

    def _matrix(self, value: Value) -> Source:
        """Return a batched matrix in place, in memory."""
        panel = 0 if self.l.gpu or value is self.left else panel_width(self.op, self.l.machine)
        view = batched_matrix(value, lambda item: item in self.l.fused.inline, panel)
        assert view is not None
        strides = view.row_stride, view.column_stride
        return Source(self.l.buffer(view.base), view.start, *strides, view.is_one, view.panel)

    def _copied(self, value: Value, lines: int, columns: int) -> Source:
        """Copy a batched matrix in the type of the product; a complex element becomes a row, or a square, of parts."""
        lowering = self.l
        batch, rows, across = value.shape
        shape = (batch, rows * lines, across * columns)
        buffer = lowering.temporary(self.dtype, shape)
        index = self._loops(value.shape, (1, 1, 1))
        lowering.floor = 1
        b, i, j = index
        element = lowering.element(value, index)
        parts: list[Operand] = [element]
        if columns == 2:
            real, imaginary = (lowering.let(name, self.dtype, [element]) for name in ("real", "imag"))
            parts = [real, imaginary, lowering.let("neg", self.dtype, [imaginary]), real]
        for number, part in enumerate(parts[: lines * columns]):
            place = (b, i * lines + number // columns, j * columns + number % columns)
            lowering.add(len(lowering.scopes) - 1, Store(buffer, place, part, origin=self.op.loc))
        self._close()
        return Source(buffer, lambda number: number * (shape[1] * shape[2]), shape[2], 1)

    def _operand(self, value: Value, lines: int) -> Source:
        """Return a factor in place, or a copy with `lines` rows for each complex element. Both may be one value."""
        return self._matrix(value) if self.output.dtype is self.factor else self._copied(value, lines, self.parts)

    def _tiles(self) -> None:
        """Lower the product to a loop over tiles: in each a GEMM, then the ops that follow."""
        lowering = self.l
        unit = self.unit
        columns, depth = self.columns * self.parts, self.depth * self.parts
        first = None if self.group.left is None else Product(lowering, self.group.left, f"{self.name}left")
        products = [self] if first is None else [first, self]
        for item in products:
            item.read()
        ready = all(item.dots or item.factors[-1].panel for item in products)
        if first is None and not self.group.reduces:
            height, width = tile_shape(self.batch, self.rows, columns, depth, unit, ready)
        else:
            longest = columns if first is None else maximum(columns, first.columns)
            height, width = row_tile(self.batch, self.rows, longest, depth, unit, first is not None, ready), columns
        down, across = ceil_divide(self.rows, height), ceil_divide(columns, width)
        for item in products:
            item.prepare(down, across)
        at, row, column = self._loops((self.batch, down, across), (1, height, width))
        inside = len(lowering.scopes) - 1
        lowering.floor = inside
        for pack in (*(() if first is None else first.own), *self.own):
            lowering.add(inside, Alloc(pack.output.buffer))
            lowering.add(inside, pack)
        many, wide = minimum(height, self.rows - row), minimum(width, columns - column)
        tile = Tile(at, row, column, many, wide, height, width)
        left = None if first is None else first.multiply(tile.of_columns(first.columns))
        self.multiply(tile, left)
        self._close()

    def _blocks(self) -> None:
        """Lower the product to a loop over tiles for a GPU: square tiles, of matrices in place and of any type."""
        lowering = self.l
        size = gpu.block_tile(self.batch, self.rows, self.columns)
        counts = (self.batch, ceil_divide(self.rows, size), ceil_divide(self.columns, size))
        left, right = self._matrix(self.left), self._matrix(self.right)
        at, row, column = self._loops(counts, (1, size, size))
        lowering.floor = inside = len(lowering.scopes) - 1
        many, wide = minimum(size, self.rows - row), minimum(size, self.columns - column)
        tile = Tile(at, row, column, many, wide, size, size)
        target = self._scratch("tile", tile)
        factors = left.at(at, row, 0), right.at(at, 0, column)
        lowering.add(inside, Gemm(target, *factors, many, wide, self.depth, self.op.loc))
        self._elements(tile, target, False)
        self._close()

    def read(self) -> None:
        """Find the operands, and whether dot products take them in place. A left matrix that is made for each tile has
        rows of adjacent elements."""
        self.l.members = self.members
        left = None if self.group.left is not None else self._operand(self.left, 1)
        right = self._operand(self.right, self.parts)
        self.factors = [right] if left is None else [left, right]
        matrix = right.at(0, 0, 0)
        other = replace(matrix, column_stride=1, panel=0) if left is None else left.at(0, 0, 0)
        times = self.batch * self.rows if right.is_one else self.rows
        self.dots = by_dots(other, matrix, times, self.columns * self.parts, self.depth * self.parts)

    @property
    def unit(self) -> RegisterTile:
        return RegisterTile(self.factor.name, self.l.machine)

    def prepare(self, down: Dim, across: Dim) -> None:
        """Pack the operands that several tiles share."""
        if self.dots:
            return
        unit = self.unit
        columns, depth = self.columns * self.parts, self.depth * self.parts
        *left, right = self.factors
        if left and across != 1:
            left = [self._packed("left", left[0].transposed(), depth, self.rows, unit.rows, columns)]
        # Each of few tiles packs it for itself, panel by panel: cheaper than a packed copy of it all in memory.
        shared = down * self.batch if right.is_one else down  # number of tiles that share it
        few = self.is_whole and not right.is_one
        if isinstance(shared, int) and right.column_stride == 1:
            few = few or shared <= TILING.unshared_tiles
        if down != 1 and not few and not right.panel:
            right = self._packed("right", right, depth, columns, unit.width, self.rows)
        self.factors = [*left, right]

    def multiply(self, tile: Tile, made: Matrix | None = None) -> Matrix:
        """Lower one tile of the product, from a left matrix made for it (`made`) or in memory, and the ops that follow.
        Return the tile that the next product multiplies, if there is one."""
        lowering = self.l
        lowering.members = self.members
        inside = len(lowering.scopes) - 1
        depth = self.depth * self.parts
        *left, right = self.factors
        direct = self.output in self.outputs and self.output.dtype is self.dtype
        if direct:
            width = self.columns * self.parts
            place = (tile.at * self.rows + tile.row) * width + tile.column
            target = Matrix(lowering.buffer(self.output), place, width, 1)
        else:
            target = self._scratch("tile", tile)
        if made is None:
            (source,) = left
            made = source.at(tile.at, 0, tile.row) if source.panel else source.at(tile.at, tile.row, 0)
        lowering.add(
            inside,
            Gemm(target, made, right.at(tile.at, 0, tile.column), tile.many, tile.wide, depth, self.op.loc),
        )
        if self.group.reduces:
            return self._rows(tile, target, direct)
        if len(self.members) or not direct:
            return self._elements(tile, target, direct)
        return target

    def _scratch(self, name: str, tile: Tile) -> Matrix:
        buffer = Buffer(f"%{self.l.name}.{self.name}{name}", self.dtype, (tile.height, tile.width), "scratch")
        self.l.add(len(self.l.scopes) - 1, Alloc(buffer))
        return Matrix(buffer, 0, tile.width, 1)

    def _kept(self, tile: Tile, target: Matrix, fits: bool) -> Matrix | None:
        """Return the memory for the next product's left matrix: the tile itself if it `fits`; None if it is there."""
        if self.group.tile is None or self.group.tile is self.output:
            return None
        return target if fits else self._scratch("kept", tile)

    def _elements(self, tile: Tile, target: Matrix, direct: bool) -> Matrix:
        """Lower the elementwise ops that follow a tile."""
        lowering = self.l
        kept = self._kept(tile, target, not direct)
        i, j = lowering.new_variable(tile.many), lowering.new_variable(tile.wide // self.parts)
        lowering.open(i, 0, tile.many)
        lowering.open(j, 0, tile.wide // self.parts)
        index = (tile.at, tile.row + i.expr(), tile.column // self.parts + j.expr())
        if direct:
            element = lowering.load_buffer(target.buffer, index)
        else:
            places = [(i.expr(), j.expr() * self.parts + part) for part in range(self.parts)]
            loaded = [lowering.load_buffer(target.buffer, place) for place in places]
            element = lowering.let("complex", self.output.dtype, loaded) if self.parts == 2 else loaded[0]
            self._store(index, element)
        coordinate = self._follow(index, element)
        if kept is not None:
            value = self.group.tile
            assert value is not None
            at = self._at(value, coordinate)
            lowering.add(
                len(lowering.scopes) - 1, Store(kept.buffer, (i.expr(), j.expr()), lowering.element(value, at))
            )
        lowering.close()
        lowering.close()
        return kept or target

    def _rows(self, tile: Tile, target: Matrix, direct: bool) -> Matrix:
        """Lower the reductions of rows that follow a tile, and their consumers."""
        lowering, shaped = self.l, self.group.product
        assert shaped is not None
        i = lowering.new_variable(tile.many)
        rows = lowering.fused.axes.root(self.group.touch[shaped][:-1])
        row = tile.row + i.expr()
        places = self._shaped((tile.at, row, 0))
        group = self.group._replace(
            ops=[op for op in self.group.ops if op in self.members],
            outputs=tuple(value for value in self.outputs if value is not self.output),
        )
        tree = Tree(lowering, group, {axis: at for axis, at in zip(rows, places, strict=False) if axis is not None})
        last = (shaped.ndim - 1,)
        value = group.tile
        kept = self._kept(tile, target, not direct and value is not None and tree.is_last(value))
        if kept is not None and value is not None:
            tree.tile = value, Saved(kept.buffer, (value.ndim - 1,), (i.expr(),))
        lowering.open(i, 0, tile.many)
        if self.output in self.outputs and not direct:
            j = lowering.new_variable(tile.wide)
            lowering.open(j, 0, tile.wide)
            self._store((tile.at, row, j.expr()), lowering.load_buffer(target.buffer, (i.expr(), j.expr())))
            lowering.close()
        lead = (tile.at, row) if direct else (i.expr(),)
        lowering.saved = {shaped: Saved(target.buffer, last, lead)}
        if self.output is not shaped:
            lowering.saved[self.output] = Saved(target.buffer, (2,), lead)
        tree.row()
        lowering.close()
        lowering.saved = {}
        return kept or target

    def _loops(self, counts: Sequence[Dim], lengths: Sequence[int]) -> tuple[Dim, Dim, Dim]:
        """Open a loop for each count that is not 1; return where an iteration begins, given the lengths of each."""
        starts: list[Dim] = []
        for count, length in zip(counts, lengths, strict=True):
            if count == 1:
                starts.append(0)
                continue
            variable = self.l.new_variable(count)
            self.l.open(variable, 0, count)
            starts.append(variable.expr() * length)
        if len(self.l.scopes) == 1:
            self.l.open(self.l.new_variable(1), 0, 1)
        first, second, third = starts
        return first, second, third

    def _close(self) -> None:
        while len(self.l.scopes) > 1:
            self.l.close()
        self.l.floor = 0

    def _packed(self, name: str, source: Source, depth: Dim, columns: Dim, width: int, times: Dim) -> Source:
        """Pack a matrix, once for the whole batch if it is the same; `times`: uses of each element. Return the copy."""
        lowering = self.l
        batch: Dim = 1 if source.is_one else self.batch
        long_depth = self.unit.panel_depth(depth)
        panels, apart = ceil_divide(columns, width), long_depth * width
        result = product(self.output.shape) * self.parts * self.dtype.bytes
        if batch == 1 and is_own(panels * apart * self.factor.bytes, times, result):
            shape = (panels, long_depth, width)
            buffer = Buffer(f"%{lowering.name}.{self.name}{name}", self.factor, shape, "scratch")
            target = Source(buffer, lambda number: 0, width, apart, True, width)
            self.own.append(Pack(target.at(0, 0, 0), source.at(0, 0, 0), depth, columns, True, self.op.loc))
            return target
        buffer = lowering.temporary(self.factor, [batch, panels, long_depth, width])
        each: Dim = 0 if source.is_one else panels * apart
        target = Source(buffer, lambda number: number * each, width, apart, source.is_one, width)
        long = TILING.pack_columns // width * width
        counts = (batch, ceil_divide(depth, TILING.pack_depth), ceil_divide(columns, long))
        at, row, column = self._loops(counts, (1, TILING.pack_depth, long))
        lowering.add(
            len(lowering.scopes) - 1,
            Pack(
                target.at(at, row, column),
                source.at(at, row, column),
                minimum(TILING.pack_depth, depth - row),
                minimum(long, columns - column),
                origin=self.op.loc,
            ),
        )
        self._close()
        return target


@lowers(Contract)
def lower_contract(lowering: Lowering, group: Group) -> None:
    """Lower a matrix product, with the ops that share its kernel."""
    Product(lowering, group, f"{lowering.products}." if lowering.products else "").build()
    lowering.products += 1
