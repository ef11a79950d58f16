"""Reductions over axes that no kernel walks at once are made in stages, be they of the module or of a pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tracea
from tracea.core.op import ReduceOp, StatisticsOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.doctor import host
from tracea.interface.torch.capture import capture
from tracea.kernels.registry import candidates

EACH, BOXES = torch.randn(3, 1, 1), torch.randn(4, 6, 8)
IMAGES, FIVE = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 4, 5, 6)
TABLE, PLACES = torch.randn(10, 3), torch.randint(0, 10, (3, 4, 5))
LINES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "a transposed operand": (lambda x, y: (x.mT - y).abs().mean(), (torch.randn(2, 3, 4), torch.randn(2, 4, 3))),
    "operands for each channel": (lambda x: ((x - EACH) / (EACH.abs() + 1.0)).mean(), (IMAGES,)),
    "a slice of two axes": (lambda x: x[:, 1:3, 2:5].sum(), (BOXES,)),
    "axes apart": (lambda x: x.sum((0, 2, 4)), (FIVE,)),
    "the largest": (lambda x: x.amax((0, 2, 4), keepdim=True), (FIVE,)),
    "a norm": (lambda x: torch.linalg.vector_norm(x, 3, (0, 2, 4)), (FIVE,)),
    "a variance": (lambda x: x.var((0, 2, 4)), (FIVE,)),
    "a deviation": (lambda x: x.std((0, 2, 4), keepdim=True), (FIVE,)),
    "a variance of doubles": (lambda x: x[:, 1:3, 2:5].double().var(), (BOXES,)),
    "a count": (lambda x: (x > 0).sum((0, 2, 4)), (FIVE,)),
    "what follows": (lambda x, y: torch.relu(x.sum((0, 2, 4), keepdim=True) * y), (FIVE, torch.randn(1, 3, 1, 5, 1))),
    "half floats": (lambda x: x[:, 1:3, 2:5].half().sum() + 1, (BOXES,)),
    "rows of a table": (lambda places: TABLE[places[:, 1:, 1:]].sum(), (PLACES,)),
}


class Line(torch.nn.Module):
    def __init__(self, line: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.line = line

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.line(*inputs)


@pytest.mark.parametrize("name", LINES)
def test_a_reduction_over_many_axes_is_torchs(name: str) -> None:
    line, inputs = LINES[name]
    module = Line(line)
    fast = tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)
    wanted = module(*inputs)
    found = fast(*inputs)
    close = 2e-3 if wanted.dtype is torch.float16 else 1e-5
    torch.testing.assert_close(found, wanted, rtol=close, atol=close)


@pytest.mark.parametrize("name", [name for name in LINES if name not in ("what follows", "a variance of doubles")])
def test_they_have_no_kernel_as_they_are(name: str) -> None:
    line, inputs = LINES[name]
    graph = run_pipeline(capture(Line(line), inputs).graph).graph
    ops = [node.op for node in graph if isinstance(node.op, ReduceOp | StatisticsOp)]
    assert any(not candidates(op, host()) for op in ops)


def test_another_batch_than_the_examples_is_staged() -> None:
    module = Line(lambda x: ((x - EACH) * EACH).mean())  # one image merges with what it is read with
    fast = tracea.optimize(module, (IMAGES[:1],), budget=None, threads=1, listener=lambda *_: None)
    torch.testing.assert_close(fast(IMAGES), module(IMAGES))
