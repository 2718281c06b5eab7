"""LLVM text to machine code."""

from __future__ import annotations

import ctypes
import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from ...ir.errors import CompileError
from ..forks import no_forks
from .link import link
from .target import LEVEL, Target, host

if TYPE_CHECKING:
    from .parts import Part

OLDEST = 22  # LLVM whose spelling of intrinsics the emitted text has; pyproject.toml names the llvmlite that brings it
AGAIN = 0.1  # seconds after which who waits for a part sees whether an interrupt has put it back


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

    def emit(self, text: str, plain: bool, as_object: bool = True) -> bytes:
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
            start, size = (_quick(f"LLVMPY_GetBuffer{what}")(buffer) for what in ("Start", "Size"))
            code = ctypes.string_at(start, size)
            _quick("LLVMPY_DisposeMemoryBuffer")(buffer)
            return code
        finally:
            if module:
                _quick("LLVMPY_DisposeModule")(module)
            _quick("LLVMPY_ContextDispose")(context)


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
    """A part that is to be compiled, is being compiled, or is."""

    def __init__(self, part: Part):
        self.part = part
        self.code = b""
        self.error: Exception | None = None
        self.done = threading.Event()


class Started:
    """A module that threads compile meanwhile."""

    def __init__(self, engine: Engine, parts: list[Pending]):
        self.engine = engine
        self.parts = parts

    def image(self) -> bytes:
        """Its code. Who waits for it helps."""
        with no_forks:
            for item in self.parts:
                while not item.done.is_set():
                    if not self.engine.take():
                        item.done.wait(AGAIN)
        for item in self.parts:
            if item.error is not None:
                raise item.error
        return link([item.code for item in self.parts])


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
        # The longest come first, so that none is still at one when others are done. A step of a heap is one step to
        # Python's threads.
        self.waiting: list[tuple[bool, int, int, Pending]] = []
        self.counter = itertools.count()
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

    def start(self, parts: Sequence[Part], threads: int) -> Started:
        """Compile a module from now on, by all threads but the one that will ask for it."""
        started = Started(self, [Pending(part) for part in parts])
        for item in started.parts:
            heapq.heappush(self.waiting, (item.part.plain, -len(item.part.text), next(self.counter), item))
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for _ in range(min(threads - 1 - len(self.threads), len(parts))):
            thread = threading.Thread(target=self._work)
            try:
                thread.start()
            except RuntimeError:  # the system allows no more of them: who asks for the code does the work
                break
            self.threads.append(thread)
        return started

    def _work(self) -> None:
        with no_forks:
            while self.take():
                pass

    def take(self) -> bool:
        """Compile the next part; False if there is none."""
        try:
            entry = heapq.heappop(self.waiting)
        except IndexError:
            return False
        item = entry[-1]
        try:
            item.code = self.emit(item.part)
        except Exception as error:
            item.error = error
        except BaseException:  # an interrupt, which is no fault of this part: others may wait for it, or will
            heapq.heappush(self.waiting, entry)
            raise
        item.done.set()
        return True

    def emit(self, part: Part, as_object: bool = True) -> bytes:
        # Not there while it is in use: an interrupt may leave a thread behind that still has it.
        compiler = self.compilers.pop() if self.compilers else Compiler(self._machine)
        code = compiler.emit(self.head + part.text, part.plain, as_object)
        self.compilers.append(compiler)
        return code


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
