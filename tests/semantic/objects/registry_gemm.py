"""The registry's own packed GEMM, under a tiny schedule: bf16 storage, so sums in scratch; bias and ReLU."""

from __future__ import annotations

from typing import Any

from objects.biased import biased_arguments, biased_expected, biased_product
from tracea.core.dtype import DType
from tracea.kernels.gemm.packed import PACKED, build_packed
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

__all__ = ["arguments", "build", "expected"]

OP = biased_product(13, 40, 9, DType.BF16)


def build() -> TileKernel:
    """Return the kernel."""
    target = load("plain")
    assert PACKED.default_schedule is not None
    schedule = PACKED.default_schedule(OP, target).with_values(mr=3, nv=1, kc=4, mc=6, nc=32, tail=1, split="rows")
    return build_packed(OP, schedule, target)


def arguments(*, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    return biased_arguments(OP, seed=seed)


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs."""
    del params
    return biased_expected(OP, arrays)
