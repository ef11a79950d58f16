"""Whole quotients and remainders in a module have the bits of torch: each step jumps, so that nothing may be near."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.errors import UnsupportedNode
from tracea.interface.torch.capture import capture

Quotient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

SPECIAL = (0.0, 1.0, 0.1, 0.5, 3.0, float("inf"), float("nan"), 5e-324, 1e-45, 1e-40, 6e-8, 1e-7, 65504.0, 2.0**24)
SPECIAL += (2.0**53, 3.4e38, 1e300)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
WHOLE: dict[str, Quotient] = {
    "x // y": lambda x, y: x // y,
    "x // 0.1": lambda x, y: x // 0.1,
    "0.7 // y": lambda x, y: 0.7 // y,
    "x // one": lambda x, y: x // y[7],
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "trunc 0.1": lambda x, y: torch.div(x, 0.1, rounding_mode="trunc"),
}
RESTS: dict[str, Quotient] = {
    "x % y": lambda x, y: x % y,
    "x % -0.3": lambda x, y: x % -0.3,
    "0.7 % y": lambda x, y: 0.7 % y,
    "fmod": torch.fmod,
    "fmod 0.3": lambda x, y: torch.fmod(x, 0.3),
}


class Several(torch.nn.Module):
    def __init__(self, quotients: dict[str, Quotient]) -> None:
        super().__init__()
        self.quotients = quotients

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [quotient(x, y) for quotient in self.quotients.values()]


def pairs(rng: np.random.Generator, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dividends and divisors: every two special values, tenths, whole numbers, and all exponents."""
    n = 1500
    special = np.array([*SPECIAL, *(-value for value in SPECIAL)])
    tenths, whole = rng.integers(-100, 100, (2, n)) * 0.1, rng.integers(-1000, 1000, (2, n))
    wide = rng.standard_normal((2, n)) * 10.0 ** rng.integers(-30, 30, (2, n))
    near = rng.standard_normal((2, n)) * [[10.0], [1.0]]
    both = np.concatenate(
        [[np.repeat(special, special.size), np.tile(special, special.size)], tenths, whole, wide, near], 1
    )
    x, y = torch.from_numpy(both).to(dtype)
    return x.clone(), y.clone()


def differing(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    bits = BITS[got.element_size()]
    return (got.view(bits) != wanted.view(bits)) & ~(got.isnan() & wanted.isnan())


@pytest.mark.costly
@pytest.mark.parametrize(
    "dtype", drawn(2, [torch.float32, torch.float64, torch.float16, torch.bfloat16], of="quotients"), ids=str
)
def test_quotients_have_the_bits_of_torch(dtype: torch.dtype, rng: np.random.Generator) -> None:
    x, y = pairs(rng, dtype)
    module = Several(WHOLE | RESTS).eval()
    fast = tracea.optimize(module, (x, y), budget=None, listener=lambda *_: None)
    for name, got, wanted in zip(module.quotients, fast(x, y), module(x, y), strict=True):
        wrong = differing(got, wanted)
        if name in RESTS:  # where the quotient overflows, torch's vectors give NaN, and C the rest that there is
            wrong &= ~wanted.isnan()
        first = int(wrong.nonzero()[0]) if wrong.any() else 0
        assert not wrong.any(), f"{name} of {x[first]} and {y[first]}: {got[first]}, torch {wanted[first]}"


def test_a_rest_is_exact_where_the_quotient_overflows(rng: np.random.Generator) -> None:
    x, y = pairs(rng, torch.float32)
    (got,) = tracea.optimize(Several({"fmod": torch.fmod}), (x, y), budget=None, listener=lambda *_: None)(x, y)
    with np.errstate(all="ignore"):
        wanted = torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
        overflows = torch.from_numpy(np.isinf(x.numpy() / y.numpy()) & np.isfinite(x.numpy()) & (y.numpy() != 0))
    assert overflows.sum() > 10
    assert not differing(got, wanted).any()


def test_other_types_are_converted_before_the_division(rng: np.random.Generator) -> None:
    x, _ = pairs(rng, torch.float32)
    whole = torch.from_numpy(rng.integers(-9, 9, x.numel()))
    quotients = {"by whole": lambda x, y: x // y, "of whole": lambda x, y: y // (x * 1.5), "rest": lambda x, y: y % x}
    module = Several(quotients).eval()
    fast = tracea.optimize(module, (x, whole), budget=None, listener=lambda *_: None)
    for name, got, wanted in zip(quotients, fast(x, whole), module(x, whole), strict=True):
        assert not (differing(got, wanted) & ~((name == "rest") & wanted.isnan())).any(), name


def test_what_a_fused_kernel_computes_before_is_rounded_first(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.standard_normal(5000)).to(torch.float16)
    module = Several({"of a product": lambda x, y: (x * 0.3) // 0.01}).eval()
    (got,) = tracea.optimize(module, (x, x), budget=None, listener=lambda *_: None)(x, x)
    assert not differing(got, module(x, x)[0]).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_a_fused_kernel_computes_after_it_reads_the_rounded_quotient(dtype: torch.dtype) -> None:
    x = torch.linspace(0.0, 5000.0, 999).to(dtype)
    after = {
        "floor": lambda x, y: (x // 0.37).float() * 1.0,
        "trunc": lambda x, y: torch.div(x, 0.37, rounding_mode="trunc").float() * 1.0,
    }
    module = Several(after).eval()
    fast = tracea.optimize(module, (x, x), budget=None, listener=lambda *_: None)
    for name, got, wanted in zip(after, fast(x, x), module(x, x), strict=True):
        assert torch.equal(got, wanted), name


@pytest.mark.parametrize("quotient", ["x // y", "trunc", "x % y", "fmod"])
def test_quotients_of_integers_by_what_may_be_0_and_those_towards_0_are_refused(quotient: str) -> None:
    whole = torch.arange(1, 5)
    with pytest.raises(UnsupportedNode, match=r"arithmetic on i64|the whole part of a quotient of integers"):
        capture(Several({quotient: (WHOLE | RESTS)[quotient]}), (whole, whole))
