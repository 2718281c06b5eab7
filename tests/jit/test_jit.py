"""smelt.jit as its users meet it: what goes in, what comes out, what it says."""

from __future__ import annotations

import enum
import functools
import json
import weakref
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from support import floats

X = floats(3, 4)

Pair = namedtuple("Pair", "left right")
Couple = namedtuple("Couple", "left right")


class Mode(enum.StrEnum):
    UP = "up"


@dataclass(frozen=True)
class Frozen:
    first: Any
    second: Any
    noted: Any = field(default=None, compare=False)


class Derived(Frozen):
    pass


@dataclass(frozen=True)
class Hashed:
    members: list[int]

    def __hash__(self) -> int:
        return len(self.members)


# Arguments.


def test_trees_go_in_and_come_out() -> None:
    @smelt.jit
    def step(params: dict[str, Any], batch: Pair) -> Any:
        return {"sum": batch.left + params["a"][0], "rest": [Pair(batch.right * params["b"], (batch.left,))]}

    a, b = floats(4, seed=1), floats(4, seed=2)
    result = step({"a": [a], "b": b}, Pair(X, b))
    assert isinstance(result["rest"][0], Pair)
    np.testing.assert_array_equal(result["sum"], X + a)
    np.testing.assert_array_equal(result["rest"][0].left, b * b)
    np.testing.assert_array_equal(result["rest"][0].right[0], X)


def test_another_tree_compiles_again() -> None:
    total = smelt.jit(lambda items: sum(items[1:], items[0]))
    np.testing.assert_array_equal(total([X, X]), X + X)
    np.testing.assert_array_equal(total((X, X, X)), X + X + X)
    np.testing.assert_array_equal(total([X, X]), X + X)
    assert total.compiles == 2


def test_keywords_in_any_order() -> None:
    subtract = smelt.jit(lambda x, *, y, scale=2.0: (x - y) * scale)
    np.testing.assert_array_equal(subtract(X, y=X[0]), (X - X[0]) * 2)
    np.testing.assert_array_equal(subtract(X, scale=3, y=X[0]), (X - X[0]) * 3)
    np.testing.assert_array_equal(subtract(X, y=X[0], scale=4), (X - X[0]) * 4)
    assert subtract.compiles == 2


def test_by_name_or_by_position_is_the_same_program() -> None:
    def program(x: Any, z: Any, y: Any = 2.0, *, factor: Any = 1.0) -> Any:
        return (x - z * 2) * y + factor

    function = smelt.jit(program)
    x, y, z = floats(4, seed=1), floats(4, seed=2), floats(4, seed=3)
    for _ in range(5):  # also once native code knows the calls
        for args, kwargs in (
            ((x, z, y), {}),
            ((x, z), {"y": y}),
            ((x,), {"y": y, "z": z}),
            ((), {"z": z, "y": y, "x": x}),
        ):
            np.testing.assert_allclose(function(*args, **kwargs), program(x, z, y), rtol=1e-6)
    assert function.compiles == 1
    assert {tuple(item) for bound in function.exact.values() for item in bound.entries} == {
        (), ("y",), ("y", "z"), ("z", "y", "x"),
    }  # fmt: skip
    for _ in range(5):
        np.testing.assert_allclose(function(x, factor=3.0, z=z), program(x, z, factor=3.0), rtol=1e-6)
        np.testing.assert_allclose(function(x, z, factor=3.0), program(x, z, factor=3.0), rtol=1e-6)
        np.testing.assert_allclose(function(x, factor=3.0, y=y, z=z), program(x, z, y, factor=3.0), rtol=1e-6)
    assert function.compiles == 3
    assert str(function.trace(x, y=y, z=z)) == str(function.trace(x, z, y))


def test_functions_that_look_at_how_they_are_called_are_called_so() -> None:
    def only(x: Any, /, **named: Any) -> Any:
        return x * named["x"]

    @functools.wraps(only)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return args[0] + 10 * kwargs.get("y", 0.0)

    x, y = floats(4), floats(4, seed=1)
    for _ in range(4):
        np.testing.assert_allclose(smelt.jit(only)(x, x=y), x * y, rtol=1e-6)
        np.testing.assert_allclose(smelt.jit(wrapper)(x, y=y), x + 10 * y, rtol=1e-6)
    with pytest.raises(TypeError, match="multiple values"):
        smelt.jit(lambda x, y: x + y)(x, y, x=x)


