"""The `smelt` command. One file per subcommand; each has `configure(parser)` and `run(arguments)`.

Exit codes: 0 all fine, 1 the program or its input was wrong, 2 the command line was wrong.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ..ir.errors import SmeltError, suggest
from .terminal import FINE, WRONG_INPUT, WRONG_USAGE, UsageError, UserError, fail

# No space left, file size limit exceeded, closed descriptor.
NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

COMMANDS = {
    "demo": "train and inspect a small model",
    "dump": "print a function at any stage of compilation",
    "explain": "say what was fused, what was not, and why",
    "opt": "run passes over a program in a file",
    "run": "run a program in a file on arrays",
    "ops": "list the ops",
    "bake": "compile a function into a directory for other processes",
    "cache": "look at compiled code on disk",
    "bench": "measure smelt against PyTorch, JAX, NumPy and Numba",
    "doctor": "look at this machine and this installation",
}


class Parser(argparse.ArgumentParser):
    """argparse, with errors in smelt's shape and suggestions for misspelt options."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, **settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own method ignores errors of output.
        if message:
            (file or sys.stderr).write(message)

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Report unrecognised arguments."""
        known = [option for action in self._actions for option in action.option_strings]
        self.error(f"unknown argument {words[0]!r}{suggest(words[0], known)}")

    def error(self, message: str) -> NoReturn:
        fail(message)
        print(f"usage: {self.format_usage().removeprefix('usage: ').strip()}", file=sys.stderr)
        sys.exit(WRONG_USAGE)


def build_parsers(wanted: str | None) -> tuple[Parser, Parser]:
    """Return the parser, and that of the wanted subcommand, the only one that is imported."""
    from .. import __version__

    parser = Parser(prog="smelt", description="Look inside a tensor compiler.")
    parser.add_argument("--version", action="version", version=f"smelt {__version__}")
    chosen = parser
    subparsers = parser.add_subparsers(dest="command", metavar="command", parser_class=Parser)
    for name, summary in COMMANDS.items():
        sentence = f"{summary[0].upper()}{summary[1:]}."
        subparser = subparsers.add_parser(name, help=summary, description=sentence)
        if name == wanted:
            import_module(f"{__package__}.{name}").configure(subparser)
            chosen = subparser
    return parser, chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and flush its output; return the exit code, which also reports output that could not be
    written."""
    if sys.stdout is None:  # closed before Python started
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (as long as the process lives)
    try:
        try:
            return run_words(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, a pager) closed the pipe.
        _drop_output()
        return FINE
    except OSError as error:
        if error.errno not in NOT_WRITTEN:
            raise
        _drop_output()
        fail(f"the output could not be written: {error.strerror}")
        return WRONG_INPUT


def _drop_output() -> None:
    """Keep Python from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_words(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in words if not word.startswith("-")), None)
    if wanted is None and not words:
        build_parsers(None)[0].print_help()
        return WRONG_USAGE
    if wanted is not None and wanted not in COMMANDS:
        fail(f"unknown command {wanted!r}{suggest(wanted, COMMANDS)}; there are {', '.join(COMMANDS)}")
        return WRONG_USAGE
    parser, subparser = build_parsers(wanted)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        subparser.unknown(unknown)
    return run_command(str(wanted), options)


def run_command(name: str, options: Any) -> int:
    """Run a subcommand; a user's mistake becomes one message, an error in smelt keeps its traceback."""
    try:
        code: int = import_module(f"{__package__}.{name}").run(options)
        return code
    except UsageError as error:
        fail(error)
        return WRONG_USAGE
    except (SmeltError, UserError) as error:
        fail(error)
        return WRONG_INPUT
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
