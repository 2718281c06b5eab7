"""Replay: the text of every stage of many programs, compared between two commits.

make replay BASE=<commit>                          the working tree against a commit
make replay BASE=<commit> ARGS="--only workload"   some kinds of programs alone
make replay BASE=<commit> ARGS="--renamed block=blocked_sum"

A change that only moves or renames code shows 0 differences; any other change shows its effect on each program. The
record of a commit is kept in .replay/, so that a second comparison with it records the working tree alone. Records hold
for the machine that they were made on.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDER = Path("tests") / "replayed"
FOLDERS = ("passes", "kernels", "backend", "tools")  # beside frontend/, whose files are the package's own
# A statement's location in the user's code, which moves with every edit of the program's file.
LOCATION = re.compile(r"[ \t]+// \S+\.py:\d+(, \S+\.py:\d+)*$", re.MULTILINE)
Record = dict[str, dict[str, str]]  # the text of each stage, by program


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--only", default="", help="kinds of programs, with commas (default: all)")
    parser.add_argument("--count", type=int, default=None, help="random programs (500)")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW", help="a word that has a new name")
    parser.add_argument("--diffs", type=int, default=3, help="differences to show (3)")
    parser.add_argument("--lines", type=int, default=40, help="lines of each (40)")
    options = parser.parse_args()
    if wrong := [item for item in options.renamed if "=" not in item]:
        parser.error(f"--renamed {wrong[0]}: expected OLD=NEW")
    renamed = [(before, after) for before, _, after in (item.partition("=") for item in options.renamed)]
    chosen = (["--only", options.only] if options.only else []) + (
        ["--count", str(options.count)] if options.count is not None else []
    )
    commit = _git("rev-parse", "--verify", f"{options.base}^{{commit}}", error=f"no commit {options.base}")
    old, new = recorded_commit(commit, chosen), ROOT / ".replay" / "working-tree"
    shutil.rmtree(new, ignore_errors=True)
    record(ROOT, new, chosen)
    return compare(read(old), read(new), renamed, options.diffs, options.lines)


def recorded_commit(commit: str, chosen: Sequence[str]) -> Path:
    """Return the directory with a commit's record, made unless it is there."""
    recorder = "".join(sorted(recorder_of(commit)))
    key = hashlib.sha256(json.dumps([list(chosen), recorder]).encode()).hexdigest()[:12]
    place = ROOT / ".replay" / f"{commit[:12]}-{key}"
    if place.exists():
        return place
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit, error=f"no work tree of {commit}")
        try:
            if not (tree / RECORDER).exists():  # a commit from before replay
                shutil.copytree(ROOT / RECORDER, tree / RECORDER)
            record(tree, place.with_suffix(".partial"), chosen)
        finally:
            _git("worktree", "remove", "--force", str(tree), error="the work tree is left")
    place.with_suffix(".partial").rename(place)
    return place


def recorder_of(commit: str) -> list[str]:
    """Return the texts of a commit's own recorder, or of this tree's for a commit from before replay."""
    names = _git("ls-tree", "--name-only", commit, f"{RECORDER.as_posix()}/", error=f"no tree of {commit}").split()
    if not names:
        return [path.read_text() for path in (ROOT / RECORDER).glob("*.py")]
    return [_git("show", f"{commit}:{name}", error=f"no {name}") + "\n" for name in names if name.endswith(".py")]


def record(tree: Path, directory: Path, chosen: Sequence[str]) -> None:
    """Record the programs of a tree in a process that imports smelt and the tests from that tree."""
    shutil.rmtree(directory, ignore_errors=True)
    with tempfile.TemporaryDirectory() as packages:
        package = Path(packages) / "smelt"
        package.mkdir()
        for item in [*(tree / "frontend").iterdir(), *(tree / name for name in FOLDERS)]:
            (package / item.name).symlink_to(item)
        path = os.pathsep.join([packages, str(tree / "tests"), str(tree / "tests" / "helpers")])
        settings = [f"PYTHONPATH={path}", "SMELT_CACHE_DIR=off", "PYTHONHASHSEED=0"]
        command = ["env", *settings, sys.executable, "-m", "replayed", str(directory), *chosen]
        if subprocess.run(command, cwd=tree).returncode != 0:
            raise SystemExit(f"replay: {tree}: programs could not be recorded")


def read(directory: Path) -> Record:
    found: Record = {}
    for path in sorted(directory.glob("*.z")):
        found |= json.loads(zlib.decompress(path.read_bytes()))
    return found


def compare(old: Record, new: Record, renamed: Sequence[tuple[str, str]], diffs: int, lines: int) -> int:
    """Print a table of differences by the first stage that differs, with some of them. Return the exit code."""
    first: Counter[str] = Counter()
    shown = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            first["missing"] += 1
            print(f"----- {name}: only in the {'base' if name in old else 'working tree'}")
            continue
        stage = next(differing(old[name], new[name], renamed), None)
        if stage is None:
            continue
        first[stage] += 1
        if shown < diffs:
            shown += 1
            before, after = (plain(item.get(stage, ""), renamed) for item in (old[name], new[name]))
            diff = list(
                difflib.unified_diff(before.splitlines(), after.splitlines(), "base", "working tree", "", "", 3, "")
            )
            print(f"----- {name}: {stage} differs")
            print("\n".join(diff[:lines]))
            if len(diff) > lines:
                print(f"({len(diff) - lines} more lines)")
    errors = Counter(item["error"] for item in new.values() if "error" in item)
    for error, count in errors.most_common():
        print(f"{count} programs have no code: {error.splitlines()[0]}")
    texts = sum(map(len, new.values()))
    print(f"{len(new)} programs, {texts} texts: {first.total()} differences")
    for stage, count in first.most_common():
        print(f"  {stage:12} {count:6}")
    return 1 if first else 0


def differing(old: dict[str, str], new: dict[str, str], renamed: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the stages whose texts differ, in the order of the compiler; stages of one side only last."""
    names: dict[str, str] = dict(renamed)
    old = {names.get(stage, stage): text for stage, text in old.items()}
    for stage in new:
        if stage in old and plain(old[stage], renamed) != plain(new[stage], renamed):
            yield stage
    if "error" in old.keys() ^ new.keys():
        yield "error"


def plain(text: str, renamed: Sequence[tuple[str, str]]) -> str:
    """Return the text without places in users' code, with new names for old ones."""
    text = LOCATION.sub("", text)
    for before, after in renamed:
        text = re.sub(rf"\b{re.escape(before)}\b", after, text)
    return text


def _git(*arguments: str, error: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"replay: {error}: {ran.stderr.strip()}")
    return ran.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
