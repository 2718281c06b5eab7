"""The nominal machine: presets, how a host chooses one, and that detected caches are for people alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from smelt.backend.cpu import host as host_module
from smelt.backend.cpu.host import Processor
from smelt.kernels.machine import PRESETS, machine

ROOT = Path(__file__).resolve().parents[2]
AVX512 = "+avx2,+avx512f,+avx512bw,+avx512vl"


@pytest.mark.parametrize(
    ("triple", "features", "name", "dots"),
    [
        ("x86_64-unknown-linux-gnu", AVX512, "x86-64-v4", set()),
        ("x86_64-unknown-linux-gnu", f"{AVX512},+avx512bf16", "x86-64-v4", {"bf16"}),
        ("x86_64-unknown-linux-gnu", "+avx2,+avx512f", "x86-64-v3", set()),
        ("x86_64-unknown-linux-gnu", "+sse2", "x86-64", set()),
        ("aarch64-unknown-linux-gnu", "+neon", "aarch64", set()),
        ("arm64-apple-darwin23-elf", "+neon", "aarch64", set()),
    ],
)
def test_features_choose_the_machine(triple: str, features: str, name: str, dots: set[str]) -> None:
    found = Processor(triple, "some", features, "22.1.0").machine
    assert (found.name, found.dot_types) == (name, dots)


def test_width() -> None:
    """Another width has the registers that its tiles use, and no narrow dot products; its name finds it again."""
    full = Processor("x86_64-unknown-linux-gnu", "some", f"{AVX512},+avx512bf16", "22.1.0").machine
    assert full.with_vector_bits(None) is full and full.with_vector_bits(512) is full
    half = full.with_vector_bits(256)
    assert (half.vector_bits, half.vector_bytes, half.registers, half.dot_types) == (256, 32, 16, frozenset())
    assert half.with_vector_bits(512).registers == 32
    assert machine(half.name) == half and machine(half.with_vector_bits(128).name).vector_bits == 128
    assert all(machine(name) is preset for name, preset in PRESETS.items())


def test_detected_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K")]
    ):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", 128)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(host_module, "CACHES", tmp_path)
    found = host_module.detected_sizes()
    assert (found["l1"], found["l2"], found["line"]) == (48 << 10, 2 << 20, 128) and "l3" not in found
    monkeypatch.setattr(host_module, "CACHES", tmp_path / "missing")
    assert not {"l1", "l2", "l3", "line"} & host_module.detected_sizes().keys()


def test_detected_sizes_are_for_people() -> None:
    """Tiles that depended on them would give other bits on another machine with the same instruction set."""
    readers = {
        path.relative_to(ROOT).as_posix()
        for folder in ("frontend", "kernels", "passes", "backend", "tools")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Name, ast.Attribute, ast.alias))
        and "detected_sizes" in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))
    }
    assert readers == {"tools/doctor.py"}
