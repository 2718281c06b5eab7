"""Products with something before or after them: groups of rows, an activation, a convolution whose time comes first."""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim
from ..ir.types import DType, i64
from .activation import gelu, relu
from .concat_pad import stack
from .conv import convolution, convolution_backward
from .create import iota
from .define import Scalar, Tensor, composite
from .linalg import addmm, bmm, matmul
from .pointwise import convert, ge, logical_and, lt, where
from .view import permute, select, unsqueeze


@composite
def _addmm_activation(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1, use_gelu: bool = False
) -> Tensor:
    """relu, or gelu, of beta * self + alpha * (mat1 @ mat2)."""
    found = addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return gelu(found) if use_gelu else relu(found)


def _members(offs: Tensor, size: Dim, group: int) -> Tensor:
    """Return the mask of the places of a group, which ends at its entry of offs and begins where the last one ends."""
    place = iota((size,), dim=0, dtype=i64)
    found = lt(place, convert(select(offs, 0, group), i64))
    return found if group == 0 else logical_and(found, ge(place, convert(select(offs, 0, group - 1), i64)))


@composite
def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """Products of groups: offs says where the groups of rows of self (or columns of mat2, or both's inner places) end.

    Rows and columns after the last group are zero."""
    if bias is not None:
        raise ArgumentError("bias is given: PyTorch has no grouped product with a bias, either")
    for name, value in (("self", self), ("mat2", mat2)):
        if value.ndim not in (2, 3):
            raise ShapeError(f"{name} has {value.ndim} dimensions, expected 2 or 3")
    if (offs is None) is not (self.ndim == mat2.ndim == 3):
        raise ArgumentError("offs is needed if self or mat2 is a matrix, and only then")
    found = bmm(self, mat2) if offs is None else _by_offsets(self, mat2, offs)
    return found if out_dtype is None else convert(found, out_dtype)


def _by_offsets(self: Tensor, mat2: Tensor, offs: Tensor) -> Tensor:
    count = offs.shape[0]
    if offs.ndim != 1 or not isinstance(count, int) or count == 0:
        raise ShapeError(f"offs has shape {list(offs.shape)}, expected one dimension of a known number of groups")
    for name, value in (("self", self), ("mat2", mat2)):
        if value.ndim == 3 and value.shape[0] != count:
            raise ShapeError(f"{name} has {value.shape[0]} matrices, expected {count}: one for each group of offs")
    parts: list[Tensor] = []
    for group in range(count):
        left = self if self.ndim == 2 else select(self, 0, group)
        right = mat2 if mat2.ndim == 2 else select(mat2, 0, group)
        if self.ndim == mat2.ndim:
            inner = _members(offs, left.shape[1], group)
            parts.append(matmul(where(inner, left, 0), right))
        elif self.ndim == 2:
            parts.append(where(unsqueeze(_members(offs, left.shape[0], group), 1), matmul(left, right), 0))
        else:
            parts.append(where(_members(offs, right.shape[1], group), matmul(left, right), 0))
    if self.ndim == mat2.ndim:
        return stack(parts)
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


@composite
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """convolution of [time, batch, channels] by a weight of [time, in, out channels]."""
    _check_tbc(self, weight)
    found = convolution(permute(self, (1, 2, 0)), permute(weight, (2, 1, 0)), bias, (1,), (pad,), (1,), False, (0,), 1)
    return permute(found, (2, 0, 1))


def _check_tbc(input: Tensor, weight: Tensor) -> None:
    for name, value in (("self", input), ("weight", weight)):
        if value.ndim != 3:
            raise ShapeError(f"{name} has {value.ndim} dimensions, expected 3")


@composite
def conv_tbc_backward(
    self: Tensor, input: Tensor, weight: Tensor, bias: Tensor, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of conv_tbc by input, weight and bias; self is that of its result."""
    _check_tbc(input, weight)
    by_input, by_weight, by_bias = convolution_backward(
        permute(self, (1, 2, 0)), permute(input, (1, 2, 0)), permute(weight, (2, 1, 0)), None,
        (1,), (pad,), (1,), False, (0,), 1, (True, True, True),
    )  # fmt: skip
    return permute(by_input, (2, 0, 1)), permute(by_weight, (2, 1, 0)), by_bias
