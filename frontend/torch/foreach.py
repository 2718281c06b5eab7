"""Rules for ops on lists of tensors: overloads name the operands in several ways, so all are passed by position."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from ..ops.define import REGISTRY
from .rules import RULES, apply

BY_NAME = {"alpha", "dtype"}
IGNORED = {"non_blocking"}


def _on_each(node: Node, arguments: dict[str, Any]) -> Any:
    name = node.target._schema.name.removeprefix("aten::")  # type: ignore[union-attr]
    named = {key: item for key, item in arguments.items() if key in BY_NAME}
    return apply(name, *(item for key, item in arguments.items() if key not in BY_NAME | IGNORED), **named)


for _name in REGISTRY:
    if _name.startswith("_foreach_"):
        RULES[_name] = _on_each
