"""Every error a user can see: what, where in the user's code, what to do.

One shape for all of them:

    model.py:12: matmul: operand 1 has 32 rows, expected 64 (the columns of operand 0)
        %0 = matmul(%x, %w)     %x: f32[N, 64]   %w: f32[32, 128]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Location


class SmeltError(Exception):
    """The root of smelt's errors. `location` is the user's line, `detail` the lines below the message."""

    def __init__(self, message: str, location: Location | None = None, detail: str = ""):
        self.message = message
        self.location = location
        self.detail = detail
        self.op = ""  # the op that the user called
        super().__init__(message)

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        if self.op:
            place += f"{self.op}: "
        detail = "".join(f"\n    {line}" for line in self.detail.splitlines())
        return f"{place}{self.message}{detail}"


class ShapeError(SmeltError, ValueError):
    """Shapes that do not fit together."""


class DTypeError(SmeltError, TypeError):
    """An element type that an op does not take, or that smelt does not know."""


class ArgumentError(SmeltError, TypeError):
    """A wrong argument: missing, unexpected, of the wrong kind or out of its range."""


class TraceError(SmeltError, TypeError):
    """Python asked a traced tensor for something that is only known when the compiled code runs."""


class DerivativeError(SmeltError, TypeError):
    """A derivative that does not exist, or that smelt has no rule for."""


class IndexRangeError(SmeltError, IndexError):
    """An index that came from data lies outside its tensor."""


class ParseError(SmeltError, ValueError):
    """Text that is not a program."""


class VerifyError(SmeltError):
    """A program that breaks the rules of its IR: a bug in the pass that made it, or in the text it came from."""


class CompileError(SmeltError):
    """A program that the chosen target cannot compile."""


def suggest(name: str, known: object) -> str:
    """' (did you mean ...?)' for a misspelt name, or nothing."""
    import difflib

    close = difflib.get_close_matches(name, [str(item) for item in known], n=1)  # type: ignore[attr-defined]
    return f" (did you mean {close[0]!r}?)" if close else ""
