"""GPT-2, BERT and Llama's block: what they compute against float64, which kernels they are, and nothing of torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from examples.transformer import BERT, BUILDERS, GPT2, LLAMA, bert, error, gpt2_decode, gpt2_prefill, llama_block, small
from tests.drawn import drawn
from tests.interface.torch.compare import check_capture
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tracea
from tracea.core.graph import Graph
from tracea.core.op import WITHOUT_KERNEL, AttentionOp, GatherRowsOp, GemmOp, PairsOp, PointwiseOp, RowOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture

F = nn.functional
WRITTEN = pytest.mark.parametrize("written_out", [False, True], ids=["by torch", "written out"])


def built(build: Any, written_out: bool, tokens: int = 8) -> tuple[nn.Module, tuple[Any, ...]]:
    return build(replace(small(BUILDERS[build]), written_out=written_out), tokens)


def kernels(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Graph, list[Any]]:
    captured = capture(module.eval(), inputs)
    values = {name: tensor.detach().numpy() for name, tensor in captured.constants.items()}
    graph = run_pipeline(captured.graph, values).graph
    return graph, [node.op for node in graph if not isinstance(node.op, WITHOUT_KERNEL)]


@pytest.mark.costly
@WRITTEN
@pytest.mark.parametrize("build", drawn(1, BUILDERS, of="models"), ids=lambda build: build.__name__)
def test_a_model_computes_what_float64_does(build: Any, written_out: bool, seed: int) -> None:
    module, inputs = built(build, written_out)
    torch.manual_seed(seed)
    with torch.inference_mode():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) / max(parameter.shape[-1], 1) ** 0.5)
        inputs = pytree.tree_map(lambda x: torch.randn(x.shape) if x.is_floating_point() else x, inputs)
        fast = tracea.optimize(module, inputs, budget=None)  # by the kernels that the example compiles
        assert error(module, inputs, fast(*inputs)) <= 1e-4


class Calls(TorchDispatchMode):
    """Every operator of torch that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.costly
@pytest.mark.parametrize(
    "build", drawn(1, [gpt2_decode, llama_block], of="models without torch"), ids=lambda build: build.__name__
)
def test_no_operator_of_torch_runs_in_an_optimized_model(build: Any) -> None:
    module, inputs = built(build, False)
    fast = tracea.optimize(module, inputs, budget=None, threads=1, library=False)
    with torch.inference_mode():
        fast(*inputs)
        with Calls() as calls:
            fast(*inputs)
    assert [name for name in calls.names if not name.startswith("aten.empty")] == []


@WRITTEN
def test_a_block_of_gpt2_is_eight_kernels_and_two_copies_of_its_cache(written_out: bool) -> None:
    graph, ops = kernels(*built(gpt2_prefill, written_out))
    layers = small(GPT2).layers
    assert len([op for op in ops if isinstance(op, AttentionOp)]) == layers
    assert len([op for op in ops if isinstance(op, GemmOp)]) == 4 * layers + 1
    assert len([op for op in ops if isinstance(op, RowOp)]) == 2 * layers + 1
    assert len([op for op in ops if isinstance(op, GatherRowsOp)]) == 1
    copies = [node for node in graph if isinstance(node.op, PointwiseOp)]
    assert len(copies) == 2 * layers + 1  # and the sum of both embeddings
    assert all(op.causal and op.score.is_identity for op in ops if isinstance(op, AttentionOp))


@WRITTEN
def test_a_cache_is_read_where_it_was_put(written_out: bool) -> None:
    graph, ops = kernels(*built(gpt2_decode, written_out))
    attentions = [node for node in graph if isinstance(node.op, AttentionOp)]
    returned = {node.id for node in graph.outputs}
    assert len(attentions) == small(GPT2).layers
    assert all({*node.inputs[1:3]} <= returned for node in attentions)
    # The old tokens and the new one, of keys and of values, each copied once; one sum of embeddings.
    assert len([op for op in ops if isinstance(op, PointwiseOp)]) == 4 * small(GPT2).layers + 1


@WRITTEN
def test_heads_are_never_copied(written_out: bool) -> None:
    for build, config in ((bert, BERT), (llama_block, LLAMA)):
        graph, ops = kernels(*built(build, written_out))
        moved = [node for node in graph if isinstance(node.op, PointwiseOp) and node.op.expr.size == 1]
        assert not moved
        assert len([op for op in ops if isinstance(op, AttentionOp)]) == small(config).layers


@WRITTEN
def test_a_rotation_is_two_kernels_and_shared_keys_stay_shared(written_out: bool) -> None:
    _, ops = kernels(*built(llama_block, written_out))
    rotations = [op for op in ops if isinstance(op, PairsOp)]
    assert len(rotations) == 2  # queries and keys, both halves of each by one kernel
    assert not [op for op in ops if isinstance(op, PointwiseOp)]
    (attention,) = [op for op in ops if isinstance(op, AttentionOp)]
    assert (attention.q.shape[1], attention.k.shape[1]) == (4, 2)


def heads(x: torch.Tensor, count: int = 4) -> torch.Tensor:
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def by_bmm(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (heads(each).reshape(8, 6, 8) for each in (q, k, v))
    return torch.bmm(torch.softmax(torch.baddbmm(k.new_zeros(8, 6, 6), q, k.mT, beta=0, alpha=0.3), -1), v)


def scaled_before(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = heads(q * 0.3), heads(k), heads(v)
    return F.dropout(F.softmax(q @ k.transpose(2, 3), dim=-1, dtype=torch.float32), 0.1, False).to(q.dtype) @ v


def capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.tanh(heads(q) @ heads(k).mT / 5.0) * 5.0
    keep = torch.arange(6)[:, None] >= torch.arange(6)
    return torch.where(keep, scores, torch.finfo(scores.dtype).min).softmax(-1) @ heads(v)


def repeated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    k, v = (heads(each[..., :16], 2).repeat_interleave(2, dim=1) for each in (k, v))
    return (heads(q) @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("written", [by_bmm, scaled_before, capped, repeated])
def test_attention_is_found_however_it_is_written(written: Any, seed: int) -> None:
    class Line(nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return written(*inputs)

    generator = torch.Generator().manual_seed(seed)
    inputs = tuple(torch.randn(2, 6, 32, generator=generator) for _ in range(3))
    _, ops = kernels(Line(), inputs)
    assert sum(isinstance(op, AttentionOp) for op in ops) == 1
    check_capture(capture(Line(), inputs), Line(), inputs, tolerance=1e-5)


def test_what_is_no_op_is_named_with_its_line() -> None:
    class Sampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = gpt2_prefill(small(GPT2), 8)[0]

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            scores, _ = self.model(tokens)
            return scores.cummax(dim=-1).values

    with pytest.raises(UnsupportedNode, match=r"aten\.cummax") as caught:
        tracea.optimize(Sampled().eval(), (torch.zeros(1, 8, dtype=torch.int64),), budget=None)
    assert "test_transformers.py:" in str(caught.value)
