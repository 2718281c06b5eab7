"""What users see when they are wrong: the op, what was got, what was expected, and their own line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.ir.errors import (
    ArgumentError,
    AssertionFailed,
    CompileError,
    DerivativeError,
    DTypeError,
    IndexRangeError,
    ShapeError,
    SmeltError,
    TraceError,
)

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Build = Callable[[Any], Any]


def failure(kind: type[Exception], function: Callable[[], Any]) -> Any:
    with pytest.raises(kind) as caught:
        function()
    return caught.value


def line_of(function: Callable[..., Any]) -> int:
    """The line of a lambda or the first line of a function's body."""
    first = function.__code__.co_firstlineno
    return first if function.__name__ == "<lambda>" else first + 1


def check(error: SmeltError, function: Callable[..., Any], message: str) -> None:
    """`test_errors.py:12: message`, at the line of the function."""
    assert isinstance(error, SmeltError)
    assert error.location is not None and error.location.file == __file__
    text = str(error)
    assert text.startswith(f"test_errors.py:{line_of(function)}: "), text
    assert re.search(message, text), text


# While tracing. Every function fails on its first line.


def branch(x: Any) -> Any:
    return 1 if x.sum() > 0 else 2


def loop(x: Any) -> Any:
    while x.mean() < 1:
        x = x + 1
    return x


TRACE_ERRORS: dict[str, tuple[Build, str]] = {
    "branch": (branch, r"a Python branch on a traced tensor.*where\(.*static argument(.|\n)*<traced bool\[\] from gt>"),
    "loop": (loop, "a Python branch on a traced tensor"),
    "and": (lambda x: x > 0 and x < 3, "a Python branch on a traced tensor"),
    "in": (lambda x: 3 in x, "a Python branch on a traced tensor"),
    "float": (lambda x: float(x.sum()), "cannot become a Python number while tracing"),
    "int": (lambda x: int(x[0, 0]), "cannot become a Python number"),
    "range": (lambda x: range(x[0, 0]), "cannot become a Python number.*a static argument: .*static_argnames"),
    "item": (lambda x: x.sum().item(), "cannot become a Python number"),
    "array": (lambda x: np.array(x), r"cannot become a NumPy array.*\n.*<traced f32\[3, 4\] from parameter x>"),
    "tolist": (lambda x: x.tolist(), "cannot become a NumPy array"),
    "numpy function without an op": (lambda x: np.busday_count(x, x), r"numpy.busday_count on a traced tensor"),
    "numpy ufunc without an op": (lambda x: np.gcd(x, x), r"numpy.gcd on a traced tensor"),
    "numpy function of other arguments": (
        lambda x: np.mean(x, where=x > 0),
        r"numpy.mean on a traced tensor: got .*'where'; use smelt.ops.mean, whose arguments are mean\(self: Tensor",
    ),
    "numpy function that is another op": (lambda x: np.logspace(x, 2), r"numpy.logspace .*: use smelt.ops.logspace"),
    "numpy std of other arguments": (lambda x: np.std(x, out=X), r"numpy.std on .* takes no out="),
    "numpy function like no op": (lambda x: np.packbits(x), r"numpy.packbits on .*smelt.ops has no op of that name$"),
    "numpy ufunc's other method": (lambda x: np.subtract.reduce(x), r"numpy.subtract.reduce on .* there is no op"),
    "numpy out": (lambda x: np.exp(x, out=x), "numpy.exp with out=.*smelt.ops.exp"),
    "numpy dtype": (lambda x: np.add(x, 1, dtype=np.float64), r"numpy.add on a traced tensor takes no dtype=.*x.to\("),
    "array in place": (lambda x: np.ones((3, 4)).__iadd__(x), r"`array \+= tensor`.*array = array \+ tensor"),
    "random numbers": (lambda x: np.asarray(ops.rand((3,))), r"random numbers are only drawn when compiled code runs"),
    "assignment": (lambda x: x.__setitem__(0, 1), "never changed in place.*index_put"),
    "len of a scalar": (lambda x: len(x.sum()), r"len\(\) of a 0-dim tensor"),
}


