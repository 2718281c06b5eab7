"""Every error that users can see: the problem, the line of their code, the remedy.

One shape for all of them:

    model.py:12: matmul: operand 1 has 32 rows, expected 64 (the columns of operand 0)
        %0 = matmul(%x, %w)     %x: f32[N, 64]   %w: f32[32, 128]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

    def __reduce__(self) -> Any:
        return _unpickled, (type(self), self.message, self.location, self.detail, self.op)

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location else ""
        if self.op:
            place += f"{self.op}: "
        detail = "".join(f"\n    {line}" for line in self.detail.splitlines())
        return f"{place}{self.message}{detail}"


def _unpickled(kind: type[SmeltError], message: str, location: Location | None, detail: str, op: str) -> SmeltError:
    error = kind.__new__(kind)
    SmeltError.__init__(error, message, location, detail)
    error.op = op
    return error


class ShapeError(SmeltError, ValueError):
    """Shapes that do not fit together."""


class DTypeError(SmeltError, TypeError):
    """An element type that an op does not take, or that smelt does not know."""


class ArgumentError(SmeltError, TypeError):
    """A wrong argument: missing, unexpected, of the wrong kind or out of its range."""


class TraceError(SmeltError, TypeError):
    """Python needs a fact about a traced tensor that is only known at run time."""


class DerivativeError(SmeltError, TypeError):
    """A derivative that does not exist, or that smelt has no rule for."""


class IndexRangeError(SmeltError, IndexError):
    """A data-dependent index is out of range."""


class DivisionError(SmeltError, RuntimeError):
    """An integer divided by zero, where PyTorch raises for it."""


class AssertionFailed(SmeltError, RuntimeError):
    """An assertion of the user's that does not hold."""


class NumberRangeError(SmeltError, OverflowError):
    """A number out of its type's range."""


class ParseError(SmeltError, ValueError):
    """Text that is not a program."""


class VerifyError(SmeltError):
    """A program that breaks the rules of its IR: a bug in the pass that made it, or in the text it came from."""


class CompileError(SmeltError):
    """A program that the chosen target cannot compile."""


def range_error(
    op: str, called: str, number: int, size: int, location: Location | None, message: str = ""
) -> SmeltError:
    """Return the error for a failed check in compiled code, of primitive `op`, called by the user as `called`; message:
    that of an assertion."""
    if op == "_functional_assert_async":
        unnamed = f"{called}: an operand is out of its domain" if called else "an asserted condition does not hold"
        return AssertionFailed(message or unnamed, location)
    if op == "checked_cast":
        # A signed type of n numbers goes from -n/2 to n/2 - 1; `size` is the number above the largest one.
        bits = size.bit_length() - 1
        low, kind = (-size, f"i{bits + 1}") if bits % 8 else (0, f"u{bits}")
        return NumberRangeError(
            f"{number} is out of range for {kind}, which goes from {low} to {size - 1}: convert the tensor first, "
            "x.astype('int64')",
            location,
        )
    if op == "checked_exponent":
        return ArgumentError(
            f"integers to the power {number}: negative powers are no integers. Convert them to floats, "
            "x.astype('float64')",
            location,
        )
    if op == "checked_divisor":
        return DivisionError("ZeroDivisionError: an integer is divided by zero", location)
    return IndexRangeError(f"{called or op}: index {number} is out of range for a dimension of size {size}", location)


def suggest(name: str, known: object) -> str:
    """Return ' (did you mean ...?)' for a misspelt name, or ''."""
    allowed = max(2, 6 * len(name) // 10)
    close = [(_distance(name.lower(), str(item).lower(), allowed), str(item)) for item in known]  # type: ignore[attr-defined]
    best = min(close, default=(allowed + 1, ""))
    return f" (did you mean {best[1]!r}?)" if best[0] <= allowed else ""


def _distance(one: str, other: str, allowed: int) -> int:
    """Return the edit distance of two spellings; any number above `allowed` if it is larger than that.

    An insertion, a deletion, a transposition and a wrong digit cost 2; a wrong letter costs 3, so that sqrt is not
    taken for a misspelt sort.
    """
    if 2 * abs(len(one) - len(other)) > allowed:
        return allowed + 1
    before: list[int] = []
    row = list(range(0, 2 * len(other) + 1, 2))
    for at, letter in enumerate(one, 1):
        before, above, row = row, before, [2 * at]
        for to, wanted in enumerate(other, 1):
            wrong = 0 if letter == wanted else 2 if letter.isdigit() and wanted.isdigit() else 3
            cost = min(before[to - 1] + wrong, before[to] + 2, row[-1] + 2)
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted and letter != wanted:
                cost = min(cost, above[to - 2] + 2)
            row.append(cost)
        if min(row) > allowed:
            return allowed + 1
    return row[-1]
