"""Networks that put images together: parts lie where they are joined, and every result is torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from torch import nn

import tracea
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp, JoinOp, PointwiseOp, Pool2dOp
from tracea.core.passes.memory import plan_memory
from tracea.core.passes.memory_check import check_memory
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.reference import run as reference_run
from tracea.errors import UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

F = nn.functional


def unit(channels: int, out: int, kernel: int, **more: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, padding=kernel // 2, bias=False, **more), nn.BatchNorm2d(out), nn.ReLU()
    )


class Fire(nn.Module):
    """SqueezeNet's: two filter sizes of one image, side by side."""

    def __init__(self, channels: int, squeezed: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.small, self.large = nn.Conv2d(squeezed, wide, 1), nn.Conv2d(squeezed, wide, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.small(x)), torch.relu(self.large(x))], 1)


class Inception(nn.Module):
    """GoogLeNet's, with a pooled branch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = unit(channels, 8, 1)
        self.three = nn.Sequential(unit(channels, 6, 1), unit(6, 10, 3))
        self.five = nn.Sequential(unit(channels, 4, 1), unit(4, 7, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(channels, 5, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], dim=1)


class Dense(nn.Module):
    """DenseNet's block: each layer reads all features before it."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + number * growth),
                nn.ReLU(),
                nn.Conv2d(channels + number * growth, growth, 3, padding=1, bias=False),
            )
            for number in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Decoder(nn.Module):
    """A U-Net of two levels: transposed convolutions up, skip connections across."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = unit(3, 8, 3), unit(8, 12, 3)
        self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.merge = unit(16, 6, 3)
        self.head = nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.down(x)
        deep = self.deep(F.max_pool2d(skip, 2))
        return torch.relu(self.head(self.merge(torch.cat([skip, self.up(deep)], 1))))


class Sequences(nn.Module):
    """One-dimensional convolutions, with batch norm, pooling, a mean, and the way up again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(3, 8, 5, padding="same"), nn.BatchNorm1d(8), nn.GELU())
        self.second = nn.Conv1d(8, 6, 3, stride=2, dilation=2, padding=2, groups=2)
        self.up = nn.ConvTranspose1d(6, 8, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.first(x)
        second = self.second(first)
        both = torch.cat([first, self.up(second)], 1)
        return both, F.max_pool1d(second, 2), F.avg_pool1d(second, 3, 2, 1), second.mean(-1, keepdim=True)


class Line(nn.Module):
    def __init__(self, line: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.line, self.conv = line, nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.line(self.conv(x))


def image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "fire": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), Fire(8, 4, 8), Fire(16, 4, 8)), (2, 3, 12, 14)),
    "inception": (lambda: nn.Sequential(unit(3, 8, 3), Inception(8), Inception(30)), (1, 3, 10, 12)),
    "a dense block": (lambda: nn.Sequential(unit(3, 6, 3), Dense(6, 4, 4), nn.AvgPool2d(2)), (2, 3, 8, 8)),
    "a u-net": (Decoder, (1, 3, 16, 12)),
    "sequences": (Sequences, (2, 3, 32)),
}

