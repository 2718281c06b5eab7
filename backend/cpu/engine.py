"""LLVM text to machine code in memory."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import llvmlite.binding as llvm

from .target import Target, host

LEVEL = 2  # of code generation; the text is already in good shape


class Engine:
    """One JIT for the process. LLVM is not re-entrant here, so one thread compiles at a time."""

    def __init__(self, target: Target):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = target
        self.machine = self._machine()
        self.layout = str(self.machine.target_data)
        self.lock = threading.RLock()
        self.numbers = itertools.count()
        self.jit = llvm.create_lljit_compiler(self._machine(), use_jit_link=True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._release)

    def _hold(self) -> None:
        """Before a fork: no other thread is inside of LLVM, and none leaves the child a lock that stays taken."""
        self.lock.acquire()
        llvm.ffi.lib._lock.__enter__()

    def _release(self) -> None:
        llvm.ffi.lib._lock.__exit__()
        self.lock.release()

    def _machine(self) -> Any:
        """For code whose constants lie near it, which JITLink sees to: they are operands, no registers hold them."""
        return llvm.Target.from_triple(self.target.triple).create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=LEVEL, reloc="pic", jit=True, codemodel="small"
        )

    def optimize(self, text: str) -> Any:
        """Parse and run the light pipeline: the emitter has already done what heavier passes would."""
        module = llvm.parse_assembly(text)
        module.triple = self.target.triple
        module.data_layout = self.layout
        tuning = llvm.create_pipeline_tuning_options(speed_level=1)
        builder = llvm.create_pass_builder(self.machine, tuning)
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_new_gvn_pass()
        passes.add_dead_code_elimination_pass()
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

    def link(self, code: bytes, symbol: str) -> tuple[int, Any]:
        """The address of a function in object code, and what keeps it alive."""
        with self.lock:
            library = (
                llvm.JITLibraryBuilder()
                .add_object_img(code)
                .export_symbol(symbol)
                .add_current_process()
                .link(self.jit, f"smelt{next(self.numbers)}")
            )
            return library[symbol], library


_engines: dict[Target, Engine] = {}
_guard = threading.Lock()


def engine(target: Target | None = None) -> Engine:
    wanted = target or host()
    if wanted not in _engines:
        with _guard:
            if wanted not in _engines:
                _engines[wanted] = Engine(wanted)
    return _engines[wanted]
