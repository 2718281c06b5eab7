"""Native code that checks the arguments of a call against their guards. A part of native_entry.py."""

from __future__ import annotations

from typing import Any

from ..abi import F64, I8, I32, I64, NULL, PTR, Context, to
from ..llvm.writer import Function, Routine, Unit, extern
from .native_results import GUARD, OBJECT, PLAN, hold_object, take_reference
from .records import (
    BOOL_NUMBER,
    FACTS,
    FLOAT_NUMBER,
    INT_NUMBER,
    IS_ANYTHING,
    IS_ARRAY,
    IS_DICT,
    IS_EQUAL,
    IS_LIST,
    IS_SAME,
    IS_TUPLE,
    PLAIN,
    ArrayGuard,
    ArrayObject,
)

EQ = 2  # CPython's Py_EQ

unit = Unit()
PyFloat_AsDouble = extern("PyFloat_AsDouble", F64, PTR)
PyLong_AsLongLongAndOverflow = extern("PyLong_AsLongLongAndOverflow", I64, PTR, PTR)
PyTuple_Size = extern("PyTuple_Size", I64, PTR)
PyTuple_GetItem = extern("PyTuple_GetItem", OBJECT, PTR, I64)
PyList_Size = extern("PyList_Size", I64, PTR)
PyList_GetItem = extern("PyList_GetItem", OBJECT, PTR, I64)
PyDict_Size = extern("PyDict_Size", I64, PTR)
PyDict_Next = extern("PyDict_Next", I32, PTR, PTR, PTR, PTR)
PyUnicode_Compare = extern("PyUnicode_Compare", I32, PTR, PTR)
PyObject_RichCompareBool = extern("PyObject_RichCompareBool", I32, PTR, PTR, I32)


@unit.function(GUARD, public=True, plan=PLAN, ctx=to(Context), guard=GUARD, thing=OBJECT)
def matches(f: Function, plan: Any, ctx: Any, guard: Any, thing: Any) -> None:
    """Check an object against its guard; return the next guard, null if it does not match."""
    kind = thing.type
    with f.switch(guard.kind) as case:
        with case(IS_ARRAY):
            match_array(f, plan, ctx, guard.as_(to(ArrayGuard)), thing.as_(to(ArrayObject)))
        with case(IS_TUPLE):
            f.return_if(kind != plan.tuple, NULL)
            match_items(f, plan, ctx, guard, thing, PyTuple_Size, PyTuple_GetItem)
        with case(IS_LIST):
            f.return_if(kind != plan.list, NULL)
            match_items(f, plan, ctx, guard, thing, PyList_Size, PyList_GetItem)
        with case(IS_DICT):
            f.return_if(kind != plan.dict, NULL)
            match_entries(f, plan, ctx, guard, thing)
        with case(IS_ANYTHING):
            f.return_(guard + 1)
        with case(IS_SAME):
            f.return_if(thing.as_(I64) != guard.word, NULL)
            f.return_(guard + 1)
        with case(IS_EQUAL):
            # Only types whose equal values are the same to a program, and whose comparison runs no user code.
            expected = guard.word.as_(OBJECT)
            with f.if_(thing != expected):
                f.return_if(kind != expected.type, NULL)
                f.return_if(PyObject_RichCompareBool(f, thing, expected, EQ) != 1, NULL)
            f.return_(guard + 1)
        with case():
            f.return_(NULL)


# Parts of `matches`, inlined where they are used: they return null from it if an object does not match.


def match_array(f: Function, plan: Any, ctx: Any, guard: Any, array: Any) -> None:
    slot, rank = ctx.as_(to(PTR)) + guard.slot, guard.rank
    sizes = (guard + 1).as_(to(I64))
    behind = (sizes + rank).as_(GUARD)
    with f.if_(array.type != plan.ndarray):
        match_number(f, plan, guard, array)
        slot[0] = guard.stand_in
        f.return_(behind)
    f.return_if(array.descriptor.facts & FACTS != guard.dtype, NULL)
    f.return_if(array.rank.as_(I64) != rank, NULL)
    f.return_if((array.flags & PLAIN) != PLAIN, NULL)
    own_sizes = array.sizes
    with f.for_(0, rank) as axis:
        f.return_if(own_sizes[axis] != sizes[axis], NULL)
    slot[0] = array
    take_reference(f, array)
    hold_object(f, plan, array)
    f.return_(behind)


def match_number(f: Function, plan: Any, guard: Any, thing: Any) -> None:
    """Take a Python number for a 0-dim array: it is stored as the data of a stand-in array."""
    kind, stand_in = thing.type, guard.stand_in
    with f.switch(guard.number) as case:
        with case(FLOAT_NUMBER):
            f.return_if(kind != plan.float, NULL)
            stand_in.data.as_(to(F64))[0] = PyFloat_AsDouble(f, thing)
        with case(INT_NUMBER):
            f.return_if(kind != plan.int, NULL)
            overflow = f.local(I32)
            number = PyLong_AsLongLongAndOverflow(f, thing, overflow)
            f.return_if(overflow[0] != 0, NULL)
            stand_in.data.as_(to(I64))[0] = number
        with case(BOOL_NUMBER):
            f.return_if(kind != plan.true.type, NULL)
            stand_in.data.as_(to(I8))[0] = (thing == plan.true.as_(PTR)).as_(I8)
        with case():
            f.return_(NULL)


def match_items(f: Function, plan: Any, ctx: Any, guard: Any, thing: Any, size: Routine, item: Routine) -> None:
    count = guard.word
    f.return_if(size(f, thing) != count, NULL)
    v = f.variables
    v.behind = guard + 1
    with f.for_(0, count) as number:
        v.behind = matches(f, plan, ctx, v.behind, item(f, thing, number))
        f.return_if(v.behind == NULL, NULL)
    f.return_(v.behind)


def match_entries(f: Function, plan: Any, ctx: Any, guard: Any, thing: Any) -> None:
    """Match a dict's entries in their order, which functions can see. Keys are exactly str, so no user code runs."""
    count = guard.word
    f.return_if(PyDict_Size(f, thing) != count, NULL)
    place, key_at, value_at = f.local(I64), f.local(OBJECT), f.local(OBJECT)
    place[0] = 0
    v = f.variables
    v.behind = guard + 1
    with f.for_(0, count):
        f.return_if(PyDict_Next(f, thing, place, key_at, value_at) == 0, NULL)
        key, expected = key_at[0], v.behind.as_(to(OBJECT))[0]
        with f.if_(key != expected):
            f.return_if(key.type != expected.type, NULL)
            f.return_if(PyUnicode_Compare(f, key, expected) != 0, NULL)
        v.behind = matches(f, plan, ctx, (v.behind.as_(to(OBJECT)) + 1).as_(GUARD), value_at[0])
        f.return_if(v.behind == NULL, NULL)
    f.return_(v.behind)
