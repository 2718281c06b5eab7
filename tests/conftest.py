"""Options of the test run, and fixtures that several of its files need."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

# Tests compile what they test, and leave the user's cache alone; those of the cache have directories of their own.
os.environ["SMELT_CACHE_DIR"] = "off"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the passes give to tests/golden")
    parser.addoption("--long", action="store_true", help="many more random programs")


@pytest.fixture
def fresh_torch() -> Iterator[None]:
    """Nothing compiled before, no statistics, known random numbers."""
    import smelt.torch
    import torch

    torch._dynamo.reset()
    torch.manual_seed(0)
    smelt.torch.reset_stats()
    yield
    torch._dynamo.reset()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache directory of its own, and none behind it."""
    place = tmp_path / "cache"
    import smelt

    smelt.set_cache_dir(place)
    yield place
    smelt.set_cache_dir(None)


@pytest.fixture(scope="session", autouse=True)
def proofs() -> Iterator[None]:
    """SMELT_TEST_VERIFY=n: one of n programs that tests compile for the CPU is verified after every pass, and its
    memory is proved; 1 is all. The program decides, so that a failure stays. All of them take a third longer."""
    every = int(os.environ.get("SMELT_TEST_VERIFY", "0"))
    if not every:
        yield
        return
    import smelt.backend.cpu.build as cpu

    build = cpu.build

    def verified(graph: Any, options: Any, *rest: Any) -> Any:
        chosen = zlib.crc32(str(graph).encode()) % every == 0
        return build(graph, replace(options, verify=True) if chosen else options, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "build", verified)
        yield
