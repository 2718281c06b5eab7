"""One plan, all executors: each program is traced once, and every way to call its code gives the same results and the
same errors. test_call_plans.py runs all of this in a process of its own, as Numba's simulator is switched on before
Numba is imported:

    NUMBA_ENABLE_CUDASIM=1 pytest tests/runtime/call_plans.py -k seed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import cuda_stand_in
import numpy as np
import pytest
import smelt
import torch
from smelt import versions
from smelt.backend.call_plan import CallPlan
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.backend.pytree import flatten
from smelt.ir.errors import ShapeError, SmeltError
from smelt.ops.define import REGISTRY
from smelt.torch.rules import RULES
from smelt.torch.specialized_call import specialized_call
from smelt.trace import Traced
from smelt.versions import Bound, Compiled
from torch.fx.experimental.proxy_tensor import make_fx

backend = sys.modules["smelt.torch.backend"]  # the package has a function of this name
SEED = np.array([1234, 0], np.int64)
CAPTURED = np.linspace(1, 2, 5, dtype=np.float32)
Arrays = list[np.ndarray]


def numbers(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    found = torch.linspace(-3, 5, max(int(np.prod(shape)), 1))[: int(np.prod(shape))].reshape(shape)
    return found.to(kind)


def updated(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(y, alpha=0.5)
    return x * 2


def updated_in_turn(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    x.mul_(3)
    y.copy_(z)
    return (z,)


def reversed_in_place(x: torch.Tensor) -> Any:
    x.copy_(x.flip(0) + 1)
    return x.sum()


def updated_behind_a_copy(x: torch.Tensor) -> Any:
    before = x.clone()
    x.add_(1)
    return before


def updated_and_taken(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Any:
    x.add_(1)
    return y[i]


# Programs of PyTorch's, arguments, and more arguments if sizes are open.
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Sequence[torch.Tensor]]]] = {
    "elementwise": (lambda x, y: x * y + 1, [[numbers(3, 5), numbers(5)]]),
    "constants": (lambda x: (x.tan(), x + 1), [[numbers(3, 5)]]),
    "a seed": (lambda x: x * torch.rand_like(x), [[numbers(3, 40)]]),
    "constants and a seed": (lambda x: (x.tan() + torch.rand_like(x), x.sum()), [[numbers(3, 5)]]),
    "results in place": (updated, [[numbers(4, 6), numbers(4, 6)]]),
    "two results in place": (updated_in_turn, [[numbers(4, 6), numbers(4, 6)]]),
    "a result that cannot be in place": (reversed_in_place, [[numbers(64, 6)]]),
    "a copy of a parameter that is overwritten": (updated_behind_a_copy, [[numbers(4, 6)]]),
    "a copy of a parameter": (lambda x: (x.clone(), x + 1), [[numbers(4, 6)]]),
    "copies of one result": (lambda x: (y := x.exp(), y.clone(), y.sum(0)), [[numbers(4, 6)]]),
    "a result in another order": (lambda x, y: (x.t() + y.t(), x @ y.t()), [[numbers(4, 6), numbers(4, 6)]]),
    "no elements": (lambda x: (x * 2, x.sum(1)), [[numbers(0, 6)], [numbers(4, 0)]]),
    "no dims": (lambda x, y: x * y, [[numbers(1)[0], numbers(1)[0]]]),
    "integers and bools": (lambda x, y: (x > 2, x // 2, y * x), [[numbers(9, kind=torch.int32), numbers(9)]]),
    "open sizes": (
        lambda x, y, z: (x * y, x.sum(0), z.exp()),
        [
            [numbers(4, 6), numbers(6), numbers(5)],
            [numbers(7, 3), numbers(3), numbers(9)],
            [numbers(2, 8), numbers(8), numbers(2)],
        ],
    ),
    "an open size in several dims": (
        lambda x, y: x + y.t(),
        [[numbers(4, 6), numbers(6, 4)], [numbers(3, 5), numbers(5, 3)]],
    ),
    "an index in its range": (lambda x, i: x[i] + 1, [[numbers(4, 6), torch.tensor([3, 0, -4])]]),
}


class Executors:
    """The code of one program for all targets, and every way to call it: arrays of the given parameters in, results out
    in the order of the plan."""

    def __init__(
        self,
        gpu: ExitStack,
        function: Callable[..., Any],
        args: Sequence[torch.Tensor],
        is_open: bool = False,
        kind: str = "inference",
    ):
        inputs = [item.clone() for item in args]
        mode = "symbolic" if is_open else "fake"

        def listed(*given: torch.Tensor) -> list[torch.Tensor]:
            found = function(*given)
            return list(found) if isinstance(found, tuple) else [found]

        module = make_fx(torch.func.functionalize(listed), tracing_mode=mode)(*inputs)
        self.program = backend.compile_program(kind, backend.read_options({"fallback": "error"}), module)
        (self.step,) = self.program.natives
        (self.version,) = self.step.versions
        self.traced: Traced = self.version.traced
        self.cpu = self.compiled("cpu")
        self.simulated = self.compiled("cuda")
        gpu.enter_context(cuda_stand_in.gpu())
        self.device = self.compiled("cuda")

    def compiled(self, target: str) -> Compiled:
        options = CompileOptions(target=target, architecture="sm_80" if target == "cuda" else None)
        executable = compile_graph(self.traced.graph, options)
        results = [np.zeros(0)] * len(self.traced.graph.results)
        orders = [None] * len(results)
        return Compiled(self.traced, orders, executable, flatten(results)[1], {})

    @property
    def plans(self) -> list[CallPlan]:
        torch_plan = self.version.executable.plan.hiding(self.traced.arrays, self.traced.seeded)
        return [torch_plan, *(item.plan for item in (self.cpu, self.simulated, self.device))]

    def params(self, args: Sequence[torch.Tensor]) -> Arrays:
        """The arguments as parameters, with those that only stand for sizes."""
        slots = self.slots(args)
        arrays = [slots[item.slot].numpy() for item in self.step.inputs]
        return arrays + [np.zeros(size, np.uint8) for size in self.step.sizes(slots)]

    def slots(self, args: Sequence[torch.Tensor]) -> list[Any]:
        slots = self.program.constants.template.copy()
        slots[: len(args)] = args
        return slots

    def launcher(self, compiled: Compiled, args: Sequence[torch.Tensor]) -> Arrays:
        arrays = [np.array(item, order="C") for item in self.params(args)]
        return list(compiled.bind([item.shape for item in arrays])(arrays))

    def checked(self, compiled: Compiled, arrays: Arrays) -> Arrays:
        """The way of an executable by itself, which checks its arguments, as it is given all of them."""
        hidden = [*compiled.plan.constants, *[SEED] * compiled.plan.is_seeded]
        return list(compiled.executable([*arrays, *hidden]))

    def entry(self, args: Sequence[torch.Tensor]) -> Any:
        """The native entry that was made for plain arrays of these shapes."""
        plain = [np.array(item, order="C") for item in self.params(args)]
        bound: Bound = self.cpu.bind([item.shape for item in plain])
        made = bound.make_entry(tuple(plain), {}, (), frozenset(), frozenset(), plain, plain)
        return None if made is None else made.enter

    def native(self, args: Sequence[torch.Tensor]) -> Arrays:
        """The native entry; where it refuses, what jit does then."""
        enter = self.entry(args)
        found = NotImplemented if enter is None else enter(tuple(self.params(args)), {})
        return self.launcher(self.cpu, args) if found is NotImplemented else list(found)

    def torch_step(self, args: Sequence[torch.Tensor]) -> Arrays:
        slots = self.slots([copied(item) for item in args])
        self.step(slots)
        return self.stored(slots)

    def stored(self, found: Mapping[int, torch.Tensor] | list[torch.Tensor]) -> Arrays:
        """Results by their slots as the arrays that code stores, with their dims in that order."""
        outputs = [(found[item.slot], item.layout.order) for item in self.step.outputs]
        return [(tensor if order is None else tensor.permute(order)).numpy() for tensor, order in outputs]

    def specialized(self, args: Sequence[torch.Tensor]) -> Arrays | None:
        """The results that the program returns or writes into its arguments; None if it has no call of its own."""
        given = [copied(item) for item in args]
        if not self.step.symbols:
            self.program.run_steps([copied(item) for item in args], self.program.constants.template)
        run = specialized_call(self.program, self.program.constants.template)
        if run is None:
            return None
        returned = run(given.copy())
        found = dict(zip(self.program.result_places(), returned))
        for node in self.program.partition.writes:
            target, source = (self.program.slot(item) for item in node.args[:2])
            found[source] = given[target]
        return self.stored(found)

    def all(self, args: Sequence[torch.Tensor]) -> Iterator[tuple[str, Arrays]]:
        yield "checked launcher", self.checked(self.cpu, self.params(args))
        yield "native entry", self.native(args)
        yield "torch step", self.torch_step(args)
        specialized = self.specialized(args)
        if specialized is not None:
            yield "specialized call", specialized
        yield "simulator", self.launcher(self.simulated, args)
        yield "checked simulator", self.checked(self.simulated, self.params(args))
        yield "device", self.launcher(self.device, args)
        yield "checked device", self.checked(self.device, self.params(args))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers at the same place of a line, with the same strides."""
    storage = torch.empty(tensor.untyped_storage().nbytes() + 64, dtype=torch.uint8)
    start = (tensor.data_ptr() - storage.data_ptr()) % 64 // tensor.itemsize
    made = torch.empty(0, dtype=tensor.dtype).set_(storage.untyped_storage(), start, tensor.shape, tensor.stride())
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        return tensor
    return made.copy_(tensor)


