"""The notation of the native run time: functions that it writes compute what they say."""

from __future__ import annotations

import ctypes
from ctypes import Structure
from typing import Any

import pytest
from smelt.backend.cpu.abi import F64, I1, I8, I32, I64, NULL, PTR, U64, aligned, line, slots, to
from smelt.backend.cpu.image.image import Image
from smelt.backend.cpu.llvm.engine import engine
from smelt.backend.cpu.llvm.parts import Part
from smelt.backend.cpu.llvm.writer import Function, Own, Unit, extern


class Node(Structure):
    _fields_ = [("value", I32), ("next", PTR), ("small", I8), ("rows", I64 * 4), ("inner", I64)]


class Pair(Structure):
    _fields_ = [("first", I64), ("second", I64)]


class Table(Structure):
    _fields_ = [*line(("count", I64)), ("pairs", Pair * 3)]


unit = Unit()


def native(routine: Own) -> Any:
    """The function, of code that was compiled as the run time is and as kernels are."""
    kinds = [PTR if issubclass(kind, PTR) else kind for kind in routine.parameters]
    found = []
    for plain in (True, False):
        image = Image(engine().object_code([Part(unit.text(), plain)]))
        function = ctypes.CFUNCTYPE(routine.returns, *kinds)(image[routine.name])
        found.append((function, image))

    def both(*arguments: Any) -> Any:
        first, second = (function(*arguments) for function, _ in found)
        assert first == second
        return first

    return both


@unit.function(I64, public=True, left=I64, right=I64)
def greatest_divisor(f: Function, left: Any, right: Any) -> None:
    v = f.variables
    v.left, v.right, v.untouched = left, right, 7
    with f.while_(lambda: v.right != 0):
        v.left, v.right = v.right, v.left % v.right
    f.return_(v.left + v.untouched - 7)


@unit.function(I64, public=True, count=I64)
def odd_products(f: Function, count: Any) -> None:
    """The sum of i * j for odd j < i < count, but no i from 10 on and no multiples of 3."""
    v = f.variables
    v.total = 0
    with f.for_(0, count) as i:
        f.break_if(i >= 10)
        f.continue_if(i % 3 == 0)
        with f.for_(1, i, 2) as j:
            v.total = v.total + i * j
    f.return_(v.total)


@unit.function(I64, public=True, number=I64)
def steps_to_one(f: Function, number: Any) -> None:
    v = f.variables
    v.number, v.steps = number, 0
    with f.while_():
        f.break_if(v.number == 1)
        with f.if_(v.number % 2 == 0):
            v.number = v.number // 2
        with f.else_():
            v.number = v.number * 3 + 1
        v.steps = v.steps + 1
    f.return_(v.steps)


@unit.function(I64, public=True, kind=I64)
def named(f: Function, kind: Any) -> None:
    v = f.variables
    v.answer = 1
    with f.switch(kind) as case:
        with case(1):
            v.answer = 10
        with case(2, 3):
            with f.if_(kind == 3):
                f.return_(33)
            v.answer = 20
        with case():
            v.answer = -1
        with case(4):
            pass
    f.return_(v.answer)


@unit.function(I64, public=True, first=I64, second=I64)
def left_scope(f: Function, first: Any, second: Any) -> None:
    v = f.variables
    v.reached = 0
    with f.scope():
        f.break_if(first == 0)
        v.reached = 1
        with f.if_(second == 0):
            f.break_()
        v.reached = 2
    f.return_(v.reached)


@unit.function(I64, public=True, node=to(Node))
def fields(f: Function, node: Any) -> None:
    node.value = node.value + 1
    node.small = (node.rows[1] & 0xFF).as_(I8)
    node.rows[3] = node.rows[0] + node.rows[2]
    with f.if_(node.next == NULL):
        node.inner = -5
    with f.else_():
        node.inner = node.next.as_(to(Node)).value.as_(I64)
    f.return_(node.inner)


@unit.function(None, public=True, table=to(Table))
def turn_pairs(f: Function, table: Any) -> None:
    with f.for_(0, table.count) as number:
        pair = table.pairs[number]
        first = pair.first
        pair.first = pair.second
        pair.second = first


@unit.function(I1, public=True, left=I64, right=I64)
def below(f: Function, left: Any, right: Any) -> None:
    """Whether it is less, as signed numbers and not as unsigned ones."""
    f.return_((left < right) & ~(left.as_(U64) < right))


