"""Emit a compiled graph as one LLVM module: `run(ctx)` calls its kernels in order.

`ctx` is a block of 64-bit slots (backend/cpu/abi.py, Layout). A kernel is a function of its own argument block, which
`run` fills: ctx, the number of its first site, its sizes and its buffers, and the numbers that only GEMM routines use.
So kernels that differ only in these share their code, which is compiled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from ctypes import sizeof
from dataclasses import dataclass

from ....ir.proofs import ceil_divide
from ....ir.record import Record
from ....ir.symbolic import Dim, Symbol
from ....kernels.loop.analysis import cost, parallel_regions
from ....kernels.loop.ir import Alloc, Buffer, Concurrent, Gemm, Kernel, Loop, Pack, Sort, Statement, Transpose, walk
from ....kernels.loop.roles import buffers
from ....kernels.loop.text import identity, size_symbols
from ....kernels.machine import Machine
from ....passes.memory.lifetime import Owner
from ....passes.memory.scratch import Arena, KernelScratch, Place
from ..abi import ARENA, ERROR, PARALLEL, POOL, SCRATCH, SCRATCH_STRIDE, Arguments, Problem, slots
from ..llvm.parts import Module, Part, declaration
from ..microkernels.transpose import ELEMENTS, called, transpose_text
from .accesses import NONTEMPORAL
from .debug import DebugInfo
from .region import Region

SMALL = 64  # numbers up to this stay constants of the code: they are sizes of tiles, the same in most kernels


@dataclass
class Layout:
    """The slots of ctx. Offsets in the arena are in bytes."""

    sizes: dict[str, int]
    pointers: dict[str, int]  # parameters and results, by buffer name
    arena: Arena  # offsets of temporaries, and of the scratch of steps that the caller runs alone


class Step(Record):
    """One function of a kernel, with the trip count of its loop and its grain: iterations a thread takes at a time."""

    function: str
    count: Dim
    grain: int | None  # None: the caller runs it alone
    long: bool = False  # enough work to wake a sleeping thread
    blocks: tuple[tuple[int, ...], ...] = ()  # buffers of each branch, as indices into the kernel's


class Address(Record):
    """An argument: the address of the kernel's n-th scratch buffer that the caller uses alone."""

    number: int


class Code(Record):
    """The emitted code of a kernel, shared by all kernels equal to it."""

    steps: list[Step]
    sizes: list[Symbol]
    arguments: list[int | Address]  # that follow its buffers


# A block of arguments: its head, then sizes, then buffers, then numbers and addresses of scratch.
CONTEXT, FIRST_SITE = slots(Arguments)
HEAD = sizeof(Arguments) // 8
_, SITE, INDEX, BOUND = slots(Problem)


ZERO = "@zero = private constant [64 x i8] zeroinitializer, align 64"

REPORT = f"""
; The first index out of range is kept for the caller.
define void @report(ptr %args, i64 %number, i64 %index, i64 %bound) nounwind {{
  %ctx = load ptr, ptr %args
  %first.at = getelementptr i64, ptr %args, i64 {FIRST_SITE}
  %first.site = load i64, ptr %first.at
  %site = add i64 %first.site, %number
  %slot = getelementptr i64, ptr %ctx, i64 {ERROR}
  %error = load ptr, ptr %slot
  %old = cmpxchg ptr %error, i64 0, i64 1 seq_cst seq_cst
  %first = extractvalue {{ i64, i1 }} %old, 1
  br i1 %first, label %write, label %done
write:
  %at1 = getelementptr i64, ptr %error, i64 {SITE}
  store i64 %site, ptr %at1
  %at2 = getelementptr i64, ptr %error, i64 {INDEX}
  store i64 %index, ptr %at2
  %at3 = getelementptr i64, ptr %error, i64 {BOUND}
  store i64 %bound, ptr %at3
  br label %done
done:
  ret void
}}
"""


