"""Write calls of the micro-kernels' routines: GEMM (gemm.py, dots.py) and transposition (transpose.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....ir.proofs import floor_divide
from ....ir.symbolic import Dim
from ....kernels.gemm import is_dots
from ....kernels.loop.ir import Gemm, Matrix, Pack, Sort, Transpose
from ..abi import PRODUCT_TYPES, PRODUCTS, ROUTINES
from ..microkernels.sort import called as called_sort
from ..microkernels.sort import sort_texts
from ..microkernels.transpose import called
from ..microkernels.tuning import TUNING

if TYPE_CHECKING:
    from .region import Region


class Calls:
    """Writer of the calls of one region."""

    def __init__(self, region: Region):
        self.region = region

    def gemm(self, statement: Gemm) -> None:
        """Call a routine of dots.py or gemm.py, with scratch memory for packed panels."""
        output, left, right = statement.output, statement.left, statement.right
        dtype = left.buffer.dtype.name
        if is_dots(statement):
            sizes = (statement.rows, statement.columns, statement.depth)
            matrices = ((output, output.row_stride), (left, left.row_stride), (right, right.column_stride))
            arguments = [f"ptr {self._address(item)}, i64 {self.region.passed(stride)}" for item, stride in matrices]
            arguments += [f"i64 {self.region.passed(size)}" for size in sizes]
            self.region.write(f"call void {self._routine(dtype, 'dots')}({', '.join(arguments)})")
            return
        scratch = self.region.scratch(id(statement))
        # The row stride of packed panels is a panel's depth, on the average.
        left_row = floor_divide(left.column_stride, left.panel) if left.panel else left.row_stride
        left_numbers = (left_row, left.panel or left.column_stride, left.panel)
        panel = right.column_stride if right.panel else 0
        numbers = (right.row_stride, right.column_stride, panel, statement.rows, statement.columns, statement.depth)
        self.region.write(
            f"call void {self._routine(dtype, 'gemm')}(ptr {self._address(output)}, "
            f"i64 {self.region.passed(output.row_stride)}, ptr {self._address(left)}, "
            f"{', '.join(f'i64 {self.region.passed(item)}' for item in left_numbers)}, ptr {self._address(right)}, "
            f"{', '.join(f'i64 {self.region.passed(item)}' for item in numbers)}, ptr {scratch}, "
            f"ptr {self._table(dtype)})"
        )

    def transpose(self, statement: Transpose) -> None:
        """Call a routine of transpose.py."""
        target, source = statement.target, statement.source
        arguments: list[str] = []
        for matrix, step in ((target, target.row_stride), (source, source.column_stride)):
            place = self.region.uniform(matrix.offset * matrix.buffer.dtype.bytes)
            base = self.region.pointer(matrix.buffer)
            address = self.region.emitter.instruction(f"getelementptr inbounds i8, ptr {base}, i64 {place}")
            arguments.extend((f"ptr {address}", f"i64 {self.region.uniform(step)}"))
        arguments.extend(f"i64 {self.region.uniform(size)}" for size in (statement.rows, statement.columns))
        fetch = source.buffer.role != "scratch"
        if fetch:
            ahead = source.column_stride * TUNING.columns_ahead if statement.ahead is None else statement.ahead
            arguments.append(f"i64 {self.region.uniform(ahead)}")
        function = called(target.buffer.dtype.bytes, fetch)
        self.region.write(f"call void {function}{', '.join(arguments)})")

    def sort(self, statement: Sort) -> None:
        """Call a routine of sort.py for each row."""
        region, source = self.region, statement.source
        kind = (source.buffer.dtype, statement.places, statement.descending)
        sort_texts(*kind, region.bits, region.emitter.declarations)
        matrices = (statement.target, source, statement.room)

        def row(number: Dim) -> None:
            places = [replace(item, offset=item.offset + number * item.row_stride) for item in matrices]
            arguments = [f"ptr {self._address(item)}" for item in places]
            arguments += [f"i64 {region.uniform(size)}" for size in (statement.length, statement.first, statement.kept)]
            region.write(f"call void @{called_sort(*kind)}({', '.join(arguments)})")

        assert statement.rows == 1, "a sort of several rows outside of a loop"
        row(0)

    def pack(self, statement: Pack) -> None:
        """Pack a matrix into panels, as the GEMM routines take them."""
        output, source = statement.output, statement.source
        numbers = (source.column_stride, source.row_stride, statement.columns, statement.rows)
        self.region.write(
            f"call void {self._routine(output.buffer.dtype.name, 'pack')}(ptr {self._address(output)}, "
            f"i64 {output.panel}, i64 {self.region.passed(output.column_stride)}, ptr {self._address(source)}, "
            f"{', '.join(f'i64 {self.region.passed(item)}' for item in numbers)})"
        )

    def _routine(self, dtype: str, name: str) -> str:
        """Load the address of a routine from the tables in ctx."""
        return self._loaded(f"%{name}.{dtype}", self._table(dtype), ROUTINES.index(name))

    def _table(self, dtype: str) -> str:
        """Load the address of the table of an element type's routines."""
        context = self._loaded("%context", "%args", 0)
        tables = self._loaded("%products", context, PRODUCTS)
        return self._loaded(f"%products.{dtype}", tables, PRODUCT_TYPES.index(dtype))

    def _loaded(self, name: str, table: str, place: int) -> str:
        """Load an address from a table, once per region."""
        region, write = self.region, self.region.emitter.instruction
        if name not in region.pointers:
            with region.at(0):
                at = write(f"getelementptr i64, ptr {table}, i64 {place}")
                region.pointers[name] = write(f"load ptr, ptr {at}, align 8")
        return region.pointers[name]

    def _address(self, matrix: Matrix) -> str:
        """Compute the address of a matrix."""
        region, write = self.region, self.region.emitter.instruction
        place = write(f"mul i64 {region.uniform(matrix.offset)}, {matrix.buffer.dtype.bytes}")
        return write(f"getelementptr inbounds i8, ptr {region.pointer(matrix.buffer)}, i64 {place}")
