"""Copy between the host and a GPU in stream order, by the CUDA driver's functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cuda.core import Stream


def write(address: int, array: np.ndarray, stream: Stream) -> None:
    """Copy a host array to the GPU. It must not change or be freed before the stream has done the copy."""
    from cuda.bindings import driver

    if array.nbytes:
        check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, int(stream.handle)))


def write_number(address: int, array: np.ndarray, stream: Stream) -> None:
    """Write a few bytes to the GPU. They are part of the commands, so no memory must be kept."""
    from cuda.bindings import driver

    content = np.ascontiguousarray(array).tobytes()
    width = next(width for width in (4, 2, 1) if len(content) % width == 0)
    fill = {4: driver.cuMemsetD32Async, 2: driver.cuMemsetD16Async, 1: driver.cuMemsetD8Async}[width]
    for start in range(0, len(content), width):
        value = int.from_bytes(content[start : start + width], sys.byteorder)
        check(fill(address + start, value, 1, int(stream.handle)))


def read(address: int, array: np.ndarray, stream: Stream) -> None:
    from cuda.bindings import driver

    if array.nbytes:
        check(driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, int(stream.handle)))


def copy(target: int, source: int, size: int, stream: Stream) -> None:
    from cuda.bindings import driver

    if size:
        check(driver.cuMemcpyDtoDAsync(target, source, size, int(stream.handle)))


def clear(address: int, size: int, stream: Stream) -> None:
    from cuda.bindings import driver

    check(driver.cuMemsetD8Async(address, 0, size, int(stream.handle)))


def check(answer: tuple[Any, ...]) -> None:
    """Raise an error of the driver."""
    if int(answer[0]):
        raise RuntimeError(f"the CUDA driver says {answer[0]!r}")
