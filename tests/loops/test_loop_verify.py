"""The loop IR's verifier: kernels that it refuses, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from loop_programs import OWN, PACKED, PRODUCT, SORTED, assert_round_trip, inside
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.errors import VerifyError
from smelt.ir.graph import Graph, Value
from smelt.ir.symbolic import Symbol
from smelt.ir.types import TensorType, bool_, f32, f64
from smelt.kernels.loop.analysis import independent
from smelt.kernels.loop.ir import Buffer, Kernel, Let, Literal, Loop, Register, Store
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.verify import verify_kernel
from smelt.passes.manager import VERIFIERS, Pipeline

BROKEN: dict[str, tuple[str, str]] = {
    "types of operands": (
        inside("%0 = add(1.0:f32, 1:i64) : f32"),
        "the operands are f32, i64, expected one type",
    ),
    "type of a result": (inside("%0 = lt(1.0:f32, 2.0:f32) : f32"), "%0 is f32, expected bool"),
    "condition": (inside("%0 = where(1.0:f32, 1.0:f32, 1.0:f32) : f32"), "the condition is not a bool"),
    "arity": (inside("%0 = add(1.0:f32) : f32"), "add takes 2 operands, not 1"),
    "type of an op": (inside("%0 = sqrt(1:i64) : i64"), "sqrt does not take i64"),
    "narrow register": (inside("%0 = cast(1.0:f32) : bf16"), "%0 is bf16, which registers do not hold"),
    "bitcast": (inside("%0 = bitcast(1.0:f32) : i64"), "f32 and i64 are not of the same width"),
    "rounding": (inside("%0 = round_bf16(1.0:f64) : f32"), "round_bf16 takes f32, not f64"),
    "casts of two": (inside("%0 = cast(1.0:f32, 1.0:f32) : f64"), "cast takes 1 operand, not 2"),
    "type of a store": (inside("store %y[%i], 1:i64"), "the value is i64, expected f32"),
    "store to an input": (inside("store %x[%i, 0], 1.0:f32"), "%x is an input and cannot be written"),
    "rank": (inside("%0 = load %x[%i]"), "%x has 2 dims, the index has 1"),
    "rank of what is fetched": (inside("fetch %x[%i]"), "%x has 2 dims, the index has 1"),
    "elements": (inside("%0 = load %x as [31][%i]"), "%x has 32 elements, seen with 31"),
    "guard": (inside("%0 = load %y[%i] if 1:i64"), "the guard is i64, expected bool"),
    "above the range": (inside("%0 = load %x[%i, %i]"), "dim 1 of %x has size 4, the index goes up to 7"),
    "below the range": (inside("%0 = load %y[%i - 1]"), "dim 0 of %y has size 8, the index goes down to -1"),
    "a guard that says nothing": (
        inside("%0 = load %y[%i - 1] if true"),
        "dim 0 of %y has size 8, the index goes down to -1",
    ),
    "a guard that says too little": (
        inside("%0 = index(%i + 1)", "%1 = le(%0, 8:i64) : bool", "%2 = load %y[%i + 1] if %1"),
        "dim 0 of %y has size 8, the index goes up to 8",
    ),
    "a guard from data": (
        inside("%0 = load %n[%i]", "%1 = gt(%0, 3:i64) : bool", "%2 = load %y[%i + 1] if %1"),
        "dim 0 of %y has size 8, the index goes up to 8",
    ),
    "a check of another range": (
        inside("%0 = load %n[%i]", "%1, %2 = check %0 in 0..9 site 0", "%3 = load %y[%1] if %2").replace(
            "{\n  serial", "{\n  site 0 = gather\n  serial"
        ),
        "dim 0 of %y has size 8, the index goes up to 8",
    ),
    "not proved": (
        "kernel @k(%x: f32[N], %y: f32[M]) where N >= 2, M >= 2 {\n  serial %i in 0..N {\n    %0 = load %y[%i]\n  }\n}",
        "dim 0 of %y has size M, the index goes up to N - 1",
    ),
    "unequal sizes of a gather": (
        "kernel @k(%y: out f64[2, 1], %x: f64[4096, 1], %i: i64[2, 1]) {\n  parallel %a in 0..4096 {\n"
        "    %0 = load %i[%a, 0]\n    store %y[%a, 0], 1.0:f64\n  }\n}",
        "dim 0 of %i has size 2, the index goes up to 4095",
    ),
    "matrix beyond a buffer": (
        PRODUCT.replace("-256 * %i + N)", "-256 * %i + N + 1)"),
        "dim 0 of %y has size 20 * N, the index is not known to end before it",
    ),
    "a quotient": (inside("%0 = load %x[0, %i // 2 + 1]"), "dim 1 of %x has size 4, the index goes up to 4"),
    "a minimum": (inside("%0 = load %x[0, min(%i, 4)]"), "dim 1 of %x has size 4, the index goes up to 4"),
    "a sum of two": (
        inside("serial %j in 0..2 {", "%0 = load %y[%i + %j]", "}"),
        "dim 0 of %y has size 8, the index goes up to 8",
    ),
    "symbolic range": (
        "kernel @k(%x: f32[N]) where N >= 2 {\n  serial %i in 0..(N + 1) {\n    %0 = load %x[%i]\n  }\n}",
        "dim 0 of %x has size N, the index goes up to N",
    ),
    "index type": (
        inside("%0 = load %y[%i]", "%1, %2 = check %0 in 0..8 site 0"),
        "the index is f32, expected i64",
    ),
    "no site": (inside("%0 = load %n[%i]", "%1, %2 = check %0 in 0..8 site 0"), "there is no site 0"),
    "combiner's arity": (inside("store argmax %y[%i], 1.0:f32"), "argmax combines 2 values at a time, not 1"),
    "complex extreme": (inside("store max %c[%i], (1.0+0.0j):c64"), "max does not take c64"),
    "accumulator's arity": (
        inside("serial %j in 0..4 reduce %0: f32, %1: f32 = add {", "yield 1.0:f32, 1.0:f32", "}"),
        "add combines 1 values at a time, not 2",
    ),
    "accumulator's type": (
        inside("serial %j in 0..4 reduce %0: f64 = add {", "yield 1.0:f32", "}"),
        "%0 is f64, expected f32",
    ),
    "place of an extreme": (
        inside("serial %j in 0..4 reduce %0: f32, %1: f32 = argmax {", "yield 1.0:f32, 1.0:f32", "}"),
        "the second value of argmax is its place, an i64, not f32",
    ),
    "start of a prefix": (inside("%0 = prefix add(1.0:f32) from 0:i64"), "the start is i64, expected f32"),
    "start inside of the loop": (
        inside("%0 = load %x[%i, 0]", "%1 = prefix add(%0) from %0"),
        "%0, where the prefix starts, is not known before the loop",
    ),
    "prefix of pairs": (inside("%0 = prefix argmax(1.0:f32) from 0.0:f32"), "argmax combines 2 values at a time"),
    "parallel prefix": (
        "kernel @k() {\n  parallel %i in 0..8 {\n    %0 = prefix add(1.0:f32) from 0.0:f32\n  }\n}",
        "a prefix runs along a serial, vector or thread loop",
    ),
    "prefix along nothing": ("kernel @k() {\n  %0 = prefix add(1.0:f32) from 0.0:f32\n}", "a prefix runs along"),
    "nested vectors": (
        inside("vector<4> %j in 0..4 {", "vector<4> %k in 0..4 {", "}", "}"),
        "a vector loop inside of another",
    ),
    "scratch of lanes": (
        inside("vector<4> %j in 0..4 {", "alloc %r: f32[4]", "}"),
        "an alloc inside of a vector",
    ),
    "inner parallel": (inside("parallel %j in 0..4 {", "}"), "a parallel loop inside of another loop"),
    "parallel sum": (
        "kernel @k() {\n  parallel %i in 0..4 reduce %0: f32 = add {\n    yield 1.0:f32\n  }\n}",
        "a parallel loop cannot reduce",
    ),
    "serial width": (inside("serial<4> %j in 0..4 {", "}"), "a serial loop cannot have width 4"),
    "no width": (inside("vector<0> %j in 0..4 {", "}"), "a vector loop cannot have width 0"),
    "inner concurrency": (inside("concurrent {", "}"), "concurrent loops inside of a loop"),
    "branches that write one place": (
        "kernel @k(%y: out f32[4]) {\n  concurrent {\n"
        "    serial %i in 0..2 {\n      store %y[%i], 1.0:f32\n    }\n"
        "    serial %i in 1..4 {\n      store %y[%i], 1.0:f32\n    }\n  }\n}",
        "two branches write %y",
    ),
    "branches that wait": (
        "kernel @k(%y: out f32[4], %z: out f32[4]) {\n  concurrent {\n"
        "    serial %i in 0..4 {\n      store %y[%i], 1.0:f32\n    }\n"
        "    serial %i in 0..4 {\n      %0 = load %y[%i]\n      store %z[%i], %0\n    }\n  }\n}",
        "one branch writes %y, another reads it",
    ),
    "types of matrices": (PRODUCT.replace("%w: f32", "%w: f64"), "the matrices are f32, f32, f64"),
    "columns apart": (
        PRODUCT.replace("* %i; 20, 1] =", "* %i; 20, 2] ="),
        "the columns of the output are not",
    ),
    "pack to another type": (
        PACKED.replace("%w: f32[", "%w: bf16["),
        "the matrices are f32, bf16, expected one type",
    ),
    "product of two types": (
        PACKED.replace("%x: f32[", "%x: bf16["),
        "the matrices are f32, bf16, f32, expected one type",
    ),
    "pack without panels": (PACKED.replace("16, 1600 by 16] = %w", "16, 1] = %w"), "a pack reads a matrix with"),
    "pack with gaps": (PACKED.replace("16, 1600 by 16] = %w", "20, 1600 by 16] = %w"), "as far apart as it is wide"),
    "packed once into memory": (
        PACKED.replace("(100, 20)\n", "(100, 20) once\n"),
        "what is packed once is memory, and a thread's own scratch afterwards",
    ),
    "packed once by iteration": (OWN.replace("= %w[0;", "= %w[%i;"), "what is packed once depends on an iteration"),
    "packed once from what changes": (
        OWN.replace("= %w[0; 1, 100]", "= %y[0; 1, 20]"),
        "%y is packed once, and changes",
    ),
    "packed once outside of loops": (
        "kernel @k(%w: f32[20, 100]) {\n  alloc %p: f32[2, 100, 16]\n"
        "  pack %p[0; 16, 1600 by 16] = %w[0; 1, 100] over (100, 20) once\n}",
        "a pack that is done once stands in no loop",
    ),
    "packed once from scratch": (
        OWN.replace("    alloc", "    alloc %s: f32[20, 100]\n    alloc").replace("= %w[0;", "= %s[0;"),
        "what is packed once is memory, and a thread's own scratch afterwards",
    ),
    "packed once and used before": (
        re.sub(r"(    pack.*\n)(    gemm.*\n)", r"\2\1", OWN),
        "%p is packed once, and read before",
    ),
    "packed once and written": (
        OWN.replace("once\n", "once\n    pack %p[0; 16, 1600 by 16] = %w[0; 1, 100] over (100, 20)\n"),
        "%p is packed once, and written elsewhere",
    ),
    "product into an input": (PRODUCT.replace("out ", ""), "%y is an input and cannot be written"),
    "sort into an input": (SORTED.replace("out ", ""), "%y is an input and cannot be written"),
    "sort to another type": (SORTED.replace("%y: out i64", "%y: out f32"), "the target is f32, expected i64"),
    "sort without order": (SORTED.replace("%x: f32", "%x: c64"), "a sort of c64, which has no order"),
    "sort with gaps": (SORTED.replace("%x[100 * %i; 100, 1]", "%x[%i; 1, 2]"), "the columns of %x are not adjacent"),
    "sort in place": (
        SORTED.replace("%x: f32[N, 100]", "%x: i64[N, 100]").replace("= %x", "= %y"),
        "the target, the source and the working memory are not three buffers",
    ),
    "sort that keeps too many": (
        SORTED.replace("100, 2, 8, 1352", "9, 2, 8, 1352"),
        "8 elements from 2 on are kept of 9",
    ),
    "sort with little room": (
        SORTED.replace("100, 2, 8, 1352", "100, 2, 8, 1351"),
        "the working memory has 1351 words for a row, expected 1352",
    ),
    "sort in floats": (SORTED.replace("%r: i64", "%r: f64"), "the working memory is f64, expected i64"),
    "sort beyond a buffer": (SORTED.replace("[8 * %i", "[8 * %i + 1"), "%y"),
    "sorts that overlap": (SORTED.replace("[8 * %i", "[0 * %i"), "%y"),
    "assigned in two bodies": (
        inside("serial %j in 0..2 {", "%0 = load %y[%j]", "}", "serial %j in 0..2 {", "%0 = load %y[%j]", "}"),
        "%0 is defined twice",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel(name: str) -> None:
    text, message = BROKEN[name]
    kernel = parse_kernel(text)
    with pytest.raises(VerifyError) as caught:
        verify_kernel(kernel)
    assert message in str(caught.value)
    assert "^^^" in str(caught.value)


FINE = {
    "guarded": inside(
        "%0 = index(%i - 1)",
        "%1 = ge(%0, 0:i64) : bool",
        "%2 = logical_and(%1, true) : bool",
        "%3 = load %y[%i - 1] if %2",
    ),
    "checked": inside("%0 = load %n[%i]", "%1, %2 = check %0 in 0..8 site 0", "%3 = load %y[%1]").replace(
        "{\n  serial", "{\n  site 0 = gather\n  serial"
    ),
    "parts of few elements": (
        "kernel @k(%x: f32[17], %y: out f32[64]) {\n  parallel %j in 0..64 {\n"
        "    serial %i in (min(%j, 17))..(min(%j + 1, 17)) reduce %1: f32 = add {\n"
        "      %0 = load %x[%i]\n      yield %0\n    }\n    store %y[%j], %1\n  }\n}"
    ),
    "ends that are not met together": (
        "kernel @k(%x: f32[N], %y: out f32[max(N - 3, 0) + min(4, N)]) where N >= 2 {\n"
        "  serial %i in 0..(max(N - 3, 0)) {\n    %0 = load %x[%i + 3]\n    store %y[%i], %0\n  }\n"
        "  serial %i in 0..(min(4, N)) {\n    %1 = load %x[%i]\n    store %y[%i + max(N - 3, 0)], %1\n  }\n}"
    ),
    "loop over nothing": inside("serial %j in 0..0 {", "%0 = load %y[%j + 9]", "}"),
    "remainder": inside("%0 = load %x[0, %i % 4]"),
    "minimum": inside("%0 = load %x[0, min(%i, 3)]"),
    "variable twice": inside("%0 = load %x[%i, %i - 4 * (%i // 4)]"),
    "tiles": inside("serial %j in (2 * (%i // 2))..(min(2 * (%i // 2) + 2, 7)) {", "%0 = load %y[%j]", "}"),
    "branches that write parts of one buffer": (
        "kernel @k(%y: out f32[M + N], %z: out f32[N, 2]) where M >= 2, N >= 2 {\n  concurrent {\n"
        "    serial %i in 0..N {\n      store %y[%i], 1.0:f32\n      store %z[%i, 0], 1.0:f32\n    }\n"
        "    serial %i in 0..M {\n      store %y[N + %i], 1.0:f32\n    }\n"
        "    serial %i in 0..N {\n      store %z[%i, 1], 1.0:f32\n    }\n  }\n}"
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_fine_kernel(name: str) -> None:
    kernel = parse_kernel(FINE[name])
    verify_kernel(kernel)
    assert_round_trip(kernel)


def test_error_shows_the_line() -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(inside("%0 = load %y[%i]", "store %y[%i + 1], %0")))
    assert str(caught.value) == (
        "@k: dim 0 of %y has size 8, the index goes up to 8\n"
        "    kernel @k(%x: f32[8, 4], %y: out f32[8], %n: i64[8], %c: out c64[8]) {\n"
        "      serial %i in 0..8 {\n"
        "        %0 = load %y[%i]\n"
        "        store %y[%i + 1], %0\n"
        "        ^^^^^^^^^^^^^^^^^^^^ dim 0 of %y has size 8, the index goes up to 8\n"
        "      }\n"
        "    }"
    )


@dataclass(frozen=True)
class Made:
    """What no text can say: a kernel put together by hand."""

    kernel: Kernel
    message: str


Y = Buffer("%y", f32, (4,), "out")

LOOP = Loop("serial", Symbol("%i", 0, 3), 0, 4, (Store(Y, (Symbol("%i").expr(),), Literal(0.0, f32)),))

MADE = {
    "buffer of another kernel": Made(Kernel("k", (), (LOOP,)), "%y is no buffer that is known here"),
    "another type": Made(Kernel("k", (replace(Y, dtype=f64),), (LOOP,)), "%y is out f64, used as out f32"),
    "role": Made(Kernel("k", (replace(Y, role="scratch"),), (LOOP,)), "cannot be scratch"),
    "twice": Made(Kernel("k", (Y, Y), (LOOP,)), "%y is defined twice"),
    "kind": Made(Kernel("k", (Y,), (replace(LOOP, kind="unrolled"),)), "unrolled is no kind of loop"),
    "unknown register": Made(
        Kernel("k", (), (Let(Register("%1", f32), "exp", (Register("%0", f32),)),)), "%0 is not defined here"
    ),
    "another type of register": Made(
        Kernel(
            "k",
            (),
            (
                Let(Register("%0", f32), "exp", (Literal(1.0, f32),)),
                Let(Register("%1", bool_), "logical_not", (Register("%0", bool_),)),
            ),
        ),
        "%0 is f32, used as bool",
    ),
    "unknown variable": Made(Kernel("k", (Y,), (LOOP.body[0],)), "%i is not defined here"),
    "unknown op": Made(Kernel("k", (), (Let(Register("%0", f32), "expp", ()),)), "expp is no scalar op"),
}


@pytest.mark.parametrize("name", MADE)
def test_made_kernel(name: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(MADE[name].kernel)
    assert MADE[name].message in str(caught.value)


def test_pipelines_verify_kernels() -> None:
    VERIFIERS["loop"](parse_kernel(PRODUCT), None)
    broken = parse_kernel(inside("%0 = load %y[%i + 1]"))
    with pytest.raises(VerifyError, match="after parallelize: @k: dim 0"):
        Pipeline(["parallelize"]).run(broken, verify_each=True)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("%i // 8", "%j", "%i % 8"), True),
        (("%i % 8", "%j", "%i // 8"), True),
        (("%i // 16", "(%i // 4) % 4", "%i % 4"), True),
        (("(4 * %i + %j) // 8", "(4 * %i + %j) % 8", "0"), True),
        (("(2 * %i + %j) // 8", "(2 * %i + %j) % 8", "0"), False),
        (("%i // 8", "%j", "%i % 4"), False),
        (("%i // 8", "%j", "0"), False),
    ],
)
def test_loops_that_count_in_several_dims_are_parallel(places: tuple[str, ...], expected: bool) -> None:
    text = (
        "kernel @k(%y: out f32[512, 512, 512]) {\n  serial %i in 0..64 {\n    serial %j in 0..4 {\n"
        f"      store %y[{', '.join(places)}], 1.0:f32\n    }}\n  }}\n}}"
    )
    (loop,) = parse_kernel(text).body
    assert isinstance(loop, Loop)
    assert independent(loop) == expected


@pytest.mark.parametrize("columns", [64, 100, 256])
def test_an_open_sum_in_parts_is_in_range(columns: int) -> None:
    """Where a part begins and ends both depend on the chunk of rows: bounds of the two are not met together."""
    x = Value(TensorType(f64, (Symbol("N", 2).expr(), columns)), name="x")
    compile_graph(Graph.build("open", [x], [ops.sum(x, (0, 1))]), CompileOptions(verify=True))
