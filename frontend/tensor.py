"""The traced tensor: operators and methods of `Value`, taken from the op registry.

Every op whose first parameter is called `self` is a method. Operators map to ops by name. What Python asks of
a traced tensor that only the compiled code could answer (a truth value, a number, an array) is an error that
says so and names the line.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .ir.errors import ArgumentError, TraceError, suggest
from .ir.graph import Value, current_location
from .ops.define import NUMPY_NAMES, REGISTRY

BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
UNARY = {"neg": "neg", "pos": "positive", "invert": "bitwise_not", "abs": "abs"}


def _binary(name: str) -> Callable[[Value, Any], Any]:
    def operator(self: Value, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return REGISTRY[name](self, other)

    return operator


def _reflected(name: str) -> Callable[[Value, Any], Any]:
    def operator(self: Value, other: Any) -> Any:
        return REGISTRY[name](other, self)

    return operator


def _unary(name: str) -> Callable[[Value], Any]:
    return lambda self: REGISTRY[name](self)


def _method(self: Value, name: str) -> Any:
    op = REGISTRY.get(name)
    if op is not None and op.parameters and op.parameters[0].name == "self":
        return partial(op, self)
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"a traced tensor has no {name!r}{suggest(name, REGISTRY)}")


# How to get the array of a value that depends on no parameter; set by the public face, which knows the back ends.
_evaluators: list[Callable[[Value], np.ndarray | None]] = []


def set_evaluator(evaluate: Callable[[Value], np.ndarray | None]) -> None:
    _evaluators[:] = [evaluate]


def _known(self: Value, question: str) -> np.ndarray:
    """The array of a value that is known while tracing; for all others an error that says what was asked."""
    array = _evaluators[0](self) if _evaluators else None
    if array is None:
        raise TraceError(question, current_location(), f"the tensor is {self!r}")
    return array


def _bool(self: Value) -> bool:
    return bool(
        _known(
            self,
            "a Python branch on a traced tensor: its values are only known when the compiled code runs. "
            "Use smelt.ops.where(condition, a, b), or pass what the branch depends on as a static argument",
        )
    )


def _number(self: Value) -> Any:
    question = "a traced tensor cannot become a Python number while tracing; keep computing with the tensor"
    return _known(self, question).item()


def _array(self: Value, dtype: Any = None, copy: Any = None) -> np.ndarray:
    question = "a traced tensor cannot become a NumPy array while tracing; use smelt.ops instead of numpy functions"
    return _known(self, question).astype(dtype or self.dtype.numpy, copy=False)


UFUNCS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "power": "pow",
    "float_power": "pow", "absolute": "abs", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "equal": "eq", "not_equal": "ne", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not", "rint": "round",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "conjugate": "conj",
}  # fmt: skip


# NumPy's functions that mean the same as an op, once `axis` is called `dim`; std and var do not.
_SAME_NAME = (
    "sum", "prod", "mean", "any", "all", "argmax", "argmin", "where", "stack", "einsum", "cumsum", "cumprod", "reshape",
    "flip", "roll", "tril", "triu", "tensordot", "outer", "dot", "broadcast_to", "squeeze", "swapaxes", "zeros_like",
    "ones_like", "tile",
)  # fmt: skip
NUMPY_FUNCTIONS = {name: name for name in _SAME_NAME} | {
    "concatenate": "cat", "max": "amax", "min": "amin", "amax": "amax", "amin": "amin", "transpose": "permute",
    "clip": "clamp", "expand_dims": "unsqueeze", "moveaxis": "movedim",
}  # fmt: skip


def _ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """np.exp(x) and array + x: the op of the same meaning."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method != "__call__" or options or name not in REGISTRY:
        raise TraceError(
            f"numpy.{ufunc.__name__} on a traced tensor: use smelt.ops{suggest(name, REGISTRY)}", current_location()
        )
    return REGISTRY[name](*inputs)


