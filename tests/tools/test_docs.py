"""The documents tell the truth: their Python blocks run, their commands work, their links lead somewhere.

The Python blocks of one document are one program. Commands run in the same folder, after it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = ROOT / "docs" / "decisions"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)")


def blocks(document: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(document.read_text(encoding="utf-8")) if kind == language]


def commands(document: Path) -> list[str]:
    """The commands in the shell blocks that can be tried without installing anything."""
    joined = "\n".join(blocks(document, "sh")).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith(("smelt ", "python "))]


def run(words: list[str], folder: Path, text: str | None = None) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    shown = subprocess.run(
        words, cwd=folder, input=text, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert shown.returncode == 0, f"{shlex.join(words)}\n{shown.stdout[-2000:]}\n{shown.stderr[-4000:]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_run(document: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    program = blocks(document, "python")
    if program:
        (tmp_path / "document.py").write_text("\n\n".join(program))
        run([sys.executable, "document.py"], tmp_path)
    for command in commands(document):
        run(["bash", "-c", command], tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    run([sys.executable, str(example)], tmp_path)


def test_the_page_of_ops_is_that_of_the_registry(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "smelt", "ops", "--markdown"]
    page = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "ops.md").read_text() == page, "run: smelt ops --markdown > docs/ops.md"


def test_every_decision_is_listed() -> None:
    listed = LINK.findall((DECISIONS / "README.md").read_text())
    pages = {path.name for path in DECISIONS.glob("*.md")} - {"README.md"}
    assert pages <= set(listed), f"add to {DECISIONS / 'README.md'}: {', '.join(pages - set(listed))}"
