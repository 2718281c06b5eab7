"""Ops on lists of tensors, such as `_foreach_add`: one op for each tensor; fusion merges them again.

Beside the tensors stand lists of the same length, or one tensor or number for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ArgumentError
from ..ir.types import DType
from .define import REGISTRY, Scalar, Tensor, composite
from .opdef import OpDef

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = ("clamp_max", "clamp_min", "copy", "div", "maximum", "minimum", "mul", "pow")
SCALED = ("add", "sub")
TERNARY = ("addcdiv", "addcmul")


def _each(op: OpDef, *operands: Any, **named: Any) -> tuple[Tensor, ...]:
    """Apply an op to each of the tensors and what stands beside it."""
    count = next(len(item) for item in operands if isinstance(item, tuple))
    for item in (*operands, *named.values()):
        if isinstance(item, tuple) and len(item) != count:
            raise ArgumentError(f"a list has {len(item)} items, expected {count}, as many as there are tensors")

    def one(item: Any, at: int) -> Any:
        return item[at] if isinstance(item, tuple) else item

    return tuple(
        op(*(one(item, at) for item in operands), **{name: one(item, at) for name, item in named.items()})
        for at in range(count)
    )


def _declare(name: str, body: Callable[..., tuple[Tensor, ...]]) -> None:
    body.__name__, body.__doc__ = f"_foreach_{name}", f"{name} of each of the tensors."
    composite(body)


def _unary(op: OpDef) -> Callable[..., tuple[Tensor, ...]]:
    def body(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return _each(op, self)

    return body


def _binary(op: OpDef) -> Callable[..., tuple[Tensor, ...]]:
    def body(self: Sequence[Tensor] | Scalar, other: Sequence[Tensor | Scalar] | Tensor | Scalar) -> tuple[Tensor, ...]:
        return _each(op, self, other)

    return body


def _scaled(op: OpDef) -> Callable[..., tuple[Tensor, ...]]:
    def body(
        self: Sequence[Tensor], other: Sequence[Tensor | Scalar] | Tensor | Scalar, *, alpha: Scalar = 1
    ) -> tuple[Tensor, ...]:
        return _each(op, self, other, alpha=alpha)

    return body


def _ternary(op: OpDef) -> Callable[..., tuple[Tensor, ...]]:
    def body(
        self: Sequence[Tensor],
        tensor1: Sequence[Tensor],
        tensor2: Sequence[Tensor],
        value: Sequence[Scalar] | Scalar = 1,
    ) -> tuple[Tensor, ...]:
        return _each(op, self, tensor1, tensor2, value=value)

    return body


for _template, _names in ((_unary, UNARY), (_binary, BINARY), (_scaled, SCALED), (_ternary, TERNARY)):
    for _name in _names:
        _declare(_name, _template(REGISTRY[_name]))


@composite
def _foreach_lerp(
    self: Sequence[Tensor], tensors1: Sequence[Tensor], weight: Sequence[Tensor | Scalar] | Scalar
) -> tuple[Tensor, ...]:
    """lerp of each of the tensors."""
    return _each(REGISTRY["lerp"], self, tensors1, weight)


@composite
def _foreach_max(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The largest element of each of the tensors."""
    return _each(REGISTRY["amax"], self)


@composite
def _foreach_norm(self: Sequence[Tensor], ord: Scalar = 2, dtype: DType | None = None) -> tuple[Tensor, ...]:
    """The norm of order ord of each of the tensors."""
    return _each(REGISTRY["linalg_vector_norm"], self, ord, dtype=dtype)
