"""`smelt cache`: the entries of the disk cache, whether they are intact, and why a function found none."""

from __future__ import annotations

import json
import os
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ..backend.options import CompileOptions
from ..backend.store.cache import (
    OFF,
    VARIABLE,
    Cache,
    Damaged,
    Entry,
    Key,
    Lookup,
    absolute,
    current,
    entries,
    make_key,
    read_entry,
    read_header,
    why_not,
)
from ..backend.targets import targets
from ..ir.errors import CompileError
from ..ir.graph import Graph
from .program import configure_function, configure_target, for_target, trace_program
from .terminal import FINE, WRONG_INPUT, UserError, heading, paint, progress, size_text, table, time_text

if TYPE_CHECKING:
    from ..backend.report.timings import Stages

ACTIONS = {
    "list": "the entries, with their sizes and when they were last used (the default)",
    "why": "whether a function would find its code, and if not, which field of the key differs",
    "verify": "check the checksums of all entries",
    "clear": "remove all entries",
    "dir": "the directories",
}
AGES = (("day", 86400), ("hour", 3600), ("minute", 60))
SIMILAR = 3  # entries of the same name that are shown when the program itself has none


def configure(parser: ArgumentParser) -> None:
    place = {"metavar": "DIR", "help": f"another directory than the usual one ({VARIABLE})"}
    parser.add_argument("--dir", **place)  # type: ignore[arg-type]
    parser.add_argument("--json", action="store_true", help="list: the same for programs")
    actions = parser.add_subparsers(dest="action", metavar="action", parser_class=type(parser))
    for name, summary in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        # Options may stand on either side of the action.
        action.add_argument("--dir", default=SUPPRESS, **place)  # type: ignore[arg-type]
        if name == "list":
            action.add_argument("--json", action="store_true", default=SUPPRESS, help="the same for programs")
        if name == "why":
            configure_function(action)
            configure_target(action)


def run(options: Namespace) -> int:
    cache = current() if options.dir is None else Cache(absolute(options.dir))
    if not cache.is_on:
        raise UserError(f"the cache is off ({VARIABLE}={OFF}): name a directory with --dir")
    if options.dir is not None and not os.path.isdir(options.dir):
        raise UserError(f"no directory {options.dir}; smelt cache dir shows the usual one")
    if options.dir is not None and (reason := why_not(str(cache.directory))):
        raise UserError(f"programs do not use {options.dir}: {reason}")
    return {"list": show, "why": why, "verify": verify, "clear": clear, "dir": show_directories}[
        options.action or "list"
    ](cache, options)


def show(cache: Cache, options: Namespace) -> int:
    found: list[dict[str, Any]] = []
    for directory in cache.directories:
        for entry in entries(directory):
            header, damage = examined(entry)
            found.append(
                {
                    "program": "damaged" if header is None else header["title"],
                    "usable": "no" if header is None or damage else usable(header["fields"]),
                    "damage": damage,
                    "bytes": entry.size,
                    "used": entry.used,
                    "path": entry.path,
                }
            )
    found.sort(key=lambda item: -item["used"])
    if options.json:
        print(json.dumps(found, indent=2))
        return FINE
    rows = []
    for item in found:
        name = os.path.basename(item["path"])[:12]
        usable_here = "no, damaged" if item["damage"] else item["usable"]
        rows.append((shortened(item["program"]), usable_here, size_text(item["bytes"]), age(item["used"]), name))
    if rows:
        print(table([("program", "usable here", "size", "last used", "entry"), *rows], right=(2,)))
    total = size_text(sum(item["bytes"] for item in found))
    count = f"{len(found)} entr{'y' if len(found) == 1 else 'ies'}"
    print(heading(f"{count}, {total} of at most {size_text(cache.limit)}, in {' and '.join(cache.directories)}"))
    return FINE


def examined(entry: Entry) -> tuple[dict[str, Any] | None, str]:
    """Return an entry's header, and its damage or '': the checks that a program makes before it runs the code."""
    header = read_header(entry.path)
    try:
        whole, code = read_entry(entry.path)
        if header is None or whole != header:
            raise Damaged("its header cannot be understood")
        if Key(header["title"], header["program"], header["fields"]).name != entry.name:
            raise Damaged("it is another key's entry")
        if header.get("about") != {}:  # {}: the code needs no description beside its address
            understood(header, code)
    except Damaged as error:
        return header, str(error)
    except OSError as error:
        return header, error.strerror or str(error)
    return header, ""


