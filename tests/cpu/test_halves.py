"""f16 and bf16 between memory and registers: conversions against NumPy, and copies that keep every bit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.cpu.codegen import halves
from smelt.backend.cpu.codegen.scalars import ScalarEmitter
from smelt.backend.cpu.host import host
from smelt.backend.cpu.image.image import Image
from smelt.backend.cpu.llvm.engine import engine
from smelt.backend.cpu.llvm.parts import Part
from smelt.backend.cpu.llvm.types import vector

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
WAYS = [("bits", 128), *([("f16c", 256)] if "f16c" in host().instructions else [])]
WAYS += [("f16c", 512)] if host().machine.vector_bits == 512 else []
ALL = np.arange(1 << 16, dtype=np.uint16)


def convert(
    function: Callable[..., str], source: np.ndarray, types: tuple[str, str], result: type, lanes: int, bits: int
) -> Any:
    """A conversion of whole arrays, so many lanes at a time."""
    lines: list[str] = []
    declarations: set[str] = set()
    emitter = ScalarEmitter(lines.append, declarations, lambda some, yes, no: yes(), bits)
    old, new = (vector(item, lanes) for item in types)
    found = function(emitter, emitter.instruction(f"load {old}, ptr %p, align 1"), lanes)
    body = "\n  ".join([*lines, f"store {new} {found}, ptr %q, align 1", "ret void"])
    text = "\n".join([f"define void @f(ptr %p, ptr %q) {{\n  {body}\n}}", *sorted(declarations)])
    image = Image(engine().object_code([Part(text, plain=False)]))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(image["f"])
    results = np.empty(len(source), result)
    for at in range(0, len(source), lanes):
        call(source[at:].ctypes.data, results[at:].ctypes.data)
    return results


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_conversions_are_numpys(monkeypatch: pytest.MonkeyPatch, way: tuple[str, int], lanes: int) -> None:
    how, bits = way
    monkeypatch.setattr(halves, "_instruction", lambda: how)
    numbers = ALL.view(np.float16)
    if lanes > 8:  # all of them
        loaded = convert(halves.load, ALL, ("i16", "float"), np.float32, lanes, bits)
        np.testing.assert_array_equal(loaded, numbers.astype(np.float32))
    exact = np.unique(np.abs(numbers[np.isfinite(numbers)])).astype(np.float32)
    middles = (exact[1:] + exact[:-1]) / 2
    special = np.float32([0, 65504, 65519.996, 65520, 65536, 1e38, np.inf, 2.0**-25, 2.0**-26, 1e-45])
    tried = np.concatenate(
        [middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9)), special]
    )
    tried = np.resize(np.concatenate([tried, -tried])[:: 1 if lanes > 8 else 31], 64 * 3000 if lanes > 8 else 64 * 50)
    with np.errstate(over="ignore"):
        wanted = tried.astype(np.float16)
    np.testing.assert_array_equal(
        convert(halves.store, tried, ("float", "i16"), np.uint16, lanes, bits), wanted.view(np.uint16)
    )
    nans = np.resize(np.uint32([0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0xFF801234]), 64).view(np.float32)
    assert np.isnan(convert(halves.store, nans, ("float", "i16"), np.uint16, lanes, bits).view(np.float16)).all()


COPIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cat": (lambda x, y, i: ops.cat([x, y]), lambda x, y, i: np.concatenate([x, y])),
    "flip": (lambda x, y, i: ops.flip(x, (0,)), lambda x, y, i: x[::-1]),
    "index": (lambda x, y, i: ops.index_select(x, 0, i), lambda x, y, i: x[i]),
    "gather": (lambda x, y, i: ops.gather(x, 0, i), lambda x, y, i: x[i]),
    "stack": (lambda x, y, i: ops.stack([x, y], 1), lambda x, y, i: np.stack([x, y], 1)),
    "pad": (lambda x, y, i: ops.pad(x, (2, 3)), lambda x, y, i: np.pad(x, (2, 3))),
    "where": (lambda x, y, i: ops.where(i > 3, x, y), lambda x, y, i: np.where(i > 3, x, y)),
    "roll": (lambda x, y, i: ops.roll(x, 2, 0), lambda x, y, i: np.roll(x, 2)),
    "repeat": (lambda x, y, i: ops.repeat(x, (3,)), lambda x, y, i: np.tile(x, 3)),
    "tril": (lambda x, y, i: ops.tril(ops.stack([x, y])), lambda x, y, i: np.tril(np.stack([x, y]))),
    "slices": (lambda x, y, i: ops.cat([x[1:], x[:1]]), lambda x, y, i: np.concatenate([x[1:], x[:1]])),
    "scatter": (lambda x, y, i: ops.scatter(x, 0, i, y), lambda x, y, i: y[np.argsort(i)]),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda item: item.__name__)
def test_copies_keep_the_bits_of_signalling_nans(dtype: Any, name: str) -> None:
    function, expected = COPIES[name]
    for length in (1, 37):
        bits = np.arange(length, dtype=np.uint16) + (0x7D01 if dtype is np.float16 else 0x7F81)
        bits[::2] |= 0x8000
        other, index = bits[::-1] ^ 3, np.arange(length)[::-1].copy()
        found = smelt.jit(function)(bits.view(dtype), other.view(dtype), index)
        np.testing.assert_array_equal(np.asarray(found).view(np.uint16), expected(bits, other, index))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda item: item.__name__)
def test_transposes_keep_the_bits_of_signalling_nans(dtype: Any) -> None:
    matrix = (np.arange(35 * 40, dtype=np.uint16).reshape(35, 40) & 0x3F) + (0x7D01 if dtype is np.float16 else 0x7F81)
    turned = smelt.jit(lambda m: ops.cat([m.mT, m.mT]))(matrix.view(dtype))
    np.testing.assert_array_equal(np.asarray(turned).view(np.uint16), np.concatenate([matrix.T, matrix.T]))
