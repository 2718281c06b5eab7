"""Samples of convolution: every form of it that conv.py tells apart, in one, two and three dimensions."""

from __future__ import annotations

from .table import S, Sample, entry, t


def backward(grad: tuple[int, ...], input: tuple[int, ...], weight: tuple[int, ...], *how: object) -> Sample:
    """Of convolution_backward; the last of `how` says which gradients are wanted."""
    *how, mask = how
    return S(t(*grad), t(*input), t(*weight), [grad[1]], *how, mask)


ALL = [True, True, True]

ENTRIES = {
    "convolution": entry(
        S(t(2, 3, 6, 5), t(4, 3, 1, 1), t(4), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        S(t(2, 3, 9, 8), t(4, 3, 4, 4), t(4), [4, 4], [0, 0], [1, 1], False, [0, 0], 1),
        S(t(2, 3, 9, 8), t(4, 3, 3, 2), None, [1, 2], [1, 0], [1, 1], False, [0, 0], 1),
        S(t(2, 4, 7, 9), t(4, 1, 3, 3), t(4), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
        S(t(2, 3, 7, 9), t(6, 1, 3, 3), t(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 3),
        S(t(2, 4, 6, 5), t(6, 2, 2, 3), t(6), [2, 1], [0, 2], [2, 1], False, [0, 0], 2),
        S(t(2, 4, 8, 6), t(6, 2, 2, 3), t(6), [2, 3], [0, 0], [1, 1], False, [0, 0], 2),
        S(t(2, 3, 11), t(4, 3, 5), t(4), [2], [3], [1], False, [0], 1),
        S(t(1, 2, 5, 4, 6), t(3, 2, 3, 2, 2), t(3), [1, 2, 1], [1, 0, 1], [1, 1, 2], False, [0, 0, 0], 1),
        S(t(2, 4, 3, 5), t(4, 3, 2, 2), t(3), [2, 2], [0, 0], [1, 1], True, [0, 0], 1),
        S(t(2, 4, 3, 5), t(4, 3, 2, 1), t(3), [3, 2], [0, 0], [1, 1], True, [2, 1], 1),
        S(t(2, 4, 3, 5), t(4, 3, 3, 3), t(6), [2, 3], [1, 1], [2, 1], True, [1, 0], 2),
        S(t(2, 4, 3, 5), t(4, 1, 3, 3), t(4), [1, 1], [1, 0], [1, 2], True, [0, 1], 4),
        S(t(2, 3, 7), t(3, 2, 4), None, [1], [2], [1], True, [0], 1),
        S(t(1, 2, 3, 2, 4), t(2, 3, 2, 3, 2), t(3), [2, 1, 2], [0, 1, 0], [1, 1, 1], True, [1, 0, 0], 1),
        S(t(0, 3, 6, 5), t(4, 3, 3, 3), t(4), [1, 1], [0, 0], [1, 1], False, [0, 0], 1).forward_only(),
        S(t(2, 3, 33, 35), t(40, 3, 3, 3), t(40), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
    "convolution_backward": entry(
        backward((2, 4, 6, 5), (2, 3, 6, 5), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, ALL),
        backward((2, 4, 2, 2), (2, 3, 9, 8), (4, 3, 4, 4), [4, 4], [0, 0], [1, 1], False, [0, 0], 1, ALL),
        backward((2, 4, 9, 4), (2, 3, 9, 8), (4, 3, 3, 2), [1, 2], [1, 0], [1, 1], False, [0, 0], 1, ALL),
        backward((2, 4, 7, 9), (2, 4, 7, 9), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4, ALL),
        backward((2, 4, 9), (2, 3, 11), (4, 3, 3), [1], [0], [1], False, [0], 1, [True, False, False]).forward_only(),
        backward((2, 4, 9), (2, 3, 11), (4, 3, 3), [1], [0], [1], False, [0], 1, [False, True, False]).forward_only(),
        backward(
            (2, 4, 9, 4), (2, 3, 9, 8), (4, 3, 3, 2), [1, 2], [1, 0], [1, 1], False, [0, 0], 1, [False, True, True]
        ).forward_only(),
        backward((2, 3, 6, 10), (2, 4, 3, 5), (4, 3, 2, 2), [2, 2], [0, 0], [1, 1], True, [0, 0], 1, ALL),
        backward((2, 6, 8, 13), (2, 4, 3, 5), (4, 3, 3, 3), [2, 3], [1, 1], [2, 1], True, [1, 0], 2, ALL),
    ),
    "conv1d": entry(
        S(t(2, 3, 11), t(4, 3, 3), t(4), [2], [1]),
        S(t(3, 11), t(4, 3, 3)),
        S(t(2, 3, 11), t(4, 3, 4), None, [1], "same"),
        S(t(2, 4, 11), t(4, 2, 3), t(4), [2], "valid", [2], 2),
    ),
    "conv2d": entry(
        S(t(2, 3, 8, 7), t(4, 3, 3, 3), t(4), [2], [1]),
        S(t(3, 8, 7), t(4, 3, 2, 2), t(4), [2, 2]),
        S(t(2, 3, 8, 7), t(4, 3, 3, 2), t(4), [1], "same", [1, 2]),
        S(t(2, 3, 8, 7), t(4, 3, 3, 2), None, [2], "valid"),
    ),
    "conv3d": entry(
        S(t(1, 2, 5, 4, 6), t(3, 2, 2, 2, 2), t(3)),
        S(t(2, 5, 4, 6), t(3, 2, 3, 1, 2), None, [1], "same"),
    ),
    "conv_transpose1d": entry(S(t(2, 3, 5), t(3, 4, 3), t(4), [2], [1], [1]), S(t(3, 5), t(3, 4, 3))),
    "conv_transpose2d": entry(
        S(t(2, 4, 3, 5), t(4, 3, 2, 2), t(3), [2]),
        S(t(4, 3, 5), t(4, 3, 3, 3), t(6), [2], [1], [1], 2, [1]),
    ),
    "conv_transpose3d": entry(S(t(1, 2, 3, 2, 4), t(2, 3, 2, 2, 2), t(3), [2, 1, 2])),
}
