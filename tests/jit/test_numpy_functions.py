"""Every NumPy function that smelt takes, with its arguments: the result is NumPy's, or the call is refused; it is never
another result."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import smelt
from numpy_texts import TEXTS
from smelt.ir.errors import ArgumentError, SmeltError
from smelt.numpy_calls import functions
from smelt.ops.attributes import accepted
from smelt.ops.streams import Streams
from support import OWN_OPS, floats, interpret

VALUES: dict[str, np.ndarray] = {
    "x": floats(2, 3, 4, seed=1),
    "i": np.arange(-5, 7, dtype=np.int32).reshape(3, 4),
    "u": np.arange(250, 262, dtype=np.int64).astype(np.uint8).reshape(3, 4),
    "b": np.arange(12).reshape(3, 4) % 3 == 0,
    "c": (floats(3, 4, seed=2) + 1j * floats(3, 4, seed=3)).astype(np.complex64),
    "v": floats(4, seed=4, dtype="float64"),
    "h": floats(4, seed=5).astype(np.float16),
    "s": np.asarray(2.5, np.float32),
    "o": floats(1, 3, 1, seed=6),
    "m": floats(4, 4, seed=7, dtype="float64"),
    "n": np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 2.0]]),
    "e": np.zeros((0, 3), np.float32),
}
AXES = ("None", "0", "-1", "1", "()", "(0,)", "(0, 1)", "(-1, 0)", "[0]", "5", "-5", "(0, 0)", "(0, -2)", "1.0", "'a'",
        "np.int64(1)", "(np.int8(0), -1)")  # fmt: skip
# NumPy itself trips over the type of its own result (a Python int does not go into a u8).
ONLY_SMELTS = {"np.select([b, i > 0], [u, 1])", "np.select([b, i > 0], [1, u])"}
# Weights that sum to zero are an error in NumPy and a division by zero in compiled code.
ONLY_SMELTS |= {"np.average(i, 0, i)", "np.average(x[0], 0, weights=i, returned=True)"}


def reductions() -> Iterator[str]:
    names = (
        "sum",
        "prod",
        "nansum",
        "mean",
        "nanmean",
        "std",
        "var",
        "max",
        "min",
        "amax",
        "amin",
        "any",
        "all",
        "count_nonzero",
    )
    for name, axis, value in itertools.product(names, AXES, "xiubc"):
        yield f"np.{name}({value}, axis={axis})"
    for name, axis in itertools.product(names, AXES[:8]):
        yield f"np.{name}(x, {axis}, keepdims=True)"
        yield f"np.{name}(i, {axis}, keepdims=1)"
    for name, value in itertools.product(("argmax", "argmin"), "xiubvsn"):
        for axis in (*AXES[:4], "5", "(0,)"):
            yield f"np.{name}({value}, axis={axis})"
            yield f"np.{name}({value}, {axis}, keepdims=True)"
    for name, value, dtype in itertools.product(
        ("sum", "prod", "nansum", "mean", "nanmean", "std", "var", "cumsum", "cumprod"), "xiubc",
        ("np.float64", "'f4'", "int", "np.int8", "bool", "complex", "'nonsense'"),
    ):  # fmt: skip
        yield f"np.{name}({value}, 0, {dtype})"
        yield f"np.{name}({value}, dtype={dtype})"
    for name in names:
        yield from (
            f"np.{name}(x, out=m)",
            f"np.{name}(x, out=None)",
            f"np.{name}(x, where=True)",
            f"np.{name}(x, nonsense=1)",
        )
        yield from (
            f"np.{name}(n, axis=0)",
            f"np.{name}(s)",
            f"np.{name}(h)",
            f"np.{name}(e, axis=0)",
            f"np.{name}(v, initial=3)",
        )
    for ddof in ("0", "1", "2", "0.5"):
        yield from (f"np.std(x, 0, None, None, {ddof})", f"np.var(i, ddof={ddof}, axis=(0, 1), keepdims=True)")
    for name, axis, value in itertools.product(("cumsum", "cumprod"), ("None", "0", "-1", "7", "(0,)"), "xiubc"):
        yield f"np.{name}({value}, {axis})"
    yield from (
        "np.trace(m)",
        "np.trace(i)",
        "np.trace(b)",
        "np.trace(m, 1)",
        "np.trace(x)",
        "np.trace(i, dtype=float)",
    )


def joins() -> Iterator[str]:
    pairs = ("[i, i]", "[i, u]", "[i, x[0]]", "(b, i)", "[c, i]", "[v, h]", "[v, i]", "[s, s]", "[]", "x", "i", "s",
             "v", "[x, x]", "[i, 1]", "[v, [1, 2]]", "[v, np.ones(2)]", "[u, u]", "[h, h, v]")  # fmt: skip
    for name, pair in itertools.product(("concatenate", "stack", "vstack", "hstack"), pairs):
        yield f"np.{name}({pair})"
    for name, pair, axis in itertools.product(("concatenate", "stack"), pairs[:6], ("1", "-1", "2", "9", "None")):
        yield f"np.{name}({pair}, axis={axis})"
    for name, dtype in itertools.product(("concatenate", "stack", "vstack"), ("float", "np.int8", "complex")):
        yield f"np.{name}([i, u], dtype={dtype})"
        yield f"np.{name}([x[0], i], dtype={dtype}, casting='same_kind')"
    for sections, axis in itertools.product(
        ("1", "2", "3", "[1]", "[1, 3]", "[2, 1]", "[-1]", "0", "-2", "7"), ("0", "1", "-1", "4")
    ):
        yield f"np.split(i, {sections}, {axis})"
        yield f"np.array_split(i, {sections}, axis={axis})"


def shapes() -> Iterator[str]:
    for value, shape in itertools.product(
        "xiv", ("-1", "(2, -1)", "(4, 3)", "4", "(2, 2)", "(-1, -1)", "()", "[12]", "(3.0, 4)")
    ):
        yield f"np.reshape({value}, {shape})"
    yield from ("np.reshape(i, (4, 3), 'F')", "np.reshape(i, (4, 3), order='C')", "np.ravel(x)", "np.ravel(x, 'F')")
    for value, shape in itertools.product(
        "vos", ("(3, 4)", "4", "-1", "(2, -1)", "(2, 3, 4)", "(0, 4)", "()", "(1, 3, 7)")
    ):
        yield f"np.broadcast_to({value}, {shape})"
    for value, axis in itertools.product("oxvs", (*AXES, "2", "(0, 2)", "(0, 1, 2)")):
        yield f"np.squeeze({value}, axis={axis})"
        yield f"np.expand_dims({value}, {axis})"
        yield f"np.flip({value}, {axis})"
    for one, other in itertools.product(("0", "-1", "2", "(0, 1)", "[0, 2]", "5"), ("1", "-2", "(2, 0)", "(0,)")):
        yield f"np.moveaxis(x, {one}, {other})"
        yield f"np.swapaxes(x, {one}, {other})"
    for axes in ("None", "(2, 0, 1)", "[0, 1, 2]", "(-1, 0, 1)", "(0, 1)", "(0, 0, 1)", "(0, 1, 5)"):
        yield f"np.transpose(x, {axes})"
        yield f"np.transpose(x, axes={axes})"
    for shift, axis in itertools.product(
        ("1", "-2", "0", "(1, 2)", "[1]", "100", "1.5"), ("None", "0", "-1", "(0, 1)", "(0, 0)", "5")
    ):
        yield f"np.roll(x, {shift}, {axis})"
    for value, times in itertools.product("vxs", ("2", "(2,)", "(2, 3)", "0", "-1", "(2, 1, 1, 3)", "()", "1.5")):
        yield f"np.tile({value}, {times})"
    for counts, axis in itertools.product(
        (
            "2",
            "0",
            "-1",
            "[2]",
            "[1, 0, 2]",
            "[1, 2]",
            "[1, -1, 2]",
            "np.array(3)",
            "1.5",
            "[[1, 2, 3]]",
            "np.array([2])",
        ),
        ("None", "0", "-2", "1", "4"),
    ):
        yield f"np.repeat(i, {counts}, {axis})"
    for counts in ("[1, 2, 0, 3]", "[2]", "[1, 2]", "3"):
        yield f"np.repeat(v, {counts})"
    for widths in (
        "1",
        "(1, 2)",
        "((1, 2), (0, 3))",
        "-1",
        "((0, -1), (0, 0))",
        "0",
        "((1,), (2,))",
        "1.5",
        "(1, 2, 3)",
        "[]",
    ):
        yield from (f"np.pad(i, {widths})", f"np.pad(b, {widths})", f"np.pad(i, {widths}, constant_values=7)")
    yield from ("np.pad(i, 1, 'edge')", "np.pad(i, 1, constant_values=(1, 2))", "np.pad(v, 1, constant_values=0.1)")


def others() -> Iterator[str]:
    for value, places, axis in itertools.product(
        ("i", "x", "v"),
        ("1", "-1", "[0, 2]", "[[0, 1], [1, 0]]", "[]", "50", "[0.5]", "[True, False]", "i[0] % 2"),
        ("None", "0", "-1", "3"),
    ):
        yield f"np.take({value}, {places}, axis={axis})"
    yield from ("np.take(i, [0, 9], mode='clip')", "np.take(i, 1, 0, None, 'wrap')")
    bounds = (
        "0",
        "2.5",
        "None",
        "-1",
        "300",
        "2**40",
        "-2**40",
        "np.float64(0.5)",
        "np.int8(1)",
        "True",
        "v",
        "np.nan",
    )
    for value, low, high in itertools.product("iuxhb", bounds, bounds[:7]):
        yield f"np.clip({value}, {low}, {high})"
    yield from (
        "np.clip(i, min=1)",
        "np.clip(i, max=1)",
        "np.clip(i, 0, 1, min=2)",
        "np.clip(i)",
        "np.clip(i, 0, 2, None)",
        "np.clip(c, 0, 1)",
    )
    items = ("i", "x[0]", "u", "b", "c", "v", "1", "2.5", "True", "1j", "np.float32(2)", "2**40", "[1, 2, 3, 4]")
    for one, other in itertools.product(items, items):
        yield f"np.where(b, {one}, {other})"
    yield from ("np.where(i, 1, 2)", "np.where(x[0], i, v)", "np.where(b)", "np.where(b, 1)", "np.where(c, 1, 0)")
    for one, other in itertools.product(items[:8], items[:8]):
        yield f"np.select([b, i > 0], [{one}, {other}])"
        yield f"np.select([b, i > 0], [{one}, {other}], default=0.5)"
    yield from ("np.select([i], [i])", "np.select([], [])", "np.select([b], [i, i])")
    for one, other in itertools.product(("i", "m", "v", "s", "x", "c", "b", "u", "2", "h"), repeat=2):
        for name in ("dot", "outer", "vdot", "kron"):
            yield f"np.{name}({one}, {other})"
    for one, other, axes in itertools.product(
        "ixmc", "imx", ("0", "1", "2", "([0], [0])", "([1], [0])", "((0, 1), (0, 1))", "9")
    ):
        yield f"np.tensordot({one}, {other}, {axes})"
    for axes in ("([1], [0])", "([0], [1])", "([0, 0], [1, 1])", "(-1, 1)", "(0,)", "((), ())", "([0], [1], [2])"):
        yield f"np.tensordot(o[0], x, {axes})"
    yield from ("np.dot(o[0], x)", "np.dot(x, o)", "np.dot(o.T, o)")
    yield from ("np.einsum('ij,jk->ik', i, m)", "np.einsum('ij,ij->', i, i)", "np.einsum('ij->ji', b)",
                "np.einsum('ij,kj', i, x[0])",
                "np.einsum(i, [0, 1])", "np.einsum('i,i', v, h)")  # fmt: skip
    for name, value in itertools.product(("zeros_like", "ones_like"), "xiubch"):
        yield f"np.{name}({value})"
        for dtype in ("float", "np.int8", "'c8'", "None"):
            yield from (f"np.{name}({value}, {dtype})", f"np.{name}({value}, dtype={dtype})")
        yield from (f"np.{name}({value}, shape=(2,))", f"np.{name}({value}, None, 'C')")
    for value, fill in itertools.product("xiub", ("1", "2.5", "True", "300", "-1", "np.nan", "1j")):
        yield f"np.full_like({value}, {fill})"
        yield f"np.full_like({value}, {fill}, float)"
    for name, value, k in itertools.product(("tril", "triu"), "mixbv", ("0", "1", "-2", "9", "0.5")):
        yield from (f"np.{name}({value}, {k})", f"np.{name}({value}, k={k})")
    for value, decimals in itertools.product("xiubcvh", ("0", "1", "-1", "2")):
        yield f"np.round({value}, {decimals})"
    for name, value in itertools.product(("real", "imag", "copy", "shape", "ndim", "size"), "xiubcs"):
        yield f"np.{name}({value})"
    yield from ("np.size(x, 1)", "np.size(x, -1)", "np.copy(x, 'F')")


def data_sizes() -> Iterator[str]:
    for x in ("i", "b", "x", "n", "e", "s", "c"):
        for name in ("nonzero", "flatnonzero", "argwhere", "where", "extract", "compress"):
            yield f"np.{name}({x})" if name not in ("extract", "compress") else f"np.{name}(b, {x})"
    for x in ("i", "b", "n", "e", "u % 5"):
        yield from (f"np.unique({x})", f"np.unique({x}, True, True, True)", f"np.unique({x}, axis=0)")
        yield from (f"np.unique_counts({x})", f"np.unique_inverse({x})", f"np.unique_all({x})")
        yield f"np.unique_values({x})[:0]"  # in no order
        yield from (f"np.union1d({x}, i)", f"np.intersect1d({x}, i)", f"np.setdiff1d({x}, i)", f"np.setxor1d({x}, i)")
        yield f"np.setdiff1d({x}, i, assume_unique=True)"
    yield from ("np.compress(b[0], i, axis=1)", "np.compress(b[0], i, 1)", "np.compress(b[:, 0], i, axis=0)")
    yield from ("np.bincount(u[0])", "np.bincount(i[0])", "np.bincount(u[0] % 3, minlength=7)", "np.bincount(v)")
    yield from ("np.bincount(i[2], v)", "np.bincount(i[2] * 0, v, 3)", "np.bincount(i)", "np.bincount(i[2], v[:2])")
    yield from ("np.repeat(i, i[2], axis=1)", "np.repeat(v, i[2])", "np.repeat(i, i[2] - 9, axis=1)")


METHODS = [
    f"{value}.{call}"
    for value, call in itertools.product(
        "xiub",
        (
            "sum(axis=())", "sum(axis=0, keepdims=True)", "mean(axis=0)", "mean(axis=(0, 1))",
            "std(axis=0)", "var(ddof=1, axis=-1)",
            "max(axis=0)", "min(axis=(0, 1))", "argmax(axis=1)", "cumsum(axis=0)", "cumsum()",
            "prod(axis=-1)", "any(axis=0)",
            "all(axis=(0, 1))", "squeeze(axis=0)", "take([0, 1], axis=1)",
            "repeat(2, axis=0)", "repeat([1, 2], axis=0)",
            "sum(axis=0, dtype=float)", "clip(0, 2)", "round(1)", "dot(i.T)", "copy()",
        ),
    )
]  # fmt: skip
CALLS = {
    "reductions": [*reductions()],
    "joins": [*joins()],
    "shapes": [*shapes()],
    "others": [*others()],
    "data sizes": [*data_sizes()],
    "methods": METHODS,
    **TEXTS,
}


def in_numpy(code: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return eval(code, {"np": np}, dict(VALUES))


def in_smelt(code: Any) -> Any:
    """The result as the interpreter of graphs has it; leaves that are no tensors stay as they are."""
    kept: dict[str, Any] = {}

    def run(values: dict[str, Any]) -> Any:
        result = eval(code, {"np": np}, dict(values))
        if isinstance(result, tuple) and any(isinstance(item, smelt.ir.graph.Value) for item in result):
            result = list(result)
        kept["is tensor"] = isinstance(result, smelt.ir.graph.Value)
        leaves = result if isinstance(result, (list, tuple)) else [result]
        kept["fixed"] = not any(isinstance(item, smelt.ir.graph.Value) for item in leaves)
        kept["result"] = result
        return result if not kept["fixed"] else values["s"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = smelt.jit(run).trace(VALUES)
        if kept["fixed"]:
            return kept["result"]
        if len(graph.params) > len(VALUES):  # arrays that the call has of its own
            return smelt.jit(run)(VALUES)
        found = interpret(graph, list(VALUES.values()))
    return found[0] if kept["is tensor"] else found


def same(found: Any, expected: Any) -> str:
    """What differs; nothing if it is the same."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{found!r}, in NumPy {expected!r}"
        return next((text for text in map(same, found, expected) if text), "")
    expected, found = np.asarray(expected), np.asarray(found)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype}{list(found.shape)}, in NumPy {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "fc":
        eps = float(np.finfo(expected.dtype).eps)
        with np.errstate(all="ignore"):
            equal = np.allclose(found, expected, rtol=32 * eps, atol=32 * eps, equal_nan=True)
    else:
        equal = np.array_equal(found, expected.astype(found.dtype))
    return "" if equal else f"{found.tolist()}, in NumPy {expected.tolist()}"


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    wrong: list[str] = []
    counts = {"equal": 0, "refused by both": 0, "refused": 0}
    for text in CALLS[name]:
        code = compile(text, __file__, "eval")
        try:
            expected = in_numpy(code)
        except Exception as error:
            expected = error
        try:
            found = in_smelt(code)
        except SmeltError:
            counts["refused by both" if isinstance(expected, Exception) else "refused"] += 1
            continue
        except Exception as error:
            if type(error) is type(expected) and type(error) in (TypeError, ValueError):
                counts["refused by both"] += 1  # by NumPy, before it asks smelt
            else:
                wrong.append(f"{text}: {type(error).__name__}: {error}")
            continue
        if isinstance(expected, Exception) and text in ONLY_SMELTS:
            counts["equal"] += 1
        elif isinstance(expected, Exception):
            wrong.append(f"{text}: {np.asarray(found).tolist()}, NumPy says {expected}")
        elif difference := same(found, expected):
            wrong.append(f"{text}: {difference}")
        else:
            counts["equal"] += 1
    print(f"\n{name}: {counts}")
    assert not wrong, f"{len(wrong)} of {len(CALLS[name])}:\n" + "\n".join(wrong)


def test_every_function_is_called() -> None:
    texts = "\n".join(itertools.chain(*CALLS.values()))
    missing = [
        function.__name__ for function in functions() if not re.search(rf"np\.(linalg\.)?{function.__name__}\(", texts)
    ]
    assert missing in ([], ["empty_like"]), missing


# Arguments of ops that are no tensors are what their annotations say.


@pytest.mark.parametrize(
    "text, message",
    [
        ("x.sum(0, np.float64)", "sum: keepdim is .*float64.*, expected bool"),
        ("ops.sum(x, 0, 1)", "sum: keepdim is 1, expected bool"),
        ("ops.sum(x, 1.0)", "sum: dim is 1.0, expected int"),
        ("ops.softmax(x, True)", "softmax: dim is True, expected int"),
        ("ops.softmax(x, '0')", "softmax: dim is '0', expected int"),
        ("ops.leaky_relu(x, 'a')", "leaky_relu: negative_slope is 'a', expected"),
        ("ops.permute(x, (0, 1.0, 2))", r"permute: dims is \(0, 1.0, 2\), expected"),
        ("ops.reshape(x, 'ab')", "reshape: .* is .*'ab'.*, expected"),
        ("ops.gelu(x, approximate=1)", "gelu: approximate is 1, expected str"),
        ("ops.dropout(x, None)", "dropout: p is None, expected float"),
    ],
)
def test_attributes_are_what_their_annotations_say(text: str, message: str) -> None:
    code = compile(text, __file__, "eval")
    with pytest.raises(ArgumentError, match=message):
        smelt.jit(lambda x: eval(code, {"np": np, "ops": smelt.ops}, {"x": x})).trace(VALUES["x"])


def test_defaults_are_what_their_annotations_say() -> None:
    for op in OWN_OPS.values():
        for item in op.parameters:
            if item.is_tensor or item.is_dtype or item.required or isinstance(item.default, Streams):
                continue
            assert accepted(item.annotation).takes(item.default), f"{op.name}: {item.name}"
