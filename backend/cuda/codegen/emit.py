"""Emit Python source for numba.cuda of loop IR: a function for each tree of loops, which is one launch.

Buffers are parameters with flat indices, sizes are integers, and the last parameter is the array of noted errors. Kinds
of loops (kernels/loop/ir.py) and their mapping:

    grid      a grid-stride loop over threads
    block     a grid-stride loop over blocks, warp one over warps: `lane` is a thread's number in the block or warp
    thread    from `lane` on with a stride of the number of lanes; accumulators are reduced by shuffles
    vector    unrolled, with vector accesses where memory is contiguous and aligned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ....ir.errors import CompileError
from ....ir.symbolic import Dim, product
from ....ir.types import bool_, i64
from ....kernels.gpu import GPU
from ....kernels.loop.analysis import offset
from ....kernels.loop.ir import (
    TEAMS,
    Alloc,
    Buffer,
    Check,
    Gemm,
    Index,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Prefix,
    Register,
    Statement,
    Store,
    own_scratch,
    prefixes,
    walk,
)
from ....kernels.loop.roles import allocates
from ....kernels.loop.text import size_symbols
from ....kernels.scalar.table import COMBINERS
from .indices import Indices, Names
from .launch import Launch
from .product import product_source
from .rows import load_key, private_rows, repeated_loads, row_loads
from .scalars import NAMES, Functions, Text, TextBuilder, from_memory, literal, memory_name, to_memory
from .teams import Team
from .uses import accesses, behind_loops, fetches_first
from .vectors import Vector


class Emitter:
    """Writer of the function of one tree of loops."""

    def __init__(self, kernel: Kernel, name: str, functions: Functions, first_site: int, alignment: str, narrow: bool):
        self.kernel = kernel
        self.name = name
        self.first_site = first_site
        self.alignment = alignment  # of shared memory, as the text of an argument
        self.lines: list[str] = []
        self.depth = 1
        self.builder = TextBuilder(self.line, functions)
        self.texts: dict[str, Text] = {}
        self.names = Names()
        self.team: Team | None = None
        self.alone = True  # whether the current code is run by each thread for itself, not by a team together
        self.scratch: dict[str, Buffer] = {}
        self.changing: set[str] = set()  # buffers that the tree writes, and scratch
        self.own: set[str] = set()  # scratch in each thread's local memory
        self.common: set[str] = set()  # scratch in shared memory, one for each team
        self.private: set[str] = set()  # scratch whose elements each thread keeps in registers
        self.turn = 0  # number of the unrolled iteration of a loop over them
        self.repeated: set[tuple[Any, ...]] = set()  # loads of rows that more than one loop has
        self.kept: dict[tuple[Any, ...], list[Text]] = {}  # results of such loads, by load and turn
        self.row: Loop | None = None  # the loop over a row that is being unrolled
        self.shared = 0
        self.reading: set[str] = set()  # buffers that threads of the team may still be reading
        self.writing: set[str] = set()  # buffers that they may still be writing
        self.narrow = narrow  # whether indices have 32 bits
        self.indices = Indices(self.names, narrow)
        self.integer = self.indices.integer

    # Text.

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self, head: str) -> Any:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def divided(self, loop: Loop, turn: str | None = None) -> Iterator[None]:
        """Write the body of a loop, after names for the quotients of its variable."""
        with self.indices.within(loop) as wanted:
            for item in wanted:
                text = None
                if turn is not None and self.team is not None and item.left == loop.variable.expr() and loop.start == 0:
                    text = self.indices.divided_lane(item, turn, self.team.lanes)
                name = self.builder.fresh()
                self.line(f"{name} = {text or self.indices.atom(item)}")
                self.indices.quotients[item] = name
            yield

    def operand(self, operand: Operand) -> Text:
        if isinstance(operand, Literal):
            return self.builder.constant(operand.value, operand.dtype)
        return self.texts[operand.name]

    def bind(self, register: Register, text: Text) -> None:
        self.texts[register.name] = text

    # The function.

    def launch(self, lead: Sequence[Statement], tree: Loop) -> tuple[list[str], Launch]:
        """Write the function; return its lines and its launch."""
        buffers = [item for item in self.kernel.buffers if item.name in set.union(*accesses([*lead, tree]))]
        sizes = tuple(size_symbols(replace(self.kernel, body=(*lead, tree))))
        sites = any(isinstance(item, Check) for item in walk([*lead, tree]))
        parameters = [self.names[item.name] for item in buffers]
        parameters += [self.names[symbol.name] for symbol in sizes]
        self.changing = accesses([tree])[1] | {buffer.name for item in walk([tree]) for buffer in allocates(item)}
        self.block(lead)
        self.outermost(tree)
        head = f"def {self.name}({', '.join([*parameters, *(['errors'] if sites else [])])}):"
        launch = Launch(
            self.name,
            self.kernel.name,
            tree.kind,
            tree.extent,
            tree.width,
            tuple(buffers),
            sizes,
            sites,
            self.narrow,
            self.shared,
        )
        return [head, *self.lines], launch

    def outermost(self, loop: Loop) -> None:
        if loop.kind not in ("grid", *TEAMS):
            raise CompileError(f"{self.name}: a {loop.kind} loop is not mapped to a grid")
        variable, width = self.names[loop.variable.name], loop.width
        number = f"cuda.blockIdx.x * {width} + cuda.threadIdx.x"
        apart = f"cuda.gridDim.x * {width}"
        if loop.kind == "warp":
            number, apart = f"({number}) // 32", f"({apart}) // 32"
        elif loop.kind == "block":
            number, apart = "cuda.blockIdx.x", "cuda.gridDim.x"
        if loop.kind in TEAMS:
            lanes = 32 if loop.kind == "warp" else width
            self.team = Team(loop.kind, lanes, width)
            self.alone = False
            self.line(
                "lane = int32(cuda.threadIdx.x)" if loop.kind == "block" else "lane = int32(cuda.threadIdx.x % 32)"
            )
            self.own = {buffer.name for buffer in own_scratch(loop.body)}
            self.private = private_rows(loop, lanes) - self.own
            self.repeated = repeated_loads(loop, lanes)
        for item in walk(loop.body):
            for buffer in allocates(item):
                if buffer.name not in self.private:
                    self.allocate(buffer)
        self.line(f"{variable} = {self.integer}({number})")
        with self.indented(f"while {variable} < {self.indices.number(loop.stop)}:"):
            with self.divided(loop):
                if self.alone:
                    self.block(loop.body)
                else:
                    self.together(loop.body)
            if self.scratch.keys() - self.own:
                self.synchronize()
            # Not by sum32: knowing that it cannot overflow, the compiler would unroll a loop that rarely runs twice.
            self.line(f"{variable} = {self.integer}({variable} + {apart})")

    def allocate(self, buffer: Buffer) -> None:
        """Allocate scratch: in a team's shared memory, or in a thread's local memory."""
        size = product(buffer.shape)
        if not isinstance(size, int):
            raise CompileError(f"{self.name}: scratch of an open size")
        if buffer.name in self.scratch:
            raise CompileError(f"{self.name}: {buffer.name} is allocated twice")
        self.scratch[buffer.name] = buffer
        kind, name = memory_name(buffer.dtype), self.names[buffer.name]
        if self.team is None or buffer.name in self.own:
            self.line(f"{name} = cuda.local.array({size}, {kind})")
            return
        self.common.add(buffer.name)
        teams = self.team.threads // self.team.lanes
        self.take_shared(teams * size * buffer.dtype.bytes)
        self.line(f"{name} = cuda.shared.array({teams * size}, {kind}{self.alignment})")

    def take_shared(self, size: int) -> None:
        self.shared += size
        if self.shared > GPU.shared:
            raise CompileError(f"{self.name}: {self.shared} bytes of shared memory; a block has {GPU.shared}")

    # Statements.

    def block(self, statements: Sequence[Statement]) -> None:
        for statement in fetches_first(statements, self.changing) if self.alone else statements:
            self.statement(statement)

    def together(self, body: Sequence[Statement]) -> None:
        """Write the body of a team. Statements after the last loop are run by one thread."""
        first = behind_loops(body)
        self.block(body[:first])
        rest = body[first:]
        if rest:
            self.settle(rest)
            with self.indented("if lane == 0:"):
                self.on_own(lambda: self.block(rest))

    def statement(self, statement: Statement) -> None:
        if not self.alone:
            self.settle([statement])
        if isinstance(statement, Let):
            self.bind(statement.result, self.let(statement, [self.operand(item) for item in statement.operands]))
        elif isinstance(statement, Index):
            name = self.names[statement.result.name]
            self.line(f"{name} = int64({self.indices.sum(statement.expression)})")
            self.bind(statement.result, Text(i64, (name,)))
        elif isinstance(statement, Load):
            self.bind(statement.result, self.load(statement, self.names[statement.result.name]))
        elif isinstance(statement, Store):
            if self.alone:
                self.store(statement, self.operand(statement.value))
            else:
                with self.indented("if lane == 0:"):
                    self.store(statement, self.operand(statement.value))
        elif isinstance(statement, Check):
            self.check(statement)
        elif isinstance(statement, Loop):
            self.loop(statement)
        elif isinstance(statement, Gemm):
            self.gemm(statement)
        elif isinstance(statement, Prefix):
            self.prefix(statement)
        elif not isinstance(statement, Alloc):
            raise CompileError(f"{self.name}: a {type(statement).__name__.lower()} is not supported on a GPU")

    def settle(self, statements: Sequence[Statement]) -> None:
        """Write a barrier if statements touch memory that other threads may still be using."""
        reads, writes = (names - self.private - self.own for names in accesses(statements))
        if (reads | writes) & self.writing or writes & self.reading:
            self.synchronize()
        self.reading |= reads
        self.writing |= writes

    def synchronize(self) -> None:
        if self.team is not None:
            self.line(self.team.barrier)
        self.reading.clear()
        self.writing.clear()

    def let(self, statement: Let, operands: Sequence[Text], name: str | None = None) -> Text:
        builder = self.builder
        builder.wanted = name or self.names[statement.result.name]
        try:
            if statement.op == "cast":
                return builder.cast(operands[0], statement.result.dtype)
            if statement.op == "bitcast":
                return builder.bitcast(operands[0], statement.result.dtype)
            if statement.op in ("round_f16", "round_bf16"):
                return builder.round_to(operands[0], statement.op.removeprefix("round_"))
            return builder.op(statement.op, *operands)
        finally:
            builder.wanted = None

    def place(self, buffer: Buffer, at: Dim) -> str:
        """Write the index of an element in its memory."""
        if buffer.name not in self.scratch:
            return self.indices.number(at)
        # Unsigned: Numba then omits the handling of negative indices.
        if self.team is not None and self.team.kind == "warp" and buffer.name not in self.own:
            own = product(self.scratch[buffer.name].shape)
            return f"uint32((cuda.threadIdx.x // 32) * {own} + {self.indices.sum(at)})"
        return f"uint32({self.indices.sum(at)})"

    def is_constant(self, buffer: Buffer) -> bool:
        """Whether a buffer is not written during the launch. In a grid loop, a result may be stored in place of a
        parameter, whose elements are read by the thread that overwrites them (passes/memory/in_place.py)."""
        return self.team is not None and buffer.name not in self.changing

    def own_element(self, buffer: Buffer, lane: int = 0) -> Text:
        """Return the variable in which a thread keeps an element of a private row."""
        name = f"{self.names[buffer.name]}_{self.turn}_{lane}"
        return Text(buffer.dtype.compute, (f"{name}_re", f"{name}_im") if buffer.dtype.is_complex else (name,))

    def load(self, statement: Load, name: str) -> Text:
        buffer = statement.buffer
        if buffer.name in self.private:
            return self.own_element(buffer)
        if self.row is not None and (key := load_key(statement, self.row, self.row)) in self.repeated:
            return self.once(key, lambda: [self.load_element(statement, f"{name}_{self.turn}")])[0]
        return self.load_element(statement, name)

    def once(self, key: tuple[Any, ...], load: Callable[[], list[Text]]) -> list[Text]:
        """Load an element of a row in this turn, once for all loops: the first loop loads, the others reuse it."""
        if (key, self.turn) not in self.kept:
            self.kept[key, self.turn] = load()
        return self.kept[key, self.turn]

    def load_element(self, statement: Load, name: str) -> Text:
        buffer = statement.buffer
        memory, place = self.names[buffer.name], self.place(buffer, offset(buffer, statement.index))
        fetched = self.is_constant(buffer) and not buffer.dtype.is_complex
        where = f"fetch1({memory}, {place})" if fetched else f"{memory}[{place}]"
        guard = None if statement.guard is None else self.operand(statement.guard).name
        if buffer.dtype.is_complex:
            zero = "" if guard is None else f" if {guard} else {NAMES[buffer.dtype.name]}(0)"
            self.line(f"{name} = {where}{zero}")
            return Text(buffer.dtype, (f"{name}.real", f"{name}.imag"))
        text = from_memory(where, buffer.dtype)
        if guard is not None:
            text = f"{text} if {guard} else {literal(0, buffer.dtype.compute)}"
        self.line(f"{name} = {text}")
        return Text(buffer.dtype.compute, (name,))

    def store(self, statement: Store, value: Text) -> None:
        buffer = statement.buffer
        if buffer.name in self.private:
            self.assign([self.own_element(buffer)], [value])
            return
        where = f"{self.names[buffer.name]}[{self.place(buffer, offset(buffer, statement.index))}]"

        def write() -> None:
            new = value
            if statement.combine is not None:
                old = self.builder.assign(from_memory(where, buffer.dtype), buffer.dtype.compute)
                if buffer.dtype.is_complex:
                    old = Text(buffer.dtype, (f"{old.name}.real", f"{old.name}.imag"))
                new = self.combined(statement.combine, [old], [value])[0]
            self.line(f"{where} = {to_memory(new, buffer.dtype)}")

        if statement.guard is None:
            write()
        else:
            with self.indented(f"if {self.operand(statement.guard).name}:"):
                write()

    def check(self, statement: Check) -> None:
        """Check a data-dependent index: out of range it is noted as an error, and 0 is used."""
        place, good = self.names[statement.position.name], self.names[statement.guard.name]
        value, size = self.operand(statement.value).name, self.indices.number(statement.size)
        self.line(f"{place} = {value}")
        if statement.wrap:
            self.line(f"{place} = {place} + {size} if {place} < 0 else {place}")
        self.line(f"{good} = ({place} >= 0) & ({place} < {size})")
        record = 3 * (self.first_site + statement.site)
        with self.indented(f"if not {good}:"):
            self.line(f"errors[{record + 1}] = {value}")
            self.line(f"errors[{record + 2}] = {size}")
            self.line(f"errors[{record}] = 1")
        position = f"{place}_at"
        self.line(f"{position} = {self.integer}({place}) if {good} else {self.integer}(0)")
        self.names[statement.position.name] = position
        self.bind(statement.position, Text(i64, (f"int64({position})",)))
        self.bind(statement.guard, Text(bool_, (good,)))

    # Loops.

    def loop(self, loop: Loop) -> None:
        if loop.extent == 0 and not prefixes(loop):
            self.finish(loop, self.start(loop))  # one element is as good as another: such loops are not shared out
        elif loop.kind == "vector":
            self.vector(loop)
        elif loop.kind == "thread":
            self.shared_out(loop)
        elif self.alone:
            self.serial(loop)
        elif any(
            isinstance(item, Loop) and item.kind == "thread" or isinstance(item, Gemm) for item in walk(loop.body)
        ):
            self.serial(loop, together=True)
        elif not any(isinstance(item, Store) for item in walk(loop.body)):
            self.on_own(lambda: self.serial(loop))  # all threads compute the same
        elif loop.accumulators:
            raise CompileError(f"{self.name}: a serial loop of a team that both stores and reduces is not supported")
        else:
            with self.indented("if lane == 0:"):
                self.on_own(lambda: self.serial(loop))

    def on_own(self, write: Callable[[], None]) -> None:
        """Write code that each thread runs for itself."""
        before, self.alone = self.alone, True
        write()
        self.alone = before

    def serial(self, loop: Loop, together: bool = False) -> None:
        variable = self.names[loop.variable.name]
        totals = self.start(loop)
        for item in prefixes(loop):
            self.start_prefix(item)
        reading, writing, kept = set(self.reading), set(self.writing), dict(self.kept)
        self.line(f"{variable} = {self.indices.number(loop.start)}")
        stop = self.bound(loop.stop)
        with self.indented(f"while {variable} < {stop}:"):
            with self.divided(loop):
                self.block(loop.body)
            self.accumulate(loop, totals)
            if together and accesses(loop.body)[1]:
                self.synchronize()
            self.line(f"{variable} = {self.indices.added(variable, '1')}")
        if together and not (isinstance(loop.extent, int) and loop.extent > 0):
            # The loop may have had no iterations: no load can be reused, and no barrier counts.
            self.reading |= reading
            self.writing |= writing
            self.kept = kept
        self.finish(loop, totals)

    def bound(self, stop: Dim) -> str:
        """Write a loop's end, computed once before the loop."""
        if isinstance(stop, int):
            return str(stop)
        name = self.builder.fresh()
        self.line(f"{name} = {self.indices.number(stop)}")
        return name

    def start(self, loop: Loop) -> list[list[Text]]:
        """Define the variables of a loop's accumulators, with the combiner's identity."""
        totals: list[list[Text]] = []
        for item in loop.accumulators:
            numbers = COMBINERS[item.combiner].identity(item.results[0].dtype)
            made: list[Text] = []
            for register, number in zip(item.results, numbers, strict=True):
                value = self.builder.constant(number, register.dtype)
                names = self.register_names(register)
                for name, part in zip(names, value.parts, strict=True):
                    self.line(f"{name} = {part}")
                made.append(Text(register.dtype, names))
            totals.append(made)
        return totals

    def register_names(self, register: Register) -> tuple[str, ...]:
        name = self.names[register.name]
        return (f"{name}_re", f"{name}_im") if register.dtype.is_complex else (name,)

    def accumulate(self, loop: Loop, totals: Sequence[Sequence[Text]]) -> None:
        for item, total in zip(loop.accumulators, totals, strict=True):
            values = [self.operand(value) for value in item.values]
            self.assign(total, self.combined(item.combiner, total, values))

    def assign(self, targets: Sequence[Text], values: Sequence[Text]) -> None:
        left = [part for item in targets for part in item.parts]
        right = [part for item in values for part in item.parts]
        self.line(f"{', '.join(left)} = {', '.join(right)}")

    def combined(self, combiner: str, left: Sequence[Text], right: Sequence[Text]) -> list[Text]:
        if len(left) == 1:
            return list(COMBINERS[combiner].combine(self.builder, tuple(left), tuple(right)))
        function = self.builder.combiner(combiner, [item.dtype for item in left])
        names = [Text(item.dtype, tuple(self.builder.fresh() for _ in item.parts)) for item in left]
        arguments = ", ".join(part for item in (*left, *right) for part in item.parts)
        self.line(f"{', '.join(part for item in names for part in item.parts)} = {function}({arguments})")
        return names

    def finish(self, loop: Loop, totals: Sequence[Sequence[Text]]) -> None:
        for item, total in zip(loop.accumulators, totals, strict=True):
            for register, text in zip(item.results, total, strict=True):
                self.bind(register, text)

    def shared_out(self, loop: Loop) -> None:
        """Write a loop whose iterations are divided among the threads of the team."""
        team = self.team
        assert team is not None
        if prefixes(loop):
            self.scan(loop)
            return
        variable = self.names[loop.variable.name]
        totals = self.start(loop)

        def body(turn: str | None = None) -> None:
            with self.divided(loop, turn):
                self.block(loop.body)
            self.accumulate(loop, totals)

        first = ["lane"] if loop.start == 0 else [*self.indices.terms(loop.start), "lane"]
        extent = loop.extent
        if isinstance(extent, int) and extent == team.lanes:
            self.line(f"{variable} = {self.indices.added(*first)}")
            self.on_own(body)
        elif set.union(*accesses(loop.body)) & self.private or row_loads(loop, team.lanes) & self.repeated:
            assert isinstance(extent, int)
            self.row = loop
            for self.turn in range(extent // team.lanes):
                self.line(f"{variable} = {self.indices.added(*first, str(self.turn * team.lanes))}")
                self.on_own(partial(body, str(self.turn)))
            self.row = None
        elif isinstance(extent, int) and extent % team.lanes == 0:
            # Equally many for all threads: the compiler can unroll the loop, and needs no check of its end.
            turn = self.builder.fresh()
            self.line(f"{turn} = int32(0)")
            with self.indented(f"while {turn} < {extent // team.lanes}:"):
                self.line(f"{variable} = {self.indices.added(*first, f'{turn} * {team.lanes}')}")
                self.on_own(partial(body, turn))
                self.line(f"{turn} = int32({turn} + 1)")
        else:
            self.line(f"{variable} = {self.indices.added(*first)}")
            stop = self.bound(loop.stop)
            with self.indented(f"while {variable} < {stop}:"):
                self.on_own(body)
                self.line(f"{variable} = {self.indices.added(variable, str(team.lanes))}")
        for item, total in zip(loop.accumulators, totals, strict=True):
            function = team.reduction(self.builder, item.combiner, [text.dtype for text in total])
            arguments = ", ".join(part for text in total for part in text.parts)
            self.line(f"{', '.join(part for text in total for part in text.parts)} = {function}({arguments})")
        self.finish(loop, totals)

    # Prefixes.

    def start_prefix(self, item: Prefix) -> None:
        """Define the variable of a prefix's running value."""
        target = Text(item.result.dtype, self.register_names(item.result))
        self.assign([target], [self.operand(item.start)])
        self.bind(item.result, target)

    def prefix(self, item: Prefix) -> None:
        running = self.texts[item.result.name]
        self.assign([running], self.combined(item.combiner, [running], [self.operand(item.value)]))

    def scan(self, loop: Loop) -> None:
        """Write a scan: one iteration per lane at a time, with prefixes carried from chunk to chunk."""
        team = self.team
        assert team is not None and not loop.accumulators
        variable, base, active = self.names[loop.variable.name], self.builder.fresh(), self.builder.fresh()
        for item in prefixes(loop):
            self.start_prefix(item)
            running = self.texts[item.result.name]
            carried = Text(running.dtype, tuple(f"{part}_carry" for part in running.parts))
            self.assign([carried], [running])
        self.line(f"{base} = {self.indices.number(loop.start)}")
        stop = self.bound(loop.stop)
        with self.indented(f"while {base} < {stop}:"):
            self.line(f"{variable} = {self.indices.added(base, 'lane')}")
            self.line(f"{active} = {variable} < {stop}")
            pending: list[Statement] = []
            for statement in loop.body:
                if not isinstance(statement, Prefix):
                    pending.append(statement)
                    continue
                running = self.texts[statement.result.name]
                numbers = COMBINERS[statement.combiner].identity(running.dtype)
                self.assign([running], [self.builder.constant(numbers[0], running.dtype)])
                with self.indented(f"if {active}:"):
                    self.on_own(partial(self.block, tuple(pending)))
                    self.assign([running], [self.operand(statement.value)])
                pending = []
                function = team.scan(self.builder, statement.combiner, running.dtype)
                total = Text(running.dtype, tuple(self.builder.fresh() for _ in running.parts))
                given = ", ".join(running.parts)
                self.line(f"{given}, {', '.join(total.parts)} = {function}({given})")
                carried = Text(running.dtype, tuple(f"{part}_carry" for part in running.parts))
                self.assign([running], self.combined(statement.combiner, [carried], [running]))
                self.assign([carried], self.combined(statement.combiner, [carried], [total]))
            with self.indented(f"if {active}:"):
                self.on_own(lambda: self.block(pending))
                self.line("pass")
            self.line(f"{base} = {self.indices.added(base, str(team.lanes))}")

    def vector(self, loop: Loop) -> None:
        """Write a vector loop: all iterations at once; a remainder with fewer runs serially."""
        if loop.extent == loop.width:
            Vector(self, loop).write()
            return
        assert not loop.accumulators
        with self.indented(f"if {self.indices.number(loop.start)} + {loop.width} <= {self.indices.number(loop.stop)}:"):
            Vector(self, loop).write()
        with self.indented("else:"):
            self.serial(replace(loop, kind="serial", width=1))

    # GEMM.

    def gemm(self, statement: Gemm) -> None:
        """Write a tile of a GEMM, computed by the whole block."""
        target, factors = statement.output.buffer, (statement.left, statement.right)
        kinds = [matrix.buffer.dtype for matrix in factors]
        tile = statement.output.row_stride
        assert isinstance(tile, int)
        name = "_".join([f"product{tile}", self.integer, target.dtype.name, *(kind.name for kind in kinds)])
        functions = self.builder.functions.sources
        if name not in functions:
            left, right = (from_memory("{}", kind) for kind in kinds)
            functions[name] = product_source(name, target.dtype, tile, left, right, self.alignment, self.integer)
        self.take_shared(2 * tile * GPU.depth * target.dtype.bytes)
        arguments = [self.names[target.name]]
        for matrix in factors:
            arguments.append(self.names[matrix.buffer.name])
            arguments += map(self.indices.number, (matrix.offset, matrix.row_stride, matrix.column_stride))
        arguments += map(self.indices.number, (statement.rows, statement.columns, statement.depth))
        self.line(f"{name}({', '.join(arguments)})")
        self.reading.clear()
        self.writing.clear()
