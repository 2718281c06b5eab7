"""torch.compile(backend="smelt", options={"freeze": True}): parameters as constants, against eager."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from smelt.backend.cpu.host import host
from smelt.kernels.gemm import RegisterTile
from smelt.torch import freeze
from torch import nn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[freeze.Frozen]:
    """The frozen programs that a test compiles."""
    found: list[freeze.Frozen] = []
    plain = freeze.Frozen.__init__

    def note(self: freeze.Frozen, *args: Any) -> None:
        plain(self, *args)
        found.append(self)

    monkeypatch.setattr(freeze.Frozen, "__init__", note)
    return found


def frozen(function: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="smelt", fullgraph=True, options={"freeze": True, **options})


def targets(program: freeze.Frozen) -> list[str]:
    nodes = [*program.program.graph.nodes]
    return [str(node.target) for node in nodes if node.op == "call_function"]


def with_statistics(model: nn.Module) -> nn.Module:
    """Batch norms that do something."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
    return model.eval()


@pytest.mark.parametrize(
    ("model", "shape"),
    (
        (nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU()), (2, 3, 8, 8)),
        (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6, affine=False)), (2, 4, 8, 8)),
        (nn.Sequential(nn.ConvTranspose2d(4, 6, 3), nn.BatchNorm2d(6)), (2, 4, 8, 8)),
        (nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.GELU()), (7, 8)),
        (nn.Sequential(nn.Linear(8, 5, bias=False), nn.BatchNorm1d(5)), (7, 8)),
    ),
    ids=("conv", "grouped", "transposed", "linear", "product"),
)
def test_batch_norms_go_into_weights(model: nn.Module, shape: tuple[int, ...], made: list[freeze.Frozen]):
    model, x = with_statistics(model), torch.randn(shape)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(frozen(model)(x), model(x))
    assert made[0].folds == 1
    assert not any("batch_norm" in name for name in targets(made[0]))


@pytest.mark.parametrize(
    ("model", "shape"),
    (
        # Channels are the second dim, columns of the product the third; groups share the weight's second dim.
        (nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(4)), (2, 4, 8)),
        (nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), (2, 4, 8, 8)),
        (nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.BatchNorm2d(6)), (2, 3, 8, 8)),
    ),
    ids=("dims", "groups", "between"),
)
def test_other_batch_norms_stay(model: nn.Module, shape: tuple[int, ...], made: list[freeze.Frozen]):
    model, x = with_statistics(model), torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(frozen(model)(x), model(x))
    assert any("batch_norm" in name for name in targets(made[0]))


def test_a_product_that_others_read_keeps_its_weights(made: list[freeze.Frozen]):
    linear, norm, x = nn.Linear(8, 5), nn.BatchNorm1d(5).eval(), torch.randn(7, 8)
    norm.running_mean.normal_()

    def f(x):
        y = linear(x)
        return norm(y) + y

    with torch.no_grad():
        torch.testing.assert_close(frozen(f)(x), f(x))
    assert any("batch_norm" in name for name in targets(made[0]))


def test_what_depends_on_parameters_alone_is_computed_once(made: list[freeze.Frozen]):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
    x = torch.randn(4, 16)

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    with torch.no_grad():
        function = frozen(f)
        for _ in range(3):
            torch.testing.assert_close(function(x), f(x), rtol=2e-2, atol=2e-2)
    assert made[0].folds == 1
    assert made[0].prologue.count >= 3
    # What is left: x as bf16, and the product.
    assert [name.split(".")[1] for name in targets(made[0])] == ["_to_copy", "addmm"]