@unit.function(I64, public=True, place=to(I64), expected=I64, value=I64)
def replaced(f: Function, place: Any, expected: Any, value: Any) -> None:
    atom = place.atomic()
    with f.if_(atom.replace(expected, value)):
        f.return_(atom.add(100))
    f.return_(-atom.load("acquire"))


@unit.function(F64, public=True, number=F64)
def self_power(f: Function, number: Any) -> None:
    place = f.local(F64)
    place[0] = number
    f.return_(power(f, place[0], place[0]))


power = extern("pow", F64, F64, F64)


@unit.function(I64, public=True, number=I64)
def factorial(f: Function, number: Any) -> None:
    f.return_if(number <= 1, 1)
    f.return_(number * factorial(f, number - 1))


@unit.function(I64, public=True, number=I64)
def clamped(f: Function, number: Any) -> None:
    f.return_(f.max(f.min(number, 10), -10) + (number > 10).as_(I64) + (1 << (number & 3)))


def test_loops() -> None:
    assert native(greatest_divisor)(84, 36) == 12
    wanted = sum(i * j for i in range(10) if i % 3 for j in range(1, i, 2))
    assert native(odd_products)(100) == wanted and native(odd_products)(0) == 0
    assert native(steps_to_one)(27) == 111


def test_branches() -> None:
    assert [native(named)(kind) for kind in range(6)] == [-1, 10, 20, 33, 1, -1]
    assert [native(left_scope)(*pair) for pair in ((0, 1), (1, 0), (1, 1))] == [0, 1, 2]
    assert native(factorial)(10) == 3628800


def test_fields_are_those_of_ctypes() -> None:
    other = Node(value=40)
    for following, wanted in ((None, -5), (ctypes.addressof(other), 40)):
        node = Node(value=3, next=following, rows=(1, 0x1FF, 5, 0))
        assert native(fields)(ctypes.addressof(node)) == wanted
        assert (node.value, node.small, node.rows[3], node.inner) == (5, 0xFF, 6, wanted)  # it ran twice
    table, _ = aligned(Table)
    assert ctypes.addressof(table) % 64 == 0 and Table.pairs.offset == 64
    table.count = 2
    for number in range(3):
        table.pairs[number] = number, -number
    image = Image(engine().object_code([Part(unit.text(), True)]))
    ctypes.CFUNCTYPE(None, PTR)(image["turn_pairs"])(ctypes.addressof(table))
    assert [(pair.first, pair.second) for pair in table.pairs] == [(0, 0), (-1, 1), (2, -2)]
    assert slots(Pair) == [0, 1]


def test_integers() -> None:
    assert native(below)(-1, 1) and not native(below)(1, 2) and not native(below)(2, 1)
    assert [native(clamped)(number) for number in (-50, 3, 50)] == [-10 + 4, 3 + 8, 11 + 4]


def test_functions_of_the_process() -> None:
    assert native(self_power)(3.0) == 27.0


def test_atomics() -> None:
    place = ctypes.c_int64(5)
    image = Image(engine().object_code([Part(unit.text(), True)]))
    function = ctypes.CFUNCTYPE(I64, PTR, I64, I64)(image["replaced"])
    assert function(ctypes.addressof(place), 5, 7) == 7 and place.value == 107
    assert function(ctypes.addressof(place), 5, 7) == -107 and place.value == 107


def refused(body: Any, returns: Any = None, **parameters: Any) -> str:
    wrong = Unit()
    wrong.function(returns, **parameters)(body)
    with pytest.raises((TypeError, AttributeError)) as error:
        wrong.text()
    return str(error.value)


def test_what_is_refused() -> None:
    """Mistakes show while the text is written."""
    number: dict[str, Any] = {"number": I64}
    assert "i32 %v1 where i64" in refused(lambda f, number: f.return_(number.as_(I32)), I64, **number)
    assert "may end without returning" in refused(lambda f, number: None, I64, **number)
    assert "use if_, select" in refused(lambda f, number: 1 if number else 0, **number)
    assert "has no field colour" in refused(lambda f, pair: pair.colour, pair=to(Pair))
    assert "1.5 is not of type i64" in refused(lambda f, number: number + 1.5, **number)

    def after_return(f: Function, number: Any) -> None:
        f.return_()
        number + 1

    def on_one_way(f: Function, number: Any) -> None:
        with f.if_(number == 0):
            f.variables.found = 1
        f.return_(f.variables.found)

    assert "is unreachable" in refused(after_return, **number)
    assert "variable found is not assigned on every path" in refused(on_one_way, I64, **number)
