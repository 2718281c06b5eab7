"""The graph IR's text, its verifier, and the walker and rules over it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from smelt import ops
from smelt.ir.errors import ArgumentError, ParseError, VerifyError
from smelt.ir.graph import Graph, Location, Op, Value, located
from smelt.ir.parser import Reader, parse_graph, parse_graphs, parse_type
from smelt.ir.printer import Printer, graph_hash, print_graph
from smelt.ir.proofs import maximum, minimum
from smelt.ir.symbolic import Symbol
from smelt.ir.types import TensorType, bf16, bool_, c64, f32, f64, i64
from smelt.ir.verify import verify_graph
from smelt.ops.define import constant
from smelt.passes.graph.rules import Rules
from smelt.passes.manager import Pipeline, parse_pipeline
from smelt.passes.registry import PASSES, graph_pass
from smelt.passes.rewrite import rebuild

N = Symbol("N", 2).expr()
M = Symbol("M", 0, 4096).expr()


def param(name: str, dtype: Any, *shape: Any) -> Value:
    return Value(TensorType(dtype, shape), name=name)


def assert_round_trip(graph: Graph) -> str:
    """Print, parse, print: the same text, and the types that follow from it are those in it."""
    verify_graph(graph)
    text = print_graph(graph)
    again = parse_graph(text)
    verify_graph(again)
    assert print_graph(again) == text
    assert graph_hash(again) == graph_hash(graph)
    return text


ATTRIBUTES = [
    None, True, False, 0, -3, 2**40, 0.5, -0.0, 1e-5, 1e300, math.inf, -math.inf, math.nan,
    1 + 2j, complex(-0.0, -1e-9), complex(math.inf, math.nan), "", "tanh", 'a "quoted" \\ text\n', "ünïcode",
    f32, bool_, (), (1,), (1, 2), ((1, 2),), ((), (None, "x")), (1 + 2j,), (0.5, True),
    N, N + 1, 2 * N, -N, (N + 3) // 4, (N * M) % 7, N * N - M + 1, minimum(N, M), maximum(N // 2, M), (N, -1),
    (N // 2,), ((N + 3) // 4 * 2 + 1,), -((N + 3) // 4),
]  # fmt: skip


@pytest.mark.parametrize("value", ATTRIBUTES, ids=repr)
def test_attribute_round_trips(value: Any) -> None:
    text = Printer(Graph("main", [], [], [])).attribute(value)
    reader = Reader(f"{{a = {text}, b = 1}}", "<text>")
    reader.symbols = {"N": Symbol("N", 2), "M": Symbol("M", 0, 4096)}
    reader.expect("{")
    reader.expect("a")
    reader.expect("=")
    found = reader.attribute()
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    reader.expect(",")


def test_program_round_trips() -> None:
    x, y, m = param("x", f32, N, 64), param("y", f32, N, 64), param("m", bool_, N, 64)
    a = ops.gelu(x * 0.1 + y, approximate="tanh")
    b = ops.where(m, a, -math.inf)
    c, d = ops.var_mean(ops.cat([b, x], 1), dim=(1,))
    e = ops.slice(x, 0, 0, (N + 3) // 4)
    literals = [constant(0.1, f32), constant(True, bool_), constant(1 - 2j, c64)]
    graph = Graph.build("f", [x, y, m], [c, d, e, *literals])
    text = assert_round_trip(graph)
    assert 'approximate = "tanh"' in text
    assert "0.1:f32" in text
    assert "cat([" in text
    assert "where N >= 2 {" in text
    assert "return %5, %6, %7, 0.1:f32, true, (1.0-2.0j):c64" in text


def test_python_numbers_and_absent_tensors() -> None:
    x = param("x", f32, 4)
    low = ops.clamp(x, 0.5)
    high = ops.clamp(x, None, 2)
    flag = ops.clamp(x, True, constant(True, bool_))
    text = assert_round_trip(Graph.build("f", [x], [low, high, flag]))
    assert "clamp(%x, 0.5)" in text
    assert "clamp(%x, none, 2)" in text
    assert "clamp(%x, true, true:bool)" in text


def test_literals_of_every_type() -> None:
    values = [
        constant(value, dtype)
        for dtype in (f32, f64, bf16)
        for value in (0.1, 1 / 3, -0.0, 1e-30, 3e38, 65504.0, math.inf, -math.inf, math.nan)
    ]
    values += [constant(-(2**63), i64), constant(2**63 - 1, i64), constant(complex(math.inf, -0.0), c64)]
    again = parse_graph(assert_round_trip(Graph.build("f", [], values)))
    for old, new in zip(values, again.results, strict=True):
        assert repr(old.op.arguments) == repr(new.op.arguments)  # type: ignore[union-attr]


def test_size_ranges_are_kept() -> None:
    x = param("x", f32, N, M, M + N)
    graph = Graph.build("f", [x], [ops.exp(x)])
    text = assert_round_trip(graph)
    assert text.startswith("graph @f(%x: f32[N, M, M + N]) where N >= 2, M >= 0, M <= 4096 {")
    symbols = {symbol.name: symbol for symbol in parse_graph(text).sizes}
    assert (symbols["M"].lower, symbols["M"].upper) == (0, 4096)


def test_names() -> None:
    values = [param(name, f32, 2) for name in ("x", "x", "", "a b", "0")]
    text = assert_round_trip(Graph.build("<lambda>", values, [ops.exp(values[0])]))
    assert "graph @lambda(%x: f32[2], %x_1: f32[2], %arg2: f32[2], %a_b: f32[2], %arg4: f32[2])" in text


def test_many_parameters_take_many_lines() -> None:
    values = [param(f"weight_{position}", f32, 128, 128) for position in range(12)]
    text = assert_round_trip(Graph.build("f", values, [values[0] + values[11]]))
    assert text.splitlines()[1] == "  %weight_0: f32[128, 128],"


def test_locations_are_kept() -> None:
    x = param("x", f32, 4)
    with located(Location("/home/user/model.py", 12)):
        y = ops.exp(x)
    with located(Location("/home/user/model.py", 13)):
        z = ops.neg(y) * 2
    text = assert_round_trip(Graph.build("f", [x], [z]))
    comments = [line for line in text.splitlines() if "//" in line]
    assert [line.split("//")[1].strip() for line in comments] == ["model.py:12", "model.py:13", "model.py:13"]
    assert len({line.index("//") for line in comments}) == 1
    assert "//" not in print_graph(parse_graph(text), locations=False)


def test_ops_without_comment_belong_to_the_text() -> None:
    graph = parse_graph("graph @f(%x: f32[4]) {\n  %0 = exp(%x) // a remark\n  return %0\n}", "some.ir")
    assert str(graph.ops[0].loc) == "some.ir:2"


def test_dead_ops_of_a_text_are_kept() -> None:
    graph = parse_graph("graph @f(%x: f32[4]) { %0 = exp(%x) %1 = neg(%x) return %1 }")
    assert [op.name for op in graph.ops] == ["exp", "neg"]


def test_several_graphs() -> None:
    text = "graph @a(%x: f32[4]) {\n  return %x\n}\n// between\ngraph @b() {\n  return 1:i64\n}\n"
    assert [graph.name for graph in parse_graphs(text)] == ["a", "b"]
    with pytest.raises(ParseError, match="expected the end of the text, found 'graph'"):
        parse_graph(text)


def test_graphs_inside_of_attributes() -> None:
    inner = parse_graph("graph @body(%a: f32[N]) where N >= 2 {\n  %0 = exp(%a) : f32[N]\n  return %0\n}")
    text = Printer(inner).attribute(inner)
    again = Reader(text, "<text>").attribute()
    assert print_graph(again, locations=False) == print_graph(inner, locations=False)


def test_types() -> None:
    assert str(parse_type("f32[N, 64]")) == "f32[N, 64]"
    with pytest.raises(ParseError, match="unknown dtype 'g32'"):
        parse_type("g32[4]")


def test_the_error_shows_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse_graph("graph @f(%x: f32[4]) {\n  %0 = exp(%y) : f32[4]\n  return %0\n}", "bad.ir")
    assert str(caught.value).splitlines() == [
        "bad.ir:2:12: %y is not defined above",
        "      %0 = exp(%y) : f32[4]",
        "               ^",
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("graph f() {}", "expected a graph name such as @main, found 'f'"),
        ("graph @f(%x f32[4]) { return %x }", "expected ':', found 'f32'"),
        ("graph @f(%x: f32[4) { return %x }", "expected ',' or ']', found ')'"),
        ("graph @f(%x: f32[0.5]) { return %x }", "expected a size, found 0.5"),
        ("graph @f(%x: f32[4], %x: f32[4]) { return %x }", "%x is defined twice"),
        ("graph @f(%x: f32[N // 0]) { return %x }", "division by zero"),
        ("graph @f(%x: f32[4]", "expected ',' or ')', found the end of the text"),
        ("graph @f(%x: f32[4]) { %0 = exp(%x, %x) return %0 }", "exp takes 1 tensors"),
        ("graph @f(%x: f32[4]) { %0 = exp() return %0 }", "self is missing"),
        ("graph @f(%x: f32[4]) { %0 = captured() {array = array} return %0 }", "make it a parameter"),
        ('graph @f() { return "a" }', "expected an operand"),
        ("graph @f(%x: f32[4]) { %0 = sum(%x) {dim = (0), dim = (0)} return %0 }", "dim is given twice"),
        ("graph @f(%x: f32[4]) { %0 = add(%x) {other = 1} return %0 }", "it stands among the operands"),
    ],
)
def test_parse_errors(text: str, message: str) -> None:
    with pytest.raises((ParseError, ArgumentError)) as caught:
        parse_graph(text)
    assert message in str(caught.value)


def test_hash_depends_on_the_program_alone() -> None:
    first = parse_graph("graph @f(%x: f32[4]) {\n  %0 = exp(%x) : f32[4] // a.py:1\n  return %0\n}")
    same = parse_graph("graph @f(%x: f32[4]) { %result = exp(%x) return %result }")
    other = parse_graph("graph @f(%x: f32[5]) { %0 = exp(%x) return %0 }")
    assert graph_hash(first) == graph_hash(same) != graph_hash(other)


# The verifier


def wrong(graph: Graph, stage: str | None = None) -> str:
    with pytest.raises(VerifyError) as caught:
        verify_graph(graph, stage)
    return str(caught.value)


def test_verify_infers_types_again() -> None:
    x = param("x", f32, 4)
    y = ops.exp(x)
    bad = Op(y.op.defn, y.op.arguments, [TensorType(f32, (8,))], None).result
    z = ops.neg(bad)
    lines = wrong(Graph.build("f", [x], [z])).splitlines()
    assert lines == [
        "@f: exp: the operands give f32[4], the op says f32[8]",
        "    graph @f(%x: f32[4]) {",
        "      %0 = exp(%x) : f32[8]",
        "      ^^^^^^^^^^^^^^^^^^^^^ the operands give f32[4], the op says f32[8]",
        "      %1 = neg(%0) : f32[8]",
        "      return %1",
        "    }",
    ]


def test_verify_checks_definitions_and_uses() -> None:
    x, y = param("x", f32, 4), param("y", f32, 4)
    z = ops.add(x, y)
    assert "operand 1 is not defined above" in wrong(Graph("f", [x], [z.op], [z]))
    assert "result 0 is not defined" in wrong(Graph("f", [x, y], [], [z]))
    assert "given twice" in wrong(Graph("f", [x, y, x], [z.op], [z]))
    assert "occurs twice" in wrong(Graph("f", [x, y], [z.op, z.op], [z]))
    mixed = Op(z.op.defn, z.op.arguments | {"other": param("w", f64, 4)}, [z.type], None)
    assert "different dtypes" in wrong(Graph("f", [x, mixed.operands[1]], [mixed], mixed.results))
    missing = Op(z.op.defn, {"self": x, "other": y}, [z.type], None)
    assert "the signature is add(" in wrong(Graph("f", [x, y], [missing], missing.results))


def test_verify_knows_what_a_stage_allows() -> None:
    graph = parse_graph("graph @f(%x: f32[4]) { %0 = gelu(%x) return %0 }")
    verify_graph(graph)
    assert "gelu is a composite" in wrong(graph, "primitives")


# Passes


def test_rebuild_keeps_what_does_not_change() -> None:
    graph = parse_graph("graph @f(%x: f32[4]) { %0 = exp(%x) %1 = neg(%x) %2 = mul(%0, %1) return %2 }")
    assert rebuild(graph, lambda op, arguments: None) is graph
    swapped = rebuild(graph, lambda op, arguments: ops.sqrt(arguments["self"]) if op.name == "neg" else None)
    assert [op.name for op in swapped.ops] == ["exp", "sqrt", "mul"]
    assert swapped.ops[0] is graph.ops[0]
    assert swapped.ops[1].loc == graph.ops[1].loc
    assert [op.name for op in graph.ops] == ["exp", "neg", "mul"]


def test_rebuild_keeps_once_what_a_visitor_takes_from_further_below() -> None:
    """Constants are shared by all programs: what replaces an op may be the constant of a later one."""
    x = param("x", f32)
    replaced, one = ops.exp(x), constant(1.0, f32)
    total = ops.add(replaced, one)
    graph = Graph("f", [x], [replaced.op, one.op, total.op], [total, replaced])
    result = rebuild(graph, lambda op, arguments: one if op.name == "exp" else None)
    verify_graph(result)
    assert [op.name for op in result.ops] == ["constant", "add"]


def test_rules() -> None:
    rules = Rules()

    @rules.rule("mul(%x, exp(%x))", on="f")
    def same_value(x):
        return x

    @rules.rule("add(%x, #c)", on="f")
    def number(x, c):
        return x if c > 5 else None

    @rules.rule("sum(%x) {dim = (0), keepdim = %keep}", on="f")
    def attribute(x, keep):
        return ops.amax(x, (0,), keep)

    graph = parse_graph(
        """graph @f(%x: f32[4, 4], %y: f32[4, 4]) {
          %0 = exp(%x)
          %1 = mul(%x, %0)
          %2 = mul(%y, %0)
          %3 = add(%1, 6.0)
          %4 = add(%2, 5.0)
          %5 = sum(%3) {dim = (0), keepdim = true}
          %6 = sum(%4) {dim = (1)}
          return %5, %6
        }"""
    )
    result = rebuild(graph, rules.apply)
    assert [op.name for op in result.ops if op.name != "constant"] == ["exp", "mul", "add", "amax", "sum"]

    @rules.rule("exp(%x)", on="f")
    def misspelt(y):
        return y

    with pytest.raises(ValueError, match="captures no 'y'"):
        rebuild(graph, rules.apply)


def test_pipelines() -> None:
    graph = parse_graph("graph @f(%x: f32[4]) { %0 = gelu(%x) %1 = gelu(%x) %2 = add(%0, %1) return %2 }")
    stages: list[str] = []
    timings: dict[str, float] = {}
    pipeline = parse_pipeline("decompose, cse,dce,cse")
    assert str(pipeline) == "decompose,cse,dce,cse"
    pipeline.run(graph, verify_each=True, on_stage=lambda name, thing: stages.append(name), timings=timings)
    assert stages == ["decompose", "cse", "dce", "cse"]
    assert set(timings) == {"decompose", "cse", "dce"}


@pytest.fixture
def scale_pass() -> Any:
    @graph_pass("scale")
    def scale(graph: Graph, factor: float = 2.0, wrong: bool = False) -> Graph:
        """Every result times a factor."""
        results = [value * factor for value in graph.results]
        if wrong:
            results[0] = Op(results[0].op.defn, results[0].op.arguments, [TensorType(f32, ())], None).result
        return Graph.build(graph.name, graph.params, results)

    yield
    del PASSES["scale"]


def test_options(scale_pass: Any) -> None:
    graph = parse_graph("graph @f(%x: f32[4]) { return %x }")
    assert "mul(%x, 3.0:f32)" in str(Pipeline(["scale{factor=3}"]).run(graph))
    with pytest.raises(ParseError, match="scale: factor takes a float, found 'a'"):
        parse_pipeline('scale{factor="a"}')
    with pytest.raises(ParseError, match=r"no option 'facto' \(did you mean 'factor'\?\)"):
        parse_pipeline("scale{facto=3}")
    with pytest.raises(VerifyError, match="after scale"):
        parse_pipeline("scale{wrong=true}").run(graph, verify_each=True)
