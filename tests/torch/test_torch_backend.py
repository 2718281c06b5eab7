"""torch.compile(backend="smelt"): what programs do with tensors, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


def test_forward_and_backward():
    def loss(x, w, b):
        y = F.gelu(x @ w + b)
        return torch.softmax(y, -1).square().sum(), y.t()

    args = [torch.randn(8, 16), torch.randn(16, 32), torch.randn(32)]
    args = [arg.requires_grad_() for arg in args]
    got, expected = compiled(loss)(*args), loss(*args)
    for one, other in zip(got, expected):
        same(one, other)
    total = [result[0] + result[1].sin().sum() for result in (got, expected)]
    for one, other in zip(torch.autograd.grad(total[0], args), torch.autograd.grad(total[1], args)):
        same(one, other)
    assert_native()


def test_batch_norm_updates_its_statistics():
    model = nn.BatchNorm2d(6)
    other = copy.deepcopy(model)
    x = torch.randn(4, 6, 5, 5)
    same(compiled(model)(x), other(x))
    for got, expected in zip(model.buffers(), other.buffers()):
        same(got, expected)
    assert_native()


def test_dropout_follows_the_seed():
    model = nn.Dropout(0.3)
    function = compiled(model)
    x = torch.ones(1000, 50, requires_grad=True)
    y = function(x)
    assert abs((y == 0).float().mean().item() - 0.3) < 0.01
    y.sum().backward()
    same(x.grad, y.detach())
    assert not torch.equal(function(x), function(x))
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(function(x))
    assert torch.equal(*results)
    assert_native()


@pytest.mark.parametrize(
    "draw",
    (
        lambda x: torch.randint(7, x.shape),
        lambda x: torch.randint_like(x, -3, 9),
        lambda x: x.clone().uniform_(-2, 3),
        lambda x: x.clone().exponential_(2.0),
        lambda x: x.clone().cauchy_(1.0, 0.5),
        lambda x: x.clone().log_normal_(0.5, 0.25),
        lambda x: x.clone().geometric_(0.3),
    ),
    ids=("randint", "randint_like", "uniform", "exponential", "cauchy", "log_normal", "geometric"),
)
def test_distributions(draw: Callable[..., Any]):
    """As many numbers below each bound as eager draws: Kolmogorov and Smirnov's distance."""
    x = torch.zeros(200_000)
    got, expected = compiled(draw)(x), draw(x)
    assert got.dtype is expected.dtype and got.shape == expected.shape
    bounds = expected.double().quantile(torch.linspace(0, 1, 101, dtype=torch.float64))
    below = [(item.double()[:, None] <= bounds).double().mean(0) for item in (got, expected)]
    assert (below[0] - below[1]).abs().max() < 0.008
    assert_native()


def test_random_numbers_of_eager():
    model = nn.Dropout(0.3)
    x = torch.ones(100, 50)
    torch.manual_seed(1)
    got = compiled(model, options={"rng": "eager"})(x)
    torch.manual_seed(1)
    assert torch.equal(got, model(x))


def test_eager_random_numbers_are_drawn_in_the_order_of_the_program():
    def f(x):
        first = torch.rand_like(x)
        second = torch.rand_like(first.sin())
        return first, second, torch.rand(3)

    x = torch.randn(5)
    torch.manual_seed(7)
    expected = f(x)
    torch.manual_seed(7)
    for got, wanted in zip(compiled(f, options={"rng": "eager"})(x), expected):
        same(got, wanted)


def test_bfloat16_and_autocast():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16))
    x = torch.randn(4, 8)

    def mixed(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    torch.testing.assert_close(compiled(mixed)(x), mixed(x), rtol=2e-2, atol=2e-2)
    half = copy.deepcopy(model).bfloat16()
    torch.testing.assert_close(compiled(half)(x.bfloat16()), half(x.bfloat16()), rtol=2e-2, atol=2e-2)
    assert_native()


@pytest.mark.parametrize("foreach", (True, False))
@pytest.mark.parametrize("kind", ("Adam", "AdamW", "SGD"))
def test_optimizer_steps(kind: str, foreach: bool):
    options: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1, "foreach": foreach}
    if kind == "SGD":
        options["momentum"] = 0.9
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    other = copy.deepcopy(model)
    optimizers = [getattr(torch.optim, kind)(item.parameters(), **options) for item in (model, other)]
    steps = [torch.compile(optimizers[0].step, backend="smelt"), optimizers[1].step]
    x = torch.randn(5, 8)
    for _ in range(5):
        for item, step in zip((model, other), steps):
            item.zero_grad()
            item(x).square().sum().backward()
            step()
    for got, expected in zip(model.parameters(), other.parameters()):
        same(got, expected)
    assert_native()


