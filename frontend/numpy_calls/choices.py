"""NumPy's functions that choose between tensors: clip, where, select."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError
from ..ir.graph import current_location
from ..ir.open_size import expression
from ..ir.types import bool_
from ..promotion import apply_ufunc
from .common import call, is_int, numpys, refuse, tensor, together
from .data_sizes import places


@numpys(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip: a bound beyond the range of an integer type has no effect."""
    refuse("clip", out=(out, None))
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise ArgumentError("numpy.clip: a bound is given twice", current_location())
    x = tensor(a)
    low, high = expression((a_min if min is None else min, a_max if max is None else max))
    if x.dtype.is_integer:
        smallest, largest = x.dtype.bounds
        low = None if is_int(low) and low < smallest else low
        high = None if is_int(high) and high > largest else high
    if low is None and high is None:
        return apply_ufunc(np.positive, x)  # raises for bools, as NumPy does
    if low is None:
        return apply_ufunc(np.minimum, x, high)
    if high is None:
        return apply_ufunc(np.maximum, x, low)
    x, low, high = together(x, low, high)
    return apply_ufunc(np.minimum, apply_ufunc(np.maximum, x, low), high)


@numpys(np.where)
def where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return places(condition)
    if len(choices) != 2:
        raise ArgumentError(f"numpy.where: {len(choices)} choices, expected none or 2", current_location())
    given = tensor(condition)
    return call("where", given if given.dtype is bool_ else given != 0, *together(*choices))


@numpys(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    conditions = list(map(tensor, condlist))
    if len(conditions) != len(choicelist) or not conditions:
        raise ArgumentError(
            f"numpy.select: {len(conditions)} conditions and {len(choicelist)} choices", current_location()
        )
    for condition in conditions:
        if condition.dtype is not bool_:
            raise DTypeError(f"numpy.select: a condition is {condition.dtype}, expected bool", current_location())
    *choices, result = together(*choicelist, default)
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        result = call("where", condition, choice, result)
    return result
