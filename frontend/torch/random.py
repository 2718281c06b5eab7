"""Rules for random ops whose bounds have other names in smelt."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from ..ops.distributions import random as drawn
from ..ops.random import randint, uniform
from .rules import rule
from .types import DTYPE


@rule("randint", "randint_like")
def whole(node: Node, a: dict[str, Any]) -> Any:
    size = a["size"] if "size" in a else a["self"].shape
    return randint(a.get("low", 0), a["high"], size, dtype=DTYPE[node.meta["val"].dtype])


@rule("uniform")
def between(node: Node, a: dict[str, Any]) -> Any:
    return uniform(a["self"], a.get("from", 0.0), a.get("to", 1.0))


@rule("random")
def exact(node: Node, a: dict[str, Any]) -> Any:
    return drawn(a["self"], a.get("from", 0), a.get("to"))
