"""The machine that code is made for."""

from __future__ import annotations

import sys
from functools import lru_cache

# Features of a processor that the code of kernels has no use for: they are the system's, or are about other things than
# arithmetic. Virtual machines and microcode switch them on and off, which must not cost anybody's cache.
UNUSED = {
    "cldemote", "clflushopt", "clwb", "clzero", "cx8", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid", "kl",
    "lwp", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "prefetchi", "prefetchwt1", "prfchw", "ptwrite",
    "rdpid", "rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr",
    "waitpkg", "wbnoinvd", "widekl", "x87", "xsave", "xsavec", "xsaveopt", "xsaves",
}  # fmt: skip


LEVEL = 2  # of code generation; the text is already in good shape


class Target:
    """A CPU: its name for LLVM, its instruction set features, and how wide its vectors are."""

    def __init__(self, triple: str, cpu: str, features: str, vector_bits: int):
        self.triple = triple
        self.cpu = cpu
        self.features = features
        self.vector_bits = vector_bits

    @property
    def instructions(self) -> list[str]:
        """The features that generated code may rely on. The CPU's name is not among them: it chooses among equals."""
        present = [name[1:] for name in self.features.split(",") if name.startswith("+")]
        return sorted(name for name in present if name not in UNUSED)


@lru_cache
def host() -> Target:
    """The CPU that this process runs on."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512bw") and features.get("avx512vl"):
        bits = 512
    elif features.get("avx2"):
        bits = 256
    else:
        bits = 128
    # link.py knows ELF, on other systems too.
    triple = llvm.get_process_triple() + ("" if sys.platform == "linux" else "-elf")
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), bits)