@pytest.mark.parametrize("name", TRACE_ERRORS)
def test_python_asks_a_traced_tensor(name: str) -> None:
    function, message = TRACE_ERRORS[name]
    check(failure(TraceError, lambda: smelt.jit(function)(X)), function, message)


def test_item_assignment_is_an_error() -> None:
    def function(x: Any) -> Any:
        x[0] = 1
        return x

    check(failure(TraceError, lambda: smelt.jit(function)(X)), function, "slice_scatter")


SHAPE_ERRORS: dict[str, tuple[Build, str]] = {
    "matmul": (
        lambda x: x @ x,
        r": matmul: operand 1 has 3 rows, expected 4 \(the columns of operand 0\)\n"
        r"    matmul\(%x, %x\) +%x: f32\[3, 4\]",
    ),
    "add": (lambda x: x + x.T, r": add: shapes \[3, 4\], \[4, 3\] do not broadcast: .*\n    add\(%x, %1\)"),
    "add of an array": (lambda x: x + np.ones((2, 4)), r": add: shapes \[3, 4\], \[2, 4\] do not broadcast"),
    "where": (lambda x: ops.where(x > 0, x, x.T), r": where: .*do not broadcast"),
    "reshape": (lambda x: x.reshape(5, -1), r": reshape: cannot reshape \[3, 4\] to \[5, -1\]: 12 elements"),
    "reshape to another count": (lambda x: x.reshape(5, 2), r": reshape: .*12 elements into 10"),
    "cat": (lambda x: ops.cat([x, x.T]), r": cat: tensor 1 has size 3 in dimension 1, expected 4"),
    "expand": (lambda x: x.expand(5, 4), r": expand: .*5"),
    "a part for another slice": (
        lambda x: ops.slice_scatter(x, x, 0, 1, 3),
        r": slice_scatter: src has shape \[3, 4\], expected \[2, 4\]",
    ),
    "a part for another diagonal": (
        lambda x: ops.diagonal_scatter(x, x[0]),
        r": diagonal_scatter: src has shape \[4\], expected",
    ),
    "a part for another column": (lambda x: ops.select_scatter(x, x[0], 1, 0), r": src has shape \[4, 1\], expected"),
}


@pytest.mark.parametrize("name", SHAPE_ERRORS)
def test_shapes_that_do_not_fit(name: str) -> None:
    function, message = SHAPE_ERRORS[name]
    error = failure(ShapeError, lambda: smelt.jit(function)(X))
    check(error, function, message)
    assert isinstance(error, ValueError)


def test_shapes_are_checked_outside_of_jit_too() -> None:
    error = failure(ShapeError, lambda: ops.matmul(X, X))
    assert re.match(r"test_errors.py:\d+: matmul: operand 1 has 3 rows, expected 4", str(error))


def test_an_error_of_a_later_size_names_it() -> None:
    add = smelt.jit(lambda x, y: x + y)
    for rows in (3, 4, 5):
        add(np.ones(rows), np.ones(rows))
    error = failure(ShapeError, lambda: add(np.ones(6), np.ones(7)))
    assert "add: shapes [6], [7] do not broadcast" in str(error)
    np.testing.assert_array_equal(add(np.ones(8), np.ones(8)), 2 * np.ones(8))


DTYPE_ERRORS: dict[str, tuple[Build, str]] = {
    "softmax": (lambda x: ops.softmax(x, 1, dtype="i32"), r": softmax: dtype is i32, accepted are floats"),
    "log_softmax": (
        lambda x: ops.log_softmax(x, 1, dtype="bool"),
        r": log_softmax: dtype is bool, accepted are floats",
    ),
    "unknown": (lambda x: x.to("float31"), r": cast: unknown dtype 'float31' \(did you mean 'float32'\?\).*bf16"),
    "unknown in a creation": (lambda x: ops.zeros((2,), dtype="f33"), r": zeros: unknown dtype 'f33'"),
    "not accepted": (lambda x: x & 1, r": bitwise_and: .*f32.*accepted are bool, "),
    "float index": (lambda x: x[x[0]], r": index: index 0 is f32, expected an integer type"),
    "a single bool": (lambda x: x[x.sum() > 0], r": index: index 0 is a bool of no dims"),
    "array of objects": (lambda x: x + np.array([None] * 4), r": add: unknown dtype object"),
}


