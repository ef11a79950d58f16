"""Extents near a kernel's limits: what another way computes is computed, what no kernel takes is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tracea
from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOption
from tracea.kernels.axes import AxisPlan

pytestmark = pytest.mark.usefixtures("one_thread")

F = torch.nn.functional


def test_gradients_for_filters_of_a_signal_of_more_places_than_a_kernel_has_channels() -> None:
    x, grad = torch.randn(1, 16, 70002), torch.randn(1, 32, 70000)
    found = tracea.ops.conv1d_grad_weight(x, grad, (32, 16, 3))
    wanted = torch.nn.grad.conv1d_weight(x.double(), (32, 16, 3), grad.double())
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5 * 70000**0.5)


def test_a_volume_of_more_rows_than_an_image_may_have() -> None:
    x, weight = torch.randn(1, 2, 192, 192, 2), torch.randn(3, 2, 1, 1, 1)
    torch.testing.assert_close(tracea.ops.conv3d(x, weight), F.conv3d(x, weight), rtol=1e-5, atol=1e-5)


def test_windows_over_more_pixels_than_a_proof_covers_are_refused_with_the_limit() -> None:
    x = torch.ones(1).expand(1, 16, 9, 9)
    with pytest.raises(InvalidOption, match=r"at most 1099511627776 pixels under all windows"):
        tracea.ops.conv2d(x, torch.ones(32, 16, 3, 3), stride=2**20, padding=2**22)
    assert tracea.ops.conv2d(x, torch.ones(1, 16, 1, 1), stride=300).unique().tolist() == [16.0]


@pytest.mark.parametrize(
    ("size", "numbers"),
    [
        ((9, 11), {"stride": 300}),
        ((9, 11), {"stride": 400}),
        ((9, 11), {"stride": 4000, "padding": 4000}),
        ((300, 301), {"stride": 128, "dilation": 128, "padding": 128}),
        ((300, 301), {"stride": 101, "dilation": 3, "padding": 1}),
        ((9, 11), {"dilation": 30000, "padding": 30000}),
        ((9, 11), {"dilation": (1, 200), "padding": (1, 199), "stride": (2, 3)}),
        ((9, 11), {"dilation": (8, 20), "padding": (7, 19)}),  # some taps meet the image for some results
    ],
    ids=str,
)
def test_long_steps_of_a_convolution_and_its_gradients(size: tuple[int, int], numbers: dict[str, Any]) -> None:
    x, weight = torch.randn(1, 16, *size), torch.randn(32, 16, 3, 3)
    wanted = F.conv2d(x.double(), weight.double(), **numbers)
    torch.testing.assert_close(tracea.ops.conv2d(x, weight, **numbers).double(), wanted, rtol=1e-5, atol=1e-3)
    grad = torch.randn(wanted.shape)
    given = x.double(), weight.double(), grad.double()
    found = tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **numbers)
    wanted = torch.nn.grad.conv2d_weight(given[0], weight.shape, given[2], **numbers)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-3)
    stride = numbers.get("stride", 1)
    if not isinstance(stride, int) or stride**2 <= 1024:
        found = tracea.ops.conv2d_grad_input(grad, weight, x.shape, **numbers)
        wanted = torch.nn.grad.conv2d_input(x.shape, given[1], given[2], **numbers)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-3)


def test_long_steps_of_groups_and_transposed_convolutions() -> None:
    x, grad = torch.randn(1, 16, 9, 11), torch.randn(1, 32, 9, 11)
    found = tracea.ops.conv2d_grad_weight(x, grad, (32, 8, 3, 3), groups=2, dilation=400, padding=400)
    wanted = torch.nn.grad.conv2d_weight(x, (32, 8, 3, 3), grad, groups=2, dilation=400, padding=400)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
    weight = torch.randn(16, 8, 3, 3)
    found = tracea.ops.conv_transpose2d(x, weight, dilation=40000, padding=40000)
    torch.testing.assert_close(found, F.conv_transpose2d(x, weight, dilation=40000, padding=40000))


@pytest.mark.parametrize("stride", [400, 4000, 9000])
def test_long_steps_of_one_tap_read_every_so_many_pixels(stride: int) -> None:
    x, weight = torch.randn(1, 4, 20000), torch.randn(8, 4, 1)
    torch.testing.assert_close(tracea.ops.conv1d(x, weight, stride=stride), F.conv1d(x, weight, stride=stride))


def test_long_steps_of_volumes() -> None:
    x, weight = torch.randn(1, 4, 5, 6, 7), torch.randn(8, 4, 3, 3, 3)
    for numbers in ({"stride": 400}, {"dilation": 3000, "padding": 3000}):
        torch.testing.assert_close(tracea.ops.conv3d(x, weight, **numbers), F.conv3d(x, weight, **numbers))
    numbers = {"dilation": 3000, "padding": 3000}
    found = tracea.ops.conv_transpose3d(x, weight[:4], **numbers)
    torch.testing.assert_close(found, F.conv_transpose3d(x, weight[:4], **numbers))


def test_long_steps_of_a_captured_module() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(16, 32, 3, dilation=3000, padding=3000),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(32, 8, 3, dilation=3000, padding=3000),
        torch.nn.Conv2d(8, 8, 3, stride=400, padding=400),
    ).eval()
    x = torch.randn(1, 16, 9, 11)
    with torch.no_grad():
        torch.testing.assert_close(tracea.optimize(module, (x,), budget=None)(x), module(x), rtol=1e-4, atol=1e-4)


def test_axes_merge_up_to_what_a_kernels_axis_may_have() -> None:
    def groups(*shape: int) -> tuple[tuple[int, ...], ...]:
        return AxisPlan.of(shape, (TensorType(shape, DType.U8),)).groups

    assert groups(2, 2**30 - 1) == ((0, 1),)
    assert groups(2, 2**30) == ((0,), (1,))
    assert groups(3, 2, 2**30 - 1) == ((0,), (1, 2)) or groups(3, 2, 2**30 - 1) == ((0, 1), (2,))
