"""Native steps on NVIDIA GPUs: on PyTorch's memory and its current stream."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..backend.options import CompileOptions
from ..ir.errors import CompileError

if TYPE_CHECKING:
    from ..backend.call_plan import SizedPlan


@lru_cache
def refusal() -> str:
    """Return why no code is compiled for GPUs, or ''."""
    from ..backend.cuda.compile import check_installed

    try:
        check_installed()
    except CompileError as error:
        return error.message
    return ""


def options_for(device: torch.device, rounding: str) -> CompileOptions:
    return CompileOptions(target="cuda", architecture=architecture(device), rounding=rounding)


def architecture(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def stream_handle(device: torch.device) -> int:
    """Return the handle of PyTorch's current stream; 0 is the default stream."""
    return torch.cuda.current_stream(device).cuda_stream


def moved(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a constant of a program on the device."""
    return torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8)).to(device)


class Launch:
    """The call of a program for some sizes: addresses of parameters, then of stored arrays.

    PyTorch's allocator gives equal calls equal addresses: from the second time on, a call is one launch of a CUDA
    graph, as in `smelt.jit`.
    """

    def __init__(self, executable: Any, plan: SizedPlan, device: torch.device):
        from ..backend.cuda.run.device import DeviceLauncher

        self.launcher = DeviceLauncher(executable, plan)
        self.device = device
        self.index = device.index or 0

    def __call__(self, *addresses: int) -> None:
        from ..backend.cuda.run.arrays import LEGACY, stream_of
        from ..backend.cuda.run.device import current

        with current(self.index):
            ready = self.launcher.on(self.index)
            stream = stream_of(stream_handle(self.device) or LEGACY)
            # From PyTorch's allocator, which reuses the memory in stream order.
            arena = torch.empty(ready.size, dtype=torch.uint8, device=self.device)
            ready.launch(stream, addresses, arena.data_ptr())
            ready.raise_errors(stream, arena.data_ptr())
