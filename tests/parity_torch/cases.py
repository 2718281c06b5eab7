"""What is compared: samples of PyTorch's databases of ops and modules.

A subject is an op or a module of a database; its samples are made from a seed, and each run gets a copy of its own,
so that no run can change what the next one gets.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations, opinfo
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

SEED = 1234
torch._dynamo.config.allow_rnn = True
# Their results are whatever was in memory.
UNDEFINED = re.compile(r"(new_)?empty(_like|_strided|_permuted)?|resize_|resize_as_")
# By the class of their entry, then by the start of their name.
CLASSES = {
    "UnaryUfuncInfo": "unary", "BinaryUfuncInfo": "binary", "ReductionOpInfo": "reductions",
    "ShapeFuncInfo": "shapes", "SpectralFuncInfo": "fft",
}  # fmt: skip
PREFIXES = ("nn.functional", "linalg", "fft", "special", "masked", "signal", "torch.ops.aten")


def _without_seed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


# The database sets a seed inside of its random ops, which Dynamo cannot trace; runs have one of their own.
common_methods_invocations.wrapper_set_seed = _without_seed


@dataclass(frozen=True)
class Subject:
    """An op or a module."""

    name: str
    family: str
    entry: Any

    @property
    def is_undefined(self) -> bool:
        return UNDEFINED.fullmatch(self.name) is not None

    def samples(self, count: int, dtype: torch.dtype = torch.float32) -> list[Run]:
        """Up to that many, spread over what the database has for the type."""
        if dtype not in self.entry.dtypes:
            return []
        torch.manual_seed(SEED)
        found = list((_module_runs if self.family == "modules" else _op_runs)(self.entry, dtype))
        if len(found) <= count:
            return found
        return [found[number * len(found) // count] for number in range(count)]


@dataclass
class Run:
    """A function, what it is given, and what becomes of its result before it is differentiated."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Callable[[Any], Any] = lambda value: value

    def copy(self) -> Run:
        # Tensors that deepcopy does not take: results of other ops, and sparse ones of the compressed kinds.
        special = [
            item
            for item in pytree.tree_leaves((self.args, self.kwargs))
            if isinstance(item, torch.Tensor) and (not item.is_leaf or item.layout is not torch.strided)
        ]
        known = {id(item): item.detach().clone().requires_grad_(item.requires_grad) for item in special}
        function, args, kwargs = copy.deepcopy((self.function, self.args, self.kwargs), known)
        return Run(function, args, kwargs, self.result)

    def wide(self) -> Run:
        """The same numbers as f64."""

        def convert(item: Any) -> Any:
            if not isinstance(item, torch.Tensor) or item.dtype != torch.float32:
                return item
            return item.detach().double().requires_grad_(item.requires_grad)

        function = copy.deepcopy(self.function)
        if isinstance(function, torch.nn.Module):
            function = function.double()
        args, kwargs = pytree.tree_map(convert, (self.args, self.kwargs))
        kwargs = {name: torch.float64 if item == torch.float32 else item for name, item in kwargs.items()}
        return Run(function, args, kwargs, self.result)

    def leaves(self) -> list[torch.Tensor]:
        """What to differentiate by."""
        found = [item for item in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(item, torch.Tensor)]
        if isinstance(self.function, torch.nn.Module):
            found += self.function.parameters()
        return [item for item in found if item.requires_grad]


@cache
def subjects() -> dict[str, Subject]:
    """All ops and modules, by their names."""
    found: dict[str, Subject] = {}
    for entry in op_db:
        found[_name(entry)] = Subject(_name(entry), _family(entry), entry)
    for entry in module_db:
        name = f"{entry.module_cls.__module__.removeprefix('torch.')}.{entry.module_cls.__name__}"
        name = re.sub(r"^nn\.modules\.\w+\.", "nn.", name)
        found[name] = Subject(name, "modules", entry)
    return found


def _name(entry: opinfo.core.OpInfo) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def _family(entry: opinfo.core.OpInfo) -> str:
    for prefix in PREFIXES:
        if entry.name.startswith(prefix):
            return prefix
    return CLASSES.get(type(entry).__name__, "other")


def _op_runs(entry: opinfo.core.OpInfo, dtype: torch.dtype) -> Iterator[Run]:
    has_gradient = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=has_gradient):
        yield Run(entry.op, (sample.input, *sample.args), sample.kwargs, sample.output_process_fn_grad)


def _module_runs(entry: Any, dtype: torch.dtype) -> Iterator[Run]:
    for training in (True, False) if entry.train_and_eval_differ else (True,):
        made = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for item in made:
            if item.forward_input is None:
                continue
            module = entry.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs)
            module = module.to(dtype).train(training)
            yield Run(module, item.forward_input.args, item.forward_input.kwargs)
