"""Native code that makes the memory of a call, its result arrays and its output. A part of native_entry.py."""

from __future__ import annotations

from typing import Any

from ..abi import I1, I32, I64, NULL, PTR, Context, to
from ..llvm.writer import Function, Routine, Unit, extern
from .records import (
    ALLOCATOR,
    NEW,
    NEW_FROM_DESCRIPTOR,
    OWNING,
    PUT_DICT,
    PUT_LIST,
    PUT_RESULT,
    PUT_TUPLE,
    ArrayObject,
    Guard,
    Object,
    Plan,
    Result,
)

PLAN, CONTEXT, OBJECT, GUARD = to(Plan), to(Context), to(Object), to(Guard)

unit = Unit()
take_reference = extern("Py_IncRef", None, PTR)
drop_reference = extern("Py_DecRef", None, PTR)
PyErr_NoMemory = extern("PyErr_NoMemory", PTR)
PyTuple_New = extern("PyTuple_New", PTR, I64)
PyTuple_SetItem = extern("PyTuple_SetItem", I32, PTR, I64, PTR)
PyList_New = extern("PyList_New", PTR, I64)
PyList_SetItem = extern("PyList_SetItem", I32, PTR, I64, PTR)
PyDict_New = extern("PyDict_New", PTR)
PyDict_SetItem = extern("PyDict_SetItem", I32, PTR, PTR, PTR)


@unit.function(I1, public=True, plan=PLAN, ctx=CONTEXT)
def provide(f: Function, plan: Any, ctx: Any) -> None:
    """Allocate the arena, if it is borrowed for the call, and the result arrays."""
    borrowed = plan.borrowed
    with f.if_(borrowed > 0):
        ctx.arena = memory = borrow(f, plan, borrowed)
        with f.if_(memory == NULL):
            PyErr_NoMemory(f)
            f.return_(False)
        ctx.scratch = memory + plan.arena_bytes
    slots = result_slots(plan, ctx)
    v = f.variables
    v.result = plan.results.as_(to(Result))
    with f.for_(0, plan.result_count) as number:
        sizes, rank = (v.result + 1).as_(to(I64)), v.result.rank
        strides = sizes + rank
        array = make_array(f, plan, rank, sizes, strides, v.result.descriptor, v.result.bytes)
        with f.if_(array == NULL):
            drop(f, slots, number)
            f.return_(False)
        slots[number] = array
        v.result = (strides + rank).as_(to(Result))
    f.return_(True)


def result_slots(plan: Any, ctx: Any) -> Any:
    return ctx.as_(to(PTR)) + plan.first_result


@unit.function(None, public=True, objects=to(PTR), count=I64)
def drop(f: Function, objects: Any, count: Any) -> None:
    """Release the first so many references of a list, the last one first."""
    v = f.variables
    v.left = count
    with f.while_(lambda: v.left > 0):
        v.left = v.left - 1
        drop_reference(f, objects[v.left])


@unit.function(None, public=True, plan=PLAN, thing=PTR)
def hold_object(f: Function, plan: Any, thing: Any) -> None:
    """Hold a reference until the call ends: another thread may change the list or dict that has the object."""
    count = plan.held_count
    plan.held[count] = thing
    plan.held_count = count + 1


@unit.function(None, public=True, plan=PLAN)
def let_go(f: Function, plan: Any) -> None:
    drop(f, plan.held, plan.held_count)
    plan.held_count = 0


@unit.function(PTR, plan=PLAN, size=I64)
def borrow(f: Function, plan: Any, size: Any) -> None:
    f.return_(f.call(plan.allocate, PTR, plan.state, size))


@unit.function(None, public=True, plan=PLAN, ctx=CONTEXT)
def return_memory(f: Function, plan: Any, ctx: Any) -> None:
    """Release the memory borrowed for the call, if the call got as far as borrowing."""
    borrowed = plan.borrowed
    f.return_if(borrowed <= 0)
    memory = ctx.arena
    ctx.arena = NULL
    f.call(plan.release, None, plan.state, memory, borrowed)


@unit.function(PTR, plan=PLAN, rank=I64, sizes=PTR, strides=PTR, descriptor=PTR, size=I64)
def make_array(f: Function, plan: Any, rank: Any, sizes: Any, strides: Any, descriptor: Any, size: Any) -> None:
    """Make a new array. From ALLOCATOR.middle bytes up, it owns memory of smelt's allocator; below, of NumPy's."""

    def new(memory: Any, flags: int) -> Any:
        make, null = plan.numpy[NEW_FROM_DESCRIPTOR], f.constant(NULL)
        shown = (plan.ndarray, descriptor, rank.as_(I32), sizes, strides, memory, f.constant(flags, I32), null)
        return f.call(make, to(ArrayObject), *shown)

    take_reference(f, descriptor)
    with f.if_(size < ALLOCATOR.middle):
        f.return_(new(f.constant(NULL), 0))
    memory = borrow(f, plan, size)
    with f.if_(memory == NULL):
        drop_reference(f, descriptor)
        f.return_(PyErr_NoMemory(f))
    array = new(memory, NEW)
    with f.if_(array == NULL):
        f.call(plan.release, None, plan.state, memory, size)
    with f.else_():
        take_reference(f, plan.handler)
        array.handler = plan.handler
        array.flags = array.flags | OWNING
    f.return_(array)


@unit.function(PTR, public=True, results=to(PTR), cursor=to(GUARD))
def build(f: Function, results: Any, cursor: Any) -> None:
    """Build the output from the results, nested as the function's; the cursor moves past the records read."""
    record = cursor[0]
    word = record.word
    cursor[0] = record + 1
    with f.switch(record.kind) as case:
        with case(PUT_RESULT):
            f.return_(results[word])
        with case(PUT_TUPLE):
            f.return_(build_items(f, results, cursor, word, PyTuple_New(f, word), PyTuple_SetItem))
        with case(PUT_LIST):
            f.return_(build_items(f, results, cursor, word, PyList_New(f, word), PyList_SetItem))
        with case(PUT_DICT):
            f.return_(build_dict(f, results, cursor, word))
    take_reference(f, word.as_(PTR))
    f.return_(word.as_(PTR))


# Parts of `build`, inlined where they are used.


def build_items(f: Function, results: Any, cursor: Any, count: Any, made: Any, set_item: Routine) -> Any:
    f.return_if(made == NULL, NULL)
    with f.for_(0, count) as number:
        item = build(f, results, cursor)
        with f.if_(item == NULL):
            drop_reference(f, made)
            f.return_(NULL)
        set_item(f, made, number, item)
    return made


def build_dict(f: Function, results: Any, cursor: Any, count: Any) -> Any:
    made = PyDict_New(f)
    f.return_if(made == NULL, NULL)
    with f.for_(0, count):
        key_at = cursor[0].as_(to(PTR))
        key = key_at[0]
        cursor[0] = (key_at + 1).as_(GUARD)
        value = build(f, results, cursor)
        v = f.variables
        v.fails = value == NULL
        with f.if_(~v.fails):
            v.fails = PyDict_SetItem(f, made, key, value) != 0
            drop_reference(f, value)
        with f.if_(v.fails):
            drop_reference(f, made)
            f.return_(NULL)
    return made
