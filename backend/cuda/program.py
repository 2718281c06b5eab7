"""The compiled form of a graph for GPUs, with all that a call needs; it can be written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.graph import Graph
from ...ir.symbolic import Dim
from ...ir.types import DType, dtype
from ..artifact import Overwrites, Place, decode, encode
from ..call_plan import CallPlan
from .codegen.launch import ALIGN, Launch


@dataclass(frozen=True)
class Program:
    """Source, launches, and the place of every buffer. Bytes are numbers, or formulas of the symbolic sizes."""

    source: str
    launches: Sequence[Launch]
    params: Sequence[str]  # names of buffers
    stored: Sequence[tuple[str, DType, tuple[Dim, ...]]]  # results: buffer, type, shape
    sources: Sequence[tuple[str, int]]  # of each result, as an Artifact has it
    offsets: dict[str, Dim]  # of temporaries in the arena
    arena: Dim
    overwrites: Overwrites  # stored arrays that may be stored in place of parameters
    places: Sequence[Place]  # by site
    report: dict[str, Any]  # as Report.lasting has it
    reaches: Sequence[Dim]  # upper bounds of the int32 indices, by the symbolic sizes

    def plan(self, graph: Graph) -> CallPlan:
        return CallPlan.of(graph, self, [(kind, shape) for _, kind, shape in self.stored], ALIGN, {})

    def header(self) -> dict[str, Any]:
        """Return all but the source, for JSON."""
        return {
            "launches": [launch.header() for launch in self.launches],
            "params": self.params,
            "stored": [[name, kind.name, list(map(encode, shape))] for name, kind, shape in self.stored],
            "sources": self.sources,
            "offsets": {name: encode(offset) for name, offset in self.offsets.items()},
            "arena": encode(self.arena),
            "overwrites": self.overwrites.header(),
            "places": [[place.op, place.number, place.called] for place in self.places],
            "report": self.report,
            "reaches": list(map(encode, self.reaches)),
        }

    @staticmethod
    def from_header(header: dict[str, Any], source: str) -> Program:
        return Program(
            source=source,
            launches=[Launch.from_header(item) for item in header["launches"]],
            params=header["params"],
            stored=[(name, dtype(kind), tuple(map(decode, shape))) for name, kind, shape in header["stored"]],
            sources=[(how, number) for how, number in header["sources"]],
            offsets={name: decode(offset) for name, offset in header["offsets"].items()},
            arena=decode(header["arena"]),
            overwrites=Overwrites(*header["overwrites"]),
            places=[Place(*place) for place in header["places"]],
            report=header["report"],
            reaches=list(map(decode, header["reaches"])),
        )
