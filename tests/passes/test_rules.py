"""Every rule of simplify on every type that it names, special values included, against the program without it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import smelt
import smelt.passes.graph.decompose
import torch
from smelt import ops
from smelt.ir.errors import SmeltError
from smelt.ir.graph import Graph, Value
from smelt.ir.parser import CallPattern, NumberCapture, ValueCapture, parse_pattern
from smelt.ir.types import DTYPES, STORAGE, DType, TensorType, bool_, f16
from smelt.ops.define import REGISTRY, constant, scalar_value
from smelt.passes.graph.cleanup import fold
from smelt.passes.graph.rules import ANY, Rules, same_number
from smelt.passes.graph.simplify import rules, simplify
from smelt.passes.graph.split_reductions import split
from smelt.passes.rewrite import rebuild
from support import compiled, interpret, to_torch

TYPES = [item for item in DTYPES.values() if item not in STORAGE]
GIVEN = {f"{function.__name__}: {text}": (text, on, function) for text, on, function in rules.given}

# What docstrings say is not the same to the bit, with PyTorch's agreement.
# pow(z, 1) of a complex z is z: the signs of zeros stay.
ROUNDED = {"power_one": 1e-12, "power_two": 1e-6, "power_three": 1e-2, "power_half": 1e-2, "exp_of_log_softmax": 1e-2}
# Attributes that patterns capture, for x of 2 x 3 x 4 elements, such that the rules fit.
SHAPE = (2, 3, 4)
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "permute_nothing": [{"dims": (0, 1, 2)}],
    "permute_twice": [{"inner": (2, 0, 1), "outer": (1, 0, 2)}],
    "same_shape": [{"shape": SHAPE}],
    "reshape_twice": [{"shape": (6, 4)}],
    "reshape_before_permute": [{"dims": (2, 0, 1), "shape": (4, 6)}],
    "expand_twice": [{"size": (5, 2, 3, 4)}],
    "slice_all": [{"dim": 1, "end": 3}],
    "slice_twice": [{"dim": 2, "first": 1, "stride": 1, "start": 1, "end": 3, "step": 2}],
    "slice_before_permute": [{"dims": (2, 0, 1), "dim": 0, "start": 1, "end": 4, "step": 2}],
    "flip_before_permute": [{"dims": (2, 0, 1), "flipped": (0, 2)}],
    "flip_nothing": [{"dims": ()}],
    "flip_twice": [{"inner": (0, 1), "outer": (1, 2)}],
    "pad_nothing": [{"pad": (0, 0)}],
    "cast_to_same": [{"dtype": item} for item in TYPES],
    "cast_of_cast": [{"dtype": item, "between": between} for item in TYPES for between in TYPES],
    "exp_of_log_softmax": [{"dim": (1,)}],
}
BY_HAND = ("sum_of_one_hot",)  # the index that it looks for is no part of its pattern


def special(dtype: DType) -> np.ndarray:
    """Numbers at which rules break."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1], dtype.numpy)
    if dtype.kind == "f":
        return real(dtype)
    parts = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan]
    return np.array([complex(a, b) for a, b in product(parts, parts)], dtype.numpy)


def real(dtype: DType) -> np.ndarray:
    limits = {"f16": (6e-8, 65504.0), "bf16": (1e-40, 3.38e38), "f32": (1e-45, 3.4e38), "f64": (5e-324, 1.7e308)}
    tiny, huge = limits[dtype.name]
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, 300.0, -129.0, tiny, -tiny, huge, -huge]
    return np.array([*numbers, np.inf, -np.inf, np.nan], np.float64).astype(dtype.numpy)