def test_constants_follow_their_parameters(made: list[freeze.Frozen]):
    model = with_statistics(nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)))
    other, x = copy.deepcopy(model), torch.randn(3, 8)
    with torch.no_grad():
        function = frozen(model)
        function(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(function(x), model(x))
        model[1].running_var.add_(1)
        torch.testing.assert_close(function(x), model(x))
        model[0].bias.data = torch.randn(5)
        torch.testing.assert_close(function(x), model(x))
        model.load_state_dict(other.state_dict())
        torch.testing.assert_close(function(x), other(x))
        assert made[0].folds == 5
        function(x)
        assert made[0].folds == 5


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_constants_follow_fused_optimizers(kind: Any, made: list[freeze.Frozen]):
    """Whose kernels change parameters, but not their versions."""
    model, x = nn.Linear(8, 5), torch.randn(3, 8)
    function, optimizer = frozen(model), kind(model.parameters(), lr=0.5, fused=True)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(function(x), model(x))
        model(x).sum().backward()
        optimizer.step()
    assert made[0].folds == 3


@pytest.mark.parametrize(
    ("model", "shape"),
    (
        (nn.Sequential(nn.Linear(8, 70), nn.GELU(), nn.Linear(70, 64)), (5, 8)),
        (nn.Linear(8, 6, bias=False), (2, 3, 8)),
        (nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), (2, 3, 8)),
    ),
    ids=("layers", "product", "encoder"),
)
def test_weights_are_packed_once(model: nn.Module, shape: tuple[int, ...], made: list[freeze.Frozen]):
    model, x = model.eval(), torch.randn(shape)
    function = frozen(model)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(function(x), model(x))
    (program,) = made
    width = RegisterTile("f32", host().machine).width
    constants = [program.folded[0].constants.template[place] for place in program.places]
    weights = [weight for weight in model.parameters() if weight.ndim == 2]
    assert program.folds == 1
    assert sorted(item.shape for item in constants) == sorted(
        (-(-rows // width), columns, width) for rows, columns in (weight.shape for weight in weights)
    )
    assert all(item.is_contiguous() for item in constants)


def test_the_receipt_names_packed_weights():
    width = RegisterTile("f32", host().machine).width
    layers = nn.Sequential(nn.Linear(1024, 300), nn.BatchNorm1d(300), nn.GELU())
    model, x = nn.ModuleDict({"body": layers, "head": nn.Linear(300, 5, bias=False)}).eval(), torch.randn(7, 1024)
    smelt.torch.reset_stats()
    with torch.no_grad():
        frozen(lambda x: model["head"](model["body"](x)))(x)
    panels = {"body.0.weight": 4 * 1024 * (300 + -300 % width), "head.weight": 4 * 300 * (5 + -5 % width)}
    found = smelt.torch.stats()
    assert found["packed_weights"] == 2 and found["packed_bytes"] == sum(panels.values())
    report = smelt.torch.report()
    assert f"  body.0.weight packed once, {panels['body.0.weight'] / 1e6:.2f} MB" in report
    assert f"  head.weight packed once, {panels['head.weight'] / 1e3:.2f} kB" in report

    smelt.torch.reset_stats()
    whole = nn.Sequential(model["body"], model["head"])
    smelt.from_exported(torch.export.export(whole, (x,)), {"freeze": True})
    assert smelt.torch.stats()["packed_bytes"] == sum(panels.values())
    assert "  0.0.weight packed once" in smelt.torch.report()

    smelt.torch.reset_stats()
    with torch.no_grad():
        torch.compile(model["head"], backend="smelt")(torch.randn(7, 300))
    assert smelt.torch.stats()["packed_weights"] == 0 and "packed" not in smelt.torch.report()


@pytest.mark.parametrize(
    ("model", "shape"),
    (
        (nn.Sequential(nn.Linear(300, 700), nn.LayerNorm(700), nn.GELU(), nn.Linear(700, 130)), (200, 300)),
        (nn.TransformerEncoderLayer(96, 4, 200, batch_first=True), (4, 50, 96)),
    ),
    ids=("layers", "encoder"),
)
def test_any_number_of_threads_gives_the_same_bits(model: nn.Module, shape: tuple[int, ...]):
    """Constants that were packed with one number of threads, read by another."""
    model, x = model.eval(), torch.randn(shape)
    function, before = frozen(model), torch.get_num_threads()
    results = []
    try:
        with torch.no_grad():
            expected = model(x)
            for count in (2, 1, 3, 1, 2):
                torch.set_num_threads(count)
                results += [function(x) for _ in range(5)]
                next(model.parameters()).add_(0)  # the next call packs anew
                results.append(function(x))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(results[0], expected)
    assert all(torch.equal(item, results[0]) for item in results)


def test_a_single_row_reads_the_weight_as_it_is(made: list[freeze.Frozen]):
    model, x = nn.Linear(8, 70).eval(), torch.randn(1, 8)
    with torch.no_grad():
        torch.testing.assert_close(frozen(model)(x), model(x))
    assert all(tensor.ndim < 3 for tensor in made[0].folded[0].constants.template if isinstance(tensor, torch.Tensor))


def test_one_program_for_two_models():
    """Dynamo has one graph for both: it looks at the types of parameters only."""
    models, x = [nn.Linear(8, 5), nn.Linear(8, 5)], torch.randn(3, 8)
    function = frozen(lambda model, x: model(x) * (model.bias + 1))
    with torch.inference_mode():
        for model in (*models, *models):
            torch.testing.assert_close(function(model, x), model(x) * (model.bias + 1))


def test_models_in_turn_and_in_threads(made: list[freeze.Frozen]):
    models = [nn.Linear(6, 6).eval() for _ in range(2)]
    function = frozen(lambda model, x: model(x))
    x = torch.randn(3, 6)
    wrong: list[int] = []

    def call(number: int) -> None:
        with torch.no_grad():
            expected = models[number](x)
            for _ in range(1500):
                if not torch.allclose(function(models[number], x), expected):
                    wrong.append(number)

    call(0)
    call(1)
    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    (program,) = made
    assert program.folds == 2


def test_constants_of_models_that_are_gone_are_not_kept(made: list[freeze.Frozen]):
    function = frozen(lambda model, x: model(x))
    x = torch.randn(3, 6)
    with torch.no_grad():
        for _ in range(2 * freeze.LIMITS.models):
            model = nn.Linear(6, 6).eval()
            torch.testing.assert_close(function(model, x), model(x))
            model.weight += 1
            torch.testing.assert_close(function(model, x), model(x))
    assert len(made[0].folded) <= 2


def test_results_do_not_share_memory_with_constants():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)

    def f(x):
        return model(x), model.weight * 2, model.weight.t()

    function = frozen(f)
    with torch.no_grad():
        for _ in range(2):
            got, expected = function(x), f(x)
            torch.testing.assert_close(got, expected)
            got[1].zero_()
    assert got[2].data_ptr() == model.weight.data_ptr()


def test_other_memory_at_the_address_of_a_parameter_is_seen():
    """`p.data = other` changes no `_version`, and the memory that it frees may be what the next one gets."""
    model, x = nn.Linear(64, 64), torch.randn(4, 64)
    function = frozen(model)
    with torch.no_grad():
        for _ in range(5):
            torch.testing.assert_close(function(x), model(x))
            address = model.weight.data_ptr()
            for _ in range(20):
                model.weight.data = torch.randn(64, 64)
                if model.weight.data_ptr() == address:
                    break


def test_buffers_that_a_program_changes_are_no_constants():
    model, x = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)), torch.randn(6, 8)
    other = copy.deepcopy(model)
    function = frozen(model)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(function(x), other(x))
    torch.testing.assert_close(model[1].running_mean, other[1].running_mean)


