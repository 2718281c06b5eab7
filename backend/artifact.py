"""What the compiler makes of a graph, and all that a call needs: numbers, formulas and object code.

It has no graph, no kernels and no addresses, so it can be kept in a file and serve another process. What a call needs
beside it (types of parameters and results, the user's lines) is read from the graph at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.graph import Graph, Location, Op
from ..ir.symbolic import Compound, Dim, Expr, Symbol
from ..ir.types import DType, dtype
from .report import Report


@dataclass(frozen=True)
class Place:
    """What to blame for an index out of range: a primitive, and the op of the traced graph that it is a part of."""

    op: str
    number: int | None  # of the traced op, among those that the graph's text has
    called: str  # how the user called it: the composite's name

    def location(self, graph: Graph) -> Location | None:
        """The user's line, in the program at hand."""
        found = None if self.number is None else printed_ops(graph)[self.number].loc
        return found if found is None or not self.called else found.inside(self.called)


def printed_ops(graph: Graph) -> list[Op]:
    """The ops that have a line in the graph's text: the same ones in all graphs of that text."""
    return [op for op in graph.ops if op.name != "constant"]


@dataclass(frozen=True)
class Artifact:
    stored: list[tuple[DType, tuple[Dim, ...]]]  # arrays that native code fills
    sources: list[tuple[str, int]]  # of each result: "own", a "copy" of a stored array, or of a "parameter"
    scratch: list[Dim]  # bytes of each region, for each thread
    arena: Dim  # bytes
    strides: list[Dim]  # of the matrices that BLAS gets
    uses_blas: bool
    places: list[Place]  # by site number
    report: Report
    code: bytes

    def header(self) -> dict[str, Any]:
        """All but the code, as JSON has it."""
        return {
            "stored": [[item.name, list(map(encode, shape))] for item, shape in self.stored],
            "sources": self.sources,
            "scratch": list(map(encode, self.scratch)),
            "arena": encode(self.arena),
            "strides": list(map(encode, self.strides)),
            "uses_blas": self.uses_blas,
            "places": [[place.op, place.number, place.called] for place in self.places],
            "report": self.report.lasting(),
        }

    @staticmethod
    def from_header(header: dict[str, Any], code: bytes) -> Artifact:
        return Artifact(
            [(dtype(name), tuple(map(decode, shape))) for name, shape in header["stored"]],
            [(how, number) for how, number in header["sources"]],
            list(map(decode, header["scratch"])),
            decode(header["arena"]),
            list(map(decode, header["strides"])),
            header["uses_blas"],
            [Place(*place) for place in header["places"]],
            Report.read(header["report"]),
            code,
        )


def encode(value: Dim) -> Any:
    """A number as it is; an expression as its terms: [[coefficient, [atoms]], ...]."""
    if isinstance(value, int):
        return value
    return [
        [
            coefficient,
            [
                atom.name if isinstance(atom, Symbol) else [atom.operator, encode(atom.left), encode(atom.right)]
                for atom in monomial
            ],
        ]
        for monomial, coefficient in value.terms
    ]


def decode(found: Any) -> Dim:
    """What was encoded. Its symbols have no ranges: it is evaluated, never simplified."""
    if isinstance(found, int):
        return found
    return Expr(
        tuple(
            (
                tuple(
                    Symbol(atom) if isinstance(atom, str) else Compound(atom[0], decode(atom[1]), decode(atom[2]))
                    for atom in atoms
                ),
                coefficient,
            )
            for coefficient, atoms in found
        )
    )
