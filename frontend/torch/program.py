"""A partitioned graph as a callable: steps over a list of slots, one slot for each tensor or size that one step passes
to another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from .data_sizes import compiled
from .importer import device_of, op_name
from .native import NativeStep, follow_threads
from .partition import Partition, is_size
from .specialized_call import Run, specialized_call
from .types import number_type

if TYPE_CHECKING:
    from .backend import Options

Slots = list[Any]
Step = Callable[[Slots], None]


class Constants:
    """The contents of slots before a call, and the specialised call for them."""

    def __init__(self, template: Slots):
        self.template = template
        self.specialized: Run | None = None  # a generated function, from the second call on, for simple programs
        self.calls = 0


class Program:
    """A callable that takes the list of all inputs and empties it, so that tensors are freed after their last use."""

    def __init__(self, module: GraphModule, found: Partition, options: Options, kind: str):
        self._boxed_call = True  # AOTAutograd's flag; on the object, since wrappers copy only its attributes
        self.graph = module.graph
        self.partition = found
        self.eager_random = options.rng == "eager"
        self.rounding = options.rounding
        # Dynamo's guards check strides, types and lazy bits of the arguments before each call, except those of a
        # backward graph: gradients and saved tensors come from autograd, through the user's hooks.
        self.is_guarded = kind in ("inference", "forward")
        self.is_typed = kind != "backward"  # shapes and types are guarded: an exported program checks them itself
        self.may_fall_back = options.fallback == "allow"
        self.fallback = [(op_name(node), reason) for node, reason in found.refused.items()]
        self.slots: dict[Node, int] = {}
        self.template: Slots = []
        self.natives: list[NativeStep] = []
        (self.output,) = (node for node in self.graph.nodes if node.op == "output")
        self.placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node in self.placeholders:
            self.slot(node)  # inputs take the first slots, in order
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.template[self.slot(node)] = operator.attrgetter(node.target)(module)
        with _disable_current_modes(), torch.no_grad():
            for node in found.constants:
                self.template[self.slot(node)] = node.target(*node.args, **node.kwargs)  # type: ignore[operator]
        self.steps = self._steps()
        self.results: Any = map_arg(self.output.args[0], self._place)
        self._release(found)
        self.constants = Constants(self.template)

    def result_places(self) -> list[int | None]:
        """Return the slot of each result; None for a result that is not a tensor."""
        return [item.place if type(item) is _Slot else None for item in self.results]

    def slot(self, node: Node) -> int:
        if node not in self.slots:
            self.slots[node] = len(self.template)
            self.template.append(None)
        return self.slots[node]

    def _place(self, node: Node) -> Any:
        return _Slot(self.slot(node))

    def _steps(self) -> list[Step]:
        found = self.partition
        wanted = self._wanted_sizes()
        placed = {node for level in found.levels for node in level.nodes}
        steps: list[Step] = [self._eager(node) for node in self.graph.nodes if node in wanted and node not in placed]
        self.uses: list[set[Node]] = [set() for _ in steps]
        for level in found.levels:
            if level.native:
                for device, nodes in by_device(level.nodes).items():
                    step = NativeStep(self, device, nodes, self._needed_later(nodes))
                    if step.is_needed:
                        self.natives.append(step)
                        steps.append(step)
                        self.uses.append(step.reads)
                continue
            for node in level.nodes:
                if not is_size(node) or node in wanted or not _is_pure(node):
                    steps.append(self._eager(node))
                    self.uses.append(set(node.all_input_nodes))
        if steps and isinstance(last := steps[-1], NativeStep):
            last.mark_writes()  # of the last step only: an error in a later step could not undo the writes
        for node in found.writes:
            steps.append(self._write(node))
            self.uses.append(set(node.all_input_nodes))
        return steps

    def _needed_later(self, nodes: Sequence[Node]) -> list[Node]:
        """Return tensors made in a level that later levels or the caller read."""
        inside = set(nodes)
        return [node for node in nodes if any(user not in inside for user in node.users) and not _is_tuple(node)]

    def _wanted_sizes(self) -> set[Node]:
        """Return sizes that are read at run time: by PyTorch's nodes, by the caller, or by smelt as the value of a
        symbol."""
        wanted: set[Node] = set()
        native = {node for level in self.partition.levels if level.native for node in level.nodes}
        pending: list[Node] = []
        for node in self.graph.nodes:
            if node in native:
                pending.extend(item for item in node.all_input_nodes if number_type(item.meta.get("val")) is not None)
            elif not is_size(node):
                pending.extend(item for item in node.all_input_nodes if is_size(item))
            elif isinstance(node.meta["val"], torch.SymInt) and node.meta["val"].node.expr.is_Symbol:
                pending.append(node)
        while pending:
            node = pending.pop()
            if node.op != "call_function" or node in wanted:
                continue
            wanted.add(node)
            pending.extend(item for item in node.all_input_nodes if is_size(item))
        return wanted

    def _eager(self, node: Node) -> Step:
        """Return a step that runs the node in PyTorch."""
        target = node.target
        place = self.slot(node)
        if node in self.partition.deciding:
            return self._deciding(node)
        given = map_arg((node.args, dict(node.kwargs)), self._place)
        fill = _filler(given)

        def run(slots: Slots) -> None:
            args, kwargs = fill(slots)
            slots[place] = target(*args, **kwargs)  # type: ignore[operator]

        return run

    def _deciding(self, node: Node) -> Step:
        """Return a step that computes a node whose sizes data decide."""
        function, place = compiled(node, self.eager_random), self.slot(node)
        read = [self.slot(item) for item in node.all_input_nodes]

        def run(slots: Slots) -> None:
            follow_threads()
            slots[place] = function(*[slots[at] for at in read])

        return run

    def _write(self, node: Node) -> Step:
        target, source = (self.slot(item) for item in node.args[:2])  # type: ignore[arg-type]
        place = self.slot(node)

        def run(slots: Slots) -> None:
            # A compiled graph records no gradients, but its inputs may require them.
            if slots[source] is not slots[target]:
                with torch.no_grad():
                    slots[target].copy_(slots[source])
            slots[place] = slots[target]

        return run

    def _release(self, found: Partition) -> None:
        """Compute the slots that die after each step."""
        kept = {self.slots[node] for node in self.output.all_input_nodes}
        kept |= {self.slots[node] for node in self.graph.nodes if node.op == "get_attr" and node in self.slots}
        kept |= {self.slots[node] for node in found.constants}
        last: dict[int, int] = {}
        for number, nodes in enumerate(self.uses):
            for node in nodes:
                if node in self.slots:
                    last[self.slots[node]] = number
        self.dead: list[list[int]] = [[] for _ in self.steps]
        for place, number in last.items():
            if place not in kept:
                self.dead[number].append(place)

    def __call__(self, args: list[Any]) -> Any:
        return self.run(args, self.constants)

    def run(self, args: list[Any], constants: Constants) -> Any:
        if constants.specialized is not None:
            return constants.specialized(args)
        if constants.calls == 1:
            constants.specialized = specialized_call(self, constants.template)
        constants.calls += 1
        return self.run_steps(args, constants.template)

    def run_steps(self, args: list[Any], template: Slots) -> list[Any]:
        slots = template.copy()
        slots[: len(args)] = args
        args.clear()
        for step, dead in zip(self.steps, self.dead):
            step(slots)
            for place in dead:
                slots[place] = None
        return [slots[item.place] if type(item) is _Slot else item for item in self.results]


def by_device(nodes: Sequence[Node]) -> dict[torch.device, list[Node]]:
    """Group the nodes of a level by device. The groups are independent: moving tensors is a node of PyTorch's, in
    another level."""
    found: dict[torch.device, list[Node]] = {}
    for node in nodes:
        found.setdefault(device_of(node) or torch.device("cpu"), []).append(node)
    return found


class _Slot:
    """The slot of a node's argument."""

    def __init__(self, place: int):
        self.place = place


def _filler(given: Any) -> Callable[[Slots], Any]:
    """Return a function that replaces each `_Slot` in a structure by the contents of that slot."""
    if type(given) is _Slot:
        return operator.itemgetter(given.place)
    if isinstance(given, (list, tuple)):
        parts = [_filler(item) for item in given]
        kind = tuple if isinstance(given, tuple) else list
        return lambda slots: kind(part(slots) for part in parts)
    if isinstance(given, dict):
        named = {name: _filler(item) for name, item in given.items()}
        return lambda slots: {name: part(slots) for name, part in named.items()}
    return lambda slots: given


def _is_tuple(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def _is_pure(node: Node) -> bool:
    return not node.is_impure()
