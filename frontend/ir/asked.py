"""What the user's code asks about open sizes while a function is traced, and what a program takes for granted then."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import Any


class Asked:
    """While a function is traced: the sizes at hand, and the questions about open sizes that they answered."""

    __slots__ = ("hints", "limits", "question", "token", "where")

    def __init__(self, hints: Mapping[str, int]):
        self.hints = hints  # the sizes at hand
        self.limits: list[tuple[Any, int]] = []  # expressions, and what they do not exceed: true of the sizes at hand
        self.where: list[str] = []  # lines of the user's that limited them
        self.question: Exception | None = None  # the first one about sizes that was raised

    def __enter__(self) -> Asked:
        self.token: Token[Asked | None] = _asked.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise a question that the user's `except Exception` took for an error: what it did then is not what it does
        where sizes are known."""
        _asked.reset(self.token)
        if self.question is not None and (error is None or isinstance(error, Exception)):
            if not hasattr(error, "is_question"):
                raise self.question


_asked: ContextVar[Asked | None] = ContextVar("smelt_asked", default=None)
current = _asked.get  # that of the function that is traced, or None


def note(question: Exception) -> None:
    """Remember a question about sizes that is about to be raised."""
    trace = current()
    if trace is not None and trace.question is None:
        trace.question = question


def without_hints() -> AbstractContextManager[Any]:
    """Inside, questions about sizes are decided by proofs alone, or are left to the trace around."""
    return nullcontext() if current() is None else Asked({})


def line_above(frames: int) -> str:
    """The line so many frames above."""
    frame = sys._getframe(frames + 1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
