"""Arrays as native code takes them: dense, aligned, in the machine's byte order, and of a graph's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.errors import ShapeError
from ..ir.graph import Graph
from ..ir.symbolic import Expr, evaluate
from ..ir.types import TensorType, dtype


def is_plain(array: Any) -> bool:
    """An array that native code can take as it is."""
    if type(array) is not np.ndarray:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype.isnative


def as_plain(array: np.ndarray) -> np.ndarray:
    """The array itself if native code can take it, else a copy."""
    # ascontiguousarray would make a 0-dim array 1-dim.
    return array if is_plain(array) else np.array(array, order="C", dtype=array.dtype.newbyteorder("="))


def bind_sizes(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The value of each size symbol; the arrays must fit the parameters, and the symbols' ranges."""
    if len(arrays) != len(graph.params):
        raise ShapeError(f"{graph.name}: {len(arrays)} inputs for {len(graph.params)} parameters")
    sizes: dict[str, int] = {}
    for param, array in zip(graph.params, arrays, strict=True):
        if dtype(array.dtype) is not param.dtype or array.ndim != len(param.shape):
            given = TensorType(dtype(array.dtype), array.shape)
            raise ShapeError(f"{graph.name}: parameter {param.name} is {param.type}, got {given}")
        for dim, size in zip(param.shape, array.shape, strict=True):
            if isinstance(dim, Expr) and (symbol := dim.measured) is not None:
                sizes.setdefault(symbol.name, size)
    for symbol in graph.sizes:
        if symbol.name not in sizes:
            raise ShapeError(f"{graph.name}: no parameter has a size that tells {symbol}")
    for symbol in graph.sizes:
        # The code was made for these numbers: of others it would read what is not there.
        size, low, high = sizes[symbol.name], symbol.lower, symbol.upper
        if low is not None and size < low:
            raise ShapeError(f"{graph.name}: {symbol} is {size}, the program is for {symbol} >= {low}")
        if high is not None and size > evaluate(high, sizes):
            raise ShapeError(f"{graph.name}: {symbol} is {size}, the program is for {symbol} <= {high}")
    for param, array in zip(graph.params, arrays, strict=True):
        for dim, size in zip(param.shape, array.shape, strict=True):
            if evaluate(dim, sizes) != size:
                given = TensorType(param.dtype, array.shape)
                raise ShapeError(f"{graph.name}: parameter {param.name} is {param.type}, got {given}")
    return sizes