@pytest.mark.parametrize("how", [{"static_argnums": 1}, {"static_argnums": (-1,)}, {"static_argnames": "mode"}])
def test_static_arguments_by_position_and_by_name(how: dict[str, Any]) -> None:
    @smelt.jit(**how)
    def apply(x: Any, mode: str) -> Any:
        return x + 1 if mode == "up" else x - 1

    np.testing.assert_array_equal(apply(X, "up"), X + 1)
    np.testing.assert_array_equal(apply(X, "down"), X - 1)
    np.testing.assert_array_equal(apply(X, mode="up"), X + 1)
    np.testing.assert_array_equal(apply(mode="down", x=X), X - 1)
    before = apply.compiles
    apply(X + 1, "up")
    apply(X + 1, mode="up")
    assert apply.compiles == before


def test_static_numbers_that_compare_equal_are_told_apart() -> None:
    kind = smelt.jit(lambda x, k: x * 0 + {bool: 1.0, int: 2.0, float: 3.0}[type(k)], static_argnums=1)
    assert [kind(X, k)[0, 0] for k in (True, 1, 1.0, True)] == [1, 2, 3, 1]
    signed = smelt.jit(lambda x, k: ops.copysign(x, k[0]), static_argnames="k")
    assert np.signbit(signed(X, k=(-0.0,))).all() and not np.signbit(signed(X, k=(0.0,))).any()
    assert np.signbit(ops.full_like(X, -0.0)).all() and not np.signbit(ops.full_like(X, 0.0)).any()


def test_static_containers_that_compare_equal_are_told_apart() -> None:
    class Shape(tuple):
        """As equal as the names that it gives its members."""

        def __new__(cls, name: str, *sizes: int) -> Any:
            made = tuple.__new__(cls, sizes)
            made.name = name
            return made

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Shape) and tuple.__eq__(self, other) and self.name == other.name

        __hash__ = tuple.__hash__

    shown: list[Any] = []
    show = smelt.jit(lambda x, k: shown.append(k) or x + 1, static_argnames="k")
    alike = [
        Pair(1, 2), Couple(1, 2), (1, 2), (1.0, 2), (True, 2), (1, (2,)), (1, None),
        frozenset({0.0, 1}), frozenset({-0.0, 1}), frozenset({0, 1}), frozenset({False, True}),
        Frozen(1, 0.0), Frozen(1, -0.0), Frozen(True, 0.0), Frozen(Pair(1, 2), 0.0), Frozen((1, 2), 0.0),
        Frozen, Derived(1, 0.0), Hashed([1]), Hashed([2]), Shape("NC", 1, 2), Shape("CN", 1, 2), Mode.UP, "up",
        1j, complex(-0.0, 1), 10**5000,
    ]  # fmt: skip
    for _again in range(3):
        for value in alike:
            show(X, value)
    assert len(shown) == show.compiles == len(alike)
    assert all(seen is value for seen, value in zip(shown, alike, strict=True))
    show(X, Couple(1, 2)), show(X, frozenset({1, 0.0})), show(X, Frozen(1, 0.0)), show(X, Frozen(1, 0.0, [3]))
    assert show.compiles == len(alike)


def test_a_static_nan_compiles_once() -> None:
    fill = smelt.jit(lambda x, k: ops.nan_to_num(x, k), static_argnums=1)
    for _ in range(3):
        fill(X, float("nan"))
    assert fill.compiles == 1


def test_python_numbers_are_arguments_not_constants() -> None:
    scale = smelt.jit(lambda x, k: x * k)
    for number in (2.0, 3.0, -1.5):
        np.testing.assert_array_equal(scale(X, number), X * np.float32(number))
    assert scale.compiles == 1
    assert scale(np.arange(3), 2).dtype == np.int64
    assert scale(np.arange(3), 2.0).dtype == np.float64


def test_numpy_scalars_keep_their_type() -> None:
    same = smelt.jit(lambda x: x + x)
    for kind in (np.float64, np.float32, np.float16, np.int8, np.int64, np.complex64):
        result = same(kind(3))
        assert result.dtype == kind and result.shape == () and result == kind(6)


