"""Operators and methods of the traced tensors `Value` and `Array`, taken from the op registry.

Every op whose first parameter is called `self` is a method. Operators of a `Value`, which bodies of ops and derivative
rules use, are the ops of their names, with PyTorch's promotion. Operators of an `Array`, which a traced function of
NumPy arrays sees, are NumPy's ufuncs (promotion.py). A request for data that only the compiled code has (a truth value,
a number, an array) is an error that names the line.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from typing import Any

import numpy as np

from .ir.errors import ArgumentError, DTypeError, ShapeError, TraceError, suggest
from .ir.graph import Array, Handle, Value, current_location, plain
from .ir.open_size import expression, open_size
from .ir.process import process
from .ir.types import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from .numpy_calls import NEED_NOTHING, ONLY_NUMPYS, as_method, call_function, call_ufunc
from .ops.define import REGISTRY
from .ops.handles import as_handles
from .ops.opdef import OpDef
from .ops.open_array import OpenArray
from .ops.registry import holds
from .ops.shapes import equal
from .promotion import apply_ufunc

BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
CASTS = {
    "float": f32, "double": f64, "half": f16, "bfloat16": bf16, "bool": bool_, "byte": u8, "char": i8, "short": i16,
    "int": i32, "long": i64,
}  # fmt: skip
UNARY = {"neg": "neg", "pos": "positive", "invert": "bitwise_not", "abs": "abs"}

NUMPY_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift, "divmod": np.divmod,
}  # fmt: skip
NUMPY_COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
NUMPY_UNARY = {"neg": np.negative, "pos": np.positive, "invert": np.invert, "abs": np.absolute}


# Operators skip OpDef.bind, since their arguments are known: they are most of the calls in a program.


def _binary(name: str) -> Callable[[Value, Any], Any]:
    op, left, right, rest = _operands(name)

    def operator(self: Value, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return op.apply({left: self, right: other, **rest})

    return operator


def _numpys(ufunc: np.ufunc) -> Callable[[Value, Any], Any]:
    def operator(self: Value, other: Any) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else apply_ufunc(ufunc, self, other)

    return operator


def _numpys_alone(self: Value, ufunc: np.ufunc) -> Any:
    return apply_ufunc(ufunc, self)


def _numpys_reflected(ufunc: np.ufunc) -> Callable[[Value, Any], Any]:
    def operator(self: Value, other: Any) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else apply_ufunc(ufunc, other, self)

    return operator


def _comparison(name: str) -> Callable[[Value, Any], Any]:
    """Return a comparison operator; with a number out of an integer type's range its result is constant, as in
    NumPy."""
    compare = _binary(name)

    def operator(self: Value, other: Any) -> Any:
        other = expression(other)
        if isinstance(other, (int, np.integer)) and self.dtype.is_integer and not holds(self.dtype, other):
            return REGISTRY["full_like"](
                self, name in (("lt", "le", "ne") if other > 0 else ("gt", "ge", "ne")), dtype=bool_
            )
        return compare(self, other)

    return operator


def _reflected(name: str) -> Callable[[Value, Any], Any]:
    op, left, right, rest = _operands(name)
    return lambda self, other: op.apply({left: other, right: self, **rest})


def _operands(name: str) -> tuple[OpDef, str, str, dict[str, Any]]:
    """Return an op, the names of its two operands, and the defaults of its other parameters."""
    op = REGISTRY[name]
    left, right, *others = op.parameters
    return op, left.name, right.name, {parameter.name: parameter.default for parameter in others}


def _unary(name: str) -> Callable[[Value], Any]:
    op = REGISTRY[name]
    return lambda self: op.apply(op.bind((self,), {}))


# Methods that change an array in place in NumPy, and their alternatives.
IN_PLACE = {
    "fill": "x = smelt.ops.full_like(x, value)", "sort": "x = np.sort(x)",
    "partition": "x = np.partition(x, kth)", "put": "x = smelt.ops.index_put(x, [index], values)",
    "itemset": "x = smelt.ops.index_put(x, [index], values)", "resize": "x = x.reshape(shape)",
    "setfield": "x = x.astype(dtype)", "setflags": "set the flags of the array",
    "byteswap": "swap the bytes of the array before the call",
}  # fmt: skip


def _changed_in_place(self: Value, name: str) -> Any:
    raise TraceError(
        f"x.{name}() changes an array in place in NumPy; a traced tensor is never changed. Instead: {IN_PLACE[name]}",
        current_location(),
        f"the tensor is {self!r}",
    )


def _method(self: Value, name: str) -> Any:
    if name in IN_PLACE:
        return lambda *args, **named: _changed_in_place(self, name)
    op = REGISTRY.get(name)
    if op is not None and op.parameters and op.parameters[0].name == "self":
        function = getattr(np, name, None)
        return partial(op, self) if function is None else partial(_as_in_numpy, self, op, function)
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"a traced tensor has no {name!r}{suggest(name, REGISTRY)}")


def _as_in_numpy(self: Value, op: OpDef, function: Any, *args: Any, **named: Any) -> Any:
    """Return a method that is NumPy's function if it is called with arguments of NumPy's names, as in x.sum(axis=0)."""
    if (not args and not named and op.name in NEED_NOTHING) or not named.keys().isdisjoint(ONLY_NUMPYS):
        return function(self, *args, **named)
    return op(self, *args, **named)


# Computes the array of a value that depends on no parameter; set by the public face, which knows the back ends.
_evaluators: list[Callable[[Value], np.ndarray | None]] = process.keep("evaluator of known tensors", [])


def set_evaluator(evaluate: Callable[[Value], np.ndarray | None]) -> None:
    _evaluators[:] = [evaluate]


def _known(self: Value, question: str) -> np.ndarray:
    """Return the array of a value that is known while tracing; for any other, raise an error with the question."""
    array = _evaluators[0](plain(self)) if _evaluators else None
    if array is None:
        if not self.has_parameters():
            question = (
                "random numbers are only drawn when compiled code runs. Return the tensor from a compiled function, "
                "whose result is an array: smelt.jit(lambda: smelt.ops.rand((3,)))()"
            )
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


def _count(self: Value) -> Any:
    question = (
        "a traced tensor cannot become a Python number while tracing. What Python counts with (range, a size, an index "
        "of a list) has to be a static argument: smelt.jit(function, static_argnames=...)"
    )
    return _known(self, question).item()


def _array(self: Value, dtype: Any = None, copy: Any = None) -> np.ndarray:
    question = "a traced tensor cannot become a NumPy array while tracing; use smelt.ops instead of numpy functions"
    return _known(self, question).astype(dtype or self.dtype.numpy, copy=False)


def _length(self: Value) -> Any:
    if not self.type.shape:
        raise TraceError("len() of a 0-dim tensor", current_location())
    size = self.type.shape[0]
    return size if isinstance(size, int) else size.__index__()  # Python accepts only an int from __len__


def _iterate(self: Value) -> Iterator[Value]:
    return iter([self[position] for position in range(len(self))])  # type: ignore[arg-type]


def _backwards(self: Value, dim: int, item: slice) -> Any:
    """Return a slice with a negative step as a forward slice, then flipped."""
    size = self.type.shape[dim]
    if isinstance(size, int):
        places = range(size)[item]
        low, high = (places[-1], places[0] + 1) if places else (0, 0)
    elif item.start is None and item.stop is None and item.step == -1:
        low, high = None, None
    else:
        raise ArgumentError(f"a slice with a negative step along the symbolic size {size}", current_location())
    return REGISTRY["flip"](REGISTRY["slice"](self, dim, low, high, -item.step), (dim,))


def _is_mask(item: Any) -> bool:
    if isinstance(item, Value):
        return item.dtype is bool_ and item.ndim > 0
    return isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim > 0


def _dims_of(item: Any) -> int:
    """Return the number of dims that an index entry consumes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if _is_mask(item) else 1


