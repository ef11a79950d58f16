"""Default schedules: at any extents, of any dtype and for any target, each is one that its own variant builds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, GemmOp, LowRankOp, Op
from tracea.kernels.registry import candidates
from tracea.targets import load

ISAS = ("avx512", "avx2", "neon", "plain", "amx")
DTYPES = (DType.F32, DType.F64, DType.BF16)
DRAWN = 120


def gemm(rng: np.random.Generator, dtype: DType) -> Op:
    m, n, k = (int(value) for value in rng.integers(1, (140, 300, 700)))
    return GemmOp.of(m=m, n=n, k=k, dtype=dtype, transpose_a=bool(rng.integers(2)), transpose_b=bool(rng.integers(2)))


def low_rank(rng: np.random.Generator, dtype: DType) -> Op:
    m, n, k, r = (int(value) for value in rng.integers(1, (140, 140, 90, 60)))
    return LowRankOp.of(m=m, n=n, k=k, r=r, dtype=dtype)


def conv(rng: np.random.Generator, dtype: DType) -> Op:
    batch, groups, height, width = (int(value) for value in rng.integers(1, (4, 5, 40, 40)))
    channels, filters = (groups * int(value) for value in rng.integers(1, (40, 90)))
    side = int(rng.integers(1, 6))
    return Conv2dOp.of(
        batch=batch,
        channels=channels,
        size=(height, width),
        filters=filters,
        kernel=(side, side),
        stride=(int(rng.integers(1, 3)),) * 2,
        padding=(side // 2,) * 2,
        groups=groups,
        dtype=dtype,
        channels_last=bool(rng.integers(2)),
    )


@pytest.mark.costly
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("draw", [gemm, low_rank, conv])
def test_default_builds_at_any_extents(
    draw: Callable[[np.random.Generator, DType], Op], isa: str, dtype: DType, rng: np.random.Generator
) -> None:
    target, built = load(isa), 0
    for _ in range(DRAWN):
        op = draw(rng, dtype)
        for variant in candidates(op, target):
            if variant.build is not None and variant.default_schedule is not None:
                variant.build(op, variant.default_schedule(op, target), target)
                built += 1
    assert built >= DRAWN
