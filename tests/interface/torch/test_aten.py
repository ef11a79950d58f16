from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tests.interface.torch import cases
from tests.interface.torch.cases import REFUSED
from tests.interface.torch.compare import check_capture
from tests.interface.torch.complex_cases import COMPLEX
from tests.interface.torch.image_cases import IMAGES
from tests.interface.torch.layer_cases import LAYERS
from tests.interface.torch.place_cases import PLACES
from tests.interface.torch.write_cases import WRITES

from tracea.interface.torch.aten import LOWERINGS
from tracea.interface.torch.capture import capture
from tracea.interface.torch.result_types import GIVES_BACK

pytestmark = pytest.mark.whole

CASES = cases.CASES | COMPLEX | IMAGES | LAYERS | PLACES | WRITES


class Line(torch.nn.Module):
    def __init__(self, call) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor):
        return self.call(*inputs)


def test_every_lowering_is_in_the_documentation() -> None:
    page = Path(__file__).parents[3] / "docs" / "torch.md"
    named = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    assert {name.split(".")[1] for name in set(LOWERINGS) - REFUSED} <= named


def test_every_lowering_has_a_case() -> None:
    assert set(CASES) | REFUSED == set(LOWERINGS)


@pytest.mark.parametrize("name", CASES)
def test_lowering_computes_what_torch_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    lowering = LOWERINGS[name]
    monkeypatch.setitem(LOWERINGS, name, lambda low, *rest: (seen.append(low.name), lowering(low, *rest))[1])
    if name in GIVES_BACK:  # of which a trace has no node
        monkeypatch.setattr("tracea.interface.torch.capture.traced", lambda *_: None)
    call, inputs = CASES[name]
    module = Line(call).eval()
    check_capture(capture(module, inputs), module, inputs)
    assert seen, f"torch.export made another operator of {name}"
