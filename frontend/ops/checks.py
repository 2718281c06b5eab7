"""Run-time checks of numbers: ops that raise an error for operands out of their domain."""

from __future__ import annotations

from typing import Any

from ..ir.errors import AssertionFailed, DTypeError, ShapeError
from ..ir.symbolic import Expr
from ..ir.types import INTEGER, DType, TensorType, bool_, i64, u64
from .create import full, number_of
from .define import Scalar, Tensor, composite, prim
from .kinds import Arguments, ElementBuilder, Gather, Index


def _aligned(arguments: Arguments) -> dict[str, tuple[int | None, ...]]:
    return {"self": tuple(range(arguments["self"].ndim))}


def _checked_cast_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    low, high = arguments["dtype"].bounds
    value = builder.load(arguments["self"], index)
    if arguments["dtype"] is u64:
        return builder.cast(_natural_element(builder, index, arguments), u64)
    # Reuses the range check of an index: negative numbers count from the end.
    place, _ = builder.dynamic(value, high + 1, wrap=low < 0)
    found = builder.index(place)
    if low < 0:
        is_negative = builder.scalar("lt", value, builder.constant(0, i64))
        offset = builder.scalar("where", is_negative, builder.constant(low, i64), builder.constant(0, i64))
        found = builder.scalar("add", found, offset)
    return builder.cast(found, arguments["dtype"])


@prim(
    Gather(lambda a: TensorType(a["dtype"], a["self"].shape), _checked_cast_element, _aligned),
    dtypes=(i64,),
    differentiable=False,
)
def checked_cast(self: Tensor, dtype: DType) -> Tensor:
    """self converted to another integer type; a number out of its range is an error."""
    if dtype not in INTEGER or dtype is i64:
        others = ", ".join(str(item) for item in INTEGER if item is not i64)
        raise DTypeError(f"dtype is {dtype}, accepted are {others}")
    return {}  # type: ignore[return-value]


def _natural_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value = builder.load(arguments["self"], index)
    # The size of the index check is the largest i64: keep the checked number below it.
    small = builder.scalar("minimum", value, builder.constant(1 << 62, i64))
    place, _ = builder.dynamic(small, i64.bounds[1], wrap=False)
    return builder.scalar("maximum", value, builder.index(place))


@prim(Gather(lambda a: a["self"].type, _natural_element, _aligned), dtypes=(i64,), differentiable=False)
def checked_exponent(self: Tensor) -> Tensor:
    """self, the exponent of an integer: a negative number is an error."""


def _divisor_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value = arguments["self"]
    found = builder.load(value, index)
    is_zero = builder.scalar("eq", found, builder.constant(0, value.dtype))
    # An index into one element: 1 is out of range.
    place, _ = builder.dynamic(builder.cast(is_zero, i64), 1, wrap=False)
    return builder.scalar("add", found, builder.cast(builder.index(place), value.dtype))


@prim(Gather(lambda a: a["self"].type, _divisor_element, _aligned), dtypes=INTEGER, differentiable=False)
def checked_divisor(self: Tensor) -> Tensor:
    """self, the divisor of integers, where PyTorch raises: zero is an error."""


# Assertions. Values are pure, so an assertion is made where its result is used.


def _asserted_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value, token = arguments["self"], arguments["dep_token"]
    found = builder.load(value, (0,) * value.ndim)
    fails = builder.scalar("eq", found, builder.constant(0, value.dtype))
    # An index into one element: 1 is out of range.
    place, _ = builder.dynamic(builder.cast(fails, i64), 1, wrap=False)
    kept = builder.load(token, index)
    # The index is 0: it stands here so that the check stays.
    passes = builder.scalar("eq", builder.index(place), builder.constant(0, i64))
    return builder.scalar("where", passes, kept, builder.constant(0, token.dtype))


@prim(Gather(lambda a: a["dep_token"].type, _asserted_element))
def _functional_assert_async(self: Tensor, assert_msg: str, dep_token: Tensor) -> Tensor:
    """dep_token, where self, which has one element, holds; else the message is an error."""
    if self.type.numel != 1:
        raise ShapeError(f"self has shape {list(self.shape)}, expected one element")
    return {}  # type: ignore[return-value]


@_functional_assert_async.vjp
def _functional_assert_async_vjp(grad, self, assert_msg, dep_token):
    return {"dep_token": _functional_assert_async(self, assert_msg, grad)}


@_functional_assert_async.jvp
def _functional_assert_async_jvp(dep_token_tangent, self, assert_msg):
    return None if dep_token_tangent is None else _functional_assert_async(self, assert_msg, dep_token_tangent)


@composite(differentiable=False)
def _assert_async(self: Tensor, assert_msg: str = "") -> Tensor:
    """self, which has one element and must hold; else the message is an error. The check is made where this is used."""
    return _functional_assert_async(self, assert_msg, self)


@composite(differentiable=False)
def _functional_assert_scalar(self: Tensor | Scalar, assert_msg: str, dep_token: Tensor) -> Tensor:
    """dep_token, where the number self holds; else the message is an error."""
    if isinstance(self, Expr):
        self = full((), 0, dtype=i64) + number_of(self, i64)
    if isinstance(self, Tensor):
        return _functional_assert_async(self, assert_msg, dep_token)
    if not self:
        raise AssertionFailed(assert_msg)
    return dep_token


@composite(differentiable=False)
def _assert_scalar(self: Tensor | Scalar, assert_msg: str) -> Tensor:
    """True, where the number self holds; else the message is an error."""
    return _functional_assert_scalar(self, assert_msg, full((), True, dtype=bool_))
