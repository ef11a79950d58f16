from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import Blocking, packed_default
from tracea.kernels.gemm.packed import build_packed
from tracea.kernels.gemm.packed_space import unpruned_space
from tracea.semantic.nodes import MicroKernel
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
        blocks = (min(blocking.kc, k), rows, min(blocking.nc, n))
        seen.add((blocking.mr, blocking.nv, *blocks, blocking.split, blocking.upcoming))
    assert len(seen) == len(space)


@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.parametrize(("isa", "most"), [("avx512", 28), ("avx2", 12), ("neon", 24)])
def test_the_unpruned_space_is_wide(isa: str, most: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    space = unpruned_space(GemmOp.of(m=m, n=n, k=k), load(isa))
    assert len(space) >= 500
    sums = {schedule.integer("mr") * schedule.integer("nv") for schedule in space}
    assert (min(sums), max(sums)) == (1, most)


@pytest.mark.parametrize("shape", [(128, 3072, 768), (100, 37, 53)])
def test_schedules_of_the_unpruned_space_are_proved(shape: tuple[int, int, int], rng) -> None:
    m, n, k = shape
    op, target = GemmOp.of(m=m, n=n, k=k), load("avx512")
    space = unpruned_space(op, target)
    for index in rng.integers(0, len(space), 6).tolist():
        prove(build_packed(op, space.schedule(space.rows[index]), target))


def test_tiles_ask_for_the_rows_of_the_next_panel_where_b_has_rows_that_no_cache_of_a_core_holds() -> None:
    target, op = load("avx512"), GemmOp.of(m=128, n=3072, k=768)
    assert packed_default(op, target).integer("upcoming") == 1
    others = (
        GemmOp.of(m=128, n=3072, k=768, transpose_b=True),
        GemmOp.of(m=128, n=3072, k=768, dtype=DType.BF16),
        GemmOp.of(m=128, n=192, k=768),
    )
    assert [packed_default(other, target).integer("upcoming") for other in others] == [0, 0, 0]
    for other in others[:2]:
        asking = packed_default(other, target).with_values(upcoming=1)
        with pytest.raises(InvalidSchedule, match="upcoming: got 1, expected 0 with split=columns where b has strides"):
            build_packed(other, asking, target)


def test_each_row_of_the_next_panel_is_asked_for_by_one_tile() -> None:
    target, op = load("avx512"), GemmOp.of(m=100, n=3072, k=768)
    schedule = packed_default(op, target)
    kernel = build_packed(op, schedule, target)
    tile = next(node for node in kernel.body.walk() if isinstance(node, MicroKernel))
    assert tile.ahead is not None
    rows = int(tile.ahead.extent[0].evaluate({}))
    tiles = -(-100 // schedule.integer("mr"))
    assert rows * (tiles - 1) < schedule.integer("kc") <= rows * tiles
    assert int(tile.intrinsic.attribute("upcoming_lines")) == rows * 3  # 48 columns


def test_a_batch_of_as_many_matrices_as_cores_gives_each_core_one() -> None:
    two = replace(load("avx512"), cores=2)
    single = GemmOp.of(m=24, n=144, k=1568)
    assert packed_default(single, two)["split"] == "rows"
    for batch in (2, 5):
        batched = packed_default(GemmOp.of(m=24, n=144, k=1568, batch=(batch,)), two)
        assert batched == packed_default(single, replace(two, cores=1))
        assert (batched["split"], batched["nc"]) == ("columns", 144)


@pytest.mark.parametrize(("rows", "tile"), [(48, (8, 3)), (49, (14, 2)), (9, (8, 3))])
def test_default_tile_of_few_rows_is_the_one_that_they_fill(rows: int, tile: tuple[int, int]) -> None:
    target = replace(load("avx512"), cores=1)
    op = GemmOp.of(m=rows, n=512, k=2048)
    schedule = packed_default(op, target)
    assert (schedule["mr"], schedule["nv"]) == tile
    assert schedule in unpruned_space(op, target)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("shape", [(512, 512, 512), (64, 512, 768), (257, 1280, 768)])
def test_no_core_has_more_columns_because_tiles_are_wide(shape: tuple[int, int, int], fused: bool) -> None:
    m, n, k = shape
    op = GemmOp.of(m=m, n=n, k=k, bias=fused, activation="gelu" if fused else None)
    schedule = packed_default(op, replace(load("avx512"), cores=2))
    assert (schedule["split"], schedule["nc"]) == ("columns", n // 2)  # tiles of 48 columns would give one core more


def test_a_team_on_a_server_of_intels_gets_shorter_tasks_where_they_are_as_even() -> None:
    op, zen = GemmOp.of(m=1024, n=1024, k=1024), replace(load("avx512"), cores=2, fma_per_cycle=1)
    intel = replace(zen, fma_per_cycle=2)
    assert [packed_default(op, target)["mc"] for target in (zen, intel)] == [168, 84]
    assert packed_default(op, replace(intel, cores=1))["mc"] == packed_default(op, replace(zen, cores=1))["mc"]
