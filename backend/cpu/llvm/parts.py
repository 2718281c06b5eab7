"""Cut a module into parts that threads compile concurrently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....ir.record import Record


class PartSizes(Record):
    """Sizes of compilation units; chosen, no measurement is recorded but where the comment says so."""

    least: int = 3000  # characters of a part, at least: even an empty one takes LLVM a while
    each: int = 3  # parts per thread, for load balance
    statement: int = 450  # characters of a scalar statement's text: measured, the median of the benchmarks' kernels
    most: int = 24000  # characters from which a part is compiled while the rest of its module is still being emitted


SIZES = PartSizes()

_HEAD = re.compile(r"^define (.*? @[\w.]+)\((.*?)\)", re.MULTILINE)
_NAMES = re.compile(r" %[\w.]+")


class Part(Record):
    """Some functions of a module."""

    text: str
    plain: bool  # compiled without optimization: it is not hot

    @property
    def names(self) -> list[str]:
        """Return the names of its functions."""
        return [head[1].rpartition("@")[2] for head in _HEAD.finditer(self.text)]


@dataclass
class Module:
    """The text of a module: hot functions, plain ones (they only call others, or rarely run), shared declarations."""

    hot: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    gone: int = 0  # hot functions already handed over as parts
    parts_gone: int = 0

    def is_enough(self) -> bool:
        """Whether the remaining hot functions make a part: the first is small, so that threads start early."""
        return sum(map(len, self.hot[self.gone :])) >= min(SIZES.least * (1 + self.parts_gone), SIZES.most)

    def taken(self) -> list[str]:
        """Take the remaining hot functions, for a part of their own."""
        functions = self.hot[self.gone :]
        self.gone = len(self.hot)
        self.parts_gone += 1
        return functions

    @property
    def text(self) -> str:
        return "\n".join([*self.hot, *self.plain, *self.shared])

    def whole(self) -> Module:
        """Copy the module with no functions handed over."""
        return Module(self.hot, self.plain, self.shared)

    def parts(self, threads: int) -> list[Part]:
        """Cut the remaining hot functions into parts of about the same length, the longest first. Each part declares
        the functions of the others.

        A function's code does not depend on the other functions of its part.
        """
        hot = self.hot[self.gone :]
        declarations = {function: declaration(function) for function in (*self.hot, *self.plain)}
        bins: list[list[str]] = [[]]
        if threads > 1:
            count = min(threads * SIZES.each, len(hot), 1 + sum(map(len, hot)) // SIZES.least)
            bins = [[] for _ in range(count)]
        lengths = [0] * len(bins)
        for function in sorted(hot, key=len, reverse=True):
            shortest = lengths.index(min(lengths))
            bins[shortest].append(function)
            lengths[shortest] += len(function)

        def part(functions: Sequence[str], plain: bool) -> Part:
            others = (text for function, text in declarations.items() if function not in functions)
            return Part("\n".join([*functions, *others, *self.shared]), plain)

        bins.sort(key=lambda item: -sum(map(len, item)))
        parts = [part(functions, False) for functions in bins if functions]
        return [*parts, part(self.plain, True)] if self.plain else parts


def declaration(function: str) -> str:
    """Return the declaration of a defined function."""
    head = _HEAD.search(function)
    assert head is not None
    return f"declare {head[1]}({_NAMES.sub('', head[2])})"
