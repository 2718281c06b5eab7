"""Replace loop variables by expressions, registers by others, and bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...ir.proofs import substitute
from ...ir.symbolic import Dim, Symbol
from ...kernels.loop.ir import Kernel, Loop, Operand, Register, Statement, fresh, with_body
from ...kernels.loop.roles import Rewrite, positions


def substitute_statement(statement: Statement, places: Mapping[Symbol, Dim]) -> Statement:
    """Return the statement with loop variables replaced."""
    return Rewrite(dims=lambda value: substitute(value, places))(statement)


def fresh_registers(kernel: Kernel) -> Iterator[str]:
    """Yield names that no register of a kernel has."""
    return (f"%{number}s" for number in fresh(kernel, "%{}s"))


def renamed(statements: Sequence[Statement], names: Iterator[str]) -> tuple[Statement, ...]:
    """Copy straight-line code, with fresh registers."""
    registers: dict[str, Register] = {}
    places: dict[Symbol, Dim] = {}  # of positions, which index expressions name

    def define(register: Register) -> Register:
        registers[register.name] = Register(next(names), register.dtype)
        return registers[register.name]

    def use(operand: Operand) -> Operand:
        return registers.get(operand.name, operand) if isinstance(operand, Register) else operand

    rewrite = Rewrite(defines=define, uses=use, dims=lambda value: substitute(value, places) if places else value)
    made: list[Statement] = []
    for statement in statements:
        made.append(rewrite(statement))
        if positions(statement):
            places[statement.symbol] = made[-1].symbol.expr()  # type: ignore[attr-defined]
    return tuple(made)


def change_loops(kernel: Kernel, change: Callable[[Loop], Loop]) -> Kernel:
    """Replace each loop of a kernel by `change(loop)`, inner loops first; loops inside of vector loops stay."""

    def body(statements: Sequence[Statement]) -> list[Statement]:
        return [loop(item) if isinstance(item, Loop) else inside(item) for item in statements]

    inside = Rewrite(body=body)

    def loop(found: Loop) -> Loop:
        return change(found if found.kind == "vector" else with_body(found, body(found.body)))

    return replace(kernel, body=tuple(body(kernel.body)))


def change_bodies(kernel: Kernel, change: Callable[[Loop], Sequence[Statement]]) -> Kernel:
    """Replace each loop body of a kernel by `change(loop)`, inner loops first. Vector loops stay."""
    return change_loops(
        kernel, lambda found: found if found.kind == "vector" else with_body(found, list(change(found)))
    )
