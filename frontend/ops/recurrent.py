"""Recurrent networks: cells, and whole sequences of several layers in one or both directions.

The products of the inputs of all steps are one matrix product; each step adds that of the state before it. The number
of steps is known while compiling: every step is a product and one kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Expr, SizeNeeded
from ..ir.types import u8
from .activation import relu
from .concat_pad import cat, stack
from .create import zeros
from .define import Tensor, composite
from .elementary import sigmoid, tanh
from .linalg import linear
from .opdef import OpDef
from .pointwise import ge, where
from .random import STREAMS, rand
from .view import chunk, reshape, select, transpose

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]  # of the products of input and state, and the state before


def _rnn_step(activation: OpDef) -> Step:
    return lambda inner, hidden, state: (activation(inner + hidden),)


def _lstm_step(inner: Tensor, hidden: Tensor, state: State) -> State:
    enter, keep, made, leave = chunk(inner + hidden, 4, -1)
    cell = sigmoid(keep) * state[1] + sigmoid(enter) * tanh(made)
    return sigmoid(leave) * tanh(cell), cell


def _gru_step(inner: Tensor, hidden: Tensor, state: State) -> State:
    from_input, from_state = chunk(inner, 3, -1), chunk(hidden, 3, -1)
    kept = sigmoid(from_input[1] + from_state[1])
    new = tanh(from_input[2] + sigmoid(from_input[0] + from_state[0]) * from_state[2])
    return ((state[0] - new) * kept + new,)


# Cells


@composite
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """tanh(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))."""
    return tanh(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))


@composite
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """relu(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))."""
    return relu(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))


@composite
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of a long short-term memory: the new hidden state and cell."""
    if len(hx) != 2:
        raise ArgumentError(f"hx has {len(hx)} tensors, expected 2: the hidden state and the cell")
    hidden, cell = _lstm_step(linear(input, w_ih, b_ih), linear(hx[0], w_hh, b_hh), tuple(hx))
    return hidden, cell


@composite
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a gated recurrent unit: the new hidden state."""
    return _gru_step(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), (hx,))[0]


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


@composite
def _thnn_fused_lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """lstm_cell from the products of input and state: the new hidden state, the cell, and the gates."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    enter, keep, made, leave = chunk(gates, 4, -1)
    parts = sigmoid(enter), sigmoid(keep), tanh(made), sigmoid(leave)
    cell = parts[1] * cx + parts[0] * parts[2]
    return parts[3] * tanh(cell), cell, cat(parts, -1)


@composite
def _thnn_fused_gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """gru_cell from the products of input and state: the new hidden state, and what its gradient needs."""
    inner, hidden = _biased(input_gates, input_bias), _biased(hidden_gates, hidden_bias)
    from_input, from_state = chunk(inner, 3, -1), chunk(hidden, 3, -1)
    reset, update = sigmoid(from_input[0] + from_state[0]), sigmoid(from_input[1] + from_state[1])
    new = tanh(from_input[2] + reset * from_state[2])
    return (hx - new) * update + new, cat((reset, update, new, hx, from_state[2]), -1)


# Sequences


