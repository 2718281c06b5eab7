"""Versions of a compiled function: the shapes that one takes, and its call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend.pytree import LEAF, count_leaves, unflatten
from .backend.targets import targets
from .ir.symbolic import Expr, evaluate
from .ir.types import Order
from .random import next_seed
from .trace import Traced

if TYPE_CHECKING:
    from .backend.call_plan import CallPlan
    from .backend.cpu.call.entry import Entry


class Compiled:
    """One compiled version: the shapes that it takes, and its executable."""

    def __init__(
        self,
        traced: Traced,
        orders: list[Order | None],
        executable: Any,
        structure: Any,
        fixed: Any,
    ):
        self.traced = traced
        self.executable = executable
        self.structure = structure
        self.fixed = fixed  # result leaves that are not tensors, by position
        self.plan: CallPlan = executable.plan.hiding(traced.arrays, traced.seeded, orders=orders)
        self.target = targets.find(executable.target)
        self.hidden = self.target.constants(traced.arrays)

    def takes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether arrays of these shapes fit this version's symbolic shapes."""
        signature = self.plan.signature
        return signature.fits(shapes) and self.traced.takes(signature.sizes_of(shapes))

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> Bound:
        """Return this version bound to arrays of these shapes."""
        plan = self.plan.for_shapes(shapes)
        fixed = {at: evaluate(leaf, plan.sizes) if isinstance(leaf, Expr) else leaf for at, leaf in self.fixed.items()}
        return Bound(self, self.executable.launcher(plan), fixed)


class Bound:
    """A compiled version for one set of shapes: arrays in, the function's result out."""

    def __init__(self, version: Compiled, launch: Any, fixed: dict[int, Any]):
        self.version = version
        self.launch = launch
        self.fixed = fixed
        self.hidden = version.hidden
        self.seeded = version.plan.is_seeded
        self.is_hiding = self.seeded or bool(self.hidden)
        self.turned = [(at, order) for at, order in enumerate(version.plan.orders) if order is not None]
        self.turn = version.target.turned
        self.structure = version.structure
        self.single = not fixed and self.structure == LEAF
        self.positions = range(count_leaves(self.structure))
        self.entries: dict[tuple[str, ...], Entry] = {}  # native entries, by the names of keyword arguments
        self.refused = 0

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        results = self.launch(self.complete(arrays) if self.is_hiding else arrays)
        for at, order in self.turned:
            results[at] = self.turn(results[at], order)
        if self.single:
            return results[0]
        if self.fixed:
            made = iter(results)
            results = [self.fixed[at] if at in self.fixed else next(made) for at in self.positions]
        return unflatten(self.structure, results)

    def complete(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Return all parameters of one call: the caller's, constants, and the seed."""
        return [*arrays, *self.hidden, next_seed()] if self.seeded else [*arrays, *self.hidden]

    def make_entry(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: Sequence[str],
        static_numbers: frozenset[int],
        static_names: frozenset[str],
        leaves: Sequence[Any],
        arrays: Sequence[np.ndarray],
    ) -> Entry | None:
        """Return a native entry for calls like this one, or None. names: those of kwargs in the order of the leaves."""
        call = {
            "args": args,
            "kwargs": kwargs,
            "names": names,
            "static_numbers": static_numbers,
            "static_names": static_names,
            "leaves": leaves,
            "arrays": arrays,
        }
        draw_seed = next_seed if self.seeded else None
        return self.version.target.make_entry(self.launch, call, draw_seed, self.structure, self.fixed)
