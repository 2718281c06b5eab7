"""`smelt bake`: compile a function into a cache directory, so that other processes need not."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from ..backend.store.cache import OFF, VARIABLE, current, set_cache_dir
from .program import configure_function, configure_target, for_target, trace_program
from .terminal import FINE, UserError, paint, progress, size_text, time_text


def configure(parser: ArgumentParser) -> None:
    configure_function(parser)
    configure_target(parser)
    parser.add_argument("--dir", metavar="DIR", help=f"where to (default: the usual cache, see {VARIABLE})")
    parser.add_argument(
        "--verify", action="store_true", help="fail unless a fresh process, which compiles nothing, finds the code"
    )


def run(options: Namespace) -> int:
    from ..backend.compile import compile_graph, graph_key, with_own_ops
    from ..backend.targets import targets

    directory = options.dir or current().directory
    if directory is None:
        raise UserError(f"the cache is off ({VARIABLE}={OFF}): name a directory with --dir")
    set_cache_dir(directory)
    cache = current()
    with progress(f"compiling {options.function}"):
        graph, chosen = trace_program(options.function, options.args, options.grad)
        graph = with_own_ops(graph)
        chosen = for_target(chosen, options)
        executable = compile_graph(graph, chosen)
        targets.find(chosen.target).prepare()
    key, reason = graph_key(graph, chosen)
    path = None if key is None else cache.path(key)
    if key is None or path is None or not os.path.isfile(path):
        raise UserError(f"{options.function} could not be kept in {cache.directory}: {reason or 'see the warning'}")
    if options.dir:
        share(str(cache.directory))
    took = sum(executable.stages.seconds.values())
    done = "found" if executable.cache.state == "hit" else "compiled"
    print(f"{key.title} in {path}: {size_text(os.path.getsize(path))}, {done} in {time_text(took)}")
    for note in executable.cache.notes:
        print(f"{paint('note:', 'yellow')} {note}")
    if options.verify:
        check(options, str(cache.directory))
    return FINE


def share(directory: str) -> None:
    """Make the cache readable for other users, and writable only for its owner."""
    for folder, _, files in os.walk(directory):
        for path, mode in ((folder, 0o755), *((os.path.join(folder, name), 0o644) for name in files)):
            with suppress(OSError):  # files of other owners keep their modes
                os.chmod(path, mode)


def check(options: Namespace, directory: str) -> None:
    """Check that a new process finds the code."""
    command = [sys.executable, "-m", f"{__package__}.main", "cache", "why", options.function, "--dir", directory]
    command += ["--target", options.target, *(["--arch", options.arch] if options.arch else [])]
    command += ["--grad"] if options.grad else []
    command += [] if options.args is None else ["--args", *options.args]
    with progress("verifying in a fresh process"):
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0].removeprefix("error: ")
        raise UserError(f"a fresh process does not find the code: {said}")
    print(done.stdout.strip().splitlines()[-1])
