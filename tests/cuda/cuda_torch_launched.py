"""torch.compile for tensors on a GPU, on a stand-in for cuda.core whose memory is the host's.

Tensors are the CPU's, and PyTorch traces them as such. Then the graphs that smelt gets are made to say "cuda:0", and
what smelt asks of PyTorch there (memory, seeds) is made on the CPU: so results can be compared with eager's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import cuda_stand_in
import pytest
import smelt.torch
import torch
from cuda_stand_in import Gpu
from smelt.ir.errors import IndexRangeError
from smelt.torch import gpu
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

backend = sys.modules["smelt.torch.backend"]  # the package has a function of this name
THERE = torch.device("cuda", 0)
STREAM = 77
CAPTURING = 2000  # the stand-in's streams of graphs are numbered from here
PROGRAMS: list[Any] = []  # of a test


class OnHost(TorchFunctionMode):
    """What is wanted on the GPU is made on the CPU. Memory comes from a pool that hands out again what is free, as
    PyTorch's allocator for GPUs does."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.empty, torch.empty_strided) and kwargs.get("device") == THERE:
            size, strides = args if func is torch.empty_strided else ((args[0],), (1,))
            return self.empty(size, strides, kwargs["dtype"])

        def here(item: Any) -> Any:
            return torch.device("cpu") if isinstance(item, torch.device) else item

        return func(*map(here, args), **{name: here(item) for name, item in kwargs.items()})

    def empty(self, size: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        wanted = (1 + sum((count - 1) * step for count, step in zip(size, strides))) * dtype.itemsize
        wanted = 0 if 0 in size else wanted
        wanted += -wanted % 512
        for memory in self.pool:
            if memory.numel() == wanted + 512 and torch._C._storage_Use_Count(memory.untyped_storage()._cdata) <= 2:
                break
        else:
            memory = torch.empty(wanted + 512, dtype=torch.uint8)
            self.pool.append(memory)
        start = -memory.data_ptr() % 512
        return memory[start : start + wanted].view(dtype).as_strided(size, strides)


def say_cuda(module: GraphModule) -> None:
    for node in module.graph.nodes:
        for item in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(item, FakeTensor):
                item.fake_device = THERE


@pytest.fixture
def device() -> Iterator[Gpu]:
    compile_program = backend.compile_program
    on_host = OnHost()

    def compile_there(kind: str, options: Any, module: GraphModule, returned: int | None = None) -> Any:
        say_cuda(module)
        program = compile_program(kind, options, module, returned=returned)
        assert all(step.device == THERE for step in program.natives)
        PROGRAMS.append(program)

        def run(args: list[Any]) -> Any:
            with on_host:
                return program(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    torch._dynamo.reset()
    smelt.torch.reset_stats()
    PROGRAMS.clear()
    with cuda_stand_in.gpu() as found, ExitStack() as stack:
        found.everywhere = True
        stack.enter_context(patch.object(backend, "compile_program", compile_there))
        stack.enter_context(patch.object(gpu, "architecture", lambda place: "sm_80"))
        stack.enter_context(patch.object(gpu, "stream_handle", lambda place: STREAM))
        yield found
    torch._dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="smelt", fullgraph=True, options={"fallback": "error"}, **options)


def compare(function: Any, *inputs: torch.Tensor, **options: Any) -> Any:
    """Results of the compiled function, which are eager's, strides and all; also of later calls, which are shorter."""
    called, wanted = compiled(function, **options), function(*inputs)
    for _ in range(3):
        found = called(*inputs)
        for left, right in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
            torch.testing.assert_close(left, right, check_stride=True)
    return found


def test_results_and_strides(device: Gpu) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = nn.functional.gelu(x @ w)
        return y.softmax(1).t(), y.sum(0), y.transpose(0, 1), x, x.view(-1), y.expand(2, 6, 5)

    compare(function, torch.randn(6, 8), torch.randn(8, 5))
    direct = [item for item in device.noted("launch") if item[-1] < CAPTURING]
    assert {item[-1] for item in (*direct, *device.noted("graph"))} == {STREAM}
    assert not device.noted("allocate") and not device.noted("sync")  # all memory is PyTorch's, and nobody waits


@pytest.mark.parametrize(
    "x",
    [torch.randn(8, 6).t(), torch.randn(8, 12)[1:7, 3:11], torch.randn(49)[1:].view(6, 8), torch.randn(8).expand(6, 8)],
)
def test_layouts(device: Gpu, x: torch.Tensor) -> None:
    """Transposed, with gaps, at an address that is no multiple of 16, and repeated."""
    compare(lambda x: (x * 2 + 1, x.sum(1)), x)
    assert PROGRAMS[0].constants.specialized is not None or not x.is_contiguous()


def test_a_training_step(device: Gpu) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))
    x, labels = torch.randn(6, 8), torch.randint(5, (6,))

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), labels)

    wanted = torch.autograd.grad(loss(x, labels), tuple(model.parameters()))
    step = compiled(loss)
    for _ in range(3):
        found = torch.autograd.grad(step(x, labels), tuple(model.parameters()))
        for left, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(left, right)
    shown = smelt.torch.report()
    assert "(forward)" in shown and "(backward)" in shown and "native calls on cuda:0" in shown


