"""Random expressions over open sizes, as trees and as what smelt makes of them."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

from smelt.ir.graph import Graph, Value
from smelt.ir.proofs import COMPOUND
from smelt.ir.symbolic import Dim, Symbol
from smelt.ir.types import TensorType, f32, i64
from smelt.ops.define import REGISTRY

PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NUMBERS = PLAIN | {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}
SYMBOLS = PLAIN | COMPOUND


def random_tree(choose: random.Random, depth: int) -> Any:
    if depth == 0 or choose.random() < 0.15:
        return choose.choice(["N", "M", "K", *range(-6, 7)])
    kind = choose.choice(["+", "-", "-", "*", "//", "//", "%", "%", "min", "max"])
    return kind, random_tree(choose, depth - 1), random_tree(choose, depth - 1)


def value_of(tree: Any, names: dict[str, Any], table: dict[str, Callable[[Any, Any], Any]]) -> Any:
    if isinstance(tree, tuple):
        return table[tree[0]](value_of(tree[1], names, table), value_of(tree[2], names, table))
    return names[tree] if isinstance(tree, str) else tree


def cases(seed: int, count: int) -> list[tuple[Any, Dim]]:
    """Random trees, and the expressions that smelt makes of them."""
    choose = random.Random(seed)
    symbols = {name: Symbol(name, 2).expr() for name in "NMK"}
    trees = [random_tree(choose, choose.choice((2, 3))) for _ in range(count)]
    return [(tree, value_of(tree, symbols, SYMBOLS)) for tree in trees]


def expected(tree: Any, sizes: dict[str, int]) -> int | None:
    try:
        return value_of(tree, sizes, NUMBERS)
    except ZeroDivisionError:
        return None


def extents(made: list[Dim]) -> Graph:
    params = [Value(TensorType(f32, (Symbol(name, 2).expr(),)), name=name.lower()) for name in "NMK"]
    results = [REGISTRY["extent"].apply({"value": value, "dtype": i64}) for value in made]
    return Graph.build("sizes", params, results)