def _listed(item: Any) -> Any:
    """Return a list of numbers as an array; an empty one is of integers, as in NumPy."""
    if item.__class__ is not list:
        return item
    if any(isinstance(entry, Value) for entry in item):
        return item
    return np.asarray(item) if item else np.zeros(0, np.int64)


def _places(items: tuple, shape: tuple) -> tuple:
    """Return an index with bool arrays replaced by the positions of their true elements."""
    items = tuple(map(_listed, items))
    if not any(map(_is_mask, items)):
        return items
    found: list[Any] = []
    dim = 0
    for at, item in enumerate(items):
        if item is Ellipsis:
            dim = len(shape) - builtins.sum(map(_dims_of, items[at + 1 :]))
        if _is_mask(item):
            sizes = shape[dim : dim + item.ndim]
            if len(sizes) < item.ndim or not all(map(equal, item.shape, sizes)):
                raise ShapeError(f"a bool index {list(item.shape)} for dims {list(sizes)}", current_location())
            found += _positions(item)
        else:
            found.append(item)
        dim += _dims_of(item)
    return tuple(found)


def _positions(mask: Any) -> Any:
    """Return the positions of the true elements along each dim, as many as data decide if the mask is traced."""
    if not isinstance(mask, Value):
        return np.nonzero(mask)
    found = REGISTRY["nonzero"](mask)
    return [REGISTRY["select"](found, 1, dim) for dim in range(mask.ndim)]


