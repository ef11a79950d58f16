"""Lowerings of recurrent layers: one product for what all steps take from the input, then the steps one by one.

A step is a product with the state and one or two kernels over it. All steps of a layer have the same kernels, so that
a long sequence compiles no slower than a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracea.core.expr import Expr, Input, sigmoid, tanh
from tracea.core.expr import activation as named
from tracea.core.op import JoinOp

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["gru", "lstm", "rnn"]

MOST_STEPS: Final = 2048  # of all layers and directions: each is a few kernels of the program


@dataclass(frozen=True, slots=True)
class _Weights:
    """What a layer has for one direction; ``projection`` is an LSTM's with ``proj_size``."""

    of_input: Node
    of_state: Node
    input_bias: Node | None
    state_bias: Node | None
    projection: Node | None


State = tuple["Node", ...]  # (batch, width) each: h, and of an LSTM c
_Step = Callable[["Lowering", _Weights, "Node", State], State]


def lstm(low: Lowering, x: Node, states: Sequence[Node], parameters: Sequence[Node], *layout: Any) -> tuple[Node, ...]:
    """Lower an LSTM of any layers and both directions; the result is the sequence, the last h, and the last c."""
    return _recurrent(low, x, states, parameters, _Layout(*layout), _lstm_step)


def gru(low: Lowering, x: Node, state: Node, parameters: Sequence[Node], *layout: Any) -> tuple[Node, ...]:
    """Lower a GRU of any layers and both directions; the result is the sequence and the last state."""
    return _recurrent(low, x, (state,), parameters, _Layout(*layout), _gru_step)


def rnn(activation: str) -> Callable[..., tuple[Node, ...]]:
    """Return the lowering of a plain recurrent layer of any layers and both directions."""
    value = named(activation).substitute({0: Input(0) + Input(1)})

    def step(low: Lowering, weights: _Weights, taken: Node, state: State) -> State:
        return (_times_state(low, weights, state[0], value, (taken,)),)

    def lower(low: Lowering, x: Node, state: Node, parameters: Sequence[Node], *layout: Any) -> tuple[Node, ...]:
        return _recurrent(low, x, (state,), parameters, _Layout(*layout), step)

    return lower


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the operator says of its layers, in the order of its arguments."""

    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def directions(self) -> int:
        """One, or two."""
        return 2 if self.bidirectional else 1

    def weights(self, parameters: Sequence[Node]) -> list[_Weights]:
        """Return the weights of each direction of each layer, in torch's order."""
        count = len(parameters) // (self.layers * self.directions)
        has_projection = count == 2 + 2 * self.has_biases + 1
        found: list[_Weights] = []
        for begin in range(0, len(parameters), count):
            given = parameters[begin : begin + count]
            input_bias, state_bias = given[2:4] if self.has_biases else (None, None)
            found.append(_Weights(given[0], given[1], input_bias, state_bias, given[-1] if has_projection else None))
        return found


def _recurrent(
    low: Lowering, x: Node, states: Sequence[Node], parameters: Sequence[Node], layout: _Layout, step: _Step
) -> tuple[Node, ...]:
    if layout.train and layout.dropout > 0.0:
        low.refuse(f"a dropout of {layout.dropout} between recurrent layers", "call module.eval() first")
    if not (x.type.is_static and all(state.type.is_static for state in states)):
        low.refuse("a recurrent layer over a symbolic axis", "make the axes static: dynamic=None")
    steps, batch, _ = _sizes(x, layout)
    if batch == 0:  # no sequence: none is made, and no state changes
        ends = (batch, steps) if layout.batch_first else (steps, batch)
        width = states[0].type.static_shape[2] * layout.directions
        return low.reshape(x, (*ends, width)), *states
    if x.type.elements == 0:
        low.refuse(f"a recurrent layer over {x.type}", "leave out what has no elements")
    sequence = low.permute(x, (1, 0, 2)) if layout.batch_first else x
    if steps * layout.layers * layout.directions > MOST_STEPS:
        low.refuse(
            f"a recurrent layer of {steps} steps, {layout.layers} layers and {layout.directions} directions",
            f"give at most {MOST_STEPS} steps of all layers and directions: sequences in parts, with the state between",
        )
    last: list[State] = []
    weights = layout.weights(parameters)
    for layer in range(layout.layers):
        runs: list[list[State]] = []
        for direction in range(layout.directions):
            at = layer * layout.directions + direction
            first = tuple(_part(low, state, 0, at, 1) for state in states)
            runs.append(_run(low, sequence, first, weights[at], step, reverse=direction == 1))
            last.append(runs[-1][0 if direction == 1 else -1])
        sequence = _sequence(low, runs)
    sequence = low.permute(sequence, (1, 0, 2)) if layout.batch_first else sequence  # as torch's lies
    return sequence, *(_stacked(low, [state[index] for state in last]) for index in range(len(states)))


