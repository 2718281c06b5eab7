"""Views and memory at run time, against eager: nothing that was seen while tracing is taken for true of later calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from smelt.torch.types import layout_of
from torch_compiled import assert_native, compiled

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]
aten = torch.ops.aten


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *examples: Any, **options: Any) -> Any:
    module = function if isinstance(function, torch.nn.Module) else Module(function)
    return smelt.from_exported(torch.export.export(module, examples), options or None)


def check_equal(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    torch.testing.assert_close(tuple(found), tuple(wanted), equal_nan=True)


# Random programs.

SHAPE = (4, 4)
F64 = torch.float64  # sums may cancel
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t": lambda x: x.t(),
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, ::2],
    "row": lambda x: x[1],
    "last": lambda x: x.select(-1, -1),
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "windows": lambda x: x.unfold(0, 2, 1),
    "split": lambda x: x.split(1)[1],
    "unbind": lambda x: x.unbind(-1)[1],
    "alias": lambda x: x.view_as(x),
    "diagonal": lambda x: x.diagonal(),
    "detach": lambda x: x.detach(),
}
SQUARE = {"t", "diagonal", "columns"}  # which need two dims
COMPUTED: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda x: x * 2,
    lambda x: x.exp(),
    lambda x: x.flip(0),
    lambda x: x - x.mean(),
)


def layouts(chance: random.Random, number: int, may_overlap: bool) -> list[torch.Tensor]:
    """Arguments, each in memory of its own or two in one, in any order and with any beginning."""
    found: list[torch.Tensor] = []
    shared, taken = torch.randn(64, dtype=F64), -1
    for _ in range(number):
        kind = chance.choice(["plain", "turned", "within", "shared", "negated"] + ["repeated", "windows"] * may_overlap)
        if kind == "turned":
            tensor = torch.randn(SHAPE, dtype=F64).t()
        elif kind == "within":
            tensor = torch.randn(9, 11, dtype=F64)[chance.randrange(4) :, chance.randrange(3) :: 2][:4, :4]
        elif kind == "shared":
            start = 3 + 16 * (taken := taken + 1)
            tensor = shared[start : start + 16].view(SHAPE)
        elif kind == "negated":
            tensor = torch._neg_view(torch.randn(SHAPE, dtype=F64))
        elif kind == "repeated":
            tensor = torch.randn(4, 1, dtype=F64).expand(SHAPE)
        elif kind == "windows":
            tensor = torch.randn(7, dtype=F64).unfold(0, 4, 1)
        else:
            tensor = torch.randn(SHAPE, dtype=F64)
        found.append(tensor)
    return found


def program(seed: int) -> tuple[Callable[..., tuple[torch.Tensor, ...]], int, bool]:
    """A function of tensors, how many they are, and whether it changes one of them."""
    chance = random.Random(seed)
    number = chance.randint(1, 3)
    changes = chance.random() < 0.4
    plan: list[tuple[int, list[str], int | None]] = []
    for _ in range(chance.randint(2, 5)):
        names = [chance.choice(sorted(VIEWS)) for _ in range(chance.randint(1, 2))]
        plan.append((chance.randrange(number), names, chance.choice([None, None, *range(len(COMPUTED))])))
    also = chance.randrange(4)

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for which, names, op in plan:
            value = args[which]
            if op is not None:
                value = COMPUTED[op](value)
            for name in names:
                if value.ndim and min(value.shape) > 1 and (value.ndim == 2 or name not in SQUARE):
                    value = VIEWS[name](value)
            found.append(value)
        if also == 0:
            found.append(sum(item.sum() for item in args) * found[0])
        if changes:
            args[0].mul_(2).add_(args[-1].sum())
        return tuple(found)

    return function, number, changes


def memory(items: Sequence[torch.Tensor]) -> list[list[bool]]:
    """Which of them share memory."""
    return [[one.untyped_storage()._cdata == other.untyped_storage()._cdata for other in items] for one in items]


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same numbers in memory that lies, and is shared, in the same way."""
    storages: dict[int, torch.Tensor] = {}
    found = []
    for tensor in tensors:
        plain = torch._neg_view(tensor) if tensor.is_neg() else tensor
        key = plain.untyped_storage()._cdata
        if key not in storages:
            whole = torch.empty(0, dtype=F64).set_(plain.untyped_storage())
            storages[key] = whole.clone()
        again = storages[key].as_strided(plain.shape, plain.stride(), plain.storage_offset())
        found.append(torch._neg_view(again) if tensor.is_neg() else again)
    return found


