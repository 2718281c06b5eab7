"""Whose code is calling: smelt's own, or the user's."""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOT = os.path.dirname(_PACKAGE)
_INTERNAL = (_PACKAGE + os.sep, *(os.path.join(_ROOT, part) + os.sep for part in ("passes", "backend", "kernels")))
known_files: dict[str, bool] = {}  # what is_internal has said


def is_internal(file: str) -> bool:
    """Whether a file is part of smelt. The tools are not: they use smelt as anyone does."""
    internal = known_files.get(file)
    if internal is None:
        internal = known_files[file] = file.startswith(_INTERNAL) or file.startswith("<frozen")
    return internal
