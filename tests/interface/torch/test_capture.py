from __future__ import annotations

import inspect
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import as_array, check_capture
from tests.interface.torch.modules import inputs_of
from torch import nn

from tracea.core.dtype import DType
from tracea.core.op import GemmOp, PointwiseOp, RowOp, SourceOp, ViewOp
from tracea.core.passes.memory import root_of
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.tensor_type import StridedLayout, SymbolicDim
from tracea.errors import InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture

HERE = Path(__file__)


def checked(module: nn.Module, inputs: Any, **options: Any):
    module = module.double().eval()
    captured = capture(module, inputs, **options)
    check_capture(captured, module, inputs)
    return captured


def kernels(graph) -> list[str]:
    return [node.op.name for node in graph if not isinstance(node.op, SourceOp | ViewOp)]


class Mlp(nn.Module):
    def __init__(self, width: int = 8, hidden: int = 12) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.contract(nn.functional.gelu(self.expand(self.norm(x))))


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 1, 5, 8), (8,), (0, 8)])
def test_mlp_block_becomes_three_kernels(shape: tuple[int, ...]) -> None:
    if shape == (8,):
        checked(Mlp(), inputs_of(shape))
        return
    captured = checked(Mlp(), inputs_of(shape))
    assert kernels(run_pipeline(captured.graph).graph) == ["row", "gemm", "gemm"]


def test_stacked_blocks_on_three_axes_stay_matrices_between_them() -> None:
    captured = checked(nn.Sequential(Mlp(), Mlp()), inputs_of((2, 5, 8)))
    passed = run_pipeline(captured.graph).graph
    assert kernels(passed) == ["row", "gemm", "gemm"] * 2
    assert all(node.type.rank == 2 for node in passed if isinstance(node.op, GemmOp | RowOp))


def test_nodes_know_the_line_of_the_user() -> None:
    captured = checked(Mlp(), inputs_of((5, 8)))
    lines, start = inspect.getsourcelines(Mlp.forward)
    line = start + next(index for index, text in enumerate(lines) if "return" in text)
    work = [node for node in captured.graph if not isinstance(node.op, SourceOp)]
    assert {captured.locations[node.id] for node in work} == {f"{HERE}:{line} in forward"}


def test_without_a_line_of_the_user_the_module_is_named() -> None:
    captured = checked(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), inputs_of((2, 4)))
    assert captured.locations["linear"].startswith("module '0' (Linear), captured at ")


class Nested(nn.Module):
    def forward(self, x, options, *, scale=2.0):
        y = x * scale + options["bias"][0]
        return {"y": y, "again": (y, [y + 1]), "nothing": None, "three": 3, "scale": scale}


def test_nested_inputs_and_outputs_keep_their_structure() -> None:
    x, bias = inputs_of((3, 4), (4,))
    captured = checked(Nested(), (x, {"bias": [bias]}))
    assert len(captured.graph.outputs) == 2
    with pytest.raises(InvalidInput, match="nesting"):
        captured.input_spec.flatten((x, {"bias": (bias,)}))
    with pytest.raises(InvalidInput, match=r"torch\.Tensor"):
        captured.input_spec.flatten((x, {"bias": [3.0]}))


def test_a_number_among_the_inputs_is_part_of_the_program() -> None:
    class Scaled(nn.Module):
        def forward(self, x, factor):
            return x * factor

    (x,) = inputs_of((3, 4))
    captured = checked(Scaled(), (x, 3))
    with pytest.raises(InvalidInput, match="got 4, expected 3"):
        captured.input_spec.flatten((x, 4))
    with pytest.raises(InvalidInput):
        captured.input_spec.flatten((x, 3.0))


def test_tied_weights_are_one_constant() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
            self.other.weight = self.one.weight

        def forward(self, x):
            return self.other(self.one(x))

    captured = checked(Tied(), inputs_of((2, 6)))
    assert sorted(captured.constants) in (["one.bias", "one.weight"], ["one.bias", "other.weight"])


def test_weights_keep_their_strides_and_are_not_copied() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4).t())

        def forward(self, x):
            return nn.functional.linear(x, self.weight)

    module = Transposed()
    captured = checked(module, inputs_of((2, 6)))
    assert captured.graph["weight"].type.layout == StridedLayout((1, 4))
    assert captured.constants["weight"].data_ptr() == module.weight.data_ptr()


def test_buffers_lifted_tensors_and_masks_become_constants() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.ones(4))
            self.register_buffer("hidden", torch.ones(4), persistent=False)
            self.plain = torch.arange(4.0)

        def forward(self, x):
            keep = torch.ones(4, 4, dtype=torch.bool).tril()
            scores = (x @ x.T).masked_fill(~keep, float("-inf")).softmax(-1)
            return scores + self.shift * self.hidden.exp() - self.plain + torch.tensor(2.0)

    captured = checked(Masked(), inputs_of((4, 3)))
    assert not any("tril" in name and isinstance(node.op, PointwiseOp) for name, node in _by_name(captured.graph))
    assert len([node for node in captured.graph if isinstance(node.op, GemmOp)]) == 1


def _by_name(graph):
    return [(node.id, node) for node in graph]


def test_writes_in_place_to_intermediate_values_are_followed() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            y = x * 2.0
            self.relu(y)
            y += 1.0
            return y.mul_(3.0)

    checked(InPlace(), inputs_of((3, 4)))


def test_a_scalar_parameter_is_a_number_of_the_expression() -> None:
    class Gain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.tensor(1.5))

        def forward(self, x):
            return x * self.gain

    captured = checked(Gain(), inputs_of((3, 4)))
    assert [len(node.inputs) for node in captured.graph if isinstance(node.op, PointwiseOp)] == [1]


