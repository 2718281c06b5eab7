"""What a program draws often: a few ops, types, sizes and relations of shapes, and which numbers.

Programs that draw everything evenly are all alike: what takes several rare things at once hardly comes. Each program
has habits of its own, drawn from its seed (swarm testing: Groce et al., ISSTA 2012).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import patch

from smelt.backend.cpu.host import host
from smelt.ops.opdef import OpDef
from smelt.passes.graph import split_reductions

SIZES = (0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 11, 16, 17, 31, 33, 64, 65)
LONG_SIZES = (100, 128, 255, 257, 1000, 4096, 2**15, 40000, 2**16)
ELEMENTS = ("f32",) * 4 + ("f64", "f16", "u8", "i8") * 2 + ("bf16", "i64", "i32", "i16", "bool", "c64")
DIMS = ((0,), (1,), (2,), (3,), (0, 1), (0, 2), (1, 2), (2, 3), (2, 3, 4), (0, 1, 1, 2, 2, 2, 3, 3, 4))
RELATIONS = 9  # of an operand's shape to the first operand's
T = TypeVar("T")


@dataclass
class Habits:
    """Of one program. `smooth`: it is to be differentiated; `most`: elements of a value, where few are wanted."""

    random: random.Random
    all_ops: Sequence[OpDef]
    smooth: bool
    short: bool
    long: bool = field(init=False)
    special: str = field(init=False)  # elements beside the usual ones: "", "any", or "finite"
    decades: int = field(init=False)  # powers of ten that elements reach
    is_small: bool = field(init=False)  # the compiler does to short rows what it does to long ones

    def __post_init__(self) -> None:
        source = self.random
        self.long = self.coin(0.04) and not self.short
        self.special = source.choice(("any", "any", "finite")) if self.coin(0.2) and not self.smooth else ""
        self.decades = source.choice((2, 5, 5)) if self.coin(0.3) and not self.smooth else 0
        self.is_small = self.coin()
        ones = source.choice((0, 0, 1, 1, 2, 3))
        self.sizes = [
            source.choice(LONG_SIZES if self.long and at == 0 else SIZES) for at in range(source.choice((1, 2, 3, 3)))
        ]
        self.sizes += [1] * ones
        self.dims = source.choice(DIMS)
        elements = ("f32", "f32", "f64") if self.smooth else ELEMENTS
        self.element = source.choice(elements)
        self.others = [source.choice(ELEMENTS) for _ in range(source.choice((1, 2, 3)))]
        self.relations = [0, *source.sample(range(RELATIONS), 3)]
        self.reuse = source.choice((0.3, 0.5, 0.5, 0.7, 0.9))  # operands that are values of the program
        self.scalars = source.choice((0.02, 0.02, 0.02, 0.3))  # operands without dimensions
        self.defaults = source.choice((0.3, 0.6, 0.6, 0.8))  # optional arguments that are left out
        self.ops = source.sample(self.all_ops, min(source.randint(1, 4), len(self.all_ops)))
        families, kinds = grouped(self.all_ops)
        self.family = source.choice(families)
        self.kinds = kinds

    def coin(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def op(self) -> OpDef:
        """A favourite, one of the same family, one that all others are made of, or any."""
        chance = self.random.random()
        if chance < 0.3:
            return self.random.choice(self.ops)
        if chance < 0.5:
            return self.random.choice(self.family)
        if chance < 0.75 and self.kinds:
            return self.random.choice(self.random.choice(self.kinds))
        return self.random.choice(self.all_ops)

    def relation(self) -> int:
        return self.random.choice(self.relations) if self.coin(0.7) else self.random.randrange(RELATIONS)

    def size(self) -> int:
        return self.random.choice(self.sizes) if self.coin(0.85) else self.random.choice(SIZES)

    def count(self) -> int:
        """The dimensions of a shape."""
        return self.random.choice(self.dims if self.coin(0.8) else DIMS[-1])

    def type(self) -> str:
        return self.random.choice(self.others) if self.coin(0.7) else self.random.choice(ELEMENTS)


_groups: dict[int, tuple[list[list[OpDef]], list[list[OpDef]]]] = {}


def grouped(ops: Sequence[OpDef]) -> tuple[list[list[OpDef]], list[list[OpDef]]]:
    """Ops by the file that they are in; and those that are no composites, by the kind of their loops."""
    found = _groups.get(id(ops))
    if found is None:
        families: dict[Any, list[OpDef]] = {}
        kinds: dict[Any, list[OpDef]] = {}
        for defn in ops:
            families.setdefault(inspect.unwrap(defn.function).__module__, []).append(defn)
            if defn.kind is not None:
                kinds.setdefault(type(defn.kind), []).append(defn)
        found = _groups[id(ops)] = list(families.values()), list(kinds.values())
    return found


@contextmanager
def small_thresholds(is_small: bool) -> Iterator[None]:
    """Work is split and shared out that is too small for it otherwise: programs of few elements reach that code."""
    with ExitStack() as stack:
        if is_small:
            machine = host().machine
            sharing = machine.sharing.but(
                worth=1 << 7,
                wake=1 << 10,
                run=(1 << 5, 1 << 10),
                iterations=4,
                reduction=64,
                partial_elements=16,
                scan_chunk=16,
                scan_length=64,
                scan_lines=4,
                updates=1 << 6,
            )
            scatter = machine.scatter.but(rows=4, row_bytes=8, tiles=2, chunk=16, slice=4)
            stack.enter_context(patch.object(host(), "machine", machine.but(sharing=sharing, scatter=scatter)))
            costs = split_reductions.COSTS.but(row=8, columns=32, column=8)
            stack.enter_context(patch.object(split_reductions, "COSTS", costs))
        yield
