"""torch.compile(backend="smelt"): memory, against eager: changes in place, views, strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import smelt.torch
import torch
from smelt.torch import native
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


@pytest.mark.parametrize("start", [0, 1, 3])
def test_weights_that_start_anywhere_are_written_in_place(start: int, monkeypatch):
    """Stores to weights bypass the caches, where their memory starts at a multiple of a cache line; others do not."""
    made = []
    start_graph = native.start_graph
    monkeypatch.setattr(native, "start_graph", lambda *given: made.append(start_graph(*given)) or made[-1])
    torch.manual_seed(0)
    buffer = torch.zeros(256 * 256 + 16)
    model, other = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)
    other.load_state_dict(model.state_dict())
    place = buffer[start : start + 256 * 256].view(256, 256)
    model.weight.data = place.copy_(model.weight.data)
    optimizers = [torch.optim.AdamW(item.parameters(), lr=1e-2) for item in (model, other)]
    steps = [torch.compile(optimizers[0].step, backend="smelt"), optimizers[1].step]
    for _ in range(3):
        for item, step in zip((model, other), steps):
            item(torch.ones(2, 256)).square().sum().backward()
            step()
            item.zero_grad()
        torch.testing.assert_close(model.weight, other.weight, rtol=1e-5, atol=1e-6)
        assert model.weight.data_ptr() == place.data_ptr()
        assert not buffer[:start].any() and not buffer[start + 256 * 256 :].any()
    assert [len(item().artifact.streamed) for item in made] == [1] * len(made) and made


@pytest.mark.parametrize("number, megabytes", [(1, 17), (12, 2)])
def test_large_views_are_changed_in_place(number: int, megabytes: int):
    def double(*views):
        for view in views:
            view.mul_(2)

    size = (megabytes << 20) // 4
    buffers = [torch.ones(size + 16) for _ in range(number)]
    function = compiled(double, dynamic=False)
    for start in (0, 1, 0, 3, 0):
        views = [buffer.fill_(1)[start : start + size] for buffer in buffers]
        function(*views)
        for view, buffer in zip(views, buffers):
            assert (view == 2).all()
            assert buffer.sum() == len(buffer) + len(view)


def test_inputs_are_changed_in_place():
    def f(x, y, z):
        x.add_(1)
        y.mul_(x.sum())
        z.copy_(z.flip(0))
        return x * 2

    args = [torch.randn(4, 5), torch.randn(3), torch.randn(9)]
    others = [arg.clone() for arg in args]
    same(compiled(f)(*args), f(*others))
    for got, expected in zip(args, others):
        same(got, expected)


def test_an_input_that_is_read_elsewhere_is_not_overwritten_too_early():
    """y reads x in other places than where it is written, and before it is."""

    def f(x):
        mean = x.mean(0, keepdim=True)
        y = x.flip(0) + x
        x.sub_(mean)
        return y, (x * x).sum()

    x = torch.randn(33, 70)
    other = x.clone()
    for got, expected in zip(compiled(f)(x), f(other)):
        same(got, expected)
    same(x, other)


def test_results_are_computed_in_the_memory_of_inputs(monkeypatch):
    from smelt.torch import program

    written_out: list[Any] = []

    def specialized_call(*args):
        written_out.append(original(*args))
        return written_out[-1]

    original = program.specialized_call
    monkeypatch.setattr(program, "specialized_call", specialized_call)

    def f(x, grad, total):
        x.sub_(0.1 * grad)
        total.add_(1)
        return x * 2, grad + 1

    x, grad, total = torch.randn(1000), torch.randn(1000), torch.zeros(())
    other, counted = x.clone(), total.clone()
    address, function = x.data_ptr(), compiled(f)
    for _ in range(5):
        version = x._version
        for got, expected in zip(function(x, grad, total), f(other, grad, counted)):
            same(got, expected)
        same(x, other)
        same(total, counted)
        assert x.data_ptr() == address
        assert x._version > version
    assert len(written_out) == 1 and written_out[0] is not None


def test_views_of_inputs_and_results():
    def f(x):
        y = x + 1
        return y.t(), y[1:], x.view(-1), x[::2], y.expand(3, 4, 5), x

    x = torch.randn(4, 5)
    function = compiled(f)
    for got, expected in zip(function(x), f(x)):
        same(got, expected)
    assert function(x)[2].data_ptr() == x.data_ptr()


def storages(tensors: Sequence[torch.Tensor]) -> list[list[bool]]:
    """Which of them share memory."""
    return [[one.untyped_storage()._cdata == other.untyped_storage()._cdata for other in tensors] for one in tensors]


@pytest.mark.parametrize(
    "views",
    [
        lambda y: (y, y[0]),
        lambda y: (y.t(), y + 1, y),
        lambda y: (y.view(-1), y.detach()),
        lambda y: y.split(2),
        lambda y: y.unbind(1),
        lambda y: (y[1:, 2:], y[:3], y.expand(2, 4, 6)[1]),
        lambda y: (y.view(torch.int32), y),
        lambda y: (y.to(torch.complex64).conj(), y),
        lambda y: (lambda z: (z.imag, z.conj(), torch.view_as_real(z), z.conj().imag))(torch.complex(y, y + 1)),
    ],
)
def test_results_that_are_views_of_one_tensor_share_memory(views: Callable):
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(views(x * 2))

    x = torch.randn(4, 6)
    compiled = torch.compile(function, backend="smelt", fullgraph=True)
    for _ in range(3):  # the first call, the next, and all others take different ways
        wanted, found = function(x), compiled(x)
        assert storages(found) == storages(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
            one.mul_(3)
            other.mul_(3)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_views_across_a_graph_break_share_memory():
    def function(x: torch.Tensor) -> torch.Tensor:
        canvas = torch.zeros(4, 4)
        window = canvas[1:3, 1:3]
        torch._dynamo.graph_break()
        window += x
        return canvas

    assert torch.compile(function, backend="smelt")(torch.ones(2, 2)).sum() == 4


def test_views_of_open_sizes_share_memory():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[1:, 1:], y.t()

    compiled = torch.compile(function, backend="smelt", dynamic=True)
    for rows in (5, 6, 9):
        whole, inner, turned = compiled(torch.ones(rows, 3))
        inner.zero_()
        assert whole.sum() == turned.sum() == 2 * (rows + 2)


def test_a_result_that_replaces_an_input_keeps_its_views_apart_from_it():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        x.copy_(y)
        return y[1:]

    x = torch.zeros(4)
    found = torch.compile(function, backend="smelt")(x)
    found.zero_()
    assert x.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.expand(3, 8)[:, ::2],
        lambda y: y.unfold(0, 3, 1),
        lambda y: y[1::3],
        lambda y: y.expand(3, 8)[:, ::2].sort()[0],
    ],
)
def test_views_with_gaps_or_of_the_same_elements(view: Callable):
    x = torch.randn(8)
    function = compiled(lambda x: view(x + 1))
    for _ in range(3):
        same(function(x), view(x + 1))


def test_inputs_with_strides():
    def f(x, y, z, t):
        return x @ y + z, t * 2

    args = (torch.randn(8, 30)[:, 3:9], torch.randn(7, 6).t(), torch.randn(14)[::2], torch.randn(1, 3).expand(5, 3))
    for got, expected in zip(compiled(f)(*args), f(*args)):
        torch.testing.assert_close(got, expected)
    assert_native()


def test_channels_last():
    def f(x):
        return torch.relu(x * 2 + 1)

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    same(compiled(f)(x), f(x))


def test_complex_results_that_are_read_as_pairs_are_not_put_together():
    """Turned positions, as Llama's first code has them."""

    def turned(x, turns):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    x, turns = torch.randn(2, 6, 16, requires_grad=True), torch.polar(torch.ones(6, 8), torch.randn(6, 8))
    found, expected = compiled(turned)(x, turns), turned(x, turns)
    same(found, expected)
    weights = torch.randn_like(expected)
    same(*(torch.autograd.grad((item * weights).sum(), x)[0] for item in (found, expected)))
    with torch.no_grad():
        smelt.torch.reset_stats()
        function = compiled(turned)
        for rows in (2, 3, 5):
            x = torch.randn(rows, 6, 16)
            same(function(x, turns), turned(x, turns))
    assert_native()
    assert "in 1 kernels, 1 native calls" in smelt.torch.report()


