"""`smelt doctor`: facts and problems of this machine and this installation. Writes nothing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from .. import __version__
from .terminal import FINE, WRONG_INPUT, heading, paint, size_text, table

# The purpose of optional dependencies, by the extra that installs them.
PURPOSES = {
    "cuda": "compiling for NVIDIA GPUs",
    "torch": 'torch.compile(model, backend="smelt")',
    "test": "running the tests",
    "bench": "running the benchmarks",
}

# CPU features that matter to generated code; the rest (cache control, cryptography, ...) would bury them.
ARITHMETIC = re.compile(r"sse4|avx|fma|f16c|bmi2|amx|neon|sve|sme|fp16|fullfp16|dotprod|bf16|i8mm|v$|zv")


# Fields in which the nominal and the detected machine are compared, with their labels.
SIZES = {"l1": "L1", "l2": "L2", "l3": "L3", "line": "lines", "page": "pages"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(options: Namespace) -> int:
    found = examine()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return WRONG_INPUT if found["problems"] else FINE


def examine() -> dict[str, Any]:
    required, optional = dependencies()
    problems = [
        f"{name} is missing: install smelt again, with its dependencies"
        for name, version in required.items()
        if not version
    ]
    found: dict[str, Any] = {
        "smelt": __version__,
        "folder": str(Path(__file__).resolve().parent.parent),
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "cpu": cpu_name(),
        "cores": core_counts(),
        "dependencies": required,
        "optional": optional,
    }
    if not required.get("llvmlite"):
        found["compiler"] = {}
    else:
        try:
            found["compiler"] = compiler_facts()
        except Exception as error:  # any failure is a finding to report
            found["compiler"] = {}
            problems.append(f"the native compiler does not work: {type(error).__name__}: {error}")
    found["cuda"] = cuda_facts()
    found["problems"] = problems
    return found


def cuda_facts() -> dict[str, str]:
    """Return facts about the CUDA compiler and the GPUs."""
    if not installed_version("numba-cuda"):
        return {"compiler": "not installed"}
    # In a separate process: it loads NVIDIA's libraries.
    code = (
        "from numba import cuda; from smelt.backend.cuda.toolchain.compiler import architectures\n"
        "print(' '.join(architectures())); print(*[item.name for item in cuda.gpus] if cuda.is_available() else [])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if ran.returncode:
        return {"compiler": f"does not work: {ran.stderr.strip().splitlines()[-1]}"}
    known, gpus = ran.stdout.splitlines()
    return {"compiler": f"libNVVM for {known}", "GPU": gpus or "none: kernels run in Numba's simulator only"}


def compiler_facts() -> dict[str, str]:
    """Return the native compiler's view of the machine; raise if the compiler does not work."""
    from ..backend.cpu.host import Processor, ask_llvm, detected_sizes
    from ..backend.cpu.runtime.threads import available_cpus

    target = Processor(*ask_llvm())
    machine, found = target.machine, detected_sizes()
    present = [name[1:] for name in target.features.split(",") if name.startswith("+")]
    return {
        "target": f"{target.cpu}, {target.triple}",
        "instructions": " ".join(sorted(name for name in present if ARITHMETIC.match(name))),
        "vectors": f"{machine.vector_bits} bits",
        "planned for": f"{machine.name}: {sizes_text({name: getattr(machine, name) for name in SIZES})}",
        "detected": sizes_text(found) or "nothing: the system does not tell",
        "threads": f"{available_cpus()} by default (affinity and control group)",
    }


def sizes_text(sizes: dict[str, int]) -> str:
    """Return sizes of caches, lines and pages as text; keys are the names of Machine's fields."""
    return ", ".join(f"{SIZES[name]} {size_text(sizes[name])}" for name in SIZES if name in sizes)


def dependencies() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return installed versions ('' if missing) of required dependencies, and of optional ones by extra."""
    required: dict[str, str] = {}
    optional: dict[str, dict[str, str]] = {}
    for line in importlib.metadata.requires("smelt") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra\s*==\s*["'](\w+)""", line)
        if name is not None:
            group = optional.setdefault(extra.group(1), {}) if extra else required
            group[name.group()] = installed_version(name.group())
    return required, optional


def installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cpu_name() -> str:
    """Return the processor's model name."""
    if sys.platform == "darwin":
        shown = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return shown.stdout.strip() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def core_counts() -> dict[str, int | None]:
    """Return the number of cores of the machine, and of those that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"machine": os.cpu_count(), "affinity": allowed}


def install_hint(extra: str) -> str:
    """Return how to install an extra: by a command if smelt runs from a checkout."""
    folder = Path(__file__).resolve().parent.parent
    if (folder / "pyproject.toml").exists():
        return f'pip install -e "{folder}[{extra}]"'
    return f"install smelt with the extra [{extra}]"


def show(found: dict[str, Any]) -> None:
    cores = found["cores"]
    print(heading("Machine"))
    rows = [
        ("smelt", f"{found['smelt']} in {found['folder']}"),
        ("python", found["python"]),
        ("platform", found["platform"]),
        ("cpu", found["cpu"]),
        ("cores", f"{cores['machine']} in the machine, {cores['affinity']} allowed by affinity"),
    ]
    rows += [(name, str(value)) for name, value in found["compiler"].items()]
    print(table(rows))
    print(heading("\nCUDA"))
    print(table(list(found["cuda"].items())))
    print(heading("\nDependencies"))
    print(table([(name, version or paint("missing", "red")) for name, version in found["dependencies"].items()]))
    print(heading("\nOptional"))
    for extra, group in found["optional"].items():
        missing = [name for name, version in group.items() if not version]
        state = f"missing {', '.join(missing)}: {install_hint(extra)}" if missing else "complete"
        print(f"  {extra:6} {PURPOSES.get(extra, ''):40} {paint(state, 'yellow' if missing else 'green')}")
    for problem in found["problems"]:
        print(f"\n{paint('problem:', 'red')} {problem}")