def _get_item(self: Value, index: Any) -> Any:
    """NumPy's indexing: integers, slices, None, ..., and index tensors."""
    items = tuple(map(_entry, index if isinstance(index, tuple) else (index,)))
    if len(items) == 1 and isinstance(items[0], Value) and _is_mask(items[0]):
        return REGISTRY["index"](self, items)
    for item in items:
        if item.__class__ is list or item.__class__ is np.ndarray or isinstance(item, Value):
            items = _places(items, self.type.shape)
            break
    consumed = ellipses = 0
    for item in items:
        if item is Ellipsis:
            ellipses += 1
        elif item is not None:
            consumed += 1
    if consumed > self.ndim:
        raise ArgumentError(f"{consumed} indices for a tensor of {self.ndim} dimensions", current_location())
    if ellipses > 1:
        raise ArgumentError("an index can have a single ellipsis", current_location())
    result = self
    dim = 0
    tensors: dict[int, Any] = {}
    for item in items:
        if item.__class__ is slice:
            step = 1 if item.step is None else item.step
            if step < 0:
                result = _backwards(result, dim, item)
            elif item != slice(None):
                result = REGISTRY["slice"](result, dim, item.start, item.stop, step)
            dim += 1
        elif item is Ellipsis:
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
        else:
            tensors[dim] = item
            dim += 1
    if not tensors:
        return result
    indices = [tensors.get(position) for position in range(max(tensors) + 1)]
    chosen = REGISTRY["index"](result, indices)
    added = chosen.ndim - (result.ndim - len(tensors))
    if _are_apart(items) and max(tensors) - min(tensors) + 1 == len(tensors):
        # The op sees adjacent index tensors: the integers between them are gone.
        first = min(tensors)
        return REGISTRY["movedim"](chosen, tuple(range(first, first + added)), tuple(range(added)))
    return chosen


def _entry(item: Any) -> Any:
    """Return an index entry with open sizes as expressions and open arrays as tensors."""
    return item.value if type(item) is OpenArray else expression(item)


def _are_apart(items: tuple) -> bool:
    """Whether integers and index tensors are not adjacent: NumPy then puts the dims that they choose in front."""
    choosing = [
        position
        for position, item in enumerate(items)
        if item is not None and item is not Ellipsis and not isinstance(item, slice)
    ]
    return choosing[-1] - choosing[0] + 1 > len(choosing)


def _set_item(self: Value, index: Any, value: Any) -> None:
    raise TraceError(
        "a traced tensor is never changed in place. Use smelt.ops.where, index_put, slice_scatter or select_scatter, "
        "which return a new one",
        current_location(),
        f"the tensor is {self!r}",
    )


def _rounded(self: Value, decimals: int | None = None) -> Any:
    return REGISTRY["round"](self, decimals=decimals or 0)


def _to(self: Value, target: Any) -> Any:
    return REGISTRY["cast"](self, target.dtype if isinstance(target, Value) else target)


