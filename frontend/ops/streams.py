"""The streams of random ops: a number for each call, so that no two of them see the same random numbers.

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
    """As the default of a parameter it means: the next number, for each call."""

    def __next__(self) -> int:
        return next(_numbers.get() or _outside)

    def __repr__(self) -> str:
        return "the next number"


class counted_anew:
    """Streams are counted from zero inside."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token: Token[Iterator[int] | None] = _numbers.set(itertools.count())

    def __exit__(self, *raised: object) -> None:
        _numbers.reset(self.token)
