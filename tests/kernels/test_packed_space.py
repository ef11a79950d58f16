from __future__ import annotations

import pytest

from tracea.core.op import GemmOp
from tracea.kernels.gemm.blocking import Blocking, packed_default
from tracea.kernels.gemm.packed import build_packed
from tracea.kernels.gemm.packed_space import unpruned_space
from tracea.semantic.proofs import prove
from tracea.targets import load

SHAPES = [(512, 768, 768), (128, 3072, 768), (1024, 1024, 256), (2048, 2048, 2048), (100, 37, 53)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "plain"])
def test_no_two_schedules_of_the_unpruned_space_are_the_same_kernel(isa: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    op, target = GemmOp.of(m=m, n=n, k=k), load(isa)
    space = unpruned_space(op, target)
    assert packed_default(op, target) in space
    seen = set()
    for schedule in space:
        blocking = Blocking.of(schedule, op, target)
        columns = blocking.split == "columns"
        rows = m if columns else min(blocking.mc, m)
        seen.add((blocking.mr, blocking.nv, min(blocking.kc, k), rows, min(blocking.nc, n), blocking.split))
    assert len(seen) == len(space)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_the_unpruned_space_is_wide(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    assert len(unpruned_space(GemmOp.of(m=m, n=n, k=k), load("avx512"))) >= 500


@pytest.mark.parametrize("shape", [(128, 3072, 768), (100, 37, 53)])
def test_schedules_of_the_unpruned_space_are_proved(shape: tuple[int, int, int], rng) -> None:
    m, n, k = shape
    op, target = GemmOp.of(m=m, n=n, k=k), load("avx512")
    space = unpruned_space(op, target)
    for index in rng.integers(0, len(space), 6).tolist():
        prove(build_packed(op, space.schedule(space.rows[index]), target))