def several(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x @ w).softmax(1)
    return y.sum(0), y * 2


def test_addresses_that_come_again(device: Gpu) -> None:
    """The launches of a call are captured on the second one, and are one launch of a graph from then on."""
    function = compiled(several)
    x, w = torch.randn(6, 8), torch.randn(8, 5)
    for number in range(6):
        x.copy_(torch.randn(6, 8))
        for left, right in zip(function(x, w), several(x, w), strict=True):
            torch.testing.assert_close(left, right)
        del left, right  # so that their memory is free again
        assert len(device.noted("graph")) == number
    assert len(device.noted("capture")) == 1
    (program,) = PROGRAMS
    assert program.constants.specialized is not None
    # Other addresses: one launch after the other, until they come again.
    launched = len(device.noted("launch"))
    other = torch.randn(6, 8)
    for number in range(3):
        for left, right in zip(function(other, w), several(other, w), strict=True):
            torch.testing.assert_close(left, right)
        del left, right
        assert len(device.noted("graph")) == 5 + number
    assert len(device.noted("launch")) >= launched + 2 and len(device.noted("capture")) == 2


def test_results_that_are_kept(device: Gpu) -> None:
    """A graph never writes where a result of an earlier call still lies."""
    function = compiled(several)
    w = torch.randn(8, 5)
    inputs = [torch.randn(6, 8) for _ in range(2)] * 3
    results = [function(x, w) for x in inputs]
    for x, found in zip(inputs, results, strict=True):
        for left, right in zip(found, several(x, w), strict=True):
            torch.testing.assert_close(left, right)


def test_a_training_loop_as_graphs(device: Gpu) -> None:
    """Forward and backward: the same tensors are made, in the same order, in each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 5))
    step = compiled(lambda x: model(x).square().mean())
    x, one = torch.randn(6, 8), torch.ones(())  # which autograd would take from another pool
    for _ in range(4):
        with torch.no_grad():
            for item in model.parameters():
                item.mul_(0.9)
        wanted = torch.autograd.grad(model(x).square().mean(), tuple(model.parameters()))
        found = torch.autograd.grad(step(x), tuple(model.parameters()), one)
        for left, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(left, right)
        del found, left
    assert len(PROGRAMS) == 2 and len(device.noted("capture")) == 2 and len(device.noted("graph")) >= 4


def test_an_optimizer_step(device: Gpu) -> None:
    """In the parameters' own memory: each element is read and written by one thread."""
    parameters = [torch.randn(33, requires_grad=True), torch.randn(4, 5, requires_grad=True)]
    others = [item.detach().clone().requires_grad_() for item in parameters]
    for item, other in zip(parameters, others):
        item.grad = torch.randn_like(item)
        other.grad = item.grad.clone()
    optimizers = [torch.optim.SGD(items, lr=0.1, momentum=0.9, foreach=True) for items in (parameters, others)]
    step = torch.compile(optimizers[0].step, backend="smelt", options={"fallback": "error"})
    addresses = [item.data_ptr() for item in parameters]
    for _ in range(3):
        step()
        optimizers[1].step()
    written = {item[4][0] for item in device.noted("launch")}  # the first buffer of each launch
    for item, other, address in zip(parameters, others, addresses):
        torch.testing.assert_close(item, other)
        assert item.data_ptr() == address and address in written


def test_sizes_that_vary(device: Gpu) -> None:
    function = compiled(lambda x: x.softmax(1) + x.amax(1, keepdim=True), dynamic=True)
    for rows, columns in ((3, 5), (4, 7), (9, 40)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(function(x), x.softmax(1) + x.amax(1, keepdim=True))
    assert smelt.torch.stats()["compilations"] == 1


def test_indices_are_checked(device: Gpu) -> None:
    table = torch.randn(6, 4)
    function = compiled(lambda i: table[i] * 2)
    torch.testing.assert_close(function(torch.tensor([0, 5])), table[[0, 5]] * 2)
    with pytest.raises(IndexRangeError, match="index 6 is out of range for a dimension of size 6"):
        function(torch.tensor([0, 6]))


def test_random_numbers(device: Gpu) -> None:
    drop = compiled(lambda x: nn.functional.dropout(x, 0.25))
    x = torch.ones(40, 50)
    torch.manual_seed(1)
    first, second = drop(x), drop(x)
    torch.manual_seed(1)
    torch.testing.assert_close(drop(x), first, rtol=0, atol=0)
    assert (first != second).any() and abs((first == 0).float().mean().item() - 0.25) < 0.05
    assert set(first.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
