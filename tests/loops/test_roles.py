"""A statement that no module knows: what takes it by the roles of its fields, and which modules have to learn of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from smelt.backend.cpu.codegen.emit import ModuleEmitter
from smelt.backend.cuda.codegen.module import emit_module
from smelt.backend.interp.loops import interpret_kernel
from smelt.ir.errors import CompileError, VerifyError
from smelt.ir.graph import Location
from smelt.ir.parser import ParseError
from smelt.ir.symbolic import Dim, Symbol
from smelt.ir.types import f32
from smelt.kernels.loop import roles
from smelt.kernels.loop.analysis import alive, cost, independent
from smelt.kernels.loop.bounds import Bounds
from smelt.kernels.loop.ir import (
    Buffer,
    Concurrent,
    Gemm,
    Kernel,
    Load,
    Loop,
    Matrix,
    Operand,
    Register,
    Statement,
    fresh,
    names,
    own_names,
    used,
    walk,
    with_body,
)
from smelt.kernels.loop.memory import verify_memory, verify_program
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.text import print_kernel, size_symbols
from smelt.kernels.loop.verify import verify_kernel, written
from smelt.kernels.machine import DEFAULT
from smelt.passes.loop.rename import Renaming
from smelt.passes.loop.substitute import change_loops, renamed, substitute_statement
from smelt.passes.manager import PASSES
from smelt.passes.memory.in_place import find_overwrites
from smelt.passes.memory.lifetime import Lifetimes
from smelt.passes.memory.scratch import plan_kernel

ROOT = Path(__file__).resolve().parents[2]
N = Symbol("N", 2, None)
I = Symbol("%i", 0, 63)  # noqa: E741
X, Y, Z = (Buffer(name, f32, (64,), role) for name, role in (("%x", "in"), ("%y", "out"), ("%z", "temp")))
LIMIT = Register("%limit", f32)


@dataclass(frozen=True, slots=True)
class Clip(Statement):
    """target[index] = result = the smaller of source[index] and a limit."""

    result: Register = field(metadata=roles.DEFINES)
    target: Buffer = field(metadata=roles.WRITES)
    source: Buffer = field(metadata=roles.READS)
    index: tuple[Dim, ...] = field(metadata=roles.PLACE)
    limit: Operand = field(metadata=roles.USES)
    guard: Operand | None = field(default=None, metadata=roles.GUARD)
    origin: Location | None = field(default=None, compare=False, metadata=roles.ORIGIN)


@dataclass(frozen=True, slots=True)
class Twice(Statement):
    """Its body, two times."""

    body: tuple[Statement, ...] = field(metadata=roles.BODY)


HERE = I.expr()


def clip(index: Dim = HERE, target: Buffer = Y, source: Buffer = X, **more: Any) -> Clip:
    return Clip(Register("%c", f32), target, source, (index,), LIMIT, **more)


def loop(*body: Statement, kind: str = "serial") -> Loop:
    return Loop(kind, I, 0, 64, body)


def kernel(*body: Statement) -> Kernel:
    first = Load(LIMIT, X, (0,))
    return Kernel("k", (Y, X), (first, *body))


def complaints(found: Kernel, check: Callable[[Kernel, Any], None]) -> list[str]:
    said: list[str] = []

    def note(*error: Any) -> None:
        said.append(error[-1])

    check(found, note)
    return said


def whole(found: Kernel, fail: Any) -> None:
    verify_program([found], ["%x"], ["%y"], fail)


def bounds(found: Kernel, fail: Any) -> None:
    Bounds(found, fail).run()


def test_queries() -> None:
    item = clip(guard=Register("%g", f32))
    assert [register.name for register in roles.defines(item)] == ["%c"] and used(item) == ["%limit", "%g"]
    assert (roles.reads(item), roles.writes(item), roles.buffers(item)) == ((X,), (Y,), (Y, X))
    assert list(roles.expressions(item)) == [64, 64, I.expr()]
    read, write = (next(one for one in roles.elements(item) if one.writes == wrote) for wrote in (False, True))
    assert (read.buffer, read.reads, write.buffer, write.reads, write.guard) == (X, True, Y, False, item.guard)
    assert list(walk([Twice((item,))])) == [Twice((item,)), item] and roles.blocks(item) == ()
    assert own_names(kernel(loop(Twice((item,))))) == {"%limit", "%i", "%c"}
    assert names(kernel(Twice((clip(0),)))) == {"%y", "%x", "%limit", "%c"}
    assert next(fresh(kernel(clip(0, source=X)), "%{}")) == 0
    sized = replace(X, shape=(N.expr(),))
    assert size_symbols(Kernel("k", (sized,), (clip(source=sized),))) == [N]


def test_the_rewrite() -> None:
    moved = substitute_statement(Twice((clip(),)), {I: I.expr() + 1})
    assert moved == Twice((clip(I.expr() + 1),))
    again = renamed(
        (clip(0), replace(clip(1), result=Register("%d", f32), limit=Register("%c", f32))), iter(["%0s", "%1s"])
    )
    assert [(item.result.name, item.limit) for item in again if isinstance(item, Clip)] == [
        ("%0s", LIMIT),
        ("%1s", Register("%0s", f32)),
    ]
    where = Location("model.py", 7)
    other = Renaming({"%x": "%p"}, [], {id(None): where}).kernel(kernel(Twice((clip(0),))), "other")
    inner = next(item for item in walk(other.body) if isinstance(item, Clip))
    assert (inner.source.name, inner.target.name, inner.origin) == ("%p", "%y", where)
    wide = change_loops(kernel(Twice((loop(clip()),))), lambda found: replace(found, kind="parallel"))
    assert wide.body[1] == Twice((loop(clip(), kind="parallel"),))


def test_analysis() -> None:
    assert cost([clip(), Twice((clip(), clip()))]) == 3 and alive([clip()]) == 1
    assert independent(loop(clip())) and not independent(loop(clip(0)))
    assert independent(loop(clip(target=Y, source=Y))) and not independent(loop(clip(target=Y), Load(LIMIT, Y, (0,))))
    assert written(loop(Twice((clip(),)))) == {"%y"}


def test_memory() -> None:
    lives = Lifetimes([clip(0, Z, X), clip(0, Y, Z)])
    assert lives.spans == {"%z": (0, 1), "%x": (0, 0), "%y": (1, 1)}
    by_way_of_z = Kernel("k", (Y, X, Z), (loop(clip(target=Z), clip(source=Z)),))
    assert find_overwrites([by_way_of_z], ["%x"], ["%y"]).same_place == [(0, 0)]
    elsewhere = Kernel("k", (Y, X, Z), (loop(clip(0, target=Z), clip(source=Z)),))
    assert find_overwrites([elsewhere], ["%x"], ["%y"]).same_place == []


def test_proofs() -> None:
    fine = kernel(loop(Twice((clip(),)), kind="parallel"))
    assert complaints(fine, bounds) == [] and complaints(fine, verify_memory) == []
    outside = kernel(loop(clip(I.expr() + 1)))
    assert "dim 0 of %y has size 64, the index goes up to 64" in complaints(outside, bounds)
    assert "not all elements of %y are written" in complaints(kernel(clip(0)), whole)
    assert complaints(fine, whole) == []
    unwritten = Kernel("k", (Y, X, Z), (Load(LIMIT, X, (0,)), loop(clip(source=Z))))
    assert "%z is read, and not all of what is read has been written" in complaints(unwritten, verify_memory)
    race = kernel(loop(clip(), clip(0), kind="parallel"))
    assert any("written by one iteration of parallel %i" in said for said in complaints(race, verify_memory))


@pytest.mark.parametrize("name", [name for name, entry in PASSES.items() if entry.kind == "loop"])
def test_every_loop_pass_takes_it(name: str) -> None:
    """Each keeps all that the statement does: no pass drops, moves or changes what it has no rule for."""
    made = PASSES[name](kernel(loop(clip(origin=Location("model.py", 7)))))
    found = [item for item in walk(made.body) if isinstance(item, Clip)]
    assert len(found) == 1 and (found[0].source.name, found[0].target.name) == ("%x", "%y")


def test_check_bounds_guards_it() -> None:
    made = PASSES["check_bounds"](kernel(loop(clip(I.expr() + 1))))
    (found,) = (item for item in walk(made.body) if isinstance(item, Clip))
    assert isinstance(found.guard, Register) and found.guard.name.startswith("%bound")


def test_modules_that_have_to_learn_of_it_say_so() -> None:
    unknown = kernel(loop(clip()))
    assert "Clip(" in print_kernel(unknown)
    with pytest.raises(ParseError):
        parse_kernel(print_kernel(unknown))
    with pytest.raises(VerifyError, match="a Clip is no statement of the loop IR"):
        verify_kernel(unknown)
    with pytest.raises(CompileError, match="Clip"):
        interpret_kernel(unknown, {name: np.ones(64, np.float32) for name in ("%x", "%y")}, {})
    with pytest.raises(CompileError, match="Clip"):
        ModuleEmitter(DEFAULT, False, None).add(unknown, plan_kernel(unknown, DEFAULT))
    with pytest.raises(CompileError, match="clip"):
        emit_module([PASSES["grid"](unknown)])


KNOWING = {
    "backend/cpu/codegen/region.py",
    "backend/cuda/codegen/emit.py",
    "backend/interp/loops.py",
    "kernels/loop/parser.py",
    "kernels/loop/text.py",
    "kernels/loop/verify.py",
}
MANY = 8  # of the 14 classes


def test_six_modules_tell_statements_apart() -> None:
    """Those that docs/architecture.md names: they have a function with a case for most classes, or make most."""
    classes = {kind.__name__ for kind in Statement.__subclasses__() if kind.__module__.startswith("smelt.")}
    assert len(classes) == 15 and Concurrent.__name__ in classes and Gemm.__name__ in classes
    found = set()
    for path in (path for room in ("kernels", "passes", "backend") for path in sorted((ROOT / room).rglob("*.py"))):
        if path.name not in ("ir.py",) and most_told_apart(path, classes) >= MANY:
            found.add(path.relative_to(ROOT).as_posix())
    assert found == KNOWING


def most_told_apart(path: Path, classes: set[str]) -> int:
    """Count the statement classes in a module's longest chain of isinstance, or those that one of its classes makes."""
    most = 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        calls = [item for item in ast.walk(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)]
        if isinstance(node, ast.FunctionDef):
            tested = [item.args[1] for item in calls if item.func.id == "isinstance"]  # type: ignore[attr-defined]
            named = {name.id for test in tested for name in ast.walk(test) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            named = {item.func.id for item in calls}  # type: ignore[attr-defined]
        else:
            continue
        most = max(most, len(named & classes))
    return most


def test_matrices() -> None:
    """The sizes of a packed left matrix are the other way round."""
    one, other = Matrix(X, 0, 8, 1), Matrix(X, 0, 8, 1, 4)
    plain, packed = (Gemm(Matrix(Y, 0, 8, 1), left, one, 2, 3, 4) for left in (one, other))
    assert [item[1:] for item in roles.blocks(plain)] == [(2, 3, True), (2, 4, False), (4, 3, False)]
    assert [item[1:] for item in roles.blocks(packed)] == [(2, 3, True), (4, 2, False), (4, 3, False)]
    assert roles.dims(plain) == (0, 8, 1, 0, 8, 1, 0, 8, 1, 2, 3, 4)
    assert with_body(loop(), [plain]).body == (plain,)
