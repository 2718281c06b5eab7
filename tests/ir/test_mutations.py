"""Texts of graphs and kernels that are wrong in some way: each is a program after all, or an error of smelt's own."""

from __future__ import annotations

import pytest
from smelt.ir.errors import ParseError, SmeltError, VerifyError
from smelt.ir.graph import Graph, Value
from smelt.ir.parser import parse_graph, parse_type
from smelt.ir.printer import literal_text
from smelt.ir.symbolic import Symbol
from smelt.ir.types import DTYPES, TensorType, f32
from smelt.ir.verify import verify_graph
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.text import print_kernel
from smelt.kernels.loop.verify import verify_kernel
from smelt.ops.define import REGISTRY, constant
from smelt.passes.graph.decompose import decompose
from text_mutations import graph_texts, kernel_texts, mutations

FEW, MANY = 300, 20_000


def check_graph(text: str) -> None:
    graph = parse_graph(text)
    verify_graph(graph)
    again = str(graph)
    assert str(parse_graph(again)) == again


def check_kernel(text: str) -> None:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    print_kernel(kernel)


@pytest.mark.parametrize(
    "texts, check", [(graph_texts, check_graph), (kernel_texts, check_kernel)], ids=["graphs", "kernels"]
)
def test_wrong_texts_are_answered_with_errors_of_smelt(
    texts: object, check: object, request: pytest.FixtureRequest
) -> None:
    valid = texts()  # type: ignore[operator]
    count = MANY // 2 if request.config.getoption("--long") else FEW
    for text in valid:
        check(text)  # type: ignore[operator]
    accepted = 0
    for number, text in enumerate(mutations(valid, 7, count)):
        try:
            check(text)  # type: ignore[operator]
            accepted += 1
        except SmeltError as error:
            assert str(error)
        except Exception as error:
            raise AssertionError(f"mutation {number}:\n{text}") from error
    assert 0 < accepted < count


GRAPHS = {
    "graph @g(%x: f32[-2]) { return %x }": "f32[-2] has a negative size",
    "graph @g(%x: f32[99999999999999999999]) { return %x }": "an i64 does not hold 99999999999999999999",
    "graph @g(%x: f32[4294967296, 4294967296]) { return %x }": "too large",
    "graph @g(%x: f32[N * 99999999999999999999]) { return %x }": "an i64 does not hold",
    "graph @g(%x: f32[N]) where M >= 2 { return %x }": "no parameter has the size M",
    "graph @g(%x: f32[N]) where N >= 99999999999999999999 { return %x }": "an i64 does not hold",
    "graph @g(%x: f32[1.5]) { return %x }": "expected a size, found 1.5",
    'graph @g(%x: f32["a"]) { return %x }': "a number, a size or a value",
    'graph @g(%x: f32[2]) { %0 = reshape(%x) {shape = ("a")} return %0 }': "reshape",
    "graph @g(%x: f32[2]) { %0 = reshape(%x) {shape = (2.0)} return %0 }": "reshape",
    "graph @g(%x: f32[2]) { %0 = sum(%x) {dim = (f32)} return %0 }": "sum",
    'graph @g(%x: f32[2]) { %0 = sum(%x) {dim = "\\x"} return %0 }': "this is no string",
    "graph @g(%x: i32[2]) { %0 = add(%x, -inf:i32) return %0 }": "-inf is out of range for i32",
    "graph @g(%x: i32[2]) { return nan:i64 }": "nan is out of range for i64",
    f"graph @g(%x: f32[{'1' * 5000}]) {{ return %x }}": "a number of 5000 digits is too long",
    f"graph @g(%x: f32[{'(' * 20_000}]) {{ return %x }}": "nested too deeply",
    "graph @g(%x: f32[\u0661]) { return %x }": "is not part of the language",
}
KERNEL = (
    "kernel @k(%y: out f32[{size}]{more}) {where}{{\n  serial %i in 0..{stop} {{\n    store %y[%i], {value}\n  }}\n}}"
)


def kernel(size: str = "4", stop: str = "4", value: str = "1.0:f32", where: str = "", more: str = "") -> str:
    return KERNEL.format(size=size, stop=stop, value=value, where=where, more=more)


KERNELS = {
    kernel(size="-2"): "f32[-2] has a negative size",
    kernel(size="99999999999999999999"): "an i64 does not hold",
    kernel(stop="1.5"): "expected a size, found 1.5",
    kernel(stop='"a"'): "a number, a size or a value",
    kernel(where="where N >= 2 "): "nothing has the size N",
    kernel(value="-inf:i32"): "-inf is no i32",
    kernel(value="300:u8"): "300 is no u8",
    kernel(value="2:bool"): "2 is no bool",
    kernel(more=", %z: i32[(" + "(" * 20_000): "nested too deeply",
}


@pytest.mark.parametrize("text", GRAPHS, ids=range(len(GRAPHS)))
def test_graphs_that_are_none(text: str) -> None:
    with pytest.raises(SmeltError) as caught:
        parse_graph(text)
    assert GRAPHS[text] in str(caught.value) and str(caught.value).startswith("<text>:1")


@pytest.mark.parametrize("text", KERNELS, ids=range(len(KERNELS)))
def test_kernels_that_are_none(text: str) -> None:
    parse_kernel(kernel())
    with pytest.raises(SmeltError) as caught:
        parse_kernel(text)
    assert KERNELS[text] in str(caught.value)


def test_numbers_do_not_make_as_many_ops() -> None:
    graph = parse_graph("graph @g(%x: f64[4]) { %0 = mvlgamma(%x) {p = 9999999999} return %0 }")
    assert len(decompose(graph).ops) < 20


def test_types_that_no_tensor_has() -> None:
    with pytest.raises(ParseError, match="negative size"):
        parse_type("f32[-2]")
    for shape in ((-2,), (1 << 63,), (1 << 40, 1 << 40)):
        value = Value(TensorType(f32, shape), name="x")
        with pytest.raises(VerifyError, match="negative size|too large"):
            verify_graph(Graph("g", [value], [], [value]))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("number", [0.1, 0.0999755859375, 0.10000000149011612, -9223372036854775808.0, 6e-8, 1e30])
def test_constants_are_read_back_with_all_their_digits(number: float, dtype: str) -> None:
    value = constant(number, DTYPES[dtype])
    text = literal_text(value.op.arguments["value"], DTYPES[dtype])  # type: ignore[union-attr]
    again = parse_graph(f"graph @g() {{ return {text} }}").results[0]
    assert again.op.arguments["value"] == value.op.arguments["value"]  # type: ignore[union-attr]


def test_the_verifier_knows_all_sizes() -> None:
    x = Value(TensorType(f32, (1,)), name="x")
    wide = REGISTRY["expand"](x, (Symbol("N", 2).expr(),))
    with pytest.raises(VerifyError, match="N is not known: no parameter has that size"):
        verify_graph(Graph.build("g", [x], [wide]))