def test_zero_dimensional_arrays() -> None:
    both = smelt.jit(lambda x, y: (x * y, x.reshape(1), x + ops.ones((2,))))
    product, one, two = both(np.array(3.0), np.array(2.0))
    assert isinstance(product, np.ndarray) and product.shape == () and product == 6
    assert one.shape == (1,) and two.shape == (2,)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    view = memory.view(array.dtype).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "fortran": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x, x.shape),
    "zero stride": lambda x: np.broadcast_to(x[0], (3, 4)),
    "big-endian": lambda x: x.astype(">f4"),
    "big-endian fortran": lambda x: np.asfortranarray(x.astype(">f4")),
    "read-only": read_only,
    "unaligned": unaligned,
    "torch": lambda x: torch.from_numpy(x.copy()),
    "torch transposed": lambda x: torch.from_numpy(np.ascontiguousarray(x.T)).T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_taken_and_left_alone(layout: str) -> None:
    function = smelt.jit(lambda x, y: (x * 2 + y, x))
    given = LAYOUTS[layout](X)
    values = np.asarray(given).astype("float32")
    doubled, same = function(given, X)
    np.testing.assert_array_equal(doubled, values * 2 + X)
    np.testing.assert_array_equal(same, values)
    assert doubled.dtype == same.dtype == np.dtype("float32") and doubled.flags.c_contiguous
    np.testing.assert_array_equal(np.asarray(given), values)


class HasArray:
    """Something that only knows how to become an array."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class HasDLPack:
    """Something that only knows DLPack."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [HasArray, HasDLPack])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: np.asfortranarray(x)])
def test_array_protocols(wrap: Callable[[np.ndarray], Any], layout: Callable[[np.ndarray], np.ndarray]) -> None:
    increment = smelt.jit(lambda x: x + 1)
    np.testing.assert_array_equal(increment(wrap(layout(X))), X + 1)
    np.testing.assert_array_equal(ops.add(wrap(layout(X)), 1) if wrap is HasArray else X + 1, X + 1)


# Captured arrays.


def test_captured_arrays_are_hidden_parameters() -> None:
    weight, swapped = floats(4, 2, seed=3), np.asfortranarray(floats(4, 2, seed=4)).astype(">f4")
    function = smelt.jit(lambda x: x @ weight + x @ swapped + x @ weight)
    expected = X @ weight * 2 + X @ swapped.astype("float32")
    np.testing.assert_allclose(function(X), expected, rtol=1e-5, atol=1e-5)
    graph = function.trace(X)
    # One parameter for each array, however often it is used; none is a literal in the program.
    assert [str(param.type) for param in graph.params] == ["f32[3, 4]", "f32[4, 2]", "f32[4, 2]"]


def test_a_captured_number_is_a_literal() -> None:
    for half in (0.5, np.float32(0.5), np.float64(0.5)):
        function = smelt.jit(lambda x, half=half: x * half, static_argnames="half")
        assert len(function.trace(X).params) == 1
        result = function(X)
        assert result.dtype == (X * half).dtype
        np.testing.assert_array_equal(result, X * half)


def test_jit_inside_of_jit_is_one_program() -> None:
    inner = smelt.jit(lambda x, k: ops.exp(x) * k, static_argnames="k")
    outer = smelt.jit(lambda x: inner(x, k=2) + inner(x + 1, 3))
    np.testing.assert_allclose(outer(X), np.exp(X) * 2 + np.exp(X + 1) * 3, rtol=1e-5)
    assert inner.compiles == 0 and outer.compiles == 1
    assert len(outer.report().kernels) == 1


def test_models_that_nobody_has_do_not_stay() -> None:
    """An object with a compiled method is a cycle, which the garbage collector finds while others are traced."""

    class Model:
        def __init__(self) -> None:
            self.step = smelt.jit(self.run)

        def run(self, x: Any) -> Any:
            for _ in range(10):
                x = x * 2 + 1
            return x.sum()

    models = []
    for _ in range(100):
        model = Model()
        models.append(weakref.ref(model))
        model.step(X)
    assert sum(model() is not None for model in models) < 90


def test_parameters_are_named_as_the_function_names_them() -> None:
    def several(first: Any, *rest: Any, last: Any) -> Any:
        return first + rest[0][0] + rest[1] + last

    array = np.ones(3, np.float32)
    graph = smelt.jit(several).trace(array, [array], array, last=array)
    assert [param.name for param in graph.params] == ["first", "rest_0", "arg2", "last"]

    @functools.wraps(several)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        return several(*arguments, **named)

    graph = smelt.jit(wrapped).trace(array, [array], array, last=array)
    assert [param.name for param in graph.params][:2] == ["first", "rest_0"]


def test_jit_keeps_name_and_documentation() -> None:
    @smelt.jit
    def documented(x: Any) -> Any:
        """What it does."""
        return x

    assert (documented.__name__, documented.__doc__) == ("documented", "What it does.")


