"""LLVM text to machine code."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import llvmlite.binding as llvm

from ....ir.errors import CompileError
from ....ir.process import process
from ...process.apart import Pauses, apart, start_thread
from ...process.forks import no_forks
from ...process.patience import PATIENCE
from ...process.process_wide import Once
from ..image.image import Image
from ..image.link import link
from ..target import LEVEL, Target, host
from .native_compile import DONE, TAKEN, WAITS, Job, Tools, unit
from .parts import Part

OLDEST = 22  # LLVM whose spelling of intrinsics the emitted text has; pyproject.toml names the llvmlite that brings it
ALL = 1 << 62  # parts
FUNCTIONS = {  # of LLVM, which tools have
    "create": "LLVMPY_ContextCreate",
    "parse": "LLVMPY_ParseAssembly",
    "run": "LLVMPY_RunNewModulePassManager",
    "emit": "LLVMPY_TargetMachineEmitToMemory",
    "free": "LLVMPY_DisposeModule",
    "close": "LLVMPY_ContextDispose",
}


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Seconds; chosen, not measured."""

    slow: float = 20.0  # that LLVM spends on a part, or there is a warning: normally it takes less than one
    at_exit: float = 2.0  # that the end of the process waits for LLVM, which must not run while it is taken apart


LIMITS = EngineLimits()


class Compiler:
    """What one thread compiles with.

    LLVM lets threads compile at the same time that have a context each. llvmlite has one lock for all of LLVM, since
    there is a context that its users share: so compiling calls its functions without the lock.
    """

    def __init__(self, make_machine: Callable[[int], Any]):
        self.make_machine = make_machine

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
    def tools(self) -> Tools:
        functions = {name: ctypes.cast(_unlocked(symbol), ctypes.c_void_p) for name, symbol in FUNCTIONS.items()}
        objects = (self.machine, self.plain_machine, *self.pipeline)
        places = [ctypes.cast(item._as_parameter_, ctypes.c_void_p) for item in objects]
        return Tools(**functions, **dict(zip(("machine", "plain_machine", "passes", "builder"), places, strict=True)))

    @property
    def is_busy(self) -> bool:
        """Whether it compiles at the moment: else its thread waits for Python's lock, or has it."""
        return "tools" in self.__dict__ and self.tools.busy != 0

    def take(self, first: Pending, most: int) -> bool:
        """Compile parts from the first one on, up to so many that nobody else has taken; False if there was none."""
        return bool(_native().compile(ctypes.byref(first.job), most, ctypes.byref(self.tools)) < most)

    def emit(self, text: str, plain: bool, as_object: bool = True) -> bytes:
        """The same for one text, by llvmlite's public functions."""
        machine, context = self.plain_machine if plain else self.machine, llvm.create_context()
        try:
            module = llvm.parse_assembly(text, context)
        except RuntimeError as error:
            raise CompileError(f"LLVM does not understand the text: {error}") from None
        try:
            if not plain:
                passes, builder = self.pipeline
                passes.run(module, builder)
            code: bytes = machine.emit_object(module) if as_object else machine.emit_assembly(module).encode()
            return code
        except RuntimeError as error:
            raise CompileError(f"LLVM makes no code of the text: {error}") from None
        finally:
            module.close()
            context.close()


class PublicCompiler(Compiler):
    """One where llvmlite's functions are not as native code expects: its public ones compile one part at a time."""

    def take(self, first: Pending, most: int) -> bool:
        item: Pending | None = first
        left = most
        while item is not None and left:
            with _guard:
                mine, item.job.state = item.waits, max(item.job.state, TAKEN)
            if mine:
                try:
                    item.result = self.emit(item.text.decode(), item.part.plain)
                except CompileError as error:
                    item.problem = error
                item.job.state = DONE
                left -= 1
            item = item.following
        return left < most


# LLVM's functions that are called without llvmlite's lock, or with the GIL, and how many arguments they take.
SIGNATURES = {
    "LLVMPY_ContextCreate": 0,
    "LLVMPY_ParseAssembly": 3,
    "LLVMPY_RunNewModulePassManager": 3,
    "LLVMPY_TargetMachineEmitToMemory": 4,
    "LLVMPY_DisposeModule": 1,
    "LLVMPY_ContextDispose": 1,
    "LLVMPY_GetBufferStart": 1,
    "LLVMPY_GetBufferSize": 1,
    "LLVMPY_DisposeMemoryBuffer": 1,
}


@lru_cache
def internals_known() -> bool:
    """Whether llvmlite has its functions and its lock where this module looks for them."""
    try:
        found = {name: len(_unlocked(name).argtypes or ()) for name in SIGNATURES}
        return found == SIGNATURES and callable(_lock().acquire) and callable(_lock().release)
    except AttributeError:
        return False


