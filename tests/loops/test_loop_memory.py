"""Kernels that read what nobody wrote, leave elements of results out, or race; and those that look as if they did."""

from __future__ import annotations

import pytest
from smelt.ir.errors import VerifyError
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.verify import verify_kernel, verify_kernels


def kernel(buffers: str, *lines: str, sizes: str = "", sites: str = "") -> str:
    """The text of a kernel; `sites` names the op that checks blame."""
    head = f"kernel @k({buffers}){sizes} {{"
    return "\n".join([head, *([f"  site 0 = {sites}"] if sites else []), *(f"  {line}" for line in lines), "}"])


RACES: dict[str, tuple[str, str]] = {
    "threads write one place": (
        kernel("%y: out f32[8]", "parallel %i in 0..8 {", "store %y[%i // 2], 1.0:f32", "}"),
        "%y is written by one iteration of parallel %i and written by another",
    ),
    "lanes write one place": (
        kernel("%y: out f32[8]", "vector<4> %i in 0..8 {", "store %y[0], 1.0:f32", "}"),
        "%y is written by one iteration of vector %i and written by another",
    ),
    "a lane reads what its neighbour writes": (
        kernel("%y: out f32[9]", "vector<4> %i in 0..8 {", "%0 = load %y[%i + 1]", "store %y[%i], %0", "}"),
        "%y is written by one iteration of vector %i and read by another",
    ),
    "tiles that overlap": (
        kernel(
            "%y: out f32[65]",
            "parallel %i in 0..8 {",
            "vector<4> %j in (8 * %i)..(8 * %i + 9) {",
            "store %y[%j], 1.0:f32",
            "}",
            "}",
        ),
        "%y is written by one iteration of parallel %i and written by another",
    ),
    "tiles that overlap, of open sizes": (
        kernel(
            "%y: out f32[N]",
            "grid<256> %i in 0..((N + 7) // 8) {",
            "serial %j in (8 * %i)..(min(8 * %i + 9, N)) {",
            "store %y[%j], 1.0:f32",
            "}",
            "}",
            sizes=" where N >= 2",
        ),
        "%y is written by one iteration of grid %i and written by another",
    ),
    "data chooses what threads add to": (
        kernel(
            "%y: out f32[8], %n: i64[8]",
            "parallel %i in 0..8 {",
            "%0 = load %n[%i]",
            "%1, %2 = check %0 in 0..8 site 0",
            "store add %y[%1], 1.0:f32",
            "}",
            sites="scatter",
        ),
        "%y is written by one iteration of parallel %i and read by another",
    ),
    "threads share a row of their team": (
        kernel(
            "%y: out f32[32, 4], %x: f32[32, 4]",
            "block<64> %i in 0..1 {",
            "alloc %r: f32[4]",
            "thread %j in 0..32 {",
            "serial %k in 0..4 {",
            "%0 = load %x[%j, %k]",
            "store %r[%k], %0",
            "}",
            "serial %k in 0..4 {",
            "%1 = load %r[%k]",
            "store %y[%j, %k], %1",
            "}",
            "}",
            "}",
        ),
        "%r is written by one iteration of thread %j and written by another",
    ),
    "products that overlap": (
        kernel(
            "%y: out f32[16, 8], %x: f32[16, 4], %w: f32[4, 8]",
            "parallel %i in 0..5 {",
            "gemm %y[24 * %i; 8, 1] = %x[12 * %i; 4, 1] * %w[0; 8, 1] over (4, 8, 4)",
            "}",
        ),
        "%y is written by one iteration of parallel %i and written by another",
    ),
    "a counter read before the loop that counts": (
        kernel(
            "%y: out i64[8]",
            "serial %i in 0..1 {",
            "alloc %next: i64[1]",
            "store %next[0], 0:i64",
            "%0 = load %next[0]",
            "%1, %2 = check %0 in 0..8 site 0",
            "serial %j in 0..8 {",
            "store %y[%1], 1:i64",
            "store add %next[0], 1:i64",
            "}",
            "}",
            sites="index_add",
        ),
        "%next is loaded before a loop over %j that writes it, and used there as %1",
    ),
    "a sum read before the loop that adds to it": (
        kernel(
            "%y: out f32[2]",
            "serial %i in 0..2 {",
            "store %y[%i], 0.0:f32",
            "%0 = load %y[%i]",
            "%1 = add(%0, 1.0:f32) : f32",
            "serial %j in 0..8 {",
            "store %y[%i], %1",
            "}",
            "}",
        ),
        "%y is loaded before a loop over %j that writes it, and used there as %1",
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_conflicts(name: str) -> None:
    text, message = RACES[name]
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(text))
    assert message in str(caught.value)
    assert "^^^" in str(caught.value)


UNWRITTEN: dict[str, tuple[str, str]] = {
    "scratch": (
        kernel(
            "%y: out f32[8]",
            "parallel %i in 0..8 {",
            "alloc %r: f32[4]",
            "serial %j in 0..3 {",
            "store %r[%j], 1.0:f32",
            "}",
            "%0 = load %r[3]",
            "store %y[%i], %0",
            "}",
        ),
        "%r is read, and not all of what is read has been written",
    ),
    "scratch under a guard": (
        kernel(
            "%y: out f32[8]",
            "parallel %i in 0..8 {",
            "alloc %r: f32[1]",
            "%0 = index(%i)",
            "%1 = lt(%0, 4:i64) : bool",
            "store %r[0], 1.0:f32 if %1",
            "%2 = load %r[0]",
            "store %y[%i], %2",
            "}",
        ),
        "%r is read, and not all of what is read has been written",
    ),
    "what may not run": (
        kernel(
            "%y: out f32[N]",
            "parallel %i in 0..N {",
            "alloc %r: f32[1]",
            "serial %j in 0..(N - 2) {",
            "store %r[0], 1.0:f32",
            "}",
            "%2 = load %r[0]",
            "store %y[%i], %2",
            "}",
            sizes=" where N >= 2",
        ),
        "%r is read, and not all of what is read has been written (N = 2)",
    ),
    "sums without a zero": (
        kernel(
            "%y: out f32[8], %p: temp f32[8]",
            "serial %i in 0..8 {",
            "store add %p[%i], 1.0:f32",
            "}",
            "serial %i in 0..8 {",
            "%0 = load %p[%i]",
            "store %y[%i], %0",
            "}",
        ),
        "%p is read, and not all of what is read has been written",
    ),
    "a later iteration": (
        kernel(
            "%y: out f32[7], %p: temp f32[8]",
            "serial %i in 0..7 {",
            "%0 = load %p[%i + 1]",
            "store %y[%i], %0",
            "store %p[%i], %0",
            "}",
        ),
        "%p is read, and not all of what is read has been written",
    ),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_reads_of_what_is_not_written(name: str) -> None:
    text, message = UNWRITTEN[name]
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(text))
    assert message in str(caught.value)


GAPS: dict[str, tuple[str, str]] = {
    "the tail of a gather's self": (
        kernel("%y: out f32[1, 11]", "vector<4> %i in 0..8 {", "store %y[0, %i], 1.0:f32", "}"),
        "not all elements of %y are written",
    ),
    "every other element": (
        kernel("%y: out f32[8]", "serial %i in 0..4 {", "store %y[2 * %i], 1.0:f32", "}"),
        "not all elements of %y are written",
    ),
    "the last tile": (
        kernel(
            "%y: out f32[N]",
            "parallel %p in 0..(N // 8) {",
            "vector<4> %i in (8 * %p)..(8 * %p + 8) {",
            "store %y[%i], 1.0:f32",
            "}",
            "}",
            sizes=" where N >= 2",
        ),
        "not all elements of %y are written (N = 2)",
    ),
    "a part of a join": (
        kernel(
            "%y: out f32[8]",
            "concurrent {",
            "serial %i in 0..3 {",
            "store %y[%i], 1.0:f32",
            "}",
            "serial %i in 0..4 {",
            "store %y[4 + %i], 1.0:f32",
            "}",
            "}",
        ),
        "not all elements of %y are written",
    ),
}


@pytest.mark.parametrize("name", GAPS)
def test_results_with_gaps(name: str) -> None:
    text, message = GAPS[name]
    parsed = parse_kernel(text)
    verify_kernel(parsed)
    with pytest.raises(VerifyError) as caught:
        verify_kernels([parsed], [], ["%y"])
    assert message in str(caught.value)


def test_a_kernel_reads_what_no_other_wrote() -> None:
    first = parse_kernel(kernel("%y: out f32[8]", "serial %i in 0..7 {", "store %y[%i], 1.0:f32", "}"))
    second = parse_kernel(
        kernel("%y: f32[8], %z: out f32[8]", "serial %i in 0..8 {", "%0 = load %y[%i]", "store %z[%i], %0", "}")
    )
    with pytest.raises(VerifyError, match="%y is read, and not all of it has been written"):
        verify_kernels([first, second], [], ["%z"])
    verify_kernels([second], ["%y"], ["%z"])


FINE = {
    "flattened rows": kernel(
        "%y: out f32[N, M]",
        "grid<256> %g in 0..(N * M) {",
        "store %y[%g // M, %g % M], 1.0:f32",
        "}",
        sizes=" where N >= 2, M >= 2",
    ),
    "tiles of open sizes": kernel(
        "%y: out f32[N, M]",
        "parallel %p in 0..((N + 7) // 8) {",
        "serial %q in 0..((M + 15) // 16) {",
        "serial %i in (8 * %p)..(min(8 * %p + 8, N)) {",
        "vector<16> %j in (16 * %q)..(min(16 * %q + 16, M)) {",
        "store %y[%i, %j], 1.0:f32",
        "}",
        "}",
        "}",
        "}",
        sizes=" where N >= 2, M >= 2",
    ),
    "parts of two branches": kernel(
        "%y: out f32[N + M]",
        "concurrent {",
        "parallel %i in 0..N {",
        "store %y[%i], 1.0:f32",
        "}",
        "parallel %i in 0..M {",
        "store %y[N + %i], 1.0:f32",
        "}",
        "}",
        sizes=" where N >= 2, M >= 2",
    ),
    "earlier iterations": kernel(
        "%y: out f32[8]",
        "store %y[0], 1.0:f32",
        "serial %i in 1..8 {",
        "%0 = load %y[%i - 1]",
        "store %y[%i], %0",
        "}",
    ),
    "a row of each thread": kernel(
        "%y: out f32[8, 4]",
        "parallel %i in 0..8 {",
        "alloc %r: f32[4]",
        "vector<4> %j in 0..4 {",
        "store %r[%j], 1.0:f32",
        "}",
        "vector<4> %j in 0..4 {",
        "%0 = load %r[3 - %j]",
        "store %y[%i, %j], %0",
        "}",
        "}",
    ),
    "scratch of a thread loop": kernel(
        "%y: out f32[32, 4], %x: f32[32, 4]",
        "warp<32> %i in 0..1 {",
        "thread %j in 0..32 {",
        "alloc %r: f32[4]",
        "serial %k in 0..4 {",
        "%0 = load %x[%j, %k]",
        "store %r[%k], %0",
        "}",
        "serial %k in 0..4 {",
        "%1 = load %r[%k]",
        "store %y[%j, %k], %1",
        "}",
        "}",
        "}",
    ),
    "backwards": kernel("%y: out f32[8]", "vector<4> %i in 0..8 {", "store %y[7 - %i], 1.0:f32", "}"),
}


@pytest.mark.parametrize("name", FINE)
def test_fine_kernels(name: str) -> None:
    parsed = parse_kernel(FINE[name])
    verify_kernel(parsed)
    verify_kernels([parsed], [item.name for item in parsed.buffers if item.role == "in"], ["%y"])
