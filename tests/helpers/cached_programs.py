"""What the tests of the disk cache share: programs, and a look at its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import smelt
from smelt import ops
from smelt.backend.store import cache

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def entry_of(folder: Path, name: str) -> Path:
    """The entry of a function."""
    (found,) = [
        path for path in files(folder) if (cache.read_header(str(path)) or {"title": ""})["title"][: len(name)] == name
    ]
    return found


def fresh(folder: Path) -> None:
    """As a new process: nothing in memory."""
    smelt.set_cache_dir(folder)


def wave(x: Any, y: Any) -> Any:
    return ops.softmax(ops.sin(x) * y + 0.25, 1), x.sum()


def state_of(program: Any) -> str:
    return program.report().cache.state


def call(function: Any = wave, **settings: Any) -> Any:
    """A new jit of a function, called once."""
    program = smelt.jit(function, **settings)
    program.results = program(X, X)
    return program


PROGRAM = """
import json, sys
import numpy as np
import smelt
from smelt import ops

@smelt.jit
def layer(x, y):
    return ops.gelu(ops.layer_norm(x + y, (32,))) @ y.T

x = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
result = layer(x, x)
heavy = [name for name in ("smelt.passes.fusion.fuse", "smelt.kernels.loop.ir", "smelt.kernels.scalar.table", "sympy",
                           "scipy", "smelt.backend.cpu.llvm.engine", "smelt.backend.cpu.image.link", "llvmlite.binding",
                           "smelt.backend.cpu.microkernels.gemm", "smelt.backend.cpu.llvm.writer",
                           "smelt.backend.cpu.runtime.native_entry")
         if name in sys.modules]
print(json.dumps({"heavy": heavy, "bits": result.tobytes().hex(),
                  "state": layer.report().cache.state, "stages": list(layer.report().milliseconds)}))
"""


def run(code: str, *, environment: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


# ----- misses, and what they say


def missed(folder: Path, **settings: Any) -> str:
    fresh(folder)
    found = call(**settings).report().cache
    assert found.state == "missed"
    return found.detail


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