@pytest.mark.parametrize("name", DTYPE_ERRORS)
def test_element_types_that_do_not_fit(name: str) -> None:
    function, message = DTYPE_ERRORS[name]
    error = failure(DTypeError, lambda: smelt.jit(function)(X))
    check(error, function, message)
    assert isinstance(error, TypeError)


@pytest.mark.parametrize("given", [np.array([None]), np.ones(3, np.longdouble), np.array(["a"]), np.ones(2, "M8[s]")])
def test_arguments_of_unknown_element_types(given: np.ndarray) -> None:
    def double(x: Any) -> Any:
        return x * 2

    error = failure(DTypeError, lambda: smelt.jit(double)(given))
    assert re.match(r"test_errors.py:\d+: double: unknown dtype .*; smelt has bool, .*c128", str(error))


ARGUMENT_ERRORS: dict[str, tuple[Build, str]] = {
    "unexpected": (
        lambda x: ops.softmax(x, dimm=1),
        r": softmax: unexpected argument 'dimm' \(did you mean 'dim'\?\); "
        r"the signature is softmax\(self: Tensor, dim: int",
    ),
    "missing": (lambda x: ops.softmax(x), r": softmax: dim is missing; the signature is softmax\("),
    "twice": (lambda x: ops.softmax(x, 1, dim=1), r": softmax: dim is given twice"),
    "too many": (lambda x: ops.relu(x, 1, 2), r": relu: 3 arguments given; the signature is relu\(self: Tensor\)"),
    "dim": (lambda x: x.sum(2), r": sum: dim 2 is out of range for a tensor of 2 dimensions: expected -2 to 1"),
    "dim twice": (lambda x: x.sum((0, -2)), r": sum: dim \(0, -2\) names a dimension twice"),
    "dim of another type": (lambda x: x.sum("rows"), r": sum: "),
    "no tensor": (lambda x: ops.add(x, object()), r": add: other must be a tensor, got object"),
    "text": (lambda x: ops.add(x, "1"), r": add: other must be a tensor, got str"),
    "traced attribute": (lambda x: x.sum(x[0, 0]), r": sum: dim must be known while tracing, got the traced tensor"),
    "index": (lambda x: x[7], r": select: index 7 is out of range for a dimension of size 3"),
    "negative index": (lambda x: x[-4], r": select: index -4 is out of range for a dimension of size 3"),
    "too many indices": (lambda x: x[0, 0, 0], "3 indices for a tensor of 2 dimensions"),
    "bool index": (lambda x: x[True], "indexing with a bool is not supported"),
    "no step": (lambda x: x[::0], r": slice: step is 0"),
    "two ellipses": (lambda x: x[..., 0, ...], "a single ellipsis"),
    "text index": (lambda x: x["a"], r": index: indices must be a tensor, got str"),
}


@pytest.mark.parametrize("name", ARGUMENT_ERRORS)
def test_wrong_arguments(name: str) -> None:
    function, message = ARGUMENT_ERRORS[name]
    check(failure(ArgumentError, lambda: smelt.jit(function)(X)), function, message)


def test_an_error_inside_of_a_composite_points_at_the_users_line() -> None:
    def function(x: Any) -> Any:
        return ops.layer_norm(x, (5,))

    check(failure(SmeltError, lambda: smelt.jit(function)(X)), function, "layer_norm")