def understood(header: dict[str, Any], code: bytes) -> None:
    name = header["fields"].get("target")
    if name not in targets.names:
        return  # of another smelt, or of a target that is registered elsewhere
    try:
        targets.find(name).read(header["about"], code)
    except Exception as error:
        raise Damaged(f"its header cannot be understood ({error!r})") from None


def usable(fields: dict[str, Any]) -> str:
    """Return "yes" if this machine and this version of smelt can use an entry, else the field that differs."""
    name = fields.get("target", "")
    if name not in targets.names:
        return "other target"
    try:
        environment = targets.find(name).environment()
    except CompileError:  # what compiles for it is not installed
        return "no"
    key = make_key(name, "", "", fields.get("options", {}), environment)
    if key is None:
        return "no"
    return next((f"other {name}" for name, value in key.fields.items() if fields.get(name) != value), "yes")


def shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def age(used: float) -> str:
    seconds = max(time.time() - used, 0.0)
    for unit, length in AGES:
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def why(cache: Cache, options: Namespace) -> int:
    from ..backend.compile import graph_key, with_own_ops
    from ..backend.report.timings import Stages

    with progress(f"tracing {options.function}"):
        graph, chosen = trace_program(options.function, options.args, options.grad)
    chosen = for_target(chosen, options)
    graph = with_own_ops(graph)
    key, reason = graph_key(graph, chosen)
    if key is None:
        raise UserError(f"{options.function} is never kept: {reason}")
    stages = Stages()
    with stages.timed("load"):
        lookup = load(cache, key, graph, chosen, stages)
    if lookup.state != "hit":
        raise UserError("\n".join([f"{options.function} finds no code: {lookup}", *similar(cache, graph.name)]))
    print(f"{paint('hit:', 'green')} {key.title} in {lookup.detail}, {time_text(stages.seconds['load'])}")
    return FINE


def load(cache: Cache, key: Key, graph: Graph, options: CompileOptions, stages: Stages) -> Lookup:
    """Look an entry up and load it."""
    target = targets.find(options.target)
    code, lookup = cache.find(key, target.read)
    if code is not None:
        target.load(graph, options, target.machine(options, False), code, lookup, stages)
    return lookup


def similar(cache: Cache, name: str) -> list[str]:
    """Return lines that name the entries of functions of the same name."""
    titles = [
        header["title"]
        for directory in cache.directories
        for entry in entries(directory)
        if (header := read_header(entry.path)) is not None and header["title"].startswith(f"{name}(")
    ]
    shown = [f"    there is {title}" for title in dict.fromkeys(titles)]
    return shown if len(shown) <= SIMILAR else [*shown[:SIMILAR], f"    and {len(shown) - SIMILAR} more"]


def verify(cache: Cache, options: Namespace) -> int:
    checked = damaged = 0
    with progress("checking"):
        for directory in cache.directories:
            for entry in entries(directory):
                checked += 1
                damage = examined(entry)[1]
                if damage:
                    damaged += 1
                    print(f"{paint('damaged:', 'red')} {entry.path}: {damage}")
    if damaged:
        raise UserError(f"{damaged} of {checked} entries are damaged; they are ignored, and replaced when next needed")
    print(f"{checked} entries, all intact")
    return FINE


def clear(cache: Cache, options: Namespace) -> int:
    if cache.directory is None:
        raise UserError("there are only directories to read: name the one to clear with --dir")
    before = sum(entry.size for entry in entries(cache.directory))
    count = cache.clear()
    left = sum(entry.size for entry in entries(cache.directory))
    print(f"{count} entries removed from {cache.directory}, {size_text(before - left)}")
    return WRONG_INPUT if left else FINE


def show_directories(cache: Cache, options: Namespace) -> int:
    for directory in cache.directories:
        print(directory if directory == cache.directory else f"{directory} (only read)")
    return FINE
