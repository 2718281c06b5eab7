"""`smelt opt`: runs passes over a program in a file and prints the result."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from .program import read_program
from .terminal import FINE, UsageError, highlight, paint, progress, table, time_text


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="a file of IR text; - for standard input")
    parser.add_argument(
        "-p",
        "--passes",
        default="",
        metavar="PASSES",
        help="names separated by commas, with options in braces: decompose,cse,fuse{max_cost=64}",
    )
    parser.add_argument("--verify-each", action="store_true", help="verify the program after every pass")
    parser.add_argument("--print-between", action="store_true", help="print the program after every pass")
    parser.add_argument("--timings", action="store_true", help="how long each pass took, on standard error")
    parser.add_argument("--no-locations", action="store_true", help="leave out the source lines")
    parser.add_argument("--list", action="store_true", help="list the passes")


def run(options: Namespace) -> int:
    from ..ir.graph import Graph
    from ..passes.manager import NOUNS, parse_pipeline

    if options.list:
        print(list_passes())
        return FINE
    if options.file is None:
        raise UsageError("name a file of IR text, or - for standard input")
    pipeline = parse_pipeline(options.passes)
    program = read_program(options.file)
    kind = "graph" if isinstance(program, Graph) else "loop"
    for step in pipeline.steps:
        if step.target.kind != kind:
            other, mine = NOUNS[step.target.kind], "a graph" if kind == "graph" else "kernels"
            raise UsageError(
                f"{step.target.name} works on {other}, and {options.file} has {mine}; smelt opt --list shows which"
            )
    timings: dict[str, float] | None = {} if options.timings else None

    def show(stage: str, thing: object) -> None:
        if options.print_between:
            print(paint(f"// ----- {stage}", "bold"))
            print(shown(thing), end="\n\n")

    def shown(thing: object) -> str:
        return highlight(text_of(thing, not options.no_locations).rstrip("\n"))

    with progress(f"running passes over {options.file}"):
        given = [program] if isinstance(program, Graph) else program
        made = [pipeline.run(item, verify_each=options.verify_each, on_stage=show, timings=timings) for item in given]
    if not options.print_between:
        print("\n\n".join(map(shown, made)))
    if timings is not None:
        rows = [(name, time_text(seconds)) for name, seconds in timings.items()]
        print(table(rows, right=(1,)), file=sys.stderr)
    return FINE


def text_of(thing: object, locations: bool) -> str:
    """Return the text of a graph, of the result of `fuse`, or of a kernel."""
    from ..ir.graph import Graph
    from ..ir.printer import print_graph
    from ..kernels.loop.ir import Kernel
    from ..kernels.loop.text import print_kernel
    from ..passes.fusion.fused import Fused, print_fused

    if isinstance(thing, Graph):
        return print_graph(thing, locations=locations)
    if isinstance(thing, Kernel):
        return print_kernel(thing, locations=locations)
    return print_fused(thing, locations=locations) if isinstance(thing, Fused) else str(thing)


def list_passes() -> str:
    """Print every pass, its IR, and the first sentence of its docstring."""
    from ..passes.manager import NOUNS, PASSES

    rows = [
        (name, NOUNS[entry.kind], " ".join(entry.doc.split()).partition(". ")[0].removesuffix("."))
        for name, entry in sorted(PASSES.items(), key=lambda item: (item[1].kind, item[0]))
    ]
    return table(rows, indent="")
