"""A compiled graph as one LLVM module: `run(ctx)` calls its regions in order.

`ctx` is a block of 64-bit slots (Layout): the run time's addresses, then the sizes, the parameters and the
results. Everything else, the arena's offsets and the loops' bounds, is computed inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.symbolic import Dim, Symbol, ceil_divide, product
from ...kernels.loop_ir import Buffer, Concurrent, Kernel, Loop, Statement
from .region import Region

ALIGN = 64


@dataclass
class Layout:
    """Which slot of ctx holds what. Addresses are in bytes."""

    sizes: dict[str, int]
    pointers: dict[str, int]  # parameters and results, by buffer name
    arena: dict[str, Dim]  # temporaries: their offset in the arena
    slots: int


PARALLEL, POOL, ARENA, SCRATCH, SCRATCH_STRIDE, ERROR, BLAS_TABLE, FIRST_FREE = range(8)


@dataclass
class Module:
    """The text, and what its caller must provide."""

    text: str = ""
    scratch: list[Dim] = field(default_factory=list)  # bytes of each region, for each thread
    regions: int = 0


RUNTIME = """
@zero = internal constant [64 x i8] zeroinitializer, align 64
@letters = internal constant [2 x i8] c"NT"
@one.0 = internal constant float 1.0
@one.1 = internal constant double 1.0
@one.2 = internal constant [2 x float] [float 1.0, float 0.0]
@one.3 = internal constant [2 x double] [double 1.0, double 0.0]
@ones = internal constant [4 x ptr] [ptr @one.0, ptr @one.1, ptr @one.2, ptr @one.3]

; The first index out of range is kept for the caller.
define internal void @report(ptr %ctx, i64 %site, i64 %index, i64 %bound) #1 {
  %slot = getelementptr i64, ptr %ctx, i64 5
  %error = load ptr, ptr %slot
  %old = cmpxchg ptr %error, i64 0, i64 1 seq_cst seq_cst
  %first = extractvalue { i64, i1 } %old, 1
  br i1 %first, label %write, label %done
write:
  %at1 = getelementptr i64, ptr %error, i64 1
  store i64 %site, ptr %at1
  %at2 = getelementptr i64, ptr %error, i64 2
  store i64 %index, ptr %at2
  %at3 = getelementptr i64, ptr %error, i64 3
  store i64 %bound, ptr %at3
  br label %done
done:
  ret void
}
"""

GEMM = """
; Column-major BLAS: everything by reference.
define internal void @gemm(ptr %ctx, i64 %kind, i64 %ta, i64 %tb, i64 %m, i64 %n, i64 %k,
                           ptr %a, i64 %lda, ptr %b, i64 %ldb, ptr %c, i64 %ldc) #1 {
  %numbers = alloca [6 x i32], align 4
  %slot = getelementptr i64, ptr %ctx, i64 6
  %table = load ptr, ptr %slot
  %entry = getelementptr ptr, ptr %table, i64 %kind
  %function = load ptr, ptr %entry
  %one = getelementptr ptr, ptr @ones, i64 %kind
  %alpha = load ptr, ptr %one
  %lta = getelementptr i8, ptr @letters, i64 %ta
  %ltb = getelementptr i8, ptr @letters, i64 %tb
"""
for _number, _name in enumerate(("m", "n", "k", "lda", "ldb", "ldc")):
    GEMM += f"""  %{_name}.32 = trunc i64 %{_name} to i32
  %{_name}.at = getelementptr i32, ptr %numbers, i64 {_number}
  store i32 %{_name}.32, ptr %{_name}.at
