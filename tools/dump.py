"""`smelt dump`: a function at any stage of its compilation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..ir.errors import suggest
from .program import compile_stages, configure_function, trace_function
from .terminal import FINE, UsageError, heading, highlight, progress

STAGES = ("graph", "decompose", "simplify", "fuse", "loops", "llvm", "asm")


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
        graph = trace_function(options.function, options.args, options.grad)
        seen = compile_stages(graph, wanted)
    for stage in wanted:
        if len(wanted) > 1:
            print(heading(f"// ----- {stage}"))
        print(highlight(str(seen[stage]).rstrip("\n")))
        if stage != wanted[-1]:
            print()
    return FINE
