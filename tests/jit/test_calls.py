"""Calls of compiled functions: those that native code recognises and makes, and all others."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from support import run

X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
Pair = namedtuple("Pair", "left right")


def entries(function: Any) -> int:
    return len(function.recent)


def turns(function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Several calls: compiled, made by Python, made by native code."""
    return [function(*args, **kwargs) for _ in range(4)]


class Watched:
    """A function that counts the calls that Python had to make."""

    def __init__(self, function: Callable[..., Any], **options: Any):
        self.jitted = smelt.jit(function, **options)
        self.by_python = 0
        flatten = self.jitted._flatten

        def counting(*args: Any) -> Any:
            self.by_python += 1
            return flatten(*args)

        self.jitted._flatten = counting

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        """The result, and whether native code made the call."""
        before = self.by_python
        result = self.jitted(*args, **kwargs)
        return result, self.by_python == before

    def ready(self, *args: Any, **kwargs: Any) -> None:
        for _ in range(3):
            self(*args, **kwargs)
        assert self(*args, **kwargs)[1], "native code does not make this call"


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "arrays": (lambda x, y: x * 2 + y, (X, Y), {}),
    "names": (lambda x, y: x * 2 + y, (X,), {"y": Y}),
    "only names": (lambda x, y: x * 2 + y, (), {"y": Y, "x": X}),
    "dicts and lists": (lambda p: p["a"] * p["b"][0] + p["b"][1][0], ({"b": [X, (Y,)], "a": Y},), {}),
    "None": (lambda x, y: x * 2 if y is None else x + y, (X, None), {}),
    "numbers": (lambda x, i, f, b: ops.where(b, x * i, x * f), (X, 3, 2.5, True), {}),
    "arrays without axes": (lambda x, k: x * k, (X, np.array(2.5, np.float32)), {}),
    "nothing": (lambda: ops.arange(5), (), {}),
    "empty arrays": (lambda x: x + 1, (X[:0],), {}),
    "all types": (
        lambda *items: [item + item for item in items],
        tuple(np.ones(3, kind) for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "c8", "c16")),
        {},
    ),
    "a captured array": (lambda x: x + Y, (X,), {}),
    "a tuple of results": (lambda x: (x + 1, (x * 2, [x.sum()])), (X,), {}),
    "a dict of results": (lambda x: {"z": x + 1, "a": {"n": x * 2}}, (X,), {}),
    "results that are no arrays": (lambda x: {"n": 3, "x": x + 1, "no": None, "name": "a", "f": 2.5}, (X,), {}),
    "a result in another shape": (lambda x: (x + 1).reshape(-1), (X,), {}),
    "a parameter as it is": (lambda x, y: (x, x + y), (X, Y), {}),
    "a result twice": (lambda x: (lambda z: (z, z))(x + 1), (X,), {}),
    "results of another type": (lambda x: Pair(x + 1, x * 2), (X,), {}),
    "large temporaries and results": (
        lambda x: ops.softmax(ops.softmax(x, 1).T.contiguous() if hasattr(x, "contiguous") else ops.softmax(x, 0), 1),
        (np.random.default_rng(2).standard_normal((400, 300)).astype(np.float32),),
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_gives_the_same(name: str) -> None:
    function, args, kwargs = CALLS[name]
    compiled = smelt.jit(function)
    results = turns(compiled, *args, **kwargs)
    assert len({repr(type(result)) for result in results}) == 1
    first = smelt.jit(function)(*args, **kwargs)
    for result in results:
        same(result, first)


def same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            same(left[key], right[key])
    elif isinstance(left, (tuple, list)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    else:
        assert left == right


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("a parameter as it is", "a result twice")])
def test_native_code_makes_the_call(name: str) -> None:
    function, args, kwargs = CALLS[name]
    Watched(function).ready(*args, **kwargs)


def test_other_types_and_shapes_are_told_apart() -> None:
    watched = Watched(lambda x, y: x + y, dynamic=False)
    watched.ready(X, Y)
    for left, right in (
        (X[:3].copy(), Y[:3].copy()),
        (X.astype(np.float64), Y),
        (X.T, Y.T),
        (X[:, ::2], Y[:, ::2]),
        (X.reshape(-1), Y.reshape(-1)),
        (X, 2.0),
        (X, np.float32(2)),
        (X.astype(">f4"), Y),
        (X.view(type("Own", (np.ndarray,), {})), Y),
        (np.frombuffer(b"\0" + X.tobytes(), np.float32, offset=1).reshape(6, 5), Y),
    ):
        result, native = watched(left, right)
        assert not native
        np.testing.assert_array_equal(result, left + right)
    assert watched(X, Y)[1]


def test_arrays_with_a_dtype_object_of_their_own() -> None:
    import pickle

    watched = Watched(lambda x: x + 1)
    watched.ready(X)
    assert watched(pickle.loads(pickle.dumps(X)))[1]


