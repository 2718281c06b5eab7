"""Calls of aten ops that PyTorch makes for a sample of its databases, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from parity_torch.cases import Run, Subject
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

MOST = 40  # calls of a sample: samples of scans and recurrent modules make hundreds of the same
# Largest number of elements of a tensor: a call is compiled for its sizes, and NumPy's reference is float64.
LARGEST = 1 << 20


@dataclass
class Call:
    """An overload of an aten op with its arguments."""

    overload: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def op(self) -> str:
        """The name of the op, as in the registry."""
        return str(self.overload._schema.name).removeprefix("aten::")

    def tensors(self) -> list[torch.Tensor]:
        return [item for item in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(item, torch.Tensor)]

    def key(self) -> tuple[Any, ...]:
        """Calls with equal keys show the same: types, shapes and strides of tensors, and all other arguments."""

        def shown(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                return (str(item.dtype), tuple(item.shape), tuple(item.stride()))
            return repr(item)

        return (str(self.overload), *map(shown, pytree.tree_leaves((self.args, self.kwargs))))


class Recorder(TorchDispatchMode):
    """Keeps the calls of functional aten ops on strided tensors. A mutating op is recorded by its functional form's
    calls alone, as torch.compile sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[tuple[Any, ...], Call] = {}
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = Call(function, args, kwargs)
        if function.namespace == "aten" and not function._schema.is_mutable and _is_plain(call):
            key = call.key()
            if key not in self.calls and self.seen[str(function)] < MOST:
                self.seen[str(function)] += 1
                self.calls[key] = Call(function, *pytree.tree_map(_copied, (args, kwargs)))
        return function(*args, **kwargs)


def _is_plain(call: Call) -> bool:
    tensors = call.tensors()
    return all(
        type(item) in (torch.Tensor, torch.nn.Parameter)
        and item.layout is torch.strided
        and item.device.type == "cpu"
        and not item.is_quantized
        and item.numel() <= LARGEST
        for item in tensors
    )


def _copied(item: Any) -> Any:
    if not isinstance(item, torch.Tensor):
        return item
    # Strides are kept; what a view hides of its base is not.
    return item.detach().clone(memory_format=torch.preserve_format)


def calls_of(subject: Subject, samples: int, dtype: torch.dtype) -> Iterator[Call]:
    """The different calls that samples of a subject make."""
    recorder = Recorder()
    for run in subject.samples(samples, dtype):
        try:
            _walk(run, recorder)
        except Exception:  # eager has no such sample; what it called before counts
            continue
    yield from recorder.calls.values()


def _walk(run: Run, recorder: Recorder) -> None:
    """The forward computation, its gradient and the gradient of that, while calls are recorded."""
    torch.manual_seed(0)
    leaves = run.leaves()
    with recorder:
        result = run.function(*run.args, **run.kwargs)
        wanted = [
            item
            for item in pytree.tree_leaves(run.result(result))
            if isinstance(item, torch.Tensor) and item.requires_grad
        ]
        if not wanted or not leaves:
            return
        try:
            found = torch.autograd.grad(
                wanted, leaves, [torch.ones_like(item) for item in wanted], create_graph=True, allow_unused=True
            )
            again = [item for item in found if item is not None and item.requires_grad]
            if again:
                torch.autograd.grad(again, leaves, [torch.ones_like(item) for item in again], allow_unused=True)
        except RuntimeError:
            return