# Results.


def test_results_that_are_inputs_views_and_repeats_share_no_memory() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        y = x + 1
        return x, x.reshape(4, 3), x[1:], x.T, y, y, y.reshape(-1), y.reshape(2, 6)

    given = X.copy()
    results = function(given)
    y = X + 1
    expected = (X, X.reshape(4, 3), X[1:], X.T, y, y, y.reshape(-1), y.reshape(2, 6))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert result.flags.writeable and result.strides == wanted.strides
    for position, result in enumerate(results):
        assert not np.shares_memory(result, given)
        assert not any(np.shares_memory(result, other) for other in results[:position])


def test_a_captured_array_comes_back_as_a_copy() -> None:
    table = floats(3)
    function = smelt.jit(lambda x: (table, x))
    first, _ = function(X)
    first += 1
    np.testing.assert_array_equal(function(X)[0], floats(3))


def test_results_that_are_no_tensors() -> None:
    function = smelt.jit(lambda x: {"none": None, "int": 3, "float": 0.5, "text": "yes", "flag": True, "x": x, "e": ()})
    result = function(X)
    assert result.pop("x").shape == (3, 4)
    assert result == {"none": None, "int": 3, "float": 0.5, "text": "yes", "flag": True, "e": ()}
    assert smelt.jit(lambda x: None)(X) is None
    assert smelt.jit(lambda: 5)() == 5


def test_constant_results() -> None:
    function = smelt.jit(lambda x: (ops.full((2, 2), 7.0), np.arange(3), np.float32(2), ops.zeros((0, 3))))
    sevens, numbers, two, empty = function(X)
    np.testing.assert_array_equal(sevens, np.full((2, 2), 7, np.float32))
    np.testing.assert_array_equal(numbers, np.arange(3))
    assert two == 2 and two.dtype == np.float32 and empty.shape == (0, 3)
    np.testing.assert_array_equal(smelt.jit(lambda: ops.arange(4))(), np.arange(4))


def test_a_result_that_is_a_constant_of_another_result() -> None:
    power, mean = smelt.jit(lambda x: (x**0, x.mean()))(np.array(np.float32(3)))
    assert (power, mean) == (1, 3)


def test_a_size_comes_back_as_a_number() -> None:
    function = smelt.jit(lambda x: (x.shape, x.shape[0] * 2 + 1, x.numel(), x.sum()))
    for rows in (3, 5, 7):
        shape, odd, count, _ = function(np.ones((rows, 4), np.float32))
        assert (shape, odd, count) == ((rows, 4), 2 * rows + 1, 4 * rows)
        assert type(odd) is int and type(shape[0]) is int
    assert function.compiles == 2


# Outside of jit.


def test_ops_on_arrays_run_at_once() -> None:
    result = ops.softmax(X, 1)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result.sum(1), np.ones(3), rtol=1e-6)
    np.testing.assert_array_equal(ops.cat([X, X * 2], dim=1), np.concatenate([X, X * 2], 1))
    np.testing.assert_array_equal(ops.add(X, torch.ones(4)), X + 1)
    values, indices = ops.max(X, 1)
    np.testing.assert_array_equal(values, X.max(1))
    np.testing.assert_array_equal(indices, X.argmax(1))


def test_creation_outside_of_jit() -> None:
    np.testing.assert_array_equal(np.asarray(ops.zeros((2, 3))), np.zeros((2, 3)))
    steps = ops.arange(6).reshape(2, 3) + 1
    assert steps.shape == (2, 3)
    np.testing.assert_array_equal(steps.numpy(), np.arange(6).reshape(2, 3) + 1)
    assert ops.full((), 3).item() == 3 and steps.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert float(ops.full((), 0.5)) == 0.5 and int(ops.full((), 4)) == 4 and bool(ops.ones(()))
    assert [10, 20, 30][ops.full((), 2)] == 30
    np.testing.assert_array_equal(np.asarray(ops.eye(3) * 2, dtype="float64"), np.eye(3) * 2)


# Random numbers.


def test_every_call_draws_other_numbers() -> None:
    draw = smelt.jit(lambda x: x + ops.rand((100,)))
    zero = np.zeros(100, np.float32)
    smelt.manual_seed(7)
    first, second = draw(zero), draw(zero)
    assert not np.array_equal(first, second)
    smelt.manual_seed(7)
    np.testing.assert_array_equal(draw(zero), first)
    np.testing.assert_array_equal(draw(zero), second)
    smelt.manual_seed(8)
    assert not np.array_equal(draw(zero), first)
    assert draw.compiles == 1


