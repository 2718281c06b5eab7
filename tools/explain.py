"""`smelt explain`: what was fused, what was not and why, how wide the vectors are, how much memory moves."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .program import configure_function, trace_program
from .terminal import FINE, highlight, progress


def configure(parser: ArgumentParser) -> None:
    configure_function(parser)
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(options: Namespace) -> int:
    from ..backend.compile import compile_graph

    with progress(f"compiling {options.function}"):
        graph, chosen = trace_program(options.function, options.args, options.grad)
        report = compile_graph(graph, chosen).report
    print(report.json() if options.json else highlight(str(report)))
    return FINE
