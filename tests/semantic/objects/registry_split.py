"""The registry's own product over parts of K, under a tiny schedule: padded rows, bias and ReLU."""

from __future__ import annotations

from typing import Any

from objects.biased import biased_arguments, biased_expected, biased_product
from tracea.kernels.gemm.gemv_split import STREAM_SPLIT, build_stream_split
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

__all__ = ["arguments", "build", "expected"]

OP = biased_product(2, 40, 11)


def build() -> TileKernel:
    """Return the kernel: parts of 4, 4 and 3 steps, blocks of 16 columns, sums added for 32 columns at a time."""
    target = load("plain")
    assert STREAM_SPLIT.default_schedule is not None
    schedule = STREAM_SPLIT.default_schedule(OP, target).with_values(steps=2, kc=4, nc=16, fold=32)
    return build_stream_split(OP, schedule, target)


def arguments(*, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    return biased_arguments(OP, seed=seed)


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs."""
    del params
    return biased_expected(OP, arrays)
