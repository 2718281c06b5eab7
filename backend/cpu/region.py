"""Loop IR to LLVM: one region is one function that a thread runs for a range of a loop.

Inside a vector loop every register is either the same for all lanes (a scalar) or has one value a lane; a scalar
is spread out only where it meets a vector. The last, incomplete vector of a loop runs the same body under a mask.
accesses.py has the loads and stores.

Index arithmetic goes to the outermost loop where its variables exist: `Frame` is the text of a loop body while
it is being written, and lines may be added to the frames around it until it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...ir.errors import CompileError
from ...ir.symbolic import Compound, Dim, Expr, Symbol, fits, floor_divide, is_multiple, non_negative, symbols_of
from ...ir.types import bool_, i32, i64, u8
from ...kernels.gemm import BYTES, RegisterTile
from ...kernels.loop_ir import (
    Alloc,
    Buffer,
    Check,
    Gemm,
    Index,
    Let,
    Literal,
    Load,
    Loop,
    Matrix,
    Operand,
    Pack,
    Prefix,
    Register,
    Statement,
    Store,
    Transpose,
    prefixes,
)
from ...kernels.loop_text import list_text, loop_head, operands_text
from ...kernels.scalar import COMBINERS
from .accesses import Accesses
from .context import PRODUCTS
from .debug import FunctionNotes
from .scalars import ScalarEmitter
from .transpose import called
from .types import Lanes, constant, register_type, suffix, vector

Values = list[tuple[Lanes, ...]]

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Frame:
    """A loop body being written."""

    def __init__(self, label: str):
        self.lines: list[str] = []
        self.label = label  # of the basic block that the next line goes to
        self.cache: dict[Dim, str] = {}


class Region:
    """Writes the body of one function."""

    def __init__(
        self,
        declarations: set[str],
        pointer: Callable[[Region, Buffer], str],
        size: Callable[[Region, Symbol], str],
        scratch: Callable[[Region, Buffer], str],
        bits: int,
        note: FunctionNotes | None = None,
    ):
        self.frames = [Frame("entry")]
        self.target = 0
        self.emitter = ScalarEmitter(self.write, declarations, self._branch)
        self.registers: dict[str, Lanes] = {}
        self.register_depths: dict[str, int] = {}
        self.running: dict[str, tuple[Lanes, bool]] = {}  # of prefixes: what they have reached, whether across lanes
        self.rising: dict[str, str] = {}  # indices one more in each lane, by register: the first lane's
        self.symbols: dict[str, Lanes] = {}
        self.depths: dict[str, int] = {}
        self.variable: Symbol | None = None
        self.lanes = 1
        self.mask: str | None = None
        self.labels = 0
        self.note = note
        # What stands behind every instruction: the user's line, if lines are asked for.
        self.mark = note.nowhere if note is not None else ""
        self._pointer = pointer
        self._size = size
        self._scratch = scratch
        self.bits = bits
        self.pointers: dict[str, str] = {}
        self.accesses = Accesses(self)

    # Text.

    def write(self, text: str) -> None:
        self.frames[self.target].lines.append(f"  {text}{self.mark}")

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Lines go to an outer frame."""
        previous, self.target = self.target, depth
        try:
            yield
        finally:
            self.target = previous

    def push(self, label: str) -> None:
        self.frames.append(Frame(label))
        self.target = len(self.frames) - 1

    def pop(self) -> Frame:
        frame = self.frames.pop()
        self.target = len(self.frames) - 1
        return frame

    def new_label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"

    def pointer(self, buffer: Buffer) -> str:
        found = self.pointers.get(buffer.name)
        if found is None:
            with self.at(0):
                found = self._pointer(self, buffer)
            self.pointers[buffer.name] = found
        return found

    # Index expressions.

    def symbol(self, symbol: Symbol) -> tuple[Lanes, int]:
        """A symbol's value and the frame where it is known. A vector variable gives its first lane."""
        known = self.symbols.get(symbol.name)
        if known is not None:
            return known, self.depths[symbol.name]
        if symbol.name.startswith("%"):
            register = self.registers[symbol.name]
            return register, len(self.frames) - 1
        with self.at(0):
            name = self._size(self, symbol)
        self.symbols[symbol.name] = Lanes(i64, 1, (name,))
        self.depths[symbol.name] = 0
        return self.symbols[symbol.name], 0

    def moves_along(self, place: Dim) -> bool:
        """Whether a place is one more in each lane than in the one before."""
        if self.variable is None or not isinstance(place, Expr) or place.coefficient(self.variable) != 1:
            return False
        return all(symbol == self.variable or self.symbol(symbol)[0].lanes == 1 for symbol in symbols_of(place))

    def varying(self, value: Dim) -> bool:
        return any(symbol == self.variable or self.symbol(symbol)[0].lanes > 1 for symbol in symbols_of(value))

    def uniform(self, value: Dim) -> str:
        """An index that is the same for all lanes (or its value in the first lane), as an i64."""
        if isinstance(value, int):
            return str(value)
        parts: dict[int, list] = {}
        for monomial, coefficient in value.terms:
            deepest = 0
            for atom in monomial:
                for symbol in symbols_of(Expr((((atom,), 1),))):
                    deepest = max(deepest, self.symbol(symbol)[1])
            parts.setdefault(deepest, []).append((monomial, coefficient))
        total = ""
        so_far: list = []
        for depth in sorted(parts):
            so_far = so_far + parts[depth]
            key = Expr(tuple(so_far))
            cached = self.frames[depth].cache.get(key)
            if cached is None:
                with self.at(depth):
                    cached = total
                    for monomial, coefficient in parts[depth]:
                        term = self._product(monomial, coefficient)
                        cached = self.emitter.instruction(f"add i64 {cached}, {term}") if cached else term
                self.frames[depth].cache[key] = cached
            total = cached
        return total

    def _product(self, monomial: Sequence, coefficient: int) -> str:
        result = ""
        for atom in monomial:
            if isinstance(atom, Symbol):
                factor = self.symbol(atom)[0].name
            else:
                factor = self._compound(atom, self.uniform(atom.left), self.uniform(atom.right), 1)
            result = self.emitter.instruction(f"mul i64 {result}, {factor}") if result else factor
        if not result:
            return str(coefficient)
        return result if coefficient == 1 else self.emitter.instruction(f"mul i64 {result}, {coefficient}")

    def _compound(self, atom: Compound, left: str, right: str, lanes: int) -> str:
        kind = vector("i64", lanes)
        write = self.emitter.instruction
        if atom.operator in ("min", "max"):
            function = f"llvm.s{atom.operator}.{suffix('i64', lanes)}"
            return self.emitter.call(kind, function, (kind, left), (kind, right))
        if not non_negative(atom.right - 1):
            # A size such as N - 2 may be zero. No loop over such a size runs, but the division stands before it.
            function = f"llvm.smax.{suffix('i64', lanes)}"
            right = self.emitter.call(kind, function, (kind, right), (kind, constant(1, i64, lanes)))
        if atom.operator == "%" and fits(atom.left, atom.right * 2):
            # At most one turn too far: unsigned, a negative number is larger than any index.
            turned = write(f"sub {kind} {left}, {right}")
            return self.emitter.call(kind, f"llvm.umin.{suffix('i64', lanes)}", (kind, left), (kind, turned))
        if non_negative(atom.left):
            return write(f"{'udiv' if atom.operator == '//' else 'urem'} {kind} {left}, {right}")
        rest = write(f"srem {kind} {left}, {right}")
        negative = write(f"icmp slt {kind} {rest}, {constant(0, i64, lanes)}")
        mask = vector("i1", lanes)
        if atom.operator == "%":
            lifted = write(f"add {kind} {rest}, {right}")
            return write(f"select {mask} {negative}, {kind} {lifted}, {kind} {rest}")
        quotient = write(f"sdiv {kind} {left}, {right}")
        lower = write(f"sub {kind} {quotient}, {constant(1, i64, lanes)}")
        return write(f"select {mask} {negative}, {kind} {lower}, {kind} {quotient}")

    def wide(self, value: Dim) -> str:
        """An index with its own value in every lane, as a vector of i64."""
        kind = vector("i64", self.lanes)
        if not self.varying(value):
            return self.emitter.splat(Lanes(i64, 1, (self.uniform(value),)), self.lanes).name
        assert isinstance(value, Expr)
        still = tuple(term for term in value.terms if not self.varying(Expr((term,)) if term[0] else term[1]))
        total = ""
        if still:
            base: Dim = Expr(still) if any(monomial for monomial, _ in still) else still[0][1]
            total = self.emitter.splat(Lanes(i64, 1, (self.uniform(base),)), self.lanes).name
        for monomial, coefficient in value.terms:
            if (monomial, coefficient) in still:
                continue
            term = constant(coefficient, i64, self.lanes) if coefficient != 1 else ""
            for atom in monomial:
                factor = self._wide_atom(atom)
                term = self.emitter.instruction(f"mul {kind} {term}, {factor}") if term else factor
            total = self.emitter.instruction(f"add {kind} {total}, {term}") if total else term
        return total

    def _wide_atom(self, atom: Symbol | Compound) -> str:
        kind = vector("i64", self.lanes)
        if isinstance(atom, Compound):
            return self._compound(atom, self.wide(atom.left), self.wide(atom.right), self.lanes)
        value, _ = self.symbol(atom)
        spread = self.emitter.splat(value, self.lanes).name
        if atom == self.variable:
            return self.emitter.instruction(f"add {kind} {spread}, {self.emitter.iota(self.lanes)}")
        return spread

    # Statements.

    def operand(self, operand: Operand) -> Lanes:
        if isinstance(operand, Literal):
            return self.emitter.constant(operand.value, operand.dtype)
        return self.registers[operand.name]

    def body(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._annotate(statement)
            if isinstance(statement, Let):
                self._let(statement)
            elif isinstance(statement, Load):
                with self._hoisted(statement.result, self._load_depth(statement)):
                    self.registers[statement.result.name] = self.accesses.load(statement)
            elif isinstance(statement, Store):
                self.accesses.store(statement)
            elif isinstance(statement, Index):
                self._index(statement)
            elif isinstance(statement, Check):
                self._check(statement)
            elif isinstance(statement, Prefix):
                self._prefix(statement)
            elif isinstance(statement, Loop):
                self.loop(statement)
            elif isinstance(statement, Alloc):
                self.pointers[statement.buffer.name] = self._scratch(self, statement.buffer)
            elif isinstance(statement, Gemm):
                self._gemm(statement)
            elif isinstance(statement, Transpose):
                self._transpose(statement)
            elif isinstance(statement, Pack):
                self._pack(statement)
            else:
                raise CompileError("concurrent loops inside of a loop")

    def _annotate(self, statement: Statement) -> None:
        """The statement as a comment, and its line behind the instructions that it becomes."""
        if self.note is None:
            return
        origin = getattr(statement, "origin", None)
        place = "" if origin is None else f"    // {origin}"
        self.mark = ""
        if isinstance(statement, Loop):
            self.write(f"; {loop_head(statement)}")
        elif isinstance(statement, Let):
            self.write(f"; {statement.result} = {statement.op}({operands_text(statement.operands)}){place}")
        elif isinstance(statement, Load):
            self.write(f"; {statement.result} = load {statement.buffer.name}[{list_text(statement.index)}]{place}")
        elif isinstance(statement, Store):
            self.write(f"; store {statement.buffer.name}[{list_text(statement.index)}]{place}")
        self.mark = self.note.nowhere if origin is None else self.note.line(origin)

    @contextmanager
    def _hoisted(self, result: Register, depth: int) -> Iterator[None]:
        """The statement that makes `result` is written into the outermost frame that has its operands."""
        self.register_depths[result.name] = depth
        with self.at(depth):
            yield

    def _load_depth(self, statement: Load) -> int:
        """Single numbers are read once, before all loops; other reads stay where they are known to be needed."""
        single = all(size == 1 for size in statement.buffer.shape) and statement.buffer.role == "in"
        return 0 if single and statement.guard is None else len(self.frames) - 1

    def _let(self, statement: Let) -> None:
        registers = [item.name for item in statement.operands if isinstance(item, Register)]
        inside = len(self.frames) - 1
        depth = max((self.register_depths.get(name, inside) for name in registers), default=inside)
        with self._hoisted(statement.result, depth):
            self._compute(statement)

    def _compute(self, statement: Let) -> None:
        operands = [self.operand(item) for item in statement.operands]
        if statement.op in COMPARISONS:
            operands = self._narrowed(statement.operands, operands)
        if statement.op == "cast":
            result = self.emitter.cast(operands[0], statement.result.dtype)
        elif statement.op == "bitcast":
            result = self.emitter.bitcast(operands[0], statement.result.dtype)
        elif statement.op == "round_bf16":
            result = self.emitter.round_bf16(operands[0])
        elif statement.op == "round_f16":
            result = self.emitter.round_f16(operands[0])
        else:
            result = self.emitter.op(statement.op, *operands)
        self.registers[statement.result.name] = result

    def _narrowed(self, operands: Sequence[Operand], values: list[Lanes]) -> list[Lanes]:
        """Where an index is compared with a number: the lanes with how far it is from the first one, in 32 bits.

        What is farther than all lanes is as far as the next one, which no comparison tells from it."""
        for number, other in ((0, 1), (1, 0)):
            item = operands[number]
            first = self.rising.get(item.name) if isinstance(item, Register) else None
            if first is not None and values[other].lanes == 1:
                break
        else:
            return values
        call = self.emitter.call
        far = call("i64", "llvm.ssub.sat.i64", ("i64", values[other].name), ("i64", first))
        far = call("i64", "llvm.smax.i64", ("i64", far), ("i64", "-1"))
        far = call("i64", "llvm.smin.i64", ("i64", far), ("i64", str(self.lanes)))
        distance = Lanes(i32, 1, (self.emitter.instruction(f"trunc i64 {far} to i32"),))
        lanes = Lanes(i32, self.lanes, (self.emitter.iota(self.lanes, "i32"),))
        return [lanes, distance] if number == 0 else [distance, lanes]

    def _index(self, statement: Index) -> None:
        self.rising.pop(statement.result.name, None)
        if self.varying(statement.expression):
            result = Lanes(i64, self.lanes, (self.wide(statement.expression),))
            if self.moves_along(statement.expression):
                self.rising[statement.result.name] = self.uniform(statement.expression)
        else:
            result = Lanes(i64, 1, (self.uniform(statement.expression),))
        self.registers[statement.result.name] = result

    def _check(self, statement: Check) -> None:
        value = self.operand(statement.value)
        lanes = value.lanes
        kind, mask = vector("i64", lanes), vector("i1", lanes)
        write = self.emitter.instruction
        size = self.emitter.splat(Lanes(i64, 1, (self.uniform(statement.size),)), lanes).name
        place = value.name
        if statement.wrap:
            negative = write(f"icmp slt {kind} {place}, {constant(0, i64, lanes)}")
            lifted = write(f"add {kind} {place}, {size}")
            place = write(f"select {mask} {negative}, {kind} {lifted}, {kind} {place}")
        good = write(f"icmp ult {kind} {place}, {size}")
        bad = write(f"xor {mask} {good}, {constant(True, bool_, lanes)}")
        if self.mask is not None and lanes > 1:
            bad = write(f"and {mask} {bad}, {self.mask}")
        some = bad
        if lanes > 1:
            some = self.emitter.call("i1", f"llvm.vector.reduce.or.{suffix('i1', lanes)}", (mask, bad))

        def report() -> None:
            culprit = value.name
            if lanes > 1:
                bits = write(f"bitcast {mask} {bad} to i{lanes}")
                first = self.emitter.call(f"i{lanes}", f"llvm.cttz.i{lanes}", (f"i{lanes}", bits), ("i1", "true"))
                how = "trunc" if lanes > 32 else "zext"
                lane = first if lanes == 32 else write(f"{how} i{lanes} {first} to i32")
                culprit = write(f"extractelement {kind} {value.name}, i32 {lane}")
            bound = self.uniform(statement.size)
            self.write(f"call void @report(ptr %args, i64 {statement.site}, i64 {culprit}, i64 {bound})")

        self.conditional(some, report)
        safe = write(f"select {mask} {good}, {kind} {place}, {kind} {constant(0, i64, lanes)}")
        self.registers[statement.position.name] = Lanes(i64, lanes, (safe,))
        self.registers[statement.guard.name] = Lanes(bool_, lanes, (good,))

    def _gemm(self, statement: Gemm) -> None:
        """A call of one of the routines of gemm.py, with scratch memory for what it packs."""
        output, left, right = statement.output, statement.left, statement.right
        dtype = output.buffer.dtype
        tile = RegisterTile(dtype.name, self.bits)
        scratch = self._scratch(self, Buffer("%gemm", u8, (tile.scratch_bytes,), "scratch"))
        # From row to row of packed panels it is as far as the depth of one, on the average.
        left_row = floor_divide(left.column_stride, left.panel) if left.panel else left.row_stride
        left_numbers = (left_row, left.panel or left.column_stride, left.panel)
        panel = right.column_stride if right.panel else 0
        numbers = (right.row_stride, right.column_stride, panel, statement.rows, statement.columns, statement.depth)
        self.write(
            f"call void {self._routine(dtype.name, 0)}(ptr {self._address(output)}, "
            f"i64 {self.uniform(output.row_stride)}, ptr {self._address(left)}, "
            f"{', '.join(f'i64 {self.uniform(item)}' for item in left_numbers)}, ptr {self._address(right)}, "
            f"{', '.join(f'i64 {self.uniform(item)}' for item in numbers)}, ptr {scratch})"
        )

    def _transpose(self, statement: Transpose) -> None:
        target, source = statement.target, statement.source
        arguments: list[str] = []
        for matrix, step in ((target, target.row_stride), (source, source.column_stride)):
            place = self.uniform(matrix.offset * matrix.buffer.dtype.bytes)
            base = self.pointer(matrix.buffer)
            address = self.emitter.instruction(f"getelementptr inbounds i8, ptr {base}, i64 {place}")
            arguments.extend((f"ptr {address}", f"i64 {self.uniform(step)}"))
        arguments.extend(f"i64 {self.uniform(size)}" for size in (statement.rows, statement.columns))
        function = called(target.buffer.dtype.bytes, source.buffer.role != "scratch")
        self.write(f"call void {function}{', '.join(arguments)})")

    def _pack(self, statement: Pack) -> None:
        output, source = statement.output, statement.source
        numbers = (source.column_stride, source.row_stride, statement.columns, statement.rows)
        self.write(
            f"call void {self._routine(output.buffer.dtype.name, 1)}(ptr {self._address(output)}, "
            f"i64 {output.panel}, i64 {self.uniform(output.column_stride)}, ptr {self._address(source)}, "
            f"{', '.join(f'i64 {self.uniform(item)}' for item in numbers)})"
        )

    def _routine(self, dtype: str, number: int) -> str:
        """The address of a routine, from the tables in ctx."""
        name = f"%{dtype}.{number}"
        if name not in self.pointers:
            write = self.emitter.instruction
            with self.at(0):
                table = write("load ptr, ptr %args, align 8")
                for place in (PRODUCTS, list(BYTES).index(dtype), number):
                    table = write(f"load ptr, ptr {write(f'getelementptr i64, ptr {table}, i64 {place}')}, align 8")
            self.pointers[name] = table
        return self.pointers[name]

    def _address(self, matrix: Matrix) -> str:
        """Where a matrix begins."""
        place = self.emitter.instruction(f"mul i64 {self.uniform(matrix.offset)}, {matrix.buffer.dtype.bytes}")
        return self.emitter.instruction(f"getelementptr inbounds i8, ptr {self.pointer(matrix.buffer)}, i64 {place}")

    # Control.

    def conditional(self, condition: str, body: Callable[[], Values | None], otherwise: Values | None = None) -> Values:
        """if condition: body(). Values that the body returns are merged with `otherwise`."""
        yes, done = self.new_label("if"), self.new_label("done")
        before = self.frames[self.target].label
        self.push(yes)
        after = body() or []
        frame = self.pop()
        self.write(f"br i1 {condition}, label %{yes}, label %{done}")
        self._append(yes, frame)
        self.write(f"br label %{done}")
        self._start(done)
        return self._merge(otherwise or [], before, after, frame.label)

    def either(self, condition: str, kind: str, yes: Callable[[], str], no: Callable[[], str]) -> str:
        """yes() if the condition holds, else no(): values of an LLVM type."""
        labels = self.new_label("if"), self.new_label("else")
        done = self.new_label("done")
        frames: list[Frame] = []
        values: list[str] = []
        for label, side in zip(labels, (yes, no), strict=True):
            self.push(label)
            values.append(side())
            frames.append(self.pop())
        self.write(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        for label, frame in zip(labels, frames, strict=True):
            self._append(label, frame)
            self.write(f"br label %{done}")
        self._start(done)
        ways = [f"[ {value}, %{frame.label} ]" for value, frame in zip(values, frames, strict=True)]
        return self.emitter.instruction(f"phi {kind} {', '.join(ways)}")

    def _branch(self, condition: str, yes: Callable[[], Lanes], no: Lanes) -> Lanes:
        """ScalarEmitter's branch. What is being written into an outer frame stays straight-line code."""
        if self.target != len(self.frames) - 1:
            return yes()
        ((value,),) = self.conditional(condition, lambda: [(yes(),)], [(no,)])
        return value

    def _append(self, label: str, frame: Frame) -> None:
        lines = self.frames[self.target].lines
        lines.append(f"{label}:")
        lines.extend(frame.lines)
        self.frames[self.target].label = frame.label

    def _start(self, label: str) -> None:
        self.frames[self.target].lines.append(f"{label}:")
        self.frames[self.target].label = label

    def _merge(self, before: Values, before_label: str, after: Values, after_label: str) -> Values:
        merged: Values = []
        for old, new in zip(before, after, strict=True):
            group: list[Lanes] = []
            for left, right in zip(old, new, strict=True):
                kind = register_type(left.dtype.real, left.lanes)
                parts = [
                    self.emitter.instruction(f"phi {kind} [ {a}, %{before_label} ], [ {b}, %{after_label} ]")
                    for a, b in zip(left.parts, right.parts, strict=True)
                ]
                group.append(Lanes(left.dtype, left.lanes, tuple(parts)))
            merged.append(tuple(group))
        return merged

    def counted(
        self,
        variable: Symbol,
        start: str,
        stop: str,
        step: int,
        nonempty: bool,
        initial: Values,
        body: Callable[[Values], Values],
    ) -> Values:
        """for variable in start..stop by step, with values carried from one iteration to the next."""
        label, done = self.new_label("loop"), self.new_label("done")
        name = self.emitter.fresh()
        phis: list[tuple[str, str, str]] = []  # name, type, start value
        carried: Values = []
        for group in initial:
            current: list[Lanes] = []
            for value in group:
                kind = register_type(value.dtype.real, value.lanes)
                parts = []
                for part in value.parts:
                    phi = self.emitter.fresh()
                    phis.append((phi, kind, part))
                    parts.append(phi)
                current.append(Lanes(value.dtype, value.lanes, tuple(parts)))
            carried.append(tuple(current))
        self.push(label)
        self.symbols[variable.name] = Lanes(i64, 1, (name,))
        self.depths[variable.name] = len(self.frames) - 1
        after = body(carried)
        following = self.emitter.instruction(f"add nuw nsw i64 {name}, {step}")
        again = self.emitter.instruction(f"icmp slt i64 {following}, {stop}")
        frame = self.pop()
        del self.symbols[variable.name]
        before = self.frames[self.target].label
        if nonempty:
            self.write(f"br label %{label}")
        else:
            some = self.emitter.instruction(f"icmp slt i64 {start}, {stop}")
            self.write(f"br i1 {some}, label %{label}, label %{done}")
        lines = self.frames[self.target].lines
        lines.append(f"{label}:")
        lines.append(f"  {name} = phi i64 [ {start}, %{before} ], [ {following}, %{frame.label} ]")
        nexts = [part for group in after for value in group for part in value.parts]
        for (phi, kind, first), following_part in zip(phis, nexts, strict=True):
            lines.append(f"  {phi} = phi {kind} [ {first}, %{before} ], [ {following_part}, %{frame.label} ]")
        lines.extend(frame.lines)
        lines.append(f"  br i1 {again}, label %{label}, label %{done}")
        self._start(done)
        return after if nonempty else self._merge(initial, before, after, frame.label)

    def loop(self, loop: Loop) -> None:
        """A serial or vector loop."""
        results = self._vector_loop(loop) if loop.kind == "vector" and self.lanes == 1 else self._serial_loop(loop)
        for item, values in zip(loop.accumulators, results, strict=False):
            for register, value in zip(item.results, values, strict=True):
                self.registers[register.name] = value

    def _identity(self, loop: Loop, lanes: int) -> Values:
        values: Values = []
        for item in loop.accumulators:
            numbers = COMBINERS[item.combiner].identity(item.results[0].dtype)
            values.append(
                tuple(
                    self.emitter.splat(self.emitter.constant(number, register.dtype), lanes)
                    for number, register in zip(numbers, item.results, strict=True)
                )
            )
        return values

    def _combined(self, loop: Loop, current: Values) -> Values:
        """The accumulators after one more iteration, whose body has been written."""
        after: Values = []
        for item, values in zip(loop.accumulators, current, strict=False):
            lanes = values[0].lanes
            items = tuple(self.emitter.splat(self.operand(value), lanes) for value in item.values)
            total = COMBINERS[item.combiner].append(self.emitter, values, items)
            after.append(tuple(self.emitter.splat(value, lanes) for value in total))
        return after

    def _serial_loop(self, loop: Loop) -> Values:
        initial = self._identity(loop, self.lanes)
        initial += self._starts(loop, self.lanes)
        extent = loop.extent
        if isinstance(extent, int) and extent <= 0:
            return initial

        def body(current: Values) -> Values:
            return self._iteration(loop, current, False)

        start, stop = self.uniform(loop.start), self.uniform(loop.stop)
        return self.counted(loop.variable, start, stop, 1, isinstance(extent, int), initial, body)

    def _vector_loop(self, loop: Loop) -> Values:
        width, extent = loop.width, loop.extent
        values = self._identity(loop, width) + self._starts(loop, width)
        number = extent if isinstance(extent, int) else None
        if number is not None and number <= 0:
            return self._identity(loop, 1)
        start, stop = self.uniform(loop.start), self.uniform(loop.stop)
        whole = is_multiple(extent, width)
        middle = stop
        if not whole:
            if number is not None:
                middle = self.uniform(loop.start + number // width * width)
            else:
                length = self.emitter.instruction(f"sub i64 {stop}, {start}")
                full = self.emitter.instruction(f"and i64 {length}, {-width}")
                middle = self.emitter.instruction(f"add i64 {start}, {full}")
        short = number < width if number is not None else non_negative(width - 1 - extent)
        if not short:
            with self._vector(loop.variable, width, None):
                values = self.counted(
                    loop.variable,
                    start,
                    middle,
                    width,
                    number is not None,
                    values,
                    lambda now: self._iteration(loop, now, True),
                )
        if not whole:

            def tail() -> Values:
                rest = self.emitter.instruction(f"sub i64 {stop}, {middle}")
                # LLVM must not know the mask: with a constant one it merges a narrowing and a masked store of
                # 8- or 16-bit elements into a wider store, which writes beyond the last element.
                rest = self.emitter.instruction(f'call i64 asm "", "=r,0"(i64 {rest})')
                many = self.emitter.splat(Lanes(i64, 1, (rest,)), width).name
                kind = vector("i64", width)
                mask = self.emitter.instruction(f"icmp slt {kind} {self.emitter.iota(width)}, {many}")
                with self._vector(loop.variable, width, mask):
                    self.symbols[loop.variable.name] = Lanes(i64, 1, (middle,))
                    self.depths[loop.variable.name] = len(self.frames) - 1
                    after = self._iteration(loop, values, True)
                    del self.symbols[loop.variable.name]
                return [
                    tuple(self.emitter.select(mask, width, new, old) for new, old in zip(news, olds, strict=True))
                    for news, olds in zip(after, values, strict=True)
                ]

            some = "true" if number is not None else self.emitter.instruction(f"icmp slt i64 {middle}, {stop}")
            values = self.conditional(some, tail, values)
        if self.note is not None and loop.accumulators:
            self.mark = ""
            self.write(f"; all {width} lanes onto one, halves onto halves")
            self.mark = self.note.nowhere
        return [
            self.emitter.horizontal(item.combiner, total)
            for item, total in zip(loop.accumulators, values, strict=False)
        ]

    def _starts(self, loop: Loop, lanes: int) -> Values:
        """Where the prefixes of a loop start."""
        return [(self.emitter.splat(self.operand(item.start), lanes),) for item in prefixes(loop)]

    def _iteration(self, loop: Loop, current: Values, across: bool) -> Values:
        """The body of a loop: what its accumulators and prefixes are behind it. `across`: lanes are iterations."""
        along = prefixes(loop)
        for item, (value,) in zip(along, current[len(loop.accumulators) :], strict=True):
            self.running[item.result.name] = value, across
        self.body(loop.body)
        return self._combined(loop, current) + [(self.running[item.result.name][0],) for item in along]

    def _prefix(self, statement: Prefix) -> None:
        combine = COMBINERS[statement.combiner].combine
        (current, across), value = self.running[statement.result.name], self.operand(statement.value)
        value = self.emitter.splat(value, self.lanes)
        if across:
            value = self.emitter.prefix(statement.combiner, value)
        (result,) = combine(self.emitter, (current,), (value,))
        # What goes on to the next iterations waits for one combination only: the last lane is spread before it.
        following = combine(self.emitter, (current,), (self.emitter.last(value),))[0] if across else result
        self.registers[statement.result.name] = result
        self.running[statement.result.name] = following, across

    @contextmanager
    def _vector(self, variable: Symbol, lanes: int, mask: str | None) -> Iterator[None]:
        known = dict(self.registers)
        self.variable, self.lanes, self.mask = variable, lanes, mask
        try:
            yield
        finally:
            self.variable, self.lanes, self.mask = None, 1, None
            self.registers = known
