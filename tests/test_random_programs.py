"""Random programs: the interpreter and the compiled code agree. `--long` tries ten times as many."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_programs import Program, disagreement, programs
from support import compiled, interpret

EXAMPLES = 300
LONG_EXAMPLES = 3000
# Parts run on different workers, and start from different seeds.
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_and_interpreted_agree(part: int, request: pytest.FixtureRequest) -> None:
    total = LONG_EXAMPLES if request.config.getoption("--long") else EXAMPLES

    @seed(part)
    @settings(
        max_examples=total // PARTS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def check(program: Program) -> None:
        want = interpret(program.graph, program.inputs)
        got = compiled(program.graph, program.inputs)
        message = disagreement(program, got, want)
        assert not message, f"compiled and interpreted differ: {message}"

    check()