"""
GEMM += """  call void %function(ptr %lta, ptr %ltb, ptr %m.at, ptr %n.at, ptr %k.at, ptr %alpha, ptr %a, ptr %lda.at,
                      ptr %b, ptr %ldb.at, ptr @zero, ptr %c, ptr %ldc.at)
  ret void
}
"""


class ModuleEmitter:
    def __init__(self, layout: Layout, vector_bits: int):
        self.layout = layout
        self.vector_bits = vector_bits
        self.declarations: set[str] = set()
        self.functions: list[str] = []
        self.module = Module()
        self.sites = 0
        self.allocated: Dim = 0

    def emit(self, kernels: Sequence[Kernel]) -> Module:
        run = self._region()
        run._write("%parallel.at = getelementptr i64, ptr %ctx, i64 0")
        run._write("%parallel = load ptr, ptr %parallel.at")
        run._write("%pool.at = getelementptr i64, ptr %ctx, i64 1")
        run._write("%pool = load ptr, ptr %pool.at")
        for kernel in kernels:
            self._kernel(kernel, run)
            self.sites += len(kernel.sites)
        body = "\n".join(run.frames[0].lines)
        self.functions.append(f"define void @run(ptr %ctx) #0 {{\nentry:\n{body}\n  ret void\n}}")
        text = "\n".join([RUNTIME, *self.functions])
        if "@gemm(" in text:
            text += GEMM
        attributes = (
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{self.vector_bits}" '
            f'"min-legal-vector-width"="{self.vector_bits}" }}\nattributes #1 = {{ nounwind noinline }}\n'
        )
        self.module.text = "\n".join([text, *sorted(self.declarations), attributes])
        return self.module

    def _region(self) -> Region:
        return Region(self.declarations, self._pointer, self._size, self._scratch, self.sites)

    def _pointer(self, region: Region, buffer: Buffer) -> str:
        slot = self.layout.pointers.get(buffer.name)
        write = region.emitter.instruction
        if slot is not None:
            at = write(f"getelementptr i64, ptr %ctx, i64 {slot}")
            return write(f"load ptr, ptr {at}, align 8")
        at = write(f"getelementptr i64, ptr %ctx, i64 {ARENA}")
        base = write(f"load ptr, ptr {at}, align 8")
        place = region.uniform(self.layout.arena[buffer.name])
        return write(f"getelementptr i8, ptr {base}, i64 {place}")

    def _size(self, region: Region, symbol: Symbol) -> str:
        at = region.emitter.instruction(f"getelementptr i64, ptr %ctx, i64 {self.layout.sizes[symbol.name]}")
        return region.emitter.instruction(f"load i64, ptr {at}, align 8")

    def _scratch(self, region: Region, buffer: Buffer) -> str:
        place = self.allocated
        nbytes = product(buffer.shape) * buffer.dtype.bytes
        self.allocated = place + ceil_divide(nbytes, ALIGN) * ALIGN
        with region.at(0):
            if "%scratch" not in region.pointers:
                write = region.emitter.instruction
                base = write(f"load ptr, ptr {write(f'getelementptr i64, ptr %ctx, i64 {SCRATCH}')}, align 8")
                each = write(f"load i64, ptr {write(f'getelementptr i64, ptr %ctx, i64 {SCRATCH_STRIDE}')}, align 8")
                mine = write(f"mul i64 %worker, {each}")
                region.pointers["%scratch"] = write(f"getelementptr i8, ptr {base}, i64 {mine}")
            return region.emitter.instruction(
                f"getelementptr i8, ptr {region.pointers['%scratch']}, i64 {region.uniform(place)}"
            )

    def _kernel(self, kernel: Kernel, run: Region) -> None:
        number = 0
        rest: list[Statement] = []

        def flush() -> None:
            nonlocal number
            if rest:
                name = f"{kernel.name}.r{number}"
                number += 1
                self._serial(name, list(rest))
                run._write(f"call void @{name}(ptr %ctx, i64 0, i64 1, i64 0)")
                rest.clear()

        for statement in kernel.body:
            if isinstance(statement, Concurrent):
                flush()
                self._concurrent(f"{kernel.name}.r{number}", statement, run)
            elif isinstance(statement, Loop) and statement.kind == "parallel":
                flush()
                name = f"{kernel.name}.r{number}"
                self._parallel(name, statement)
                self._dispatch(run, name, run.uniform(statement.stop), statement.width)
            else:
                rest.append(statement)
                continue
            number += 1
        flush()

    def _dispatch(self, run: Region, name: str, count: str, grain: int) -> None:
        self.module.regions += 1
        run._write(f"call void %parallel(ptr %pool, ptr @{name}, ptr %ctx, i64 {count}, i64 {grain})")

    def _finish(self, name: str, region: Region) -> None:
        lines = "\n".join(region.frames[0].lines)
        sink = "  %sink = alloca [32 x i8], align 16\n" if "%sink" in lines else ""
        self.functions.append(
            f"define internal void @{name}(ptr %ctx, i64 %begin, i64 %end, i64 %worker) #0 {{\n"
            f"entry:\n{sink}{lines}\n  ret void\n}}"
        )
        self.module.scratch.append(self.allocated)
        self.allocated = 0

    def _serial(self, name: str, statements: Sequence[Statement]) -> None:
        region = self._region()
        region.body(statements)
        self._finish(name, region)

    def _parallel(self, name: str, loop: Loop) -> None:
        region = self._region()

        def body(current: list) -> list:
            region.body(loop.body)
            return []

        region.counted(loop.variable, "%begin", "%end", 1, True, [], body)
        self._finish(name, region)

    def _concurrent(self, name: str, statement: Concurrent, run: Region) -> None:
        """Tiles of all branches in one region: tile numbers run through the branches in turn."""
        counts: list[Dim] = []
        for position, branch in enumerate(statement.branches):
            part = f"{name}.b{position}"
            if branch.kind == "parallel":
                self._parallel(part, branch)
                counts.append(ceil_divide(branch.stop, branch.width))
            else:
                self._serial(part, [branch])
                counts.append(1)
        region = self._region()
        tile = Symbol("%tile")

        def body(current: list) -> list:
            now = region.symbols["%tile"].name
            write = region.emitter.instruction
            first: Dim = 0
            for position, (branch, count) in enumerate(zip(statement.branches, counts, strict=True)):
                low, high = region.uniform(first), region.uniform(first + count)
                mine = write(f"and i1 {write(f'icmp sge i64 {now}, {low}')}, {write(f'icmp slt i64 {now}, {high}')}")
                local = write(f"sub i64 {now}, {low}")

                def call(position: int = position, branch: Loop = branch, local: str = local) -> None:
                    begin, end = "0", "1"
                    if branch.kind == "parallel":
                        begin = write(f"mul i64 {local}, {branch.width}")
                        over = write(f"add i64 {begin}, {branch.width}")
                        stop = region.uniform(branch.stop)
                        end = region.emitter.call("i64", "llvm.smin.i64", ("i64", over), ("i64", stop))
                    region._write(f"call void @{name}.b{position}(ptr %ctx, i64 {begin}, i64 {end}, i64 %worker)")

                region.conditional(mine, call)
                first = first + count
            return []

        region.counted(tile, "%begin", "%end", 1, True, [], body)
        self._finish(name, region)
        total: Dim = 0
        for count in counts:
            total = total + count
        if any(branch.kind == "parallel" for branch in statement.branches):
            self._dispatch(run, name, run.uniform(total), 1)
        else:
            run._write(f"call void @{name}(ptr %ctx, i64 0, i64 {run.uniform(total)}, i64 0)")