def tan(node: Any, a: dict[str, Any]) -> Any:
    """Not the tangent: an op whose rule captures an array, which is a constant of the program."""
    return REGISTRY["mul"](a["self"], CAPTURED)


@pytest.fixture
def gpu() -> Iterator[ExitStack]:
    """What a test enters stays until it ends. All executors draw the same seed."""

    def draw(self: torch.Tensor) -> torch.Tensor:
        return self.copy_(torch.from_numpy(SEED))

    with ExitStack() as stack:
        stack.enter_context(patch.object(versions, "next_seed", SEED.copy))
        stack.enter_context(patch.object(torch.Tensor, "random_", draw))
        stack.enter_context(patch.dict(RULES, {"tan": tan}))
        yield stack


def compare(executors: Executors, args: Sequence[torch.Tensor]) -> list[str]:
    """All executors have the results of the Python launcher; which ones there are."""
    expected = executors.launcher(executors.cpu, args)
    names: list[str] = []
    for name, found in executors.all(args):
        names.append(name)
        assert len(found) == len(expected), name
        for one, two in zip(found, expected, strict=True):
            assert one.dtype == two.dtype and one.shape == two.shape, name
            np.testing.assert_allclose(one, two, rtol=2e-6, atol=1e-6, err_msg=name)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, gpu: ExitStack) -> None:
    function, sets = PROGRAMS[name]
    executors = Executors(gpu, function, sets[0], "open" in name)
    facts = [
        (plan.signature, plan.given, len(plan.constants), plan.is_seeded, plan.owners, plan.copies)
        for plan in executors.plans
    ]
    assert all(item == facts[0] for item in facts)
    for args in sets if "open" in name else sets[:1]:
        found = compare(executors, args)
        plan = executors.cpu.plan
        is_special = not (executors.step.symbols or plan.copies or plan.is_seeded or "cannot" in name)
        assert ("specialized call" in found) == is_special
        params = [np.array(item, order="C") for item in executors.params(args)]
        results = executors.checked(executors.cpu, params)
        assert not any(np.shares_memory(one, two) for one in results for two in [*params, *results] if one is not two)
        enter = executors.entry(args)
        assert (enter is not None) == (not plan.copies)
        assert enter is None or enter(tuple(executors.params(args)), {}) is not NotImplemented


