"""The graph IR: SSA over tensors.

A `Value` knows the `Op` that made it, and an `Op` its operands, so a program is just the values that an op
call returns: no ambient "current graph" collects anything. `Graph.build` walks back from the results and
lists the ops in the order of their creation, which is a topological order because an operand exists before
its use. Ops that no result depends on are not in the graph.

Ops are never changed after they are made; a pass builds new ones (passes/rewrite.py).
"""

from __future__ import annotations

import itertools
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar

from .caller import is_skipped, skipped_files
from .errors import TraceError
from .open_size import open_shape
from .process import process
from .symbolic import Symbol, symbols_of
from .types import DType, TensorType

if TYPE_CHECKING:
    from ..ops.opdef import OpDef

_serial = process.keep("serial numbers of ops", itertools.count())


class Location:
    """A line of the user's code, with the op called there if a pass has replaced it by others.

    Every op has a location and few are ever shown, so the line may be given as an offset in a function's bytecode,
    which is resolved when it is read.
    """

    __slots__ = ("_line", "code", "file", "op", "outer")

    def __init__(self, file: str, line: int, op: str = "", outer: Location | None = None, code: CodeType | None = None):
        self.file = file
        self._line = line  # a line number; with a function's code, the bytecode offset
        self.code = code
        self.op = op
        self.outer = outer  # None: the op itself

    @property
    def line(self) -> int:
        if self.code is not None:
            self._line, self.code = _line_at(self.code, self._line), None
        return self._line

    def __reduce__(self) -> Any:
        """Pickle with the line number instead of the bytecode."""
        return Location, (self.file, self.line, self.op, self.outer)

    def inside(self, op: str) -> Location:
        """Return this location for the ops that replace an op of it."""
        return Location(self.file, self._line, op, self, self.code)

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def __repr__(self) -> str:
        return f"Location({self.file!r}, {self.line})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and (self.file, self.line, self.op) == (
            other.file,
            other.line,
            other.op,
        )

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.op))


# Keyed by id(code); the entry keeps the code object alive. A code object is hashable only if its constants are: slices
# are not before Python 3.12, and PyTorch generates code with slices.
_lines: dict[int, tuple[CodeType, list[int], list[int]]] = process.keep("lines of functions", {})
_MOST_LINES = 64  # functions; then the table starts empty again. Chosen, not measured


def _lines_of(code: CodeType) -> tuple[list[int], list[int]]:
    """Return the bytecode offsets at which a function's lines begin, and the line numbers."""
    known = _lines.get(id(code))
    if known is None:
        pieces = [(start, line) for start, _, line in code.co_lines() if line is not None]
        known = code, [start for start, _ in pieces], [line for _, line in pieces]
        if len(_lines) >= _MOST_LINES:
            _lines.clear()
        _lines[id(code)] = known
    return known[1:]


def _line_at(code: CodeType, offset: int) -> int:
    starts, lines = _lines_of(code)
    return lines[bisect_right(starts, offset) - 1] if lines else code.co_firstlineno


# Set while a pass rewrites an op into others, so that the new ops keep the old op's line.
_location: ContextVar[Location | None] = ContextVar("smelt_location", default=None)


class located:
    """Context in which new ops get `location`; `move` changes it, which passes do for each op. A class, because a
    generator takes three times as long."""

    __slots__ = ("location", "outer", "token")

    def __init__(self, location: Location | None = None):
        self.location = location

    def __enter__(self) -> located:
        self.outer = _location.get()
        self.token = _location.set(self.outer if self.location is None else self.location)
        return self

    def move(self, location: Location | None) -> None:
        _location.set(self.outer if location is None else location)

    def __exit__(self, *raised: object) -> None:
        _location.reset(self.token)


def current_location(frames: int = 1) -> Location | None:
    """Return the innermost user line, outside smelt and libraries, or the location that a pass has set.

    frames: where the search starts; 1 is the caller.
    """
    override = _location.get()
    if override is not None:
        return override
    frame = sys._getframe(frames)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        # Looked up for each frame above each op: read the table before calling is_skipped.
        skipped = skipped_files.get(file)
        if not (is_skipped(file, frame.f_globals) if skipped is None else skipped):
            return Location(file, frame.f_lasti, "", None, code)
        frame = frame.f_back  # type: ignore[assignment]
    return None


class Value:
    """A tensor in a program. Operators and methods come from the op registry (frontend/tensor.py)."""

    __slots__ = ("__weakref__", "index", "name", "op", "owner", "type")

    def __init__(self, type: TensorType, op: Op | None = None, index: int = 0, name: str = "", trace: Any = None):
        self.type = type
        self.op = op  # None: a parameter
        self.index = index
        self.name = name
        self.owner = trace  # the trace that made this parameter: tells a leaked tracer from a live one

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def has_parameters(self) -> bool:
        """Whether the value depends on a function's arguments."""
        pending, seen = [self], set()
        while pending:
            op = pending.pop().op
            if op is None:
                return True
            if op.serial not in seen:
                seen.add(op.serial)
                pending.extend(op.operands)
        return False

    def __repr__(self) -> str:
        source = self.op.defn.name if self.op is not None else f"parameter {self.name}"
        return f"<traced {self.type} from {source}>"

    if TYPE_CHECKING:
        # Installed by frontend/tensor.py.
        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...


