"""Philox 4x32-10: random bits as a pure function of a key and a counter (Salmon et al., 2011).

A counter of four 32-bit words goes through ten rounds of multiplication and exclusive or under a key of two
words. Every word lives in an i64, so that the 64-bit product of two words needs no wider type, and all is
straight-line code: it vectorises, and any element can be made without the others.

The counter is (element, high words of element and offset, stream, offset): `stream` tells the random ops of
one program apart, `offset` one call of the program from the next.
"""

from __future__ import annotations

from .term import Term

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
# The golden ratio and the square root of 3, less 1, as fractions of 2**32: each round adds them to the key.
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def low(pair: Term) -> Term:
    """The lower of the two words in an i64."""
    return pair & WORD


def high(pair: Term) -> Term:
    """The upper of the two words in an i64."""
    return pair.op("lshr", 32)


def philox(key: Term, offset: Term, stream: Term, element: Term) -> Term:
    """64 random bits: the first two words of the block, the second one in the upper half."""
    keys = [low(key), high(key)]
    words = [low(element), high(element) ^ high(offset), low(stream), low(offset)]
    for turn in range(ROUNDS):
        if turn:
            keys = [low(word + step) for word, step in zip(keys, KEY_STEPS, strict=True)]
        left, right = words[0] * MULTIPLIERS[0], words[2] * MULTIPLIERS[1]
        words = [high(right) ^ words[1] ^ keys[0], low(right), high(left) ^ words[3] ^ keys[1], low(left)]
    return words[0] | (words[1] << 32)
