"""Products of matrices and vectors. All of them are one batched matrix product and views around it."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.symbolic import Dim, product
from . import pointwise
from .define import Dims, Scalar, Tensor, composite, prim
from .kinds import Contract, common_dtype
from .reduce import sum
from .registry import as_held
from .shapes import broadcast, dimension, equal
from .view import diagonal, expand, permute, reshape, transpose, unsqueeze


@prim(Contract())
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """result[b, m, n] = sum over k of self[b, m, k] * mat2[b, k, n]."""


def _adjoint(value: Tensor) -> Tensor:
    return pointwise.conjugate(permute(value, (0, 2, 1)))


@bmm.vjp
def bmm_vjp(grad, self, mat2):
    return bmm(grad, _adjoint(mat2)), bmm(_adjoint(self), grad)


@bmm.jvp
def bmm_jvp(self_tangent, mat2_tangent, self, mat2):
    left = None if self_tangent is None else bmm(self_tangent, mat2)
    right = None if mat2_tangent is None else bmm(self, mat2_tangent)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def _rank(value: Tensor, wanted: int, position: int) -> None:
    if value.ndim != wanted:
        raise ShapeError(f"operand {position} has {value.ndim} dimensions, expected {wanted}")


def _inner(left: Dim, right: Dim) -> None:
    if not equal(left, right):
        raise ShapeError(f"operand 1 has {right} rows, expected {left} (the columns of operand 0)")


def _alike(self: Tensor, other: Tensor) -> None:
    if self.dtype is not other.dtype:
        raise DTypeError(f"operand 0 is {self.dtype} and operand 1 is {other.dtype}, expected the same")


@composite
def matmul(self: Tensor, other: Tensor) -> Tensor:
    """The matrix product over the last two dimensions; a vector is a row left, a column right."""
    _alike(self, other)
    if self.ndim == 0 or other.ndim == 0:
        raise ShapeError(f"operand {0 if self.ndim == 0 else 1} has 0 dimensions, expected at least 1")
    if self.ndim == 1 and other.ndim == 1:
        return dot(self, other)
    left = reshape(self, (1, self.shape[0])) if self.ndim == 1 else self
    right = reshape(other, (other.shape[0], 1)) if other.ndim == 1 else other
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    _inner(inner, right.shape[-2])
    batch = broadcast([left.shape[:-2], right.shape[:-2]])
    if all(size == 1 for size in right.shape[:-2]):
        # A single matrix on the right: the batches merge into the rows.
        many = product((*left.shape[:-2], rows))
        result = bmm(reshape(left, (1, many, inner)), reshape(right, (1, inner, columns)))
    else:
        count = product(batch)
        left, right = (
            value if value.shape[:-2] == batch else expand(value, (*batch, *value.shape[-2:]))
            for value in (left, right)
        )
        result = bmm(reshape(left, (count, rows, inner)), reshape(right, (count, inner, columns)))
    kept = () if self.ndim == 1 else (rows,)
    return reshape(result, (*batch, *kept, *(() if other.ndim == 1 else (columns,))))


@composite
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _rank(self, 2, 0)
    _rank(mat2, 2, 1)
    return matmul(self, mat2)


@composite
def mv(self: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector."""
    _rank(self, 2, 0)
    _rank(vec, 1, 1)
    return matmul(self, vec)


@composite
def dot(self: Tensor, tensor: Tensor) -> Tensor:
    """The sum of self * tensor, two vectors."""
    _alike(self, tensor)
    _rank(self, 1, 0)
    _rank(tensor, 1, 1)
    if not equal(self.shape[0], tensor.shape[0]):
        raise ShapeError(f"operand 1 has {tensor.shape[0]} elements, expected {self.shape[0]} (those of operand 0)")
    working = self.dtype.compute
    total = sum(pointwise.cast(self, working) * pointwise.cast(tensor, working))
    return pointwise.cast(total, self.dtype)


@composite
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """The sum of conj(self) * other, two vectors."""
    return dot(pointwise.conjugate(self), other)


@composite
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    """result[i, j] = self[i] * vec2[j]."""
    _rank(self, 1, 0)
    _rank(vec2, 1, 1)
    return unsqueeze(self, 1) * vec2


def _scaled(value: Tensor, factor: Scalar) -> Tensor:
    return value if factor == 1 else value * factor


def _plus(value: Tensor, term: Tensor, beta: Scalar, alpha: Scalar) -> Tensor:
    """beta * value + alpha * term; with beta = 0 value is not read, so a NaN in it does not matter."""
    held = common_dtype((value, term))
    beta, alpha = as_held(beta, held), as_held(alpha, held)
    scaled = _scaled(term, alpha)
    if beta == 0:
        return expand(scaled, broadcast([value.shape, scaled.shape]))
    return _scaled(value, beta) + scaled