def test_unknown_op() -> None:
    with pytest.raises(AttributeError, match=r"smelt has no op 'sofmax' \(did you mean 'softmax'\?\)"):
        ops.sofmax  # noqa: B018
    with pytest.raises(AttributeError, match=r"a traced tensor has no 'sofmax' \(did you mean 'softmax'\?\)"):
        smelt.jit(lambda x: x.sofmax(1))(X)
    with pytest.raises(AttributeError, match="module 'smelt' has no attribute 'git'"):
        smelt.git  # noqa: B018


@pytest.mark.parametrize("name", ["nosuch", "svd", "cond", "fft", "inv", "cross"])
def test_ops_that_are_missing_are_not_taken_for_others(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ops, name)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("epx", "exp"),
        ("Relu", "relu"),
        ("logsoftmax", "log_softmax"),
        ("cross_entorpy", "cross_entropy"),
        ("men", "mean"),
    ],
)
def test_misspelt_ops_are_recognised(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(ops, name)


def test_random_numbers_outside_of_jit_are_no_array() -> None:
    message = r"random numbers are only drawn when compiled code runs.*smelt.jit\(lambda: smelt.ops.rand"
    with pytest.raises(TraceError, match=message):
        np.asarray(ops.rand((3,)))
    assert smelt.jit(lambda: ops.rand((3,)))().shape == (3,)


def test_leaked_tensor() -> None:
    leaked: list[Any] = []

    @smelt.jit
    def leak(x: Any) -> Any:
        leaked.append(x * 2)
        return x

    leak(X)

    def use(x: Any) -> Any:
        return x + leaked[0]

    message = r"mul uses the traced tensor 'x' of another call: it leaked out of the function.*Return it"
    error = failure(TraceError, lambda: smelt.jit(use)(X))
    assert re.search(message, str(error))
    failure(TraceError, lambda: np.asarray(leaked[0]))
    failure(TraceError, lambda: bool(leaked[0].sum() > 0))


def test_options() -> None:
    """What LLVM would end the process for, among others."""
    for options, message in (
        ({"vector_bits": 100}, "vector_bits must be 128, 256, 512 or None, got 100"),
        ({"vector_bits": "512"}, "vector_bits must be 128, 256, 512 or None, got '512'"),
        ({"max_cost": 0}, "max_cost must be a positive int, got 0"),
        ({"max_cost": 1.5}, "max_cost must be a positive int, got 1.5"),
    ):
        wrong = lambda options=options: smelt.CompileOptions(**options)  # noqa: E731
        check(failure(ArgumentError, wrong), wrong, message)
    wrong = lambda: smelt.jit(lambda x: x, options={"max_cost": 9})  # noqa: E731
    check(failure(ArgumentError, wrong), wrong, r"options must be smelt.CompileOptions\(...\), got dict")
    both = smelt.jit(lambda x: x, options=smelt.CompileOptions(max_cost=9), target="cuda")
    assert (both.options.max_cost, both.options.target) == (9, "cuda")


def test_seeds() -> None:
    wrong = lambda: smelt.manual_seed("a")  # noqa: E731
    check(failure(ArgumentError, wrong), wrong, "the seed must be an int, got 'a'")


def test_arguments_of_jit() -> None:
    assert "jit takes a function, got int" in str(failure(ArgumentError, lambda: smelt.jit(3)))
    error = failure(ArgumentError, lambda: smelt.jit(lambda x: x, static_argnums=3))
    assert re.match(r"test_errors.py:\d+: static_argnums has 3, but lambda takes 1 arguments", str(error))
    error = failure(ArgumentError, lambda: smelt.jit(lambda x, mode: x, static_argnames="mod"))
    message = r"test_errors.py:\d+: static_argnames has 'mod', but the parameters of lambda are x, mode"
    assert re.match(message, str(error))
    error = failure(ArgumentError, lambda: smelt.jit(lambda x, k: x, static_argnums=1)(X, [1]))
    assert "the static argument k must be hashable" in str(error)
    assert "unknown target 'gpu'" in str(failure(CompileError, lambda: smelt.jit(lambda x: x, target="gpu")(X)))
    error = failure(ArgumentError, lambda: smelt.jit(lambda x: x).report())
    assert "has not been called yet" in str(error)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", "got the string 'abc': pass it as a static argument"),
        ({1, 2}, "must be a tensor, got set"),
        (object(), "must be a tensor, got object"),
        (2**70, "1180591620717411303424 does not fit into an i64"),
    ],
)
def test_arguments_of_a_compiled_function(given: Any, message: str) -> None:
    error = failure(ArgumentError, lambda: smelt.jit(lambda x: x)(given))
    assert re.match(rf"test_errors.py:\d+: lambda:? .*{re.escape(message)}", str(error)), str(error)