def test_dynamo_leaves_fused_optimizers_to_pytorch():
    """docs/torch.md says so: no graph comes to the back end, and the step is still right."""
    model = nn.Linear(8, 4)
    other = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(item.parameters(), lr=1e-2, fused=True) for item in (model, other)]
    steps = [torch.compile(optimizers[0].step, backend="smelt"), optimizers[1].step]
    for item, step in zip((model, other), steps):
        item(torch.ones(2, 8)).square().sum().backward()
        step()
    for got, expected in zip(model.parameters(), other.parameters()):
        same(got, expected)
    assert smelt.torch.stats()["graphs"] == 0


def test_gradients_of_gradients():
    model = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.LayerNorm(16), nn.Linear(16, 1))

    def penalty(x):
        slope = torch.func.grad(lambda x: model(x).sum())(x)
        return (slope.norm(dim=1) - 1).square().mean()

    x = torch.randn(4, 8)
    found, expected = compiled(penalty)(x), penalty(x)
    same(found, expected)
    weights = [param for name, param in model.named_parameters() if name not in ("2.bias", "3.bias")]
    torch.testing.assert_close(*(torch.autograd.grad(item, weights) for item in (found, expected)))
    assert_native()


def test_activations_are_computed_again():
    """Gradients are eager's, and what is kept for them is the input of the part alone."""
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))

    def f(x):
        return checkpoint(model, x, use_reentrant=False).square().sum()

    def kept(function: Callable[..., Any]) -> list[torch.Size]:
        """The shapes of what is kept for the gradients, parameters aside."""
        found: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda item: found.append(item) or item, lambda item: item):
            function(x)
        held = {item.data_ptr() for item in model.parameters()}
        return [item.shape for item in found if item.data_ptr() not in held]

    x = torch.randn(4, 8, requires_grad=True)
    leaves = [x, *model.parameters()]
    function = compiled(f)
    for got, expected in zip(torch.autograd.grad(function(x), leaves), torch.autograd.grad(f(x), leaves)):
        same(got, expected)
    assert not any(shape == (4, 64) for shape in kept(function))
    assert any(shape == (4, 64) for shape in kept(compiled(lambda x: model(x).square().sum())))
    assert_native()


def test_activations_with_random_numbers_are_computed_again():
    """The second time the numbers are those of the first."""

    def f(x):
        return checkpoint(lambda x: F.dropout(x.exp(), 0.5), x, use_reentrant=False)

    x = torch.randn(100, 8, requires_grad=True)
    function = compiled(f)
    for _ in range(2):
        y = function(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, y.detach())


def test_results_that_are_no_tensors():
    def f(x):
        return x.argmax(-1), None, 3, x.sum(-1, dtype=torch.float64)

    x = torch.randn(4, 5)
    got, expected = compiled(f)(x), f(x)
    assert got[1:3] == (None, 3)
    same(got[0], expected[0])
    same(got[3], expected[3])


def test_equal_results_have_memory_of_their_own():
    def f(x):
        y = x + 1
        return y, y.clone(), x.clone()

    x = torch.randn(4, 5)
    got = compiled(f)(x)
    for one, other in zip(got, f(x)):
        same(one, other)
    assert len({item.data_ptr() for item in (*got, x)}) == 4


def test_no_gradients():
    model = nn.Linear(4, 4)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            x = torch.randn(2, 4)
            same(compiled(model)(x), model(x))


def test_ops_of_others_are_pytorchs_and_the_receipt_says_so():
    def f(x):
        return torch.linalg.qr(x + 1).R.relu()

    x = torch.randn(7, 4)
    same(compiled(f)(x), f(x))
    assert smelt.torch.stats()["fallback_names"] == {"aten.linalg_qr": 1}
    assert "PyTorch runs aten.linalg_qr (1 times): smelt has no such op" in smelt.torch.report()


def test_what_pytorch_makes_of_numbers_alone_is_made_once():
    """Also if it is kept for the gradients."""

    def f(x):
        rows, columns = torch.tril_indices(6, 6, -1)
        return (x @ x.mT)[:, rows, columns].tanh(), x * torch.hann_window(6)

    def gradients(found):
        return torch.autograd.grad(sum(item.square().sum() for item in found), x)

    function = compiled(f, options={"fallback": "error"})
    x = torch.randn(3, 6, 6, requires_grad=True)
    for _ in range(3):
        found, expected = function(x), f(x)
        same(found, expected)
        same(gradients(found), gradients(expected))
    assert_native()
    assert smelt.torch.report().count(" 1 native calls") == 2


def test_what_the_caller_gets_is_made_on_each_call():
    def f(x):
        return x * 2, torch.tril_indices(3, 3)[0]

    function = compiled(f)
    x = torch.randn(4)
    for _ in range(3):
        found = function(x)[1]
        same(found, f(x)[1])
        found.add_(5)


def test_the_receipt_states_times_apart():
    import time

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU())
    started = time.perf_counter()
    compiled(model)(torch.randn(4, 8)).sum().backward()
    whole = 1000 * (time.perf_counter() - started)
    found = smelt.torch.stats()
    parts = [found[name] for name in ("compile_ms", "aot_ms", "dynamo_ms")]
    assert all(part > 0 for part in parts)
    assert 0.5 * whole < sum(parts) <= whole
    smelt.torch.reset_stats()
    found = smelt.torch.stats()
    assert [found[name] for name in ("compile_ms", "aot_ms", "dynamo_ms")] == [0, 0, 0]
    torch._dynamo.reset()  # Dynamo forgets its times
    compiled(nn.Linear(8, 16))(torch.randn(4, 8))
    assert smelt.torch.stats()["dynamo_ms"] > 0


