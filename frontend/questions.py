"""Names the user's line that made an open size known, and its question."""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence

from .ir.caller import is_skipped
from .ir.symbolic import Expr, SizeNeeded, symbols_of
from .ir.types import TensorType


def asked_by(error: Exception, types: Sequence[TensorType], names: Sequence[str]) -> str:
    """Return the user's line that made sizes known, with its question, as one text."""
    place, source = _line_of(error)
    what = str(getattr(error, "message", error)).rstrip(".")
    if isinstance(error, SizeNeeded):
        wanted = symbols_of(error.size)
        dims = [
            f"{name}.shape[{dim}]"
            for name, item in zip(names, types, strict=False)
            for dim, size in enumerate(item.shape)
            if isinstance(size, Expr) and symbols_of(size) & wanted
        ]
        what = f"asks for the number of {' and '.join(dims[:2]) or repr(error.size)}"
    return f"{place}{f' ({source})' if source else ''}: {what}" if place else what


def _line_of(error: Exception) -> tuple[str, str]:
    """Return the innermost user line in an error's traceback: "file:number", and its source text."""
    found = None
    step = error.__traceback__
    while step is not None:
        if not is_skipped(step.tb_frame.f_code.co_filename, step.tb_frame.f_globals):
            found = step
        step = step.tb_next
    if found is None:
        return "", ""
    file, line = found.tb_frame.f_code.co_filename, found.tb_lineno
    return f"{os.path.basename(file)}:{line}", linecache.getline(file, line).strip()