def repeated(*shape: int) -> torch.Tensor:
    return numbers(shape[-1]).expand(shape)


# Arguments in place of plain ones of the shape (6, 8).
LAYOUTS = {
    "transposed": lambda: numbers(8, 6).t(),
    "with gaps": lambda: numbers(8, 12)[1:7, 3:11],
    "at an odd address": lambda: numbers(49)[1:].view(6, 8),
    "repeated": lambda: repeated(6, 8),
}


def test_layouts(gpu: ExitStack) -> None:
    """Arguments that do not lie as those that the program was made for, in calls of the same code."""
    executors = Executors(gpu, lambda x, y: (x * 2 + y, x.sum(1)), [numbers(6, 8), numbers(6, 8)])
    for name, make in LAYOUTS.items():
        assert "specialized call" in compare(executors, [make(), numbers(6, 8)]), name
    enter = executors.entry([numbers(6, 8), numbers(6, 8)])
    params = executors.params([LAYOUTS["transposed"](), numbers(6, 8)])
    assert enter(tuple(params), {}) is NotImplemented


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "repeated"])
def test_results_in_place_of_any_layout(name: str, gpu: ExitStack) -> None:
    """PyTorch's executors write into arguments that do not lie as expected, too."""
    executors = Executors(gpu, updated, [numbers(6, 8), numbers(6, 8)])
    compare(executors, [LAYOUTS[name](), numbers(6, 8)])


def test_results_in_another_order(gpu: ExitStack) -> None:
    """The launcher and the native entry return them with the same strides, the simulator with the same numbers."""

    def function(x: Any, y: Any) -> Any:
        return x.T + y.T, x * 2

    args = numbers(4, 6).numpy(), numbers(4, 6).numpy()
    native, simulated = smelt.jit(function), smelt.jit(function, target="cuda")
    first = native(*args)
    for _ in range(2):
        native(*args)
    ((enter, _),) = native.recent
    for one, two, three in zip(first, enter(args, {}), simulated(*args), strict=True):
        assert one.strides == two.strides and one.shape == two.shape == three.shape
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    assert first[0].strides == (4, 24)  # as it was computed, not transposed in memory


