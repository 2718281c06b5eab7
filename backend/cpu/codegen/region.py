"""Emit LLVM text of loop IR: a region is a function that a thread runs for a range of a loop.

In a vector loop every register is uniform (a scalar) or has a value per lane; a scalar is broadcast only where it is
combined with a vector. The remainder of a loop, the last incomplete vector, runs the same body under a mask.
frames.py has the text and the index arithmetic, accesses.py the loads and stores, calls.py the calls of routines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....ir.errors import CompileError
from ....ir.proofs import is_multiple, non_negative
from ....ir.symbolic import Dim, Symbol
from ....ir.types import bool_, i32, i64
from ....kernels.loop.ir import (
    Alloc,
    Buffer,
    Check,
    Fetch,
    Gemm,
    Index,
    Lead,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Pack,
    Prefix,
    Register,
    Sort,
    Statement,
    Store,
    Transpose,
    prefixes,
    walk,
)
from ....kernels.loop.text import list_text, loop_head, operands_text
from ....kernels.machine import CACHE_LINE
from ....kernels.scalar.table import COMBINERS
from ....passes.memory.lifetime import Owner
from ..llvm.types import Lanes, constant, register_type, suffix, vector
from .accesses import Accesses
from .calls import Calls
from .debug import FunctionNotes
from .frames import Frame, Frames, Outside
from .scalars import ScalarEmitter

Values = list[tuple[Lanes, ...]]

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Region(Frames):
    """Writer of the body of one function."""

    def __init__(
        self,
        declarations: set[str],
        pointer: Callable[[Region, Buffer], str],
        size: Callable[[Region, Symbol], str],
        scratch: Callable[[Region, Owner], str],
        bits: int,
        note: FunctionNotes | None = None,
        number: Callable[[Region, int], str] | None = None,
    ):
        mark = note.nowhere if note is not None else ""
        emitter = ScalarEmitter(self.write, declarations, self._branch, bits)
        super().__init__(emitter, functools.partial(size, self), mark)
        self.register_depths: dict[str, int] = {}
        self.running: dict[str, tuple[Lanes, bool]] = {}  # running value of each prefix, and whether it is across lanes
        self.rising: dict[str, str] = {}  # registers with indices of stride 1 over lanes: the first lane's value
        self.mask: str | None = None
        self.note = note
        self._pointer = pointer
        self._scratch = scratch
        self._number = number
        self.bits = bits
        self.pointers: dict[str, str] = {}
        self.prepared: set[str] = set()  # scratch that a thread fills once per job
        self.accesses = Accesses(self)
        self.calls = Calls(self)

    def pointer(self, buffer: Buffer) -> str:
        found = self.pointers.get(buffer.name)
        if found is None:
            with self.at(0):
                found = self._pointer(self, buffer)
            self.pointers[buffer.name] = found
        return found

    def scratch(self, owner: Owner) -> str:
        """Return the address of this thread's scratch."""
        return self._scratch(self, owner)

    def passed(self, value: Dim) -> str:
        """Return a number that is only passed on to a routine: a constant may become an argument of the kernel."""
        return self._number(self, value) if self._number and isinstance(value, int) else self.uniform(value)

    # Statements.

    def operand(self, operand: Operand) -> Lanes:
        if isinstance(operand, Literal):
            return self.emitter.constant(operand.value, operand.dtype)
        return self.registers[operand.name]

    def prepare(self, statements: Sequence[Statement]) -> None:
        """Pack, before a thread's first run of the loop only: `%before` is zero then, and not in its later runs."""
        packs = [item for item in walk(statements) if isinstance(item, Pack) and item.once]
        if not packs:
            return
        for item in packs:
            self.pointers[item.output.buffer.name] = self.scratch(item.output.buffer.name)
            self.prepared.add(item.output.buffer.name)

        def pack() -> None:
            for item in packs:
                self.calls.pack(item)

        self.conditional(self.emitter.instruction("icmp eq i64 %before, 0"), pack)

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
            elif isinstance(statement, Fetch):
                self.accesses.fetch(statement)
            elif isinstance(statement, Index):
                self._index(statement)
            elif isinstance(statement, Check):
                self._check(statement)
            elif isinstance(statement, Lead):
                self._lead(statement)
            elif isinstance(statement, Prefix):
                self._prefix(statement)
            elif isinstance(statement, Loop):
                self.loop(statement)
            elif isinstance(statement, Alloc):
                if statement.buffer.name not in self.prepared:
                    self.pointers[statement.buffer.name] = self.scratch(statement.buffer.name)
            elif isinstance(statement, Gemm):
                self.calls.gemm(statement)
            elif isinstance(statement, Transpose):
                self.calls.transpose(statement)
            elif isinstance(statement, Sort):
                self.calls.sort(statement)
            elif isinstance(statement, Pack):
                if not statement.once:
                    self.calls.pack(statement)
            else:
                raise CompileError(f"a {type(statement).__name__} is not supported inside a CPU function")

    def _annotate(self, statement: Statement) -> None:
        """Write the statement as a comment, and attach its line to its instructions."""
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
        elif isinstance(statement, Fetch):
            self.write(f"; fetch {statement.buffer.name}[{list_text(statement.index)}]")
        self.mark = self.note.nowhere if origin is None else self.note.line(origin)

    def _hoisted(self, result: Register, depth: int) -> Outside:
        """Hoist the statement that defines `result` to a frame: the outermost one that has its operands."""
        self.register_depths[result.name] = depth
        return self.at(depth)

    def _load_depth(self, statement: Load) -> int:
        """Choose the frame of a load: a single number is hoisted before all loops, other loads stay in place."""
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
        """Narrow a comparison of a stride-1 index with a uniform number to 32 bits: compare the lane numbers with the
        number's distance from the first lane, made opaque to LLVM (see _index).

        The distance is clamped to [-1, lanes], which changes no comparison."""
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
        distance = Lanes(i32, 1, (self.emitter.instruction(f"trunc i64 {self.emitter.hidden(far)} to i32"),))
        lanes = Lanes(i32, self.lanes, (self.emitter.iota(self.lanes, "i32"),))
        return [lanes, distance] if number == 0 else [distance, lanes]

    def _index(self, statement: Index) -> None:
        """Compute an index, with its lanes made opaque to LLVM. In the remainder of a loop of known size LLVM would
        know them; it turns selects by a known mask into shuffles, and its code generator does not terminate on some
        shuffles of i1."""
        self.rising.pop(statement.result.name, None)
        if self.varying(statement.expression):
            self.hides = True
            result = Lanes(i64, self.lanes, (self.wide(statement.expression),))
            self.hides = False
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

    def _lead(self, statement: Lead) -> None:
        """Compute the alignment prologue's length, before all loops: it depends on the buffer's address alone."""
        width = statement.buffer.dtype.bytes
        with self.at(0):
            write = self.emitter.instruction
            address = write(f"ptrtoint ptr {self.pointer(statement.buffer)} to i64")
            before = write(f"and i64 {write(f'sub i64 0, {address}')}, {CACHE_LINE - 1}")
            lead = write(f"lshr i64 {before}, {width.bit_length() - 1}")
        self.symbols[statement.position.name] = Lanes(i64, 1, (lead,))
        self.depths[statement.position.name] = 0

    # Control.

    def conditional(self, condition: str, body: Callable[[], Values | None], otherwise: Values | None = None) -> Values:
        """Write `if condition: body()`; merge the values that the body returns with `otherwise` by phis."""
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
        """Write `yes() if condition else no()`; return a phi of the values, of an LLVM type."""
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
        """Write a branch for ScalarEmitter; in an outer frame, straight-line code instead."""
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
        """Write `for variable in start..stop by step`, with values carried from one iteration to the next."""
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
        """Write a serial or vector loop; return its accumulators."""
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
        """Combine the accumulators with the values of the iteration just written."""
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
                if not non_negative(extent):
                    # A negative trip count would put the remainder before the first iteration.
                    self.emitter.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
                    length = self.emitter.instruction(f"call i64 @llvm.smax.i64(i64 {length}, i64 0)")
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
                # The mask is opaque to LLVM: with a constant one it merges a truncation and a masked store of 8- or
                # 16-bit elements into a wider store, which writes beyond the last element.
                rest = self.emitter.hidden(rest)
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
        """Return the start values of a loop's prefixes."""
        return [(self.emitter.splat(self.operand(item.start), lanes),) for item in prefixes(loop)]

    def _iteration(self, loop: Loop, current: Values, across: bool) -> Values:
        """Write the body of a loop; return its accumulators and prefixes after it. across: lanes are iterations."""
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
        # The loop-carried dependence is one combination only: the last lane is broadcast before it.
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
