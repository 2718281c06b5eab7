"""Nodes of an FX graph as op calls: aten's names are the names of smelt's ops, so most nodes need no rule.

A node is bound to aten's schema, its arguments become smelt's (values, sizes, element types), and the op of that name
is called with them. rules.py has the exceptions. A node whose op smelt lacks or refuses raises `Unsupported`, with the
reason.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from ..ir.errors import SmeltError
from ..ir.graph import Location, Value, located
from ..ir.proofs import substitute
from ..ir.symbolic import Dim, SizeNeeded, Symbol, UndecidedSize
from ..ops.define import REGISTRY
from ..ops.pointwise import convert
from . import gpu
from .rules import RANDOM, RULES, apply
from .sizes import UnknownSize, dim_of
from .types import DTYPE, refusal

# Those of the last are named in smelt as there; ATen's ops of these names take quantised tensors, which smelt has not.
NAMESPACES = ("aten", "prims", "quantized_decomposed")
# Arguments about layout and device, which are ignored: tensors are row-major, all of a program on one device.
PLACEMENT = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad"}


class Unsupported(Exception):
    """The reason for which smelt does not compile a node."""


def op_name(node: Node) -> str:
    """Return the name of a node's target, as in receipts."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", str(target))


def result_tensors(node: Node) -> list[Any]:
    """Return the fake tensors, symbolic sizes or None that tracing recorded for a node's results."""
    found = node.meta.get("val")
    return list(found) if isinstance(found, (tuple, list)) else [found]


def device_of(node: Node) -> torch.device | None:
    """Return the device of a node's first tensor result."""
    return next((item.device for item in result_tensors(node) if isinstance(item, torch.Tensor)), None)


def check_device(node: Node) -> None:
    """Raise Unsupported unless all tensors of a node are on one device, for which smelt can compile."""
    tensors = [item for one in (node, *node.all_input_nodes) for item in result_tensors(one)]
    devices = dict.fromkeys(str(item.device) for item in tensors if isinstance(item, torch.Tensor))
    if len(devices) > 1:
        raise Unsupported(f"its tensors are on {' and '.join(sorted(devices))}")
    if devices and "cpu" not in devices and (reason := gpu.refusal()):
        raise Unsupported(reason)


def extents_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the sizes, strides and offset of a tensor. A tensor that is not strided has no strides."""
    if tensor.layout is not torch.strided:
        return tuple(tensor.shape)
    return (*tensor.shape, *tensor.stride(), tensor.storage_offset())


class Importer:
    """Calls smelt's ops for nodes. `pinned` maps symbols to known sizes, or to other expressions."""

    def __init__(self, pinned: Mapping[Symbol, Dim], eager_random: bool):
        self.pinned = dict(pinned)
        self.eager_random = eager_random

    def size(self, size: Any) -> Dim:
        found = dim_of(size)
        return found if isinstance(found, int) or not self.pinned else substitute(found, self.pinned)

    def call(self, node: Node, lookup: Callable[[Node], Any], is_apart: bool = False) -> Any:
        """Return the results of a node: a value, or a tuple of values. is_apart: it is a program of its own, so that
        data may decide their sizes."""
        if node.target is operator.getitem:
            return lookup(node.args[0])[node.args[1]]  # type: ignore[arg-type, index]
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported(f"{op_name(node)} is not an aten op")
        if target.namespace not in NAMESPACES:
            raise Unsupported(f"smelt has no ops of {target.namespace}")
        if node.meta.get("unbacked_bindings") and not is_apart:
            raise Unsupported("the sizes of its results are data-dependent")
        for tensor in result_tensors(node):
            if isinstance(tensor, torch.Tensor) and (reason := refusal(tensor)):
                raise Unsupported(reason)
        check_device(node)
        name = target._schema.name.removeprefix("aten::").removeprefix("quantized_decomposed::")
        if self.eager_random and name in RANDOM:
            raise Unsupported("the option rng leaves random numbers to PyTorch")
        with located(location_of(node)):
            try:
                result = as_expected(node, self._apply(name, node, lookup))
            except (UndecidedSize, SizeNeeded):
                raise
            except Unsupported:
                raise
            except Exception as error:
                raise Unsupported(reason_of(error)) from error
        return result

    def _apply(self, name: str, node: Node, lookup: Callable[[Node], Any]) -> Any:
        arguments = self._arguments(node, lookup)
        rule = RULES.get(name)
        if rule is not None:
            result = rule(node, arguments)
            if result is NotImplemented:
                raise Unsupported(f"smelt's {name} does not support these arguments")
            return result
        defn = REGISTRY.get(name)
        if defn is None or not defn.is_own:  # a user's op of this name may mean something else
            raise Unsupported("smelt has no such op")
        kept: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in defn.by_name:
                kept[key] = value
            elif key not in PLACEMENT and not _is_default(node, key, value):
                raise Unsupported(f"smelt's {name} has no argument {key}")
        if "dtype" in defn.by_name and kept.get("dtype") is None and not defn.tensors:
            # Without operands the result has PyTorch's default type.
            kept["dtype"] = DTYPE[node.meta["val"].dtype]
        return apply(name, **kept)

    def _arguments(self, node: Node, lookup: Callable[[Node], Any]) -> dict[str, Any]:
        schema = node.target._schema.arguments  # type: ignore[union-attr]
        found = {argument.name: self._convert(item, lookup) for argument, item in zip(schema, node.args)}
        found.update((name, self._convert(item, lookup)) for name, item in node.kwargs.items())
        return found

    def _convert(self, item: Any, lookup: Callable[[Node], Any]) -> Any:
        if isinstance(item, Node):
            return lookup(item)
        if isinstance(item, (list, tuple)):
            return tuple(self._convert(entry, lookup) for entry in item)
        if isinstance(item, torch.dtype):
            if item not in DTYPE:
                raise Unsupported(f"smelt has no {item}")
            return DTYPE[item]
        if isinstance(item, torch.SymInt):
            return self.size(item)
        if isinstance(item, (torch.SymFloat, torch.SymBool)):
            raise Unsupported("a number that is not known while compiling")
        return item


