"""Defects that smelt once had, put back: what the random programs are measured by.

    make fuzz ARGS="--defect gather --count 5000"

ends at the first program that fails; it shows the defect if it passes without one. An edit names a function and a
piece of its text, and what takes its place; a test sees to it that each piece is still there.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef


@dataclass(frozen=True)
class Edit:
    """One change of a function `module:name` or `module:Class.name`."""

    place: str
    mended: str
    broken: str

    def source(self) -> str:
        """The function's text, with the defect."""
        found = resolve(self.place)
        if isinstance(found, OpDef):
            found = inspect.unwrap(found.function)
        text = textwrap.dedent(inspect.getsource(found))
        if text.count(self.mended) != 1:
            raise ValueError(f"{self.place} has {self.mended!r} {text.count(self.mended)} times, expected once")
        return text.replace(self.mended, self.broken)

    def apply(self) -> None:
        module = import_module(self.place.split(":")[0])
        text = self.source()
        op = resolve(self.place)
        if isinstance(op, OpDef):
            text = re.sub(r"^@(composite|prim\(.*)\n", "", text)
        names: dict[str, Any] = module.__dict__
        before = dict(names)
        exec(compile(text, f"<defect in {self.place}>", "exec"), names)
        *owner, last = self.place.split(":")[1].split(".")
        made = names[last]
        if owner:
            setattr(names[owner[0]], last, made)
            names.pop(last)
            if last in before:
                names[last] = before[last]
        elif isinstance(op, OpDef):
            names[last] = op
            op.function = made
            for other in REGISTRY.values():
                other._bodies.clear()


def resolve(place: str) -> Any:
    module, name = place.split(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


DEFECTS: dict[str, tuple[Edit, ...]] = {
    # Axes of unequal sizes are one: loops run beyond the ends of a gather's index, or leave its operand unwritten.
    "gather": (
        Edit("smelt.passes.fusion.start:Start._follows", "not same(", "False and not same("),
        Edit("smelt.passes.fusion.axes:AxisUnion.join", "assert same(", "assert True or same("),
    ),
    # Scratch of a loop that lanes share is there once for all of them.
    "race": (
        Edit("smelt.backend.cuda.codegen.emit:Emitter.outermost", "own_scratch(loop.body)", "()"),
        Edit("smelt.passes.loop.grid:_together", "own_scratch(shared)", "()"),
    ),
    # A 0-dim tensor beside f16 is rounded before it is used.
    "narrow": (Edit("smelt.ops.kinds:Elementwise._widened", "if not any(", "if True or not any("),),
    # The difference of integers wraps.
    "lerp": (
        Edit("smelt.ops.pointwise:lerp", "convert(self, wanted), convert(end, wanted)", "self, end"),
    ),
    # A composite's body is remembered without the numbers that it was worked out for.
    "numbers": (
        Edit(
            "smelt.passes.graph.decompose:body_key",
            "return argument_key(argument)",
            "return float if isinstance(argument, float) else argument_key(argument)",
        ),
    ),
    # Parts of long f16 sums are stored as f16.
    "halves": (
        Edit("smelt.passes.graph.split_reductions:split", "if value.dtype is result.dtype and", "if False and"),
    ),
    # LLVM merges a rounding to f32 with one to f16 into a call of a function that the process does not have.
    "symbols": (
        Edit("smelt.backend.cpu.codegen.halves:_instruction", "if not target", "if True or not target"),
        Edit("smelt.backend.cpu.codegen.halves:load", "return emitter.call(kind, f", "return extended or (kind, f"),
    ),
    # A load of memory that the kernel writes leaves the loop that changes it.
    "hoist": (
        Edit(
            "smelt.passes.lower.builder:KernelBuilder.load_buffer",
            "if is_constant else len(self.scopes) - 1",
            "if True else 0",
        ),
    ),
}  # fmt: skip


def put_back(name: str) -> None:
    for edit in DEFECTS[name]:
        edit.apply()