class Builder:
    """The op calls of a pattern, on parameters of one type."""

    def __init__(self, dtype: DType, attributes: dict[str, Any], shape: tuple[int, ...] | None):
        self.dtype = dtype
        self.attributes = attributes
        self.shape = shape
        self.params: dict[str, Value] = {}
        self.numbers: dict[str, Any] = {}

    def param(self, name: str, dtype: DType) -> Value:
        if name not in self.params:
            self.params[name] = Value(TensorType(dtype, self.shape or (-1,)), name=name)
        return self.params[name]

    def call(self, pattern: CallPattern) -> Any:
        given: list[Any] = []
        for position, operand in enumerate(pattern.operands):
            chooses = (pattern.name == "where" and position == 0) or pattern.name == "logical_not"
            given.append(self.operand(operand, bool_ if chooses else self.dtype))
        captured = {
            name: self.attributes[item.name] if isinstance(item, ValueCapture) else item
            for name, item in pattern.attributes.items()
        }
        if pattern.name == "cast" and "dtype" not in captured:
            captured["dtype"] = self.attributes["between"]
        if pattern.name == "reshape" and "shape" not in captured:
            captured["shape"] = (24,)
        if pattern.name == "expand" and "size" not in captured:
            captured["size"] = SHAPE
        if pattern.name == "slice" and "end" not in captured:
            captured["end"] = 4
        if pattern.name == "cat":
            given = [tuple(given)]
        return REGISTRY[pattern.name](*given, **captured)

    def operand(self, item: Any, dtype: DType) -> Any:
        if isinstance(item, CallPattern):
            return self.call(item)
        if isinstance(item, ValueCapture):
            return self.param(item.name, dtype)
        if isinstance(item, NumberCapture):
            return constant(self.numbers.get(item.name, 0.125), dtype)
        if isinstance(item, bool):
            dtype = bool_
        if not same_number(scalar_value(item, dtype), item):
            raise SmeltError(f"{item} is no {dtype}")
        return constant(item, dtype)


def programs(text: str, name: str, dtype: DType) -> Iterator[tuple[Graph, list[np.ndarray]]]:
    """What a pattern says as graphs, with their inputs; none where the type has no such numbers or ops."""
    views = name in ATTRIBUTES and not name.startswith("cast")
    pattern = parse_pattern(text)
    elements = special(dtype)
    captures = sorted(item for item in pattern.captures())
    for attributes in ATTRIBUTES.get(name, [{}]):
        shape = SHAPE if views else (len(elements) ** 2,)
        if text.startswith("expand(expand"):
            shape = (2, 1, 4)
        builder = Builder(dtype, attributes, shape)
        try:
            result = builder.call(pattern)
        except (SmeltError, OverflowError):
            continue
        params = [builder.params[item] for item in captures if item in builder.params]
        left, right = (item.ravel() for item in np.meshgrid(np.arange(len(elements)), np.arange(len(elements))))
        arrays = []
        for place, param in zip((left, right, left), params):
            values = special(param.dtype)
            filled = values[place % len(values)]
            arrays.append(np.resize(filled, shape) if views else filled)
        yield Graph.build("rule", params, [result]), arrays


def assert_same(found: np.ndarray, wanted: np.ndarray, tolerance: float, what: str) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, what
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, what)
        return
    for part in ("real", "imag") if wanted.dtype.kind == "c" else ("real",):
        mine, other = getattr(found, part).astype(np.float64), getattr(wanted, part).astype(np.float64)
        if tolerance:
            np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance, err_msg=what)
        else:
            np.testing.assert_array_equal(mine, other, what)
            number = other == other
            np.testing.assert_array_equal(np.signbit(mine[number]), np.signbit(other[number]), what)


@pytest.mark.parametrize("name", [name for name in GIVEN if GIVEN[name][2].__name__ not in BY_HAND])
def test_rule(name: str) -> None:
    text, on, function = GIVEN[name]
    alone = Rules()
    alone.rule(text, on=ANY)(function)
    applied = 0
    for dtype in TYPES:
        for graph, arrays in programs(text, function.__name__, dtype):
            computes = graph.results[0].op.operands[-1].dtype  # type: ignore[union-attr]
            if computes.kind not in on:
                continue
            after = rebuild(graph, alone.apply)
            applied += after is not graph
            (wanted,) = interpret(graph, arrays)
            tolerance = ROUNDED.get(function.__name__, 0.0)
            kept = np.full(wanted.shape, True)
            if function.__name__ == "power_half":
                kept = ~(np.isneginf(arrays[0].astype(float)) | (arrays[0] == 0))
            for changed in (after, simplify(graph)):
                (found,) = interpret(changed, arrays)
                assert_same(found[kept], wanted[kept], tolerance, f"{text} of {dtype}")
    assert applied, f"{name} never fits"


NON_NEGATIVE = {
    "exp": lambda x: ops.exp(x),
    "square": lambda x: x * x,
    "abs": lambda x: ops.abs(x),
    "sum of squares": lambda x: ops.sum(x * x, 0, True),
    "quotient of powers": lambda x: ops.exp(x) / (ops.abs(x) + 0.0),
}


