"""The statistics of norms of f16 and bf16, which PyTorch's tracing says are of the input's type.

Its kernels on processors keep them in the type of the parameters: f32, if those are f32 as under autocast. A gradient
made of rounded ones is off by the rounding of the mean, so what was traced is put right before the graph is split into
forward and backward.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

# Where a norm has its parameters: the first that is given decides.
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
    """A node and all that only passes it on; a user of another kind than a norm's gradient ends in an error."""
    yield node
    for user in node.users:
        if _name(user) in ("detach", "alias"):
            yield from _copies(user)
        elif not _name(user).endswith("_norm_backward"):
            raise LookupError(user.name)


def correct_statistics(graph: Graph) -> None:
    """Give the mean and the inverse deviation of each norm the type that PyTorch's own kernels give them.

    Those that something else than the norm's gradient reads, the caller perhaps, stay what they were said to be.
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
