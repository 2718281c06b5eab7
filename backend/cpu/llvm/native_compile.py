"""Native code of a compiling thread: it holds the GIL only before its first part and after its last one.

Re-acquiring the GIL takes up to a switch interval (5 ms) while another thread runs Python code. So one call goes
through a list of jobs, which may grow meanwhile, and compiles the untaken ones.
"""

from __future__ import annotations

from ctypes import Structure
from typing import Any

from ..abi import I32, I64, NULL, PTR, to
from .writer import Function, Unit

WAITS, TAKEN, DONE = range(3)  # states of a job


class Job(Structure):
    """The text of a part, and its object code or error."""


Job._fields_ = [
    ("state", I64),
    ("following", to(Job)),
    ("text", PTR),
    ("plain", I64),  # whether to compile without optimization
    ("parsed", I64),
    ("buffer", PTR),  # LLVM's memory buffer with the object code
    ("error", PTR),  # message
]


class Tools(Structure):
    """LLVM's functions, as llvmlite exports them, and the LLVM objects of a compiling thread."""

    _fields_ = [
        ("create", PTR),
        ("parse", PTR),
        ("run", PTR),
        ("emit", PTR),
        ("free", PTR),
        ("close", PTR),
        ("machine", PTR),
        ("plain_machine", PTR),
        ("passes", PTR),
        ("builder", PTR),
        ("busy", I64),  # 1 while the thread works without the GIL
    ]


unit = Unit()


@unit.function(None, public=True, last=to(Job), job=to(Job))
def append(f: Function, last: Any, job: Any) -> None:
    """Append a job to a list; a release store, so that threads that find the job see all its fields."""
    last.atomic("following").store(job, "release")


@unit.function(I64, public=True, first=to(Job), most=I64, tools=to(Tools))
def compile_jobs(f: Function, first: Any, most: Any, tools: Any) -> None:
    """Compile untaken jobs from the first one on, at most so many; return the limit minus their number."""
    v = f.variables
    v.job, v.left = first, most
    tools.atomic("busy").store(1)
    with f.while_(lambda: (v.job != NULL) & (v.left != 0)):
        with f.if_(v.job.atomic("state").replace(WAITS, TAKEN)):
            compile_job(f, v.job, tools)
            v.job.atomic("state").store(DONE)
            v.left = v.left - 1
        v.job = v.job.atomic("following").load("acquire")
    tools.atomic("busy").store(0)
    f.return_(v.left)


@unit.function(None, job=to(Job), tools=to(Tools))
def compile_job(f: Function, job: Any, tools: Any) -> None:
    context = f.call(tools.create, PTR)
    module = f.call(tools.parse, PTR, context, job.text, job.address("error"))
    with f.if_(module != NULL):
        job.parsed = 1
        is_plain = job.plain != 0
        with f.if_(~is_plain):
            f.call(tools.run, None, tools.passes, module, tools.builder)
        machine = f.select(is_plain, tools.plain_machine, tools.machine)
        as_object = f.constant(1, I32)
        job.buffer = f.call(tools.emit, PTR, machine, module, as_object, job.address("error"))
        f.call(tools.free, None, module)
    f.call(tools.close, None, context)
