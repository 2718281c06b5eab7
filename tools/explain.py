"""`smelt explain`: fused kernels, refusals with reasons, vector widths, memory traffic."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .program import check_target, configure_function, configure_target, for_target, trace_program
from .terminal import FINE, highlight, progress


def configure(parser: ArgumentParser) -> None:
    configure_function(parser)
    configure_target(parser, "sm_80")
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(options: Namespace) -> int:
    from ..backend.compile import explain_graph

    check_target(options)
    with progress(f"compiling {options.function}"):
        graph, chosen = trace_program(options.function, options.args, options.grad)
        chosen = for_target(chosen, options)
        report = explain_graph(graph, chosen)
    print(report.json() if options.json else highlight(str(report)))
    return FINE