def test_other_nesting_is_told_apart() -> None:
    watched = Watched(lambda p: ops.cat([item.reshape(-1) for item in tree(p)], 0))
    watched.ready([X, Y])
    for other in ((X, Y), [X], [X, Y, X], {"a": X, "b": Y}, [[X], Y], [X, None], OrderedDict(a=X, b=Y)):
        result, native = watched(other)
        assert not native
        np.testing.assert_array_equal(result, np.concatenate([item.reshape(-1) for item in tree(other)]))
    watched.ready({"a": X, "b": Y})
    assert watched({"a": X, "b": Y})[1]
    assert not watched({"b": Y, "a": X})[1]  # the function may look at the order
    assert not watched({"a": X, "c": Y})[1]
    assert not watched({"a": X})[1]


def tree(item: Any) -> list[Any]:
    import optree

    return [leaf for leaf in optree.tree_leaves(item) if leaf is not None]


def test_static_arguments_are_told_apart() -> None:
    watched = Watched(lambda x, k: x * 2 if k in (0, "a", (1, 2)) else x * 3, static_argnames="k")
    long = "".join(["a", ""])
    for value, other in ((0, 1), (long, "b"), (1000, 1001), (2.5, 2.75), (None, 4), ((1, 2), (1, 3)), (True, 1)):
        watched.ready(X, value)
        watched.ready(X, k=value)
        result, native = watched(X, other)
        assert not native
        np.testing.assert_array_equal(result, X * (2 if other in (0, "a", (1, 2)) else 3))
    watched.ready(X, 123456)
    assert watched(X, int("123456"))[1], "another object of the same value"
    sign = Watched(lambda x, k: x * (-2.0 if str(k) == "-0.0" else 2.0), static_argnums=1)
    sign.ready(X, 0.0)
    np.testing.assert_array_equal(sign(X, -0.0)[0], X * -2)


@dataclass(unsafe_hash=True)
class Hashed:
    scale: int


@dataclass(eq=False)
class ByIdentity:
    scale: int


class Asked:
    def __init__(self, scale: int):
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and other.scale == self.scale

    def __hash__(self) -> int:
        return hash(self.scale)


class OneHash(Asked):
    """Of which a dict can find one that has changed since."""

    def __hash__(self) -> int:
        return 1


@dataclass
class Holder:
    parts: list[int]
    scale = property(lambda self: self.parts[0], lambda self, value: self.parts.__setitem__(0, value))

    def __init__(self, scale: int):
        self.parts = [scale]

    def __hash__(self) -> int:
        return 1


class Known:
    """Equal to itself alone."""

    scale = 2


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", [Hashed, ByIdentity, Asked, OneHash, Holder])
def test_static_arguments_that_change_in_place_are_compared_by_value(kind: Any, nested: bool) -> None:
    watched = Watched(lambda x, k: x * (k[0] if nested else k).scale, static_argnames="k")
    static = kind(2)
    given = (static,) if nested else static
    for args, kwargs in (((given,), {}), ((), {"k": given})):
        for scale in (2, 3, 5, 2):
            static.scale = scale
            for _ in range(4):
                result, native = watched(X, *args, **kwargs)
                np.testing.assert_array_equal(result, X * scale)
            assert native, "the fourth call of a value is native again"
    if kind is not ByIdentity:
        assert watched(X, (kind(2),) if nested else kind(2))[1], "another object of the same value"


def test_what_is_equal_to_itself_alone_is_known_by_its_address() -> None:
    watched = Watched(lambda x, k, f: f(x) * k.scale, static_argnames=("k", "f"))
    static = Known()
    watched.ready(X, static, np.exp)
    assert not watched(X, Known(), np.exp)[1]
    assert not watched(X, static, np.sin)[1]


WILD = """
import numpy as np
import smelt

x = np.ones(4)

class Name(str):
    def __hash__(self):
        return hash(str(self))

    def __eq__(self, other):
        items.clear()
        del arrays["b"]
        return str(self) == other

function = smelt.jit(lambda d, l: d["a"] + d["b"] + l[0] + l[1])
for _ in range(4):
    function({"a": x, "b": x * 2}, [x * 3, x * 4])
items, arrays = [x * 3, x * 4], {Name("a"): x, "b": x * 2}
for given in ((arrays, items), ({"a": x, "b": x * 2}, items)):
    try:
        function(*given)
    except (IndexError, KeyError, RuntimeError, TypeError, smelt.SmeltError):
        pass
try:
    function(**{Name("d"): {"a": x, "b": x}, "l": [x, x]})
except (TypeError, KeyError):
    pass
print(function({"a": x, "b": x * 2}, [x * 3, x * 4]).sum())
"""


def test_keys_that_change_the_arguments_when_they_are_compared_do_no_harm() -> None:
    assert run(WILD) == "40.0"