def _lock() -> Any:
    return llvm.ffi.lib._lock._lock


class Native:
    """native_compile.py as functions. Appending is done at once; while others compile, Python's threads go on."""

    def __init__(self) -> None:
        own = engine()
        self.image = Image(link([apart(lambda: own.emit(Part(unit.text(), plain=True)))]))
        block = ctypes.c_void_p
        self.append = ctypes.PYFUNCTYPE(None, block, block)(self.image["append"])
        self.compile = ctypes.CFUNCTYPE(ctypes.c_int64, block, ctypes.c_int64, block)(self.image["compile_jobs"])


_native = Once("native compile loop", Native)


def _content(buffer: Any) -> bytes:
    start, size = (_quick(f"LLVMPY_GetBuffer{what}")(buffer) for what in ("Start", "Size"))
    return ctypes.string_at(start, size)


def _unlocked(name: str) -> Any:
    return getattr(llvm.ffi.lib, name)._cfn


@lru_cache
def _quick(name: str) -> Any:
    """A function that is called without releasing the GIL: re-acquiring it can take a switch interval (5 ms)."""
    function = _unlocked(name)
    kind = ctypes.PYFUNCTYPE(function.restype, *(function.argtypes or ()))
    return kind(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Pending:
    """A part that is to be compiled, is being compiled, or is: a job in a list that threads go through."""

    def __init__(self, part: Part, text: bytes):
        self.job = Job(text=ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value, plain=part.plain)
        self.part = part
        self.text = text  # which the job points to
        self.following: Pending | None = None  # it lives as long as somebody may come to it
        self.result: bytes | None = None
        self.problem: CompileError | None = None
        self.process = os.getpid()  # whose threads may have taken it

    @property
    def waits(self) -> bool:
        return self.job.state == WAITS

    @property
    def is_done(self) -> bool:
        return self.job.state == DONE

    def code(self) -> bytes:
        """What it was compiled to."""
        with _guard:
            if self.problem is not None:
                raise self.problem
            if self.result is None:
                if not self.job.buffer:
                    reason = ctypes.string_at(self.job.error) if self.job.error else b""
                    problem = "makes no code of" if self.job.parsed else "does not understand"
                    raise CompileError(f"LLVM {problem} the text: {reason!r}")
                self.result = _content(ctypes.cast(self.job.buffer, llvm.ffi.LLVMMemoryBufferRef))
                self._free()
            return self.result

    def _free(self) -> None:
        """Give LLVM's memory back."""
        buffer, self.job.buffer = self.job.buffer, None
        if buffer:
            _quick("LLVMPY_DisposeMemoryBuffer")(ctypes.cast(buffer, llvm.ffi.LLVMMemoryBufferRef))

    def __del__(self) -> None:
        # An interrupt may have ended __init__ before there was a job; a job that is not done never had a thread.
        if "job" in self.__dict__ and self.is_done:
            self._free()


class Started:
    """A module that threads compile meanwhile."""

    def __init__(self, engine: Engine, threads: int):
        self.engine = engine
        self.threads = threads
        self.parts: list[Pending] = []

    def image(self) -> bytes:
        """Block until it is compiled; Ctrl-C interrupts that. Warn of a part that LLVM does not come to the end of."""
        with no_forks():
            for item in self.parts:
                self._wait(item)
            self.engine.forget()
            return link([item.code() for item in self.parts])

    def _wait(self, item: Pending) -> None:
        pauses, warned = Pauses(), False
        self.engine.help(item, self.threads)
        while not item.is_done:
            pauses.pause()
            if item.waits and not self.engine.helping:
                if pauses.seconds < PATIENCE.begin:
                    self.engine.help(item, 1)
                else:
                    self.engine.take(item)  # no thread can begin
            elif not warned and pauses.seconds > LIMITS.slow:
                warned = True
                kernels = ", ".join(item.part.names)
                problem = f"LLVM has been compiling {kernels} for {pauses.seconds:.0f} seconds; Ctrl-C ends that"
                warnings.warn(problem, RuntimeWarning, stacklevel=2)


class Engine:
    """The process's compiler for a target: callers leave parts to it, and threads that end when nothing is left."""

    def __init__(self, target: Target):
        if llvm.llvm_version_info[0] < OLDEST:
            # It would not refuse the text but end the process.
            found = ".".join(map(str, llvm.llvm_version_info))
            raise CompileError(f"llvmlite is too old: it has LLVM {found}, smelt needs {OLDEST} or newer")
        self.target = target
        self.compilers: list[Compiler] = []  # that nobody uses
        self.used: list[Compiler] = []  # by threads of its own
        self.first: Pending | None = None  # that may still wait
        self.last: Pending | None = None
        self.guard = threading.Lock()
        self.helpers: set[int] = set()  # threads that compile
        self.starting: list[float] = []  # times at which threads were started that have not begun yet
        # llvmlite's lock may stay held if a signal's handler raises in its functions: so threads call them, in which
        # none does.
        self.head = apart(self._begin)
        atexit.register(self._end)
        process.in_child(self._reset)

    def _begin(self) -> str:
        """Make LLVM ready; the first lines of every text."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        layout = self._machine(0).target_data
        return f'target triple = "{self.target.triple}"\ntarget datalayout = "{layout}"\n'

    def _end(self) -> None:
        """At the end of the process: threads that compile may finish what they are at."""
        end = time.monotonic() + LIMITS.at_exit
        while any(compiler.is_busy for compiler in list(self.used)) and time.monotonic() < end:
            time.sleep(PATIENCE.look)

    def _reset(self) -> None:
        """In a forked child, which has none of these threads."""
        self.guard = threading.Lock()
        self.helpers, self.starting, self.used, self.compilers = set(), [], [], []
        self.first = self.last = None

    def _machine(self, level: int = LEVEL) -> Any:
        """For code whose constants lie near it, which link.py sees to: they are operands, no registers hold them."""
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=level, reloc="pic", jit=True, codemodel="small"
        )

    def assembly(self, parts: Sequence[Part]) -> list[str]:
        return apart(lambda: [self.emit(part, as_object=False).decode() for part in parts])

    def object_code(self, parts: Sequence[Part], threads: int = 1) -> bytes:
        """An image of a module, by so many threads."""
        return self.start(parts, threads).image()

    def start(self, parts: Sequence[Part], threads: int, module: Started | None = None) -> Started:
        """Compile a module from now on, or more of one, by all threads but the one that will ask for it."""
        started = module or Started(self, threads)
        items = [Pending(part, (self.head + part.text).encode()) for part in parts]
        started.parts += items
        # The longest come first, so that none is still at one when others are done.
        for item in sorted(items, key=lambda item: (item.part.plain, -len(item.text))):
            self._append(item)
        for _ in range(min(threads - 1 - self.helping, len(parts))):
            self._start_thread()
        if not all(compiler.is_busy for compiler in list(self.used)):
            # A thread that has just run out of parts would have to wait for the GIL until it is taken away from here.
            time.sleep(PATIENCE.look)
        return started

    @property
    def helping(self) -> int:
        """How many threads compile, or are about to."""
        late = time.monotonic() - PATIENCE.begin
        return len(self.helpers) + sum(begin > late for begin in list(self.starting))

    def _start_thread(self, *arguments: Any) -> None:
        self.starting.append(time.monotonic())
        if not start_thread(self._work, *arguments):
            del self.starting[-1:]

    def help(self, item: Pending, threads: int) -> None:
        """Let one more thread compile if a part still waits, up to so many."""
        if item.process != os.getpid() and not item.is_done:
            item.process, item.job.state = os.getpid(), WAITS  # what the parent's thread does is not done here
        if item.waits and self.helping < threads:
            self._start_thread(item)

    def _append(self, item: Pending) -> None:
        """Add to the list: a thread that is at its end finds it. After an interrupt in between, it is not lost."""
        append = _native().append if internals_known() else None
        with no_forks(), self.guard:
            last = self.last
            while last is not None and last.following is not None:
                last = last.following
            if last is not None:
                last.following = item
                if append is not None:
                    append(ctypes.byref(last.job), ctypes.byref(item.job))
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

    def _work(self, item: Pending | None = None) -> None:
        """Compile what waits, from an item on that may not be in the list any more."""
        me = threading.get_ident()
        with no_forks(helps=True):
            self.helpers.add(me)
            del self.starting[:1]
            try:
                with self._compiler() as compiler:
                    self.used.append(compiler)
                    try:
                        if item is not None:
                            compiler.take(item, ALL)
                        while (first := self._waiting()) is not None:
                            compiler.take(first, ALL)
                    finally:
                        self.used.remove(compiler)
            except MemoryError:
                pass  # whoever asks for the code meets it again
            finally:
                self.helpers.discard(me)

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
            compiler = (Compiler if internals_known() else PublicCompiler)(self._machine)
        yield compiler
        self.compilers.append(compiler)

    def emit(self, part: Part, as_object: bool = True) -> bytes:
        with self._compiler() as compiler:
            return compiler.emit(self.head + part.text, part.plain, as_object)


_engines: dict[Target, Engine] = process.keep("engines of LLVM", {})
_guard = process.keep("lock of engines", threading.Lock())
# Others in the process may use llvmlite, too.
if internals_known():
    no_forks.hold_too(_lock())


def engine(target: Target | None = None) -> Engine:
    wanted = target or host()
    if wanted not in _engines:
        with no_forks(), _guard:
            if wanted not in _engines:
                _engines[wanted] = Engine(wanted)
    return _engines[wanted]
