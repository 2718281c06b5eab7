"""Bytes that CUDA kernels move, counted in PTX: in some written by hand, and in that of smelt's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from smelt import ops

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: it comes with the extra [cuda]")

from smelt.backend.cuda.toolchain.compiler import architectures  # noqa: E402
from smelt.tools.cuda import compare  # noqa: E402
from smelt.tools.cuda.traffic import Traffic, parse, traffic  # noqa: E402

KERNEL = """
.visible .entry copy(
	.param .u64 copy_param_0,
	.param .u64 copy_param_1,
	.param .u32 copy_param_2
)
.maxntid 64, 1, 1
{
	.reg .pred 	%p<3>;
	ld.param.u64 	%rd1, [copy_param_0];
	ld.param.u64 	%rd2, [copy_param_1];
	ld.param.u32 	%r1, [copy_param_2];
	mov.u32 	%r2, %ctaid.x;
	mov.u32 	%r3, %tid.x;
	mad.lo.s32 	%r4, %r2, 64, %r3;
	setp.ge.s32 	%p1, %r4, %r1;
	@%p1 bra 	$L_end;
$L_loop:
	mul.wide.s32 	%rd3, %r4, STEP;
	add.s64 	%rd4, %rd2, %rd3;
	LOADS
	cvta.to.global.u64 	%rd5, %rd1;
	add.s64 	%rd6, %rd5, %rd3;
	st.shared.f32 	[tile], %f1;
	st.global.f32 	[%rd6], %f1;
	mov.u32 	%r5, %nctaid.x;
	shl.b32 	%r6, %r5, 6;
	add.s32 	%r4, %r4, %r6;
	setp.lt.s32 	%p2, %r4, %r1;
	@%p2 bra 	$L_loop;
$L_end:
	ret;
}
"""
ONCE = "ld.global.f32 	%f1, [%rd4];"


def counted(loads: str = ONCE, step: int = 4, size: int = 256, blocks: int = 2, sampled: int = 2) -> Traffic:
    (function,) = parse(KERNEL.replace("LOADS", loads).replace("STEP", str(step))).values()
    assert function.threads == 64
    return traffic(function, [size], blocks, range(sampled))


def test_each_element_once() -> None:
    assert counted() == Traffic(4 * 256, 4 * 256, 4 * 256)


def test_iterations_are_followed() -> None:
    """Two blocks go over the elements twice; threads beyond the end do nothing."""
    assert counted(blocks=4, sampled=4) == counted()
    assert counted(size=32) == Traffic(128, 128, 128)
    assert counted(sampled=1).moved == counted().moved // 2


def test_repeated_loads_count() -> None:
    assert counted(f"{ONCE}\n	{ONCE}").loads == 2 * counted().loads


def test_scattered_elements_cost_sectors() -> None:
    """One of every 64 bytes: each thread has a sector of its own. Threads that load the same share it."""
    assert counted(step=64).loads == 32 * 256
    assert counted("ld.global.f32 	%f1, [%rd2];").loads == 32 * 256 // 32


def test_wide_loads() -> None:
    assert counted("ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd4+-32];", step=16).loads == 16 * 256


def test_guards() -> None:
    """A predicate before the instruction: here the first lane of each warp."""
    guarded = f"and.b32 	%r7, %r3, 31;\n	setp.ne.s32 	%p3, %r7, 0;\n	@!%p3 {ONCE}"
    assert counted(guarded).loads == 32 * 256 // 32


def test_data_that_decides_about_addresses() -> None:
    """What is loaded is 0; what cannot be followed is an error."""
    loaded = "ld.global.u32 	%r7, [%rd4];\n	mul.wide.s32 	%rd7, %r7, 4;\n	add.s64 	%rd8, %rd2, %rd7;\n"
    assert counted(f"{loaded}	ld.global.f32 	%f1, [%rd8];").loads == 4 * 256 + 32 * 256 // 32
    with pytest.raises(NotImplementedError, match="depend on popc"):
        counted(f"{loaded.replace('mul.wide.s32', 'popc.b32')}	ld.global.f32 	%f1, [%rd8];")


# Bytes for each element that a program cannot do without, and what it may need beside them.
EXPECTED = {
    "pointwise": (16, 0),
    "softmax": (8, 0),
    "layer_norm_gelu": (8, 8),  # weight and bias come from a cache
    "column_sum": (4, 4 / 256),
    "transpose_add": (12, 0),
    "cross_entropy": (4, 4.01),  # rows that are too long to be kept are read twice
    "adam": (28, 0),
    "matmul": (4 * 2 / 64, 4 / 1024),
}


@pytest.mark.parametrize("pair", compare.PAIRS, ids=lambda pair: pair.name)
def test_own_kernels(pair: Any) -> None:
    own, grid = compare.own_code(pair, "sm_80")
    least, more = EXPECTED[pair.name]
    found, _ = compare.moved(own.function, pair, (), grid)
    assert least <= found <= least + more


@pytest.mark.parametrize("architecture", architectures())
def test_machine_code_has_the_same_accesses(architecture: str) -> None:
    """A row of 1024 is 32 elements for each thread, in the PTX that is walked and in machine code."""
    pair = next(item for item in compare.PAIRS if item.name == "softmax")
    own, grid = compare.own_code(pair, architecture)
    (segment,) = own.segments
    found = traffic(own.function, (), grid, [0])
    assert (found.loads, found.stores) == (segment.loads * 128, segment.stores * 128) == (4096 * 4, 4096 * 4)


def changed(pair: compare.Pair, program: Callable[..., Any]) -> compare.Measured:
    return compare.own_code(compare.Pair(**vars(pair) | {"program": program}), "sm_80")[0]


def test_more_bytes_are_a_failure() -> None:
    """Where smelt's kernel takes the place of the hand-written one, one that reads more fails."""
    pair = compare.Pair(**vars(compare.PAIRS[0]) | {"sizes": ()})
    own, grid = compare.own_code(pair, "sm_80")
    row, good = compare.compared(pair, own, own, grid)
    assert good and row[5:7] == ("16.000", "16.000") and row[-1] == ""
    less = changed(pair, lambda x, y, z: ops.relu(x * 3 + y) / 2)
    row, good = compare.compared(pair, own, less, grid)
    assert not good and "more bytes" in row[-1] and row[5:7] == ("16.000", "12.000")
