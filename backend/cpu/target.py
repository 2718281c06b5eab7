"""The host: the target of LLVM, the nominal machine that kernels are planned for, and the detected caches."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from ...kernels.machine import PRESETS, Machine
from ..process.apart import apart
from ..store.cache import current
from ..store.fact_file import remember, remembered
from ..store.files import make_folder

# Features of a processor that the code of kernels has no use for: they are the system's, or are about other things than
# arithmetic. Virtual machines and microcode switch them on and off, which must not cost anybody's cache.
UNUSED = {
    "cldemote", "clflushopt", "clwb", "clzero", "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid", "kl",
    "lwp", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "prefetchi", "prefetchwt1", "prfchw", "ptwrite",
    "rdpid", "rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr",
    "waitpkg", "wbnoinvd", "widekl", "x87", "xsave", "xsavec", "xsaveopt", "xsaves",
}  # fmt: skip


LEVEL = 2  # of code generation; the text is already in good shape


# Lines of /proc/cpuinfo that say which processor it is and what it can do, on x86 and Arm.
FEATURES = ("flags", "Features")
DECISIVE = {
    *FEATURES, "vendor_id", "cpu family", "model", "stepping",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
}  # fmt: skip


class Target:
    """A CPU: its name for LLVM, its instruction set features, and the machine that kernels are planned for."""

    def __init__(self, triple: str, cpu: str, features: str, llvm: str):
        self.triple = triple
        self.cpu = cpu
        self.features = features
        self.llvm = llvm  # the version of LLVM that calls it so
        present = {name[1:] for name in features.split(",") if name.startswith("+")}
        # What generated code may rely on. The CPU's name is not among it: it chooses among equals.
        self.instructions = sorted(present - UNUSED)
        self.machine = nominal_machine(triple, present)


def nominal_machine(triple: str, features: set[str]) -> Machine:
    """The preset of an instruction set, and the narrow dot products that it has beyond that."""
    if features >= {"avx512f", "avx512bw", "avx512vl"}:
        return replace(PRESETS["x86-64-v4"], dot_types=frozenset({"bf16"} if "avx512bf16" in features else ()))
    if "avx2" in features:
        return PRESETS["x86-64-v3"]
    return PRESETS["aarch64" if triple.startswith(("aarch64", "arm64")) else "x86-64"]


@lru_cache
def host() -> Target:
    """The CPU that this process runs on.

    LLVM knows, but to load it takes longer than all else that a hit in the cache does: so a directory of the cache
    remembers, beside what the system says about the processor.
    """
    import llvmlite

    facts = _facts()
    if facts is None:
        return Target(*apart(ask_llvm))
    facts += f"\nllvmlite {llvmlite.__version__}"
    name = f"machine-{sha256(facts.encode()).hexdigest()[:16]}"
    for folder in current().directories:
        found = remembered(folder, name, facts)
        if found is not None and found.count("\n") == 3:
            return Target(*found.split("\n"))
    answers = apart(ask_llvm)
    own = current().directory
    if own is not None:
        with suppress(OSError):
            make_folder(own)
        remember(own, name, facts, "\n".join(answers))
    return Target(*answers)


def ask_llvm() -> tuple[str, str, str, str]:
    """What a target is made of."""
    import llvmlite.binding as llvm

    # link.py knows ELF, on other systems too.
    triple = llvm.get_process_triple() + ("" if sys.platform == "linux" else "-elf")
    version = ".".join(map(str, llvm.llvm_version_info))
    return triple, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), version


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def detected_sizes() -> dict[str, int]:
    """Bytes of the first CPU's data caches, of lines and of pages, by the names of Machine's fields, as far as they are
    known. For people to compare: no plan reads them."""
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
    """What decides which processor LLVM sees, from Linux's description of the first one; None if that is not there."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            text = file.read(1 << 14).decode("ascii", "replace").partition("\n\n")[0]
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip() in DECISIVE]
    return "\n".join(lines) if any(line.startswith(FEATURES) for line in lines) else None