def _sizes(x: Node, layout: _Layout) -> tuple[int, int, int]:
    """Return steps, batch and width."""
    first, second, width = x.type.static_shape
    return (second, first, width) if layout.batch_first else (first, second, width)


def _run(low: Lowering, sequence: Node, state: State, weights: _Weights, step: _Step, *, reverse: bool) -> list[State]:
    """Return the states behind each step of one direction, in the order of time."""
    steps, batch, width = sequence.type.static_shape
    bias = () if weights.input_bias is None else (weights.input_bias,)
    value = Input(0) + Input(1) if bias else None
    rows = low.reshape(sequence, (steps * batch, width))
    taken = low.gemm(rows, low.transpose(weights.of_input), epilogue=value, extras=bias)
    found: list[State] = []
    for at in range(steps):
        place = steps - 1 - at if reverse else at
        state = step(low, weights, low.slice(taken, 0, place * batch, batch), state)
        found.append(state)
    return found[::-1] if reverse else found


def _times_state(low: Lowering, weights: _Weights, state: Node, value: Expr, extras: tuple[Node, ...]) -> Node:
    """Return an expression of the product with the state, to which its bias is added, and of the extras."""
    if weights.state_bias is not None:
        value = value.substitute(
            {0: Input(0) + Input(len(extras) + 1), **{at + 1: Input(at + 1) for at in range(len(extras))}}
        )
        extras = (*extras, weights.state_bias)
    return low.gemm(state, low.transpose(weights.of_state), epilogue=value, extras=extras)


def _lstm_step(low: Lowering, weights: _Weights, taken: Node, state: State) -> State:
    h, c = state
    gates = _times_state(low, weights, h, Input(0) + Input(1), (taken,))
    enter, forget, cell, leave = _gates(low, gates, 4)
    kept = low.pointwise(sigmoid(Input(0)) * Input(1) + sigmoid(Input(2)) * tanh(Input(3)), forget, c, enter, cell)
    shown = low.pointwise(sigmoid(Input(0)) * tanh(Input(1)), leave, kept)
    if weights.projection is not None:
        shown = low.gemm(shown, low.transpose(weights.projection))
    return shown, kept


def _gru_step(low: Lowering, weights: _Weights, taken: Node, state: State) -> State:
    (h,) = state
    product = _times_state(low, weights, h, Input(0), ())
    of_input, of_state = _gates(low, taken, 3), _gates(low, product, 3)
    reset, update = (sigmoid(Input(at) + Input(at + 1)) for at in (0, 2))
    new = tanh(Input(4) + reset * Input(5))
    operands = (of_input[0], of_state[0], of_input[1], of_state[1], of_input[2], of_state[2], h)
    return (low.pointwise(new + update * (Input(6) - new), *operands),)


def _gates(low: Lowering, x: Node, count: int) -> list[Node]:
    width = x.type.static_shape[1] // count
    return [low.slice(x, 1, at * width, width) for at in range(count)]


def _part(low: Lowering, x: Node, axis: int, start: int, size: int) -> Node:
    """Return one matrix of several."""
    return low.reshape(low.slice(x, axis, start, size), x.type.shape[1:])


def _stacked(low: Lowering, parts: Sequence[Node]) -> Node:
    """Return matrices of one shape one behind the other, along an axis of their own."""
    return low.reshape(_joined(low, [parts], "last"), (len(parts), *parts[0].type.static_shape))


def _sequence(low: Lowering, runs: Sequence[Sequence[State]]) -> Node:
    """Return the h of each step, those of both directions side by side."""
    made = _joined(low, [[h for h, *_ in run] for run in runs], "steps")
    return low.reshape(made, (len(runs[0]), runs[0][0][0].type.static_shape[0], made.type.static_shape[1]))


def _joined(low: Lowering, columns: Sequence[Sequence[Node]], part: str) -> Node:
    """Return matrices of one shape below each other, and such columns side by side; each is written where it lies."""
    parts = [node for column in columns for node in column]
    if len(parts) == 1:
        return parts[0]
    rows, width = parts[0].type.static_shape
    count = len(columns[0])
    op = JoinOp(
        parts=tuple(node.type for node in parts),
        starts=tuple((at * rows, beside * width) for beside in range(len(columns)) for at in range(count)),
        steps=((1, 1),) * len(parts),
        shape=(count * rows, len(columns) * width),
    )
    return low.graph.add(op, parts, name=low.label(part))
