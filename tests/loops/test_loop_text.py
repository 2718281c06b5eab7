"""The loop IR's text, both ways."""

from __future__ import annotations

import numpy as np
import pytest
from loop_programs import OWN, PACKED, PRODUCT, assert_round_trip, inside
from smelt.ir.errors import ParseError
from smelt.ir.types import f32, f64, i64
from smelt.kernels.loop.ir import Literal
from smelt.kernels.loop.parser import parse_kernel, parse_kernels
from smelt.kernels.loop.text import kernel_hash, print_kernel
from smelt.kernels.loop.verify import verify_kernel

EVERYTHING = """
kernel @everything(
  %x: f32[N, 64],
  %y: out bf16[N, 64],
  %at: i64[N],
  %z: out c64[N],
  %p: temp f32[16],
) where N >= 2, N <= 4096 {
  site 0 = gather  // model.py:12
  concurrent {
    parallel<8> %i in 0..N {
      alloc %row: f32[64]
      %0 = load %at[%i]
      %1, %2 = check %0 in 0..N wrap site 0
      vector<16> %j in 0..64 reduce %5: f32 = max, %6: f32, %7: i64 = argmax {
        %3 = load %x[%1, %j] if %2
        store %row[%j], %3
        %4 = index(64 * %i + %j)
        yield %3, %3, %4
      }
      vector<8> %j in 0..64 {
        %8 = load %x as [64 * N][64 * %i + %j]
        %9 = sub(%8, %5) : f32
        %10 = round_bf16(%9) : f32
        store %y as [64 * N][64 * %i + %j], %10 if %2
      }
    }
    serial %k in 0..((N + 3) // 4) {
      store %z[min(4 * %k, N - 1)], (0.0-1.5j):c64
    }
  }
  serial %k in 0..16 {
    %11 = prefix max(0.1:f32) from -inf:f32
    store %p[%k], %11
  }
}
""".strip()


@pytest.mark.parametrize("text", [EVERYTHING, PRODUCT, PACKED, OWN], ids=["everything", "product", "packed", "own"])
def test_text_round_trips(text: str) -> None:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    assert print_kernel(kernel) == text
    assert_round_trip(kernel)


def test_several_kernels_in_one_text() -> None:
    kernels = parse_kernels(f"// two of them\n{EVERYTHING}\n\n{PRODUCT}\n")
    assert [kernel.name for kernel in kernels] == ["everything", "product"]


def test_ranges_follow_from_loops() -> None:
    """Divisions of a loop's variable vanish where its bounds decide them."""
    text = "kernel @k(%y: out i64[8]) {\n  serial %i in 0..8 {\n    %0 = index(%i // 8 + %i % 8)\n"
    text += "    store %y[%i], %0\n  }\n}"
    assert "%0 = index(%i)\n" in print_kernel(parse_kernel(text))


def test_locations_of_sites() -> None:
    kernel = parse_kernel(EVERYTHING)
    assert str(kernel.sites[0].location) == "model.py:12"
    assert "model.py" not in print_kernel(kernel, locations=False)
    assert parse_kernel(print_kernel(kernel, locations=False)).sites[0].location is None


def test_literals_are_what_their_type_has() -> None:
    assert Literal(0.1, f32) == Literal(float(np.float32(0.1)), f32)
    assert Literal(0, f32) == Literal(0.0, f32) and isinstance(Literal(0, f32).value, float)
    assert Literal(-0.0, f32) != Literal(0.0, f32)
    assert Literal(np.int64(3), i64).value == 3 and type(Literal(np.int64(3), i64).value) is int
    assert Literal(1e300, f32).value == float("inf")
    assert Literal(0.1, f64).value == 0.1


def test_hash_is_of_the_content() -> None:
    one = "kernel @{name}(%x: f32[4], %{name}.partial0: temp f32[4]) {{\n  serial %i in 0..{stop} {{\n"
    one += "    %0 = load %x[%i]\n    store %{name}.partial0[%i], %0\n  }}\n}}"
    first = parse_kernel(one.format(name="k0_sum", stop=4))
    assert kernel_hash(first) == kernel_hash(parse_kernel(one.format(name="k1_sum", stop=4)))
    assert kernel_hash(first) != kernel_hash(parse_kernel(one.format(name="k0_sum", stop=3)))
    sited = parse_kernel(EVERYTHING)
    assert kernel_hash(sited) == kernel_hash(parse_kernel(EVERYTHING.replace("model.py:12", "other.py:1")))


NOT_KERNELS: dict[str, tuple[str, str]] = {
    "no kernel": ("graph @f() {}", "expected 'kernel', found 'graph'"),
    "text behind it": (inside() + " }", "expected the end of the text"),
    "unknown register": (inside("store %y[%i], %0"), "%0 is not defined here"),
    "unknown variable": (inside("%0 = load %x[%i, %j]"), "%j is not defined here"),
    "unknown buffer": (inside("%0 = load %z[%i]"), "%z is no buffer of this kernel"),
    "register in an index": (inside("%0 = load %n[%i]", "%1 = load %y[%0]"), "%0 is not defined here"),
    "defined twice": (inside("%0 = load %x[%i, 0]", "%0 = load %x[%i, 1]"), "%0 is defined twice"),
    "name of a buffer": (inside("%x = load %y[%i]"), "%x is defined twice"),
    "name of the loop": (inside("serial %i in 0..2 {", "}"), "%i is defined twice"),
    "behind its loop": (
        inside("serial %j in 0..2 {", "%0 = load %y[%j]", "}", "store %y[0], %0"),
        "%0 is not",
    ),
    "no such op": (inside("%0 = expp(1.0:f32) : f32"), "expp is no scalar op (did you mean 'exp'?)"),
    "no such type": (inside("%0 = exp(1.0:f31) : f32"), "unknown dtype 'f31'"),
    "number without type": (inside("store %y[%i], 1.0"), "a number needs its type, as in 0.5:f32"),
    "complex number": (inside("store %y[%i], (1.0+2.0j):f32"), "a complex number is no f32"),
    "no such combiner": (inside("store plus %y[%i], 1.0:f32"), "plus is no combiner"),
    "no such size": (inside("serial %j in 0..N {", "}"), "'N' is not a size"),
    "float in a size": (inside("store %y[0.5], 1.0:f32"), "expected a size, found 0.5"),
    "loop kind": (inside("unrolled %j in 0..4 {", "}"), "expected a statement"),
    "width": (inside("vector<4.5> %j in 0..4 {", "}"), "expected the loop's width"),
    "too few yields": (
        inside("serial %j in 0..4 reduce %0: f32 = add {", "}"),
        "yields 0 values, its head names 1",
    ),
    "yield of nothing": (
        inside("serial %j in 0..4 {", "yield 1.0:f32", "}"),
        "yields 1 values, its head names 0",
    ),
    "sites out of order": ("kernel @k() {\n  site 1 = gather\n}", "sites are numbered in order: this is 0"),
    "concurrent statement": ("kernel @k() {\n  concurrent {\n    site\n  }\n}", "expected a loop"),
    "end": ("kernel @k() {\n  serial %i in 0..8 {", "found the end of the text"),
}


@pytest.mark.parametrize("name", NOT_KERNELS)
def test_text_that_is_no_kernel(name: str) -> None:
    text, message = NOT_KERNELS[name]
    with pytest.raises(ParseError) as caught:
        parse_kernel(text, "k.ir")
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ir:")
