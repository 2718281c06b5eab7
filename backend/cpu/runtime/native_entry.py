"""Native code of backend/cpu/call/entry.py: from a call's arguments to its results.

A plan (records.py) has the guards of a call, the places of its parts and its output. This module has the order of a
call; native_guards.py compares arguments, native_results.py makes arrays and builds the output.
"""

from __future__ import annotations

from typing import Any

from ..abi import I64, NULL, PTR, to
from ..llvm.writer import Function, Unit, extern
from .native_guards import matches
from .native_results import (
    GUARD,
    OBJECT,
    PLAN,
    build,
    drop,
    hold_object,
    let_go,
    provide,
    result_slots,
    return_memory,
    take_reference,
)
from .records import ArrayObject

unit = Unit()
PyEval_SaveThread = extern("PyEval_SaveThread", PTR)
PyEval_RestoreThread = extern("PyEval_RestoreThread", None, PTR)
PyObject_CallNoArgs = extern("PyObject_CallNoArgs", PTR, PTR)


@unit.function(PTR, public=True, self=to(ArrayObject), arguments=to(OBJECT), count=I64)
def enter(f: Function, self: Any, arguments: Any, count: Any) -> None:
    """Serve a call: a built-in function of two arguments, the tuple and the dict of the call's arguments."""
    plan = self.data.as_(PLAN)
    busy = plan.atomic("busy")
    with f.if_(count != 2):
        refuse(f, plan)
    with f.if_(~busy.replace(0, 1)):
        refuse(f, plan)
    plan.held_count = 0
    ctx = plan.context
    with f.scope():
        leave_unless_it_fits(f, plan, ctx, arguments)
        v = f.variables
        v.answer = NULL
        with f.scope():
            v.answer = answer_or_leave(f, plan, ctx)
        return_memory(f, plan, ctx)
        let_go(f, plan)
        busy.store(0)
        f.return_(v.answer)
    let_go(f, plan)
    busy.store(0)
    refuse(f, plan)


# Parts of `enter`, inlined where they are used.


def refuse(f: Function, plan: Any) -> None:
    take_reference(f, plan.otherwise)
    f.return_(plan.otherwise)


def leave_unless_it_fits(f: Function, plan: Any, ctx: Any, arguments: Any) -> None:
    """Leave the scope unless the pool is the frame's own, all its workers have started and have scratch memory, and the
    arguments pass the guards."""
    pool = plan.pool_at[0]
    f.break_if(pool != ctx.pool)
    f.break_if(pool.limit > pool.started)
    f.break_if(pool.limit > ctx.workers)
    named = matches(f, plan, ctx, plan.guards, arguments[0])
    f.break_if(named == NULL)
    f.break_if(matches(f, plan, ctx, named, arguments[1]) == NULL)


def answer_or_leave(f: Function, plan: Any, ctx: Any) -> Any:
    """Run the kernels without the GIL and return the output; leave the scope if that fails."""
    with f.if_(plan.seed != NULL):
        state = PyObject_CallNoArgs(f, plan.seed)
        f.break_if(state == NULL)
        ctx.as_(to(PTR))[plan.seed_slot] = state
        hold_object(f, plan, state)
    f.break_if(~provide(f, plan, ctx))
    thread = PyEval_SaveThread(f)
    f.call(plan.run, None, ctx)
    PyEval_RestoreThread(f, thread)
    with f.if_(plan.problem.found != 0):
        PyObject_CallNoArgs(f, plan.on_error)
        drop(f, result_slots(plan, ctx), plan.result_count)
        f.break_()
    cursor = f.local(GUARD)
    cursor[0] = plan.output
    return build(f, result_slots(plan, ctx), cursor)