class Handle(Value):
    """A value as the user's code sees it: its open sizes are `OpenSize`s.

    Bodies and rules of the user's ops get handles, with the operators of values. Op calls that get a handle return
    handles (ops/opdef.py); graphs, bodies of smelt's ops and passes hold the values behind them.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value):
        super().__init__(value.type, value.op, value.index, value.name, value.owner)
        self.value = value

    @property
    def shape(self) -> tuple[Any, ...]:
        return open_shape(self.type.shape)


class Array(Handle):
    """A value as a function of NumPy arrays sees it: operators promote types as NumPy does, and integers become f64."""

    __slots__ = ("weak",)

    def __init__(self, value: Value, weak: type | None = None):
        super().__init__(value)
        self.weak = weak  # int, float or complex: a Python number, weakly typed as in NEP 50


def plain(value: Any) -> Any:
    """Return the value that graphs hold, for a traced tensor or a handle."""
    return value.value if isinstance(value, Handle) else value


def operands_of(defn: OpDef, arguments: dict[str, Any]) -> tuple[Value, ...]:
    """The values among the arguments of an op, in order."""
    found: list[Value] = []
    for name in defn.tensor_names:
        argument: Any = arguments.get(name)  # verify.py says which one is missing
        kind = argument.__class__
        if kind is Value:
            found.append(argument)
        elif kind is tuple:
            found.extend([item for item in argument if item.__class__ is Value])
    return tuple(found)


class Op:
    """One op call. `arguments` has every parameter of the op by name; those that hold values are its operands."""

    __slots__ = ("arguments", "defn", "loc", "operands", "results", "serial")

    def __init__(self, defn: OpDef, arguments: dict[str, Any], types: Sequence[TensorType], loc: Location | None):
        self.defn = defn
        self.arguments = arguments
        self.loc = loc
        self.serial = next(_serial)
        self.operands = operands_of(defn, arguments)
        if len(types) == 1:
            self.results: tuple[Value, ...] = (Value(types[0], self),)
        else:
            self.results = tuple(Value(type, self, index) for index, type in enumerate(types))

    @property
    def name(self) -> str:
        return self.defn.name

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def attrs(self) -> dict[str, Any]:
        """The arguments that hold no value."""
        return {name: argument for name, argument in self.arguments.items() if not holds_values(argument)}

    def __repr__(self) -> str:
        return f"<{self.defn.name} -> {', '.join(map(repr, (value.type for value in self.results)))}>"


def holds_values(argument: object) -> bool:
    return isinstance(argument, Value) or (
        isinstance(argument, tuple) and any(isinstance(item, Value) for item in argument)
    )


def replace_values(argument: Any, lookup: Any) -> Any:
    """Return the argument with every value in it replaced by lookup[value]."""
    if isinstance(argument, Value):
        return lookup[argument]
    if isinstance(argument, tuple):
        return tuple(lookup[item] if isinstance(item, Value) else item for item in argument)
    return argument


def ops_behind(values: Iterable[Value], known: set[int]) -> list[Op]:
    """Return the ops that the values depend on, but for those in `known` (serial numbers), operands first."""
    found: dict[int, Op] = {}
    pending = [value.op for value in values]
    while pending:
        op = pending.pop()
        if op is not None and op.serial not in known and op.serial not in found:
            found[op.serial] = op
            pending.extend([operand.op for operand in op.operands])
    return [found[serial] for serial in sorted(found)]


def _leaked(value: Value, user: Op | None) -> TraceError:
    return TraceError(
        f"{user.name if user else 'the result'} uses the traced tensor {value.name!r} of another call: "
        "it leaked out of the function that was being traced. Return it from that function instead",
        user.loc if user else None,
    )


class Graph:
    """Parameters, ops in topological order, results."""

    __slots__ = ("name", "ops", "params", "results")
    text: ClassVar[Callable[[Graph], str]]  # printer.py sets it

    def __init__(self, name: str, params: Sequence[Value], ops: Sequence[Op], results: Sequence[Value]):
        self.name = name
        self.params = tuple(params)
        self.ops = tuple(ops)
        self.results = tuple(results)

    @staticmethod
    def build(name: str, params: Sequence[Value], results: Sequence[Value]) -> Graph:
        """Return the graph of all ops that the results depend on."""
        results = [plain(value) for value in results]
        known = set(params)
        found: dict[int, Op] = {}
        pending: list[Op] = []
        user: Op | None = None
        needed: Sequence[Value] = results
        while True:
            for value in needed:
                op = value.op
                if op is None:
                    if value not in known:
                        raise _leaked(value, user)
                elif op.serial not in found:
                    found[op.serial] = op
                    pending.append(op)
            if not pending:
                break
            user = pending.pop()
            needed = user.operands
        return Graph(name, params, [found[serial] for serial in sorted(found)], results)

    @property
    def sizes(self) -> tuple[Symbol, ...]:
        """The symbols of the parameters' shapes, in order of first appearance."""
        found: dict[Symbol, None] = {}
        for param in self.params:
            for dim in param.type.shape:
                if not isinstance(dim, int):
                    for symbol in sorted(symbols_of(dim), key=lambda item: item.name):
                        found.setdefault(symbol)
        return tuple(found)

    def uses(self) -> dict[Value, list[Op]]:
        """Return the ops that read each value; results of the graph do not count as uses."""
        table: dict[Value, list[Op]] = {value: [] for value in self.params}
        for op in self.ops:
            for value in op.results:
                table[value] = []
            for operand in op.operands:
                users = table[operand]
                if not users or users[-1] is not op:
                    users.append(op)
        return table

    def __str__(self) -> str:
        return Graph.text(self)