def test_no_op_may_fall_back_if_told_so():
    with pytest.raises(Exception, match=r"(?s)forbids.*aten\.linalg_inv_ex"):
        compiled(torch.linalg.inv, options={"fallback": "error"})(torch.eye(3))


@pytest.mark.parametrize(
    ("options", "message"),
    (({"fallbacks": "error"}, "did you mean .fallback"), ({"rng": "numpy"}, "expected one of 'smelt', 'eager'")),
)
def test_unknown_options(options: dict[str, str], message: str):
    with pytest.raises(Exception, match=message):
        compiled(torch.sin, options=options)(torch.ones(2))


@pytest.mark.parametrize(
    ("layer", "reason"),
    (
        (nn.Conv2d(3, 8, 3), "PyTorch's is faster for a kernel of 3x3 with stride 1x1 and 1 group: smelt compiles"),
        (nn.Conv1d(4, 4, 3, stride=2, groups=2), "for a kernel of 3 with stride 2 and 2 groups: smelt compiles"),
        (nn.ConvTranspose2d(2, 2, 3), "for a transposed kernel of 3x3"),
        (nn.Conv2d(4, 4, 5, groups=4), "for depthwise kernels of more than 9 places, this one is 5x5"),
        (nn.Conv2d(2, 2, 1, dtype=torch.bfloat16), "PyTorch's is faster in bf16"),
    ),
)
def test_convolutions_of_pytorchs_have_reasons(layer: Any, reason: str):
    x = torch.randn(1, layer.in_channels, *(9 for _ in layer.kernel_size), dtype=layer.weight.dtype)
    with torch.no_grad():
        same(compiled(layer)(x), layer(x))
    assert reason in smelt.torch.report()


def test_modes_of_inductor_are_said_to_change_nothing():
    with pytest.warns(UserWarning, match="mode='max-autotune' of torch.compile .* changes nothing"):
        torch.compile(torch.sin, backend="smelt", mode="max-autotune")(torch.ones(2))


def test_custom_ops():
    @torch.library.custom_op("smelt_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def double_fake(x):
        return torch.empty_like(x)

    def f(x):
        return torch.ops.smelt_test.double(x + 1).relu()

    x = torch.randn(4, 5)
    same(compiled(f)(x), f(x))


def test_conjugates():
    def f(x):
        return (x * x.conj()).real.sum(), torch.view_as_real(x) + x.conj().imag.unsqueeze(-1)

    x = torch.randn(4, dtype=torch.complex64)
    for got, expected in zip(compiled(f)(x), f(x)):
        torch.testing.assert_close(got, expected)


def test_threads_are_as_many_as_pytorchs():
    function, x, before = compiled(torch.sin), torch.randn(100), torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            function(x)
            assert smelt.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
        function(x)


def test_what_the_user_says_of_threads_holds_until_pytorch_changes():
    """Also in the generated call, which is used from the third call on."""
    function, x, before = compiled(torch.sin), torch.randn(100), smelt.get_num_threads()
    for _ in range(3):
        function(x)
    try:
        for count in (1, 3):
            smelt.set_num_threads(count)
            function(x)
            assert smelt.get_num_threads() == count
    finally:
        smelt.set_num_threads(before)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_in_inference(norm_first: bool, activation: str):
    """PyTorch makes one op of it there."""
    layer = nn.TransformerEncoderLayer(
        64, 4, 128, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    x = torch.randn(3, 17, 64)
    smelt.torch.reset_stats()
    with torch.no_grad():
        torch.testing.assert_close(compiled(layer)(x), layer(x))
    assert smelt.torch.stats()["fallback_ops"] == 0


def test_calls_after_the_first_ones():
    """From the third call on the simplest programs run as a function that was written out."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(x + y), x, (x * y).t()

    run = compiled(function, dynamic=False)
    for rows in (8, 8, 8, 8, 5, 5, 5, 5):
        x, y = torch.randn(rows, 6), torch.randn(6, rows).t()
        with torch.no_grad():
            results = run(x, y)
        for got, expected in zip(results, function(x, y), strict=True):
            same(got, expected)
        assert results[1] is x
    assert_native()


def test_buffers_that_are_not_saved_are_changed_too():
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("fleeting", torch.zeros(3), persistent=False)
            self.register_buffer("saved", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.fleeting.add_(x)
            self.saved.add_(x)
            return self.fleeting * 2 + self.saved

    x = torch.ones(3)
    program = smelt.from_exported(torch.export.export(Counter(), (x,)))
    for number in range(1, 4):
        assert program(x).tolist() == [3.0 * number] * 3
