"""Extents near a kernel's limits: what another way computes is computed, what no kernel takes is refused."""

from __future__ import annotations

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


@pytest.mark.parametrize("stride", [(1000, 1000), (1, 20000)])
def test_steps_that_no_proof_covers_are_refused_with_the_limit(stride: tuple[int, int]) -> None:
    x = torch.ones(1).expand(1, 16, 2003, 40003)
    with pytest.raises(InvalidOption, match=r"\(8 x stride of rows \+ 256\) x stride of columns <= 1048576"):
        tracea.ops.conv2d(x, torch.ones(32, 16, 3, 3), stride=stride)
    assert tracea.ops.conv2d(x, torch.ones(1, 16, 1, 1), stride=(300, 300)).unique().tolist() == [16.0]


def test_axes_merge_up_to_what_a_kernels_axis_may_have() -> None:
    def groups(*shape: int) -> tuple[tuple[int, ...], ...]:
        return AxisPlan.of(shape, (TensorType(shape, DType.U8),)).groups

    assert groups(2, 2**30 - 1) == ((0, 1),)
    assert groups(2, 2**30) == ((0,), (1,))
    assert groups(3, 2, 2**30 - 1) == ((0,), (1, 2)) or groups(3, 2, 2**30 - 1) == ((0, 1), (2,))
