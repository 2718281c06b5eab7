"""Expansions of casts from and to float8, by the bits: a byte as an i32, the number as an f32.

The exponents of f32 are those of float8 with another bias, so a number of the narrow type is one of the wide type with
its bits moved, times a power of two: subnormal ones, too.
"""

from __future__ import annotations

from .term import Term, expand, select


def _from_byte(byte: Term, mantissa: int, bias: int) -> Term:
    """The number that a byte stands for, infinities and NaN apart."""
    moved = ((byte & 0x7F) << (23 - mantissa)).float()
    return moved * 2.0 ** (127 - bias)


def _signed(number: Term, byte: Term) -> Term:
    return (number.bits() | ((byte & 0x80) << 24)).float()


MOST_E4M3FN = 0x43E00000  # the bits of 448 as an f32


def from_e4m3fn(byte: Term) -> Term:
    number = _from_byte(byte, 3, 7)
    return _signed(select((byte & 0x7F).equals(0x7F), float("nan"), number), byte)


def from_e5m2(byte: Term) -> Term:
    number, rest = _from_byte(byte, 2, 15), byte & 0x7F
    number = select(rest.equals(0x7C), float("inf"), number)
    return _signed(select(rest > 0x7C, float("nan"), number), byte)


def _to_byte(bits: Term, mantissa: int, bias: int) -> Term:
    """The bits of a magnitude rounded to nearest even, as a byte without sign."""
    dropped = 23 - mantissa
    odd = (bits >> dropped) & 1
    normal = (bits + (((bias - 127) << 23) + (1 << (dropped - 1)) - 1) + odd) >> dropped
    # Added to a number whose last digit has the weight of a subnormal's, a small one is rounded by the addition.
    place = (127 - bias + dropped + 1) << 23
    small = (bits.float() + bits.constant(place).float()).bits() - place
    return select(bits < ((128 - bias) << 23), small, normal)


def to_e4m3fn(x: Term) -> Term:
    """Numbers beyond the largest one, 448, and infinities become that one, as in PyTorch."""
    bits = x.bits() & 0x7FFFFFFF
    byte = select(bits > MOST_E4M3FN, 0x7E, _to_byte(bits, 3, 7))
    return select(bits > 0x7F800000, 0x7F, byte) | ((x.bits() >> 24) & 0x80)


def to_e5m2(x: Term) -> Term:
    bits = x.bits() & 0x7FFFFFFF
    byte = select(bits >= 143 << 23, 0x7C, _to_byte(bits, 2, 15))
    return select(bits > 0x7F800000, 0x7F, byte) | ((x.bits() >> 24) & 0x80)


FROM_BYTE = {"f8_e4m3fn": expand(from_e4m3fn), "f8_e5m2": expand(from_e5m2)}
TO_BYTE = {"f8_e4m3fn": expand(to_e4m3fn), "f8_e5m2": expand(to_e5m2)}
