"""NumPy's functions that round tensors, copy them, and tell their parts and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import DTypeError
from ..ir.graph import current_location
from ..ir.open_size import open_shape, open_size
from ..ir.types import bool_
from ..promotion import apply_ufunc
from .common import call, is_int, numpys, refuse, tensor


@numpys(np.round, np.around)
def rounded(a: Any, decimals: int = 0, out: None = None) -> Any:
    """np.round."""
    refuse("round", out=(out, None))
    x = tensor(a)
    if x.dtype.is_inexact:
        return call("round", x, decimals=decimals)
    if x.dtype is bool_ and not decimals:
        return apply_ufunc(np.rint, x)
    if x.dtype is bool_ or not is_int(decimals) or decimals < 0:
        raise DTypeError(f"numpy.round of {x.dtype} to {decimals} decimals", current_location())
    return x


@numpys(np.real)
def real(val: Any) -> Any:
    x = tensor(val)
    return call("real", x) if x.dtype.is_complex else x


@numpys(np.imag)
def imag(val: Any) -> Any:
    x = tensor(val)
    return call("imag", x) if x.dtype.is_complex else call("zeros_like", x)


@numpys(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return call("clone", tensor(a))


@numpys(np.size)
def size(a: Any, axis: int | None = None) -> Any:
    return open_size(a.type.numel if axis is None else a.type.shape[axis])


numpys(np.shape)(lambda a: open_shape(a.type.shape))
numpys(np.ndim)(lambda a: a.ndim)


@numpys(np.i0)
def i0(x: Any) -> Any:
    return call("i0", tensor(x))
