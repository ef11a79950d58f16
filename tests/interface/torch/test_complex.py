"""Complex numbers in a module are those of torch: rotary embeddings, products, inputs and results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn
from torch.nn import functional

import tracea
from tracea.errors import InvalidDType, InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture
from tracea.interface.torch.module import OptimizedModule


class Calls(nn.Module):
    """Calls a function with the module, which has a table of turns, a complex weight and one for rows."""

    def __init__(self, called: Callable[..., Any]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        angles = torch.randn(6, 4, generator=generator, dtype=torch.double)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.weight = nn.Parameter(torch.randn(4, 5, generator=generator, dtype=torch.cdouble))
        self.called = called

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.called(self, *inputs)


def rotary(module: Any, x: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * module.turns[: x.shape[1], None]).flatten(3)


def by_places(module: Any, z: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return z * module.turns[places] + functional.embedding(places, module.turns).sum(0, keepdim=True)


def complex_input(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.cdouble)


MODULES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "rotary": (rotary, lambda: (torch.randn(2, 5, 3, 8, dtype=torch.double),)),
    "places": (by_places, lambda: (complex_input(3, 4), torch.tensor([5, 0, 2]))),
    "quotients": (lambda _, z, w: (z / w, 1.0 / w, z / 3.0, (z + 2) / (w - 1j)), lambda: (complex_input(3, 4),) * 2),
    "products": (
        lambda m, z: (z @ m.weight, z[0] @ m.weight, z.mT.conj() @ z, functional.linear(z, m.weight.mT)),
        lambda: (complex_input(3, 4),),
    ),
    "sums of products": (
        lambda m, z: torch.einsum("bik,io->bok", z, m.weight),
        lambda: (complex_input(2, 4, 3),),
    ),
    "parts of the weight": (lambda m, x: (m.weight.abs() * x, x * m.weight, m.weight.conj() @ m.weight.T), None),
    "written into": (
        lambda _, z, x: (torch.select_scatter(z, x[0], 0, 1), torch.slice_scatter(z, x[:2], 0, 1, 3)),
        lambda: (complex_input(3, 4), torch.randn(3, 4, dtype=torch.double)),
    ),
    "joined": (
        lambda _, z, x: (
            torch.cat([z, x, z * 1j], 1),
            torch.stack([z, z.conj()]),
            functional.pad(z, (1, 2), value=3.0),
        ),
        lambda: (complex_input(3, 4), torch.randn(3, 4, dtype=torch.double)),
    ),
    "views": (
        lambda _, z: (z.mT[1:, 2].unsqueeze(0), z.reshape(-1, 2).chunk(3)[1], z.flip(0).mean(1), z.cumsum(1)),
        lambda: (complex_input(3, 4),),
    ),
    "functions": (
        lambda _, z: (z.exp(), z.abs(), z**2, z.square(), -z, z.sub(2 + 1j, alpha=2), 2 - z),
        lambda: (complex_input(3, 4),),
    ),
    "conversions": (
        lambda _, z: (z.to(torch.cfloat) * 2, (z.real.to(torch.cdouble) + z).imag, z.to(torch.cfloat) + z.real),
        lambda: (complex_input(3, 4),),
    ),
    "choices": (
        lambda _, z, w: (
            torch.where(z.real > 0, z, w),
            torch.where(z.imag > 0, z, 2.0),
            z.masked_fill(w.real > 0, 3.0),
            z == w,
            z != torch.where(z.real > 0, z, w),
            z.isnan(),
        ),
        lambda: (complex_input(3, 4),) * 2,
    ),
    "filled": (
        lambda _, z: (torch.zeros_like(z) + z, torch.ones_like(z) * z, torch.full_like(z, 2 - 1j) - z),
        lambda: (complex_input(3, 4),),
    ),
    "norms": (
        lambda _, z: (z.norm(dim=1), torch.linalg.vector_norm(z), z.abs().sum(0), z.to(torch.bool)),
        lambda: (complex_input(3, 4) * torch.tensor([0.0, 1.0, 1j, 2.0]),),
    ),
    "mixed": (
        lambda _, z, x, n: (z[0, 0] + x, n + 1j, n * z, (n > 0) * z, x.float() * z, z.to(torch.cfloat) / n),
        lambda: (complex_input(3, 4), torch.randn(3, 4, dtype=torch.double), torch.arange(1, 5)),
    ),
    "of real numbers": (
        lambda _, x: (x.sum(0, dtype=torch.cdouble), x.mean(1, dtype=torch.cdouble), x.conj_physical(), x * 1j),
        lambda: (torch.randn(3, 4, dtype=torch.double),),
    ),
    "recurrence": (
        lambda m, x: (
            [state := torch.zeros_like(m.turns[0])] and [state := state * m.turns[0] + x[at] for at in range(3)][-1]
        ),
        lambda: (torch.randn(3, 4, dtype=torch.double),),
    ),
    "strided": (lambda _, z: z * 2, lambda: (complex_input(4, 3).mT,)),
    "conjugated": (lambda _, z: z + 1, lambda: (complex_input(4, 3).conj(),)),
    "alone": (lambda _, z: z, lambda: (complex_input(4, 3),)),
    "nothing": (lambda _, z: (z * 2, z.abs()), lambda: (complex_input(0, 3),)),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_complex_numbers_is_captured(name: str) -> None:
    called, inputs = MODULES[name]
    given = (torch.randn(4, 5, dtype=torch.double),) if inputs is None else inputs()
    module = Calls(called).eval()
    tolerance = 1e-6 if name in ("conversions", "mixed") else 1e-11
    check_capture(capture(module, given), module, given, tolerance)


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_quotients_and_sizes_stay_within_the_range_of_the_type(size: float) -> None:
    module = Calls(lambda _, z, w: (z / w, z.abs(), w.abs()))
    given = tuple((torch.randn(64, dtype=torch.cdouble) * size).to(torch.cfloat) for _ in range(2))
    fast = tracea.optimize(module, given, budget=None, listener=lambda *_: None)
    expected = module(*(each.to(torch.cdouble) for each in given))
    for got, wanted in zip(fast(*given), expected, strict=True):
        torch.testing.assert_close(got.to(wanted.dtype), wanted, rtol=2e-6, atol=0.0)


def test_sizes_of_what_is_not_finite_and_of_zero_are_torchs() -> None:
    parts = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0]
    z = torch.tensor([complex(a, b) for a in parts for b in parts if not (math.isnan(a) or math.isnan(b))])
    module = Calls(lambda _, z: z.abs())
    fast = tracea.optimize(module, (z,), budget=None, listener=lambda *_: None)
    torch.testing.assert_close(fast(z), z.abs(), rtol=0.0, atol=0.0)
    assert fast(torch.full_like(z, complex(math.nan, 1.0))).isnan().all()


def test_quotients_and_powers_of_what_is_not_finite_are_torchs() -> None:
    inf = math.inf
    z = torch.tensor([1 + 0j, 1 + 0j, 2 - 1j, 1 + 1j, 0j])
    w = torch.tensor([complex(inf, 1.0), 0j, complex(1.0, -inf), complex(0.0, 2.0), 0j])
    module = Calls(lambda _, z, w: (z / w, z.exp(), torch.complex(w.real, z.imag * 0.0).exp()))
    fast = tracea.optimize(module, (z, w), budget=None, listener=lambda *_: None)
    for got, wanted in zip(fast(z, w), module(z, w), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0.0, equal_nan=True)


def test_rotary_embeddings_run_as_they_are_written() -> None:
    module = Calls(rotary).float()
    module.turns = module.turns.to(torch.cfloat)
    x = torch.randn(2, 5, 3, 8)
    fast = tracea.optimize(module, (x,), budget=None, listener=lambda *_: None)
    torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fast(x * 2), module(x * 2), rtol=1e-5, atol=1e-6)


@torch.inference_mode()
def test_pairs_of_any_width_lie_where_they_are_joined() -> None:
    """One pair a row too, alone and beside a part that passes, in turns and in halves."""

    def pairs(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        halves = torch.cat((x.sin(), x * 0.5), -1)
        turns = torch.stack((x.sin(), x * 0.5), -1).flatten(-2)
        return halves, turns, torch.cat((turns, x, x[..., :1]), -1), torch.cat((halves, x), -1).softmax(-1)

    for shape in ((8, 1), (2, 3, 1), (3, 5)):
        module, x = Calls(pairs), torch.randn(shape)
        fast = tracea.optimize(module, (x,), budget=None, threads=1, listener=lambda *_: None)
        for got, wanted in zip(fast(x), module(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_call_gives_complex_numbers_where_the_example_did() -> None:
    module = Calls(lambda _, z: z * 2)
    z = torch.randn(3, 4, dtype=torch.cfloat)
    fast = tracea.optimize(module, (z,), budget=None, listener=lambda *_: None)
    for given in (z, z.mT.contiguous().mT, z.conj()):
        assert torch.equal(fast(given), given * 2)
    assert torch.equal(fast(torch.ones(5, 2, dtype=torch.cfloat)), torch.full((5, 2), 2, dtype=torch.cfloat))
    with pytest.raises(InvalidInput, match="requires_grad"):
        fast(z.requires_grad_())
    with pytest.raises(InvalidDType, match="complex"):
        OptimizedModule(fast._compiled)(z.detach().real)  # which makes no other program


def test_a_module_may_ask_complex_numbers_how_they_lie() -> None:
    module = Calls(lambda _, z: z * 2 if z.is_contiguous() else z + 1)
    z = torch.randn(3, 4, dtype=torch.cfloat)
    fast = tracea.optimize(module, (z,), budget=None, listener=lambda *_: None)
    for given in (z, z.mT.contiguous().mT, z + 1):
        assert torch.equal(fast(given), module(given))


def test_a_module_that_asks_whether_numbers_are_conjugated_is_not_told_of_others() -> None:
    module = Calls(lambda _, z: z * 2 if z.is_conj() else z * 3)
    z = torch.randn(3, 4, dtype=torch.cfloat)
    fast = tracea.optimize(module, (z,), budget=None, listener=lambda *_: None)
    assert torch.equal(fast(z), z * 3)
    with pytest.raises(InvalidInput, match=r"is_conj\(\) True"):
        fast(z.conj())


@pytest.mark.whole
@pytest.mark.parametrize(
    "called",
    [
        lambda _, z: z.sum(dtype=torch.double),
        lambda _, z: z.sqrt(),
        lambda _, z: z.sin(),
        lambda _, z: z**3,
        lambda _, z: z.add_(1),
    ],
)
def test_what_no_op_does_to_complex_numbers_is_named(called: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedNode):
        capture(Calls(called), (complex_input(3, 4),))
