"""`smelt ops`: every op with its kind and its derivatives."""

from __future__ import annotations

import fnmatch
import importlib
import json
from argparse import ArgumentParser, Namespace
from typing import Any

from ..ir.errors import suggest
from ..ops.define import REGISTRY
from ..ops.opdef import OpDef
from .terminal import FINE, UserError, heading, table

PREFACE = """# Ops

Made from the registry by `smelt ops --markdown`; a test holds it true. An op means what the PyTorch function of its
name means. `composite` ops have a body of other ops; all others are primitives of the kind that is named. Under vjp and
jvp, `rule` is a rule of its own, `body` the derivative of the body, `linear` and `auto` that of the kind, `-` none."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", help="part of a name, or a pattern such as 'log*'")
    parser.add_argument("--json", action="store_true", help="the same for programs, with signatures")
    parser.add_argument("--markdown", action="store_true", help="the same as a page, by family: docs/ops.md")


def run(options: Namespace) -> int:
    from .. import ops  # noqa: F401  (fills the registry)

    found = [REGISTRY[name] for name in sorted(REGISTRY) if matches(name, options.pattern)]
    if not found:
        raise UserError(f"no op matches {options.pattern!r}{suggest(options.pattern, REGISTRY)}")
    if options.json:
        print(json.dumps([describe(op) for op in found], indent=2))
        return FINE
    if options.markdown:
        print(page(found))
        return FINE
    rows = [("name", "kind", "vjp", "jvp", "")]
    rows += [(op.name, kind_of(op), reverse_rule(op), forward_rule(op), op.doc) for op in found]
    first, *rest = table(rows, indent="").split("\n")
    print(heading(first))
    print("\n".join(rest))
    return FINE


def page(found: list[OpDef]) -> str:
    """Return a page of Markdown: a table for each family."""
    lines = PREFACE.split("\n")
    for family in sorted({op.module for op in found}):
        module = importlib.import_module(f"..ops.{family}", __package__)
        lines += ["", f"## {family}", "", (module.__doc__ or "").split("\n")[0], ""]
        lines += ["| op | kind | vjp | jvp | |", "|---|---|---|---|---|"]
        for op in found:
            if op.module == family:
                cells = (f"`{op.signature()}`", kind_of(op), reverse_rule(op), forward_rule(op), op.doc)
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return fnmatch.fnmatchcase(name, pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*")


def kind_of(op: OpDef) -> str:
    return op.kind.name.lower() if op.kind is not None else "composite"


def reverse_rule(op: OpDef) -> str:
    """Return the origin of the reverse rule. rule: written by hand, body: through the body of a composite."""
    if not op.differentiable:
        return "-"
    if op.vjp_rule is not None:
        return "rule"
    return "body" if op.is_composite else "-"


def forward_rule(op: OpDef) -> str:
    """Return the origin of the forward rule: as reverse_rule, or linear: the op applied to tangents, auto: from the
    reverse rule."""
    if not op.differentiable:
        return "-"
    if op.jvp_rule is not None:
        return "rule"
    if op.is_composite:
        return "body"
    if op.kind is not None and op.kind.linear:
        return "linear"
    # An elementwise Jacobian is diagonal: the forward rule is the reverse one with the tangent as gradient.
    return "auto" if op.vjp_rule is not None and kind_of(op) == "elementwise" else "-"


def describe(op: OpDef) -> dict[str, Any]:
    return {
        "name": op.name,
        "kind": kind_of(op),
        "family": op.module,
        "vjp": reverse_rule(op) != "-",
        "jvp": forward_rule(op) != "-",
        "signature": op.signature(),
        "doc": op.doc,
    }
