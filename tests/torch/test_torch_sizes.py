"""torch.compile(backend="smelt"): programs whose sizes vary, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from smelt.torch.limits import TorchLimits
from torch import nn
from torch.nn import functional as F
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


def test_sizes_vary_without_another_compile():
    def f(x, w):
        return torch.softmax(x @ w, -1).sum(0), x.reshape(-1), torch.arange(x.shape[0]) * 2

    function, weight = compiled(f, dynamic=True), torch.randn(8, 6)
    for rows in (3, 5, 9, 17, 4):
        x = torch.randn(rows, 8)
        for got, expected in zip(function(x, weight), f(x, weight)):
            same(got, expected)
    assert smelt.torch.stats()["graphs"] == 1


@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda x: F.glu(x, 0), [(2 * size, 3) for size in (5, 6, 9)]),
        (lambda x: torch.cat(x.chunk(2)[::-1]), [(size, 3) for size in (4, 7, 10)]),
        (lambda x: sum(x.split(x.shape[0] // 3)), [(3 * size, 3) for size in (2, 5, 4)]),
        (lambda x: x.reshape(x.shape[0], 2, -1).sum(1), [(size, 2 * size + 2) for size in (3, 4, 8)]),
        (lambda x: F.pixel_unshuffle(x, 2), [(1, 3, 2 * size, 4 * size) for size in (2, 3, 5)]),
    ],
)
def test_parts_of_sizes_that_vary(function, shapes):
    found = compiled(function, dynamic=True)
    for shape in shapes:
        x = torch.randn(shape)
        same(found(x), function(x))
    receipt = smelt.torch.stats()
    assert receipt["compilations"] == receipt["graphs"] == 1


def test_caches_grow_without_another_compile():
    """Keys and values of a text as it is written: two sizes for PyTorch, which the product makes one."""

    def step(query, key, value, keys, values):
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        return F.scaled_dot_product_attention(query, keys, values), keys, values

    function = compiled(step, dynamic=True)
    caches = [torch.randn(2, 4, 7, 8) for _ in range(2)]
    others = list(caches)
    for _ in range(6):
        new = [torch.randn(2, 4, 1, 8) for _ in range(3)]
        got, *caches = function(*new, *caches)
        expected, *others = step(*new, *others)
        same(got, expected)
        assert all(torch.equal(one, other) for one, other in zip(caches, others))
    receipt = smelt.torch.stats()
    assert receipt["compilations"] == receipt["graphs"] == 1


def test_sizes_that_only_the_data_tell():
    def f(x):
        return (x[x > 0] * 2).sum() + x.nonzero().shape[0] * x.mean()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        function = compiled(f)
        for _ in range(3):
            x = torch.randn(40) * (torch.rand(40) > 0.3)
            same(function(x), f(x))
    assert smelt.torch.stats()["graphs"] == 1


def test_nested_tensors():
    """The lengths that vary in one dim are one symbol of PyTorch's, and no number is its value."""
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    function = compiled(model)
    for lengths in ((3, 5), (4, 4, 2), (6, 1, 1, 2)):
        x = torch.nested.nested_tensor([torch.randn(length, 8) for length in lengths], layout=torch.jagged)
        found, expected = function(x), model(x)
        same(found.values(), expected.values())
        gradients = [
            torch.autograd.grad(torch.nested.to_padded_tensor(item, 0.0).square().sum(), list(model.parameters()))
            for item in (found, expected)
        ]
        torch.testing.assert_close(*gradients)
    assert_native()


def test_numbers_that_are_no_sizes_may_be_negative():
    """PyTorch leaves an int argument open, and knows nothing of it."""

    def f(x, at, by):
        return torch.select(x * 2, 0, at), torch.roll(x, by, 0) + 1, x[at:] * 3

    function = compiled(f, dynamic=True)
    for rows, at, by in ((7, 3, 2), (9, -3, -4), (8, -8, 5), (12, 5, -1)):
        x = torch.randn(rows, 4)
        for got, expected in zip(function(x, at, by), f(x, at, by)):
            same(got, expected)


def test_numbers_that_have_to_be_known_are():
    """A step, a dim: the code is for the number, and open in all else."""

    def f(x, step, dim):
        return (x * 2)[::step] + 1, (x + 1).sum(dim)

    function = compiled(f, dynamic=True)
    for rows, step, dim in ((12, 3, 1), (15, 2, 0), (16, 3, 1), (17, 3, 1), (15, 2, -1)):
        x = torch.randn(rows, 4)
        for got, expected in zip(function(x, step, dim), f(x, step, dim)):
            same(got, expected)


