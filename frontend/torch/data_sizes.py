"""Nodes whose result has a size that data decide: each is a step of its own, computed by smelt's code.

PyTorch's symbol for such a size is bound by the tensor that the step makes, as by those of PyTorch's own nodes: later
steps read it from there. In the step smelt's program has parts of its own (parts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from ..ir.asked import Asked
from ..ir.graph import Value, plain
from ..ir.types import bf16
from ..jit import Jitted, jit
from .importer import Importer, Unsupported, result_tensors

# Integers that have the bits of a type that NumPy lacks.
_BITS = {torch.bfloat16: (torch.int16, bf16.numpy)}


def decides(node: Node) -> bool:
    """Whether data decide a size of the node's results, and nothing else of them."""
    bindings = node.meta.get("unbacked_bindings")
    return bool(bindings) and all(isinstance(item, torch.Tensor) for item in result_tensors(node))


def check(importer: Importer, node: Node, lookup: Callable[[Node], Any]) -> None:
    """Raise Unsupported unless smelt's ops compute a node."""
    if any(not isinstance(item, torch.Tensor) for given in node.all_input_nodes for item in result_tensors(given)):
        raise Unsupported("the sizes of its results are data-dependent, and it takes a size")
    for tensor in (item for one in (node, *node.all_input_nodes) for item in result_tensors(one)):
        if tensor.device.type != "cpu":
            raise Unsupported(f"the sizes of its results are data-dependent, on {tensor.device}")
    with Asked({}):
        importer.call(node, lookup, is_apart=True)


def compiled(node: Node, eager_random: bool) -> Callable[..., Any]:
    """Return the function of a node on tensors: its compiled program."""
    given = node.all_input_nodes

    def function(*params: Value) -> Any:
        values = dict(zip(given, map(plain, params), strict=True))
        return Importer({}, eager_random).call(node, values.__getitem__, is_apart=True)

    program: Jitted = jit(function)
    program.name = str(node.target)
    program.reasons.warned = True  # the user did not write this function

    def run(*tensors: torch.Tensor) -> Any:
        results = program(*map(_array, tensors))
        return tuple(map(_tensor, results)) if isinstance(results, tuple) else _tensor(results)

    return run


def _array(tensor: torch.Tensor) -> np.ndarray:
    """Return an array in a tensor's memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype in _BITS:
        bits, kind = _BITS[tensor.dtype]
        return tensor.view(bits).numpy().view(kind)
    return tensor.numpy()


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor in an array's memory."""
    for dtype, (_, kind) in _BITS.items():
        if array.dtype == kind:
            return torch.from_numpy(array.view(np.int16)).view(dtype)
    return torch.from_numpy(array)
