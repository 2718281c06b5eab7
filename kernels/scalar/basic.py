"""Expansions of the rows that are nearly instructions: signs, shifts, integer division, rounding."""

from __future__ import annotations

import math

from ...ir.types import f32
from .term import Term, fma, rare, select


def identity(x: Term) -> Term:
    return x


def integer_abs(x: Term) -> Term:
    return x if x.dtype.kind in "ub" else select(x < 0, -x, x)


def sign(x: Term) -> Term:
    """-1, 0, 1, and 0 for nan."""
    if x.dtype.kind == "b":
        return x
    positive = select(x > 0, x.constant(1), 0)
    return positive if x.dtype.kind == "u" else select(x < 0, -1, positive)


def product(x: Term, y: Term) -> Term:
    return x * y


def reciprocal(x: Term) -> Term:
    return 1 / x


def rsqrt(x: Term) -> Term:
    return 1 / x.op("sqrt")


def bitwise_not(x: Term) -> Term:
    return x ^ (True if x.dtype.kind == "b" else -1)


def isinf(x: Term) -> Term:
    return abs(x).equals(math.inf) if x.dtype.is_float else x.differs(x)


def isfinite(x: Term) -> Term:
    return abs(x) < math.inf if x.dtype.is_float else x.equals(x)


def signbit(x: Term) -> Term:
    if x.dtype.is_float:
        return x.bits() < 0
    return x < 0 if x.dtype.kind == "i" else x.differs(x)


def frac(x: Term) -> Term:
    return x - x.op("trunc")


def in_range(count: Term) -> Term:
    """Whether a shift count is less than the number of bits."""
    fits = count < count.dtype.bits
    return fits if count.dtype.kind == "u" else fits & (count >= 0)


def bitwise_left_shift(x: Term, count: Term) -> Term:
    fits = in_range(count)
    return select(fits, x.op("shl", select(fits, count, 0)), 0)


def bitwise_right_shift(x: Term, count: Term) -> Term:
    if x.dtype.kind == "u":
        fits = in_range(count)
        return select(fits, x.op("lshr", select(fits, count, 0)), 0)
    return x.op("ashr", select(in_range(count), count, x.dtype.bits - 1))


def safe_divisor(a: Term, b: Term) -> Term:
    """b, or 1 where dividing a by b would trap: the quotient of the least integer and -1 wraps to itself."""
    unsafe = b.equals(0)
    if a.dtype.kind == "i":
        unsafe = unsafe | (b.equals(-1) & a.equals(-(2 ** (a.dtype.bits - 1))))
    return select(unsafe, 1, b)


def trunc_divide(a: Term, b: Term) -> Term:
    if a.dtype.is_float:
        return (a / b).op("trunc")
    return select(b.equals(0), 0, a.op("raw_divide", safe_divisor(a, b)))


def fmod(a: Term, b: Term) -> Term:
    if a.dtype.is_integer or a.dtype.kind == "b":
        return select(b.equals(0), 0, a.op("raw_remainder", safe_divisor(a, b)))
    size, divisor = abs(a), abs(b)
    quotient = (size / divisor).op("trunc")
    # The rounded quotient may be one too large or too small; the rest is exact in any case.
    rest = fma(-quotient, divisor, size)
    rest = select(rest < 0, rest + divisor, select(rest >= divisor, rest - divisor, rest))
    usual = (quotient < (2.0**22 if a.dtype is f32 else 2.0**51)) & (divisor < math.inf)
    return rare(~usual, rest.op("copysign", a), raw_remainder, a, b)


def raw_remainder(a: Term, b: Term) -> Term:
    return a.op("raw_remainder", b)


