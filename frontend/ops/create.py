"""Tensors out of nothing: constants, ranges, fills."""

from __future__ import annotations

from typing import Any

from ..ir.types import DType, TensorType
from .define import ArrayConstant, Scalar, Size, Tensor, prim
from .kinds import Captured, Generate


def _constant_element(builder: Any, index: Any, arguments: dict[str, Any]) -> Any:
    return builder.constant(arguments["value"], arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], ()), _constant_element))
def constant(*, value: Scalar, dtype: DType) -> Tensor:
    """A number as a 0-dim tensor; printed as a literal such as 0.5:f32."""


@prim(Captured())
def captured(*, array: ArrayConstant) -> Tensor:
    """An array that the traced function refers to; tracing makes it a parameter."""


def _iota_element(builder: Any, index: Any, arguments: dict[str, Any]) -> Any:
    return builder.cast(builder.index(index[arguments["dim"]]), arguments["dtype"])


@prim(Generate(lambda a: TensorType(a["dtype"], a["size"]), _iota_element), differentiable=False)
def iota(size: Size, *, dim: int, dtype: DType) -> Tensor:
    """Each element is its own index along dim."""


def _full_element(builder: Any, index: Any, arguments: dict[str, Any]) -> Any:
    return builder.constant(arguments["fill_value"], arguments["dtype"])
