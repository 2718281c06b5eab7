"""Scans and the places of extremes: along vectors, in chunks, over threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import smelt
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.host import host
from smelt.backend.interp.loops import interpret_kernels
from smelt.kernels.loop.ir import Kernel, Loop, prefixes, walk
from smelt.kernels.machine import DEFAULT, Sharing
from smelt.passes.fusion.fuse import fuse
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.stages import cpu_loops, schedule
from support import evaluate, trace

RANDOM = np.random.default_rng(3)
SHAPES = [((50,), 0), ((3, 41), 1), ((41, 3), 0), ((2, 37, 5), 1), ((5, 1), 1), ((1, 9), 0)]
SCANS = {"add": ops.cumsum, "mul": ops.cumprod, "logaddexp": ops.logcumsumexp, "max": ops.cummax, "min": ops.cummin}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lines are cut into chunks, too."""
    sharing = Sharing(scan_chunk=16, scan_length=30)
    monkeypatch.setattr(host(), "machine", host().machine.but(sharing=sharing))


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    data = RANDOM.uniform(-1.2, 1.2, shape)
    return (data * 3).astype(dtype) if np.dtype(dtype).kind == "i" else data.astype(dtype)


def loops_of(function: Any, array: np.ndarray) -> list[Kernel]:
    seen: dict[str, Any] = {}
    compile_graph(trace(function, [array]), CompileOptions(vector_bits=256, verify=True), seen.__setitem__)
    return list(seen["loops"])


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("chunks", [False, True])
def test_scans(name: str, chunks: bool, bits: int, request: pytest.FixtureRequest) -> None:
    if chunks:
        request.getfixturevalue("short")
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        if name == "logaddexp" and np.dtype(dtype).kind == "i":
            continue
        for shape, dim in SHAPES:
            data = numbers(shape, dtype)
            wanted = evaluate(lambda x, dim=dim: SCANS[name](x, dim), [data], "interp")
            compiled = smelt.jit(lambda x, dim=dim: SCANS[name](x, dim), options=CompileOptions(vector_bits=bits))
            found = compiled(data)
            for left, right in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
                np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [False, True])
def test_loops_of_scans(chunks: bool, request: pytest.FixtureRequest) -> None:
    if chunks:
        request.getfixturevalue("short")
    for shape, dim in SHAPES:
        data = numbers(shape, np.float64)
        graph = Pipeline(GRAPH).run(trace(lambda x, dim=dim: ops.cumsum(x, dim), [data]))
        fused = fuse(graph)
        kernels = [schedule(kernel, cpu_loops(DEFAULT), True) for kernel in lower(fused)]
        np.testing.assert_allclose(interpret_kernels(fused, kernels, [data])[0], np.cumsum(data, dim))


def test_scans_along_memory_and_across_it_run_on_lanes() -> None:
    for dim in (0, 1):
        (kernel,) = loops_of(lambda x, dim=dim: ops.cumsum(x * 2, dim), np.zeros((1000, 1000), np.float32))
        (along,) = [item for item in walk(kernel.body) if isinstance(item, Loop) and prefixes(item)]
        assert along.kind == ("vector" if dim == 1 else "serial")
        vectors = [item for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "vector"]
        assert [item.width for item in vectors] == [8 if dim == 1 else 32]
        assert any(isinstance(item, Loop) and item.kind == "parallel" for item in kernel.body)


def test_a_long_line_is_shared_out_with_the_same_bits() -> None:
    data = numbers((200_003,), np.float32)
    (kernel,) = loops_of(lambda x: ops.cumsum(x, 0), data)
    assert [item.kind for item in kernel.body if isinstance(item, Loop)].count("parallel") == 2
    compiled = smelt.jit(lambda x: ops.cumsum(x, 0))
    results = []
    for count in (1, 2):
        with smelt.threads(count):
            results.append(compiled(data))
    np.testing.assert_array_equal(results[0], results[1])
    exact = np.cumsum(data.astype(np.float64))
    # Sums of lanes and of chunks: better than one after the other.
    assert np.abs(results[0] - exact).max() <= np.abs(np.cumsum(data) - exact).max()


def test_prefixes_keep_nan_and_infinities() -> None:
    data = numbers((3, 40), np.float32)
    data[0, 7], data[1, 9], data[1, 11], data[2, 5] = np.nan, np.inf, -np.inf, -np.inf
    for function in (ops.cumsum, ops.cumprod, ops.logcumsumexp):
        found = smelt.jit(lambda x, function=function: function(x, 1))(data)
        (wanted,) = evaluate(lambda x, function=function: function(x, 1), [data], "interp")
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# The places of extremes.

EXTREMES = {"argmax": (ops.argmax, np.argmax), "argmin": (ops.argmin, np.argmin)}


def cases(dtype: Any) -> list[np.ndarray]:
    data = numbers((100_003,), dtype)
    found = [data, np.round(data)]
    if np.dtype(dtype).kind == "f":
        spoilt = data.copy()
        spoilt[[500, 99_000]] = np.nan
        found += [spoilt, np.full_like(data, -np.inf), np.full_like(data, np.inf), np.full_like(data, np.nan)]
        last = np.full_like(data, -np.inf)
        last[-1] = np.nan
        found.append(last)
    else:
        found += [np.full_like(data, np.iinfo(dtype).min), np.full_like(data, np.iinfo(dtype).max)]
    return found


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("name", EXTREMES)
def test_the_first_of_the_extremes(name: str, dtype: Any, bits: int) -> None:
    function, wanted = EXTREMES[name]
    whole = smelt.jit(lambda x: function(x), options=CompileOptions(vector_bits=bits))
    rows = smelt.jit(lambda x: (function(x, 1), function(x, 0)), options=CompileOptions(vector_bits=bits))
    for data in cases(dtype):
        assert whole(data) == wanted(data)
        table = data[:99_900].reshape(300, 333)
        along, across = rows(table)
        np.testing.assert_array_equal(along, wanted(table, 1))
        np.testing.assert_array_equal(across, wanted(table, 0))


def test_the_place_of_an_extreme_is_looked_for_by_all_threads() -> None:
    (kernel,) = loops_of(lambda x: (ops.argmax(x, 0), ops.amax(x, 0)), np.zeros(1 << 20, np.float32))
    first = kernel.body[0]
    assert isinstance(first, Loop) and first.kind == "parallel"


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("size", [0, 3])
def test_extremes_of_complex_numbers_are_refused(name: str, size: int) -> None:
    with pytest.raises(smelt.SmeltError, match=f"{name}: self is c64, accepted are bool"):
        getattr(ops, name)(np.ones(size, np.complex64), 0)