def _astype(
    self: Value, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Any:
    """Convert as NumPy does. `copy` has no effect, since tensors are immutable."""
    result = _to(self, f64 if dtype is None else dtype)
    if not np.can_cast(self.dtype.numpy, result.dtype.numpy, casting):  # type: ignore[arg-type]
        raise DTypeError(f"{self.dtype} to {result.dtype} is no conversion of casting={casting!r}", current_location())
    return result


def _view(self: Value, *size: Any, **named: Any) -> Any:
    """Reshape, as in PyTorch; or read the bits as another type, as in NumPy."""
    if "dtype" in named or (len(size) == 1 and isinstance(size[0], (type, str, np.dtype, DType))):
        return REGISTRY["view_dtype"](self, *size, **named)
    return REGISTRY["view"](self, *size, **named)


def _format(self: Value, form: str) -> str:
    question = (
        "a traced tensor has no digits to show while tracing: format what the compiled function returns, or leave the "
        "format away, which shows the type"
    )
    return format(_known(self, question).item(), form) if form else str(self)


def _transposed(self: Value) -> Any:
    return REGISTRY["permute"](self, tuple(reversed(range(self.ndim))))


def _transpose(self: Value, *dims: Any, **named: Any) -> Any:
    """Swap two dims as in PyTorch; without dims, reverse all of them as in NumPy."""
    return REGISTRY["transpose"](self, *dims, **named) if dims or named else _transposed(self)


def _divmod(left: Any, right: Any) -> tuple[Any, Any]:
    return REGISTRY["floor_divide"](left, right), REGISTRY["remainder"](left, right)


def _searchsorted(self: Value, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Search this sorted sequence, as in NumPy. (The op's `self`, as in PyTorch, is the searched values.)"""
    return REGISTRY["searchsorted"](self, v, side=side, sorter=sorter)


def _trace(self: Value, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return REGISTRY["sum"](REGISTRY["diagonal"](self, offset, axis1, axis2), -1, dtype=dtype)


def _numel(self: Value) -> Any:
    return _dim(self, self.type.numel)


def _dim(self: Value, size: Any) -> Any:
    """Return a size of a tensor: an `OpenSize` for user code, an expression for smelt's."""
    return open_size(size) if isinstance(self, Handle) else size


def _of_handles(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator of values that returns handles, as calls of ops do."""
    return lambda *operands: as_handles(operator(*operands))


def install() -> None:
    """Give `Value` its operators and methods."""
    table: dict[str, Any] = {
        "__getattr__": _method,
        "__bool__": _bool,
        "__float__": lambda self: float(_number(self)),
        "__int__": lambda self: int(_number(self)),
        "__complex__": lambda self: complex(_number(self)),
        "__index__": _count,
        "__array__": _array,
        "__array_ufunc__": call_ufunc,
        "__array_function__": call_function,
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
        "astype": _astype,
        "view": _view,
        "round": _rounded,
        "clip": as_method(np.clip),
        "dot": as_method(np.dot),
        "argpartition": as_method(np.argpartition),
        "__format__": _format,
        "T": property(_transposed),
        "transpose": _transpose,
        "real": property(lambda self: REGISTRY["real"](self)),
        "imag": property(lambda self: REGISTRY["imag"](self)),
        "__divmod__": _divmod,
        "__rdivmod__": lambda self, other: _divmod(other, self),
        "mT": property(lambda self: REGISTRY["transpose"](self, -2, -1)),
        "size": property(_numel),
        "itemsize": property(lambda self: self.dtype.bytes),
        "nbytes": property(lambda self: _dim(self, self.type.nbytes)),
        "conjugate": lambda self: REGISTRY["conj"](self),
        "searchsorted": _searchsorted,
        "trace": _trace,
        "dim": lambda self: self.ndim,
        "numel": _numel,
    }
    for method, name in BINARY.items():
        table[f"__{method}__"] = _binary(name)
        table[f"__r{method}__"] = _reflected(name)
    for method, name in COMPARE.items():
        table[f"__{method}__"] = _comparison(name)
    for method, name in UNARY.items():
        table[f"__{method}__"] = _unary(name)
    for method, wanted in CASTS.items():
        table[method] = partialmethod(_to, wanted)
    for name, member in table.items():
        setattr(Value, name, member)
    for method in (*BINARY, *(f"r{method}" for method in BINARY), *COMPARE, *UNARY):
        setattr(Handle, f"__{method}__", _of_handles(table[f"__{method}__"]))
    for method, ufunc in NUMPY_BINARY.items():
        setattr(Array, f"__{method}__", _numpys(ufunc))
        setattr(Array, f"__r{method}__", _numpys_reflected(ufunc))
    for method, ufunc in NUMPY_COMPARE.items():
        setattr(Array, f"__{method}__", _numpys(ufunc))
    for method, ufunc in NUMPY_UNARY.items():
        setattr(Array, f"__{method}__", partialmethod(_numpys_alone, ufunc))
    Array.round = as_method(np.round)  # type: ignore[attr-defined]
    Array.nonzero = as_method(np.nonzero)  # type: ignore[attr-defined]
    Array.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]
