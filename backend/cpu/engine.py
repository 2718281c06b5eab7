"""LLVM text to machine code."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from ...ir.errors import CompileError
from ..forks import no_forks
from .link import link
from .target import LEVEL, Target, host

if TYPE_CHECKING:
    from .parts import Part

OLDEST = 22  # LLVM whose spelling of intrinsics the emitted text has; pyproject.toml names the llvmlite that brings it


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
        context = _unlocked("LLVMPY_ContextCreate")()
        module = None
        error = ctypes.c_char_p()  # its text is not given back: whoever gets one stops here
        try:
            module = _unlocked("LLVMPY_ParseAssembly")(context, text.encode(), ctypes.byref(error))
            if error:
                raise CompileError(f"LLVM does not understand the text: {error.value!r}")
            if not plain:
                passes, builder = self.pipeline
                _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
            emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
            buffer = emit(machine, module, int(as_object), ctypes.byref(error))
            if not buffer:
                raise CompileError(f"LLVM makes no code of the text: {error.value!r}")
            start, size = (_unlocked(f"LLVMPY_GetBuffer{what}")(buffer) for what in ("Start", "Size"))
            code = ctypes.string_at(start, size)
            _unlocked("LLVMPY_DisposeMemoryBuffer")(buffer)
            return code
        finally:
            if module:
                _unlocked("LLVMPY_DisposeModule")(module)
            _unlocked("LLVMPY_ContextDispose")(context)


def _unlocked(name: str) -> Any:
    return getattr(llvm.ffi.lib, name)._cfn


class Engine:
    """The process's compiler for a target. One caller compiles at a time, with as many threads as it asks for."""

    def __init__(self, target: Target):
        if llvm.llvm_version_info[0] < OLDEST:
            # It would not refuse the text but end the process.
            found = ".".join(map(str, llvm.llvm_version_info))
            raise CompileError(f"llvmlite is too old: it has LLVM {found}, smelt needs {OLDEST} or newer")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = target
        self.lock = threading.RLock()
        self.compilers: list[Compiler] = []  # for each thread

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
        return [code.decode() for code in self._compile(parts, 1, as_object=False)]

    def object_code(self, *modules: Sequence[Part], threads: int = 1) -> list[bytes]:
        """An image of each module."""
        codes = iter(self._compile([part for module in modules for part in module], threads))
        return [link([next(codes) for _ in module]) for module in modules]

    def _compile(self, parts: Sequence[Part], threads: int, as_object: bool = True) -> list[bytes]:
        """The parts in turn, by several threads: the longest come first, so that none is still at one when others are
        done."""
        threads = min(threads, len(parts))
        codes = [b""] * len(parts)
        order = sorted(range(len(parts)), key=lambda number: (parts[number].plain, -len(parts[number].text)))
        waiting = iter(order)  # the next one of it is one step to Python's threads
        errors: list[BaseException] = []

        def work(compiler: Compiler) -> None:
            try:
                for number in waiting:
                    part = parts[number]
                    codes[number] = compiler.emit(self.head + part.text, part.plain, as_object)
            except BaseException as error:
                errors.append(error)

        with no_forks, self.lock:
            # Not there while they are in use: an interrupt may leave a thread behind that still has one.
            compilers, self.compilers = self.compilers, []
            while len(compilers) < threads:
                compilers.append(Compiler(self._machine))
            others = [threading.Thread(target=work, args=(item,)) for item in compilers[1:threads]]
            for thread in others:
                thread.start()
            work(compilers[0])
            for thread in others:
                thread.join()
            self.compilers = compilers
        if errors:
            raise errors[0]
        return codes


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