def test_numbers() -> None:
    watched = Watched(lambda x, k: x * k)
    watched.ready(X, 2.5)
    for value in (3.5, -0.0, float("inf"), 1e300):
        with np.errstate(all="ignore"):
            result, native = watched(X, value)
            assert native
            np.testing.assert_array_equal(result, X * np.float32(value))
    whole = Watched(lambda x, k: x + k)
    data = np.arange(4)
    whole.ready(data, 2)
    assert not whole(data, True)[1] and not whole(data, 2.5)[1]
    for value in (2**63 - 1, -(2**63), 0):
        result, native = whole(data, value)
        assert native
        np.testing.assert_array_equal(result, data + np.int64(value))
    with pytest.raises(smelt.SmeltError, match="does not fit into an i64"):
        whole(data, 2**63)


def test_random_numbers_differ_from_call_to_call() -> None:
    watched = Watched(lambda x: ops.dropout(x, 0.5))
    ones = np.ones(200, np.float32)
    watched.ready(ones)
    smelt.manual_seed(3)
    draws = [watched(ones)[0] for _ in range(3)]
    assert (draws[0] != draws[1]).any() and (draws[1] != draws[2]).any()
    smelt.manual_seed(3)
    np.testing.assert_array_equal(smelt.jit(lambda x: ops.dropout(x, 0.5))(ones), draws[0])


def test_errors_of_native_code() -> None:
    watched = Watched(lambda x, i: (x[i], x + 1))
    watched.ready(X, np.array([1, 2]))
    for _ in range(3):
        with pytest.raises(IndexError, match="index 77 is out of range for a dimension of size 6"):
            watched(X, np.array([1, 77]))
    result, native = watched(X, np.array([5, 0]))
    assert native
    np.testing.assert_array_equal(result[0], X[[5, 0]])


def test_references_are_balanced() -> None:
    params = {"w": [X.copy(), Y.copy()]}
    key, number = "w", 2.5
    function = smelt.jit(lambda p, k: ({"out": p["w"][0] + p["w"][1] * k, "n": 12345.5}, p["w"][0].sum()))
    function(params, number)
    for _ in range(5):
        function(params, number)
    wrong = smelt.jit(lambda x, i: x[i])
    index, bad = np.array([0]), np.array([99])
    turns(wrong, X, index)
    fixed = function(params, number)[0]["n"]
    watched = [params["w"][0], params["w"][1], params, params["w"], key, number, X, index, bad, X.dtype, fixed]
    watched += [None, np.ndarray, NotImplemented, "out"]
    gc.collect()
    before = [sys.getrefcount(item) for item in watched]
    counts = set()
    for _ in range(200):
        result = function(params, number)
        counts.add((sys.getrefcount(result), sys.getrefcount(result[0]["out"])))
        function({"w": [X, X]}, number)
        wrong(X, index)
        with contextlib.suppress(IndexError):
            wrong(X, bad)
    del result
    gc.collect()
    assert counts == {(2, 2)}
    after = [sys.getrefcount(item) for item in watched]
    assert [abs(new - old) < 20 for old, new in zip(before, after, strict=True)] == [True] * len(watched)


def test_arguments_that_vanish_while_a_kernel_runs() -> None:
    # Another thread empties the dict: the arrays of a call stay alive until it ends.
    function = smelt.jit(lambda p: ops.tanh(ops.exp(ops.sin(p["x"]) * 0.5)).sum())
    size = 400_000
    params = {"x": np.full(size, 0.5, np.float32)}
    wanted = turns(function, params)[0]
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            params["x"] = np.full(size, 0.5, np.float32)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(60):
            assert function(params) == wanted
    finally:
        stop.set()
        thread.join()


def test_many_shapes_in_turn() -> None:
    watched = Watched(lambda x: x + 1, dynamic=False)
    shapes = [(number, 3) for number in range(1, 13)]
    for _ in range(4):
        for shape in shapes:
            np.testing.assert_array_equal(watched(np.zeros(shape, np.float32))[0], np.ones(shape, np.float32))
    assert entries(watched.jitted) == 8
    assert watched(np.zeros(shapes[-1], np.float32))[1] and not watched(np.zeros(shapes[0], np.float32))[1]
    assert watched(np.zeros(shapes[0], np.float32))[1]


def test_more_threads_than_an_entry_has_memory_for() -> None:
    watched = Watched(lambda x: ops.softmax(x, 1))
    data = np.random.default_rng(0).standard_normal((300, 500)).astype(np.float32)
    with smelt.threads(1):
        wanted = watched.jitted(data)
    watched.ready(data)
    most = smelt.get_num_threads()
    with smelt.threads(most + 3):
        found = [watched(data) for _ in range(4)]
        assert found[-1][1]
    assert all(np.array_equal(result, wanted) for result, _ in found)


def test_the_report_is_of_the_latest_call() -> None:
    function = smelt.jit(lambda x: x + 1 if x.ndim == 1 else ops.softmax(x, 1), dynamic=False)
    turns(function, X)
    row = function.report()
    turns(function, X[0])
    assert function.report() != row
    function(X)
    assert function.report() == row


def test_inside_of_another_trace() -> None:
    inner = smelt.jit(lambda x: x * 2)
    turns(inner, X)
    np.testing.assert_array_equal(smelt.jit(lambda x: inner(x) + 1)(X), X * 2 + 1)