def error_of(way: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises(SmeltError) as caught:
        way()
    return type(caught.value), str(caught.value)


def test_errors_of_code(gpu: ExitStack) -> None:
    """An index out of range: the same error from all executors."""
    function, ((x, _),) = PROGRAMS["an index in its range"]
    executors = Executors(gpu, function, [x, torch.tensor([0, 1, 2])])
    args = [x, torch.tensor([1, 4, 0])]
    enter, plain = executors.entry(args), tuple(executors.params(args))
    ways = {
        "launcher": lambda: executors.launcher(executors.cpu, args),
        "checked launcher": lambda: executors.checked(executors.cpu, executors.params(args)),
        "native entry": lambda: enter(plain, {}),
        "torch step": lambda: executors.torch_step(args),
        "simulator": lambda: executors.launcher(executors.simulated, args),
        "device": lambda: executors.launcher(executors.device, args),
    }
    executors.specialized([x, torch.tensor([0, 1, 2])])
    run = specialized_call(executors.program, executors.program.constants.template)
    assert run is not None
    ways["specialized call"] = lambda: run(list(args))
    found = {name: error_of(way) for name, way in ways.items()}
    assert len(set(found.values())) == 1, found
    assert "index 4 is out of range for a dimension of size 4" in found["launcher"][1]


def test_an_error_leaves_arguments_as_they_were(gpu: ExitStack) -> None:
    args = [numbers(4, 6), numbers(4, 6), torch.tensor([1, 0, 3, 2])]
    executors = Executors(gpu, updated_and_taken, args)
    assert "specialized call" not in compare(executors, args)  # nothing is computed in place
    x, wrong = numbers(4, 6), torch.tensor([1, 4, 3, 2])
    with pytest.raises(SmeltError):
        executors.program.run_steps([x, args[1], wrong], executors.program.constants.template)
    assert torch.equal(x, numbers(4, 6))


# In place of arguments of the shapes (N, 6) and (6, M), both f32: what is wrong with them.
WRONG = {
    "type": (lambda: [numbers(4, 6, kind=torch.float64), numbers(6, 5)], "is f32[{}, 6], got f64[4, 6]"),
    "rank": (lambda: [numbers(4, 6), numbers(30)], "is f32[6, {}], got f32[30]"),
    "shape": (lambda: [numbers(4, 7), numbers(6, 5)], "is f32[{}, 6], got f32[4, 7]"),
    "range": (lambda: [numbers(1, 6), numbers(6, 5)], " is 1, the program is for "),
    "count": (lambda: [numbers(4, 6)], "1 inputs for 2 parameters"),
}


def test_wrong_arguments(gpu: ExitStack) -> None:
    """Executables that check their arguments refuse them in the same words. The native entry leaves them to Python,
    and PyTorch's steps to PyTorch where nobody else has looked at them."""
    graph = smelt.jit(lambda x, y: x @ y).trace(smelt.spec("f32[N, 6]"), smelt.spec("f32[6, M]"))
    cpu = compile_graph(graph, CompileOptions())
    simulated = compile_graph(graph, CompileOptions(target="cuda"))
    gpu.enter_context(cuda_stand_in.gpu())
    device = compile_graph(graph, CompileOptions(target="cuda", architecture="sm_80"))
    right = [numbers(4, 6).numpy(), numbers(6, 5).numpy()]
    bound = Compiled(Traced(graph), [None], cpu, flatten([right[0]])[1], {}).bind([item.shape for item in right])
    made = bound.make_entry(tuple(right), {}, (), frozenset(), frozenset(), right, right)
    assert made is not None and bound(right) and made.enter(tuple(right), {}) is not NotImplemented
    for name, (make, said) in WRONG.items():
        arrays = [item.numpy() for item in make()]
        problems: set[str] = set()
        for executable in (cpu, simulated, device):
            with pytest.raises(ShapeError) as caught:
                executable(arrays)
            problems.add(str(caught.value))
        (problem,) = problems
        assert all(part in problem for part in said.split("{}")), name
        assert made.enter(tuple(arrays), {}) is NotImplemented, name


@pytest.mark.parametrize("wrong", [numbers(4, 6, kind=torch.float64), numbers(5, 6), numbers(6)])
def test_what_was_not_promised_is_run_by_torch(wrong: torch.Tensor, gpu: ExitStack) -> None:
    executors = Executors(gpu, lambda x: x * 2 + 1, [numbers(4, 6)], kind="backward")
    compare(executors, [numbers(4, 6)])
    run = specialized_call(executors.program, executors.program.constants.template)
    assert run is not None
    expected = wrong * 2 + 1
    for found in (executors.program.run_steps([wrong], executors.program.constants.template), run([wrong])):
        assert found[0].dtype is expected.dtype
        np.testing.assert_array_equal(found[0].numpy(), expected.numpy())