def test_a_call_that_python_itself_would_refuse() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        smelt.jit(lambda x, y: x)(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        smelt.jit(lambda x: x)(X, z=X)


def test_results_that_are_no_tensors() -> None:
    error = failure(TraceError, lambda: smelt.jit(lambda x: object())(X))
    message = (
        r"test_errors.py:\d+: a traced function returned a value of type object: expected tensors, numbers or None"
    )
    assert re.match(message, str(error))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[2", "expected a type such as 'f32"),
        (3, "expected a type such as 'f32.*got 3"),
        ("f32[2*N]", "'2\\*N' is no size"),
        ("f33[2]", "unknown dtype 'f33'"),
        ("f32[-1]", "'-1' is no size"),
        ("f32[\u00b2]", "is no size"),
        ("f32[1000000000000000000, 1000]", "too large"),
    ],
)
def test_specs(text: str, message: str) -> None:
    with pytest.raises(SmeltError, match=message):
        smelt.spec(text)


# Derivatives.

DERIVATIVE_ERRORS: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "no scalar": (
        DerivativeError, lambda: smelt.grad(lambda x: x * 2)(X),
        r"grad of .*the result is f32\[3, 4\], expected a scalar. Sum or average it first, or use smelt.vjp",
    ),
    "several results": (
        DerivativeError, lambda: smelt.grad(lambda x: (x.sum(), x))(X), "must return one scalar, got tuple.*has_aux",
    ),
    "nothing": (DerivativeError, lambda: smelt.grad(lambda x: None)(X), "must return one scalar, got NoneType"),
    "an integer argument": (
        DerivativeError, lambda: smelt.grad(lambda x: x.sum())(np.arange(3)),
        r"argument 0 is i64\[3\]: only floats and complex numbers have derivatives",
    ),
    "an integer result": (
        DerivativeError, lambda: smelt.grad(lambda x: (x > 0).sum())(X), r"the result is i64\[\], expected a float",
    ),
    "argnums": (
        ArgumentError, lambda: smelt.grad(lambda x: x.sum(), argnums=3)(X),
        "argnums has 3, the call has 1 positional arguments",
    ),
    "has_aux": (
        ArgumentError, lambda: smelt.grad(lambda x: x.sum(), has_aux=True)(X), r"must return \(scalar, anything\)",
    ),
    "cotangent of another shape": (
        ShapeError, lambda: smelt.vjp(lambda x: x.sum(0), X)[1](np.ones(3, np.float32)),
        r"cotangent 0 has shape \[3\], expected \[4\]",
    ),
    "cotangent of another structure": (
        ArgumentError, lambda: smelt.vjp(lambda x: x.sum(0), X)[1]((X, X)), "the cotangent is nested as",
    ),
    "tangent of another shape": (
        ShapeError, lambda: smelt.jvp(lambda x: x * 2, (X,), (X[0],)), r"tangent 0 has shape \[4\], expected \[3, 4\]",
    ),
    "an integer in a dict": (
        DerivativeError, lambda: smelt.grad(lambda x, d: (d["a"] * x).sum(), argnums=1)(X, {"a": X, "n": [3]}),
        r'grad of .*: argument 1\["n"\]\[0\] is i64\[\]: only floats',
    ),
    "an integer in a primal": (
        DerivativeError, lambda: smelt.jvp(lambda d: d["a"], ({"a": np.arange(3)},), ({"a": np.arange(3)},)),
        r'argument 0\["a"\] is i64\[3\]: only floats',
    ),
    "an integer in a list": (
        DerivativeError, lambda: smelt.vjp(lambda items: items[0] * 2, [X, 3])[1](X), r"argument 0\[1\] is i64\[\]",
    ),
    "primals in no tuple": (
        ArgumentError, lambda: smelt.jvp(lambda x: x * 2, X, X),
        r"the primals are ndarray, expected a tuple .*smelt.jvp\(function, \(x,\), \(direction,\)\)",
    ),
    "tangents in no tuple": (
        ArgumentError, lambda: smelt.jvp(lambda x: x * 2, (X,), X), "the tangents are ndarray, expected a tuple",
    ),
    "tangents missing": (
        ArgumentError, lambda: smelt.jvp(lambda x, y: x * y, (X, X), (X,)), "the tangents are nested as",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVE_ERRORS)
