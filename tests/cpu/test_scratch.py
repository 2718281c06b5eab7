"""Places of scratch: what is needed at the same time lies apart, what is not may share, and the receipt tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import smelt
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_programs import OWN, inside
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.call.executable import MEMORY, Launcher
from smelt.ir.symbolic import Symbol
from smelt.ir.types import f32
from smelt.kernels.loop.ir import Alloc, Buffer, Gemm, Kernel, Load, Loop, Matrix, Register, Statement, Store
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.roles import reads, writes
from smelt.kernels.loop.verify import verify_kernel
from smelt.kernels.machine import CACHE_LINE, DEFAULT
from smelt.passes.memory.scratch import kernel_use, lone_scratch, packed_bytes, plan_arena, plan_scratch, scratch_sizes

TEMPORARIES = [Buffer(f"%t{number}", f32, (16 * (1 + number % 3),), "temp") for number in range(6)]


class Programs:
    """Random kernels: loops around loops, scratch at every depth, loads, stores and products of whole buffers."""

    def __init__(self, draw: Callable[[Any], Any]):
        self.draw = draw
        self.names = 0

    def new(self) -> int:
        self.names += 1
        return self.names

    def kernels(self) -> list[Kernel]:
        return [self.kernel() for _ in range(self.draw(st.integers(1, 4)))]

    def kernel(self) -> Kernel:
        buffers = [item for item in TEMPORARIES if self.draw(st.booleans())]
        body: list[Statement] = []
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.draw(st.sampled_from(["serial", "parallel"]))
            body.append(self.loop(kind, buffers, 3))
        return Kernel(f"k{self.new()}", tuple(buffers), tuple(body))

    def loop(self, kind: str, buffers: list[Buffer], depth: int) -> Loop:
        count = self.draw(st.integers(1, 3))
        return Loop(kind, Symbol(f"%i{self.new()}"), 0, count, tuple(self.body(list(buffers), depth)))

    def body(self, buffers: list[Buffer], depth: int) -> Iterator[Statement]:
        for _ in range(self.draw(st.integers(1, 5))):
            what = self.draw(st.sampled_from(["alloc", "store", "load", "load", "gemm", "loop"]))
            if what == "alloc":
                size = 16 * self.draw(st.integers(1, 4))
                buffers.append(Buffer(f"%b{self.new()}", f32, (size,), "scratch"))
                yield Alloc(buffers[-1])
            elif what == "loop" and depth:
                yield self.loop("serial", buffers, depth - 1)
            elif what == "gemm" and len(buffers) > 2:
                chosen = self.draw(st.permutations(buffers))
                output, left, right = (Matrix(item, 0, 1, 1) for item in chosen[:3])
                yield Gemm(output, left, right, 1, 1, 1)
            elif what in ("store", "load") and buffers:
                buffer, register = self.draw(st.sampled_from(buffers)), Register(f"%{self.new()}", f32)
                yield Store(buffer, (0,), register) if what == "store" else Load(register, buffer, (0,))


class Memory:
    """Runs statements on places: who wrote each line of 64 bytes last. What a buffer holds is read back as it was."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, int], str | int] = {}
        self.valid: set[str | int] = set()  # those who have been written

    def write(self, owner: str | int, area: str, offset: int, size: int) -> None:
        for line in range(offset, offset + size, CACHE_LINE):
            self.lines[area, line] = owner
        self.valid.add(owner)

    def read(self, owner: str | int, area: str, offset: int, size: int) -> None:
        if owner in self.valid:
            for line in range(offset, offset + size, CACHE_LINE):
                assert self.lines[area, line] == owner, f"{owner} was overwritten by {self.lines[area, line]}"


