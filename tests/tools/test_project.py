"""The project's own files: one version, versions that fit their ranges, and the same checks everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import smelt
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"\bmake ([\w-]+)")


def test_the_version_is_that_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "smelt.__version__"}
    assert f"## {smelt.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_fit_the_ranges() -> None:
    """Every dependency that the Makefile installs has an exact version, inside of its range."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    exact = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"] + project["optional-dependencies"]["test"]:
        wanted = Requirement(text)
        assert exact[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_commits_are_checked_as_ci_checks_them() -> None:
    steps = STEP.findall((ROOT / ".ci" / "run").read_text())
    assert STEP.findall((ROOT / ".pre-commit-config.yaml").read_text()) == steps
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert steps and set(steps) <= set(targets)