class Layers:
    """The parameters of a network: for each layer and direction the weights of input and state, their biases if there
    are some, and the weight of a projection of the state if there is one."""

    def __init__(self, params: Sequence[Tensor], has_biases: bool, num_layers: int, bidirectional: bool):
        self.directions = 2 if bidirectional else 1
        self.count = num_layers
        self.has_biases = has_biases
        self.each, rest = divmod(len(params), max(num_layers * self.directions, 1))
        usual = 4 if has_biases else 2
        if rest or self.each not in (usual, usual + 1):
            raise ArgumentError(
                f"params has {len(params)} tensors, expected {usual} (or {usual + 1} with a projection) for each of "
                f"{num_layers} layers and {self.directions} directions"
            )
        self.params = tuple(params)

    def at(self, number: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return the weights, the biases and the projection of a layer's direction."""
        own = self.params[number * self.each : (number + 1) * self.each]
        biases = own[2:4] if self.has_biases else (None, None)
        projection = own[-1] if self.each % 2 else None
        return own[0], own[1], *biases, projection  # type: ignore[return-value]


def _steps(input: Tensor) -> range:
    length = input.shape[0]
    if isinstance(length, Expr):
        raise SizeNeeded(length)
    return range(length)


def _along(
    step: Step, input: Tensor, start: State, layers: Layers, number: int, is_reversed: bool
) -> tuple[Any, State]:
    """Return the hidden states of all steps in one direction, and the last state."""
    w_ih, w_hh, b_ih, b_hh, projection = layers.at(number)
    inner = linear(input, w_ih, b_ih)
    state, found = start, []
    steps = _steps(input)
    for at in reversed(steps) if is_reversed else steps:
        state = step(select(inner, 0, at), linear(state[0], w_hh, b_hh), state)
        if projection is not None:
            state = (linear(state[0], projection), *state[1:])
        found.append(state[0])
    if not found:
        raise ShapeError("input has no steps, expected at least 1")
    return stack(found[::-1] if is_reversed else found), state


def _network(
    step: Step,
    input: Tensor,
    start: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    seed: Tensor | None,
    stream: int,
) -> tuple[Tensor, ...]:
    """Return the hidden states of the last layer at all steps, and the last states of all layers."""
    layers = Layers(params, has_biases, num_layers, bidirectional)
    if input.ndim != 3:
        raise ShapeError(f"input has {input.ndim} dimensions, expected 3 (steps, batch, features)")
    value = transpose(input, 0, 1) if batch_first else input
    masks: Iterator[Tensor] | None = None
    last: list[State] = []
    for layer in range(num_layers):
        parts = []
        for direction in range(layers.directions):
            number = layer * layers.directions + direction
            begin = tuple(select(item, 0, number) for item in start)
            part, state = _along(step, value, begin, layers, number, direction == 1)
            parts.append(part)
            last.append(state)
        value = parts[0] if len(parts) == 1 else cat(parts, -1)
        if dropout and train and layer < num_layers - 1:
            if masks is None:
                # All layers draw from one stream: a part of it each.
                drawn = rand((num_layers - 1, *value.shape), seed=seed, stream=stream)
                masks = iter([select(drawn, 0, at) for at in range(num_layers - 1)])
            factor = 1 / (1 - dropout) if dropout < 1 else 0.0
            value = where(ge(next(masks), dropout), value * factor, 0)
    result = transpose(value, 0, 1) if batch_first else value
    return (result, *(stack(items) for items in zip(*last)))


@composite
def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> tuple[Tensor, Tensor, Tensor]:
    """A long short-term memory over a sequence: the hidden states, and the last hidden states and cells."""
    if len(hx) != 2:
        raise ArgumentError(f"hx has {len(hx)} tensors, expected 2: the hidden states and the cells")
    output, hidden, cell = _network(
        _lstm_step, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, seed, stream
    )
    return output, hidden, cell


def _declare(name: str, step: Step, doc: str) -> None:
    def body(
        input: Tensor,
        hx: Tensor,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        *,
        seed: Tensor | None = None,
        stream: int = STREAMS,
    ) -> tuple[Tensor, Tensor]:
        output, hidden = _network(
            step, input, (hx,), params, has_biases, num_layers, dropout, train, bidirectional, batch_first, seed, stream
        )
        return output, hidden

    body.__name__, body.__doc__ = name, f"{doc} over a sequence: the hidden states, and the last ones of each layer."
    composite(body)


_declare("gru", _gru_step, "A gated recurrent unit")
_declare("rnn_tanh", _rnn_step(tanh), "A recurrent network with tanh")
_declare("rnn_relu", _rnn_step(relu), "A recurrent network with relu")


@composite
def mkldnn_rnn_layer(
    input: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One direction of one layer of lstm (mode 2): the hidden states, the last one and its cell, and nothing."""
    if mode != 2 or num_layers != 1 or bidirectional or batch_first or batch_sizes:
        raise ArgumentError("expected one direction of one layer of lstm (mode 2) over sequences of one length")
    layers = Layers((weight0, weight1, weight2, weight3), True, 1, False)
    start = tuple(reshape(item, item.shape[-2:]) for item in (hx_, cx_))
    found, last = _along(_lstm_step, input, start, layers, 0, reverse)
    return found, reshape(last[0], hx_.shape), reshape(last[1], cx_.shape), zeros((0,), dtype=u8)
