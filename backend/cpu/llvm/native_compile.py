"""How a thread compiles, as native code: it needs the GIL only before the first part and after the last one.

A thread that releases the GIL waits some milliseconds until it has it again, while another runs Python code. So one
call goes through a list of jobs, which may get longer meanwhile: it takes those that nobody has taken yet.
"""

from __future__ import annotations

from ctypes import Structure
from typing import Any

from ..abi import I32, I64, NULL, PTR, to
from .writer import Function, Unit

WAITS, TAKEN, DONE = range(3)  # states of a job


class Job(Structure):
    """The text of a part, and what became of it."""


Job._fields_ = [
    ("state", I64),
    ("following", to(Job)),
    ("text", PTR),
    ("plain", I64),  # whether it is to be compiled quickly
    ("parsed", I64),
    ("buffer", PTR),  # LLVM's, with the object code
    ("error", PTR),  # a text
]


class Tools(Structure):
    """LLVM's functions, which llvmlite has, and the objects that a thread compiles with."""

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
        ("busy", I64),  # 1 while the thread needs no GIL
    ]


unit = Unit()


@unit.function(None, public=True, last=to(Job), job=to(Job))
def append(f: Function, last: Any, job: Any) -> None:
    """Add a job to a list: the threads that find it see all that is in it."""
    last.atomic("following").store(job, "release")


@unit.function(I64, public=True, first=to(Job), most=I64, tools=to(Tools))
def compile_jobs(f: Function, first: Any, most: Any, tools: Any) -> None:
    """Take some of the jobs from the first one on, as many as told or all; how many less than told."""
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
