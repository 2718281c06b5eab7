"""Corrects the traced type of statistics of f16 and bf16 norms, which PyTorch's tracing gives the input's type.

PyTorch's CPU kernels keep them in the type of the parameters: f32 if those are f32, as under autocast. A gradient
computed from rounded statistics is off by the rounding of the mean, so the traced types are corrected before the graph
is split into forward and backward.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

# Positions of a norm's parameters: the first that is given decides the type.
PARAMETERS = {
    "native_layer_norm": (2, 3),
    "native_group_norm": (1, 2),
    "native_batch_norm": (1, 2, 3),
    "_native_batch_norm_legit": (1, 2),
    "_native_batch_norm_legit_functional": (1, 2, 3),
}


def _name(node: Node) -> str:
    target: Any = node.target
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""


def _copies(node: Node) -> Iterator[Node]:
    """Yield a node and its copies; raise LookupError if anything but a norm's gradient uses them."""
    yield node
    for user in node.users:
        if _name(user) in ("detach", "alias"):
            yield from _copies(user)
        elif not _name(user).endswith("_norm_backward"):
            raise LookupError(user.name)


def correct_statistics(graph: Graph) -> None:
    """Give the mean and the inverse deviation of each norm the type that PyTorch's own kernels give them.

    Statistics with other readers than the norm's gradient, such as the caller, keep their traced type.
    """
    for node in graph.nodes:
        parameters = [node.args[place] for place in PARAMETERS.get(_name(node), ())]
        wanted = next((item.meta["val"].dtype for item in parameters if isinstance(item, Node)), None)
        if wanted is None or node.meta["val"][0].device.type != "cpu":
            continue
        results = list(node.meta["val"])
        for user in node.users:
            number = user.args[1] if user.target is operator.getitem else 0
            if number not in (1, 2):
                continue
            try:
                same = list(_copies(user))
            except LookupError:
                continue
            results[number] = results[number].to(wanted)
            for copy in same:
                copy.meta["val"] = results[number]
        node.meta["val"] = tuple(results)
