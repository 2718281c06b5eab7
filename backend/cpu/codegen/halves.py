"""Convert f16 between memory and registers (f32) without library calls.

LLVM lowers instructions on its type half to calls of `__truncdfhf2`, `fmaxf` and others, and merges a rounding to f32
with one to half into such a call. So stored values never have that type: they are integers, made by x86's F16C
instruction, or, where the processor has none, by arithmetic on bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ....ir.types import f32, i32
from ..host import host
from ..llvm.types import constant, suffix, vector

if TYPE_CHECKING:
    from .scalars import ScalarEmitter

NEAREST = 0  # rounding argument of vcvtps2ph: to nearest even, whatever the thread's mode


@lru_cache
def _instruction() -> str:
    """Name the way to convert on this processor: "f16c", "bits" (x86 without it), or LLVM's "fptrunc"."""
    target = host()
    if not target.triple.startswith(("x86_64", "i386", "i686")):
        return "fptrunc"
    return "f16c" if "f16c" in target.instructions else "bits"


def load(emitter: ScalarEmitter, part: str, lanes: int) -> str:
    """Convert the bits of f16 to f32."""
    write = emitter.instruction
    if _instruction() == "bits":
        return _load_bits(emitter, part, lanes)
    half = write(f"bitcast {vector('i16', lanes)} {part} to {vector('half', lanes)}")
    kind = vector("float", lanes)
    extended = write(f"fpext {vector('half', lanes)} {half} to {kind}")
    # Otherwise LLVM computes in half where it can.
    return emitter.call(kind, f"llvm.arithmetic.fence.{suffix('float', lanes)}", (kind, extended))


def store(emitter: ScalarEmitter, part: str, lanes: int) -> str:
    """Round f32 to the bits of f16."""
    how, most = _instruction(), 16 if emitter.bits == 512 else 8
    write = emitter.instruction
    if how == "bits":
        return _store_bits(emitter, part, lanes)
    if how == "fptrunc":
        half = write(f"fptrunc {vector('float', lanes)} {part} to {vector('half', lanes)}")
        return write(f"bitcast {vector('half', lanes)} {half} to {vector('i16', lanes)}")
    if lanes == 1:
        several = write(f"insertelement <4 x float> zeroinitializer, float {part}, i64 0")
        return write(f"extractelement <8 x i16> {_convert(emitter, several, 4)}, i64 0")
    width = min(max(lanes, 4), most)
    parts = [
        _convert(emitter, _lanes(emitter, "float", part, lanes, first, width), width)
        for first in range(0, lanes, width)
    ]
    found, size = parts, max(width, 8)
    while len(found) > 1:
        found = [_join(emitter, found[at], found[at + 1], size) for at in range(0, len(found), 2)]
        size *= 2
    return found[0] if size == lanes else _lanes(emitter, "i16", found[0], size, 0, lanes)


def _lanes(emitter: ScalarEmitter, element: str, part: str, lanes: int, first: int, count: int) -> str:
    """Extract lanes of a vector; those beyond its end are poison."""
    if (first, count) == (0, lanes):
        return part
    kind = vector(element, lanes)
    places = ", ".join(f"i32 {first + lane}" if first + lane < lanes else "i32 poison" for lane in range(count))
    return emitter.instruction(f"shufflevector {kind} {part}, {kind} poison, <{count} x i32> <{places}>")


def _join(emitter: ScalarEmitter, low: str, high: str, lanes: int) -> str:
    kind, places = vector("i16", lanes), ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
    return emitter.instruction(f"shufflevector {kind} {low}, {kind} {high}, <{2 * lanes} x i32> <{places}>")


def _convert(emitter: ScalarEmitter, part: str, lanes: int) -> str:
    """Convert 4, 8 or 16 lanes; the results have 8 (the last 4 are zero), 8 or 16."""
    if lanes == 16:
        name, result = "llvm.x86.avx512.mask.vcvtps2ph.512", "<16 x i16>"
        rest = [("<16 x i16>", "zeroinitializer"), ("i16", "-1")]
    else:
        name, result, rest = f"llvm.x86.vcvtps2ph.{32 * lanes}", "<8 x i16>", []
    return emitter.call(result, name, (vector("float", lanes), part), ("i32", str(NEAREST)), *rest)


def _store_bits(emitter: ScalarEmitter, part: str, lanes: int) -> str:
    write, wide, mask = emitter.instruction, vector("i32", lanes), vector("i1", lanes)

    def number(value: int) -> str:
        return constant(value, i32, lanes)

    bits = write(f"bitcast {vector('float', lanes)} {part} to {wide}")
    size = write(f"and {wide} {bits}, {number(0x7FFFFFFF)}")
    odd = write(f"and {wide} {write(f'lshr {wide} {size}, {number(13)}')}, {number(1)}")
    lifted = write(f"add {wide} {write(f'add {wide} {size}, {number(0xFFF)}')}, {odd}")
    usual = write(f"lshr {wide} {write(f'sub {wide} {lifted}, {number(112 << 23)}')}, {number(13)}")
    # For subnormal results, adding 0.5 rounds at the right bit.
    floats = vector("float", lanes)
    one_half = constant(0.5, f32, lanes)
    sum_ = write(f"fadd {floats} {write(f'bitcast {wide} {size} to {floats}')}, {one_half}")
    small = write(f"sub {wide} {write(f'bitcast {floats} {sum_} to {wide}')}, {number(0x3F000000)}")
    payload = write(f"and {wide} {write(f'lshr {wide} {size}, {number(13)}')}, {number(0x1FF)}")
    nan = write(f"or {wide} {payload}, {number(0x7E00)}")
    for limit, order, other in (
        (0x38800000, "ult", small),
        (0x47800000, "uge", number(0x7C00)),
        (0x7F800000, "ugt", nan),
    ):
        chosen = write(f"icmp {order} {wide} {size}, {number(limit)}")
        usual = write(f"select {mask} {chosen}, {wide} {other}, {wide} {usual}")
    sign = write(f"and {wide} {write(f'lshr {wide} {bits}, {number(16)}')}, {number(0x8000)}")
    return write(f"trunc {wide} {write(f'or {wide} {usual}, {sign}')} to {vector('i16', lanes)}")


def _load_bits(emitter: ScalarEmitter, part: str, lanes: int) -> str:
    write, wide, mask = emitter.instruction, vector("i32", lanes), vector("i1", lanes)
    floats = vector("float", lanes)

    def number(value: int) -> str:
        return constant(value, i32, lanes)

    bits = write(f"zext {vector('i16', lanes)} {part} to {wide}")
    size = write(f"and {wide} {bits}, {number(0x7FFF)}")
    moved = write(f"shl {wide} {size}, {number(13)}")
    usual = write(f"add {wide} {moved}, {number(112 << 23)}")
    huge = write(f"or {wide} {moved}, {number(0x7F800000)}")
    unit = constant(2.0**-24, f32, lanes)
    tiny = write(f"fmul {floats} {write(f'uitofp {wide} {size} to {floats}')}, {unit}")
    small = write(f"bitcast {floats} {tiny} to {wide}")
    for limit, order, other in ((0x7C00, "uge", huge), (0x400, "ult", small)):
        chosen = write(f"icmp {order} {wide} {size}, {number(limit)}")
        usual = write(f"select {mask} {chosen}, {wide} {other}, {wide} {usual}")
    sign = write(f"shl {wide} {write(f'and {wide} {bits}, {number(0x8000)}')}, {number(16)}")
    signed = write(f"or {wide} {usual}, {sign}")
    return write(f"bitcast {wide} {signed} to {floats}")
