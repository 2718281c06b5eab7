"""NumPy's functions that make tensors like another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import DTypeError
from ..ir.graph import current_location
from ..ir.types import user_dtype
from .common import call, numpys, refuse, tensor


def _like(name: str) -> Callable[..., Any]:
    def like(a: Any, dtype: Any = None, *, shape: None = None) -> Any:
        refuse(name, shape=(shape, None))
        return call(name, tensor(a), dtype=dtype)

    return like


@numpys(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    x = tensor(a)
    wanted = x.dtype if dtype is None else user_dtype(dtype)
    if isinstance(fill_value, complex) and not wanted.is_complex:
        raise DTypeError(f"numpy.full_like: {fill_value} is no {wanted}", current_location())
    return call("full_like", x, fill_value, dtype=dtype)


def _triangle(name: str) -> Callable[..., Any]:
    return lambda m, k=0: call(name, tensor(m), k)


numpys(np.zeros_like)(_like("zeros_like"))
numpys(np.ones_like)(_like("ones_like"))
numpys(np.empty_like)(_like("empty_like"))
numpys(np.tril)(_triangle("tril"))
numpys(np.triu)(_triangle("triu"))