@composite
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2)."""
    return _plus(self, mm(mat1, mat2), beta, alpha)


@composite
def baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * self + alpha * (batch1 @ batch2), batch by batch."""
    return _plus(self, bmm(batch1, batch2), beta, alpha)


@composite
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * self + alpha * the sum over the batches of batch1 @ batch2."""
    _rank(batch1, 3, 1)
    _rank(batch2, 3, 2)
    count, rows, inner = batch1.shape
    left = reshape(permute(batch1, (1, 0, 2)), (rows, count * inner))
    right = reshape(batch2, (batch2.shape[0] * batch2.shape[1], batch2.shape[2]))
    return _plus(self, mm(left, right), beta, alpha)


@composite
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * self + alpha * (mat @ vec)."""
    return _plus(self, mv(mat, vec), beta, alpha)


@composite
def addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * self + alpha * outer(vec1, vec2)."""
    return _plus(self, outer(vec1, vec2), beta, alpha)


@composite
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    if weight.ndim > 2:
        raise ShapeError(f"weight has {weight.ndim} dimensions, expected 2 (out features, in features)")
    if weight.ndim == 2 and input.ndim and not equal(input.shape[-1], weight.shape[-1]):
        raise ShapeError(
            f"weight takes {weight.shape[-1]} features, but the last dimension of input is {input.shape[-1]}"
        )
    result = matmul(input, transpose(weight, 0, 1) if weight.ndim == 2 else weight)
    return result if bias is None else result + bias


@composite
def trace(self: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    _rank(self, 2, 0)
    return sum(diagonal(self))


@composite
def kron(self: Tensor, other: Tensor) -> Tensor:
    """Blocks of other, one for each element of self and scaled by it."""
    rank = max(self.ndim, other.ndim)
    left, right = ((*(1 for _ in range(rank - value.ndim)), *value.shape) for value in (self, other))
    spread = reshape(self, tuple(size for old in left for size in (old, 1)))
    tiles = reshape(other, tuple(size for old in right for size in (1, old)))
    return reshape(spread * tiles, tuple(a * b for a, b in zip(left, right)))


@composite
def tensordot(
    self: Tensor, other: Tensor, dims_self: int | Sequence[int] | Sequence[Sequence[int]] = 2, dims_other: Dims = None
) -> Tensor:
    """The sum of products over dims_self of self and dims_other of other; n is the last and first n."""
    if isinstance(dims_self, int) and dims_other is None:
        pairs = list(zip(range(self.ndim - dims_self, self.ndim), range(dims_self)))
    else:
        lists = (dims_self, dims_other) if dims_other is not None else dims_self
        first, second = ((dim,) if isinstance(dim, int) else dim for dim in lists)  # type: ignore[union-attr, misc]
        if len(first) != len(second):
            raise ArgumentError(f"dims_self has {len(first)} dimensions and dims_other {len(second)}, expected as many")
        pairs = [(dimension(a, self.ndim), dimension(b, other.ndim)) for a, b in zip(first, second)]
    left = list(range(self.ndim))
    right = list(range(self.ndim, self.ndim + other.ndim))
    for a, b in pairs:
        right[b] = left[a]
    summed = {left[a] for a, _ in pairs}
    kept = [label for label in (*left, *right) if label not in summed]
    return _contract([(self, left), (other, right)], kept)


# einsum
# Operands carry one label for each dimension. Labels that repeat within an operand become a diagonal, labels without
# other uses are summed, and then operands are contracted two at a time, left to right, by one bmm: shared labels with
# later uses are its batch, the other shared labels are contracted.

Labelled = tuple[Tensor, list]


def _take_diagonals(value: Tensor, labels: list) -> Labelled:
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if not equal(value.shape[first], value.shape[second]):
                raise ShapeError(f"a repeated label has sizes {value.shape[first]} and {value.shape[second]}")
            value = diagonal(value, 0, first, second)
            labels = [item for place, item in enumerate(labels) if place not in (first, second)] + [label]
    return value, labels


def _drop(value: Tensor, labels: list, dropped: set) -> Labelled:
    """Sum over labels."""
    dims = tuple(place for place, label in enumerate(labels) if label in dropped)
    if not dims:
        return value, labels
    kept = [label for label in labels if label not in dropped]
    if all(value.shape[dim] == 1 for dim in dims):
        return reshape(value, tuple(size for place, size in enumerate(value.shape) if place not in dims)), kept
    return sum(value, dims, dtype=value.dtype), kept


def _arrange(value: Tensor, labels: list, order: list) -> Tensor:
    """Permute dimensions into the order of labels; a missing label has size 1."""
    present = [label for label in order if label in labels]
    moved = permute(value, tuple(labels.index(label) for label in present))
    if len(present) == len(order):
        return moved
    sizes = iter(moved.shape)
    return reshape(moved, tuple(next(sizes) if label in labels else 1 for label in order))


def _join(left: Labelled, right: Labelled, needed: set) -> Labelled:
    (a, a_labels), (b, b_labels) = left, right
    a, a_labels = _drop(a, a_labels, set(a_labels) - set(b_labels) - needed)
    b, b_labels = _drop(b, b_labels, set(b_labels) - set(a_labels) - needed)
    batch = [label for label in a_labels if label in b_labels and label in needed]
    inner = [label for label in a_labels if label in b_labels and label not in needed]
    rows = [label for label in a_labels if label not in b_labels]
    columns = [label for label in b_labels if label not in a_labels]
    labels = batch + rows + columns
    if not inner:
        return _arrange(a, a_labels, labels) * _arrange(b, b_labels, labels), labels
    size = dict(zip(a_labels, a.shape)) | dict(zip(b_labels, b.shape))

    def total(some: list) -> Dim:
        return product(size[label] for label in some)

    _alike(a, b)
    one = reshape(_arrange(a, a_labels, batch + rows + inner), (total(batch), total(rows), total(inner)))
    two = reshape(_arrange(b, b_labels, batch + inner + columns), (total(batch), total(inner), total(columns)))
    return reshape(bmm(one, two), tuple(size[label] for label in labels)), labels


def _contract(operands: list[Labelled], output: list) -> Tensor:
    operands = [_take_diagonals(value, labels) for value, labels in operands]
    size: dict = {}
    for value, labels in operands:
        for label, extent in zip(labels, value.shape):
            known = size.setdefault(label, extent)
            if known == 1:
                size[label] = extent
            elif extent != 1 and not equal(known, extent):
                raise ShapeError(f"a label stands for the sizes {known} and {extent}")
    # A size of 1 broadcasts to the label's size elsewhere: treat the label as absent.
    operands = [
        _drop(value, labels, {label for label, extent in zip(labels, value.shape) if extent == 1 != size[label]})
        for value, labels in operands
    ]
    value, labels = operands[0]
    for position, other in enumerate(operands[1:], 1):
        needed = set(output).union(*(later for _, later in operands[position + 1 :]))
        value, labels = _join((value, labels), other, needed)
    value, labels = _drop(value, labels, set(labels) - set(output))
    order = tuple(labels.index(label) for label in output)
    return value if order == tuple(range(len(order))) else permute(value, order)


def _parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[list], list]:
    """Parse the labels of each operand and of the result; labels of an ellipsis are negative numbers."""
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise ArgumentError(f"{equation!r} names {len(terms)} operands, but {len(ranks)} are given")
    operands: list[list] = []
    widest = 0
    for term, rank in zip(terms, ranks):
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        if not (before + after).isalpha() and before + after:
            raise ArgumentError(f"{term!r} in {equation!r}: labels are letters, '...' may occur once")
        if named > rank or (not dots and named != rank):
            raise ArgumentError(f"{term!r} in {equation!r} names {named} dimensions, but the operand has {rank}")
        hidden = rank - named if dots else 0
        widest = max(widest, hidden)
        operands.append([*before, *range(-hidden, 0), *after])
    if arrow:
        before, dots, after = output.partition("...")
        result: list = [*before, *(range(-widest, 0) if dots else ()), *after]
        known = {label for labels in operands for label in labels}
        for label in result:
            if label not in known or result.count(label) > 1:
                raise ArgumentError(f"the result's label {label!r} in {equation!r} must occur once, and in an operand")
        return operands, result
    every = [label for labels in operands for label in labels if isinstance(label, str)]
    return operands, [*range(-widest, 0), *sorted(label for label in set(every) if every.count(label) == 1)]


@composite
def einsum(equation: str, operands: Sequence[Tensor]) -> Tensor:
    """The sum of products that the equation spells, such as "bik,bkj->bij"."""
    if not operands:
        raise ArgumentError("there are no operands")
    labels, output = _parse_equation(equation, [value.ndim for value in operands])
    return _contract(list(zip(operands, labels)), output)


@composite
def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors, each with new dimensions of its own, summed over sumdim."""
    factors = []
    for factor, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in sorted(dims):
            factor = unsqueeze(factor, dim)
        factors.append(factor)
    found = factors[0] * factors[1] * factors[2]
    return sum(found, tuple(sumdim)) if sumdim else found
