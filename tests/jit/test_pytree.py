"""Nested arguments as leaves and structures: the nodes that optree knows, told apart as a program could."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import optree
import pytest
import smelt
from smelt.backend.pytree import LEAF, count_leaves, flatten, leaves_like, paths, shown, unflatten
from support import run

Pair = namedtuple("Pair", "left right")


@optree.register_pytree_node_class(namespace=optree.registry.__GLOBAL_NAMESPACE)
class Registered:
    def __init__(self, *items: Any, name: str = ""):
        self.items, self.name = items, name

    def __tree_flatten__(self) -> tuple[Any, ...]:
        return self.items, self.name

    @classmethod
    def __tree_unflatten__(cls, name: str, items: Any) -> Registered:
        return cls(*items, name=name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registered) and (other.items, other.name) == (self.items, self.name)

    __hash__ = None  # type: ignore[assignment]


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1, [2, None, {"b": 3, "a": 4}], Pair(5, (6,))),
    OrderedDict(b=1, a=[2]),
    defaultdict(list, b=1, a=2),
    deque([1, 2], maxlen=3),
    Registered(1, (2, 3), name="x"),
    {1: 2, "a": 3},
    frozenset({1}),
    np.finfo(np.float32),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: type(tree).__name__)
def test_trees_are_built_again(tree: Any) -> None:
    leaves, structure = flatten(tree)
    again = unflatten(structure, leaves)
    assert again == tree and type(again) is type(tree)
    assert len(leaves) == count_leaves(structure) == len(list(paths(structure))) == len(optree.tree_leaves(tree))
    assert (structure == LEAF) == optree.tree_is_leaf(tree)
    if isinstance(tree, dict):
        assert list(again) == list(tree)


def test_structures_differ_where_a_program_could_tell() -> None:
    trees = [*TREES, {"a": 1, "b": 2}, {"b": 1, "a": 2}, {1: 0}, {True: 0}, {1.0: 0}, Registered(1, name="y")]
    trees += [deque([1, 2]), (1, 2), [1, 2], Pair(1, 2), defaultdict(int, b=1, a=2), Registered(1, name="x")]
    structures = [flatten(tree)[1] for tree in trees]
    same = {(0, 11), (0, 12), (11, 12)}  # leaves, all three
    for one in range(len(trees)):
        for other in range(one):
            assert (structures[one] == structures[other]) == ((other, one) in same), (trees[one], trees[other])


def test_leaves_come_in_the_order_of_another_tree() -> None:
    structure = flatten(({"b": 1, "a": [2, Pair(3, 4)]}, 5))[1]
    assert shown(structure) == "({'b': *, 'a': [*, Pair(left=*, right=*)]}, *)"
    assert leaves_like(structure, ({"a": [7, Pair(8, 9)], "b": 6}, 10)) == [6, 7, 8, 9, 10]
    for other in (({"a": [7, (8, 9)], "b": 6}, 10), ({"a": [7, Pair(8, 9)], "c": 6}, 10), ({"b": 6}, 10), 1, (1, 2)):
        assert leaves_like(structure, other) is None


def test_derivatives_take_dicts_in_any_order() -> None:
    x, y = np.arange(3.0), np.ones(3)
    changed = smelt.jvp(lambda d: d["a"] * d["a"] + d["b"], ({"a": x, "b": y},), ({"b": y, "a": y * 2},))[1]
    np.testing.assert_array_equal(changed, 4 * x + 1)
    gradients = smelt.vjp(lambda x: {"a": x * 2, "b": x * 3}, x)[1]({"b": y, "a": y * 10})
    np.testing.assert_array_equal(gradients[0], np.full(3, 23.0))


ENDS = """
import threading, time
from collections import namedtuple
import numpy as np
import smelt

Pair = namedtuple("Pair", "left right")
function = smelt.jit(lambda pair, d: Pair(pair.left + d["x"].T, {"y": (pair.right,)}))
x = np.ones((3, 3))[:, ::-1]

def call():
    while True:
        function(Pair(x, x), {"x": x})
        smelt.grad(lambda x: (x * x).sum())(x)

for _ in range(6):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.4)
print("end", flush=True)
"""


def test_a_process_ends_while_threads_call() -> None:
    for _ in range(3):
        assert run(ENDS) == "end"


def test_smelt_does_not_import_optree():
    """Before or after smelt: a class is a node as soon as it is registered."""
    code = """
import sys
import numpy as np
import smelt

class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right

double = smelt.jit(lambda pair: (pair.left if isinstance(pair, Pair) else pair[0]) * 2)
print(double((np.ones(2), 1)), "optree" in sys.modules)
import optree
optree.register_pytree_node(Pair, lambda p: ((p.left, p.right), None), lambda _, items: Pair(*items),
    namespace=optree.registry.__GLOBAL_NAMESPACE)
print(double(Pair(np.ones(2), 1)))
"""
    assert run(code).split("\n")[:2] == ["[2. 2.] False", "[2. 2.]"]