def _array_function(self: Value, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """np.sum(x, axis=0): the op of the same meaning, where there is one."""
    name = NUMPY_FUNCTIONS.get(function.__name__)
    if name is None or set(kwargs) - {"axis", "keepdims", *REGISTRY[name].by_name}:
        raise TraceError(
            f"numpy.{function.__name__} on a traced tensor: use smelt.ops, which has no op of that name and arguments",
            current_location(),
        )
    renamed = {NUMPY_NAMES.get(key, key): value for key, value in kwargs.items()}
    return REGISTRY[name](*args, **renamed)


def _length(self: Value) -> Any:
    if not self.shape:
        raise TraceError("len() of a 0-dim tensor", current_location())
    size = self.shape[0]
    if not isinstance(size, int):
        raise TraceError(f"len() of a tensor whose first size {size} is symbolic: use x.shape[0]", current_location())
    return size


def _iterate(self: Value) -> Iterator[Value]:
    return iter([self[position] for position in range(len(self))])  # type: ignore[arg-type]


def _backwards(self: Value, dim: int, item: slice) -> Any:
    """A slice with a negative step: the same elements forwards, flipped."""
    size = self.shape[dim]
    if isinstance(size, int):
        places = range(size)[item]
        low, high = (places[-1], places[0] + 1) if places else (0, 0)
    elif item.start is None and item.stop is None and item.step == -1:
        low, high = None, None
    else:
        raise ArgumentError(f"a slice with a negative step along the symbolic size {size}", current_location())
    return REGISTRY["flip"](REGISTRY["slice"](self, dim, low, high, -item.step), (dim,))


def _get_item(self: Value, index: Any) -> Any:
    """NumPy's indexing: integers, slices, None, ..., and index tensors."""
    items = index if isinstance(index, tuple) else (index,)
    consumed = builtins.sum(1 for item in items if item is not None and item is not Ellipsis)
    if consumed > self.ndim:
        raise ArgumentError(f"{consumed} indices for a tensor of {self.ndim} dimensions", current_location())
    ellipses = builtins.sum(1 for item in items if item is Ellipsis)
    if ellipses > 1:
        raise ArgumentError("an index can have a single ellipsis", current_location())
    if not ellipses:
        items = (*items, Ellipsis)
    result = self
    dim = 0
    tensors: dict[int, Any] = {}
    for item in items:
        if item is Ellipsis:
            rest = items[[position for position, entry in enumerate(items) if entry is Ellipsis][0] + 1 :]
            dim = result.ndim - builtins.sum(1 for entry in rest if entry is not None)
        elif item is None:
            result = REGISTRY["unsqueeze"](result, dim)
            dim += 1
        elif isinstance(item, (bool, np.bool_)):
            raise ArgumentError(
                "indexing with a bool is not supported: its result has no fixed shape", current_location()
            )
        elif isinstance(item, (int, np.integer)):
            result = REGISTRY["select"](result, dim, int(item))
        elif isinstance(item, slice):
            step = 1 if item.step is None else item.step
            if step < 0:
                result = _backwards(result, dim, item)
            elif item != slice(None):
                result = REGISTRY["slice"](result, dim, item.start, item.stop, step)
            dim += 1
        else:
            tensors[dim] = item
            dim += 1
    if tensors:
        indices = [tensors.get(position) for position in range(max(tensors) + 1)]
        result = REGISTRY["index"](result, indices)
    return result


def _set_item(self: Value, index: Any, value: Any) -> None:
    raise TraceError(
        "a traced tensor is never changed in place. Use smelt.ops.where, index_put, slice_scatter or select_scatter, "
        "which return a new one",
        current_location(),
        f"the tensor is {self!r}",
    )


def _rounded(self: Value, digits: int | None = None) -> Any:
    return REGISTRY["round"](self, decimals=digits or 0)


def _to(self: Value, target: Any) -> Any:
    return REGISTRY["cast"](self.in_full(), target.dtype if isinstance(target, Value) else target)


def _transposed(self: Value) -> Any:
    return REGISTRY["permute"](self, tuple(reversed(range(self.ndim))))


def _dim_size(self: Value, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.shape[dim]


def install() -> None:
    """Give `Value` its operators and methods."""
    table: dict[str, Any] = {
        "__getattr__": _method,
        "__bool__": _bool,
        "__float__": lambda self: float(_number(self)),
        "__int__": lambda self: int(_number(self)),
        "__complex__": lambda self: complex(_number(self)),
        "__index__": _number,
        "__array__": _array,
        "__array_ufunc__": _ufunc,
        "__array_function__": _array_function,
        "__len__": _length,
        "__iter__": _iterate,
        "__getitem__": _get_item,
        "__setitem__": _set_item,
        "__round__": _rounded,
        "__hash__": object.__hash__,
        "item": _number,
        "numpy": _array,
        "tolist": lambda self: _array(self).tolist(),
        "to": _to,
        "astype": _to,
        "T": property(_transposed),
        "mT": property(lambda self: REGISTRY["transpose"](self, -2, -1)),
        "size": _dim_size,
        "dim": lambda self: self.ndim,
        "numel": lambda self: self.type.numel,
    }
    for method, name in BINARY.items():
        table[f"__{method}__"] = _binary(name)
        table[f"__r{method}__"] = _reflected(name)
    for method, name in COMPARE.items():
        table[f"__{method}__"] = _binary(name)
    for method, name in UNARY.items():
        table[f"__{method}__"] = _unary(name)
    for name, member in table.items():
        setattr(Value, name, member)
