"""A random program: arrays, and op calls on them. PyTorch runs it eagerly, smelt traces it.

Values are numbered: the inputs first, then the results of each step in turn. An argument of a step refers to a value
by `Ref`, and to an element type by `Type`, so that one program runs in its own types and in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from smelt.ir.types import DTYPES
from smelt.ops.define import REGISTRY
from support import TORCH_DTYPES, flatten, to_torch

from .ordered import ORDERED

NAMESPACES = ("ops.aten", "nn.functional", "", "special", "linalg")


@dataclass(frozen=True)
class Ref:
    """A value of the program."""

    number: int

    def __repr__(self) -> str:
        return f"v{self.number}"


@dataclass(frozen=True)
class Type:
    """An element type, by smelt's name."""

    name: str

    def __repr__(self) -> str:
        return f"smelt.{self.name}" if self.name != "bool" else "smelt.bool_"


@dataclass(frozen=True)
class Step:
    """One op call. `path` names PyTorch's function, `arguments` those that are not left at their defaults.

    floats: PyTorch's function takes no integers; smelt.jit promises what it makes of the same numbers in f64."""

    op: str
    path: str
    arguments: dict[str, Any]
    floats: bool = False

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass
class Program:
    inputs: list[Any] = field(default_factory=list)  # arrays and Python numbers
    steps: list[Step] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # results of each step
    results: list[int] = field(default_factory=list)  # the values that are returned

    def __repr__(self) -> str:
        used = {number for step in self.steps for number in references(tuple(step.arguments.values()))}
        lines = [f"v{at}{summary(array)}" for at, array in enumerate(self.inputs) if at in used]
        number = len(self.inputs)
        for step, count in zip(self.steps, self.counts):
            lines.append(f"{', '.join(f'v{number + at}' for at in range(count))} = {step!r}")
            number += count
        return "\n".join([*lines, f"return {', '.join(f'v{number}' for number in self.results)}"])

    def traced(self, *tensors: Any) -> tuple[Any, ...]:
        """The program on smelt's traced tensors."""
        values = list(tensors)
        for step in self.steps:
            arguments = {name: substitute(item, values, DTYPES.get) for name, item in step.arguments.items()}
            values.extend(flatten(REGISTRY[step.op](**arguments)))
        return tuple(values[number] for number in self.results)

    def eager(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The program on PyTorch's tensors."""
        values = list(tensors)
        for step in self.steps:
            values.extend(call(step, values))
        return tuple(values[number] for number in self.results)

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """`eager` as Python code of its own, whose attributes are literals: Dynamo takes those of objects for sizes."""
        lines = [f"def program({', '.join(f'v{at}' for at in range(len(self.inputs)))}):"]
        number = len(self.inputs)
        for step, count in zip(self.steps, self.counts):
            names = "".join(f"v{number + at}, " for at in range(count))
            lines.append(f"    {names}= flatten(torch.{step.path}({arguments_text(step)}))")
            number += count
        lines.append(f"    return {''.join(f'v{number}, ' for number in self.results)}")
        space = {"torch": torch, "flatten": flatten, "inf": float("inf"), "nan": float("nan")}
        exec("\n".join(lines), space)
        return space["program"]  # type: ignore[return-value]

    def tensors(self) -> list[Any]:
        return [to_torch(array) if isinstance(array, np.ndarray) else array for array in self.inputs]

    def needed(self) -> Program:
        """The same without the steps and results that nothing asks for. Inputs stay."""
        wanted = set(self.results)
        kept: list[int] = []
        ends = np.cumsum([len(self.inputs), *self.counts]).tolist()
        for at in reversed(range(len(self.steps))):
            if wanted & set(range(ends[at], ends[at + 1])):
                kept.insert(0, at)
                wanted |= set(references(tuple(self.steps[at].arguments.values())))
        numbers = {number: number for number in range(len(self.inputs))}
        for at in kept:
            for number in range(ends[at], ends[at + 1]):
                numbers[number] = len(numbers)
        values = [Ref(numbers.get(number, -1)) for number in range(ends[-1])]
        steps = [
            replace(step, arguments={name: renumber(item, values) for name, item in step.arguments.items()})
            for step in (self.steps[at] for at in kept)
        ]
        return Program(self.inputs, steps, [self.counts[at] for at in kept], [numbers[item] for item in self.results])


def summary(array: Any) -> str:
    """The type and a few elements; or the number."""
    if not isinstance(array, np.ndarray):
        return f" = {array!r}"
    text = " ".join(str(item) for item in array.ravel()[:8])
    return f": {array.dtype}{list(array.shape)} = [{text}{' ...' if array.size > 8 else ''}]"


def references(item: Any) -> list[int]:
    """The numbers of all values in an argument."""
    if isinstance(item, Ref):
        return [item.number]
    return [number for inner in item for number in references(inner)] if isinstance(item, tuple) else []


def substitute(item: Any, values: Sequence[Any], element: Callable[[str], Any]) -> Any:
    """An argument with values in place of references and element types in place of their names.

    A value that is a function is called for each use."""
    if isinstance(item, Ref):
        return values[item.number]() if callable(values[item.number]) else values[item.number]
    if isinstance(item, Type):
        return element(item.name)
    return [substitute(inner, values, element) for inner in item] if isinstance(item, tuple) else item


def renumber(item: Any, values: Sequence[Ref]) -> Any:
    """An argument with other references."""
    if isinstance(item, Ref):
        return values[item.number]
    return tuple(renumber(inner, values) for inner in item) if isinstance(item, tuple) else item


@cache
def functions(op: str) -> tuple[str, ...]:
    """Where PyTorch has a function of an op's name."""
    found = []
    for space in NAMESPACES:
        path = f"{space}.{op}" if space else op
        if function_at(path) is not None:
            found.append(path)
    return tuple(found)


@cache
def function_at(path: str) -> Callable[..., Any] | None:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else None


REDUCTIONS = ("none", "mean", "sum")  # as torch.nn.functional spells aten's numbers
MOMENTS = ("var", "std", "var_mean", "std_mean")  # aten's first overload takes the number of a dim for `unbiased`


def call(step: Step, values: Sequence[Any], element: Callable[[str], Any] = TORCH_DTYPES.get) -> list[Any]:
    """The results of a step in PyTorch."""
    function = function_at(step.path)
    assert function is not None
    if step.floats:
        values = [partial(floating, item) for item in values]
    args, kwargs = arranged(step)
    args = [substitute(item, values, element) for item in args]
    kwargs = {name: substitute(item, values, element) for name, item in kwargs.items()}
    found = flatten(function(*args, **kwargs))  # which refuses what PyTorch refuses
    if step.op in ORDERED and (args[0] if args else kwargs["self"]).ndim:
        return flatten(ORDERED[step.op](*args, **kwargs))
    return found


def floating(item: Any) -> Any:
    """A value, or what a function of none makes, with integers as f64."""
    item = item() if callable(item) else item
    is_whole = isinstance(item, torch.Tensor) and not item.is_floating_point() and not item.is_complex()
    return item.double() if is_whole else item


def arranged(step: Step) -> tuple[list[Any], dict[str, Any]]:
    """The arguments by position and by name. What follows an argument that is left out has to be named."""
    defn = REGISTRY[step.op]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for position, parameter in enumerate(defn.parameters):
        if parameter.name in step.arguments:
            item = step.arguments[parameter.name]
            if parameter.name == "reduction" and type(item) is int and step.path.startswith("nn.functional"):
                item = REDUCTIONS[item]
            is_ambiguous = (
                step.op in MOMENTS if not step.path.startswith("nn.functional") else not parameter.is_tensor
            ) and position > 0  # torch.nn.functional has deprecated arguments between those of aten
            if parameter.positional and len(args) == position and not is_ambiguous:
                args.append(item)
            else:
                kwargs[parameter.name] = item
    return args, kwargs


def arguments_text(step: Step) -> str:
    args, kwargs = arranged(step)
    return ", ".join([*map(torch_text, args), *(f"{name}={torch_text(item)}" for name, item in kwargs.items())])


def torch_text(item: Any) -> str:
    if isinstance(item, Type):
        return repr(TORCH_DTYPES[item.name])
    return f"[{', '.join(map(torch_text, item))}]" if isinstance(item, tuple) else repr(item)
