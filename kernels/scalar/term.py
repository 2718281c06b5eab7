"""Expansions written as formulas: a `Term` is an operand of a ScalarBuilder with Python's operators.

    def reciprocal(x: Term) -> Term:
        return 1 / x

    expand(reciprocal)        # the same as a function (b, x) -> operand

Python numbers become constants of the other operand's type. `==` is left alone: write `x.equals(y)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

from ...ir.types import DType, bool_, f32, f64, i32, i64

Number = Union["Term", int, float]


class Term:
    """An operand and the builder that made it."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: Any):
        self.builder = builder
        self.value = value

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def lift(self, other: Number) -> Any:
        """The builder's operand for a term or a number."""
        return other.value if isinstance(other, Term) else self.builder.constant(other, self.dtype)

    def constant(self, value: Any, dtype: DType | None = None) -> Term:
        return Term(self.builder, self.builder.constant(value, dtype or self.dtype))

    def op(self, name: str, *others: Number) -> Term:
        """The scalar op on this term and others of its type."""
        return Term(self.builder, self.builder.op(name, self.value, *(self.lift(other) for other in others)))

    def cast(self, dtype: DType) -> Term:
        return self if self.dtype is dtype else Term(self.builder, self.builder.cast(self.value, dtype))

    def bits(self) -> Term:
        """The bits of a float as an integer."""
        return Term(self.builder, self.builder.bitcast(self.value, i32 if self.dtype is f32 else i64))

    def float(self) -> Term:
        """The float that has these bits."""
        return Term(self.builder, self.builder.bitcast(self.value, f32 if self.dtype is i32 else f64))

    def __add__(self, other: Number) -> Term:
        return self.op("add", other)

    def __radd__(self, other: Number) -> Term:
        return Term(self.builder, self.lift(other)).op("add", self)

    def __sub__(self, other: Number) -> Term:
        return self.op("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return Term(self.builder, self.lift(other)).op("sub", self)

    def __mul__(self, other: Number) -> Term:
        return self.op("mul", other)

    def __rmul__(self, other: Number) -> Term:
        return Term(self.builder, self.lift(other)).op("mul", self)

    def __truediv__(self, other: Number) -> Term:
        return self.op("div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return Term(self.builder, self.lift(other)).op("div", self)

    def __neg__(self) -> Term:
        return self.op("neg")

    def __abs__(self) -> Term:
        return self.op("abs")

    def __lt__(self, other: Number) -> Term:
        return self.op("lt", other)

    def __le__(self, other: Number) -> Term:
        return self.op("le", other)

    def __gt__(self, other: Number) -> Term:
        return self.op("gt", other)

    def __ge__(self, other: Number) -> Term:
        return self.op("ge", other)

    def __and__(self, other: Number) -> Term:
        return self.op("bitwise_and", other)

    def __or__(self, other: Number) -> Term:
        return self.op("bitwise_or", other)

    def __xor__(self, other: Number) -> Term:
        return self.op("bitwise_xor", other)

    def __invert__(self) -> Term:
        return self.op("bitwise_not")

    def __lshift__(self, count: int) -> Term:
        return self.op("shl", count)

    def __rshift__(self, count: int) -> Term:
        """With the sign kept."""
        return self.op("ashr", count)

    def equals(self, other: Number) -> Term:
        return self.op("eq", other)

    def differs(self, other: Number) -> Term:
        return self.op("ne", other)


def expand(function: Callable[..., Term]) -> Callable[..., Any]:
    """A function of terms as an expansion over a builder."""

    def expansion(builder: Any, *operands: Any) -> Any:
        return function(*(Term(builder, operand) for operand in operands)).value

    expansion.__name__ = function.__name__
    return expansion


def select(condition: Term, chosen: Number, other: Number) -> Term:
    """`chosen` where the condition holds, else `other`; at least one of them is a term."""
    model = chosen if isinstance(chosen, Term) else other
    assert isinstance(model, Term) and condition.dtype is bool_
    builder = model.builder
    return Term(builder, builder.op("where", condition.value, model.lift(chosen), model.lift(other)))


def rare(condition: Term, fast: Term, slow: Callable[..., Term], *arguments: Any) -> Term:
    """`fast`, but where the condition holds `slow(*arguments)`. That is computed only if some lane needs it.

    The arguments are terms and, after them, the other arguments of `slow`. Its name and theirs must identify it.
    """
    builder = fast.builder
    terms = [argument for argument in arguments if isinstance(argument, Term)]
    others = arguments[len(terms) :]
    name = ".".join([slow.__name__, *map(str, others)])

    def expansion(builder: Any, *operands: Any) -> Any:
        return slow(*(Term(builder, operand) for operand in operands), *others).value

    expansion.__name__ = name
    return Term(builder, builder.rare(condition.value, fast.value, expansion, [term.value for term in terms]))


def loop(step: Callable[..., Sequence[Term]], *state: Term) -> Term:
    """The first of the state after steps: `step(*state)` gives whether a lane goes on, and its next state if so. The
    step's name must identify it."""
    builder = state[0].builder

    def expansion(builder: Any, *operands: Any) -> list[Any]:
        return [term.value for term in step(*(Term(builder, operand) for operand in operands))]

    expansion.__name__ = step.__name__
    return Term(builder, builder.loop(expansion, [term.value for term in state]))


def fma(a: Term, b: Number, c: Number) -> Term:
    """a * b + c, rounded once."""
    return a.op("fma", b, c)


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Sum of coefficients[k] * x ** k. In f64 long ones are split into even and odd powers: two shorter chains."""
    if x.dtype is f64 and len(coefficients) >= 8:
        square = x * x
        return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[::2]))
    return horner(x, coefficients)


def horner(x: Term, coefficients: Sequence[float]) -> Term:
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient) if coefficient else result * x
    return result


def two_sum(a: Term, b: Number) -> tuple[Term, Term]:
    """The rounded sum and its error, exactly."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def fast_two_sum(a: Term, b: Number) -> tuple[Term, Term]:
    """As two_sum, where |a| >= |b|."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Term, b: Number) -> tuple[Term, Term]:
    """The rounded product and its error, exactly."""
    product = a * b
    return product, fma(a, b, -product)


def in_double(function: Callable[..., Term]) -> Callable[..., Term]:
    """The function computed in f64 also for f32 operands: precise, where speed matters less."""

    def call(*terms: Term) -> Term:
        dtype = terms[0].dtype
        return function(*(term.cast(f64) for term in terms)).cast(dtype)

    call.__name__ = function.__name__
    return call