def test_sizes_vary():
    model = with_statistics(nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.GELU()))
    function = torch.compile(model, backend="smelt", dynamic=True, options={"freeze": True})
    with torch.no_grad():
        for rows in (3, 5, 9):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(function(x), model(x))
    assert smelt.torch.stats()["compilations"] == 1


def test_gradients_are_refused():
    with pytest.raises(Exception, match=r"gradients are wanted.*torch\.no_grad\(\)"):
        frozen(nn.Linear(4, 4))(torch.randn(2, 4))


def test_parameters_of_inference_mode():
    """These do not count their changes: all of them are seen all the same."""
    x = torch.randn(2, 4)
    with torch.inference_mode():
        model = nn.Linear(4, 4)
        function = frozen(model)
        for _ in range(2):
            torch.testing.assert_close(function(x), model(x))
            model.weight.mul_(2)


@pytest.mark.parametrize(
    ("model", "shape"),
    (
        (nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)), (2, 3, 8, 8)),
        (nn.Sequential(nn.Linear(8, 6, bias=False), nn.BatchNorm1d(6)), (3, 8)),
    ),
)
def test_exported_programs(model: nn.Module, shape: tuple[int, ...]):
    model, x = with_statistics(model), torch.randn(shape)
    function = smelt.from_exported(torch.export.export(model, (x,)), options={"freeze": True})
    torch.testing.assert_close(function(x), model(x))
    assert not any("batch_norm" in name for name in targets(function.program))
