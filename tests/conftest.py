"""Options of the test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the passes give to tests/golden")
    parser.addoption("--long", action="store_true", help="many more random programs")