class Runner:
    """A program in the places that were planned for it."""

    def __init__(self, kernels: Sequence[Kernel]):
        self.memory = Memory()
        self.kernels = kernels
        alone = [lone_scratch(kernel, DEFAULT) for kernel in kernels]
        uses = [kernel_use(kernel, found) for kernel, found in zip(kernels, alone, strict=True)]
        shared = [item for kernel in kernels for item in kernel.body if is_parallel(item)]
        self.plans = {id(loop): plan_scratch(loop.body, DEFAULT) for loop in shared}
        self.own = max((plan.size for plan in self.plans.values()), default=0)
        self.arena = plan_arena(kernels, uses, [], self.own)
        self.alone = [list(found) for found in alone]

    def run(self) -> None:
        for number, kernel in enumerate(self.kernels):
            for loop in kernel.body:
                assert isinstance(loop, Loop)
                self.loop(number, loop, loop if is_parallel(loop) else None)

    def place(self, number: int, parallel: Loop | None, owner: str | int, size: int) -> tuple[str | int, str, int, int]:
        """An owner with its memory: the arena, or what the caller has as one of the threads."""
        if parallel is not None and owner in self.plans[id(parallel)].offsets:
            area, offset, end = "thread", self.plans[id(parallel)].offsets[owner], self.own
        else:
            name = (number, self.alone[number].index(owner)) if owner in self.alone[number] else owner
            if name in self.arena.unshared:
                area, offset, end = "thread", self.arena.unshared[name], self.own
            else:
                area, offset, end = "arena", self.arena.offsets[name], self.arena.size
        assert isinstance(offset, int) and offset % CACHE_LINE == 0 and offset + size <= end
        return owner, area, offset, size

    def loop(self, number: int, loop: Loop, parallel: Loop | None) -> None:
        for _ in range(loop.extent):
            for statement in loop.body:
                if isinstance(statement, Loop):
                    self.loop(number, statement, parallel)
                elif isinstance(statement, Alloc):
                    self.memory.valid.discard(statement.buffer.name)  # another one in each iteration
                else:
                    for item in reads(statement):
                        self.memory.read(*self.place(number, parallel, item.name, 4 * item.shape[0]))
                    if isinstance(statement, Gemm):
                        packed = self.place(number, parallel, id(statement), packed_bytes(statement, DEFAULT))
                        self.memory.write(*packed)
                    for output in writes(statement):
                        self.memory.write(*self.place(number, parallel, output.name, 4 * output.shape[0]))
                    if isinstance(statement, Gemm):
                        self.memory.read(*packed)
                        for item in reads(statement):  # until the last element of the output is there
                            if item not in writes(statement):
                                self.memory.read(*self.place(number, parallel, item.name, 4 * item.shape[0]))


