"""torch.compile(backend="smelt"): numbers that are computed from sizes, and what must fall back instead of failing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import smelt.torch
import torch
from smelt.torch import native, rules
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]
F = torch.nn.functional


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.full((4,), x.shape[0] >= 8), torch.full((4,), x.shape[0] / 3)),
        lambda x: (torch.full_like(x, x.shape[0] ** 0.5), x.new_full((2,), x.shape[0] >= 8)),
        lambda x: (x * (x.shape[0] / 3), x.double() - math.sqrt(x.shape[0]), torch.add(x, x, alpha=1 / x.shape[0])),
        lambda x: (x.clamp(-1 / x.shape[0], 1 / x.shape[0]), x * int(x.shape[0] / 2), x > x.shape[0] / 9),
        lambda x: (x.long() * (x.shape[0] / 3), x.half() * (x.shape[0] / 3), x.sum() * (x.shape[0] / 3)),
    ],
)
def test_numbers_of_sizes(function: Callable[..., Any]) -> None:
    run = compiled(function, dynamic=True)
    for rows in (5, 9, 12, 5):
        x = torch.randn(rows, 4)
        for got, expected in zip(run(x), function(x), strict=True):
            same(got, expected)
    assert_native()
    assert smelt.torch.stats()["graphs"] == 1


SIZES_BESIDE_INTEGERS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "add": lambda x, n: x + 20 * n,
    "add scaled": lambda x, n: torch.add(x, 20 * n, alpha=2),
    "sub": lambda x, n: 20 * n - x,
    "mul": lambda x, n: x * -n,
    "div": lambda x, n: x / (20 * n),
    "floor_divide": lambda x, n: x // (-7 * n),
    "trunc": lambda x, n: torch.div(x, 20 * n, rounding_mode="trunc"),
    "bitwise": lambda x, n: (x & (20 * n)) | (30 * n),
    "lt": lambda x, n: x < 20 * n,
    "eq": lambda x, n: x == 20 * n,
    "power of": lambda x, n: n ** (x % 4),
    "exponent": lambda x, n: (x % 4) ** n,
    "isin": lambda x, n: torch.isin(x, 20 * n),
    "clamp": lambda x, n: x.clamp(max=20 * n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, 20 * n - 150),
    "where": lambda x, n: torch.where(x > 1, x, 20 * n),
    "full": lambda x, n: torch.full((3,), 20 * n - 150, dtype=x.dtype),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("name", SIZES_BESIDE_INTEGERS)
def test_sizes_beside_narrow_integers(name: str, dtype: torch.dtype) -> None:
    """Binary ops wrap a size to the tensor's type, comparisons too; others raise where the type does not hold it."""

    def function(x):
        return SIZES_BESIDE_INTEGERS[name](x, x.shape[0])

    run = compiled(function, dynamic=True)
    for rows in (5, 6, 9, 13, 2000):
        x = (torch.arange(rows) * 7).to(dtype)
        try:
            expected = function(x)
        except RuntimeError:
            with pytest.raises((RuntimeError, smelt.SmeltError)):
                run(x)
            continue
        same(run(x), expected)


def test_assertions_of_sizes() -> None:
    def function(x, number):
        count = number.item()
        torch._check(count >= 0)
        torch._check(count <= 4)
        return x * count

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = compiled(function)
        x = torch.randn(5, 4)
        for number in (2, 4, 0):
            same(run(x, torch.tensor(number)), x * number)
        with pytest.raises(RuntimeError):
            run(x, torch.tensor(5))
    assert "aten._assert_scalar" not in smelt.torch.stats()["fallback_names"]


@pytest.mark.parametrize("pool", [F.adaptive_avg_pool2d, F.adaptive_max_pool2d, F.adaptive_avg_pool1d])
def test_adaptive_pools_at_their_edges(pool: Callable[..., torch.Tensor]) -> None:
    x = torch.randn(2, 3, 4) if pool is F.adaptive_avg_pool1d else torch.randn(2, 3, 4, 4)
    same(compiled(lambda x: pool(x, 0) + 1)(x), pool(x, 0) + 1)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        compiled(lambda x: pool(x, 2))(x.long())