def test_derivatives(name: str) -> None:
    kind, function, message = DERIVATIVE_ERRORS[name]
    error = failure(kind, function)
    assert re.match(r"test_errors.py:\d+: (grad|vjp|jvp) of ", str(error)), str(error)
    assert re.search(message, str(error)), str(error)


# Indices that come from data.


def embed(table: Any, index: Any) -> Any:
    return ops.embedding(table, index)


def pick(table: Any, index: Any) -> Any:
    return table[index]


def pick_columns(table: Any, index: Any) -> Any:
    return table[:, index]


def gather(table: Any, index: Any) -> Any:
    return ops.gather(table, 1, index.reshape(1, -1))


def select(table: Any, index: Any) -> Any:
    return ops.index_select(table, 0, index)


def scatter(table: Any, index: Any) -> Any:
    return ops.scatter_add(table, 0, index.reshape(1, -1), ops.ones((1, 2)))


def put(table: Any, index: Any) -> Any:
    return ops.index_put(table, [index], table[0])


def one_hot(table: Any, index: Any) -> Any:
    return ops.one_hot(index, 3)


def fused(table: Any, index: Any) -> Any:
    return (ops.embedding(table * 2, index).exp() + 1).sum(0)


def backwards(table: Any, index: Any) -> Any:
    return smelt.grad(lambda weight: (ops.embedding(weight, index) ** 2).sum())(table)


INDEX_ERRORS: dict[str, tuple[Callable[..., Any], list[int], str, int, int]] = {
    "embedding": (embed, [1, 7], "embedding", 7, 3),
    "embedding of a negative": (embed, [1, -1], "embedding", -1, 3),
    "index": (pick, [0, 3], "index", 3, 3),
    "index below": (pick, [-4, 0], "index", -4, 3),
    "index of columns": (pick_columns, [0, 4], "index", 4, 4),
    "gather": (gather, [0, 9], "gather", 9, 4),
    "gather of a negative": (gather, [-1, 0], "gather", -1, 4),
    "index_select": (select, [3, 0], "index_select", 3, 3),
    "scatter_add": (scatter, [5, 0], "scatter_add", 5, 3),
    "scatter_add of a negative": (scatter, [0, -1], "scatter_add", -1, 3),
    "index_put": (put, [0, 8], "index_put", 8, 3),
    "one_hot": (one_hot, [1, 3], "one_hot", 3, 3),
    "one_hot of a negative": (one_hot, [-1, 2], "one_hot", -1, 3),
    "a huge index": (pick, [0, 2**62], "index", 2**62, 3),
    "inside of a fused kernel": (fused, [2, 100], "embedding", 100, 3),
    "in a derivative": (backwards, [2, 100], "embedding", 100, 3),
}