LINES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a concatenation of rows": lambda x: torch.cat([x[:, :, :2], x, x[:, :, -3:]], 2),
    "of batches": lambda x: torch.cat([x, torch.relu(x)], 0),
    "of one tensor with itself": lambda x: torch.cat([x, x], 1),
    "with nothing": lambda x: torch.cat([torch.empty(0), x, x[:, :0]], 1),
    "of matrices": lambda x: torch.cat([x.flatten(1), x.mean([2, 3])], -1),
    "of element types": lambda x: torch.cat([x, x.to(torch.float64)], 1),
    "a stack": lambda x: torch.stack([x, torch.tanh(x)], 2),
    "a stack of scalars": lambda x: torch.stack([x.mean(), x.sum()]),
    "returned parts": lambda x: (torch.cat([x, torch.tanh(x)], 1), torch.tanh(x)),
    "grids of equal windows": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "grids of windows of several sizes": lambda x: F.adaptive_avg_pool2d(x, (5, 7)),
    "grids that enlarge": lambda x: F.adaptive_avg_pool2d(x, (11, 13)),
    "largest of a grid": lambda x: F.adaptive_max_pool2d(x, (3, 7)),
    "largest, indices unused": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "grids of sequences": lambda x: (F.adaptive_avg_pool1d(x.flatten(2), 7), F.adaptive_max_pool1d(x.flatten(2), 9)),
    "nearest neighbours": lambda x: F.interpolate(x, scale_factor=(2, 3)),
    "nearest of a sequence": lambda x: torch.relu(F.interpolate(x[:, :, 0], scale_factor=3)),
    "between pixels": lambda x: torch.cat([F.interpolate(F.max_pool2d(x, 2), scale_factor=2, mode="bilinear"), x], 1),
    "between pixels of one": lambda x: F.interpolate(
        x.mean((2, 3), keepdim=True), scale_factor=(3, 4), mode="bilinear"
    ),
    "between the numbers of a sequence": lambda x: F.interpolate(x[:, :, 0], scale_factor=3, mode="linear").relu(),
    "padded": lambda x: F.conv2d(F.pad(x.relu(), (0, 1, 2, -1), value=0.5), torch.ones(4, 8, 3, 3).to(x)),
    "padded in turns": lambda x: F.pad(F.pad(x, (1, 1)), (0, 0, 1, 1), value=2.0) * 3.0,
    "padded batches and channels": lambda x: F.pad(x, (0, 0, 1, 0, 0, 2, 1, 0), value=-1.0),
    "nothing but padding": lambda x: F.pad(x, (-x.shape[3], 3), value=1.5) + 1.0,
    "a norm of each image's channels": lambda x: F.conv2d(F.instance_norm(x, eps=1e-2), torch.ones(4, 8, 1, 1).to(x)),
    "dropout": lambda x: F.dropout2d(F.dropout(x, training=False), training=False),
    "transposed": lambda x: F.conv_transpose2d(x, torch.arange(8.0 * 5 * 9).reshape(8, 5, 3, 3).cos().to(x), stride=2),
    "transposed in groups": lambda x: F.conv_transpose2d(
        x,
        torch.arange(8.0 * 3 * 9).reshape(8, 3, 3, 3).cos().to(x),
        torch.arange(6.0).to(x),
        stride=2,
        padding=1,
        groups=2,
    ),
    "transposed depthwise": lambda x: F.conv_transpose2d(
        x, torch.arange(8.0 * 16).reshape(8, 1, 4, 4).cos().to(x), stride=2, padding=1, groups=8
    ),
    "transposed with gaps": lambda x: F.conv_transpose2d(
        x,
        torch.arange(8.0 * 4 * 6).reshape(8, 4, 2, 3).cos().to(x),
        stride=(3, 2),
        dilation=(2, 3),
        output_padding=(1, 1),
    ),
    "transposed, rows that nothing reaches": lambda x: F.conv_transpose2d(x, torch.ones(8, 2, 1, 1).to(x), stride=2),
    "transposed, a bias where nothing reaches": lambda x: F.conv_transpose2d(
        x, torch.ones(8, 2, 1, 1).to(x), torch.tensor([1.5, -2.0]).to(x), stride=3, output_padding=1
    ),
    "shuffled channels": lambda x: F.channel_shuffle(torch.cat([x, x * 2], 1), 4),
}


def several(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def optimized_graph(module: nn.Module, x: torch.Tensor) -> tuple[Graph, dict[str, Any]]:
    captured = capture(module.eval(), (x,))
    values = {name: tensor.detach().numpy() for name, tensor in captured.constants.items()}
    result = run_pipeline(captured.graph, values)
    return result.graph, values | dict(result.values)


def check(module: nn.Module, x: torch.Tensor, *, compiled: bool) -> None:
    """Compare the optimized graph, or the program, with the module in float64."""
    module = module.eval()
    with torch.inference_mode():
        if compiled:
            found = [value.numpy() for value in several(tracea.optimize(module, (x,), budget=None, threads=1)(x))]
        else:
            graph, values = optimized_graph(module, x)
            check_memory(graph, plan_memory(graph))
            bound = {graph.inputs[0].id: x.numpy(), **{name: values[name] for name in graph.constants}}
            results = reference_run(graph, bound)
            found = [results[node.id] for node in graph.outputs]
        expected = several(module.double()(x.double()))
    for got, wanted in zip(found, expected, strict=True):
        assert got.shape == tuple(wanted.shape)
        scale = max(1.0, float(wanted.abs().max()))
        np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=(1e-4 if compiled else 1e-5) * scale)


# Programs of a dozen convolutions compile for half a minute: one in every run, all of them nightly.
PROGRAMS = [
    pytest.param(name, True, marks=[] if name == "fire" else pytest.mark.slow, id=f"{name}-program")
    for name in NETWORKS
]


@pytest.mark.parametrize(
    ("name", "compiled"), [*(pytest.param(name, False, id=f"{name}-graph") for name in NETWORKS), *PROGRAMS]
)
def test_a_network_of_joined_images_computes_what_float64_does(name: str, compiled: bool, seed: int) -> None:
    torch.manual_seed(seed)
    made, shape = NETWORKS[name]
    check(made(), image(*shape), compiled=compiled)


@pytest.mark.parametrize("images", [2, 1])
@pytest.mark.parametrize("name", LINES)
def test_a_line_computes_what_float64_does(name: str, images: int, seed: int) -> None:
    torch.manual_seed(seed)
    check(Line(LINES[name]), image(images, 3, 8, 10), compiled=False)