def is_parallel(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.kind == "parallel"


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_nothing_is_overwritten_while_it_is_needed(data: st.DataObject) -> None:
    Runner(Programs(data.draw).kernels()).run()


TWO_PRODUCTS = """
kernel @k(%y: out f32[64, 64], %x: f32[64, 64], %w: f32[64, 64]) {
  KIND %i in 0..COUNT {
    alloc %first: f32[64, 64]
    gemm %first[0; 64, 1] = %x[0; 64, 1] * %w[0; 64, 1] over (64, 64, 64)
    serial %j in 0..64 {
      alloc %row: f32[64]
      vector<16> %k in 0..64 reduce %2: f32 = add {
        %0 = load %first[%j, %k]
        %1 = exp(%0) : f32
        store %row[%k], %1
        yield %1
      }
      vector<16> %k1 in 0..64 {
        %3 = load %row[%k1]
        %4 = div(%3, %2) : f32
        store %first[%j, %k1], %4
      }
    }
    alloc %second: f32[64, 64]
    gemm %second[0; 64, 1] = %first[0; 64, 1] * %w[0; 64, 1] over (64, 64, 64)
    serial %l in 0..64 {
      vector<16> %m in 0..64 {
        %5 = load %second[%l, %m]
        %6 = tanh(%5) : f32
        store %y[%l, %m], %6
      }
    }
  }
}
"""
MATRIX = 64 * 64 * 4
TILE = 66 * 64 * 4  # in whole register tiles of rows
PACKED = TILE + 16 * 64 * 4  # so many rows, and a panel of columns


def two_products(kind: str = "serial", count: int = 1) -> Kernel:
    return parse_kernel(TWO_PRODUCTS.replace("KIND", kind).replace("COUNT", str(count)))


def test_products_of_a_region_pack_into_the_same_place() -> None:
    """Both matrices live while the second product is made, and what it packs; rows and what the first one packed do
    not."""
    (loop,) = two_products("parallel<1>").body
    assert isinstance(loop, Loop)
    assert plan_scratch(loop.body, DEFAULT).size == 2 * MATRIX + PACKED


def test_what_is_packed_once_keeps_its_place() -> None:
    """Each iteration finds it there, whatever it has done before with scratch of its own."""
    again = "    alloc %q: f32[96, 20]\n    gemm %q[0; 20, 1] = %x[0; 100, 1] * %w[0; 1, 100] over (96, 20, 100)\n"
    (loop,) = parse_kernel(OWN.replace("  }\n}", again + "  }\n}")).body
    assert isinstance(loop, Loop)
    offsets = plan_scratch(loop.body, DEFAULT).offsets
    begin, end = offsets["%p"], offsets["%p"] + 2 * 100 * 16 * 4
    sizes = scratch_sizes(loop.body, DEFAULT)
    assert all(offsets[owner] >= end or offsets[owner] + sizes[owner] <= begin for owner in sizes if owner != "%p")


def test_loops_beside_each_other_may_name_their_scratch_alike() -> None:
    loops = [("serial %j in 0..4 {", f"alloc %s: f32[{size}]", "store %s[0], 1.0:f32", "}") for size in (100, 16)]
    kernel = parse_kernel(inside(*loops[0], *loops[1]))
    verify_kernel(kernel)
    assert plan_scratch(kernel.body, DEFAULT).size == 448


@pytest.mark.parametrize(("count", "size"), [(1, 2 * MATRIX + PACKED), (3, 4 * MATRIX + PACKED)])
def test_scratch_of_one_thread_lies_among_the_temporaries(count: int, size: int) -> None:
    """Its input is not needed any more when the second matrix is made, nor is the first one when the output is; in a
    loop they are needed again."""
    kernel = two_products(count=count)
    arena = plan_arena([kernel], [kernel_use(kernel, lone_scratch(kernel, DEFAULT))], ["%w"], 0)
    assert (arena.size, arena.unshared) == (size, {})


def test_scratch_of_one_thread_lies_in_its_own_if_that_is_there_for_other_kernels() -> None:
    kernel = two_products()
    use = kernel_use(kernel, lone_scratch(kernel, DEFAULT))
    for own, unshared in ((use.room, True), (use.room - CACHE_LINE, False)):
        arena = plan_arena([kernel], [use], ["%w"], own)
        assert bool(arena.unshared) == unshared and (arena.size == MATRIX) == unshared


def rounds(x: Any, weight: Any) -> Any:
    for _ in range(4):
        x = ops.tanh(ops.softmax(x, -1) @ weight)
    return x


def launcher_of(function: Any, *arrays: np.ndarray) -> Launcher:
    graph = smelt.jit(function).trace(*arrays)
    executable = compile_graph(graph, options=CompileOptions(vector_bits=DEFAULT.vector_bits))
    return executable.launcher(executable.plan.for_shapes([array.shape for array in arrays]))


def test_kernels_of_one_thread_need_no_memory_of_others() -> None:
    x = np.ones((64, 64), np.float32)
    launcher = launcher_of(rounds, x, x)
    assert launcher.scratch_bytes == 0
    assert launcher.memory_bytes(1) == launcher.memory_bytes(64) == 2 * TILE + PACKED + CACHE_LINE


def test_threads_leave_a_gap_between_their_scratch() -> None:
    """What one of them fetches ahead is not what the next one writes."""
    x = np.ones((32, 64, 64), np.float32)
    launcher = launcher_of(rounds, x, x)
    assert launcher.scratch_bytes > MEMORY.gap and launcher.scratch_stride == launcher.scratch_bytes + MEMORY.gap
    each = launcher.memory_bytes(2) - launcher.memory_bytes(1)
    assert each == launcher.scratch_stride


def test_the_receipt_tells_scratch() -> None:
    x = np.ones((64, 64), np.float32)
    alone = smelt.jit(rounds, options=CompileOptions(vector_bits=DEFAULT.vector_bits))
    alone(x, x)
    report = alone.report()
    assert {kernel.scratch for kernel in report.kernels} == {"256 B", "54.8 KB"}
    assert (report.arena, report.scratch) == ("54.8 KB", "0 B")
    assert "1 thread, reads 32.8 KB, writes 16.4 KB, scratch 54.8 KB\n" in str(report)
    assert "memory: arena 54.8 KB\n" in str(report)
    data = json.loads(report.json())
    assert [kernel["scratch"] for kernel in data["kernels"]] == [kernel.scratch for kernel in report.kernels]
    assert (data["arena"], data["scratch"]) == ("54.8 KB", "0 B")


def test_the_receipt_tells_the_scratch_of_each_thread() -> None:
    shared = smelt.jit(lambda x: ops.softmax(ops.exp(x), -1))
    with smelt.threads(2):
        shared(np.ones((4096, 512), np.float32))
        report = shared.report()
    assert (report.kernels[0].scratch, report.scratch, report.arena) == ("4.1 KB", "4.1 KB", "0 B")
    assert "scratch 4.1 KB a thread\n" in str(report)
    assert "memory: arena 0 B, scratch of each thread 4.1 KB\n" in str(report)


def test_the_receipt_has_a_formula_for_symbolic_scratch() -> None:
    rows = smelt.jit(lambda x: ops.softmax(ops.exp(x), -1))
    for length in (100, 200, 300):
        rows(np.ones((3, length), np.float32))
    assert "N" in rows.report().kernels[0].scratch
