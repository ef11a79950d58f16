"""What holds around a module when another shape comes changes neither the weights nor the types of its programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.errors import InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture
from tracea.interface.torch.surroundings import frozen_copy


@pytest.fixture(autouse=True)
def _same_default_dtype() -> Generator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def optimized(module: nn.Module) -> Any:
    return tracea.optimize(module.eval(), (torch.ones(4, 8),), budget=None, threads=1)


@torch.inference_mode()
def test_a_shape_first_seen_under_autocast_is_computed_as_the_examples_are() -> None:
    fast = optimized(nn.Linear(8, 8))
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(torch.ones(5, 8)).dtype is torch.float32
        assert torch.is_autocast_enabled("cpu")
    assert fast(torch.ones(5, 8)).dtype is torch.float32


@torch.inference_mode()
def test_a_module_optimized_under_autocast_computes_every_shape_so() -> None:
    with torch.autocast("cpu", torch.float16):
        fast = optimized(nn.Linear(8, 8))
    assert fast(torch.ones(4, 8)).dtype is torch.float16
    assert fast(torch.ones(5, 8)).dtype is torch.float16
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("inference", [False, True])
def test_layers_in_a_row_have_the_casts_of_autocast(inference: bool) -> None:
    layers, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode(inference):
        fast = optimized(layers)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(fast(x), layers(x), atol=0.02, rtol=0.02)


def test_types_that_autocast_brings_together_out_of_sight_are_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tracea.interface.torch.capture.traced", lambda *_: None)  # torch.export shows no casts
    layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UnsupportedNode, match=r"torch\.autocast.*bfloat16\(\)"):
        optimized(layers)


class Filled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.full(x.shape[-1:], 0.5)


@torch.inference_mode()
def test_the_default_type_is_that_of_the_time_of_optimizing() -> None:
    fast = optimized(Filled())
    torch.set_default_dtype(torch.float64)
    assert fast(torch.ones(5, 8, dtype=torch.float32)).dtype is torch.float32
    assert torch.get_default_dtype() is torch.float64


class Reaching(nn.Module):
    def __init__(self, reached: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.reached = reached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.reached().t() * 2)


def _outside() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    hooked, lora, weight = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), torch.randn(8, 8)
    hooked.register_forward_hook(lambda _, given, result: result + lora(given[0]))
    return {"a hook's": (hooked, lora.weight), "computed with": (Reaching(lambda: weight), weight)}


@pytest.mark.parametrize("name", _outside())
@torch.inference_mode()
def test_weights_outside_the_module_are_frozen_for_every_shape(name: str) -> None:
    torch.manual_seed(5)
    module, weight = _outside()[name]
    wanted = module.eval()(torch.ones(5, 8)).clone()
    fast = optimized(module)
    with torch.no_grad():
        weight.zero_()
    assert not torch.allclose(module(torch.ones(5, 8)), wanted)
    torch.testing.assert_close(fast(torch.ones(4, 8)), wanted[:4])
    torch.testing.assert_close(fast(torch.ones(5, 8)), wanted)


class Holding(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held
        self.line = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x) + self.held if isinstance(self.held, torch.Tensor) else self.line(x)


@pytest.mark.parametrize("name", ["lock", "locks", "generator", "file", "tensor with a history"])
@torch.inference_mode()
def test_what_cannot_be_copied_is_no_hindrance(name: str, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w", encoding="utf-8") as file, torch.inference_mode(False):
        module = Holding(
            {
                "lock": threading.Lock(),
                "locks": {"all": [threading.Lock()]},
                "generator": (i for i in ()),
                "file": file,
                "tensor with a history": nn.Parameter(torch.ones(8)) * 2,
            }[name]
        )
        with torch.no_grad():
            wanted = module(torch.ones(5, 8))
            fast = optimized(module)
            module.line.weight.zero_()
            if isinstance(module.held, torch.Tensor):
                module.held.zero_()
            torch.testing.assert_close(fast(torch.ones(4, 8)), wanted[:4])
            torch.testing.assert_close(fast(torch.ones(5, 8)), wanted)


class Refusing(nn.Module):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("there is one of me")


def test_a_part_that_refuses_to_be_copied_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"1\.0: got RuntimeError: there is one of me.*Remedy: .*__deepcopy__"):
        frozen_copy(nn.Sequential(nn.Linear(8, 8), nn.Sequential(Refusing())))


def written(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).scatter(-1, places, x.flip(-1)[:, :2])


def enlarged(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    image = nn.functional.pad(x[None, None], (1, 2, 2, 1), mode="reflect")
    return nn.functional.interpolate(image, size=(9, 9)) + nn.functional.interpolate(image[..., :3, :3], size=(9, 9))


def in_order(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    order = x[:, 0].argsort()
    back = torch.zeros_like(order).index_copy(0, order, torch.arange(4, device="cpu"))
    return x.index_select(0, order).index_select(0, back)


FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "counted, from the last": written,
    "rows of images": enlarged,
    "every pixel often": lambda x, _: nn.functional.interpolate(x[None, None], scale_factor=2),
    "padding": lambda x, _: nn.functional.pad(x, (1, 1), value=2.0),
    "bags": lambda x, places: nn.functional.embedding_bag(places, x),
    "none": lambda x, _: x[:0].any(0),
    "groups": lambda x, places: x + torch.histc(places.float(), 4, 0, 3)[:, None],
    "places of an order": in_order,
}


@pytest.mark.whole
@torch.no_grad()
@pytest.mark.parametrize("name", FACTORIES)
def test_numbers_of_ours_are_in_this_machines_memory_whatever_the_default_device(name: str) -> None:
    class Applies(nn.Module):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            return FACTORIES[name](x, places)

    inputs = (torch.randn(4, 8), torch.tensor([[0, 2], [3, 1], [1, 2], [2, 0]]))
    with torch.device("meta"):
        captured = capture(Applies(), inputs)
    check_capture(captured, Applies(), inputs, tolerance=1e-5)


@torch.no_grad()
def test_a_module_is_optimized_and_called_whatever_the_default_device() -> None:
    module, x, other = nn.Linear(8, 4), torch.randn(4, 8), torch.randn(8, 4).t()
    for example, given in ((x, other), (other, x)):
        with torch.device("meta"):
            fast = tracea.optimize(module.eval(), (example,), budget=None, threads=1)
            found = fast(given)
        torch.testing.assert_close(found, module(given))