class ModuleEmitter:
    """Emits kernels one after the other. Parts of the module are available as soon as they are long enough."""

    def __init__(self, machine: Machine, annotate: bool, data_offset: int | None):
        self.layout: Layout  # set by finish
        self.added: list[tuple[Kernel, Code]] = []
        self.data_offset = data_offset  # offset of the data pointer in an array object; None: slots hold data pointers
        self.machine = machine
        self.debug = DebugInfo() if annotate else None
        self.declarations: set[str] = set()
        self.module = Module()
        self.is_long = False  # some step has enough work to wake a sleeping thread
        self.transpositions: dict[tuple[int, bool], str] = {}  # by element size, and whether prefetched
        self.known: dict[str, Code] = {}  # kernels, by their identity
        self.functions: dict[str, str] = {}  # names of functions, by their texts
        self.branches: dict[str, str] = {}  # functions of branches, by their identity
        self.sites = 0
        self.scratch: KernelScratch | None = None  # of the kernel
        self.places: Mapping[Owner, Dim] = {}  # of a region's scratch
        self.placed: dict[Owner, int] = {}  # scratch that is an argument of the kernel: which one it is
        self.next_block = 0  # where the arguments of the next branch begin
        self.kernel: Kernel | None = None
        self.sizes: list[str] = []
        self.arguments: list[int | Address] = []  # of the kernel, following its buffers
        self.passes_numbers = False  # whether numbers may be among them

    def add(self, kernel: Kernel, scratch: KernelScratch, like: int | None = None) -> None:
        """Add the functions of the next kernel; those of an earlier one if the kernels are equal but for names."""
        self.added.append((kernel, self._code(kernel, scratch) if like is None else self.added[like][1]))

    def next_part(self) -> Part | None:
        """Take the part of the module emitted so far, if it is long enough to be compiled already."""
        if self.debug is not None or not self.module.is_enough():
            return None
        text = "\n".join(self.module.taken())
        self._transpositions(text)
        functions = [item for item in sorted(self.declarations) if item.startswith("define")]
        others = [*functions, *self.transpositions.values(), *([REPORT] if "@report(" in text else [])]
        return Part("\n".join([text, *map(declaration, others), *self._shared(text)]), False)

    def finish(self, layout: Layout) -> Module:
        """Write `run` and return the whole module."""
        self.layout = layout
        self._run()
        module = self.module
        text = module.text
        if "@report(" in text:
            module.plain.append(REPORT)
        self._transpositions(text)
        module.hot += self.transpositions.values()
        module.hot += (item for item in sorted(self.declarations) if item.startswith("define"))
        module.shared = self._shared(text)
        if self.debug is not None:
            module.shared.append(self.debug.metadata())
        return module

    def _transpositions(self, text: str) -> None:
        """Write the transposition routines that a text calls."""
        for kind in itertools.product(ELEMENTS, (False, True)):
            if kind not in self.transpositions and called(*kind) in text:
                self.transpositions[kind] = transpose_text(*kind, self.machine, self.declarations)

    def _shared(self, text: str) -> list[str]:
        """Write declarations, attributes and metadata for all parts."""
        bits = self.machine.vector_bits
        shared = [item for item in sorted(self.declarations) if not item.startswith("define")]
        shared.append(
            # Without an aligned stack, spilled vectors may cross cache lines.
            f'attributes #0 = {{ nounwind alignstack={bits // 8} "prefer-vector-width"="{bits}" '
            f'"min-legal-vector-width"="{bits}" }}'
        )
        if "@zero" in text:
            shared.append(ZERO)
        if NONTEMPORAL in text:
            shared.append(f"{NONTEMPORAL} = !{{i32 1}}")
        return shared

    # run

    def _run(self) -> None:
        """Write the function that calls the kernels in order."""
        run = Region(self.declarations, self._run_pointer, self._run_size, self._scratch, self.machine.vector_bits)
        for name, slot in (("parallel", PARALLEL), ("pool", POOL)):
            run.write(f"%{name}.at = getelementptr i64, ptr %ctx, i64 {slot}")
            run.write(f"%{name} = load ptr, ptr %{name}.at")
        slots = 0
        for number, (kernel, code) in enumerate(self.added):
            slots = max(slots, self._call(run, number, kernel, code))
            self.is_long |= any(step.long for step in code.steps)
            self.sites += len(kernel.sites)
        body = "\n".join(run.frames[0].lines)
        block = f"  %args = alloca [{slots} x i64], align 16\n" if slots else ""
        # Not optimized: it runs once, and with many kernels it is long.
        self.module.plain.append(f"define void @run(ptr %ctx) nounwind {{\nentry:\n{block}{body}\n  ret void\n}}")

    def _run_pointer(self, region: Region, buffer: Buffer) -> str:
        slot = self.layout.pointers.get(buffer.name)
        write = region.emitter.instruction
        if slot is not None:
            at = write(f"getelementptr i64, ptr %ctx, i64 {slot}")
            array = write(f"load ptr, ptr {at}, align 8")
            if self.data_offset is None:
                return array
            return write(f"load ptr, ptr {write(f'getelementptr i8, ptr {array}, i64 {self.data_offset}')}, align 8")
        return self._planned(region, buffer.name)

    def _planned(self, region: Region, place: Place) -> str:
        """Compute the address of a buffer with a place in the arena."""
        arena, write = self.layout.arena, region.emitter.instruction
        slot, offset = (SCRATCH, arena.unshared[place]) if place in arena.unshared else (ARENA, arena.offsets[place])
        base = write(f"load ptr, ptr {write(f'getelementptr i64, ptr %ctx, i64 {slot}')}, align 8")
        return write(f"getelementptr i8, ptr {base}, i64 {region.uniform(offset)}")

    def _run_size(self, region: Region, symbol: Symbol) -> str:
        at = region.emitter.instruction(f"getelementptr i64, ptr %ctx, i64 {self.layout.sizes[symbol.name]}")
        return region.emitter.instruction(f"load i64, ptr {at}, align 8")

    def _call(self, run: Region, place: int, kernel: Kernel, code: Code) -> int:
        """Fill the argument block and run the kernel's steps; return the block's length.

        The buffers of concurrent loops are arguments of the branches, each with a block of its own."""
        run.write(f"; {kernel.name}")
        head = [("ptr", "%ctx"), ("i64", str(self.sites))]
        buffers = [("ptr", run.pointer(buffer)) for buffer in kernel.buffers]
        sizes = [("i64", run.uniform(symbol.expr())) for symbol in code.sizes]
        values = [*head, *sizes, *([] if only_concurrent(kernel) else buffers)]
        for item in code.arguments:
            if isinstance(item, Address):
                values.append(("ptr", self._planned(run, (place, item.number))))
            else:
                values.append(("i64", str(item)))
        for block in (block for step in code.steps for block in step.blocks):
            values += [*head, *sizes, *(buffers[number] for number in block)]
        for slot, (kind, value) in enumerate(values):
            at = run.emitter.instruction(f"getelementptr i64, ptr %args, i64 {slot}")
            run.write(f"store {kind} {value}, ptr {at}, align 8")
        for step in code.steps:
            count = run.uniform(step.count)
            if step.grain is None:
                run.write(f"call void @{step.function}(ptr %args, i64 0, i64 {count}, i64 0, i64 0)")
            else:
                run.write(
                    f"call void %parallel(ptr %pool, ptr @{step.function}, ptr %args, i64 {count}, i64 {step.grain}, "
                    f"i1 {str(step.long).lower()})"
                )
        return len(values)

    # Kernels

    def _pointer(self, region: Region, buffer: Buffer) -> str:
        assert self.kernel is not None
        names = [item.name for item in self.kernel.buffers]
        return self._argument(region, "ptr", HEAD + len(self.sizes) + names.index(buffer.name))

    def _size(self, region: Region, symbol: Symbol) -> str:
        return self._argument(region, "i64", HEAD + self.sizes.index(symbol.name))

    def _number(self, region: Region, number: int) -> str:
        """Use a number as an argument instead of a constant: code does not get better by knowing it."""
        # One argument for each use: sharing equal ones would make kernels differ by which of them are equal.
        return self._passed(region, "i64", number) if self.passes_numbers and number > SMALL else str(number)

    def _passed(self, region: Region, kind: str, value: int | Address) -> str:
        """Add an argument; return its loaded value."""
        assert self.kernel is not None
        slot = HEAD + len(self.sizes) + len(self.kernel.buffers) + len(self.arguments)
        self.arguments.append(value)
        with region.at(0):
            return self._argument(region, kind, slot)

    def _argument(self, region: Region, kind: str, slot: int) -> str:
        at = region.emitter.instruction(f"getelementptr i64, ptr %args, i64 {slot}")
        return region.emitter.instruction(f"load {kind}, ptr {at}, align 8")

    def _scratch(self, region: Region, owner: Owner) -> str:
        if owner in self.placed:
            return self._passed(region, "ptr", Address(self.placed[owner]))
        place = self.places[owner]
        write = region.emitter.instruction
        with region.at(0):
            if "%scratch" not in region.pointers:
                context = self._argument(region, "ptr", CONTEXT)
                base = write(f"load ptr, ptr {write(f'getelementptr i64, ptr {context}, i64 {SCRATCH}')}, align 8")
                stride = write(f"getelementptr i64, ptr {context}, i64 {SCRATCH_STRIDE}")
                mine = write(f"mul i64 %worker, {write(f'load i64, ptr {stride}, align 8')}")
                region.pointers["%scratch"] = write(f"getelementptr i8, ptr {base}, i64 {mine}")
            offset = self._number(region, place) if isinstance(place, int) else region.uniform(place)
            return write(f"getelementptr i8, ptr {region.pointers['%scratch']}, i64 {offset}")

    def _code(self, kernel: Kernel, scratch: KernelScratch) -> Code:
        """Emit the functions of a kernel; return those of an equal kernel if there is one."""
        key = identity(kernel)
        if key in self.known:
            return self.known[key]
        sizes = size_symbols(kernel)
        self.kernel, self.sizes = kernel, [symbol.name for symbol in sizes]
        self.next_block = HEAD + len(self.sizes) + (0 if only_concurrent(kernel) else len(kernel.buffers))
        self.arguments, self.passes_numbers = [], takes_numbers(kernel)
        self.scratch, self.placed = scratch, {owner: number for number, owner in enumerate(scratch.alone)}
        steps: list[Step] = []
        for region in parallel_regions(kernel):
            name, first = f"{kernel.name}.r{len(steps)}", region[0]
            if isinstance(first, Concurrent):
                steps.append(self._concurrent(name, first))
            elif isinstance(first, Loop) and first.kind == "parallel":
                steps.append(
                    Step(
                        self._parallel(name, first), first.stop, first.width, cost([first]) >= self.machine.sharing.wake
                    )
                )
            else:
                steps.append(Step(self._serial(name, region), 1, None))
        self.known[key] = Code(steps, sizes, self.arguments)
        return self.known[key]

    def _region(self, name: str) -> Region:
        note = None if self.debug is None else self.debug.function(name)
        return Region(
            self.declarations, self._pointer, self._size, self._scratch, self.machine.vector_bits, note, self._number
        )

    def _finish(self, name: str, region: Region, plain: bool) -> str:
        """Add a function unless one has the same text; return its name."""
        lines = "\n".join(region.frames[0].lines)
        sink = "  %sink = alloca [32 x i8], align 16\n" if "%sink" in lines else ""
        if NONTEMPORAL in lines:
            # Non-temporal stores are not ordered by the atomics with which a thread reports the end of its share.
            lines += "\n  fence seq_cst"
        note = f" !dbg {region.note.scope}" if region.note is not None else ""
        text = (
            f"(ptr %args, i64 %begin, i64 %end, i64 %worker, i64 %before) #0{note} {{\n"
            f"entry:\n{sink}{lines}\n  ret void\n}}"
        )
        if text not in self.functions:
            self.functions[text] = name
            (self.module.plain if plain else self.module.hot).append(f"define void @{name}{text}")
        return self.functions[text]

    def _places(self, first: Statement) -> Mapping[Owner, Dim]:
        """Return the places of scratch in the region that begins with a statement."""
        assert self.scratch is not None
        plan = self.scratch.plans.get(id(first))
        return {} if plan is None else plan.offsets

    def _serial(self, name: str, statements: Sequence[Statement]) -> str:
        region = self._region(name)
        self.places = self._places(statements[0])
        for statement in statements:
            # Not before the preceding ones, which may compute the matrix that it packs.
            region.prepare([statement])
            region.body([statement])
        return self._finish(name, region, only_calls(statements))

    def _parallel(self, name: str, loop: Loop) -> str:
        region = self._region(name)
        self.places = self._places(loop)
        region.prepare(loop.body)

        def body(current: list) -> list:
            region.body(loop.body)
            return []

        region.counted(loop.variable, "%begin", "%end", 1, True, [], body)
        return self._finish(name, region, only_calls([loop]))

    def _concurrent(self, name: str, statement: Concurrent) -> Step:
        """Emit a region of the tiles of all branches: tile numbers run through the branches in turn."""
        kernel = self.kernel
        assert kernel is not None
        counts: list[Dim] = []
        functions: list[str] = []
        blocks: list[tuple[int, ...]] = []
        for branch in statement.branches:
            names = {buffer.name for item in walk([branch]) for buffer in buffers(item)}
            blocks.append(tuple(number for number, buffer in enumerate(kernel.buffers) if buffer.name in names))
            functions.append(self._branch(f"{name}.b{len(functions)}", branch, blocks[-1]))
            counts.append(ceil_divide(branch.stop, branch.width) if branch.kind == "parallel" else 1)
        region = self._region(name)
        tile = Symbol("%tile")

        def body(current: list) -> list:
            now = region.symbols["%tile"].name
            write = region.emitter.instruction
            # The end of the previous run of this thread, if it had one.
            before = write(f"select i1 {write(f'icmp eq i64 {now}, %begin')}, i64 %before, i64 {now}")
            first: Dim = 0
            for branch, count, function, block in zip(statement.branches, counts, functions, blocks, strict=True):
                low, high = region.uniform(first), region.uniform(first + count)
                above, below = write(f"icmp sge i64 {now}, {low}"), write(f"icmp slt i64 {now}, {high}")
                local = write(f"sub i64 {now}, {low}")
                # Scratch keeps the packed panels if the previous run was of this branch.
                after, until = write(f"icmp sgt i64 {before}, {low}"), write(f"icmp sle i64 {before}, {high}")
                again = write(f"zext i1 {write(f'and i1 {after}, {until}')} to i64")

                def call(
                    function: str = function, branch: Loop = branch, local: str = local, again: str = again
                ) -> None:
                    begin, end = "0", "1"
                    if branch.kind == "parallel":
                        begin = write(f"mul i64 {local}, {branch.width}")
                        over = write(f"add i64 {begin}, {branch.width}")
                        stop = region.uniform(branch.stop)
                        end = region.emitter.call("i64", "llvm.smin.i64", ("i64", over), ("i64", stop))
                    own = write(f"getelementptr i64, ptr %args, i64 {self.next_block}")
                    region.write(f"call void @{function}(ptr {own}, i64 {begin}, i64 {end}, i64 %worker, i64 {again})")

                region.conditional(write(f"and i1 {above}, {below}"), call)
                first = first + count
                self.next_block += HEAD + len(self.sizes) + len(block)
            return []

        region.counted(tile, "%begin", "%end", 1, True, [], body)
        name = self._finish(name, region, plain=True)
        total: Dim = 0
        for count in counts:
            total = total + count
        threaded = any(branch.kind == "parallel" for branch in statement.branches)
        return Step(name, total, 1 if threaded else None, cost([statement]) >= self.machine.sharing.wake, tuple(blocks))

    def _branch(self, name: str, branch: Loop, block: tuple[int, ...]) -> str:
        """Emit the function of a branch: a kernel of its own, with its own arguments. Equal branches share it."""
        assert self.kernel is not None
        whole = self.kernel
        self.kernel = Kernel(name, tuple(whole.buffers[number] for number in block), (branch,), whole.sites)
        key = " ".join((*self.sizes, identity(self.kernel)))
        if key not in self.branches:
            is_parallel = branch.kind == "parallel"
            self.branches[key] = self._parallel(name, branch) if is_parallel else self._serial(name, [branch])
        self.kernel = whole
        return self.branches[key]


def only_calls(statements: Sequence[Statement]) -> bool:
    """Whether all work is in calls of routines, each long enough that the cost of the call does not count."""
    return all(isinstance(item, (Loop, Gemm, Pack, Sort, Transpose, Alloc)) for item in walk(statements))


def takes_numbers(kernel: Kernel) -> bool:
    """Whether a kernel has GEMM calls and arguments of its own: those of branches belong to the branches."""
    items = list(walk(kernel.body))
    return any(isinstance(item, Gemm) for item in items) and not any(isinstance(item, Concurrent) for item in items)


def only_concurrent(kernel: Kernel) -> bool:
    """Whether the buffers are used by branches alone."""
    return all(isinstance(item, Concurrent) for item in kernel.body)
