"""A module in several texts, which threads compile at the same time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartSizes:
    """How modules are cut for threads that compile. No measurement is recorded but where it says so."""

    least: int = 3000  # characters of a part: compiling even an empty one takes a while
    each: int = 3  # parts for a thread, so that all end at about the same time
    statement: int = 450  # characters of text of a statement on scalars: the median of the benchmarks' kernels
    most: int = 24000  # characters of a part that is compiled while the rest of its module is still being made


SIZES = PartSizes()

_HEAD = re.compile(r"^define (.*? @[\w.]+)\((.*?)\)", re.MULTILINE)
_NAMES = re.compile(r" %[\w.]+")


@dataclass(frozen=True)
class Part:
    """Some functions of a module."""

    text: str
    plain: bool  # to be compiled quickly: it is not worth more

    @property
    def names(self) -> list[str]:
        """Of its functions."""
        return [head[1].rpartition("@")[2] for head in _HEAD.finditer(self.text)]


@dataclass
class Module:
    """The functions that do the work, those that only call others or hardly ever run, and what all of them need."""

    hot: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    gone: int = 0  # hot functions that were taken out as parts
    parts_gone: int = 0

    def is_enough(self) -> bool:
        """Whether to take out what is there: the first part soon, so that threads have something to do."""
        return sum(map(len, self.hot[self.gone :])) >= min(SIZES.least * (1 + self.parts_gone), SIZES.most)

    def taken(self) -> list[str]:
        """The hot functions that are there, for a part of their own."""
        functions = self.hot[self.gone :]
        self.gone = len(self.hot)
        self.parts_gone += 1
        return functions

    @property
    def text(self) -> str:
        return "\n".join([*self.hot, *self.plain, *self.shared])

    def whole(self) -> Module:
        """The same module with nothing taken out."""
        return Module(self.hot, self.plain, self.shared)

    def parts(self, threads: int) -> list[Part]:
        """Hot functions that were not taken out, in parts of about the same length, the longest first. Each declares
        what others define.

        A function's code does not depend on what stands beside it.
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
    """What another part needs to know of a function."""
    head = _HEAD.search(function)
    assert head is not None
    return f"declare {head[1]}({_NAMES.sub('', head[2])})"
