"""Whose code is calling: smelt's own, or the user's."""

from __future__ import annotations

import os
import sys

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


# Libraries between the user and smelt: a line of theirs tells nobody what to mend.
_LIBRARIES = ("numpy", "torch")
skipped_files: dict[str, bool] = {}  # what is_skipped has said


def is_skipped(file: str) -> bool:
    """Whether a file is none of the user's: part of smelt, or of a library that calls it."""
    skipped = skipped_files.get(file)
    if skipped is None:
        skipped = skipped_files[file] = is_internal(file) or file.startswith(_library_folders())
    return skipped


def _library_folders() -> tuple[str, ...]:
    files = [getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES]
    return tuple(os.path.dirname(file) + os.sep for file in files if file)
