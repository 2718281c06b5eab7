"""Lowering and every loop pass keep the meaning of a program."""

from __future__ import annotations

import numpy as np
import pytest
import smelt
from loop_programs import PROGRAMS, SYMBOLIC, assert_meaning, assert_round_trip, lowered, numbers, stage_results, trace
from random_programs import Seeded, build, disagreement
from smelt import ops
from smelt.backend.interp.loops import interpret_kernel, interpret_kernels
from smelt.ir.errors import IndexRangeError
from smelt.ir.parser import parse_graph
from smelt.kernels.loop.ir import Load
from smelt.kernels.loop.parser import parse_kernels
from smelt.kernels.loop.text import print_kernel
from smelt.kernels.machine import DEFAULT, Sharing
from smelt.passes.manager import Pipeline, parse_pipeline
from smelt.passes.pipelines import LOOPS

RANDOM_PROGRAMS = range(2000, 2030)


# A machine for which small programs are scheduled as large ones are.
EAGER = DEFAULT.but(sharing=Sharing(worth=1, run=(64, 64), reduction=100, partial_elements=16))


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowering_and_loop_passes_keep_the_meaning(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays)


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs_scheduled_like_large_ones(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays, EAGER)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, SYMBOLIC[name]), arrays)


def test_random_programs() -> None:
    for seed in RANDOM_PROGRAMS:
        program = build(Seeded(seed))
        for text, wanted, found in stage_results(program.graph, program.inputs, EAGER):
            difference = disagreement(program, wanted, found)
            assert not difference, f"seed {seed}: {difference}\n{text}"


@pytest.mark.parametrize("outer", [2, 8, 13])
def test_places_of_loops_with_other_ranges(outer: int) -> None:
    """Two short loops become one, whose variable has the same name for any number of rows; x[m % 64] is at most one
    turn too far for two of them alone."""
    x = np.random.default_rng(outer).integers(-3, 4, (64, 1000)).astype(np.float32)
    y = np.random.default_rng(1).integers(-3, 4, (outer, 64, 1000)).astype(np.float32)
    np.testing.assert_array_equal(smelt.jit(lambda x, y: (x * y).sum(-1))(x, y), (x * y).sum(-1))


TRIANGLE = """kernel @k(%x: f32[8, 9000], %y: out f32[8, 9000]) {
  serial %i in 0..8 {
    serial %j in 0..(1000 * %i + 10) {
      %0 = load %x[%i, %j]
      %1 = exp(%0) : f32
      store %y[%i, %j], %1
    }
  }
}"""


def test_short_loops_whose_lengths_differ_stay_two() -> None:
    (kernel,) = parse_kernels(TRIANGLE)
    x = numbers(8, 9000)
    wanted, found = np.zeros_like(x), np.zeros_like(x)
    interpret_kernel(kernel, {"%x": x, "%y": wanted}, {})
    interpret_kernel(Pipeline(["parallelize"]).run(kernel, verify_each=False), {"%x": x, "%y": found}, {})
    np.testing.assert_array_equal(found, wanted)


DOWN_COLUMNS = """kernel @k(%x: f32[21, 4096], %y: out f32[21, 4096]) {{
  vector<64> %j in 0..4096 {{
    serial %i in 0..21 reduce %sum: f32 = add {{
      %a0 = load %x[%i, %j]
      {first}
      %e = exp(%a) : f32
      yield %e
    }}
    serial %i in 0..21 {{
      %b0 = load %x[%i, %j]
      {second}
      %f = exp(%b) : f32
      %r = div(%f, %sum) : f32
      store %y[%i, %j], %r
    }}
  }}
}}"""


def kept(first: str, second: str) -> str:
    (kernel,) = parse_kernels(DOWN_COLUMNS.format(first=first, second=second))
    return print_kernel(parse_pipeline("reuse_columns").run(kernel))


def test_values_that_are_used_again_and_again_are_compared_once() -> None:
    """A square of a square, and so on: written out as a tree, the last has 2 ** 60 leaves."""

    def squares(name: str) -> str:
        lines = [f"%{name}{at + 1} = mul(%{name}{at}, %{name}{at}) : f32" for at in range(60)]
        return "\n".join([*lines, f"%{name} = neg(%{name}60) : f32"])

    assert "load %kept0" in kept(squares("a"), squares("b"))


def test_a_quotient_by_minus_zero_is_not_the_one_by_zero() -> None:
    by_zero, by_minus_zero = (f"%{{}} = div(%{{}}0, {number}:f32) : f32" for number in ("0.0", "-0.0"))
    assert "load %kept0" in kept(by_zero.format("a", "a"), by_zero.format("b", "b"))
    assert "%kept0" not in kept(by_zero.format("a", "a"), by_minus_zero.format("b", "b"))


def test_a_wrong_index_is_reported() -> None:
    weight, tokens = numbers(6, 4), np.array([0, 6])
    fused, kernels = lowered(trace(lambda w, i: ops.embedding(w, i), [weight, tokens], None))
    with pytest.raises(IndexRangeError, match="index 6 is out of range for a dimension of size 6"):
        interpret_kernels(fused, kernels, [weight, tokens])


def test_names_of_parameters_do_not_meet_those_of_loops_and_registers() -> None:
    text = "graph @f(%i: f32[N, 3], %0: f32[N, 3], %t0: f32[3]) where N >= 2 {\n"
    text += "  %1 = add(%i, %0) : f32[N, 3]\n  %2 = mul(%1, %t0) : f32[N, 3]\n  return %2\n}"
    _, kernels = lowered(parse_graph(text))
    for kernel in kernels:
        scheduled = Pipeline(LOOPS).run(kernel, verify_each=True)
        assert_round_trip(scheduled)


def test_what_a_guard_forbids_is_not_read() -> None:
    """The flipped part of a cat is out of range in the other half: its load needs the guard too."""
    _, (kernel,) = lowered(trace(lambda x: ops.cat([ops.flip(x, (0,)), x], 0), [numbers(4)], None))
    loads = [item for item in kernel.body[0].body if isinstance(item, Load)]  # type: ignore[union-attr]
    assert len(loads) == 2 and all(load.guard is not None for load in loads)
