"""Options of the test run."""

from __future__ import annotations

import os

import pytest

# Tests compile what they test, and leave the user's cache alone; those of the cache have directories of their own.
os.environ["SMELT_CACHE_DIR"] = "off"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the passes give to tests/golden")
    parser.addoption("--long", action="store_true", help="many more random programs")
