"""Compiles all kernels of the benchmarks, and of a BERT's training step, to machine code: `make cuda-kernels`.

Each is compiled for every architecture that the installed libraries support, and its resource usage is read back.
Spills are an error, except in matrix products.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import smelt
from smelt.backend.cuda.build import build
from smelt.backend.cuda.toolchain.compiler import architectures, compile_launches
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages
from smelt.ir.graph import Graph

from ..terminal import table
from ..workloads import names_smelt
from ..workloads.suite import all_workloads

BERT = "bert"


@dataclass(frozen=True)
class Found:
    """The kernels of one program for one architecture."""

    program: str
    architecture: str
    kernels: int
    registers: int  # per thread, the largest number over the kernels
    shared: int
    spills: list[str]  # kernels with spills, without matrix products
    error: str = ""


def graphs(name: str, size: str) -> list[Graph]:
    """Return the graphs of a workload, or of the BERT."""
    if name == BERT:
        return bert_graphs()
    workload = all_workloads()[name]
    function = functools.partial(workload.function, names_smelt)
    return [smelt.jit(function).trace(*workload.make_inputs(size))]


def bert_graphs() -> list[Graph]:
    """Return the graphs that torch.compile passes to smelt for a training step of a BERT with two layers."""
    import smelt.torch.native as native
    import torch
    import transformers

    collected: list[Graph] = []
    real = native.start_graph

    def collect(graph: Graph, *rest: Any) -> Any:
        collected.append(graph)
        return real(graph, *rest)

    config = transformers.BertConfig(num_hidden_layers=2)
    model = transformers.BertForMaskedLM(config)
    words = torch.randint(5, 1000, (4, 128))
    with patch.object(native, "start_graph", collect):
        torch.compile(model, backend="smelt")(input_ids=words, labels=words).loss.backward()
    return collected


def examine(task: tuple[str, str, tuple[str, ...]]) -> list[Found]:
    """Return the resource usage of one program's kernels, for each architecture."""
    name, size, wanted = task
    found: list[Found] = []
    try:
        programs = [build(graph, CompileOptions(), Stages(), None, False) for graph in graphs(name, size)]
    except Exception as error:
        return [Found(name, item, 0, 0, 0, [], f"{type(error).__name__}: {error}") for item in wanted]
    for architecture in wanted:
        try:
            made = [item for one in programs for item in compile_launches(one.source, one.launches, architecture)]
        except Exception as error:
            text = " ".join(str(error).split())
            found.append(Found(name, architecture, 0, 0, 0, [], f"{type(error).__name__}: {text[:200]}"))
            continue
        found.append(
            Found(
                name,
                architecture,
                len(made),
                max((item.resources.registers for item in made), default=0),
                max((item.resources.shared for item in made), default=0),
                [item.name for item in made if item.resources.spills and "bmm" not in item.name],
            )
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="workloads, separated by commas")
    parser.add_argument("--size", default="large")
    parser.add_argument("--arch", help="architectures, separated by commas (default: all)")
    options = parser.parse_args(arguments)
    wanted = tuple(options.arch.split(",")) if options.arch else architectures()
    chosen = options.only.split(",") if options.only else [*all_workloads(), BERT]
    rows: list[tuple[str, ...]] = [("program", "kernels", *(f"{item}: registers, shared" for item in wanted), "")]
    bad = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(os.sched_getaffinity(0))) as pool:
        for done, found in enumerate(pool.imap(examine, [(name, options.size, wanted) for name in chosen]), start=1):
            trouble = [item.error for item in found if item.error] + [
                f"spills: {name}" for item in found for name in item.spills
            ]
            bad += bool(trouble)
            cells = [f"{item.registers}, {item.shared}" for item in found]
            rows.append((found[0].program, str(found[0].kernels), *cells, "; ".join(dict.fromkeys(trouble))))
            print(f"\r{done} of {len(chosen)} programs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(table(rows))
    print(f"{len(chosen) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
