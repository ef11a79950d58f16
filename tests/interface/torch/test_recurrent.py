"""Recurrent layers are those of torch: any layers, directions and biases, with a state and without, of any type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_trace import by_export, described
from torch import nn

import tracea
from tracea.core.op import JoinOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.errors import UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

KINDS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}


class Layers(nn.Module):
    """Recurrent layers, of which every result is returned."""

    def __init__(self, layers: nn.RNNBase) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = () if not state else (state,) if len(state) == 2 else state
        sequence, last = self.layers(x, *given)
        return (sequence, *(last if isinstance(last, tuple) else (last,)))


def drawn_layers(kind: str, rng: torch.Generator, dtype: torch.dtype) -> tuple[Layers, tuple[torch.Tensor, ...]]:
    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    made, options = KINDS[kind]
    width, hidden, steps, batch = number(1, 9), number(4, 12), number(1, 7), number(1, 4)
    both, first, layers = bool(number(0, 2)), bool(number(0, 2)), number(1, 4)
    module = made(
        width, hidden, layers, bias=bool(number(0, 2)), batch_first=first, bidirectional=both, dropout=0.5, **options
    )
    x = torch.randn(batch, steps, width, generator=rng) if first else torch.randn(steps, batch, width, generator=rng)
    count = layers * (2 if both else 1)
    widths = [options.get("proj_size", hidden), hidden][: 2 if made is nn.LSTM else 1]
    states = [torch.randn(count, batch, each, generator=rng) for each in widths] if number(0, 2) else []
    if number(0, 3) == 0:
        x, states = x[:, 0] if not first else x[0], [state[:, 0] for state in states]
    return Layers(module.to(dtype)).eval(), tuple(each.to(dtype) for each in (x, *states))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:dropout option adds dropout", "ignore:LSTM with projections")
def test_layers_are_those_of_torch(kind: str, dtype: torch.dtype, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    for _ in range(4):
        module, inputs = drawn_layers(kind, rng, dtype)
        captured = capture(module, inputs)
        check_capture(captured, module, inputs, 1e-12 if dtype is torch.float64 else 1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections", "ignore:The tensor attributes")
@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_of_capture_see_the_same_layers(kind: str) -> None:
    made, options = KINDS[kind]
    module = Layers(made(5, 6, 2, bidirectional=True, batch_first=True, **options)).eval()
    widths = [options.get("proj_size", 6), 6][: 2 if made is nn.LSTM else 1]
    inputs = (torch.randn(2, 3, 5), *(torch.randn(4, 2, width) for width in widths))
    assert described(capture(module, inputs), module) == described(by_export(module, inputs), module)


def test_a_step_is_two_kernels_and_the_sequence_is_written_where_it_lies() -> None:
    module, x = Layers(nn.GRU(8, 16)).eval(), torch.randn(20, 2, 8)
    graph = run_pipeline(capture(module, (x,)).graph, {}).graph
    assert len([node for node in graph if isinstance(node.op, JoinOp)]) == 1
    assert len(compute_nodes(graph)) <= 1 + 2 * 20 + 1
    assert len({node.op.key for node in compute_nodes(graph)}) <= 8


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_programs_run_them(kind: str, dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    made, options = KINDS[kind]
    module = Layers(made(24, 40, bidirectional=True, batch_first=True, **options).to(dtype)).eval()
    x = torch.randn(3, 11, 24, dtype=dtype)
    fast = tracea.optimize(module, (x,), budget=None, threads=1)
    with torch.inference_mode():
        found, wanted = fast(x), module.double()(x.double())
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float64: 1e-12}[dtype]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0.0, atol=tolerance)


def test_what_is_too_long_or_drops_is_refused_with_a_remedy() -> None:
    long = Layers(nn.LSTM(2, 2, num_layers=3)).eval()
    with pytest.raises(UnsupportedNode, match=r"700 steps, 3 layers and 1 directions.*at most 2048 steps"):
        capture(long, (torch.randn(700, 1, 2),))
    with pytest.raises(UnsupportedNode, match=r"a dropout of 0\.5 between recurrent layers.*eval\(\)"):
        capture(Layers(nn.GRU(2, 2, 2, dropout=0.5)).train(), (torch.randn(3, 1, 2),))


def test_packed_sequences_are_refused_by_name() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return self.layer(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1][0]

    with pytest.raises(UnsupportedNode, match=r"a packed sequence at .*test_recurrent.py:.*padded sequences"):
        capture(Packed().eval(), (torch.randn(2, 5, 4), torch.tensor([5, 3])))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_are_those_of_torch(cell: type[nn.RNNCellBase]) -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(5, 7)

        def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            return self.cell(x, (h, c)) if cell is nn.LSTMCell else self.cell(x, h)

    module, inputs = Cell().eval(), (torch.randn(3, 5), torch.randn(3, 7), torch.randn(3, 7))
    check_capture(capture(module, inputs), module, inputs, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_no_sequence_leaves_states_of_none(kind: str) -> None:
    made, options = KINDS[kind]
    for first in (False, True):
        module = Layers(made(4, 6, 2, batch_first=first, bidirectional=True, **options)).eval()
        x = torch.empty((0, 3, 4) if first else (3, 0, 4))
        check_capture(capture(module, (x,)), module, (x,), 0.0)