def remainder(a: Term, b: Term) -> Term:
    """fmod moved to the sign of b."""
    rest = a.op("fmod", b)
    if a.dtype.kind == "u":
        return rest
    return select(rest.differs(0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def floor_divide(a: Term, b: Term) -> Term:
    if a.dtype.kind == "u":
        return trunc_divide(a, b)
    if a.dtype.is_integer:
        quotient = trunc_divide(a, b)
        rest = a - quotient * b
        return select(rest.differs(0) & ((rest < 0) ^ (b < 0)) & b.differs(0), quotient - 1, quotient)
    # From the exact remainder, so that the quotient is not rounded up across an integer.
    rest = a.op("fmod", b)
    quotient = (a - rest) / b
    quotient = select(rest.differs(0) & ((rest < 0) ^ (b < 0)), quotient - 1, quotient)
    whole = quotient.op("floor")
    whole = select(quotient - whole > 0.5, whole + 1, whole)
    plain = a / b
    whole = select(quotient.equals(0), (plain * 0).op("copysign", plain), whole)
    return select(b.equals(0), plain, whole)


def integer_fmax(a: Term, b: Term) -> Term:
    return a.op("maximum", b)


def integer_fmin(a: Term, b: Term) -> Term:
    return a.op("minimum", b)


def nextafter(x: Term, towards: Term) -> Term:
    """One step in the order of the bits, which is the order of the numbers."""
    bits = x.bits()
    away = (x < towards) ^ (x < 0)
    stepped = select(away, bits + 1, bits - 1).float()
    smallest = bits.constant(1).float().op("copysign", towards)
    stepped = select(x.equals(0), smallest, stepped)
    stepped = select(x.equals(towards), towards, stepped)
    return select(x.op("isnan") | towards.op("isnan"), x + towards, stepped)


def nextafter_f16(x: Term, towards: Term) -> Term:
    return _narrow_nextafter(x, towards, 13, 2.0**-24, 65504.0)


def nextafter_bf16(x: Term, towards: Term) -> Term:
    return _narrow_nextafter(x, towards, 16, 2.0**-133, 255 * 2.0**120)


def _narrow_nextafter(x: Term, towards: Term, fewer: int, smallest: float, largest: float) -> Term:
    """The neighbour among numbers that have so many bits fewer: as many times as far away as that in f32."""
    step = nextafter(x, towards) - x
    moved = x + (step.op("abs") * 2.0**fewer).op("maximum", smallest).op("copysign", step)
    moved = select(moved.equals(0), x * 0, moved)  # -0.0 above the largest negative number
    moved = select(x.op("isinf"), x.constant(largest).op("copysign", x), moved)
    moved = select(x.equals(towards), towards, moved)
    return select(x.op("isnan") | towards.op("isnan"), x + towards, moved)


def angle(x: Term) -> Term:
    return select(x.op("isnan"), x, select(x < 0, x.constant(math.pi), 0))


def ldexp(x: Term, exponent: Term) -> Term:
    """x * 2 ** exponent for a whole exponent, in three factors: none overflows before the product does."""
    bias, shift = (127, 23) if x.dtype is f32 else (1023, 52)
    limit = 3 * bias
    whole = exponent.op("maximum", -limit).op("minimum", limit).cast(x.bits().dtype)
    result = x
    for _ in range(2):
        step = whole.op("maximum", -bias + 1).op("minimum", bias)
        result = result * ((step + bias) << shift).float()
        whole = whole - step
    return result * ((whole.op("maximum", -bias + 1).op("minimum", bias) + bias) << shift).float()


def lifted(x: Term) -> tuple[Term, Term, int, int]:
    """Return x made a normal number, by how many powers of two, and the bias and digits of its type."""
    bias, digits = (127, 23) if x.dtype is f32 else (1023, 52)
    lift = digits + 2
    tiny = abs(x) < 2.0 ** (1 - bias)
    return select(tiny, x * 2.0**lift, x), select(tiny, x.constant(float(lift)), 0.0), bias, digits


def has_exponent(x: Term) -> Term:
    return x.differs(0) & (abs(x) < math.inf)


def mantissa(x: Term) -> Term:
    """The fraction from 1/2 to 1, with the sign; zero, infinity and nan as they are."""
    normal, _, bias, digits = lifted(x)
    exponent = ((1 << (x.dtype.bits - 1 - digits)) - 1) << digits
    bits = (normal.bits() & ~exponent) | ((bias - 1) << digits)
    return select(has_exponent(x), bits.float(), x)


def exponent(x: Term) -> Term:
    """The whole number e with x = mantissa * 2 ** e, as a float; 0 for zero, infinity and nan."""
    normal, lift, bias, digits = lifted(x)
    # Put into the low digits of a large float: few machines convert integers of 64 bits.
    large = (bias + digits) << digits
    raised = (abs(normal).bits().op("lshr", digits) | large).float() - (2.0**digits + bias - 1)
    return select(has_exponent(x), raised - lift, 0.0)


def integer_power(base: Term, exponent: Term) -> Term:
    """By squaring, modulo the type's range; a negative exponent gives 0 unless the base is 1 or -1."""
    signed = base.dtype.kind == "i"
    result = base.constant(1)
    power, rest = base, exponent
    for step in range(base.dtype.bits - signed):
        result = select((rest & 1).differs(0), result * power, result)
        power = power * power
        if step + 1 < base.dtype.bits - signed:
            rest = rest.op("lshr", 1)
    if not signed:
        return result
    odd = (exponent & 1).differs(0)
    inverse = select(base.equals(1), 1, select(base.equals(-1), select(odd, base.constant(-1), 1), 0))
    return select(exponent < 0, inverse, result)