def test_results_own_their_memory_in_row_major_order() -> None:
    class Views(nn.Module):
        def forward(self, x):
            y = x + 1.0
            return x, x.t(), y, y.t(), y[1:]

    captured = checked(Views(), inputs_of((3, 4)))
    assert all(node.type.is_contiguous for node in captured.graph.outputs)
    passed = run_pipeline(captured.graph).graph
    assert len({root_of(passed, node) for node in passed.outputs}) == 5
    assert not any(isinstance(passed[root_of(passed, node)].op, SourceOp) for node in passed.outputs)


def test_a_strided_input_keeps_its_strides() -> None:
    x = inputs_of((4, 3))[0].t()
    captured = checked(Mlp(4), (x,))
    assert captured.input_spec.types[0].layout == StridedLayout((1, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_element_types_of_models(dtype: torch.dtype) -> None:
    module = Mlp().to(dtype).eval()
    x = inputs_of((5, 8))[0].to(dtype)
    captured = capture(module, x)
    assert {node.type.dtype for node in captured.graph} == {DType.parse(str(dtype))}
    # Eager rounds after each operator; the reference does not: a few units of the last place apart.
    check_capture(captured, module, (x,), tolerance=max(1e-11, 16 * torch.finfo(dtype).eps))


def test_rms_norm_without_eps_takes_the_one_of_torch() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16):
        module = nn.RMSNorm(8).to(dtype).eval()
        x = (inputs_of((5, 8))[0] * 0.03).to(dtype)
        check_capture(capture(module, x), module, (x,), tolerance=max(1e-11, 4 * torch.finfo(dtype).eps))


def test_a_dynamic_axis_becomes_a_symbolic_extent() -> None:
    captured = checked(Mlp(), inputs_of((5, 8)), dynamic=({0: torch.export.Dim("batch", min=2, max=64)},))
    (dim,) = captured.graph.symbolic_dims.values()
    assert dim == SymbolicDim("x_dim0", 2, 64)
    assert captured.graph["linear"].type.shape == (dim, 12)


def test_a_dynamic_axis_of_three_axes_is_a_batch() -> None:
    captured = checked(Mlp(), inputs_of((5, 3, 8)), dynamic=({0: torch.export.Dim.AUTO},))
    assert len(captured.graph.symbolic_dims) == 1


def test_an_extent_computed_from_a_dynamic_one_is_refused_with_the_line() -> None:
    class Flat(nn.Module):
        def forward(self, x):
            return x.flatten() + 1.0  # the extent is 8 times the dynamic one

    with pytest.raises(UnsupportedNode, match="make this axis static") as caught:
        capture(Flat().double(), inputs_of((5, 8)), dynamic=({0: torch.export.Dim.AUTO},))
    assert re.search(rf"{HERE.name}:\d+ in forward", caught.value.location)


def test_attention_by_hand_over_a_dynamic_batch() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.register_buffer("keep", torch.ones(8, 8, dtype=torch.bool).tril())

        def forward(self, x):
            batch, rows, width = x.shape
            q, k, v = self.qkv(x).view(batch, rows, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-1, -2)) * (width // 4) ** -0.5
            weights = scores.masked_fill(~self.keep[:rows, :rows], float("-inf")).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))

    module = Attention().double().eval()
    check_capture(capture(module, inputs_of((2, 8, 16))), module, inputs_of((2, 8, 16)))
    dynamic = capture(module, inputs_of((3, 8, 16)), dynamic=({0: torch.export.Dim.AUTO},))
    check_capture(dynamic, module, inputs_of((3, 8, 16)))
    assert len(dynamic.graph.symbolic_dims) == 1


def test_batch_norm_for_inference_is_an_epilogue() -> None:
    captured = checked(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU()), inputs_of((3, 4)))
    constants = {name: as_array(tensor) for name, tensor in captured.constants.items()}
    assert kernels(run_pipeline(captured.graph, constants).graph) == ["gemm"]


# Random modules.

ACTIVATIONS = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Softplus, nn.Mish)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


def random_module(dice: random.Random, width: int, depth: int) -> tuple[nn.Module, int]:
    parts: list[nn.Module] = []
    for _ in range(dice.randint(1, 4)):
        match dice.randrange(6):
            case 0:
                wider = dice.choice((3, 5, 8))
                parts.append(nn.Linear(width, wider, bias=dice.random() < 0.7))
                width = wider
            case 1:
                parts.append(dice.choice(ACTIVATIONS)())
            case 2:
                parts.append(nn.LayerNorm(width) if dice.random() < 0.5 else nn.RMSNorm(width))
            case 3:
                parts.append(nn.Softmax(dim=-1))
            case 4:
                parts.append(nn.Dropout(0.3))
            case _ if depth:
                inner, out = random_module(dice, width, depth - 1)
                parts.append(Residual(nn.Sequential(inner, nn.Linear(out, width))))
            case _:
                parts.append(nn.Identity())
    return nn.Sequential(*parts), width


@pytest.mark.parametrize("index", range(12))
def test_random_modules_compute_what_eager_computes(index: int, seed: int) -> None:
    dice = random.Random(f"{seed}-{index}")
    torch.manual_seed(dice.randrange(2**31))
    module, _ = random_module(dice, 6, 2)
    shape = dice.choice(((4, 6), (2, 3, 6), (6,)))
    checked(module, inputs_of(shape, seed=dice.randrange(2**31)))