@pytest.mark.parametrize("axis", [2, 3])
def test_elementwise_parts_of_one_image_lie_where_they_are_joined(axis: int, seed: int) -> None:
    """Strides of the batch differ from those of the place, and address nothing."""
    torch.manual_seed(seed)
    around = (0, 0, 2, 1) if axis == 2 else (2, 1, 0, 0)
    check(
        Line(lambda x: (x, F.conv2d(F.pad(F.elu(x), around), torch.ones(2, 8, 3, 3).to(x)))),
        image(1, 3, 8, 10),
        compiled=True,
    )
    check(Line(lambda x: torch.cat([F.elu(x), torch.tanh(x)], axis)), image(1, 3, 8, 10), compiled=True)


@pytest.mark.costly
@pytest.mark.parametrize("part", drawn(1, range(4), of="lines of joined images"))
def test_lines_compile_to_programs_that_compute_what_float64_does(part: int, seed: int) -> None:
    """One program for several lines: a compilation each would take most of the time."""
    lines = list(LINES.values())[part::4]

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(value for line in lines for value in several(line(x)))

    torch.manual_seed(seed)
    check(Line(every), image(2, 3, 8, 10), compiled=True)


@pytest.mark.parametrize("name", ["fire", "inception"])
def test_branches_write_their_slices_and_nothing_is_copied(name: str) -> None:
    made, shape = NETWORKS[name]
    graph, _ = optimized_graph(made(), image(*shape))
    assert {type(node.op) for node in compute_nodes(graph)[:-1]} <= {Conv2dOp, Pool2dOp}
    joins = [node for node in graph if isinstance(node.op, JoinOp)]
    assert len(joins) == 2
    for join in joins:
        pitch = join.type.strides[3]
        assert pitch == join.type.shape[1]  # channels last
        assert {graph[part].type.strides[3] for part in join.inputs} == {pitch}


def test_a_dense_block_keeps_one_copy_of_each_feature() -> None:
    made, shape = NETWORKS["a dense block"]
    graph, _ = optimized_graph(made(), image(*shape))
    plan = plan_memory(graph)
    joins = [node for node in graph if isinstance(node.op, JoinOp)]
    assert len({plan.placements[node.id].offset_bytes for node in joins}) == 1
    assert len([node for node in compute_nodes(graph) if isinstance(node.op, Conv2dOp)]) == 5
    # The norms before each layer, and the result that the caller gets row-major: no copy between.
    assert len([node for node in compute_nodes(graph) if isinstance(node.op, PointwiseOp)]) == 5


def test_a_skip_connection_is_written_where_it_is_joined() -> None:
    graph, _ = optimized_graph(Decoder(), image(1, 3, 16, 12))
    kernels = compute_nodes(graph)
    assert (
        len([node for node in kernels if isinstance(node.op, PointwiseOp)]) == 1
    )  # of the result, row-major for the caller
    assert len([node for node in kernels if isinstance(node.op, Conv2dOp)]) == 3 + 4 + 4


def test_a_convolution_writes_its_image_into_the_padding() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 4, 3, stride=2))
    graph, _ = optimized_graph(module, image(1, 3, 11, 13))
    kernels = compute_nodes(graph)
    assert len([node for node in kernels if isinstance(node.op, Conv2dOp)]) == 2
    sides = [node for node in kernels if isinstance(node.op, PointwiseOp)]
    assert sorted(node.type.shape for node in sides) == [(1, 8, 1, 12), (1, 8, 9, 1)]


def test_what_follows_a_transposed_convolution_goes_into_its_phases() -> None:
    module = nn.Sequential(
        nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1)
    )
    graph, _ = optimized_graph(module, image(1, 3, 6, 6))
    kernels = compute_nodes(graph)
    assert [type(node.op) for node in kernels] == [Conv2dOp] * 5
    check(module, image(1, 3, 6, 6), compiled=False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (lambda x: F.instance_norm(x, torch.zeros(8), torch.ones(8)), "updates its statistics"),
        (lambda x: F.max_pool1d(x[0], 3, dilation=2), "a window with gaps"),
        (
            lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True)[1],
            "result 1 of aten.adaptive_max_pool2d.default: places",
        ),
    ],
)
def test_what_is_not_captured_is_refused_with_its_line(line: Any, reason: str) -> None:
    with pytest.raises(UnsupportedNode, match=reason) as caught:
        capture(Line(line), (image(1, 3, 8, 10),))
    assert "test_joined_images.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (lambda x: F.grid_sample(x, torch.zeros(1, 3, 3, 2), align_corners=False), "lists them.*, or call it outside"),
        (lambda x: torch.fft.fft2(x).real, "a matrix of cosines and with one of sines"),
    ],
)
def test_what_torch_makes_of_many_operators_is_refused_as_what_was_written(line: Any, remedy: str) -> None:
    with pytest.raises(
        UnsupportedNode, match=f"no op expresses it at .*test_joined_images.py:.*Remedy: .*{remedy}"
    ) as no:
        capture(Line(line), (image(1, 3, 8, 10),))
    assert "several axes" not in str(no.value)
