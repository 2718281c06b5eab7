"""Figures of the shape of the source stay where they are: whoever lowers one lowers its bound here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

BOUNDS = {"constants": 59, "cycles": 0, "native": 673, "mutables": 0, "caches": 31, "cuda": 0}


@pytest.fixture(scope="module")
def counts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("counts", ROOT / "tools" / "counts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_do_not_grow(counts: ModuleType) -> None:
    found = counts.count(ROOT)
    grown = {name: found[name] for name, most in BOUNDS.items() if len(found[name]) > most}
    assert not grown, "more than tests/tools/test_counts.py allows"
    names = [line.partition(": ")[2] for line in found["kept"]]
    assert len(set(names)) == len(names), "two objects of the process have one name"
    statements = [int(line.split()[1]) for line in found["statements"]]
    assert statements and max(statements) <= 40


def test_what_is_counted(counts: ModuleType, tmp_path: Path) -> None:
    files = {
        "kernels/machine.py": "LINE = 64\n",
        "kernels/scalar/philox.py": "ROUNDS = 10\n",
        "kernels/loop/ir.py": "class Load(Statement): ...\nclass Store(Statement): ...\n",
        "frontend/ops/conv.py": "SMALL = 9\n",
        "frontend/jit.py": 'def f(target):\n    return target == "cuda" or target in ("cpu", "cuda")\n',
        "passes/one.py": """
from .two import g
from ..kernels.loop.ir import Load
A, B = range(2)
WIDTH, NAMES, (X, Y) = 1 << 4, {}, (1, 2)
SIDES = 256, 128
small: int = 3
seen, alone = {}, []
table = process.keep("a table", {})
current = ContextVar[int]("current")
def f(value: Load, alone):
    global small
    seen[value] = table[value] = 1
    current.set(1)
    alone.append(1)
""",
        "passes/two.py": "from functools import lru_cache\n@lru_cache\ndef g():\n    from .one import f\n",
        "backend/cpu/runtime/native_pool.py": '"""Doc."""\nimport ast\n\n# one\ntwo = (\n    3)\n',
        "backend/cpu/compile_text.py": "# no native code\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert counts.count(tmp_path) == {
        "constants": ["passes/one.py: WIDTH", "passes/one.py: SIDES"],
        "cycles": ["smelt.passes.one smelt.passes.two"],
        "native": ["backend/cpu/runtime/native_pool.py:5", "backend/cpu/runtime/native_pool.py:6"],
        "mutables": ["passes/one.py: seen", "passes/one.py: small"],
        "kept": ["passes/one.py: 'a table'"],
        "caches": ["passes/two.py: g"],
        "statements": ["Load 1", "Store 0"],
        "cuda": ["frontend/jit.py:2", "frontend/jit.py:2"],
    }
