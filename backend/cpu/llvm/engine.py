"""Compile LLVM text to object code, in threads."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import llvmlite.binding as llvm

from ....ir.errors import CompileError
from ....ir.process import process
from ....ir.record import Record
from ...process.apart import Pauses, apart, start_thread
from ...process.forks import no_forks
from ...process.patience import PATIENCE
from ...process.process_wide import Once
from ..host import LEVEL, Processor, host
from ..image.image import Image
from ..image.link import link
from .native_compile import DONE, TAKEN, WAITS, Job, Tools, unit
from .parts import Part

OLDEST = 22  # LLVM version whose intrinsics the emitted text uses; pyproject.toml requires a llvmlite that has it
ALL = 1 << 62  # parts: no limit
FUNCTIONS = {  # by the fields of Tools
    "create": "LLVMPY_ContextCreate",
    "parse": "LLVMPY_ParseAssembly",
    "run": "LLVMPY_RunNewModulePassManager",
    "emit": "LLVMPY_TargetMachineEmitToMemory",
    "free": "LLVMPY_DisposeModule",
    "close": "LLVMPY_ContextDispose",
}


class EngineLimits(Record):
    """Limits in seconds; chosen, not measured."""

    slow: float = 20.0  # LLVM's time for a part after which a warning is given: normally it is less than one
    at_exit: float = 2.0  # wait for LLVM at the exit of the process: it must not run during teardown


LIMITS = EngineLimits()


class Compiler:
    """The LLVM objects with which one thread compiles.

    LLVM can compile in several threads if each has a context of its own. llvmlite has one lock for all of LLVM, because
    of the global context that its users share: so compiling calls its functions without the lock.
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
        """Make LLVM's optimization pipeline, instcombine alone: with other passes no kernel is faster."""
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
        """Whether its thread is compiling without the GIL; otherwise it waits for the GIL or holds it."""
        return "tools" in self.__dict__ and self.tools.busy != 0

    def take(self, first: Pending, most: int) -> bool:
        """Compile up to so many untaken parts of the list, from the first one on; False if there was none."""
        return bool(_native().compile(ctypes.byref(first.job), most, ctypes.byref(self.tools)) < most)

    def emit(self, text: str, plain: bool, as_object: bool = True) -> bytes:
        """Compile one text by llvmlite's public functions."""
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
    """Fallback where llvmlite's internals are not as expected: its public functions compile one part at a time."""

    def take(self, first: Pending, most: int) -> bool:
        item: Pending | None = first
        left = most
        while item is not None and left:
            with _guard:
                mine, item.job.state = item.waits, max(item.job.state, TAKEN)
            if mine:
                try:
                    item.result = self.emit(item.text.decode(), item.part.plain)
                except BaseException as error:  # whoever waits for the part raises it
                    item.problem = error
                finally:
                    item.job.state = DONE
                left -= 1
            item = item.following
        return left < most


# LLVM's functions that are called without llvmlite's lock, or with the GIL, and their numbers of arguments.
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
    """Whether llvmlite's private functions and lock are where this module expects them."""
    try:
        found = {name: len(_unlocked(name).argtypes or ()) for name in SIGNATURES}
        return found == SIGNATURES and callable(_lock().acquire) and callable(_lock().release)
    except AttributeError:
        return False


def _lock() -> Any:
    return llvm.ffi.lib._lock._lock