def check_program(seed: int, way: str) -> None:
    function, number, changes = program(seed)
    chance = random.Random(seed)
    if way == "exported" and changes:
        return  # what an exported program returns of a tensor that it changes is no view of that
    first = layouts(chance, number, may_overlap=not changes)
    run = compiled(function) if way == "compiled" else exported(function, *copied(first))
    for args in (first, *(layouts(chance, number, may_overlap=not changes) for _ in range(3))):
        for _ in range(2):
            others = copied(args)
            with torch.no_grad():
                found, wanted = run(*args), function(*others)
            torch.testing.assert_close((tuple(found), args), (tuple(wanted), others))
            assert memory([*args, *found]) == memory([*others, *wanted])
            own = {item.untyped_storage()._cdata for item in args}
            for one, other in zip(found, wanted, strict=True):
                is_view = one.untyped_storage()._cdata in own
                if is_view or way == "compiled":
                    assert one.stride() == other.stride() or one.numel() < 2
                if is_view:
                    assert (one.storage_offset(), one.is_neg()) == (other.storage_offset(), other.is_neg())


@pytest.mark.parametrize("way", ["compiled", "exported"])
@pytest.mark.parametrize("block", range(2))
def test_random_views_of_any_arguments(block: int, way: str, request: pytest.FixtureRequest) -> None:
    count = 100 if request.config.getoption("--long") else 4
    for seed in range(count * block, count * (block + 1)):
        check_program(seed, way)
        torch._dynamo.reset()


# Single cases.


def both(function: Callable[..., Any], *examples: Any) -> list[Callable[..., Any]]:
    """A compiled and an exported program that were traced with these arguments."""
    first = compiled(function)
    first(*examples)
    return [first, exported(function, *examples)]


@pytest.mark.parametrize(
    "example",
    [torch.zeros(1).expand(6, 3), torch.zeros(6, 1).expand(6, 3), torch.randn(8).unfold(0, 3, 1)],
    ids=["one", "rows", "windows"],
)
def test_examples_whose_elements_share_a_place(example: torch.Tensor) -> None:
    for run in both(lambda x: (x * 2, x.sum(1)), example):
        for args in (torch.randn(6, 3), example, torch.randn(3, 6).t(), torch.randn(6, 1).expand(6, 3)):
            for _ in range(3):
                check_equal(run(args), (args * 2, args.sum(1)))


def test_slices_of_one_tensor_are_not_tied_to_each_other() -> None:
    whole = torch.randn(8)
    for run in both(lambda x, y: (x[1:], y * 2, y[:2]), whole[:4], whole[4:]):
        x, y = torch.randn(4), torch.randn(4)
        for _ in range(3):
            found = run(x, y)
            check_equal(found, (x[1:], y * 2, y[:2]))
            assert found[0].data_ptr() == x[1:].data_ptr() and found[2].data_ptr() == y.data_ptr()


def test_gradients_for_slices_of_one_tensor_and_later_of_two() -> None:
    def function(x, y, w):
        return (x.t() @ w).sin().sum() * y.t()[1:].sum()

    run = compiled(function)
    for shared in (True, False, True):
        whole = torch.randn(48)
        parts = [whole[:16], whole[16:32]] if shared else [torch.randn(16), torch.randn(20)[4:]]
        args = [item.view(4, 4).requires_grad_() for item in (*parts, whole[32:])]
        found, wanted = (torch.autograd.grad(item(*args), args) for item in (run, function))
        check_equal(found, wanted)


