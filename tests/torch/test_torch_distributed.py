"""DistributedDataParallel with torch.compile(backend="smelt"): two processes on this machine, against eager."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120
WORKER = Path(__file__).parent / "distributed_worker.py"


def test_gradients_are_those_of_eager():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(WORKER), str(port)]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[0] for process in ranks]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the processes took more than {SECONDS} seconds")
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(said)
