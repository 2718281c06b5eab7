"""Terminal helpers of all subcommands: colour, progress, errors, exit codes.

Colour is for people: a pipe, a file, a dumb terminal or NO_COLOR (the common convention) get plain text, so that the
output of a command can be the input of another one.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

FINE = 0
WRONG_INPUT = 1
WRONG_USAGE = 2

_STYLES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
    "cyan": "36",
}  # fmt: skip


class UserError(Exception):
    """The named program or input is wrong: a message of one line, with the remedy."""


class UsageError(Exception):
    """The command line itself is wrong."""


def has_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text in a style, if the stream (standard output) shows colour."""
    if not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def heading(text: str) -> str:
    return paint(text, "bold")


_TOKENS = re.compile(
    r"(?P<comment>//.*$|^;.*$|(?<=\s)#.*$)"
    r"|(?P<value>%[\w.]+)"
    r"|(?P<symbol>@[\w.]+)"
    r"|(?P<type>\b(?:bool|u8|i8|i16|i32|i64|f16|bf16|f32|f64|c64|c128)(?=\[|\b))"
    r"|(?P<keyword>\b(?:graph|kernel|return|where|parallel|serial|vector|unroll|reduce|for|if|let|in|out|load|"
    r"store|alloc|call|define|declare)\b)",
    re.MULTILINE,
)
_TOKEN_STYLES = {"comment": "dim", "value": "cyan", "symbol": "yellow", "type": "green", "keyword": "magenta"}


def highlight(program: str) -> str:
    """Return IR text with colours, if standard output shows them."""
    if not has_colour(sys.stdout):
        return program
    return _TOKENS.sub(lambda match: paint(match.group(), _TOKEN_STYLES[match.lastgroup or "value"]), program)


def table(rows: Iterable[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Return rows in aligned columns; the columns named in `right` are aligned to the right."""
    lines = [tuple(row) for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if position in right else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(shown)


def count(text: str) -> int:
    """Parse the value of an option that is a number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return int(text)


def size_text(count: float) -> str:
    """Return a number of bytes as readable text."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def time_text(seconds: float) -> str:
    """Return a duration as readable text."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Context that shows its text as a line on standard error once it has taken a second."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    begin = time.monotonic()

    def show() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.2
            sys.stderr.write(f"\r\x1b[K{what} ... {time.monotonic() - begin:.0f} s")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if time.monotonic() - begin >= 1:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def fail(message: object) -> None:
    """Print an error on standard error."""
    print(f"{paint('error:', 'red', sys.stderr)} {message}", file=sys.stderr)
