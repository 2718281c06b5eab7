"""A target's line of stages as data, and the driver that runs the line of any target."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any

from ..ir.record import Record
from .report.timings import Stages

StageHook = Callable[[str, Any], None]


class Stage(Record):
    """A step of a compile: makes one thing of things that were made before it."""

    name: str  # its seconds are counted under this name
    run: Callable[..., Any]
    takes: tuple[str, ...]  # names of the arguments
    makes: str = ""  # name of the result; "": none
    shows: str = ""  # the name under which a stage hook sees the result; "": it does not


class Streamed(Record):
    """A stage that yields kernels in batches, and the stages that use them.

    Code generation takes each batch at once, so that threads compile it while later batches are being made. Stages of
    the whole program run before the last batch is taken: after that nothing asks for a pass again.
    """

    name: str
    run: Callable[..., Generator[list[Any], None, list[Any]]]  # it returns the last batch
    takes: tuple[str, ...]
    gather: Callable[[list[Any]], Any]  # the kernels of what was yielded, as "kernels"
    shows: str = ""
    whole: tuple[Stage, ...] = ()  # they take "kernels", and "finished": all that was yielded
    each: tuple[Stage, ...] = ()  # they take "batch"


class Text:
    """A lazy text, made on request: str(text)."""

    def __init__(self, make: Callable[[], str]):
        self._make = make

    @cached_property
    def _text(self) -> str:
        return self._make()

    def __str__(self) -> str:
        return self._text


Line = tuple[Stage | Streamed, ...]


def run_line(line: Line, made: dict[str, Any], timings: Stages, hook: StageHook | None) -> dict[str, Any]:
    """Run the stages of a line in order. `made` has what is known beforehand, by name; the results are added to it."""
    for stage in line:
        if isinstance(stage, Streamed):
            _run_streamed(stage, made, timings, hook)
        else:
            _run(stage, made, timings, hook)
    return made


def _run(stage: Stage, made: dict[str, Any], timings: Stages, hook: StageHook | None) -> None:
    start = time.perf_counter()
    result = stage.run(*[made[name] for name in stage.takes])
    timings.seconds[stage.name] = timings.seconds.get(stage.name, 0.0) + time.perf_counter() - start
    if stage.makes:
        made[stage.makes] = result
    if stage.shows and hook is not None:
        hook(stage.shows, result)


def _run_streamed(stage: Streamed, made: dict[str, Any], timings: Stages, hook: StageHook | None) -> None:
    finished: list[Any] = []
    batches = stage.run(*[made[name] for name in stage.takes])
    is_last = False
    while not is_last:
        start = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration as last:
            batch, is_last = last.value, True
        finished += batch
        timings.seconds[stage.name] = timings.seconds.get(stage.name, 0.0) + time.perf_counter() - start
        if is_last:
            made["finished"], made["kernels"] = finished, stage.gather(finished)
            if stage.shows and hook is not None:
                hook(stage.shows, made["kernels"])
            for after in stage.whole:
                _run(after, made, timings, hook)
        made["batch"] = batch
        for after in stage.each:
            _run(after, made, timings, hook)
