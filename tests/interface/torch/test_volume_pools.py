"""Pooling of volumes: every window is torch's, whatever order the axes of a volume have in memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_joined_images import check, optimized_graph
from tests.interface.torch.test_trace import Compared, by_export, described
from torch import nn

import tracea
from tracea.core.op import AdaptivePool2dOp, Conv2dOp, PointwiseOp, Pool2dOp
from tracea.errors import UnsupportedNode
from tracea.flow.assemble import compute_nodes
from tracea.interface.torch.capture import capture

F = nn.functional
Pool = Callable[[torch.Tensor], torch.Tensor]

POOLS: dict[str, Pool] = {
    "largest of eight": lambda x: F.max_pool3d(x, 2),
    "largest of overlapping": lambda x: F.max_pool3d(x, 3, 2, 1),
    "largest, places unused": lambda x: F.max_pool3d(x, 2, return_indices=True)[0],
    "largest of rows and columns": lambda x: F.max_pool3d(x, (1, 2, 3), (1, 2, 2), (0, 1, 1)),
    "largest of planes": lambda x: F.max_pool3d(x, (3, 1, 1), 1, (1, 0, 0)),
    "largest of columns": lambda x: F.max_pool3d(x, (1, 1, 4), (1, 1, 3)),
    "largest beyond the border": lambda x: F.max_pool3d(x, (2, 3, 2), (2, 2, 3), (1, 1, 0), ceil_mode=True),
    "largest of windows with gaps between": lambda x: F.max_pool3d(x, 1, 2),
    "mean of eight": lambda x: F.avg_pool3d(x, 2),
    "mean with padding": lambda x: F.avg_pool3d(x, (3, 3, 2), (2, 1, 2), (1, 1, 1)),
    "mean without padding": lambda x: F.avg_pool3d(x, (3, 3, 2), (2, 1, 2), (1, 1, 1), count_include_pad=False),
    "mean beyond the border": lambda x: F.avg_pool3d(x, (2, 2, 5), (3, 2, 4), (1, 1, 2), ceil_mode=True),
    "mean beyond the border without padding": lambda x: F.avg_pool3d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=False
    ),
    "mean of long rows": lambda x: F.avg_pool3d(x, (1, 1, 17), (1, 1, 1)),
    "grid": lambda x: F.adaptive_avg_pool3d(x, (2, 4, 7)),
    "grid of planes": lambda x: F.adaptive_max_pool3d(x, (2, None, None)),
    "grid that enlarges": lambda x: F.adaptive_max_pool3d(x, (7, 3, 25)),
    "one window": lambda x: F.adaptive_avg_pool3d(x, 1),
    "largest of one window": lambda x: F.adaptive_max_pool3d(x, 1),
    "itself": lambda x: F.max_pool3d(x, 1),
}


class Line(nn.Module):
    """A pooling of its input, or of what a convolution makes of it, and what follows."""

    def __init__(self, pool: Pool, conv: nn.Module) -> None:
        super().__init__()
        self.pool, self.conv = pool, conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.pool(self.conv(x)))


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("before", ["input", "channels last", "convolution", "one volume"])
def test_windows_of_volumes_are_those_of_torch(name: str, before: str, seed: int) -> None:
    torch.manual_seed(seed)
    low, high = torch.tensor([1, 1, 3, 4, 17]), torch.tensor([4, 5, 8, 9, 24])
    shape = [int(torch.randint(int(a), int(b), ())) for a, b in zip(low, high, strict=True)]
    if torch.randint(2, ()) and name != "mean of long rows":
        shape[4] = 5
    x = torch.randn(shape, dtype=torch.float64)
    conv = nn.Conv3d(shape[1], 3, 1).double() if before == "convolution" else nn.Identity()
    if before == "one volume":
        x = x[0]
    if before == "channels last":
        x = x.contiguous(memory_format=torch.channels_last_3d)
    module = Line(POOLS[name], conv).eval()
    captured, exported = capture(module, (x,)), by_export(module, (x,))
    check_capture(captured, module, (x,))
    assert described(captured, module) == described(exported, module)
    with torch.inference_mode(), Compared():
        module(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_programs_pool_volumes_with_extreme_values(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    means = ("mean beyond the border", "mean of eight") if dtype.itemsize > 2 else ()  # torch has none of 16 bits
    chosen = [POOLS[name] for name in ("largest of overlapping", "grid", *means)]

    class Several(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(pool(x) for pool in chosen)

    x = torch.randn(2, 3, 5, 6, 18)
    places = torch.randint(x.numel(), (12,))
    x.view(-1)[places] = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 3e4, -3e4]).repeat(2)
    x = x.to(dtype)
    fast = tracea.optimize(Several().eval(), (x,), budget=None, threads=1, listener=lambda *_: None)
    wide = x.double()
    sizes = Several()(wide.nan_to_num(0.0, 0.0, 0.0).abs())  # of what a window adds up
    for got, wanted, size in zip(fast(x), Several()(wide), sizes, strict=True):
        assert got.dtype is dtype
        same = (got == wanted) | (got.isnan() & wanted.isnan())
        assert (same | ((got - wanted).abs() <= 16 * torch.finfo(dtype).eps * size)).all()


def test_a_network_with_pooled_volumes_changes_no_order_between_kernels() -> None:
    module = nn.Sequential(nn.Conv3d(3, 8, 1), nn.MaxPool3d(2), nn.Conv3d(8, 6, 1), nn.AvgPool3d(2))
    graph, _ = optimized_graph(module, torch.randn(1, 3, 8, 12, 12))
    kernels = compute_nodes(graph)
    assert len([node for node in kernels if isinstance(node.op, Pool2dOp | AdaptivePool2dOp)]) == 4
    assert len([node for node in kernels if isinstance(node.op, Conv2dOp)]) == 2
    assert len([node for node in kernels if isinstance(node.op, PointwiseOp)]) == 1  # row-major for the caller


@pytest.mark.slow
def test_a_network_with_pooled_volumes_computes_what_float64_does(seed: int) -> None:
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(8, 6, (1, 3, 3)),
        nn.AvgPool3d(2, 1, ceil_mode=True),
        nn.AdaptiveAvgPool3d((2, 3, 3)),
    )
    check(module, torch.randn(2, 3, 4, 13, 11), compiled=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (lambda x: F.max_pool3d(x, 2, dilation=2), "a window with gaps"),
        (lambda x: F.avg_pool3d(x, 2, divisor_override=3), "a divisor of its own"),
        (lambda x: F.adaptive_avg_pool3d(x, (0, 1, 2)), "a grid of 0×1×2 windows"),
    ],
    ids=["gaps", "divisor", "no window"],
)
def test_other_pooling_of_volumes_is_refused_by_name(line: Pool, said: str) -> None:
    with pytest.raises(UnsupportedNode, match=said):
        capture(Line(line, nn.Conv3d(2, 2, 1)), (torch.zeros(1, 2, 4, 4, 4),))
