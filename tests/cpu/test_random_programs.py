"""Compiled code agrees with the interpreter on random programs, and stays inside its memory.

`--long` tries ten times as many programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_programs import Program, disagreement, programs
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.types import DTYPES
from support import Guarded, compiled, evaluate, interpret

EXAMPLES = 300
LONG_EXAMPLES = 3000
CHECKED = 4  # of this many programs one is compiled with checks of all indices, too
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
        if len(program.graph.ops) % CHECKED == 0:
            # An index out of range raises here; and kernels are proved to stay in range, to write their results, and
            # not to race.
            got = compile_graph(program.graph, CompileOptions(verify=True, check_bounds=True))(program.inputs)
            message = disagreement(program, got, want)
            assert not message, f"code that checks bounds and the interpreter differ: {message}"

    check()


@pytest.mark.parametrize("columns", [1, 2, 15, 17, 31, 33, 65])
@pytest.mark.parametrize("name", ["bool", "u8", "i16", "i32", "f16", "bf16", "f32", "f64", "c64"])
def test_nothing_is_written_beyond_the_results(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last vector of a row is cut to what is left of it, in every element type and for casts into it."""
    guarded = Guarded()
    monkeypatch.setattr("smelt.backend.cpu.call.executable.empty_arrays", guarded.empty_arrays)
    wide = np.ones((5, 2, columns), np.float32)
    narrow = wide.astype(DTYPES[name].numpy)

    def function(x: Any, y: Any) -> Any:
        return x[:, 0] * x[:, 1], (y[:, 0] + 1).cast(DTYPES[name])

    evaluate(function, [narrow, wide], "cpu")
    assert len(guarded.guards) >= 4, "results are no longer made by `empty_arrays` in executable.py: adapt this test"
    assert guarded.intact()
