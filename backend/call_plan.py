"""The plan of a call: every fact about calling a compiled graph, derived once from the graph and its artifact.

Executors carry a plan out and derive nothing themselves: the Python launcher and the native entry (cpu/call), launches
on a GPU and in Numba's simulator (cuda/run), steps of PyTorch's graphs and the calls generated for them (torch).

`Signature` says from which argument each size is read, and refuses arguments of other types, ranks or shapes when a
compiled graph is called directly. A jitted function checks before: its native entry by guards (cpu/call/entry.py, whose
docstring lists what they check), else jit.py by types, ranks and static arguments and versions.py by sizes; arguments
that fit no version compile another one.

`CallPlan` holds for all sizes. `SizedPlan` is the same for one set of sizes, in numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..ir.errors import ShapeError, range_error
from ..ir.graph import Graph
from ..ir.symbolic import Dim, Expr, Symbol, evaluate
from ..ir.types import DType, Order, TensorType, dtype
from .artifact import Overwrites, Place

Sizes = Mapping[str, int]


class Signature(NamedTuple):
    """The parameters of a graph, and from which of their dims a call reads the symbolic sizes."""

    name: str
    labels: tuple[str, ...]
    types: tuple[TensorType, ...]
    symbols: tuple[Symbol, ...]
    measured: tuple[tuple[str, int, int], ...]  # a symbol's name, the parameter, its dim

    @staticmethod
    def of(graph: Graph) -> Signature:
        types = tuple([param.type for param in graph.params])
        symbols = graph.sizes
        found: dict[str, tuple[str, int, int]] = {}
        if symbols:
            for number, item in enumerate(types):
                for at, dim in enumerate(item.shape):
                    if isinstance(dim, Expr) and (symbol := dim.measured) is not None:
                        found.setdefault(symbol.name, (symbol.name, number, at))
        labels = tuple([param.name for param in graph.params])
        return Signature(graph.name, labels, types, symbols, tuple(found.values()))

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Read the symbolic sizes from the shapes of the parameters, which are taken to fit."""
        return {name: shapes[number][at] for name, number, at in self.measured}

    def fits(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Return whether the first parameters may have these shapes, of as many dims as they have."""
        return self._misfit(self.sizes_of(shapes), shapes) is None

    def bind(self, arrays: Sequence[Any]) -> dict[str, int]:
        """Return the symbolic sizes for these arrays; raise ShapeError if they do not fit the program, which would read
        out of bounds."""
        if len(arrays) != len(self.types):
            raise ShapeError(f"{self.name}: {len(arrays)} inputs for {len(self.types)} parameters")
        for number, (item, array) in enumerate(zip(self.types, arrays, strict=True)):
            if dtype(array.dtype) is not item.dtype or array.ndim != len(item.shape):
                self._refuse(number, array)
        sizes = self.sizes_of([array.shape for array in arrays])
        for symbol in self.symbols:
            if symbol.name not in sizes:
                raise ShapeError(f"{self.name}: no parameter has a dim of size {symbol}, so its value cannot be read")
        wrong = self._misfit(sizes, [array.shape for array in arrays])
        if isinstance(wrong, Symbol):
            size = sizes[wrong.name]
            bound = f">= {wrong.lower}" if wrong.lower is not None and size < wrong.lower else f"<= {wrong.upper}"
            raise ShapeError(f"{self.name}: {wrong} is {size}, the program is for {wrong} {bound}")
        if wrong is not None:
            self._refuse(wrong, arrays[wrong])
        return sizes

    def _misfit(self, sizes: Sizes, shapes: Sequence[Sequence[int]]) -> Symbol | int | None:
        """Find the first symbol out of its range, else the number of the first parameter of another shape."""
        for symbol in self.symbols:
            size, low, high = sizes[symbol.name], symbol.lower, symbol.upper
            if (low is not None and size < low) or (high is not None and size > evaluate(high, sizes)):
                return symbol
        for number, (item, shape) in enumerate(zip(self.types, shapes)):
            for dim, size in zip(item.shape, shape, strict=True):
                if (dim if isinstance(dim, int) else evaluate(dim, sizes)) != size:
                    return number
        return None

    def _refuse(self, number: int, array: Any) -> NoReturn:
        given = TensorType(dtype(array.dtype), tuple(array.shape))
        raise ShapeError(f"{self.name}: parameter {self.labels[number]} is {self.types[number]}, got {given}")


class Compiled(Protocol):
    """The fields of any target's artifact that a plan reads."""

    @property
    def sources(self) -> Sequence[tuple[str, int]]: ...
    @property
    def arena(self) -> Dim: ...
    @property
    def overwrites(self) -> Overwrites: ...
    @property
    def places(self) -> Sequence[Place]: ...


class CallPlan(NamedTuple):
    """The calling convention of compiled code: its parameters, the arrays that it stores, the results made of them.

    Code takes the addresses of all parameters, then those of the arrays that it stores. The parameters are: those given
    by the caller; some that only carry sizes and have no memory; constants; and the seed state, drawn for each call.
    """

    graph: Graph
    signature: Signature
    given: int  # number of parameters that the caller gives, the first ones
    constants: tuple[np.ndarray, ...]
    is_seeded: bool
    stored: tuple[tuple[DType, tuple[Dim, ...]], ...]  # types and shapes of the arrays that code stores
    results: tuple[TensorType, ...]
    orders: tuple[Order | None, ...]  # each result's permutation of its array's dims; None: none
    owners: tuple[int, ...]  # number of the result that is each stored array itself
    copies: tuple[
        tuple[int, str, int], ...
    ]  # (result, "parameter" or "copy", source) of the other results: copies of a parameter or of a stored array
    arena: Dim  # bytes
    overwrites: Overwrites
    places: tuple[Place, ...]  # origins of errors, by site
    param_alignment: int  # bytes
    stored_alignment: tuple[int, ...]  # bytes, of each stored array

    @staticmethod
    def of(
        graph: Graph,
        made: Compiled,
        stored: Sequence[tuple[DType, tuple[Dim, ...]]],
        alignment: int,
        aligned: Mapping[int, int],
    ) -> CallPlan:
        """Make the plan of a caller that gives all parameters. aligned: bytes of stored arrays' own alignments."""
        signature = Signature.of(graph)
        owners = {source: at for at, (how, source) in enumerate(made.sources) if how == "own"}
        return CallPlan(
            graph=graph,
            signature=signature,
            given=len(signature.types),
            constants=(),
            is_seeded=False,
            stored=tuple(stored),
            results=tuple([value.type for value in graph.results]),
            orders=(None,) * len(graph.results),
            owners=tuple([owners[number] for number in range(len(stored))]),
            copies=tuple([(at, how, source) for at, (how, source) in enumerate(made.sources) if how != "own"]),
            arena=made.arena,
            overwrites=made.overwrites,
            places=tuple(made.places),
            param_alignment=alignment,
            stored_alignment=tuple([aligned.get(number, alignment) for number in range(len(stored))]),
        )

    def hiding(
        self,
        constants: Sequence[np.ndarray],
        is_seeded: bool,
        given: int | None = None,
        orders: Sequence[Order | None] | None = None,
    ) -> CallPlan:
        """Make the plan of a caller that does not give the last parameters. given: the number it gives, if some of the
        others only carry sizes. orders: permutations of its results' dims, if not the stored order."""
        hidden = len(constants) + is_seeded
        return self._replace(
            given=len(self.signature.types) - hidden if given is None else given,
            constants=tuple(constants),
            is_seeded=is_seeded,
            orders=self.orders if orders is None else tuple(orders),
        )

    @property
    def absent(self) -> int:
        """Count the parameters that only carry sizes."""
        return len(self.signature.types) - self.given - len(self.constants) - self.is_seeded

    def may_overwrite(self, number: int, param: int | None) -> bool:
        """Return whether a stored array may be in a parameter's memory; parameter None: memory that code does not read.

        Code that may raise an error overwrites no parameter: after an error all arguments are unchanged.
        """
        if self.places:
            return False
        if param is None:
            return True
        is_copied = any(how == "parameter" and source == param for _, how, source in self.copies)
        return not is_copied and self.overwrites.allow(number, param)

    def at(self, sizes: Sizes) -> SizedPlan:
        return SizedPlan(self, sizes)

    def for_shapes(self, shapes: Sequence[Sequence[int]]) -> SizedPlan:
        """Make the plan for parameters of these shapes, which are assumed to fit."""
        return SizedPlan(self, self.signature.sizes_of(shapes))

    def for_arrays(self, arrays: Sequence[Any]) -> SizedPlan:
        """Make the plan for these arrays; raise ShapeError if they do not fit."""
        return SizedPlan(self, self.signature.bind(arrays))

    def raise_error(self, site: int, number: int, size: int) -> NoReturn:
        """Raise the error that code noted: an index out of range, at one of the sites that may fail."""
        place = self.places[site]
        raise range_error(place.op, place.called, number, size, place.location(self.graph), place.message(self.graph))


class SizedPlan:
    """A plan for one set of sizes, in numbers."""

    __slots__ = ("arena_bytes", "is_direct", "plan", "shapes", "sizes", "stored")

    def __init__(self, plan: CallPlan, sizes: Sizes):
        self.plan = plan
        self.sizes = sizes
        self.arena_bytes = evaluate(plan.arena, sizes)
        self.stored = [(shape_at(shape, sizes), kind.numpy) for kind, shape in plan.stored]
        self.shapes = [shape_at(item.shape, sizes) for item in plan.results]  # of the results
        # Whether the results are the stored arrays, in order, without copies or permutations.
        self.is_direct = not plan.copies and self.shapes == [shape for shape, _ in self.stored]

    def stored_bytes(self) -> list[int]:
        return [math.prod(shape) * kind.itemsize for shape, kind in self.stored]

    def result_bytes(self) -> list[int]:
        kinds = [item.dtype.bytes for item in self.plan.results]
        return [math.prod(shape) * size for shape, size in zip(self.shapes, kinds, strict=True)]

    def layouts(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Compute each stored array's shape and strides in bytes as the caller sees it: as its result."""
        found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for at, (_, kind) in zip(self.plan.owners, self.stored, strict=True):
            shape = self.shapes[at]
            strides = [kind.itemsize * math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
            dims = self.plan.orders[at] or range(len(shape))
            found.append((tuple([shape[dim] for dim in dims]), tuple([strides[dim] for dim in dims])))
        return found

    def collect(self, params: Sequence[np.ndarray], stored: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Make the results in the host's memory of parameters and stored arrays, with dims in the stored order."""
        if self.is_direct:
            return list(stored)
        found: list[Any] = [None] * len(self.shapes)
        for array, at in zip(stored, self.plan.owners, strict=True):
            found[at] = array.reshape(self.shapes[at])
        for at, how, source in self.plan.copies:
            origin = params[source] if how == "parameter" else stored[source]
            found[at] = origin.reshape(self.shapes[at]).copy()
        return found


def shape_at(shape: Sequence[Dim], sizes: Sizes) -> tuple[int, ...]:
    return tuple([evaluate(dim, sizes) for dim in shape]) if sizes else shape  # type: ignore[return-value]
