"""Open sizes as the user's code sees them.

A traced function gets `OpenSize`s from `x.shape`: ints whose number is not known yet. Arithmetic keeps them open; a
comparison by < or > is answered by the sizes at hand, as a limit of the program (`Expr._is_at_least`). An operation
that needs the number (==, a dict key, formatting) raises SizeNeeded, and the function is traced again (`trace.py`).

The compiler's own sizes are expressions, which compare by structure: `expression` converts an `OpenSize` wherever user
arguments enter smelt.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NoReturn

from .symbolic import Dim, Expr, SizeNeeded, UndecidedSize


class OpenSize:
    """An int whose number is not known while tracing."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr):
        self.expr = expr

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """int, so that `isinstance(x.shape[0], int)` is true for open sizes as for known ones."""
        return int

    def __eq__(self, other: object) -> bool:
        other = expression(other)
        if type(other) is Expr:
            if self.expr == other:
                return True
        elif not isinstance(other, numbers.Number):
            return NotImplemented
        size = _whole(other)
        if size is not None and not Expr.differs(self.expr, size):
            raise SizeNeeded(self.expr)
        return False

    def _ask(self, *others: Any) -> NoReturn:
        raise SizeNeeded(self.expr)

    # Hashing (dict, set) and formatting need the number.
    __hash__ = __str__ = __repr__ = __format__ = _ask  # type: ignore[assignment]
    __bool__ = __int__ = __float__ = __index__ = __complex__ = _ask
    __round__ = __trunc__ = __floor__ = __ceil__ = _ask


def open_size(dim: Dim) -> Any:
    """Return a size as user code sees it."""
    return OpenSize(dim) if type(dim) is Expr else dim


def open_shape(shape: tuple[Dim, ...]) -> tuple[Any, ...]:
    """Return a shape as user code sees it."""
    for dim in shape:
        if type(dim) is Expr:
            return tuple(map(open_size, shape))
    return shape


def expression(item: Any) -> Any:
    """Replace open sizes by expressions in a user's argument, also inside sequences and slices."""
    kind = type(item)
    if kind is OpenSize:
        return item.expr
    if issubclass(kind, (tuple, list)):
        for part in item:
            if issubclass(type(part), _HOLDERS):  # also of a class with a constructor of its own, such as NamedTuple
                return (tuple if issubclass(kind, tuple) else list)(map(expression, item))
    elif kind is slice:
        return slice(expression(item.start), expression(item.stop), expression(item.step))
    return item


_HOLDERS = (OpenSize, tuple, list, slice)


def _whole(value: Any) -> Dim | None:
    """Return a number of any type as a size; None if it is no integer."""
    if type(value) in (int, Expr):
        return value  # type: ignore[no-any-return]
    try:
        whole = int(value.real)
        return whole if value == whole else None
    except (ValueError, OverflowError, TypeError):  # nan, inf
        return None


def _calculated(name: str) -> Callable[..., Any]:
    function = getattr(Expr, name)

    def operator(self: OpenSize, *others: Any) -> Any:
        return open_size(function(self.expr, *map(expression, others)))

    return operator


def _divided(name: str) -> Callable[..., Any]:
    """Return an operator that first settles whether the divisor is zero: Python raises for it."""
    function = getattr(Expr, name)
    is_reflected = name.startswith("__r")

    def operator(self: OpenSize, other: Any) -> Any:
        other = expression(other)
        divisor = self.expr if is_reflected else other
        if type(divisor) is Expr:
            if not Expr.differs(divisor, 0):
                raise UndecidedSize(divisor, 0)
        elif isinstance(divisor, numbers.Integral) and divisor == 0:  # NumPy's integers, too
            raise ZeroDivisionError("integer division or modulo by zero")
        return open_size(function(self.expr, other))

    return operator


def _compared(least: int, is_below: bool) -> Callable[..., Any]:
    def operator(self: OpenSize, other: Any) -> Any:
        answer = self.expr._is_at_least(expression(other), least)
        return answer if answer is NotImplemented else answer != is_below

    return operator


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "neg"):
    setattr(OpenSize, f"__{_name}__", _calculated(f"__{_name}__"))
for _name in ("floordiv", "rfloordiv", "mod", "rmod"):
    setattr(OpenSize, f"__{_name}__", _divided(f"__{_name}__"))
for _name, _least, _below in (("ge", 0, False), ("gt", 1, False), ("le", 1, True), ("lt", 0, True)):
    setattr(OpenSize, f"__{_name}__", _compared(_least, _below))
