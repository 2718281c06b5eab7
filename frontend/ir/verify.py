"""Is this a program? Types are inferred again and compared, and every value is defined before its use.

On failure the error shows the program around the op, with what is wrong written below it:

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
from .symbolic import Symbol
from .types import TensorType

CONTEXT = 5


def _only_primitives(op: Op) -> str | None:
    return f"{op.name} is a composite: only primitives are legal here" if op.defn.is_composite else None


# What may occur at a stage of compilation: for an op, why it may not, or None.
STAGES: dict[str, Callable[[Op], str | None]] = {"primitives": _only_primitives}


def verify_graph(graph: Graph, stage: str | None = None) -> None:
    """Raise VerifyError if the graph breaks a rule of the IR or holds an op not legal at the stage."""
    illegal = STAGES[stage] if stage is not None else None
    defined: set[Value] = set()
    for param in graph.params:
        if param.op is not None:
            raise _failure(graph, None, f"the parameter {param.name or param!r} is the result of {param.op.name}")
        if param in defined:
            raise _failure(graph, None, f"the parameter {param.name!r} is given twice")
        defined.add(param)
    ranges: dict[str, Symbol] = {}
    for symbol in graph.sizes:
        if ranges.setdefault(symbol.name, symbol) is not symbol:
            raise _failure(graph, None, f"the size {symbol} has two ranges")
    for op in graph.ops:
        problem = _problem(op, defined) or (illegal(op) if illegal is not None else None)
        if problem:
            raise _failure(graph, op, problem)
        for argument in op.arguments.values():
            if isinstance(argument, Graph):
                verify_graph(argument, stage)
        defined.update(op.results)
    for position, value in enumerate(graph.results):
        if value not in defined:
            raise _failure(graph, None, f"result {position} is not defined in the graph")


def _problem(op: Op, defined: set[Value]) -> str | None:
    """What is wrong with an op, or None."""
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
    try:
        with located(op.loc):
            types = infer(op)
            if types is None:
                return "the operands have different dtypes"
    except SmeltError as error:
        return error.message
    given = tuple(value.type for value in op.results)
    if types != given:
        return f"the operands give {_listed(types)}, the op says {_listed(given)}"
    return None


def infer(op: Op) -> tuple[TensorType, ...] | None:
    """The types of an op's results by its own rule; None if the op would first cast its operands."""
    defn = op.defn
    if defn.kind is None:
        return defn._composite_types(op.arguments)
    arguments = defn.kind.prepare(defn, dict(op.arguments))
    if any(arguments[name] is not argument for name, argument in op.arguments.items()):
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
        # A literal has no line of its own unless it is the culprit.
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
