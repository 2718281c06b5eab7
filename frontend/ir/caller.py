"""Tells smelt's own source files from the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from .process import process

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOT = os.path.dirname(_PACKAGE)
_INTERNAL = (_PACKAGE + os.sep, *(os.path.join(_ROOT, part) + os.sep for part in ("passes", "backend", "kernels")))
known_files: dict[str, bool] = process.keep("files of smelt", {})  # answers of is_internal


def is_internal(file: str) -> bool:
    """Whether a file is part of smelt. The tools are not: they use smelt as user code does."""
    internal = known_files.get(file)
    if internal is None:
        internal = known_files[file] = file.startswith(_INTERNAL) or file.startswith("<frozen")
    return internal


# The command's own files, except the programs that come with it.
_COMMAND = tuple(os.path.join(place, "tools") + os.sep for place in (_ROOT, _PACKAGE))
_PROGRAMS = ("demo.py", f"workloads{os.sep}", f"cuda{os.sep}")
_NAME = __name__.partition(".")[0]
skipped_files: dict[str, bool] = process.keep("files that are none of the user's", {})  # answers of is_skipped


def is_skipped(file: str, names: Mapping[str, Any]) -> bool:
    """Whether an error should not name lines of this file: it is part of smelt, of its command, or of a library that
    does not use smelt (NumPy, SciPy, functools). names: the globals of the file's module."""
    skipped = skipped_files.get(file)
    if skipped is None:
        skipped = is_internal(file) or _is_command(file) or (file.startswith(_libraries()) and not _uses_smelt(names))
        skipped_files[file] = skipped
    return skipped


def _is_command(file: str) -> bool:
    if os.path.basename(file) == _NAME:
        return True  # the console script that an installation creates
    return any(file.startswith(place) and not file[len(place) :].startswith(_PROGRAMS) for place in _COMMAND)


@lru_cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    packages = [os.path.dirname(sys.modules[name].__file__ or "") for name in ("numpy", "torch") if name in sys.modules]
    installed = [os.path.dirname(folder) for folder in packages]
    folders = [os.path.dirname(os.__file__), *packages, *(item for item in installed if item.endswith("-packages"))]
    return tuple(folder + os.sep for folder in folders)


def _uses_smelt(names: Mapping[str, Any]) -> bool:
    """Whether a module's globals include smelt, an op, or a compiled function."""
    for value in list(names.values()):
        home = value.__name__ if isinstance(value, ModuleType) else type(value).__module__
        if isinstance(value, (type, FunctionType)):
            home = value.__module__
        if isinstance(home, str) and home.partition(".")[0] == _NAME:
            return True
    return False