def _gradients(function: Callable[..., Any], gradient: torch.Tensor, unpack: Callable[[Any], Any]) -> torch.Tensor:
    x = torch.arange(3.0).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda item: item, unpack):
        y = function(x)
    y.backward(gradient)
    assert x.grad is not None
    return x.grad


def test_gradients_and_saved_tensors_may_be_lazily_negated():
    """No guard compares what autograd hands to a backward graph."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * 2).sin()

    function = torch.compile(f, backend="smelt")
    plain = torch.tensor([1.0, 2.0, 3.0])
    for gradient in (plain, torch._neg_view(plain), torch.complex(plain, plain).conj().imag):
        for unpack in (lambda item: item, lambda item: torch._neg_view(-item)):
            for _ in range(3):  # the first, the second and the specialized call
                torch.testing.assert_close(_gradients(function, gradient, unpack), _gradients(f, gradient, unpack))


@pytest.mark.parametrize("unpack", [torch.Tensor.half, lambda item: item[:1]])
def test_saved_tensors_of_another_type_or_shape(unpack: Callable[[Any], Any]):
    """PyTorch runs what reads them: native code would read beyond their memory."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * 2).sin()

    ours, known = (torch.compile(function, backend=name) for name in ("smelt", "aot_eager"))
    for _ in range(3):
        _gradients(ours, torch.ones(3), lambda item: item)
        same(_gradients(ours, torch.ones(3), unpack), _gradients(known, torch.ones(3), unpack))


@torch.library.custom_op("smelt_tests::misdescribed", mutates_args=())
def misdescribed(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x[:rows].double() if rows < 0 else x[:rows].clone()


@misdescribed.register_fake
def _(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [3, 0, -1])
def test_an_op_makes_another_shape_than_its_fake_kernel(rows: int, dynamic: bool) -> None:
    """Native code that is compiled for the promised shape or type does not read what is not there."""
    torch._dynamo.reset()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = misdescribed(x * 2, rows)
        return made * 3 + 1, torch.sin(misdescribed(made.sum(0, keepdim=True), 1))

    x = torch.randn(64, 32)
    compiled = torch.compile(program, backend="smelt", dynamic=dynamic)
    for _ in range(3):
        for found, wanted in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_shape_that_fake_tensors_have_wrong(dynamic: bool) -> None:
    torch._dynamo.reset()
    function = torch.compile(lambda x: torch.nanmean(x, dim=()), backend="smelt", dynamic=dynamic)
    for shape in ((2, 4), (300, 400)):
        x, other = (torch.arange(float(shape[0] * shape[1])).reshape(shape).requires_grad_() for _ in range(2))
        found, wanted = function(x), torch.nanmean(other, dim=())
        torch.testing.assert_close(found, wanted)
        for _item, result in ((x, found), (other, wanted)):
            result.backward()
        torch.testing.assert_close(x.grad, other.grad)
