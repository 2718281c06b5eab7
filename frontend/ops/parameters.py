"""Parameters of ops: a Python signature read as a schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.graph import Value
from ..ir.types import DType
from .attributes import accepted

NUMBERS = (bool, int, float, complex)
_TENSOR = frozenset((Value, type(None)))
_TENSOR_OR_NUMBER = _TENSOR | set(NUMBERS)
_DTYPE = frozenset((DType, type(None)))
_ATTRIBUTE = frozenset((bool, int, float, str, type(None)))
REQUIRED = object()  # in place of a default


class Parameter:
    """One parameter of an op: its name, its default, and the arguments that it takes."""

    __slots__ = (
        "annotation",
        "default",
        "is_dtype",
        "is_list",
        "is_size",
        "is_spread",
        "is_tensor",
        "name",
        "positional",
        "scalars",
    )

    def __init__(self, name: str, annotation: str, default: Any, positional: bool):
        self.name = name
        self.default = default
        self.annotation = annotation
        self.positional = positional
        self.is_list = "[Tensor" in self.annotation
        self.is_tensor = "Tensor" in self.annotation
        self.scalars = "Scalar" in self.annotation
        self.is_size = self.annotation == "Size"
        self.is_spread = self.is_size or (self.is_list and annotation.endswith("]"))  # takes items one by one, too
        self.is_dtype = "DType" in self.annotation

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters; raise if its signature is no schema. It is ten times as fast as
    inspect.signature: `import smelt` does it for hundreds of functions."""
    code, annotations = function.__code__, function.__annotations__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise ValueError(f"{function.__name__}: an op has no *arguments or **arguments, the signature is the schema")
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in names:
        if annotations.get(name).__class__ is not str:
            raise ValueError(
                f"the annotation of {name} must be kept as text, it is the schema: "
                "start the module with `from __future__ import annotations` and annotate every parameter"
            )
    return names


def parameters_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield a function's parameters."""
    names, count, defaults = names_of(function), function.__code__.co_argcount, function.__defaults__ or ()
    known = dict(zip(names[count - len(defaults) :], defaults)) | (function.__kwdefaults__ or {})
    for position, name in enumerate(names):
        yield Parameter(name, function.__annotations__[name], known.get(name, REQUIRED), position < count)


def normal_classes(parameter: Parameter, numbers: bool) -> frozenset[type]:
    """Return the classes of arguments that need no conversion, as most do not."""
    if parameter.is_tensor:
        return _TENSOR_OR_NUMBER if numbers or parameter.scalars else _TENSOR
    if parameter.is_dtype:
        return _DTYPE
    allowed = accepted(parameter.annotation)
    return _ATTRIBUTE if allowed.is_open else _ATTRIBUTE & allowed.classes
