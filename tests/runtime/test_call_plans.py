"""All executors of a call plan agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba_cuda")


def test_executors_agree() -> None:
    """In a process that has the simulator."""
    path = str(Path(__file__).parent / "call_plans.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--show-capture=no", path]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
