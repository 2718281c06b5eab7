"""torch.compile(backend="smelt") against eager: a spread of PyTorch's databases; `make parity-torch` runs all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from parity_torch.cases import subjects
from parity_torch.check import check
from torch._dynamo.backends.registry import lookup_backend, register_backend

# Ops that smelt compiles, ops that PyTorch runs, and mixtures; views, repeated and spread memory, random numbers,
# results of other types, lists of tensors, buffers that change.
SPREAD = [
    "add", "exp", "logaddexp", "clamp", "sum", "std_mean", "argmin", "norm.fro", "cumsum", "logcumsumexp", "median",
    "softmax",
    "view_as_complex", "as_strided.partial_views", "expand", "unfold", "diagonal_scatter", "index_put",
    "scatter_reduce.amax", "gather", "masked_select", "nonzero", "split", "cat", "meshgrid.list_of_tensors", "addmm",
    "einsum", "matmul", "baddbmm", "linalg.svd", "linalg.solve", "fft.rfft", "sort", "topk", "bernoulli", "rand_like",
    "empty_like", "nn.functional.dropout", "nn.functional.gelu", "nn.functional.layer_norm",
    "nn.functional.cross_entropy", "nn.functional.conv2d", "nn.functional.max_pool2d",
    "nn.functional.interpolate.bilinear", "nn.functional.embedding", "nn.BatchNorm2d", "nn.Linear",
    "nn.MultiheadAttention", "nn.LayerNorm", "tensor_split",
]  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_agrees_with_eager(name: str) -> None:
    subject = subjects()[name]
    (run,) = subject.samples(1)
    outcome = check(subject, run, "smelt")
    assert outcome["passed"] and not outcome.get("void"), outcome["why"]


def test_wrong_numbers_are_seen() -> None:
    """What the comparison is worth: a back end whose gradients alone are wrong does not pass."""

    @register_backend(name="wrong_gradients")
    def wrong(module: Any, example_inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def backward(graph: Any, inputs: Any) -> Any:
            return lambda *args: [None if item is None else item * 1.001 for item in graph.forward(*args)]

        return aot_autograd(fw_compiler=lambda graph, inputs: graph.forward, bw_compiler=backward)(
            module, example_inputs
        )

    assert lookup_backend("wrong_gradients") is not None
    subject = subjects()["exp"]
    (run,) = subject.samples(1)
    assert check(subject, run, "aot_eager")["passed"]
    assert "mismatch: result 1" in check(subject, run, "wrong_gradients")["why"]
    torch._dynamo.reset()
