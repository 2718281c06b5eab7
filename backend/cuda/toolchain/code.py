"""The machine code of a program; it can be written to a file."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..program import Program


@dataclass(frozen=True)
class Resources:
    """Resources of one kernel on a streaming multiprocessor."""

    registers: int
    shared: int  # bytes per block
    stack: int  # bytes per thread
    spills: int  # bytes of register spills


@dataclass(frozen=True)
class Compiled:
    """One launch's function, compiled for one architecture."""

    name: str
    entry: str  # name of the function in PTX
    ptx: str
    cubin: bytes
    resources: Resources


class Code:
    """A program with its launches' functions as machine code."""

    def __init__(self, program: Program, compiled: Sequence[Compiled]):
        self.program = program
        self.compiled = compiled

    def header(self) -> dict[str, Any]:
        """Return its fields for JSON; machine code is named by its entry, since launches may share it."""
        functions = [
            [entry, len(item.cubin), list(vars(item.resources).values())] for entry, item in self.functions.items()
        ]
        return {
            "program": self.program.header(),
            "functions": functions,
            "launches": [[item.name, item.entry] for item in self.compiled],
        }

    @property
    def functions(self) -> dict[str, Compiled]:
        """Return the compiled functions without duplicates."""
        return {item.entry: item for item in self.compiled}

    def content(self) -> bytes:
        """Return all machine code, then the source and PTX, which are for people."""
        functions = self.functions.values()
        texts = "\0".join([self.program.source, *(item.ptx for item in functions)])
        return b"".join([*(item.cubin for item in functions), zlib.compress(texts.encode(), 1)])

    @staticmethod
    def from_entry(header: dict[str, Any], content: bytes) -> Code:
        functions = header["functions"]
        source, *texts = zlib.decompress(content[sum(size for _, size, _ in functions) :]).decode().split("\0")
        found: dict[str, Compiled] = {}
        start = 0
        for (entry, size, resources), ptx in zip(functions, texts, strict=True):
            found[entry] = Compiled("", entry, ptx, content[start : start + size], Resources(*resources))
            start += size
        compiled = [replace(found[entry], name=name) for name, entry in header["launches"]]
        return Code(Program.from_header(header["program"], source), compiled)
