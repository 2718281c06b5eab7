"""Time of a new process to its first result with all code in the cache: this module is that process.

`smelt bench --compile` fills a cache with a workload and then runs this module, which reads a request as JSON from
standard input and writes the times to standard output. Loading smelt and NumPy does not count, and neither does the
time in the program's native code. Modules that smelt loads when it first compiles do count, from Python's bytecode, as
in any process but the first after an installation: the process that fills the cache writes that too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from ... import set_cache_dir
from ...backend.cpu.runtime.threads import Pool
from .contenders import prepare
from .define import Workload
from .suite import all_workloads

PROCESSES = 5  # new processes; the fastest counts, since one is easily disturbed


def hit_seconds(workload: Workload, size: str, threads: int) -> dict[str, Any]:
    """Compile a workload into an empty cache in one process, and load it in others; return the fastest time."""
    with tempfile.TemporaryDirectory() as folder:
        request = {"workload": workload.name, "size": size, "threads": threads, "cache": os.path.join(folder, "code")}
        times: list[float] = []
        # Python writes bytecode, whatever the environment says.
        start = (
            f"import runpy, sys; sys.dont_write_bytecode = False; runpy.run_module({__spec__.name!r}, None, '__main__')"
        )
        command = [sys.executable, "-X", f"pycache_prefix={os.path.join(folder, 'bytecode')}", "-c", start]
        for number in range(1 + PROCESSES):
            done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
            if done.returncode:
                return {"hit_error": (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]}
            found = json.loads(done.stdout.splitlines()[-1])
            if not number:
                continue  # the first process compiles
            if found["state"] != "hit":
                return {"hit_error": found["cache"]}
            times.append(found["seconds"])
    return {"hit": min(times)}


def main() -> None:
    request = json.load(sys.stdin)
    from . import names_smelt  # noqa: F401

    set_cache_dir(request["cache"])
    workload = all_workloads()[request["workload"]]
    inputs = workload.make_inputs(request["size"])
    run, runs = Pool.run, []

    def timed(pool: Pool, function: Any, context: int) -> None:
        begin = time.perf_counter()
        run(pool, function, context)
        runs.append(time.perf_counter() - begin)

    Pool.run = timed  # type: ignore[method-assign, assignment]
    begin = time.perf_counter()
    ready = prepare("smelt", workload, inputs, request["threads"])
    ready.call()
    seconds = time.perf_counter() - begin - sum(runs)
    cache = ready.call.func.report().cache  # type: ignore[attr-defined]
    print(json.dumps({"seconds": seconds, "state": cache.state, "cache": str(cache)}))


if __name__ == "__main__":
    main()
