"""NumPy arrays whose sizes are open: `np.arange(x.shape[0])`, `np.ones(x.shape)` in a traced function.

They stand for NumPy arrays, so they have NumPy's types, and are immutable. An operation that they do not support as
NumPy does raises SizeNeeded, and the function is traced again with known sizes and arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..ir.graph import Array, Value
from ..ir.symbolic import Expr, SizeNeeded
from ..ir.types import dtype
from .registry import REGISTRY


class OpenArray:
    """An array with an open size, backed by a traced tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Value):
        self.value = value if isinstance(value, Array) else Array(value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """np.ndarray, for `isinstance(x, np.ndarray)` in user code."""
        return np.ndarray

    @property
    def shape(self) -> tuple:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.value.dtype.numpy)

    def _ask(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SizeNeeded(next(size for size in self.value.type.shape if isinstance(size, Expr)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # optional protocols, which hasattr probes
            raise AttributeError(name)
        self._ask()

    __array__ = __iter__ = __len__ = __setitem__ = __bool__ = __int__ = __float__ = __index__ = __contains__ = _ask
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _ask
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _ask
    __hash__ = None  # type: ignore[assignment]

    def reshape(self, *shape: Any) -> OpenArray:
        return OpenArray(self.value.reshape(*shape))

    def astype(self, wanted: Any) -> OpenArray:
        return OpenArray(REGISTRY["cast"](self.value, dtype(np.dtype(wanted))))

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is None or part is Ellipsis or type(part) is slice for part in parts):
            self._ask()
        return OpenArray(self.value[index])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            self._ask()
        return self._computed(ufunc, inputs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        given = _opened((args, kwargs))
        if not any(issubclass(kind, Value) for kind in types):
            self._ask()
        return function(*given[0], **given[1])

    def _computed(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        """Return the function's result: a tensor if an operand is one, else an open array of NumPy's result type."""
        result = function(*_opened(inputs))
        if any(isinstance(item, Value) for item in inputs):
            return result
        with np.errstate(all="ignore"):
            expected = function(*(np.ones(1, item.dtype) if isinstance(item, OpenArray) else item for item in inputs))
        if not isinstance(result, Value) or not isinstance(expected, np.ndarray):
            self._ask()
        if expected.dtype != result.dtype.numpy:
            self._ask()
        return OpenArray(result)


def _opened(item: Any) -> Any:
    """Replace open arrays by their tensors."""
    if isinstance(item, OpenArray):
        return item.value
    if isinstance(item, (tuple, list)):
        return type(item)(map(_opened, item))
    if isinstance(item, dict):
        return {name: _opened(member) for name, member in item.items()}
    return item


def _install(name: str) -> None:
    function = getattr(operator, name)

    def compute(self: OpenArray, *others: Any) -> Any:
        return self._computed(function, (self, *others))

    def reflected(self: OpenArray, other: Any) -> Any:
        return self._computed(function, (other, self))

    setattr(OpenArray, f"__{name.strip('_')}__", compute)
    if name in _REFLECTED:
        setattr(OpenArray, f"__r{name.strip('_')}__", reflected)


_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor")
for _name in (*_REFLECTED, "neg", "pos", "abs", "invert", "lt", "le", "gt", "ge", "eq", "ne"):
    _install(_name)
