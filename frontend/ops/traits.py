"""Traits of ops: properties that passes rely on, declared with the op.

    @prim(Elementwise("add"), commutes=True, keeps_sign=True)
    def add(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:

Traits of a whole kind are arguments of the kind (kinds.py).
"""

from __future__ import annotations

from typing import TypedDict


class Traits(TypedDict, total=False):
    """The traits that a declaration may name; all others are False."""

    commutes: bool  # the first two operands may change places
    never_negative: bool  # no float in the result is below zero, -inf or -0.0
    keeps_sign: bool  # never_negative holds for the result if it holds for all operands
    turns: bool  # a view that permutes the dims of a row-major tensor


class HasTraits:
    """The traits of an op as attributes."""

    commutes = False
    never_negative = False
    keeps_sign = False
    turns = False

    def set_traits(self, traits: Traits) -> None:
        """Set the traits that a declaration names."""
        for name in traits:
            if name not in Traits.__annotations__:
                raise ValueError(f"{name!r} is no trait of ops; traits are {', '.join(sorted(Traits.__annotations__))}")
        self.traits = traits
        self.__dict__.update(traits)
