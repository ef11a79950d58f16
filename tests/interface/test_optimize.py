"""tracea.optimize: equal to eager, searched once for each distinct op, answered from the cache afterwards, frozen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tracea
from tracea.errors import InvalidInput, InvalidOption
from tracea.interface.optimized import optimize_graph
from tracea.optimizer import Budget


class Block(nn.Module):
    """LayerNorm, Linear, GELU, Linear, residual; twice the same linear shape."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.up = nn.Linear(24, 40)
        self.down = nn.Linear(40, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return Block().eval()


@pytest.fixture(scope="module")
def fast(model):
    return tracea.optimize(model, (torch.randn(10, 24),), budget=Budget(trials=2), threads=1)


def eager(model, x):
    with torch.no_grad():
        return model(x)


def test_the_module_equals_eager(model, fast):
    for _ in range(3):
        x = torch.randn(10, 24)
        torch.testing.assert_close(fast(x), eager(model, x), rtol=1e-4, atol=1e-5)


def test_every_kernel_was_measured_and_judged(fast):
    optimized = fast._compiled.report.optimized
    assert len(optimized.tuned) == len(optimized.verdicts) == 3
    assert all(verdict.passed for verdict in optimized.verdicts.values())
    assert all(decision.measurement is not None for decision in fast.plan.decisions.values())
    assert 0.0 <= optimized.share <= 1.0
    assert "gelu" in fast.explain()


def test_a_second_call_answers_from_the_cache(model, fast):
    heard = []
    again = tracea.optimize(
        model, (torch.randn(10, 24),), budget=Budget(trials=2), threads=1, listener=lambda *news: heard.append(news)
    )
    assert heard == []
    assert again._compiled.report.optimized.from_cache
    assert not any(tuned.fresh for tuned in again._compiled.report.optimized.tuned.values())
    x = torch.randn(10, 24)
    torch.testing.assert_close(again(x), fast(x), rtol=0, atol=0)


def test_another_batch_and_other_strides_run_as_well(model, fast):
    for x in (
        torch.randn(3, 24),
        torch.randn(1, 24),
        torch.randn(2, 5, 24),
        torch.randn(24, 10).t(),
        torch.randn(3, 24),
    ):
        torch.testing.assert_close(fast(x), eager(model, x), rtol=1e-4, atol=1e-5)


def test_weights_are_frozen():
    torch.manual_seed(4)
    model = Block().eval()
    fast = tracea.optimize(model, (torch.randn(4, 24),), budget=None, threads=1)
    x = torch.randn(4, 24)
    expected = eager(model, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)


def test_the_library_can_be_kept_out(model):
    ours = tracea.optimize(model, (torch.randn(10, 24),), budget=None, threads=1, library=False)
    assert not [decision for decision in ours.plan.decisions.values() if decision.variant.startswith("library.")]
    assert ours._compiled.report.optimized.share in (None, 1.0)
    x = torch.randn(10, 24)
    torch.testing.assert_close(ours(x), eager(model, x), rtol=1e-4, atol=1e-5)


def test_a_gradient_is_refused(fast):
    with pytest.raises(InvalidInput, match="no_grad"):
        fast(torch.randn(10, 24, requires_grad=True))


@pytest.mark.parametrize("threads", [0, -3, 1.5, "two", True])
def test_a_number_of_threads_that_is_none(model, threads):
    with pytest.raises(InvalidOption):
        tracea.optimize(model, (torch.randn(10, 24),), budget=None, threads=threads)


@pytest.mark.costly
def test_equal_ops_are_searched_once():
    graph = tracea.Graph()
    x = graph.add_input((12, 16), name="x")
    for layer in range(3):
        x = graph.add_gemm(x, graph.add_input((16, 16), name=f"w{layer}"), activation="relu", name=f"layer{layer}")
    heard = []
    optimized = optimize_graph(
        graph, budget=Budget(trials=2), threads=1, listener=lambda node, progress: heard.append(node)
    )
    assert len(optimized.tuned) == len(optimized.verdicts) == 1
    assert {name.split()[0] for name in heard} == {"layer0"}
    assert not optimized.from_cache
    assert len({str(decision.schedule) for decision in optimized.compiled.plan.decisions.values()}) == 1
    assert optimize_graph(graph, budget=Budget(trials=2), threads=1).from_cache
