"""Machine code of a program, in a form that files can hold."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .program import Program


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor."""

    registers: int
    shared: int  # bytes of a block
    stack: int  # bytes of a thread
    spills: int  # bytes that are stored and loaded because registers are short


@dataclass(frozen=True)
class Compiled:
    """One launch's function for one architecture."""

    name: str
    entry: str  # the function's name in PTX
    ptx: str
    cubin: bytes
    resources: Resources


class Code:
    """A program, and its launches' functions as machine code."""

    def __init__(self, program: Program, compiled: Sequence[Compiled]):
        self.program = program
        self.compiled = compiled

    def header(self) -> dict[str, Any]:
        functions = [
            [item.name, item.entry, len(item.cubin), list(vars(item.resources).values())] for item in self.compiled
        ]
        return {"program": self.program.header(), "functions": functions}

    def content(self) -> bytes:
        """All machine code, and then the texts that it was made of, which only people read."""
        texts = "\0".join([self.program.source, *(item.ptx for item in self.compiled)])
        return b"".join([*(item.cubin for item in self.compiled), zlib.compress(texts.encode(), 1)])

    @staticmethod
    def from_entry(header: dict[str, Any], content: bytes) -> Code:
        functions = header["functions"]
        ends = [0]
        for _, _, size, _ in functions:
            ends.append(ends[-1] + size)
        source, *texts = zlib.decompress(content[ends[-1] :]).decode().split("\0")
        compiled = [
            Compiled(name, entry, ptx, content[start : start + size], Resources(*resources))
            for (name, entry, size, resources), start, ptx in zip(functions, ends[:-1], texts, strict=True)
        ]
        return Code(Program.from_header(header["program"], source), compiled)
