"""Exceptions that handlers of signals raise while smelt compiles and calls, by interrupts.py in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT, LONG = 25, 2000  # signals of each kind


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_nothing_is_lost_after_interrupts_and_alarms(request: pytest.FixtureRequest) -> None:
    is_long = request.config.getoption("--long")
    count, seconds = (LONG, 3600) if is_long else (SHORT, 100)
    script = Path(__file__).with_name("interrupts.py")
    environment = os.environ | {"SMELT_CACHE_DIR": "off", "SECONDS": str(seconds)}
    done = subprocess.run(
        [sys.executable, script, str(count), str(count)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{count} interrupts {count} alarms ")