def test_memory_that_begins_elsewhere() -> None:
    """as_strided counts from the beginning of memory, where an argument need not begin."""
    memory = torch.randn(20)

    def taken(x):
        return x.as_strided((2, 2), (2, 1), 1) * 1, x[2:4].as_strided((3,), (1,)) + 1

    def computed(x):
        y = x * 2
        return y[:2].as_strided((4,), (1,), 0) + 1, y[2:4].as_strided((3,), (1,))

    def scattered(x, y):
        return aten.as_strided_scatter(x, y, (2,), (2,), 3), aten.as_strided_scatter(x.exp().t(), y, (2,), (3,), 1)

    for function in (taken, computed):
        run = compiled(function)
        for x in (memory[:8], memory[4:12], memory[:8], memory[2:10]):
            check_equal(run(x), function(x))
    run = compiled(scattered)
    for x in (memory[:6].view(2, 3), memory[4:10].view(2, 3), memory[:6].view(3, 2).t()):
        check_equal(run(x, memory[-2:]), scattered(x, memory[-2:]))


def test_order_of_computed_tensors() -> None:
    """as_strided and resize_ read in the order of memory, which is that of the arguments."""

    def function(x):
        return (x * 2).as_strided((5,), (1,)), (x + 1).resize_(3, 2)

    for example in (torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(8, 8)[::2, ::2], torch.randn(3, 1, 2)):
        run = exported(function, example)
        others = (torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(8, 8)[::2, ::2], torch.randn(3, 2)[:, None])
        for x in (x for x in others if x.shape == example.shape):
            if layout_of(x).order == layout_of(example).order:
                check_equal(run(x), function(x))
            else:
                with pytest.raises(smelt.SmeltError, match="other strides than when it was exported"):
                    run(x)


def test_strides_that_export_takes_for_fixed() -> None:
    """Of an example with gaps, though the sizes are open: for larger sizes they put several elements in one place."""

    def function(x):
        x[1:].mul_(2)
        y = x.clone()
        y[0] = 1
        return x * 1, y, y.t(), y[:, 1]

    sizes = {0: torch.export.Dim("rows", min=2, max=64), 1: torch.export.Dim("columns", min=2, max=64)}
    example = (torch.randn(8, 18)[::2, ::3],)
    run = smelt.from_exported(torch.export.export(Module(function), example, dynamic_shapes=((sizes,),)))
    for rows, columns in ((4, 6), (17, 33), (40, 3), (3, 40)):
        for x in (torch.randn(rows, columns), torch.randn(2 * rows, 18)[::2, ::3], torch.randn(columns, rows).t()):
            same = x.clone()
            check_equal(run(x), function(same))
            check_equal([x], [same])


def test_one_tensor_for_two_arguments() -> None:
    """torch.export makes one input of them."""
    x, y = torch.randn(4), torch.randn(4)
    run = exported(lambda x, y: x + 2 * y, x, x)
    check_equal([run(x, x), run(y, y), run(y, y[:])], [3 * x, 3 * y, 3 * y])
    with pytest.raises(smelt.SmeltError, match=r"one tensor for \[0\]\[0\] and \[0\]\[1\]"):
        run(x, y)
    run = exported(lambda x, y: x + 2 * y, x, y)
    check_equal([run(x, x), run(y, x)], [3 * x, y + 2 * x])


def test_constants_that_the_caller_changes() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            scaled = self.weight * 2
            return x @ scaled, scaled.t(), scaled[1:], torch.hann_window(4)[1:]

    model, x = Model(), torch.randn(3, 4)
    frozen = torch.compile(model, backend="smelt", options={"freeze": True})
    for run in (frozen, exported(model, x, freeze=True), exported(model, x)):
        for _ in range(4):
            with torch.no_grad():
                found = run(x)
                check_equal(found, model(x))
                for item in found:
                    item.zero_()


