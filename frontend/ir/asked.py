"""Questions of user code about open sizes during tracing, and the limits that a program assumes by the answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from typing import Any


class Asked:
    """State of one trace: the sizes at hand, and the questions about open sizes that they answered."""

    __slots__ = ("decisions", "hints", "is_body", "limits", "needs", "question", "token", "where")

    def __init__(self, hints: Mapping[str, int], outer: Asked | None = None):
        self.hints = hints  # the sizes at hand: those of the call that is traced, by symbol
        self.limits: list[tuple[Any, int]] = []  # expressions with their upper bounds: guards on the sizes
        self.where: list[str] = []  # the user's lines that added the limits
        self.question: Exception | None = None  # the first one about sizes that was raised
        # Sizes that data decide (decided.py), and what the program needs of them: no memoised body of an op has any.
        self.is_body = outer is not None
        self.decisions: list[Any] = [] if outer is None else outer.decisions
        self.needs: list[
            tuple[Any, str, Any]
        ] = []  # expressions that are not negative, else the error, the user's line

    def __enter__(self) -> Asked:
        self.token: Token[Asked | None] = _asked.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise a question that the user's `except Exception` caught: the path through its handler is not the one that
        the function takes where sizes are known."""
        _asked.reset(self.token)
        if self.question is not None and (error is None or isinstance(error, Exception)):
            if not hasattr(error, "is_question"):
                raise self.question


_asked: ContextVar[Asked | None] = ContextVar("smelt_asked", default=None)
current = _asked.get  # the state of the running trace, or None


def note(question: Exception) -> None:
    """Remember a question about sizes that is about to be raised."""
    trace = current()
    if trace is not None and trace.question is None:
        trace.question = question


def without_hints() -> AbstractContextManager[Any]:
    """Return a context in which proofs alone answer questions about sizes; the enclosing trace answers the others."""
    trace = current()
    return nullcontext() if trace is None else Asked({}, trace)


def line_above(frames: int) -> str:
    """Return "file:line" of the frame so many frames above the caller."""
    frame = sys._getframe(frames + 1)
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
