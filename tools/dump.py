"""`smelt dump`: a function at any stage of its compilation."""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser, Namespace

from ..ir.errors import suggest
from .program import configure_function, trace_function
from .terminal import FINE, UsageError, heading, highlight, progress

STAGES = ("graph", "decompose", "simplify", "fuse", "loops", "llvm", "asm")


class Enough(Exception):
    """The last stage that was asked for has been seen: what follows need not be compiled."""


def configure(parser: ArgumentParser) -> None:
    configure_function(parser)
    parser.add_argument(
        "--stage",
        default="graph",
        metavar="STAGE",
        help=f"one of {', '.join(STAGES)}, all (default: graph)",
    )


def run(options: Namespace) -> int:
    if options.stage not in (*STAGES, "all"):
        close = suggest(options.stage, STAGES)
        raise UsageError(f"unknown stage {options.stage!r}{close}; there are {', '.join(STAGES)}, all")
    wanted = STAGES if options.stage == "all" else (options.stage,)
    with progress(f"compiling {options.function}"):
        texts = stage_texts(options, wanted)
    for stage in wanted:
        if len(wanted) > 1:
            print(heading(f"// ----- {stage}"))
        print(highlight(texts[stage].rstrip("\n")))
        if stage != wanted[-1]:
            print()
    return FINE


def stage_texts(options: Namespace, wanted: tuple[str, ...]) -> dict[str, str]:
    """The text of the program at each of the wanted stages."""
    graph = trace_function(options.function, options.args, options.grad)
    if wanted == ("graph",):
        return {"graph": str(graph)}
    from ..backend.compile import compile_graph
    from ..backend.options import CompileOptions

    texts: dict[str, str] = {}

    def keep(stage: str, thing: object) -> None:
        if stage in wanted:
            texts[stage] = str(thing)
            if stage == wanted[-1]:
                raise Enough

    with contextlib.suppress(Enough):
        compile_graph(graph, CompileOptions(want_asm="asm" in wanted), on_stage=keep)
    return texts