def test_weights_that_are_laid_out_anew_are_folded_anew() -> None:
    run = exported(torch.nn.Linear(4, 4, bias=False), torch.randn(3, 4), freeze=True)
    weight, x = run.exported.state_dict["weight"], torch.randn(3, 4)
    with torch.no_grad():
        check_equal([run(x)], [x @ weight.t()])
        weight.data = weight.data.t()
        check_equal([run(x)], [x @ weight.t()])


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_leaves_arguments_as_they_were(count: int) -> None:
    def function(x, table, i):
        x.add_(1)
        return table[i] * 2

    def later(x, table, i):
        x.add_(table.sum())
        return torch.sort(table)[0][i] + 1

    for item in (function, later):
        run = compiled(item)
        x, table = torch.zeros(4), torch.randn(5)
        with torch.no_grad():
            for _ in range(count):
                run(x, table, torch.tensor([1]))
            before = x.clone()
            with pytest.raises(IndexError):
                run(x, table, torch.tensor([9]))
        check_equal([x], [before])


def test_arguments_that_overlap_what_is_changed() -> None:
    def function(x, y):
        x.copy_(y.flip(0) + 1)

    run = compiled(function)
    with torch.no_grad():
        for _ in range(3):  # a call in place, by each way of calling
            run(torch.randn(4000), torch.randn(4000))
        for apart in (1000, 1, 4000, 0):
            memory = torch.randn(8000)
            other = memory.clone()
            for item, call in ((memory, run), (other, function)):
                call(item[:4000], item[apart : apart + 4000])
            check_equal([memory], [other])


def test_arguments_that_are_exchanged() -> None:
    def function(x, y):
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
        return x + y

    for run in (compiled(function), exported(function, torch.randn(4), torch.randn(4))):
        pairs = [[torch.arange(4.0), -torch.arange(4.0)] for _ in range(2)]
        with torch.no_grad():
            for _ in range(3):
                check_equal([run(*pairs[0])], [function(*pairs[1])])
                check_equal(pairs[0], pairs[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_lazy_signs(dtype: torch.dtype) -> None:
    """Memory that is still to be negated or conjugated, in calls of what was traced without such."""
    plain = torch.randn(4, 4, dtype=dtype)
    lazy = [torch._neg_view(plain), plain]
    if dtype.is_complex:
        lazy += [plain.conj(), torch._neg_view(plain.conj())]
    for run in both(lambda x: (x[1:], x * 2, x.t()), plain):
        for x in lazy:
            for _ in range(3):
                found = run(x)
                check_equal(found, (x[1:], x * 2, x.t()))
                assert found[0].data_ptr() == x[1:].data_ptr()
    if dtype.is_complex:
        for run in both(lambda x: (torch.view_as_real(x.resolve_conj()) + 1, x.real, x.imag), plain):
            for x in lazy:
                check_equal(run(x), (torch.view_as_real(x.resolve_conj().resolve_neg()) + 1, x.real, x.imag))


class Delay(torch.nn.Module):
    """Buffers that hold the last two inputs, the newer one registered first: so it is written first, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("newer", torch.zeros(3))
        self.register_buffer("older", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.older.clone()
        self.older.copy_(self.newer)
        self.newer.copy_(x)
        return result


class DelayedView(Delay):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.older * 1
        self.older.copy_(self.newer.view(3, 1).squeeze(1))
        self.newer.copy_(x * 2)
        return result


class Turned(torch.nn.Module):
    """A buffer that becomes a view of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.arange(9.0).view(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.matrix = self.matrix.t()
        return self.matrix + x


@pytest.mark.parametrize("kind", [Delay, DelayedView, Turned])
@pytest.mark.parametrize("freeze", [False, True])
def test_buffers_of_an_exported_program_take_their_values_of_before_the_call(
    kind: type[torch.nn.Module], freeze: bool
) -> None:
    model = kind()
    program = torch.export.export(kind(), (torch.zeros(3),))
    function = smelt.from_exported(program, {"freeze": freeze})
    for number in range(5):
        x = torch.full((3,), number + 1.0)
        torch.testing.assert_close(function(x), model(x))


def test_arguments_of_another_kind_than_was_exported() -> None:
    run = exported(lambda x: x * 2, torch.randn(4))
    for wrong in (torch.empty(4, device="meta"), torch.ones(4).to_sparse(), torch.zeros(4, dtype=torch.int64), 3):
        with pytest.raises(smelt.SmeltError):
            run(wrong)
    assert_native()
