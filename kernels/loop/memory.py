"""Verify the memory of kernels: reads of written elements only (coverage.py), and no races (conflicts.py).

Proofs are over symbolic sizes. Where one is not found, it is tried over the sizes of buffers instead of the sizes that
they are computed from; and where that fails, too, for numbers: some of each kind, small, odd and longer than tiles. A
fact that is not proved then is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from ...ir.symbolic import Symbol, symbols_of
from .conflicts import Conflicts
from .coverage import Coverage, Written
from .facts import Facts, is_size, renamings
from .ir import Kernel
from .roles import all_expressions
from .text import identity

NUMBERS = (0, 1, 66, 1031)  # sample sizes, each added to the least number that a size may be
Error = tuple[Kernel, int | None, str]  # kernel, number of the statement (outer before inner), message
Fail = Callable[[Kernel, int | None, str], None]


@dataclass
class Proof:
    """Counts of the facts about kernels that were proved, by kind."""

    kernels: int = 0
    proved: int = 0  # accesses that are in range by shapes and loops alone
    guarded: int = 0
    checked: int = 0  # accesses at indices that data chose, with a Check
    unproved: int = 0
    reads: int = 0  # reads of a kernel's own memory, of elements written before
    chosen: int = 0  # reads of elements that were written at indices chosen by data
    results: int = 0  # results of which all elements are written
    pairs: int = 0  # pairs of accesses in unordered iterations that are disjoint
    by_numbers: int = 0  # kernels whose memory was verified for sample sizes, not for all

    def __iadd__(self, other: Proof) -> Proof:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


def verify_memory(kernel: Kernel, fail: Fail) -> None:
    """Fail if a kernel reads elements of its own memory that it has not written, or if unordered iterations race. Parts
    of its results may have been written before."""
    results = {item.name for item in kernel.buffers if item.role == "out"}
    for run in (partial(_in_order, [kernel], results, set()), partial(_apart, kernel)):
        _, errors = prove([kernel], run)
        for error in errors:
            fail(*error)


def verify_program(
    kernels: Sequence[Kernel], given: Collection[str], results: Collection[str], fail: Fail, proof: Proof | None = None
) -> None:
    """Fail for the kernels of a program, in their order, as `verify_memory` does, or if they do not write all of the
    `results`. Buffers that are `given` are complete before."""
    proof = Proof() if proof is None else proof
    different = {identity(kernel): kernel for kernel in kernels}
    tasks = [([kernel], partial(_apart, kernel)) for kernel in different.values()]
    for some, run in (*tasks, (kernels, partial(_in_order, kernels, set(given), set(results)))):
        walks, errors = prove(some, run, proof)
        for walk in walks:
            walk.count(proof)
        for error in errors:
            fail(*error)
    proof.kernels += len(kernels)
    proof.results += len(results)


def _apart(kernel: Kernel, facts: Facts, complain: Fail) -> list[Any]:
    walk = Conflicts(kernel, partial(complain, kernel), facts)
    walk.run()
    return [walk]


def _in_order(
    kernels: Sequence[Kernel], given: Collection[str], results: Collection[str], facts: Facts, complain: Fail
) -> list[Any]:
    """Follow the writes of kernels, one after the other."""
    state: dict[str, list[Written]] = {}
    walks: list[Coverage] = []
    alone = len(kernels) == 1 and not results
    last = {item.name: kernel for kernel in kernels for item in kernel.buffers if item.role != "in"}
    for kernel in kernels:
        shapes = tuple(size for item in kernel.buffers if item.role != "temp" for size in item.shape)
        walk = Coverage(kernel, partial(complain, kernel), facts.over(shapes), given)
        foreign = [item for item in kernel.buffers if item.role == "in" and item.name not in given]
        for buffer in [] if alone else foreign:
            if not walk.is_whole(buffer, state.get(buffer.name, ())):
                complain(kernel, None, f"{buffer.name} is read, and not all of it has been written")
        walk.state = {item.name: list(state.get(item.name, ())) for item in kernel.buffers}
        walk.run()
        for buffer in kernel.buffers:
            state[buffer.name] = walk.state.get(buffer.name, [])
            if buffer.name in results and last.get(buffer.name) is kernel:
                if not walk.is_whole(buffer, state[buffer.name]):
                    complain(kernel, None, f"not all elements of {buffer.name} are written")
        walks.append(walk)
    return walks


def prove(
    kernels: Sequence[Kernel], run: Callable[[Facts, Fail], list[Any]], proof: Proof | None = None
) -> tuple[list[Any], list[Error]]:
    """Return walks over kernels and their errors: for symbolic sizes if those have no errors, else for sample sizes."""
    sizes = [size for kernel in kernels for item in kernel.buffers if item.role != "temp" for size in item.shape]
    symbols = size_symbols_of(kernels)
    names = renamings(sizes) if symbols else {}
    ways = [Facts(sizes, runs=False, exact=True), Facts(sizes, runs=False)]
    for facts in (*ways, *([Facts(sizes, renamed=names, runs=False)] if names else [])):
        errors: list[Error] = []
        walks = run(facts, lambda *error, errors=errors: errors.append(error))
        if not errors:
            return walks, errors
    if not symbols:
        return walks, errors
    if proof is not None:
        proof.by_numbers += 1
    for number in NUMBERS:
        numbers = {symbol.name: (symbol.lower or 0) + number + 2 * at for at, symbol in enumerate(symbols)}
        shown = ", ".join(f"{name} = {value}" for name, value in numbers.items())
        errors = []
        facts = Facts(sizes, runs=False, numbers=numbers, exact=True)
        walks = run(facts, lambda *error, errors=errors: errors.append(error))
        if errors:
            return walks, [(kernel, at, f"{message} ({shown})") for kernel, at, message in errors]
    return walks, []


def size_symbols_of(kernels: Sequence[Kernel]) -> list[Symbol]:
    dims = [size for kernel in kernels for item in kernel.buffers for size in item.shape]
    dims += [dim for kernel in kernels for dim in all_expressions(kernel.body)]
    found = {symbol.name: symbol for dim in dims for symbol in symbols_of(dim) if is_size(symbol)}
    return [found[name] for name in sorted(found)]
