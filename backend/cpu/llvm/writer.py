"""Write functions as LLVM text: instructions and structured control flow.

    unit = Unit()

    @unit.function(None, pool=to(PoolBlock))
    def leave(f, pool):
        with f.if_(pool.atomic("active").add(-1) == 1):
            wake(f, pool, 1)

Loops and branches may assign variables (`v = f.variables`, `v.best = -1`): at joins, phis are written for those that
differ. All else is a Python name for an SSA value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import Array
from typing import Any

from ..abi import I1, I64, PTR, to
from .values import Type, Value, in_memory, is_pointer, is_unsigned, spelled

Parameters = Sequence[tuple[str, str]]  # type and name
Typed = tuple[str, str]  # type and value
Body = Callable[..., None]
Ways = Iterator[None]  # of a context manager

_PHI = re.compile(r"%loop\d+\.\w+")  # at the head of a loop


class Routine:
    """A function that native code can call: of a unit, or external."""

    def __init__(self, name: str, returns: Type, parameters: Sequence[Type], variadic: bool = False):
        self.name, self.returns, self.parameters, self.variadic = name, returns, parameters, variadic

    @property
    def declaration(self) -> str:
        given = [spelled(kind) for kind in self.parameters] + ["..."] * self.variadic
        return f"declare {spelled(self.returns)} @{self.name}({', '.join(given)})"

    def __call__(self, f: Function, *arguments: Any) -> Any:
        f.called[self.name] = self
        kinds = [*self.parameters, *(item._kind for item in arguments[len(self.parameters) :])]
        typed = zip(arguments, kinds, strict=True)
        given = ", ".join(f"{spelled(kind)} {f.operand(item, kind)}" for item, kind in typed)
        listed = f" ({', '.join(map(spelled, self.parameters))}, ...)" if self.variadic else ""
        return f.result(self.returns, f"call {spelled(self.returns)}{listed} @{self.name}({given})")


class Own(Routine):
    """A routine whose body is in the unit."""

    def __init__(self, body: Body, returns: Type, parameters: dict[str, Type], public: bool):
        super().__init__(body.__name__, returns, list(parameters.values()))
        self.body, self.names, self.public = body, list(parameters), public

    def write(self, facts: Any) -> Function:
        given = [(spelled(kind), name) for name, kind in zip(self.names, self.parameters, strict=True)]
        f = Function(self.name, given, "nounwind", self.returns, "" if self.public else "internal ", facts)
        self.body(f, *(Value(f, kind, f"%{name}") for name, kind in zip(self.names, self.parameters, strict=True)))
        return f


def extern(name: str, returns: Type, *parameters: Type, variadic: bool = False) -> Routine:
    """Declare an external function of the process, or an intrinsic of LLVM."""
    return Routine(name, returns, parameters, variadic)


class Unit:
    """Functions that are written into one LLVM text."""

    def __init__(self) -> None:
        self.routines: list[Own] = []

    def function(self, returns: Type, /, public: bool = False, **parameters: Type) -> Callable[[Body], Own]:
        """Define a function of these parameters; only a public one can be called from other units and from Python."""

        def declared(body: Body) -> Own:
            self.routines.append(Own(body, returns, parameters, public))
            return self.routines[-1]

        return declared

    def text(self, facts: Any = None) -> str:
        """Write the unit as LLVM text. facts: available to the bodies as f.facts."""
        functions = [routine.write(facts) for routine in self.routines]
        called = {name: routine for f in functions for name, routine in f.called.items()}
        own = {routine.name for routine in self.routines}
        outside = [routine.declaration for name, routine in called.items() if name not in own]
        return "\n\n".join([*(f.finish() for f in functions), "\n".join(outside)]) + "\n"


class Join:
    """A label with several predecessors, and the values of variables at the end of each."""

    def __init__(self, f: Function, name: str):
        self.f, self.label = f, f.label(name)
        self.ways: list[tuple[str, dict[str, Value]]] = []

    def note(self) -> str:
        """Note the current block as a predecessor; the branch is written next."""
        self.ways.append((self.f.block, dict(self.f.values)))
        return f"label %{self.label}"

    def reach(self) -> None:
        """Begin the block of this label, with a branch from the current one if that is open."""
        if self.f.block:
            self.f.write(f"br {self.note()}")
            self.f.block = ""

    def start(self) -> None:
        f = self.f
        f.block = ""
        if not self.ways:
            return
        if len(self.ways) == 1 and f.lines[-1] == f"  br label %{self.label}":
            f.lines.pop()  # the only predecessor falls through
            f.block, f.values = self.ways[0]
            return
        f.start(self.label)
        f.values = {}
        for name in self.ways[0][1]:
            if all(name in values for _, values in self.ways):
                ways = [(values[name], block) for block, values in self.ways]
                same = len({f.settled(value) for value, _ in ways}) == 1
                f.values[name] = ways[0][0] if same else f.value(ways[0][0]._kind, _phi(ways))


def _phi(ways: Sequence[tuple[Value, str]]) -> str:
    return f"phi {spelled(ways[0][0]._kind)} {', '.join(f'[ {value}, %{block} ]' for value, block in ways)}"


class Variables:
    """f.variables: mutable names of SSA values."""

    def __init__(self, f: Function):
        object.__setattr__(self, "_f", f)

    def __getattr__(self, name: str) -> Value:
        try:
            return self._f.values[name]
        except KeyError:
            raise AttributeError(f"variable {name} is not assigned on every path to here") from None

    def __setattr__(self, name: str, value: Any) -> None:
        before = self._f.values.get(name)
        self._f.values[name] = self._f.constant(value, before._kind if before is not None else None)


class Function:
    """The text of a function under construction. Integers are i64 unless an instruction says otherwise."""

    def __init__(
        self,
        name: str,
        parameters: Parameters,
        attributes: str,
        returns: Type = None,
        linkage: str = "",
        facts: Any = 0,
    ):
        given = ", ".join(f"{kind} %{item}" for kind, item in parameters)
        self.head = f"define {linkage}{spelled(returns)} @{name}({given}) {attributes} {{"
        self.name, self.returns, self.facts = name, returns, facts
        self.locals: list[str] = []  # instructions of the entry block (allocas)
        self.lines: list[str] = []
        self.block = "entry"  # current one; empty after a return or a branch
        self.count = 0
        self.called: dict[str, Routine] = {}
        self.values: dict[str, Value] = {}  # of the variables
        self.variables = Variables(self)
        self.equal: dict[str, str] = {}  # trivial phis, and the value that each is equal to
        self.loops: list[tuple[Join, Join]] = []  # enclosing ones: labels of the next iteration and of the end
        self.refusals: dict[str, Join] = {}  # blocks that return a constant
        self.last_if: tuple[int, int, str, Join] | None = None

    def finish(self) -> str:
        if self.block:
            if self.returns is not None:
                raise TypeError(f"{self.name} may end without returning a value")
            self.write("ret void")
        for operand, join in self.refusals.items():
            join.start()
            self.write(f"ret {operand}")
        text = "\n".join([self.head, "entry:", *self.locals, *self.lines, "}"])
        if not self.equal:
            return text
        return _PHI.sub(lambda name: self.equal_to(name[0]), text)

    def write(self, text: str) -> None:
        if not self.block:
            raise TypeError(f"{self.name}: this instruction is unreachable: {text}")
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        """Write an instruction with a result; return its name."""
        self.count += 1
        name = f"%v{self.count}"
        self.write(f"{name} = {text}")
        return name

    # Integers and addresses.

    def add(self, left: str, right: str | int) -> str:
        return self.op(f"add nsw i64 {left}, {right}")

    def subtract(self, left: str | int, right: str) -> str:
        return self.op(f"sub nsw i64 {left}, {right}")

    def multiply(self, left: str, right: str | int) -> str:
        return self.op(f"mul nsw i64 {left}, {right}")

    def minimum(self, left: str, right: str | int) -> str:
        return self.op(f"call i64 @llvm.smin.i64(i64 {left}, i64 {right})")

    def even(self, size: str, most: str | int, unit: int = 1) -> str:
        """Compute the length of equal parts of at most `most`; a multiple of `unit`, a power of two, if `most` is."""
        pieces = self.op(f"udiv i64 {self.add(self.add(size, most), -1)}, {most}")
        pieces = self.op(f"call i64 @llvm.smax.i64(i64 {pieces}, i64 1)")
        each = self.op(f"udiv i64 {self.add(self.add(size, pieces), -1)}, {pieces}")
        each = self.op(f"call i64 @llvm.smax.i64(i64 {each}, i64 1)")
        return each if unit == 1 else self.op(f"and i64 {self.add(each, unit - 1)}, {-unit}")

    def first_lanes(self, count: str, lanes: int) -> str:
        """Make a mask of so many lanes with the first `count` set."""
        kind = f"<{lanes} x i64>"
        one = self.op(f"insertelement {kind} poison, i64 {count}, i64 0")
        spread = self.op(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        return self.op(f"icmp slt {kind} <{numbers}>, {spread}")

    def compare(self, how: str, left: str, right: str | int) -> str:
        return self.op(f"icmp {how} i64 {left}, {right}")

    def at(self, pointer: str, place: str | int, element: str = "i8") -> str:
        return self.op(f"getelementptr {element}, ptr {pointer}, i64 {place}")

    # Control.

    def label(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    # Loops and branches around functions of names.

    def loop(
        self,
        start: str | int,
        stop: str | int,
        step: str | int,
        body: Callable[[str, list[str]], Sequence[str]],
        carried: Sequence[Typed] = (),
    ) -> list[str]:
        """Write `for i in start..stop by step: carried = body(i, carried)`; return the last carried values."""
        names = [self.label("carried") for _ in carried]
        self.values |= {name: Value(self, kind, first) for name, (kind, first) in zip(names, carried, strict=True)}
        with self.for_(*(Value(self, I64, str(item)) for item in (start, stop, step))) as number:
            after = body(str(number), [str(self.values[name]) for name in names])
            for name, (kind, _), last in zip(names, carried, after, strict=True):
                self.values[name] = Value(self, kind, last)
        return [str(self.values.pop(name)) for name in names]

    def choose(
        self,
        condition: str,
        yes: Callable[[], Sequence[Typed] | None],
        no: Callable[[], Sequence[Typed] | None] | None = None,
    ) -> list[str]:
        """Write `if condition: yes() else: no()`; return phis of the branches' results."""
        names: list[str] = []

        def give(branch: Callable[[], Sequence[Typed] | None]) -> None:
            given = branch() or ()
            names.extend(self.label("given") for _ in given[len(names) :])
            self.values |= {name: Value(self, kind, item) for name, (kind, item) in zip(names, given, strict=True)}

        with self.if_(Value(self, I1, condition)):
            give(yes)
        if no is not None:
            with self.else_():
                give(no)
        return [str(self.values.pop(name)) for name in names]

    # Typed values.

    def value(self, kind: Type, text: str) -> Value:
        """Write an instruction; return its result as a typed value."""
        return Value(self, kind, self.op(text))

    def result(self, kind: Type, text: str) -> Value | None:
        """Write a call; return its result as a typed value, None of a void function."""
        if kind is not None:
            return self.value(kind, text)
        self.write(text)
        return None

    def operand(self, item: Any, kind: Type) -> str:
        """Spell a value, or a Python number, as an operand of the expected type."""
        if isinstance(item, Value):
            if spelled(item._kind) != spelled(kind):
                raise TypeError(f"{spelled(item._kind)} {item} where {spelled(kind)} is expected")
            return str(item)
        if item is None and is_pointer(kind):
            return "null"
        if isinstance(item, bool) and kind is I1:
            return str(item).lower()
        if isinstance(item, int) and not isinstance(item, bool) and not is_pointer(kind):
            return str(item)
        raise TypeError(f"{item!r} is not of type {spelled(kind)}")

    def constant(self, item: Any, kind: Type = None) -> Value:
        """Make a typed value of a Python number, i64 by default, or a pointer of None; return values as they are."""
        if isinstance(item, Value):
            return item
        default = PTR if item is None else I1 if isinstance(item, bool) else I64
        return Value(self, kind or default, self.operand(item, kind or default))

    def select(self, condition: Value, yes: Any, no: Any) -> Value:
        left = self.constant(yes, no._kind if isinstance(no, Value) else None)
        kind = spelled(left._kind)
        return self.value(left._kind, f"select i1 {condition}, {kind} {left}, {kind} {self.operand(no, left._kind)}")

    def min(self, left: Value, right: Any) -> Value:
        return self._extreme("min", left, right)

    def max(self, left: Value, right: Any) -> Value:
        return self._extreme("max", left, right)

    def _extreme(self, which: str, left: Value, right: Any) -> Value:
        name = f"llvm.{'u' if is_unsigned(left._kind) else 's'}{which}.{spelled(left._kind)}"
        found: Value = Routine(name, left._kind, [left._kind] * 2)(self, left, right)
        return found

    def local(self, kind: Type) -> Value:
        """Allocate a local on the stack; return a pointer to it."""
        self.count += 1
        self.locals.append(f"  %v{self.count} = alloca {in_memory(kind)}, align 8")
        return Value(self, to(kind._type_ if issubclass(kind, Array) else kind), f"%v{self.count}")

    def call(self, function: Value, returns: Type, *arguments: Value) -> Any:
        """Call a function by its pointer."""
        given = ", ".join(f"{spelled(item._kind)} {item}" for item in arguments)
        return self.result(returns, f"call {spelled(returns)} {function}({given})")

    # Structured control flow.

    def settled(self, value: Value) -> str:
        return self.equal_to(str(value))

    def equal_to(self, name: str) -> str:
        while name in self.equal:
            name = self.equal[name]
        return name

    def return_(self, value: Any = None) -> None:
        kind = spelled(self.returns)
        self.write("ret void" if self.returns is None else f"ret {kind} {self.operand(value, self.returns)}")
        self.block = ""

    def return_if(self, condition: Value, value: Any = None) -> None:
        """Return a constant if a condition holds, by a branch to one block per constant, behind the hot path."""
        kind = spelled(self.returns)
        operand = kind if self.returns is None else f"{kind} {self.operand(value, self.returns)}"
        if isinstance(value, Value):
            raise TypeError(f"{value} is not a constant")
        if operand not in self.refusals:
            self.refusals[operand] = Join(self, "return")
        self._leave_if(condition, self.refusals[operand])

    def _leave_if(self, condition: Value, join: Join) -> None:
        on = self.label("on")
        self.write(f"br i1 {condition}, {join.note()}, label %{on}")
        self.start(on)

    @contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        body, done = self.label("then"), Join(self, "done")
        branch = len(self.lines)
        self.write(f"br i1 {condition}, label %{body}, {done.note()}")
        self.start(body)
        yield
        done.reach()
        mark = len(self.lines)
        done.start()
        self.last_if = branch, mark, f"br i1 {condition}, label %{body}, label %", done

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Begin the else branch, right after an if_."""
        assert self.last_if is not None
        branch, mark, text, done = self.last_if
        label = self.label("else")
        del self.lines[mark:]
        self.lines[branch] = f"  {text}{label}"
        self.start(label)
        self.values = done.ways.pop(0)[1]
        yield
        done.reach()
        done.start()

    @contextmanager
    def switch(self, value: Value) -> Iterator[Callable[..., Any]]:
        """with f.switch(x) as case: with case(1): ..., with case(2, 3): ..., with case(): for all others."""
        place, block, before, done = len(self.lines), self.block, dict(self.values), Join(self, "done")
        self.write("")
        cases: list[str] = []
        others: list[str] = []

        @contextmanager
        def case(*numbers: int) -> Iterator[None]:
            label = self.label("case")
            cases.extend(f"{spelled(value._kind)} {number}, label %{label}" for number in numbers)
            others.extend([f"label %{label}"] * (not numbers))
            self.start(label)
            self.values = dict(before)
            yield
            done.reach()

        yield case
        self.block, self.values = block, before
        default = others[0] if others else done.note()
        self.lines[place] = f"  switch {spelled(value._kind)} {value}, {default} [ {' '.join(cases)} ]"
        done.start()

    @contextmanager
    def while_(self, condition: Callable[[], Value] | None = None) -> Ways:
        """Loop while a condition holds, or without end."""
        header, done = Join(self, "loop"), Join(self, "done")
        header.reach()
        with self._rounds(header, header, done):
            if condition is not None:
                body = self.label("body")
                self.write(f"br i1 {condition()}, label %{body}, {done.note()}")
                self.start(body)
            yield
            header.reach()
        done.start()

    @contextmanager
    def for_(self, start: Any, stop: Any, step: Any = 1) -> Iterator[Value]:
        """Write a counted loop with the test at the end of each iteration, and once before the first."""
        header, further, done = Join(self, "loop"), Join(self, "next"), Join(self, "done")
        name, first = self.label("i"), self.constant(start)
        self.values[name] = first
        more = self.value(I1, f"icmp slt {spelled(first._kind)} {first}, {self.operand(stop, first._kind)}")
        self.write(f"br i1 {more}, {header.note()}, {done.note()}")
        with self._rounds(header, further, done):
            yield self.values[name]
            further.reach()
            further.start()
            if self.block:
                self.values[name] = self.values[name] + step
                self.write(f"br i1 {self.values[name] < stop}, {header.note()}, {done.note()}")
                self.block = ""
        done.start()
        self.values.pop(name, None)

    @contextmanager
    def _rounds(self, header: Join, again: Join, done: Join) -> Ways:
        """Write a loop's body. Its header has phis of the variables, but for those that the loop does not change."""
        before = self.values
        self.start(header.label)
        mark = len(self.lines)
        phis = {name: Value(self, value._kind, f"%{header.label}.{name}") for name, value in before.items()}
        self.values = dict(phis)
        self.loops.append((again, done))
        yield
        self.loops.pop()
        lines: list[str] = []
        for name, phi in phis.items():
            ways = [(values[name], block) for block, values in header.ways]
            others = {self.settled(value) for value, _ in ways} - {str(phi)}
            if len(others) == 1:
                self.equal[str(phi)] = others.pop()
            else:
                lines.append(f"  {phi} = {_phi(ways)}")
        self.lines[mark:mark] = lines

    @contextmanager
    def scope(self) -> Ways:
        """Write statements that break_ can leave, done once."""
        done = Join(self, "done")
        self.loops.append((done, done))
        yield
        self.loops.pop()
        done.reach()
        done.start()

    def break_(self) -> None:
        """Leave the innermost loop or scope."""
        self.loops[-1][1].reach()

    def break_if(self, condition: Value) -> None:
        self._leave_if(condition, self.loops[-1][1])

    def continue_if(self, condition: Value) -> None:
        self._leave_if(condition, self.loops[-1][0])
