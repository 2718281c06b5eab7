"""Conversion of PyTorch's symbolic sizes (a SymInt with a sympy expression) to smelt's."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..ir.process import process
from ..ir.proofs import floor_divide, maximum, minimum, remainder
from ..ir.symbolic import Dim, Symbol
from ..trace import SMALLEST

LIMIT = 1 << 31  # elements: a bound from here on counts as none


class UnknownSize(Exception):
    """A size that smelt's expressions cannot represent."""


def dim_of(size: Any) -> Dim:
    """Return a size as a number or an expression over the same symbols."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    return _convert(expression, size.node.shape_env)


def symbol_of(expression: Any, environment: Any) -> Symbol:
    """Return the symbol for one of PyTorch's, with the range it had at first sight, which later guards may narrow."""
    known = _symbols.setdefault(environment, {})
    name = str(expression)
    if name not in known:
        known[name] = Symbol(name, *_range(expression, environment))
    return known[name]


_symbols: WeakKeyDictionary[Any, dict[str, Symbol]] = process.keep("symbols of PyTorch", WeakKeyDictionary())


def symbol_name(size: Any) -> str | None:
    """Return the name of a SymInt that is a single symbol, else None."""
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        return str(size.node.expr)
    return None


def _convert(expression: Any, environment: Any) -> Dim:
    # Classes of sympy and of PyTorch are compared by name, so that neither has to be imported.
    kind = type(expression).__name__
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return symbol_of(expression, environment).expr()
    parts = [_convert(item, environment) for item in expression.args]
    if kind == "Add":
        return reduce(add, parts)
    if kind == "Mul":
        return reduce(mul, parts)
    if kind == "Pow" and isinstance(parts[1], int) and parts[1] >= 0:
        return reduce(mul, [parts[0]] * parts[1], 1)
    if kind in ("FloorDiv", "CleanDiv"):
        return floor_divide(*parts)
    if kind in ("Mod", "PythonMod"):
        return remainder(*parts)
    if kind == "ModularIndexing":
        return remainder(floor_divide(parts[0], parts[1]), parts[2])
    if kind == "Max":
        return reduce(maximum, parts)
    if kind == "Min":
        return reduce(minimum, parts)
    raise UnknownSize(f"{expression}, is not supported: smelt's expressions have no {kind}")


def _range(symbol: Any, environment: Any) -> tuple[int | None, int | None]:
    """Return the bounds of a symbol by the graph's guards: calls with other sizes do not reach this graph.

    Sizes 0 and 1 are not symbolic in PyTorch either, except data-dependent ones. A number that is not a size, such as
    an index, may have no bounds and be negative.
    """
    found = environment.var_to_range.get(symbol)
    if found is None:
        return SMALLEST, None
    lower, upper = (
        int(item) if getattr(item, "is_Integer", True) and abs(int(item)) < LIMIT else None
        for item in (found.lower, found.upper)
    )
    return lower, upper
