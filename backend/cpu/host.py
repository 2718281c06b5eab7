"""Describe the host: the target of LLVM, the nominal machine that kernels are planned for, the detected caches."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from ...kernels.machine import PRESETS, Machine
from ..process.apart import apart
from ..store.cache import current
from ..store.fact_file import remember, remembered
from ..store.files import make_folder

# Features of a processor that code of kernels does not use: of the system, or not about arithmetic. Virtual machines
# and microcode switch them on and off, which must not invalidate cache entries.
UNUSED = {
    "cldemote", "clflushopt", "clwb", "clzero", "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid", "kl",
    "lwp", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "prefetchi", "prefetchwt1", "prfchw", "ptwrite",
    "rdpid", "rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr",
    "waitpkg", "wbnoinvd", "widekl", "x87", "xsave", "xsavec", "xsaveopt", "xsaves",
}  # fmt: skip


LEVEL = 2  # LLVM's optimization level of code generation; the emitted text is already optimized


# Lines of /proc/cpuinfo with the processor's model and features, on x86 and Arm.
FEATURES = ("flags", "Features")
DECISIVE = {
    *FEATURES, "vendor_id", "cpu family", "model", "stepping",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
}  # fmt: skip


class Processor:
    """A CPU: its name for LLVM, its instruction set features, and the machine that kernels are planned for."""

    def __init__(self, triple: str, cpu: str, features: str, llvm: str):
        self.triple = triple
        self.cpu = cpu
        self.features = features
        self.llvm = llvm  # version of LLVM that these names are from
        present = {name[1:] for name in features.split(",") if name.startswith("+")}
        # Features that generated code may rely on. The CPU's name is not one: it only selects among equivalent code.
        self.instructions = sorted(present - UNUSED)
        self.machine = nominal_machine(triple, present)


def nominal_machine(triple: str, features: set[str]) -> Machine:
    """Return the preset machine of an instruction set, with its dot-product instructions of narrow types added."""
    if features >= {"avx512f", "avx512bw", "avx512vl"}:
        return PRESETS["x86-64-v4"].but(dot_types=frozenset({"bf16"} if "avx512bf16" in features else ()))
    if "avx2" in features:
        return PRESETS["x86-64-v3"]
    return PRESETS["aarch64" if triple.startswith(("aarch64", "arm64")) else "x86-64"]


@lru_cache
def host() -> Processor:
    """Return the CPU that this process runs on.

    LLVM detects it, but loading LLVM takes longer than the rest of a cache hit: so the answer is kept as a fact file in
    the cache directory, valid for the system's description of the processor.
    """
    import llvmlite

    facts = _facts()
    if facts is None:
        return Processor(*apart(ask_llvm))
    facts += f"\nllvmlite {llvmlite.__version__}"
    name = f"machine-{sha256(facts.encode()).hexdigest()[:16]}"
    for folder in current().directories:
        found = remembered(folder, name, facts)
        if found is not None and found.count("\n") == 3:
            return Processor(*found.split("\n"))
    answers = apart(ask_llvm)
    own = current().directory
    if own is not None:
        with suppress(OSError):
            make_folder(own)
        remember(own, name, facts, "\n".join(answers))
    return Processor(*answers)


def ask_llvm() -> tuple[str, str, str, str]:
    """Detect the triple, the CPU's name, its features and the version of LLVM."""
    import llvmlite.binding as llvm

    # ELF on every system, since link.py reads nothing else.
    triple = llvm.get_process_triple() + ("" if sys.platform == "linux" else "-elf")
    version = ".".join(map(str, llvm.llvm_version_info))
    return triple, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), version


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def detected_sizes() -> dict[str, int]:
    """Read the bytes of the first CPU's data caches, of lines and of pages, as far as known, by Machine's field names.
    For people to compare: no plan uses them."""
    found = {}
    with suppress(OSError, ValueError):
        for index in sorted(CACHES.glob("index*")):
            if (index / "type").read_text().strip() != "Instruction":
                level, size = ((index / name).read_text().strip() for name in ("level", "size"))
                found[f"l{level}"] = int(size.removesuffix("K")) << 10
                found["line"] = int((index / "coherency_line_size").read_text())
    with suppress(OSError, ValueError):
        found["page"] = os.sysconf("SC_PAGE_SIZE")
    return found


def _facts() -> str | None:
    """Read the lines of /proc/cpuinfo that decide LLVM's answer, of the first CPU; None if the file is not there."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            text = file.read(1 << 14).decode("ascii", "replace").partition("\n\n")[0]
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip() in DECISIVE]
    return "\n".join(lines) if any(line.startswith(FEATURES) for line in lines) else None