def reason_of(error: Exception) -> str:
    """Return the reason of a fallback to PyTorch as one line, with the type of an error that is not smelt's own."""
    text = str(error).partition("\n")[0]
    if isinstance(error, (SmeltError, UnknownSize, Unsupported)):
        return text
    return f"an error in smelt, {type(error).__name__}{': ' * bool(text)}{text}"


def as_expected(node: Node, result: Any) -> Any:
    """Return smelt's result, checked against the shape and type of PyTorch's tracing, on which later nodes rely.

    Tracing differs from PyTorch's own kernels in one respect: in the type of statistics of f16 and bf16 norms
    (norms.py).
    """
    values = result if isinstance(result, tuple) else (result,)
    expected = result_tensors(node)
    if len(values) != len(expected):
        raise Unsupported(f"smelt's op has {len(values)} results, PyTorch's {len(expected)}")
    found = tuple(map(_expected, values, expected))
    return found if isinstance(result, tuple) else found[0]


def _expected(value: Any, tensor: Any) -> Any:
    if not isinstance(value, Value) or not isinstance(tensor, torch.Tensor):
        return value
    if value.ndim != tensor.ndim:
        raise Unsupported(f"the result of smelt's op has {value.ndim} dimensions, PyTorch's {tensor.ndim}")
    # Equal open sizes may be spelled differently: they are compared once they are numbers (native.py).
    sizes = zip(value.shape, tensor.shape)
    if any(isinstance(own, int) and isinstance(other, int) and own != other for own, other in sizes):
        raise Unsupported(f"the result of smelt's op has shape {list(value.shape)}, PyTorch's {list(tensor.shape)}")
    wanted = DTYPE[tensor.dtype]
    if value.dtype is wanted:
        return value
    if value.dtype.is_float and wanted.is_float and wanted.name != "f64":  # f64: more digits than computed
        return convert(value, wanted)
    raise Unsupported(f"the result of smelt's op is {value.dtype}, PyTorch's {wanted}")


def _is_default(node: Node, name: str, value: Any) -> bool:
    for argument in node.target._schema.arguments:  # type: ignore[union-attr]
        if argument.name == name:
            return value is None or (argument.has_default_value() and argument.default_value == value)
    return False


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location_of(node: Node) -> Location | None:
    """Return the user's line that a node comes from."""
    found = _FRAME.findall(node.meta.get("stack_trace") or "")
    return Location(found[-1][0], int(found[-1][1])) if found else None
