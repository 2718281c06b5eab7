"""Reasons for recompilation, as text: for a function's report, and for one warning if it happens often."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .ir.caller import is_skipped
from .ir.types import Order
from .versions import Compiled

OFTEN = 4  # versions of a function at which it warns, once. Chosen, not measured

# The remedy for each kind of reason. A kind without a remedy does not warn.
ADVICE = {
    "first": "",
    "second size": "",
    "small size": "",
    "size": "compute with the size, which may stay open, instead of its number (x.sum() / x.shape[0], ops.where in "
    "place of a branch), or pad arrays to a few sizes",
    "fixed size": "",
    "static": "pass what changes often as an array or a number instead of a static argument",
    "type": "convert arguments to one type before the call",
    "rank": "give arguments the same number of dimensions in every call",
    "nesting": "give arguments the same nesting, and dicts the same keys in the same order, in every call",
    "order": "lay arrays out in the same order in every call, and do not mix arrays and Python numbers",
}


class Reasons:
    """Why each version of a function was compiled."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self.warned = False

    def add(self, kind: str, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) < OFTEN or self.warned or not ADVICE[kind]:
            return
        self.warned = True
        warnings.warn(
            f"{self.name} was compiled {len(self.texts)} times, now because {text}. "
            f"To compile less often, {ADVICE[kind]} (said once; {self.name}.report() has all reasons)",
            stacklevel=_users_frame(),
        )


def _users_frame() -> int:
    """Return the `stacklevel` of the user's frame for a warning in the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_skipped(frame.f_code.co_filename, frame.f_globals):
        level, frame = level + 1, frame.f_back
    return level


def reason_for(
    versions: Mapping[Any, Sequence[Compiled]],
    key: Any,
    shapes: Sequence[tuple[int, ...]],
    labels: Sequence[str],
    statics: Mapping[Any, tuple[str, Any]],
    dynamic: bool,
) -> tuple[str, str]:
    """Return the kind and the text of the reason for which a call needs another version. labels: of the leaves;
    statics: names and values of the arguments, by position or name."""
    known = versions.get(key)
    if known:
        return _size_reason(known, shapes, labels, key[-1], dynamic)
    others = [other for other, made in versions.items() if made]
    if not others:
        return "first", "it was not compiled before"
    nearest = max(others, key=lambda other: sum(one == two for one, two in zip(other, key, strict=True)))
    return _key_reason(nearest, key, labels, statics)


def _key_reason(old: Any, new: Any, labels: Sequence[str], statics: Mapping[Any, tuple[str, Any]]) -> tuple[str, str]:
    structure, static, dtypes, ranks, orders = zip(old, new, strict=True)
    if structure[0] != structure[1]:
        return "nesting", f"the arguments are nested as {_short(structure[1])}, which they were not before"
    if static[0] != static[1]:
        before = dict(static[0])
        changed = [which for which, value in static[1] if which not in before or before[which] != value]
        shown = ", ".join(f"{name} = {_short(value)}" for name, value in (statics[which] for which in changed))
        return "static", f"of the static argument {shown}"
    for kind, (before, now), words in (
        ("type", dtypes, "is {1} and was {0}"),
        ("rank", ranks, "has {1} dimensions and had {0}"),
    ):
        for label, one, two in zip(labels, before, now, strict=False):
            if one != two:
                return kind, f"{label} {words.format(one, two)}"
    for label, one, two in zip(labels, *orders, strict=False):
        if one != two:
            return "order", f"{label} lies in memory in another order, or is a Python number where it was an array"
    return "nesting", "the arguments are of another kind"


def _size_reason(
    known: Sequence[Compiled],
    shapes: Sequence[tuple[int, ...]],
    labels: Sequence[str],
    orders: Sequence[Order | None],
    dynamic: bool,
) -> tuple[str, str]:
    latest = known[-1]
    parts: list[str] = []
    is_small = True
    types = latest.plan.signature.types
    for label, item, shape, order in zip(labels, types, shapes, orders, strict=False):
        for dim, (expected, size) in enumerate(zip(item.shape, shape, strict=True)):
            if isinstance(expected, int) and expected != size:
                parts.append(f"{label}.shape[{order[dim] if order else dim}] is {size} and was {expected}")
                is_small = is_small and (size < 2 or expected < 2)
    text = " and ".join(parts) or "of sizes that the versions so far do not take"
    if latest.traced.asked:
        return "size", f"{text}; {'; '.join(latest.traced.asked)}"
    if not dynamic:
        return "fixed size", f"{text}, and dynamic=False compiles for every size"
    if is_small and parts:
        return "small size", f"{text}: sizes 0 and 1 have versions of their own"
    return ("second size", f"{text}: it is left open from now on") if len(known) == 1 else ("size", text)


def _short(value: Any) -> str:
    try:
        text = repr(value).replace(", namespace='smelt'", "")
    except Exception:  # the user's __repr__, or a number of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
