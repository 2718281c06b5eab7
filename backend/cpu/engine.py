"""LLVM text to machine code."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import llvmlite.binding as llvm

from ...ir.errors import CompileError
from ..forks import no_forks
from .compile_text import BUFFER, COMPILE, DONE, ERROR, FUNCTIONS, PARSED, PLAIN, STATE, TEXT, TOOLS, WAITS, WORDS
from .image import Image
from .link import link
from .once import Once
from .parts import Part
from .target import LEVEL, Target, host

OLDEST = 22  # LLVM whose spelling of intrinsics the emitted text has; pyproject.toml names the llvmlite that brings it
PAUSE = 5e-5  # seconds after which who waits for a part looks again
ALL = 1 << 62  # parts


class Compiler:
    """What one thread compiles with.

    LLVM lets threads compile at the same time that have a context each. llvmlite has one lock for all of LLVM, since
    there is a context that its users share: so compiling calls its functions without the lock.
    """

    def __init__(self, make_machine: Callable[[int], Any]):
        self.make_machine = make_machine
        self.busy = ctypes.c_int64()

    @cached_property
    def machine(self) -> Any:
        return self.make_machine(LEVEL)

    @cached_property
    def plain_machine(self) -> Any:
        return self.make_machine(0)

    @cached_property
    def pipeline(self) -> tuple[Any, Any]:
        """The emitter has already done what other passes would: with them no kernel is faster."""
        builder = llvm.create_pass_builder(self.machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        passes.add_instruction_combine_pass()
        return passes, builder

    @cached_property
    def tools(self) -> ctypes.Array:
        values = [ctypes.cast(_unlocked(name), ctypes.c_void_p).value for name in FUNCTIONS.values()]
        objects = [self.machine, self.plain_machine, *self.pipeline]
        values += [ctypes.cast(item._as_parameter_, ctypes.c_void_p).value for item in objects]
        return (ctypes.c_void_p * len(TOOLS))(*values, ctypes.addressof(self.busy))

    @property
    def is_busy(self) -> bool:
        """Whether it compiles at the moment: else its thread waits for Python's lock, or has it."""
        return self.busy.value != 0

    def take(self, first: Pending, most: int) -> bool:
        """Compile parts from the first one on, up to so many that nobody else has taken; False if there was none."""
        return bool(_native().compile(first.job, most, self.tools) < most)

    def emit(self, text: str, plain: bool, as_object: bool = True) -> bytes:
        """The same for one text, step by step."""
        machine = self.plain_machine if plain else self.machine
        context = _quick("LLVMPY_ContextCreate")()
        module = None
        error = ctypes.c_char_p()  # its text is not given back: whoever gets one stops here
        try:
            module = _quick("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(error))
            if error:
                raise CompileError(f"LLVM does not understand the text: {error.value!r}")
            if not plain:
                passes, builder = self.pipeline
                _quick("LLVMPY_RunNewModulePassManager")(passes, module, builder)
            emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
            buffer = emit(machine, module, int(as_object), ctypes.byref(error))
            if not buffer:
                raise CompileError(f"LLVM makes no code of the text: {error.value!r}")
            code = _content(buffer)
            _quick("LLVMPY_DisposeMemoryBuffer")(buffer)
            return code
        finally:
            if module:
                _quick("LLVMPY_DisposeModule")(module)
            _quick("LLVMPY_ContextDispose")(context)


class Native:
    """compile_text.py as functions. Appending is done at once; while others compile, Python's threads go on."""

    def __init__(self) -> None:
        own = engine()
        self.image = Image(link([own.emit(Part(COMPILE, plain=True))]))
        block = ctypes.c_void_p
        self.append = ctypes.PYFUNCTYPE(None, block, block)(self.image["append"])
        self.compile = ctypes.CFUNCTYPE(ctypes.c_int64, block, ctypes.c_int64, block)(self.image["compile"])


_native = Once(Native)


def _content(buffer: Any) -> bytes:
    start, size = (_quick(f"LLVMPY_GetBuffer{what}")(buffer) for what in ("Start", "Size"))
    return ctypes.string_at(start, size)


def _unlocked(name: str) -> Any:
    return getattr(llvm.ffi.lib, name)._cfn


@lru_cache
def _quick(name: str) -> Any:
    """A function that keeps Python's lock: who gives it up for a moment waits some milliseconds until he has it again,
    while another thread runs Python code."""
    function = _unlocked(name)
    kind = ctypes.PYFUNCTYPE(function.restype, *(function.argtypes or ()))
    return kind(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Pending:
    """A part that is to be compiled, is being compiled, or is: a job in a list that threads go through."""

    def __init__(self, part: Part, text: bytes):
        self.part = part
        self.text = text  # which the job points to
        self.job = (ctypes.c_int64 * WORDS)()
        self.job[TEXT] = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0
        self.job[PLAIN] = part.plain
        self.following: Pending | None = None  # it lives as long as somebody may come to it
        self.result: bytes | None = None

    @property
    def waits(self) -> bool:
        return self.job[STATE] == WAITS

    @property
    def is_done(self) -> bool:
        return self.job[STATE] == DONE

    def code(self) -> bytes:
        """What it was compiled to."""
        with _guard:
            if self.result is None:
                if not self.job[BUFFER]:
                    reason = ctypes.string_at(self.job[ERROR]) if self.job[ERROR] else b""
                    problem = "makes no code of" if self.job[PARSED] else "does not understand"
                    raise CompileError(f"LLVM {problem} the text: {reason!r}")
                buffer = ctypes.cast(self.job[BUFFER], llvm.ffi.LLVMMemoryBufferRef)
                self.result = _content(buffer)  # before it is given back: an interrupt may come between
                _quick("LLVMPY_DisposeMemoryBuffer")(buffer)
            return self.result


class Started:
    """A module that threads compile meanwhile."""

    def __init__(self, engine: Engine, parts: list[Pending]):
        self.engine = engine
        self.parts = parts

    def image(self) -> bytes:
        """Its code. Who waits for it helps."""
        with no_forks:
            for item in self.parts:
                while not item.is_done:
                    if not self.engine.take(item):
                        time.sleep(PAUSE)
            self.engine.forget()
            return link([item.code() for item in self.parts])


class Engine:
    """The process's compiler for a target: callers leave parts to it, and threads that end when nothing is left."""

    def __init__(self, target: Target):
        if llvm.llvm_version_info[0] < OLDEST:
            # It would not refuse the text but end the process.
            found = ".".join(map(str, llvm.llvm_version_info))
            raise CompileError(f"llvmlite is too old: it has LLVM {found}, smelt needs {OLDEST} or newer")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = target
        self.compilers: list[Compiler] = []  # that nobody uses
        self.used: list[Compiler] = []  # by threads of its own
        self.first: Pending | None = None  # that may still wait
        self.last: Pending | None = None
        self.guard = threading.Lock()
        self.threads: list[threading.Thread] = []

    def _machine(self, level: int = LEVEL) -> Any:
        """For code whose constants lie near it, which link.py sees to: they are operands, no registers hold them."""
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=level, reloc="pic", jit=True, codemodel="small"
        )

    @cached_property
    def head(self) -> str:
        """The first lines of every text."""
        layout = self._machine(0).target_data
        return f'target triple = "{self.target.triple}"\ntarget datalayout = "{layout}"\n'

    def assembly(self, parts: Sequence[Part]) -> list[str]:
        with no_forks:
            return [self.emit(part, as_object=False).decode() for part in parts]

    def object_code(self, parts: Sequence[Part], threads: int = 1) -> bytes:
        """An image of a module, by so many threads."""
        return self.start(parts, threads).image()

    def start(self, parts: Sequence[Part], threads: int, module: Started | None = None) -> Started:
        """Compile a module from now on, or more of one, by all threads but the one that will ask for it."""
        started = module or Started(self, [])
        items = [Pending(part, (self.head + part.text).encode()) for part in parts]
        started.parts += items
        with no_forks:
            # The longest come first, so that none is still at one when others are done.
            for item in sorted(items, key=lambda item: (item.part.plain, -len(item.text))):
                self._append(item)
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for _ in range(min(threads - 1 - len(self.threads), len(parts))):
            thread = threading.Thread(target=self._work)
            try:
                thread.start()
            except RuntimeError:  # the system allows no more of them: who asks for the code does the work
                break
            self.threads.append(thread)
        if not all(compiler.is_busy for compiler in self.used):
            # Who has just run out of parts would have to wait for Python's lock until it is taken away from here.
            time.sleep(PAUSE)
        return started

    def _append(self, item: Pending) -> None:
        """Add to the list: who is at its end finds it. After an interrupt in between at least who waits does."""
        native = _native()
        with self.guard:
            if self.last is not None:
                self.last.following = item
                native.append(self.last.job, item.job)
            self.last = item
            self.first = self.first or item

    def _waiting(self) -> Pending | None:
        """The first part that nobody has taken."""
        with self.guard:
            while self.first is not None and not self.first.waits:
                self.first = self.first.following
            return self.first

    def forget(self) -> None:
        """Keep nothing of the parts at the beginning of the list that are done."""
        self._waiting()

    def _work(self) -> None:
        with no_forks, self._compiler() as compiler:
            self.used.append(compiler)
            try:
                while (first := self._waiting()) is not None:
                    compiler.take(first, ALL)
            finally:
                self.used.remove(compiler)

    def take(self, item: Pending) -> bool:
        """Compile a part, or another one if somebody has taken it; False if there is none."""
        first = item if item.waits else self._waiting()
        return first is not None and self._compile(first, 1)

    def _compile(self, first: Pending, most: int) -> bool:
        """Compile parts from the first one on; False if none was waiting."""
        with self._compiler() as compiler:
            return compiler.take(first, most)

    @contextmanager
    def _compiler(self) -> Iterator[Compiler]:
        """One that nobody else uses meanwhile. After an interrupt it is not used again."""
        try:
            compiler = self.compilers.pop()
        except IndexError:
            compiler = Compiler(self._machine)
        yield compiler
        self.compilers.append(compiler)

    def emit(self, part: Part, as_object: bool = True) -> bytes:
        with self._compiler() as compiler:
            return compiler.emit(self.head + part.text, part.plain, as_object)


_engines: dict[Target, Engine] = {}
_guard = threading.Lock()
# Others in the process may use llvmlite, too.
no_forks.hold_too(llvm.ffi.lib._lock.__enter__, llvm.ffi.lib._lock.__exit__)


def engine(target: Target | None = None) -> Engine:
    wanted = target or host()
    if wanted not in _engines:
        with no_forks, _guard:
            if wanted not in _engines:
                _engines[wanted] = Engine(wanted)
    return _engines[wanted]
