"""Rules for random ops with another name in smelt, or with a formula over uniform numbers."""

from __future__ import annotations

import math
from typing import Any

from torch.fx import Node

from ..ops import elementary, minmax, pointwise, random, rounding
from ..ops.define import Tensor
from .rules import rule
from .types import DTYPE


def _even(a: dict[str, Any]) -> Tensor:
    """Draw uniform numbers in [0, 1), in the compute type."""
    return random.rand(a["self"].shape, dtype=a["self"].dtype.compute)


@rule("randint", "randint_like")
def whole(node: Node, a: dict[str, Any]) -> Any:
    if not all(isinstance(a.get(name, 0), int) for name in ("low", "high")):
        return NotImplemented
    size = a["size"] if "size" in a else a["self"].shape
    return random.randint(a.get("low", 0), a["high"], size, dtype=DTYPE[node.meta["val"].dtype])


@rule("uniform")
def between(node: Node, a: dict[str, Any]) -> Any:
    return random.uniform(a["self"], a.get("from", 0.0), a.get("to", 1.0))


@rule("exponential")
def exponential(node: Node, a: dict[str, Any]) -> Any:
    drawn = -elementary.log1p(-_even(a)) / a.get("lambd", 1.0)
    return pointwise.convert(drawn, a["self"].dtype)


@rule("cauchy")
def cauchy(node: Node, a: dict[str, Any]) -> Any:
    drawn = elementary.tan((_even(a) - 0.5) * math.pi) * a.get("sigma", 1.0) + a.get("median", 0.0)
    return pointwise.convert(drawn, a["self"].dtype)


@rule("log_normal")
def log_normal(node: Node, a: dict[str, Any]) -> Any:
    wide = a["self"].dtype.compute
    drawn = elementary.exp(random.randn(a["self"].shape, dtype=wide) * a.get("std", 2.0) + a.get("mean", 1.0))
    return pointwise.convert(drawn, a["self"].dtype)


@rule("geometric")
def geometric(node: Node, a: dict[str, Any]) -> Any:
    """The number of trials up to the first success, by inversion."""
    if not a["self"].dtype.is_float:
        return NotImplemented
    drawn = rounding.ceil(elementary.log1p(-_even(a)) / math.log1p(-a["p"]))
    return pointwise.convert(minmax.clamp_min(drawn, 1.0), a["self"].dtype)
