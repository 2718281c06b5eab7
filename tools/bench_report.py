"""The output of `smelt bench`: tables of times, ratios and their means, and a plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .terminal import UserError, heading, paint, size_text, table, time_text
from .workloads.contenders import PEERS

Record = dict[str, Any]


def ratio(record: Record, what: str = "median") -> float | None:
    """Return the time of the best of PyTorch eager, Inductor and JAX over smelt's: above 1, smelt is faster."""
    found = record["contenders"]
    peers = [found[name][what] for name in PEERS if what in found.get(name, {})]
    ours = found.get("smelt", {}).get(what)
    return min(peers) / ours if peers and ours else None


def geometric_mean(numbers: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, numbers)) / len(numbers))


class TimesTable:
    """The times of one setting, printed row by row during the run."""

    def __init__(self, names: Sequence[str], contenders: Sequence[str]):
        self.contenders = contenders
        self.widths = [max(map(len, names)), *(max(len(name), 9) + 2 for name in contenders), 8, 11]
        print(heading(self.line(["workload", *contenders, "ratio", "of minima"])))

    def line(self, cells: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], self.widths[1:], strict=True))
        return f"  {cells[0].ljust(self.widths[0])}{''.join(rest)}"

    def add(self, record: Record) -> None:
        times = [time_cell(record["contenders"].get(name)) for name in self.contenders]
        by_median, by_minimum = ratio(record), ratio(record, "minimum")
        line = self.line([record["workload"], *times, ratio_text(by_median), ratio_text(by_minimum)])
        if by_median is not None:
            line = paint(line, "green" if by_median >= 1 else "yellow")
        print(line, flush=True)


def show_rest(records: Sequence[Record], contenders: Sequence[str], first_calls: bool, memory: bool) -> None:
    """Print the other requested figures of one setting, and its errors."""
    if first_calls:
        print(heading("\ncompilation: by how much the first call took longer than the second"))
        show_others(records, contenders, "compile", time_text)
        show_hits(records)
    if memory:
        print(heading("\nmemory of a call"))
        show_others(records, contenders, "memory", size_text)
    for record in records:
        for name, found in record["contenders"].items():
            if "error" in found:
                print(paint(f"  {record['workload']}: {name} failed: {found['error']}", "yellow"))
            elif found.get("agrees") is False:
                by = "" if found["difference"] is None else f", {found['difference']:.1f} times the tolerance"
                print(paint(f"  {record['workload']}: {name} differs from {found['reference']}{by}", "red"))


def time_cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "error" in found:
        return "failed"
    mark = "!" if found.get("agrees") is False else ""
    return mark + time_text(found["median"])


def ratio_text(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def show_others(records: Sequence[Record], contenders: Sequence[str], what: str, text: Callable[[float], str]) -> None:
    rows = [("workload", *contenders)]
    for record in records:
        values = [record["contenders"].get(name, {}).get(what) for name in contenders]
        rows.append((record["workload"], *("-" if value is None else text(value) for value in values)))
    print(table(rows, right=range(1, len(contenders) + 1)))


def show_hits(records: Sequence[Record]) -> None:
    """Print the times of smelt's first calls in new processes that find the code on disk."""
    hits = {record["workload"]: record["contenders"].get("smelt", {}) for record in records}
    rows = [(name, time_text(found["hit"])) for name, found in hits.items() if "hit" in found]
    rows += [(name, f"failed: {found['hit_error']}") for name, found in hits.items() if "hit_error" in found]
    if rows:
        print(
            heading(
                "\nsmelt's first call in a new process, code from the disk cache; beyond imports and the run itself"
            )
        )
        print(table([("workload", "smelt"), *rows], right=(1,)))


def show_summary(records: Sequence[Record], settings: Sequence[str], startups: Sequence[dict[str, Any]]) -> None:
    """Print geometric means of the ratios, by group and over all."""
    groups = list(dict.fromkeys(record["group"] for record in records))
    rows: list[tuple[str, ...]] = []
    for group in [*groups, "all"]:
        inside = [record for record in records if group in (record["group"], "all")]
        cells = [mean_cell([item for item in inside if item["setting"] == setting]) for setting in settings]
        rows.append((group, *cells))
    if any(ratio(record) is not None for record in records):
        print(heading(f"\nbest of {', '.join(PEERS)} / smelt, geometric means (above 1: smelt is faster)"))
        print(table([("group", *settings), *rows], right=range(1, len(settings) + 1)))
    if startups:
        print(heading("\nloading, with the first compilation"))
        shown = [item for item in startups if item["seconds"] is not None]
        print(table([(item["contender"], time_text(item["seconds"]), item["setting"]) for item in shown], right=(1,)))


def mean_cell(records: Sequence[Record]) -> str:
    numbers = [number for number in map(ratio, records) if number is not None]
    if not numbers:
        return "-"
    faster = sum(number >= 1 for number in numbers)
    return f"{geometric_mean(numbers):.2f} (faster in {faster} of {len(numbers)})"


def draw_plot(path: str, records: Sequence[Record], settings: Sequence[str]) -> None:
    """Draw a bar for each workload, on a logarithmic axis; one panel for each setting."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(record["workload"] for record in records if ratio(record) is not None))
    if not names:
        raise UserError(
            "--plot: there is nothing to compare; smelt and one of eager, inductor and jax have to take part"
        )
    height = 1.5 + 0.22 * len(names)
    figure, axes = pyplot.subplots(
        1, len(settings), figsize=(3.5 + 4.5 * len(settings), height), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, setting in zip(axes[0], settings):
        numbers = {record["workload"]: ratio(record) for record in records if record["setting"] == setting}
        drawn = [(place, number) for place, name in enumerate(names) if (number := numbers.get(name)) is not None]
        colours = ["tab:green" if number >= 1 else "tab:orange" for _, number in drawn]
        # Bars start at 1, where both are equally fast.
        panel.barh([place for place, _ in drawn], [number - 1 for _, number in drawn], left=1, color=colours)
        panel.set_xscale("log")
        panel.axvline(1, color="black", linewidth=0.8)
        mean = geometric_mean([number for _, number in drawn]) if drawn else 1.0
        panel.set_title(f"{setting}\ngeometric mean {mean:.2f}", fontsize=10)
        panel.set_xlabel(f"best of {', '.join(PEERS)} / smelt")
        panel.grid(axis="x", which="both", linewidth=0.3)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("{x:g}")
        panel.tick_params(axis="x", which="both", labelsize=7)
        panel.margins(y=0.01)
    axes[0][0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0][0].invert_yaxis()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