@pytest.mark.parametrize("name", INDEX_ERRORS)
def test_index_out_of_range(name: str) -> None:
    function, numbers, op, index, bound = INDEX_ERRORS[name]
    compiled = smelt.jit(function)
    table, good, bad = X.copy(), np.array([0, 1]), np.array(numbers)
    before = compiled(table, good)
    for _ in range(3):
        error = failure(IndexRangeError, lambda: compiled(table, bad))
        assert isinstance(error, IndexError)
        assert str(error) == (
            f"test_errors.py:{line_of(function)}: {op}: index {index} is out of range for a dimension of size {bound}"
        )
    # Nothing was read or written beyond the tensors, and the next call is not impressed.
    np.testing.assert_array_equal(table, X)
    np.testing.assert_array_equal(compiled(table, good), before)
    assert compiled.compiles == 1


def test_memory_beside_a_tensor_is_intact_after_a_bad_index() -> None:
    memory = np.zeros((64, 4), np.float32)
    table = memory[30:33]
    write = smelt.jit(lambda x, index, rows: ops.index_put(x, [index], rows))
    rows = np.full((2, 4), 9, np.float32)
    for bad in (-5, 3, 10, 1000, -1000):
        failure(IndexRangeError, lambda bad=bad: write(table, np.array([0, bad]), rows))
    assert not memory.any()


def test_a_bad_index_among_many_threads() -> None:
    table, index = np.ones((1000, 64), np.float32), np.random.default_rng(0).integers(0, 1000, 200_000)
    index[123_456] = 1000
    look_up = smelt.jit(lambda x, i: ops.embedding(x, i).sum(1))
    error = failure(IndexRangeError, lambda: look_up(table, index))
    assert "embedding: index 1000 is out of range for a dimension of size 1000" in str(error)
    index[123_456] = 999
    np.testing.assert_array_equal(look_up(table, index), np.full(200_000, 64, np.float32))


def test_a_bad_index_with_symbolic_sizes() -> None:
    compiled = smelt.jit(pick)
    for rows in (3, 5, 8):
        compiled(np.ones((rows, 4), np.float32), np.array([0, rows - 1, -rows]))
        error = failure(
            IndexRangeError, lambda rows=rows: compiled(np.ones((rows, 4), np.float32), np.array([0, rows, 0]))
        )
        assert f"index {rows} is out of range for a dimension of size {rows}" in str(error)


def test_a_class_out_of_range() -> None:
    scores, classes = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 3])

    def loss(x: Any, y: Any) -> Any:
        return ops.cross_entropy(x, y)

    error = failure(IndexRangeError, lambda: smelt.jit(loss)(scores, classes))
    check(error, loss, "cross_entropy: index 3 is out of range for a dimension of size 3")


def test_every_error_is_a_smelt_error() -> None:
    from smelt.ir import errors

    kinds = [item for _, item in inspect.getmembers(errors, inspect.isclass) if item.__module__ == errors.__name__]
    assert all(issubclass(kind, SmeltError) for kind in kinds)
    assert issubclass(IndexRangeError, IndexError) and issubclass(ShapeError, ValueError)
    assert all(issubclass(kind, TypeError) for kind in (ArgumentError, DTypeError, TraceError, DerivativeError))


# Assertions


def asserted(x: Any) -> Any:
    return ops._functional_assert_async((x >= 0).all(), "x must not be negative", x) * 2


def asserted_scalar(x: Any) -> Any:
    return ops._assert_scalar(0, "zero is not enough")


def test_an_assertion_raises_from_compiled_code() -> None:
    jitted = smelt.jit(asserted)
    np.testing.assert_array_equal(jitted(X), X * 2)
    error = failure(AssertionFailed, lambda: jitted(X - 5))
    check(error, asserted, "x must not be negative")
    np.testing.assert_array_equal(jitted(X), X * 2)


def test_an_assertion_of_a_tensor_is_the_tensor() -> None:
    jitted = smelt.jit(lambda x: ops._assert_async(x.sum() > 0, "no sum"))
    assert jitted(X) == np.True_
    with pytest.raises(AssertionFailed, match="no sum"):
        jitted(-X)


def test_an_assertion_of_a_known_number_raises_while_tracing() -> None:
    check(failure(AssertionFailed, lambda: smelt.jit(asserted_scalar)(X)), asserted_scalar, "zero is not enough")
