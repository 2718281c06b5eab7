"""`smelt dump`: a function at any stage of its compilation."""

from __future__ import annotations

import re
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from ..backend.options import CompileOptions
from ..backend.targets import targets
from ..ir.errors import suggest
from .program import check_target, compile_stages, configure_function, configure_target, trace_stages
from .terminal import FINE, UsageError, heading, highlight, progress

# By stage: the first line of a kernel or of one of its functions, and the comment mark.
KERNEL_HEADS = {
    "loops": (re.compile(r"^kernel @(?P<kernel>\w+)\(", re.MULTILINE), "//"),
    "llvm": (re.compile(r"^define .*@(?P<kernel>\w+)\.r(?P<part>\d+)\(", re.MULTILINE), ";"),
    "asm": (re.compile(r"^_?(?P<kernel>\w+)\.r(?P<part>\d+):", re.MULTILINE), "#"),
}


def configure(parser: ArgumentParser) -> None:
    configure_function(parser)
    configure_target(parser, "sm_80")
    usual = stages_of(CompileOptions.target)
    others = "".join(
        f"; with --target {name} the last are {', '.join(stage for stage in stages_of(name) if stage not in usual)}"
        for name in targets.names
        if name != CompileOptions.target
    )
    shown = f"one of {', '.join(usual)}, all (default: graph){others}"
    parser.add_argument("--stage", default="graph", metavar="STAGE", help=shown)


def stages_of(name: str) -> list[str]:
    """Return the stages of a target. `layout` is that of jit, before the compiler begins."""
    first, *others = targets.find(name).stages
    return [first, "layout", *others]


def run(options: Namespace) -> int:
    check_target(options)
    stages = stages_of(options.target)
    if options.stage not in (*stages, "all"):
        close = suggest(options.stage, stages)
        raise UsageError(f"unknown stage {options.stage!r}{close}; there are {', '.join(stages)}, all")
    wanted = stages if options.stage == "all" else [options.stage]
    with progress(f"compiling {options.function}"):
        traced, stored, _ = trace_stages(options.function, options.args, options.grad)
        # The compiler takes the graph after the pass that orders the dims of results.
        compiled = ["graph" if stage == "layout" else stage for stage in wanted]
        seen = compile_stages(stored, compiled, options.target, options.arch) | {"graph": traced, "layout": stored}
    for stage in wanted:
        if len(wanted) > 1:
            print(heading(f"// ----- {stage}"))
        print(highlight(with_origins(stage, seen).strip("\n")))
        if stage != wanted[-1]:
            print()
    return FINE


def with_origins(stage: str, seen: dict[str, Any]) -> str:
    """Return the text of a stage, with each named kernel's ops and user lines as a comment above it."""
    text = str(seen[stage])
    if stage not in KERNEL_HEADS:
        return text
    pattern, mark = KERNEL_HEADS[stage]
    launches = zip(seen["fuse"].launches, seen["loops"], strict=True)
    origins = {
        kernel.name: f"kernel {number}: {origin_text([op for group in groups for op in group.ops])}"
        for number, (groups, kernel) in enumerate(launches)
    }

    def head(match: re.Match[str]) -> str:
        origin = origins.get(match["kernel"])
        if origin is None:
            return match.group()
        # A kernel with barriers has several functions.
        part = int(match.groupdict().get("part") or 0)
        about = f"{origin}; part {part + 1}" if part else origin
        return "\n".join(
            [*textwrap.wrap(about, 110, initial_indent=f"{mark} ", subsequent_indent=f"{mark}   "), match.group()]
        )

    return pattern.sub(head, text)


def origin_text(ops: Sequence[Any]) -> str:
    """Return ops by user line: amax sub exp (model.py:18), sum true_divide (model.py:19)"""
    lines: list[tuple[str, list[str]]] = []
    for op in ops:
        place = "" if op.loc is None else f" ({op.loc})"
        if not lines or lines[-1][0] != place:
            lines.append((place, []))
        lines[-1][1].append(op.name)
    return ", ".join(f"{' '.join(names)}{place}" for place, names in lines)
