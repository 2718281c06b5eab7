"""Keep ops whole that PyTorch's tracing would decompose, where smelt has an op of that name.

PyTorch registers Python functions for these ops, which replace them by gathers and arithmetic while AOTAutograd traces.
While a graph is traced for smelt they are absent, so an op reaches the importer, and its gradient is PyTorch's backward
op. An overload `vec` takes sizes or scales; it stands for its op with the sizes worked out, also where they are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._prims_common import suggest_memory_format

WITHOUT_CORNERS = tuple(f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in "123")
WITH_CORNERS = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def _output_size(image: torch.Tensor, output_size: Any, scales: Sequence[float] | None) -> list[Any]:
    if output_size is not None:
        return list(output_size)
    assert scales is not None
    sizes = zip(image.shape[2:], scales)
    return [size * int(scale) if scale == int(scale) else torch.sym_int(size * scale) for size, scale in sizes]


def _sized(op: Any, has_corners: bool) -> Callable[..., torch.Tensor]:
    """Return what the overload of sizes or scales computes, as a call of the op itself."""

    def call(input: torch.Tensor, output_size: Any, *rest: Any) -> torch.Tensor:
        scales = rest[-1]
        corners = rest[:1] if has_corners else ()
        each = [None] * (input.ndim - 2) if scales is None else scales
        return op(input, _output_size(input, output_size, scales), *corners, *each)  # type: ignore[no-any-return]

    return call


def sized_overloads() -> dict[Any, Callable[..., torch.Tensor]]:
    """Return the overloads of sizes or scales, with what each computes."""
    found = {}
    for names, has_corners in ((WITHOUT_CORNERS, False), (WITH_CORNERS, True)):
        for name in names:
            packet = getattr(torch.ops.aten, name)
            found[packet.vec] = _sized(packet.default, has_corners)
    return found


def _image(grad_output: torch.Tensor, output_size: Any, input_size: Any, *rest: Any) -> torch.Tensor:
    """Return what tracing has to know of a gradient by an image, which has the memory order of its gradient."""
    order = suggest_memory_format(grad_output)
    return torch.empty(input_size, dtype=grad_output.dtype, device=grad_output.device, memory_format=order)


def _row_major_image(grad_output: torch.Tensor, output_size: Any, input_size: Any, *rest: Any) -> torch.Tensor:
    return grad_output.new_empty(input_size)


@contextmanager
def whole_ops() -> Iterator[None]:
    """Trace without PyTorch's own decompositions of ops that smelt has. Dynamo traces in one thread at a time."""
    changed: dict[Any, dict[Any, Any]] = {}

    def change(overload: Any) -> Any:
        changed[overload] = overload.py_kernels.copy()
        overload._dispatch_cache.clear()
        return overload.py_kernels

    for overload, sized in sized_overloads().items():
        change(overload).update(dict.fromkeys(KEYS, sized))
    for name in (*WITHOUT_CORNERS, *WITH_CORNERS):
        kernels = change(getattr(torch.ops.aten, name).default)
        for key in KEYS:
            kernels.pop(key, None)
        # PyTorch's own take no open sizes.
        kernels = change(getattr(torch.ops.aten, f"{name}_backward").default)
        kernels.setdefault(DispatchKey.Meta, _row_major_image if "cubic" in name else _image)
    try:
        yield
    finally:
        for overload, kernels in changed.items():
            overload.py_kernels.clear()
            overload.py_kernels.update(kernels)
            overload._dispatch_cache.clear()
