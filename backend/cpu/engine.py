"""LLVM text to machine code in memory."""

from __future__ import annotations

import itertools
import threading
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm

from ...ir.errors import CompileError
from .once import around_forks
from .target import Target, host

OLDEST = 22  # LLVM whose spelling of intrinsics the emitted text has; pyproject.toml names the llvmlite that brings it
LEVEL = 2  # of code generation; the text is already in good shape


class Engine:
    """One JIT for the process. LLVM is not re-entrant here, so one thread compiles at a time."""

    def __init__(self, target: Target):
        if llvm.llvm_version_info[0] < OLDEST:
            # It would not refuse the text but end the process.
            found = ".".join(map(str, llvm.llvm_version_info))
            raise CompileError(f"llvmlite is too old: it has LLVM {found}, smelt needs {OLDEST} or newer")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = target
        self.lock = threading.RLock()
        self.numbers = itertools.count()
        self.jit = llvm.create_lljit_compiler(self._machine(), use_jit_link=True)

    def hold(self) -> None:
        self.lock.acquire()
        llvm.ffi.lib._lock.__enter__()

    def release(self) -> None:
        llvm.ffi.lib._lock.__exit__()
        self.lock.release()

    def _machine(self, level: int = LEVEL) -> Any:
        """For code whose constants lie near it, which JITLink sees to: they are operands, no registers hold them."""
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=level, reloc="pic", jit=True, codemodel="small"
        )

    @cached_property
    def machine(self) -> Any:
        """What compiles; linking alone does without."""
        return self._machine()

    def optimize(self, text: str) -> Any:
        """Parse and run the light pipeline: the emitter has already done what heavier passes would."""
        module = llvm.parse_assembly(text)
        module.triple = self.target.triple
        module.data_layout = str(self.machine.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=1)
        builder = llvm.create_pass_builder(self.machine, tuning)
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_new_gvn_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        return module

    def assembly(self, text: str) -> str:
        with self.lock:
            return self.machine.emit_assembly(self.optimize(text))

    def object_code(self, text: str) -> bytes:
        with self.lock:
            return self.machine.emit_object(self.optimize(text))

    def plain_code(self, *texts: str) -> bytes:
        """One object as fast as LLVM makes it, for the run time's own functions: none of them has a hot loop."""
        with self.lock:
            module, *others = map(llvm.parse_assembly, texts)
            module.triple = self.target.triple
            module.data_layout = str(self.machine.target_data)
            for other in others:
                other.triple, other.data_layout = module.triple, module.data_layout
                module.link_in(other)
            return self._machine(0).emit_object(module)

    def link(self, code: bytes, *symbols: str) -> tuple[dict[str, int], Any]:
        """The addresses of functions in object code, and what keeps it alive."""
        with self.lock:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for symbol in symbols:
                builder.export_symbol(symbol)
            library = builder.link(self.jit, f"smelt{next(self.numbers)}")
            return {symbol: library[symbol] for symbol in symbols}, library


_engines: dict[Target, Engine] = {}
_guard = threading.Lock()


def _hold() -> None:
    """Before a fork: no other thread is inside of LLVM, and none leaves the child a lock that stays taken."""
    _guard.acquire()
    for item in _engines.values():
        item.hold()


def _release() -> None:
    for item in _engines.values():
        item.release()
    _guard.release()


# Here, not in an engine: those who make things with an engine are held first, since they wait for it.
around_forks(_hold, _release)


def engine(target: Target | None = None) -> Engine:
    wanted = target or host()
    if wanted not in _engines:
        with _guard:
            if wanted not in _engines:
                _engines[wanted] = Engine(wanted)
    return _engines[wanted]
