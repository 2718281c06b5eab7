"""Results of both back ends as tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from smelt.tools.terminal import heading, table

Results = dict[str, dict[str, list[dict[str, Any]]]]  # by back end, by subject: an outcome for each sample


def worse(results: Results) -> list[tuple[str, int, str]]:
    """Samples that aot_eager passes and smelt does not: name, number, why."""
    found = []
    for name, outcomes in results["smelt"].items():
        others = results["aot_eager"].get(name, [])
        for number, (mine, other) in enumerate(zip(outcomes, others)):
            if other["passed"] and not mine["passed"]:
                found.append((name, number, mine["why"]))
    return found


def print_summary(results: Results, families: dict[str, str]) -> None:
    rows = [("family", "names", "samples", "smelt", "aot_eager", "native", "fallback", "all native")]
    groups: dict[str, list[str]] = {}
    for name in results["smelt"]:
        groups.setdefault(families[name], []).append(name)
    for family, names in [*sorted(groups.items()), ("all", list(results["smelt"]))]:
        rows.append((family, str(len(names)), *_counts(results, names)))
    print(heading("samples that pass, and the share of aten ops that smelt compiled"))
    print(table(rows, right=range(1, 8)))
    missing = Counter(
        reason for outcomes in results["smelt"].values() for item in outcomes for reason in item.get("reasons", ())
    )
    if missing:
        print(heading("\nmost frequent fallbacks (samples)"))
        print(table([(str(count), reason[:110]) for reason, count in missing.most_common(40)], right=(0,)))
    lost = worse(results)
    if lost:
        print(heading("\nsamples that aot_eager passes and smelt does not"))
        print(table([(name, str(number), why[:200]) for name, number, why in lost]))
    same = [
        (name, str(number), item["why"][:120])
        for name, outcomes in results["smelt"].items()
        for number, item in enumerate(outcomes)
        if not item["passed"] and (name, number, item["why"]) not in lost
    ]
    if same:
        print(heading("\nsamples that neither passes"))
        print(table(same))


def _counts(results: Results, names: list[str]) -> tuple[str, ...]:
    mine = [item for name in names for item in results["smelt"][name] if not item.get("void")]
    other = [item for name in names for item in results["aot_eager"].get(name, []) if not item.get("void")]
    native = sum(item.get("native", 0) for item in mine)
    fallback = sum(item.get("fallback", 0) for item in mine)
    whole = sum(item["passed"] and not item.get("fallback") for item in mine)
    return (
        str(len(mine)),
        str(sum(item["passed"] for item in mine)),
        str(sum(item["passed"] for item in other)),
        _share(native, native + fallback),
        _share(fallback, native + fallback),
        _share(whole, len(mine)),
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"
