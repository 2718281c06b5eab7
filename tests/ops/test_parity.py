"""Every op of the registry against PyTorch: forward, reverse and forward derivatives, on every back end.

Nothing here names an op. The samples are in parity/samples_*.py; an op that no table names gets the generic
ones, so an op just added is tested at once. A test runs all samples of an op; one alone is named by its
number and element type, as the message of a failure does:

    pytest "tests/ops/test_parity.py::test_vjp[cpu-gelu]"
    pytest "tests/ops/test_parity.py::test_vjp[cpu-gelu-3-f64]"
"""

from __future__ import annotations

import re

import pytest
from parity.gaps import INTERNAL, KNOWN_GAPS
from parity.runner import matching, run
from smelt.ops.define import REGISTRY
from support import BACKENDS, OWN_OPS

OPS = sorted(name for name in OWN_OPS if name not in INTERNAL)
COMPILED = 2  # one in so many samples of a derivative


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All ops on all back ends, and what single samples the command line names."""
    chosen = [(name, backend, None) for name in OPS for backend in BACKENDS]
    single = re.compile(rf"::{metafunc.function.__name__}\[({'|'.join(BACKENDS)})-(\w+)-(\d+-\w+)\]$")
    for argument in metafunc.config.args:
        found = single.search(argument)
        if found:
            chosen.append((found[2], found[1], found[3]))
    ids = [f"{backend}-{name}-{sample}" if sample else f"{backend}-{name}" for name, backend, sample in chosen]
    metafunc.parametrize(("name", "backend", "sample"), chosen, ids=ids)


@pytest.fixture
def spread(name: str, backend: str, sample: str | None, request: pytest.FixtureRequest) -> int:
    """One in so many samples of a derivative is compiled: the interpreter runs the graphs of all. All are with --long,
    and those of ops with gaps, which must not hide that a gap is closed."""
    has_gaps = any(gap.startswith(f"{name}/") for gap in KNOWN_GAPS)
    whole = request.config.getoption("--long") or has_gaps or sample is not None or backend == "interp"
    return 1 if whole else COMPILED


def check(name: str, mode: str, backend: str, sample: str | None, spread: int = 1) -> None:
    unexpected: list[str] = []
    used: set[str] = set()
    for failure in run(REGISTRY[name], mode, backend, sample, spread):
        gap = matching(KNOWN_GAPS, name, mode, backend, failure.name)
        if gap is None:
            unexpected.append(f"{name}{failure.case.shown} in {failure.case.dtype}: {failure.message}")
            unexpected.append(f'    pytest "tests/ops/test_parity.py::test_{mode}[{backend}-{name}-{failure.name}]"')
        else:
            used.add(gap)
    stale = [gap for gap in KNOWN_GAPS if gap.startswith(f"{name}/{mode}/{backend}/") and gap not in used]
    if stale and sample is None:
        unexpected.append(f"no longer a gap, remove it from parity/gaps.py: {', '.join(stale)}")
    if unexpected:
        pytest.fail("\n".join(unexpected), pytrace=False)


def test_forward(name: str, backend: str, sample: str | None) -> None:
    check(name, "forward", backend, sample)


def test_vjp(name: str, backend: str, sample: str | None, spread: int) -> None:
    check(name, "vjp", backend, sample, spread)


def test_jvp(name: str, backend: str, sample: str | None, spread: int) -> None:
    check(name, "jvp", backend, sample, spread)