@pytest.mark.parametrize("name", NON_NEGATIVE)
def test_zero_is_dropped_where_no_sign_is(name: str) -> None:
    for dtype in TYPES:
        x = Value(TensorType(dtype, special(dtype).shape), name="x")
        try:
            result = NON_NEGATIVE[name](x)
            graph = Graph.build("rule", [x], [REGISTRY["add"](result, constant(0, result.dtype))])
        except SmeltError:
            continue
        graph = smelt.passes.graph.decompose.decompose(graph)
        (wanted,), (found,) = (interpret(item, [special(dtype)]) for item in (graph, simplify(graph)))
        assert_same(found, wanted, 0.0, f"{name} of {dtype}")


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "any", "all"])
def test_reductions_of_one_element(name: str) -> None:
    for dtype in TYPES:
        x = Value(TensorType(dtype, (1, special(dtype).size)), name="x")
        try:
            result = REGISTRY[name](x, (0,), False)
        except SmeltError:
            continue
        graph = Graph.build("rule", [x], [result])
        (wanted,), (found,) = (interpret(item, [special(dtype)[None]]) for item in (graph, simplify(graph)))
        assert_same(found, wanted, 0.0, f"{name} of {dtype}")
        assert_same(compiled(graph, [special(dtype)[None]])[0], wanted, 0.0, f"{name} of {dtype}, compiled")


def test_folded_casts() -> None:
    """A cast of a number is folded to what the cast gives, or not at all."""
    for source, target in product(TYPES, TYPES):
        for number in special(source):
            graph = Graph.build("rule", [], [REGISTRY["cast"](constant(number.item(), source), target)])
            (wanted,), (found,) = (interpret(item, []) for item in (graph, fold(graph)))
            assert_same(found, wanted, 0.0, f"{number} of {source} as {target}")


def test_sum_of_one_hot() -> None:
    """Whatever the type of the label, which may lie outside, and of what is chosen."""
    for dtype, chosen in product(TYPES, TYPES):
        if chosen.kind not in "iu":
            continue
        elements = special(dtype)
        x = Value(TensorType(dtype, (elements.size, 1)), name="x")
        label = Value(TensorType(chosen, (elements.size, 1)), name="label")
        places = ops.iota((1, 5), dim=1, dtype=chosen)
        whole = ops.where(ops.eq(places, label), x, constant(0, dtype))
        try:
            graph = Graph.build("rule", [x, label], [REGISTRY["sum"](whole, (1,), False)])
        except SmeltError:
            continue
        arrays = [elements[:, None], np.resize(special(chosen), (elements.size, 1))]
        (wanted,), (found,) = (interpret(item, arrays) for item in (graph, simplify(graph)))
        assert_same(found, wanted, 0.0, f"{dtype} by {chosen}")


@pytest.mark.parametrize("shape, dim", [((2, 1 << 17), 1), ((4096, 64), 0)])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_parts_of_narrow_sums_are_wide(kind: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    """A part is beyond what f16 holds, the sum is not."""
    length = shape[dim]
    sign = np.where(np.arange(length) < length // 2, 8.0, -8.0) + (np.arange(length) == 5)
    x = torch.from_numpy(np.broadcast_to(sign[None] if dim else sign[:, None], shape).copy()).to(kind)
    for function in (torch.sum, torch.mean):
        wanted = function(x.double(), dim)
        smelted = torch.compile(lambda x, function=function: function(x, dim), backend="smelt")
        np.testing.assert_allclose(smelted(x).double(), wanted, rtol=1e-2)


def test_parts_are_rounded_once() -> None:
    x = Value(TensorType(f16, (2, 1 << 17)), name="x")
    after = split(Graph.build("sum", [x], [REGISTRY["sum"](x, (1,), False)]))
    assert [str(op.results[0].dtype) for op in after.ops if op.name == "sum"] == ["f32", "f32"]


@pytest.mark.parametrize("bounds", [(np.nan, None), (None, np.nan), (0.0, np.nan), (np.nan, 2.0)])
@pytest.mark.parametrize("kind", ["float32", "int64", "float16"])
def test_clamp_with_nan(bounds: tuple[Any, Any], kind: str) -> None:
    x = np.array([1, 2, 3]).astype(kind)
    found = smelt.jit(lambda x: ops.clamp(x, *bounds))(x)
    np.testing.assert_array_equal(found, torch.clamp(to_torch(x), *bounds).numpy())


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
@pytest.mark.parametrize("kind", ["uint8", "int8", "int64"])
def test_logaddexp_of_integers(name: str, kind: str) -> None:
    x, y = np.array([1, 100, 3, 0], kind), np.array([3, 1, 3, 127], kind)
    found = smelt.jit(getattr(ops, name))(x, y)
    np.testing.assert_allclose(found, getattr(np, name)(x.astype(float), y.astype(float)), rtol=1e-6)
