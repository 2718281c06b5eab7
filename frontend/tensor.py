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
from .ops.define import REGISTRY

BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
UNARY = {"neg": "neg", "invert": "bitwise_not", "abs": "abs"}


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


def _no_bool(self: Value) -> bool:
    raise TraceError(
        "a Python branch on a traced tensor: its values are only known when the compiled code runs. "
        "Use smelt.ops.where(condition, a, b), or pass what the branch depends on as a static argument",
        current_location(),
        f"the condition is {self!r}",
    )


def _no_number(self: Value) -> Any:
    raise TraceError(
        "a traced tensor cannot become a Python number while tracing; keep computing with the tensor",
        current_location(),
        f"the tensor is {self!r}",
    )


def _no_array(self: Value, *_: Any, **__: Any) -> Any:
    raise TraceError(
        "a traced tensor cannot become a NumPy array while tracing; use smelt.ops instead of numpy functions",
        current_location(),
        f"the tensor is {self!r}",
    )


def _length(self: Value) -> Any:
    if not self.shape:
        raise TraceError("len() of a 0-dim tensor", current_location())
    size = self.shape[0]
    if not isinstance(size, int):
        raise TraceError(f"len() of a tensor whose first size {size} is symbolic: use x.shape[0]", current_location())
    return size


def _iterate(self: Value) -> Iterator[Value]:
    return iter([self[position] for position in range(len(self))])  # type: ignore[arg-type]


def _get_item(self: Value, index: Any) -> Any:
    """NumPy's indexing: integers, slices, None, ..., and index tensors."""
    items = index if isinstance(index, tuple) else (index,)
    consumed = builtins.sum(1 for item in items if item is not None and item is not Ellipsis)
    if consumed > self.ndim:
        raise ArgumentError(f"{consumed} indices for a tensor of {self.ndim} dimensions", current_location())
    if not builtins.any(item is Ellipsis for item in items):
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
            raise ArgumentError("indexing with a bool is not supported: its result has no fixed shape", current_location())
        elif isinstance(item, (int, np.integer)):
            result = REGISTRY["select"](result, dim, int(item))
        elif isinstance(item, slice):
            step = 1 if item.step is None else item.step
            if step < 0:
                raise ArgumentError("a slice with a negative step: use smelt.ops.flip", current_location())
            if item != slice(None):
                result = REGISTRY["slice"](result, dim, item.start, item.stop, step)
            dim += 1
        else:
            tensors[dim] = item
            dim += 1
    if tensors:
        indices = [tensors.get(position) for position in range(max(tensors) + 1)]
        result = REGISTRY["index"](result, indices)
    return result


def _to(self: Value, target: Any) -> Any:
    return REGISTRY["cast"](self, target.dtype if isinstance(target, Value) else target)


def _transposed(self: Value) -> Any:
    return REGISTRY["permute"](self, tuple(reversed(range(self.ndim))))


def _dim_size(self: Value, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.shape[dim]


def install() -> None:
    """Give `Value` its operators and methods."""
    table: dict[str, Any] = {
        "__getattr__": _method,
        "__bool__": _no_bool,
        "__float__": _no_number,
        "__int__": _no_number,
        "__complex__": _no_number,
        "__index__": _no_number,
        "__array__": _no_array,
        "__len__": _length,
        "__iter__": _iterate,
        "__getitem__": _get_item,
        "__hash__": object.__hash__,
        "item": _no_number,
        "numpy": _no_array,
        "tolist": _no_array,
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
