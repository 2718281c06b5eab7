"""Verifier of the graph IR: infers types again and compares them, and checks that values are defined before use.

The error shows the program around the op, with the problem below it:

      %1 = exp(%0) : f32[4]
      %2 = add(%1, %x) : f32[8]
      ^^^^^^^^^^^^^^^^^^^^^^^^^ the operands give f32[4], the op says f32[8]
      return %2
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import SmeltError, VerifyError
from .graph import Graph, Op, Value, located
from .printer import INDENT, Printer
from .symbolic import Compound, Dim, Symbol, symbols_of
from .types import TensorType

CONTEXT = 5
# Errors that the bodies of ops raise for an attribute of an unexpected type.
NOT_OURS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, RecursionError)
INDEX_RANGE = -(1 << 63), 1 << 63  # of sizes and positions: native code computes them in i64


def fits_index(value: Dim) -> bool:
    """Whether an i64 holds a number, or every value of an expression."""
    if isinstance(value, int):
        return INDEX_RANGE[0] <= value < INDEX_RANGE[1]
    return all(
        fits_index(coefficient)
        and all(fits_index(atom.left) and fits_index(atom.right) for atom in monomial if isinstance(atom, Compound))
        for monomial, coefficient in value.terms
    )


def type_problem(type: TensorType) -> str:
    """Return why no tensor can have this type, or ''."""
    whole = type.dtype.bytes
    for size in type.shape:
        if isinstance(size, int):
            if size < 0:
                return f"{type} has a negative size"
            whole *= max(size, 1)
        elif not fits_index(size):
            whole = INDEX_RANGE[1]
    return "" if whole < INDEX_RANGE[1] else f"{type} is too large: an i64 must hold its bytes"


def _only_primitives(op: Op) -> str | None:
    return f"{op.name} is a composite: only primitives are legal here" if op.defn.is_composite else None


# A stage's check of an op: why the op is not legal there, or None.
STAGES: dict[str, Callable[[Op], str | None]] = {"primitives": _only_primitives}


def verify_graph(graph: Graph, stage: str | None = None, outer: frozenset[Symbol] = frozenset()) -> None:
    """Raise VerifyError if the graph breaks a rule of the IR or holds an op not legal at the stage.

    outer: symbols of the graph in which this graph is an attribute.
    """
    illegal = STAGES[stage] if stage is not None else None
    defined: set[Value] = set()
    for param in graph.params:
        if param.op is not None:
            raise _failure(graph, None, f"the parameter {param.name or param!r} is the result of {param.op.name}")
        if param in defined:
            raise _failure(graph, None, f"the parameter {param.name!r} is given twice")
        if unusable := type_problem(param.type):
            raise _failure(graph, None, f"the parameter {param.name}: {unusable}")
        defined.add(param)
    ranges: dict[str, Symbol] = {}
    for symbol in graph.sizes:
        if ranges.setdefault(symbol.name, symbol) is not symbol:
            raise _failure(graph, None, f"the size {symbol} has two ranges")
    known = frozenset(graph.sizes) | outer
    for op in graph.ops:
        wrong = _problem(op, defined, known) or (illegal(op) if illegal is not None else None)
        if wrong:
            raise _failure(graph, op, wrong)
        for argument in op.arguments.values():
            if isinstance(argument, Graph):
                verify_graph(argument, stage, known)
        defined.update(op.results)
    for position, value in enumerate(graph.results):
        if value not in defined:
            raise _failure(graph, None, f"result {position} is not defined in the graph")


def _problem(op: Op, defined: set[Value], sizes: frozenset[Symbol]) -> str | None:
    """Return the problem of an op, or None."""
    if op.arguments.keys() != op.defn.by_name.keys():
        return f"the arguments are {', '.join(op.arguments)}, the signature is {op.defn.signature()}"
    for position, operand in enumerate(op.operands):
        if operand not in defined:
            return f"operand {position} is not defined above"
    for value in op.results:
        if value.op is not op:
            return "a result belongs to another op"
        if value in defined:
            return "the op occurs twice"
        if problem := type_problem(value.type):
            return problem
        for size in value.type.shape:
            if not isinstance(size, int) and not symbols_of(size) <= sizes:
                return f"{size} is not known: no parameter has that size"
    try:
        with located(op.loc):
            types = infer(op)
            if types is None:
                return "the operands have different dtypes"
    except SmeltError as error:
        return error.message
    except NOT_OURS as error:
        return f"the arguments are wrong ({type(error).__name__}: {error}); the signature is {op.defn.signature()}"
    given = tuple(value.type for value in op.results)
    if types != given:
        return f"the operands give {_listed(types)}, the op says {_listed(given)}"
    return None


def infer(op: Op) -> tuple[TensorType, ...] | None:
    """Return the types of an op's results by its own rule; None if the op would first cast its operands."""
    defn = op.defn
    if defn.kind is None:
        return defn._composite_types(op.arguments)
    arguments = defn.kind.prepare(defn, dict(op.arguments))
    if isinstance(arguments, Value) or any(arguments[name] is not argument for name, argument in op.arguments.items()):
        return None
    defn._check_dtypes(arguments)
    return defn.kind.infer(defn, arguments)


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(map(str, types))


def _failure(graph: Graph, guilty: Op | None, message: str) -> VerifyError:
    printer = Printer(graph)
    lines = [printer.header()]
    mark = 0
    for op in graph.ops:
        # A literal is printed as a line only if it is the culprit.
        if op.name == "constant" and op is not guilty:
            continue
        if op is guilty:
            mark = len(lines)
        lines.append(printer.op_line(op))
    lines.append(printer.return_line())
    lines.append("}")
    if guilty is None and message.startswith("result"):
        mark = len(lines) - 2
    width = len(lines[mark].rsplit("\n", 1)[-1].strip())
    indent = INDENT if mark else ""
    lines.insert(mark + 1, f"{indent}{'^' * width} {message}")
    shown = lines[max(mark - CONTEXT, 0) : mark + CONTEXT + 2]
    where = f"{guilty.name}: " if guilty is not None else ""
    return VerifyError(f"@{graph.name}: {where}{message}", guilty.loc if guilty else None, "\n".join(shown))
