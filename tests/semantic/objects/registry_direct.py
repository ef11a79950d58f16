"""The registry's own product without packing, under a tiny schedule: rows and columns left over, bias and ReLU."""

from __future__ import annotations

from typing import Any

from objects.biased import biased_arguments, biased_expected, biased_product
from tracea.kernels.gemm.direct import DIRECT, build_direct
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

__all__ = ["arguments", "build", "expected"]

OP = biased_product(8, 40, 9)


def build() -> TileKernel:
    """Return the kernel: tiles of 3 rows and at last 2, blocks of 4 and 1 steps, of 32 and 8 columns."""
    target = load("plain")
    assert DIRECT.default_schedule is not None
    chosen = {"mr": 3, "nv": 1, "kc": 4, "mc": 3, "nc": 32, "tail": 2, "split": "columns"}
    return build_direct(OP, DIRECT.default_schedule(OP, target).with_values(**chosen), target)


def arguments(*, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    return biased_arguments(OP, seed=seed)


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs."""
    del params
    return biased_expected(OP, arrays)