def longer(node: Any, arguments: dict[str, Any]) -> Any:
    """A rule that is wrong: one element too many."""
    x = arguments["self"]
    return smelt.ops.cat([smelt.ops.relu(x), x[:1]], 0)


def test_no_result_is_written_beyond_its_memory(monkeypatch: pytest.MonkeyPatch):
    """A size that is not PyTorch's is seen while tracing, or, if it is open then, before any code runs."""
    monkeypatch.setitem(smelt.torch.importer.RULES, "relu", longer)
    x = torch.randn(6, 3)
    same(compiled(lambda x: torch.relu(x) * 2, dynamic=False)(x), torch.relu(x) * 2)
    assert smelt.torch.stats()["fallback_names"] == {"aten.relu": 1}
    same(compiled(torch.relu, dynamic=True)(x), torch.relu(x))
    assert "aten.relu: smelt computes 21 elements, PyTorch expects the shape [6, 3]" in smelt.torch.report()


def test_a_view_that_starts_at_an_open_place():
    def f(x, at):
        return x.narrow(0, at, 1), x.sum()

    function = compiled(f, dynamic=True)
    for rows, at in ((7, 3), (9, 5), (8, 2)):
        x = torch.randn(rows)
        for got, expected in zip(function(x, at), f(x, at)):
            same(got, expected)


def test_strides_of_memory_that_lies_in_another_order():
    """They are of the memory, not of the elements as they are numbered. Windows that overlap are made like that."""

    def f(x):
        y = (x * 2).permute(2, 0, 1)
        return y.as_strided((4, 3, 5), (2, 7, 1), 1), y.exp().as_strided((3, 4), (1, 11)).sum(0)

    def gradients(found, x):
        return torch.autograd.grad(sum(item.sin().sum() for item in found), x)

    function = compiled(f, dynamic=True)
    for rows in (5, 8, 11):
        x = torch.randn(rows, 6, 7, requires_grad=True)
        found, expected = function(x), f(x)
        for got, wanted in zip(found, expected):
            same(got, wanted)
        same(gradients(found, x), gradients(expected, x))
    assert_native()


def test_a_size_is_known_as_long_as_it_is_needed():
    """PyTorch's convolution reads the stride, and so does what follows it: its result has a size that depends on it."""
    weight = torch.randn(2, 1, 4)

    def f(x, stride, padding):
        return F.conv1d((x * 2).unsqueeze(1), weight, None, stride, padding) + 1

    function = compiled(f, dynamic=True)
    for rows, columns, stride, padding in ((3, 12, 3, 1), (4, 15, 2, 2), (5, 9, 4, 3), (3, 12, 3, 2)):
        x = torch.randn(rows, columns)
        same(function(x, stride, padding), f(x, stride, padding))


def test_a_step_remembers_so_many_sizes(monkeypatch):
    from smelt.torch import native, program

    monkeypatch.setattr(native, "LIMITS", TorchLimits(calls=3))
    steps: list[Any] = []
    original = native.NativeStep.__init__

    def note(self, *args):
        original(self, *args)
        steps.append(self)

    monkeypatch.setattr(program.NativeStep, "__init__", note)
    function = compiled(lambda x: x.exp() + 1, dynamic=True)
    for rows in (*range(2, 9), 2):
        x = torch.randn(rows)
        same(function(x), x.exp() + 1)
    (step,) = steps
    assert len(step.calls) == 3


def test_training_with_sizes_that_vary():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    function = compiled(model, dynamic=True)
    for rows in (3, 5, 9, 17):
        x, labels = torch.randn(rows, 8), torch.arange(rows) % 4
        grads = []
        for call in (model, function):
            model.zero_grad()
            F.cross_entropy(call(x), labels).backward()
            grads.append([param.grad.clone() for param in model.parameters()])
        for got, expected in zip(*reversed(grads)):
            same(got, expected)
    assert smelt.torch.stats()["graphs"] == 2


def test_sizes_that_data_decides():
    def f(x):
        places = torch.nonzero(x > 0)
        return places * 2 + 1

    x = torch.randn(8)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        # What eager's nonzero does to strides tracing does not know.
        torch.testing.assert_close(compiled(f)(x), f(x))