def test_two_draws_of_one_call_differ() -> None:
    draw = smelt.jit(lambda: (ops.rand((50,)), ops.rand((50,)), ops.randn((50,))))
    one, two, three = draw()
    assert not np.array_equal(one, two) and not np.array_equal(one, three)


def test_what_was_traced_before_does_not_change_the_numbers() -> None:
    def body() -> Any:
        return ops.rand((10,))

    smelt.manual_seed(3)
    first = smelt.jit(body)()
    smelt.jit(lambda: (ops.rand((5,)), ops.rand((5,)))).trace()
    smelt.manual_seed(3)
    np.testing.assert_array_equal(smelt.jit(body)(), first)


def test_dropout_uses_one_mask_forward_and_backward() -> None:
    function = smelt.value_and_grad(lambda x: (ops.dropout(x, 0.5) * 3).sum())
    ones = np.ones(1000, np.float32)
    smelt.manual_seed(1)
    value, gradient = function(ones)
    assert set(np.unique(gradient)) == {0.0, 6.0}
    assert value == gradient.sum()
    _, other = function(ones)
    assert not np.array_equal(gradient, other)


def test_a_negative_and_a_huge_seed() -> None:
    draw = smelt.jit(lambda: ops.rand((10,)))
    found = []
    for seed in (-1, 2**64 - 1, 2**63, 0):
        smelt.manual_seed(seed)
        found.append(draw())
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[2], found[3])


# What the compiler says.


def test_report() -> None:
    @smelt.jit
    def chain(x: Any) -> Any:
        return ops.tanh(x * 2 + 1).sum()

    chain(floats(64, 64))
    report = chain.report()
    assert report.name == "chain" and len(report.kernels) == 1
    kernel = report.kernels[0]
    assert {"mul", "add", "tanh", "sum"} <= set(kernel.ops)
    assert (kernel.reads, kernel.writes, report.arena) == ("16.4 KB", "4 B", "0 B")
    assert kernel.vector_widths and kernel.regions >= 1
    assert set(report.milliseconds) >= {"graph passes", "fuse", "loops", "emit", "llvm"}
    data = json.loads(report.json())
    assert data["kernels"][0]["name"] == kernel.name and data["ops"] == report.ops
    assert "1 kernel" in str(report)


def test_report_of_symbolic_sizes_is_a_formula() -> None:
    double = smelt.jit(lambda x: x * 2)
    double(X)
    double(floats(5, 4))
    assert double.report().kernels[0].reads == "16 * N B"


def test_trace_of_specs() -> None:
    @smelt.jit
    def layer(x: Any, *, weight: Any, act: str) -> Any:
        return getattr(ops, act)(x @ weight)

    options = {"weight": smelt.spec("f32[64, 8]"), "act": "relu"}
    layer = smelt.jit(layer.function, static_argnames="act")
    graph = layer.trace(smelt.spec("f32[N, 64]"), **options)
    assert [(param.name, str(param.type)) for param in graph.params] == [("x", "f32[N, 64]"), ("weight", "f32[64, 8]")]
    assert [op.name for op in graph.ops] == ["matmul", "relu"]
    assert str(graph.results[0].type) == "f32[N, 8]" and graph.name == "layer"
    assert all(op.loc is not None and op.loc.file == __file__ for op in graph.ops)
    assert layer.compiles == 0


def test_spec_text() -> None:
    assert smelt.spec("f32[]").shape == () and smelt.spec(" bf16 [ 2 , N ] ").dtype is smelt.bf16
    assert [str(size) for size in smelt.spec("i64[N, 3, N]").shape] == ["N", "3", "N"]


def test_the_same_function_traces_to_the_same_text() -> None:
    function = smelt.jit(lambda x: ops.dropout(ops.softmax(x, 1), 0.5))
    assert str(function.trace(X)) == str(function.trace(X))


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_array(np.ones(4, np.float32), mask=[True, False, False, False])
    captured = smelt.jit(lambda x: x + masked)
    for function, argument in ((smelt.jit(lambda x: x + 1), masked), (captured, np.ones(4, np.float32))):
        with pytest.raises(smelt.SmeltError, match="filled"):
            function(argument)
    function = smelt.jit(lambda x: x + 1)
    np.testing.assert_array_equal(function(np.ones((1, 2), np.float32).view(np.recarray)), [[2.0, 2.0]])