class Native:
    """native_compile.py as functions. `append` keeps the GIL, `compile` releases it."""

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
    """Bind a function to be called without releasing the GIL: re-acquiring it can take a switch interval (5 ms)."""
    function = _unlocked(name)
    kind = ctypes.PYFUNCTYPE(function.restype, *(function.argtypes or ()))
    return kind(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Pending:
    """A part and the state of its compilation: a job in a linked list that threads go through."""

    def __init__(self, part: Part, text: bytes):
        self.job = Job(text=ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value, plain=part.plain)
        self.part = part
        self.text = text  # the job points to it
        self.following: Pending | None = None  # alive as long as a thread may reach it
        self.result: bytes | None = None
        self.problem: BaseException | None = None
        self.process = os.getpid()  # the process whose threads may have taken it

    @property
    def waits(self) -> bool:
        return self.job.state == WAITS

    @property
    def is_done(self) -> bool:
        return self.job.state == DONE

    def code(self) -> bytes:
        """Return the object code; raise CompileError if there is none."""
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
        """Dispose of LLVM's buffer."""
        buffer, self.job.buffer = self.job.buffer, None
        if buffer:
            _quick("LLVMPY_DisposeMemoryBuffer")(ctypes.cast(buffer, llvm.ffi.LLVMMemoryBufferRef))

    def __del__(self) -> None:
        # An interrupt may have ended __init__ before the job was made; a job that is not done was taken by no thread.
        if "job" in self.__dict__ and self.is_done:
            self._free()


class Started:
    """A module that is being compiled in the background."""

    def __init__(self, engine: Engine, threads: int):
        self.engine = engine
        self.threads = threads
        self.parts: list[Pending] = []

    def image(self) -> bytes:
        """Block until the module is compiled; link it. Ctrl-C interrupts; a part that takes too long is warned of."""
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
    """The process's compiler for a target: a queue of parts, and threads that end when the queue is empty."""

    def __init__(self, target: Processor):
        if llvm.llvm_version_info[0] < OLDEST:
            # An older LLVM would not refuse the text but abort the process.
            found = ".".join(map(str, llvm.llvm_version_info))
            raise CompileError(f"llvmlite is too old: it has LLVM {found}, smelt needs {OLDEST} or newer")
        self.target = target
        self.compilers: list[Compiler] = []  # idle ones
        self.used: list[Compiler] = []  # those in use by its threads
        self.first: Pending | None = None  # the first part that may be untaken
        self.last: Pending | None = None
        self.guard = threading.Lock()
        self.helpers: set[int] = set()  # identifiers of the compiling threads
        self.starting: list[float] = []  # start times of threads that do not run yet
        # A signal handler that raises within llvmlite's functions may leave its lock held: so they are called in other
        # threads, where no handler runs.
        self.head = apart(self._begin)
        atexit.register(self._end)
        process.in_child(self._reset)

    def _begin(self) -> str:
        """Initialize LLVM; return the first lines of every text."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        layout = self._machine(0).target_data
        return f'target triple = "{self.target.triple}"\ntarget datalayout = "{layout}"\n'

    def _end(self) -> None:
        """Let compiling threads finish their parts, at the exit of the process."""
        end = time.monotonic() + LIMITS.at_exit
        while any(compiler.is_busy for compiler in list(self.used)) and time.monotonic() < end:
            time.sleep(PATIENCE.look)

    def _reset(self) -> None:
        """Reset the queue in a forked child, which has none of these threads."""
        self.guard = threading.Lock()
        self.helpers, self.starting, self.used, self.compilers = set(), [], [], []
        self.first = self.last = None

    def _machine(self, level: int = LEVEL) -> Any:
        """Make LLVM's target machine, with the small code model: constants are memory operands relative to the code,
        without registers for their addresses. link.py places them near it."""
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=level, reloc="pic", jit=True, codemodel="small"
        )

    def assembly(self, parts: Sequence[Part]) -> list[str]:
        return apart(lambda: [self.emit(part, as_object=False).decode() for part in parts])

    def object_code(self, parts: Sequence[Part], threads: int = 1) -> bytes:
        """Compile a module to an image, in so many threads."""
        return self.start(parts, threads).image()

    def start(self, parts: Sequence[Part], threads: int, module: Started | None = None) -> Started:
        """Start to compile a module, or more parts of one, in all threads but the caller's."""
        started = module or Started(self, threads)
        items = [Pending(part, (self.head + part.text).encode()) for part in parts]
        started.parts += items
        # The longest first, so that no thread still compiles one when the others are done.
        for item in sorted(items, key=lambda item: (item.part.plain, -len(item.text))):
            self._append(item)
        for _ in range(min(threads - 1 - self.helping, len(parts))):
            self._start_thread()
        if not all(compiler.is_busy for compiler in list(self.used)):
            # Release the GIL: a thread that has just run out of parts would else wait for it a switch interval.
            time.sleep(PATIENCE.look)
        return started

    @property
    def helping(self) -> int:
        """Count the threads that compile or are about to."""
        late = time.monotonic() - PATIENCE.begin
        return len(self.helpers) + sum(begin > late for begin in list(self.starting))

    def _start_thread(self, *arguments: Any) -> None:
        self.starting.append(time.monotonic())
        if not start_thread(self._work, *arguments):
            del self.starting[-1:]

    def help(self, item: Pending, threads: int) -> None:
        """Start one more thread, up to so many, if the part is untaken."""
        if item.process != os.getpid() and not item.is_done:
            item.process, item.job.state = os.getpid(), WAITS  # taken by a thread of the parent process
        if item.waits and self.helping < threads:
            self._start_thread(item)

    def _append(self, item: Pending) -> None:
        """Append to the list; a thread at its end finds the part. An interrupt between the steps does not lose it."""
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
        """Return the first untaken part; drop those before it."""
        with self.guard:
            while self.first is not None and not self.first.waits:
                self.first = self.first.following
            return self.first

    def forget(self) -> None:
        """Drop the finished parts at the beginning of the list."""
        self._waiting()

    def _work(self, item: Pending | None = None) -> None:
        """Compile untaken parts: those from an item on, which may no longer be in the list, then those in the list."""
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
                pass  # raised again in the thread that asks for the code
            finally:
                self.helpers.discard(me)

    def take(self, item: Pending) -> bool:
        """Compile a part in this thread, or another one if it is taken; False if there is none."""
        first = item if item.waits else self._waiting()
        return first is not None and self._compile(first, 1)

    def _compile(self, first: Pending, most: int) -> bool:
        """Compile up to so many untaken parts from the first one on; False if there was none."""
        with self._compiler() as compiler:
            return compiler.take(first, most)

    @contextmanager
    def _compiler(self) -> Iterator[Compiler]:
        """Lend a compiler for exclusive use. After an interrupt it is not used again."""
        try:
            compiler = self.compilers.pop()
        except IndexError:
            compiler = (Compiler if internals_known() else PublicCompiler)(self._machine)
        yield compiler
        self.compilers.append(compiler)

    def emit(self, part: Part, as_object: bool = True) -> bytes:
        with self._compiler() as compiler:
            return compiler.emit(self.head + part.text, part.plain, as_object)


_engines: dict[Processor, Engine] = process.keep("engines of LLVM", {})
_guard = process.keep("lock of engines", threading.Lock())
# Other libraries of the process (Numba) may use llvmlite, too.
if internals_known():
    no_forks.hold_too(_lock())


def engine(target: Processor | None = None) -> Engine:
    wanted = target or host()
    if wanted not in _engines:
        with no_forks(), _guard:
            if wanted not in _engines:
                _engines[wanted] = Engine(wanted)
    return _engines[wanted]
