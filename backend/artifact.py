"""The compiled form of a graph with all that a call needs: numbers, formulas and object code.

It has no graph, no kernels and no addresses, so it can be stored in a file and used by another process. The other facts
of a call (types of parameters and results, the user's lines) are read from the graph at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.graph import Graph, Location, Op
from ..ir.symbolic import Compound, Dim, Expr, Symbol
from ..ir.types import DType, dtype
from ..ops.create import constant

if TYPE_CHECKING:
    from ..kernels.loop.ir import Site


class Place:
    """The origin of an index error: a primitive, and the op of the traced graph whose body it is from."""

    def __init__(self, op: str, number: int | None, called: str):
        self.op = op
        self.number = number  # index of the traced op among the ops in the graph's text
        self.called = called  # name that the user called: the composite's

    def location(self, graph: Graph) -> Location | None:
        """Return the user's line, in the program at hand."""
        found = None if self.number is None else printed_ops(graph)[self.number].loc
        return found if found is None or not self.called else found.inside(self.called)

    def message(self, graph: Graph) -> str:
        """Return what the traced op says if it is an assertion."""
        found = {} if self.number is None else printed_ops(graph)[self.number].arguments
        return str(found.get("assert_msg", ""))


def printed_ops(graph: Graph) -> list[Op]:
    """List the ops that have a line in the graph's text: the same ones in all graphs of that text."""
    return [op for op in graph.ops if op.defn is not constant]


def find_places(graph: Graph, sites: Sequence[Site]) -> list[Place]:
    """Find the op of the traced graph of each site, by its location, which passes preserve."""
    numbers: dict[int, int] = {}
    for number, op in enumerate(printed_ops(graph)):
        if op.loc is not None:
            numbers.setdefault(id(op.loc), number)

    def place(op: str, location: Location | None) -> Place:
        if location is None:
            return Place(op, None, "")
        if id(location) in numbers:
            return Place(op, numbers[id(location)], "")
        called = "" if op.startswith("@") else location.op  # a kernel and its buffer are more precise
        return Place(op, numbers.get(id(location.outer)), called)

    return [place(site.op, site.location) for site in sites]


class Overwrites:
    """Stored arrays that may be stored in place of parameters (found by passes/memory/in_place.py)."""

    def __init__(self, reads: Sequence[int], writes: Sequence[int], same_place: Sequence[Sequence[int]]):
        self.reads = reads  # the last kernel that reads each parameter
        self.writes = writes  # the first kernel that writes each array
        self.same_place = {(array, param) for array, param in same_place}  # each element read, then written

    def header(self) -> list[Any]:
        return [self.reads, self.writes, sorted(self.same_place)]

    def allow(self, array: int, param: int) -> bool:
        if self.reads[param] < self.writes[array]:
            return True
        return self.reads[param] == self.writes[array] and (array, param) in self.same_place


class Artifact:
    """Facts and code of a compiled graph. Sizes in bytes are numbers, or formulas of the symbolic sizes."""

    def __init__(
        self,
        *,
        stored: Sequence[tuple[DType, tuple[Dim, ...]]],
        sources: Sequence[tuple[str, int]],
        scratch: Sequence[Dim],
        alone: Sequence[Dim],
        arena: Dim,
        products: Sequence[str],
        is_long: bool,
        vector_bits: int,
        overwrites: Overwrites,
        streamed: Sequence[int],
        places: Sequence[Place],
        report: dict[str, Any],
        code: bytes,
    ):
        self.stored = stored  # types and shapes of the arrays that native code stores
        self.sources = sources  # of each result: "own", a "copy" of a stored array, or of a "parameter"
        self.scratch = scratch  # bytes per thread, of each parallel region
        self.alone = alone  # bytes of each region that the caller runs alone, unless they are in the arena
        self.arena = arena
        self.products = products  # libraries of GEMM routines
        self.is_long = is_long  # some step is worth waking sleeping threads for
        self.vector_bits = vector_bits
        self.overwrites = overwrites  # stored arrays that may be stored in place of parameters
        self.streamed = streamed  # numbers of the stored arrays that must be aligned to a cache line
        self.places = places  # by site number
        self.report = report  # as Report.lasting returned it
        self.code = code

    def header(self) -> dict[str, Any]:
        """Return all but the code, for JSON."""
        return {
            "stored": [[item.name, list(map(encode, shape))] for item, shape in self.stored],
            "sources": self.sources,
            "scratch": list(map(encode, self.scratch)),
            "alone": list(map(encode, self.alone)),
            "arena": encode(self.arena),
            "products": self.products,
            "is_long": self.is_long,
            "vector_bits": self.vector_bits,
            "overwrites": self.overwrites.header(),
            "streamed": self.streamed,
            "places": [[place.op, place.number, place.called] for place in self.places],
            "report": self.report,
        }

    @staticmethod
    def from_header(header: dict[str, Any], code: bytes) -> Artifact:
        return Artifact(
            stored=[(dtype(name), tuple(map(decode, shape))) for name, shape in header["stored"]],
            sources=[(how, number) for how, number in header["sources"]],
            scratch=list(map(decode, header["scratch"])),
            alone=list(map(decode, header["alone"])),
            arena=decode(header["arena"]),
            products=header["products"],
            is_long=header["is_long"],
            vector_bits=header["vector_bits"],
            overwrites=Overwrites(*header["overwrites"]),
            streamed=header["streamed"],
            places=[Place(*place) for place in header["places"]],
            report=header["report"],
            code=code,
        )


def encode(value: Dim) -> Any:
    """Encode a number as it is, an expression as its terms: [[coefficient, [atoms]], ...]."""
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
    """Decode a number or expression. Its symbols have no ranges: it is evaluated, never simplified."""
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
