"""Streams of random ops: a number for each call, so that different calls see different random numbers.

While a function is traced they are counted from zero, so that the same function always gives the same program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextvars import ContextVar, Token

from ..ir.process import process

_numbers: ContextVar[Iterator[int] | None] = ContextVar("smelt_streams", default=None)
_outside = process.keep("streams of random ops outside of traces", itertools.count())


class Streams:
    """A parameter's default that stands for the next stream number in each call."""

    def __next__(self) -> int:
        return next(_numbers.get() or _outside)

    def __repr__(self) -> str:
        return "the next number"


class counted_anew:
    """Context in which streams are counted from zero."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token: Token[Iterator[int] | None] = _numbers.set(itertools.count())

    def __exit__(self, *raised: object) -> None:
        _numbers.reset(self.token)
