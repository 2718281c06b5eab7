"""Samples of recurrent cells and networks."""

from __future__ import annotations

from typing import Any

import torch

from .table import FULL, Entry, S, T, entry, t

PLAIN = {"special": False, "dtypes": FULL}
CELL = t(3, 4), t(3, 5)


def weights(gates: int, inner: int = 4, size: int = 5, biased: bool = True) -> list[T]:
    found = [t(gates * size, inner, low=-1.0, high=1.0), t(gates * size, size, low=-1.0, high=1.0)]
    return found + [t(gates * size), t(gates * size)] if biased else found


def network(gates: int, layers: int = 1, both: bool = False, first: bool = False, biased: bool = True) -> Any:
    """A call of lstm (4 gates), gru (3) or rnn (1)."""
    directions = 2 if both else 1
    params = []
    for layer in range(layers):
        for _ in range(directions):
            params += weights(gates, 4 if layer == 0 else 5 * directions, 5, biased)
    state = t(layers * directions, 2, 5)
    x = t(2, 3, 4) if first else t(3, 2, 4)
    return S(x, [state, state] if gates == 4 else state, params, biased, layers, 0.0, False, both, first)


def fused_lstm(inner: Any, hidden: Any, cell: Any, b: Any = None, c: Any = None) -> Any:
    """_thnn_fused_lstm_cell, which PyTorch has for GPUs alone."""
    gates = inner + hidden + (0 if b is None else b) + (0 if c is None else c)
    enter, keep, made, leave = gates.chunk(4, -1)
    parts = enter.sigmoid(), keep.sigmoid(), made.tanh(), leave.sigmoid()
    new = parts[1] * cell + parts[0] * parts[2]
    return parts[3] * new.tanh(), new, torch.cat(parts, -1)


def fused_gru(inner: Any, hidden: Any, state: Any, b: Any = None, c: Any = None) -> Any:
    """_thnn_fused_gru_cell, which PyTorch has for GPUs alone."""
    left = (inner if b is None else inner + b).chunk(3, -1)
    right = (hidden if c is None else hidden + c).chunk(3, -1)
    reset, update = (left[0] + right[0]).sigmoid(), (left[1] + right[1]).sigmoid()
    new = (left[2] + reset * right[2]).tanh()
    return new + update * (state - new), torch.cat([reset, update, new, state, right[2]], -1)


def several(gates: int) -> Entry:
    return entry(
        network(gates),
        network(gates, biased=False),
        network(gates, layers=2, first=True),
        network(gates, layers=2, both=True),
        **PLAIN,
    )


PROJECTED = S(
    t(3, 2, 4),
    [t(1, 2, 3), t(1, 2, 5)],
    [t(20, 4), t(20, 3), t(20), t(20), t(3, 5)],
    *(True, 1, 0.0, False, False, False),
)


def one_layer(x: Any, w: Any, v: Any, b: Any, c: Any, h: Any, cell: Any, reverse: bool, *rest: Any) -> Any:
    """mkldnn_rnn_layer, which PyTorch has for f32 alone, by lstm."""
    x = x.flip(0) if reverse else x
    found, last, cells = torch.lstm(x, [h, cell], [w, v, b, c], True, 1, 0.0, False, False, False)
    return found.flip(0) if reverse else found, last, cells, torch.zeros(0, dtype=torch.uint8)


def layer(reverse: bool) -> Any:
    rest = (reverse, [], 2, 5, 1, True, False, False, False)
    return S(t(3, 2, 4), *weights(4), t(1, 2, 5), t(1, 2, 5), *rest)


ENTRIES: dict[str, Entry] = {
    "mkldnn_rnn_layer": entry(layer(False), layer(True), **PLAIN, torch=one_layer),
    "rnn_tanh_cell": entry(S(*CELL, *weights(1)), S(*CELL, *weights(1, biased=False)), **PLAIN),
    "rnn_relu_cell": entry(S(*CELL, *weights(1)), **PLAIN),
    "lstm_cell": entry(S(t(3, 4), [t(3, 5), t(3, 5)], *weights(4)), **PLAIN),
    "gru_cell": entry(S(*CELL, *weights(3)), S(*CELL, *weights(3, biased=False)), **PLAIN),
    "_thnn_fused_lstm_cell": entry(
        S(t(3, 20), t(3, 20), t(3, 5)), S(t(3, 20), t(3, 20), t(3, 5), t(20), t(20)), **PLAIN, torch=fused_lstm
    ),
    "_thnn_fused_gru_cell": entry(
        S(t(3, 15), t(3, 15), t(3, 5)), S(t(3, 15), t(3, 15), t(3, 5), t(15), t(15)), **PLAIN, torch=fused_gru
    ),
    "lstm": Entry((*several(4).samples, PROJECTED), **PLAIN),
    "gru": several(3),
    "rnn_tanh": several(1),
    "rnn_relu": several(1),
}
