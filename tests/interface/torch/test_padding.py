"""``F.pad`` in all its modes is that of torch: elements around those of a tensor, or some of it cut off."""

from __future__ import annotations

import pytest
import torch
from tests.interface.torch.compare import check_capture
from tests.interface.torch.test_trace import Calls
from torch.nn import functional

from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture

AMOUNTS = [(1, 0), (2, 3), (0, 0), (-1, 2), (2, -1), (-1, -1), (1, 2, 3, 0), (-1, 2, 3, -2), (0, 1, -1, 0)]


@pytest.mark.parametrize("amounts", AMOUNTS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 5, 7), (1, 2, 4, 5, 6)], ids=str)
def test_padding_is_torchs(mode: str, shape: tuple[int, ...], amounts: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.double)
    module = Calls(lambda x: functional.pad(x * 2, amounts, mode) + 1)
    try:
        module(x)
    except (NotImplementedError, RuntimeError, ValueError):
        return  # torch pads so many axes in this mode only
    check_capture(capture(module, (x,)), module, (x,))


def test_more_than_is_left_does_not_come_round() -> None:
    module = Calls(lambda x: functional.pad(x, (-3, 3), "circular"))
    with pytest.raises(UnsupportedNode, match="round from 2"):
        capture(module, (torch.randn(2, 5),))
