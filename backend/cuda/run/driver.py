"""Copies between the host and a GPU, in the order of a stream: the CUDA driver's own functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cuda.core import Stream


def write(address: int, array: np.ndarray, stream: Stream) -> None:
    """An array of the host, to the GPU. It must not change, nor go, before the stream has passed."""
    from cuda.bindings import driver

    if array.nbytes:
        check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, int(stream.handle)))


def write_number(address: int, array: np.ndarray, stream: Stream) -> None:
    """A few bytes to the GPU. They travel in the commands themselves: there is nothing to keep."""
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
    """An error of the driver's as an exception."""
    if int(answer[0]):
        raise RuntimeError(f"the CUDA driver says {answer[0]!r}")
