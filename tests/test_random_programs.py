"""Random programs: the interpreter and the compiled code agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_programs import Drawn, Program, build, disagreement
from support import compiled, interpret

EXAMPLES = 300
LONG_EXAMPLES = 3000


@pytest.fixture(scope="module")
def examples(request: pytest.FixtureRequest) -> int:
    return LONG_EXAMPLES if request.config.getoption("--long", default=False) else EXAMPLES


def check(program: Program) -> None:
    want = interpret(program.graph, program.inputs)
    got = compiled(program.graph, program.inputs)
    message = disagreement(program, got, want)
    assert not message, f"compiled and interpreted differ: {message}\n{program.graph}"


def test_compiled_and_interpreted_agree(examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: Any) -> None:
        check(build(Drawn(data.draw)))

    run()
