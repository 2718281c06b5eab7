"""Ops on lists of tensors, such as `_foreach_add`: one op for each tensor; fusion merges them again."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from .rules import RULES, apply

NAMED = {"alpha", "value", "dtype"}  # parameters after the operands
SAME_NAME = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "copy", "cos", "cosh",
    "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub",
    "tan", "tanh", "trunc",
)  # fmt: skip
OTHER_NAME = {"norm": "linalg_vector_norm", "max": "amax"}


def each(name: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Apply an op to each of the tensors; other lists are zipped with them, all else is passed unchanged."""
    arguments = dict(arguments)
    if name in ("addcmul", "addcdiv") and "scalars" in arguments:
        arguments["value"] = arguments.pop("scalars")
    count = max(len(item) for item in arguments.values() if isinstance(item, tuple))

    def one(item: Any, at: int) -> Any:
        return item[at] if isinstance(item, tuple) else item

    results: list[Any] = []
    for at in range(count):
        operands = [one(item, at) for key, item in arguments.items() if key not in NAMED]
        named = {key: one(item, at) for key, item in arguments.items() if key in NAMED}
        results.append(apply(name, *operands, **named))
    return tuple(results)


def _register(name: str, op: str) -> None:
    def on_each(node: Node, arguments: dict[str, Any]) -> Any:
        return each(op, arguments)

    RULES[f"_foreach_{name}"] = on_each


for _name in SAME_NAME:
    _register(_name, _name)
for _name, _op in OTHER_NAME.items():
    _register(_name, _op)