def test_errors_in_rules_are_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(node, arguments):
        return next(iter(()))

    monkeypatch.setitem(rules.RULES, "sin", broken)
    x = torch.randn(4)
    same(compiled(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert "PyTorch runs aten.sin (1 times): an error in smelt, StopIteration" in smelt.torch.report()


@pytest.mark.parametrize("dynamic", [False, True])
def test_errors_while_compiling_are_reasons(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given):
        raise KeyError("a")

    def function(x):
        y = x.sin() * x.shape[0]
        return y + 1, y[1:], x[1:]

    monkeypatch.setattr(native, "start_graph", broken)
    with warnings.catch_warnings(record=True):
        run = compiled(function, dynamic=dynamic)
        for rows in (4, 4, 6, 4):
            x = torch.randn(rows, 3)
            for got, expected in zip(run(x), function(x), strict=True):
                same(got, expected)
    assert "PyTorch runs aten.sin (1 times): an error in smelt, KeyError: 'a'" in smelt.torch.report()
    torch._dynamo.reset()
    with pytest.raises(Exception, match="'a'"):
        compiled(function, options={"fallback": "error"})(x)


def test_code_for_other_sizes_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is compiled in a later call."""

    def function(x):
        return x.reshape(x.shape[0] // 2, 2, -1).sum(1)

    run = compiled(function, dynamic=True)
    same(run(torch.ones(4, 3)), function(torch.ones(4, 3)))
    monkeypatch.setattr(native.Version, "serves", lambda *given: False)
    monkeypatch.setattr(native, "start_graph", lambda *given: next(iter(())))
    for rows in (6, 8):
        same(run(torch.ones(rows, 3)), function(torch.ones(rows, 3)))


def test_each_fallback_is_named_once(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always")
    from smelt.torch import receipt

    receipt._receipts.warned.clear()
    x = torch.randn(4, 4)
    compiled(lambda x: torch.linalg.qr(x).R + 1)(x)
    compiled(lambda x: torch.linalg.svdvals(torch.linalg.qr(x).R) + 1)(x)
    compiled(lambda x: torch.linalg.qr(x).R + 2)(x)
    said = [str(item.message) for item in recwarn if "PyTorch runs" in str(item.message)]
    assert len(said) == 2 and "linalg_qr" in said[0] and "linalg_qr" not in said[1] and "linalg_svd" in said[1]


def test_a_reason_of_a_size_names_the_size() -> None:
    run = compiled(lambda x: torch.zeros(int(math.sqrt(x.shape[0])), 2) + 1, dynamic=True)
    same(run(torch.ones(9)), torch.ones(3, 2))
    assert "smelt's expressions have no" in smelt.torch.report() and "torch.float32 on cpu" not in smelt.torch.report()


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DIVISIONS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero(name: str) -> None:
    divide = DIVISIONS[name]
    changed = compiled(lambda total, x, y: total.add_(divide(x, y).sum()))
    for dtype in INTEGERS:
        run = compiled(lambda x, y: (divide(x, y), divide(7, y) if name in "//%" else y))
        x, y = torch.arange(40, dtype=dtype), torch.arange(1, 41, dtype=dtype)
        for got, expected in zip(run(x, y), (divide(x, y), divide(7, y) if name in "//%" else y), strict=True):
            same(got, expected)
        y[33] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(x, y)
    total = torch.zeros(1, dtype=torch.int64)
    with torch.no_grad(), pytest.raises(RuntimeError, match="ZeroDivisionError"):
        changed(total, x, y)
    assert total == 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(lambda x: divide(x, 0))(x)
    x, y = x.float(), y.float().clamp(min=0.5)
    same(compiled(lambda x, y: divide(x, y))(x, y), divide(x, y))


KINDS = (torch.uint8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("source", [*KINDS, torch.int8, torch.complex64])
def test_bits_of_other_types(source: torch.dtype) -> None:
    memory = torch.randint(-(1 << 62), 1 << 62, (3, 4)).view(source)
    if source.is_floating_point:
        memory[0, :3] = torch.tensor([math.inf, -0.0, math.nan])

    def function(x):
        y = x.clone().flip(0)
        return [y.view(kind).clone().view(torch.uint8) for kind in KINDS]

    found, expected = compiled(function, dynamic=True)(memory), function(memory)
    for got, wanted in zip(found, expected, strict=True):
        if source is torch.bfloat16:  # whose signalling NaNs are quiet after any load
            got, wanted = (item.view(torch.bfloat16).nan_to_num() for item in (got, wanted))
        assert torch.equal(got, wanted)
    assert_native()


def test_resized_results() -> None:
    aten = torch.ops.aten

    def function(x):
        y = (x * 2).t()
        return aten.resize(y, [2, 3]) + 1, aten.resize(y + 1, [5, 5]).flatten()[:20]

    x = torch.randn(5, 4)
    for got, expected in zip(compiled(function)(x), function(x), strict=True):
        same(got, expected)
    assert_native()
