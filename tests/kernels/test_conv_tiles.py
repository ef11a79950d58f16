"""Which tile of sums a convolution takes without a search: by products, by reads, and by the sets of a cache."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from tracea import targets
from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.conv.blocking import ConvBlocking, conv_default, conv_space
from tracea.kernels.conv.winograd_blocking import winograd_default
from tracea.targets.target import Target


def op_of(channels: int, filters: int, size: int, *, kernel: int = 1, stride: int = 1) -> Conv2dOp:
    x = image_type((1, channels, size, size), DType.F32, channels_last=True)
    w = TensorType((filters, channels, kernel, kernel), DType.F32)
    padding = (kernel // 2, kernel // 2)
    shape = (1, filters, -(-size // stride), -(-size // stride))
    out = image_type(shape, DType.F32, channels_last=True)
    return Conv2dOp(x=x, w=w, stride=(stride, stride), padding=padding, out=out)


def core(multiply_adds: int, kilobytes: int, ways: int) -> Target:
    return replace(
        targets.load("avx512"), fma_per_cycle=multiply_adds, l1d_bytes=kilobytes * 1024, l1d_ways=ways, cores=1
    )


def tile(op: Conv2dOp, target: Target) -> tuple[int, int]:
    schedule = conv_default(op, target)
    return schedule.integer("mr"), schedule.integer("nv")


@pytest.mark.parametrize(("channels", "stride"), [(1024, 1), (512, 2), (2048, 1)])
def test_pixels_of_one_set_are_no_more_than_its_ways(channels: int, stride: int) -> None:
    for target in (core(1, 32, 8), core(2, 32, 8), core(2, 48, 12)):
        assert tile(op_of(channels, 256, 14 * stride, stride=stride), target)[0] <= target.l1d_ways
    # A few bytes more from pixel to pixel, and they spread over all sets.
    assert tile(op_of(channels + 16, 256, 14 * stride, stride=stride), core(2, 48, 12)) == (14, 2)


def test_of_equal_products_one_multiply_add_a_cycle_takes_the_tile_that_reads_least() -> None:
    op = op_of(256, 64, 56)
    assert tile(op, core(1, 32, 8)) == (6, 4)
    assert tile(op, core(2, 48, 12)) == (14, 2)


def test_one_pixel_behind_six_costs_what_its_filters_take_from_the_second_cache() -> None:
    assert tile(op_of(512, 512, 7, kernel=3), core(1, 32, 8)) == (14, 2)


def test_what_the_caches_do_not_hold_is_asked_for_so_many_steps_ahead() -> None:
    few = replace(targets.load("avx2"), l2_bytes=512 << 10, cores=1)

    def ahead(op: Conv2dOp, target: Target = few) -> int:
        return conv_default(op, target).integer("ahead")

    assert [ahead(op_of(*sizes)) for sizes in ((16, 96, 112), (64, 256, 56), (128, 512, 28))] == [8, 2, 1]
    assert ahead(op_of(256, 256, 14, kernel=3)) == 1
    assert ahead(op_of(64, 384, 14)) == 0
    assert ahead(op_of(64, 256, 56), core(1, 32, 8)) == 0
    in_rows = replace(op_of(64, 256, 56), out=TensorType((1, 256, 56, 56), DType.F32))
    assert ahead(in_rows) == 0


def test_filters_are_asked_for_farther_ahead_by_a_core_whose_last_cache_is_far() -> None:
    xeon = core(2, 48, 12)
    near = replace(xeon, features=xeon.features | {"avx512_bf16"})  # a Zen 5

    def steps(target: Target, *sizes: int, kernel: int = 1) -> tuple[int, int]:
        found = conv_default(op_of(*sizes, kernel=kernel), target)
        return found.integer("prefetch"), found.integer("unroll")

    assert [steps(target, 512, 512, 7, kernel=3) for target in (xeon, near)] == [(48, 4), (8, 2)]
    assert [steps(target, 160, 960, 7) for target in (xeon, near)] == [(48, 4), (0, 4)]
    assert steps(xeon, 24, 144, 56) == steps(near, 24, 144, 56) == (0, 3)
    assert steps(core(1, 32, 8), 512, 512, 7, kernel=3) == (8, 2)
    op = replace(op_of(256, 256, 14, kernel=3), accuracy=Accuracy.NORMWISE)
    assert [winograd_default(op, target).integer("prefetch") for target in (xeon, near)] == [48, 16]


@pytest.mark.parametrize("ahead", [-1, 65])
def test_tiles_are_asked_for_no_more_than_64_ahead(ahead: int) -> None:
    op, target = op_of(64, 256, 56), targets.load("avx2")
    with pytest.raises(InvalidSchedule, match="ahead"):
        ConvBlocking.of(conv_default(op, target).with_values(ahead=ahead), op, target)


def dealt(tasks: list[int]) -> list[int]:
    """What two cores have of tasks that one draws from the front, the other from the back."""
    busy, left = [0, 0], deque(tasks)
    while left:
        core = busy.index(min(busy))
        busy[core] += left.pop() if core else left.popleft()
    return busy


@pytest.mark.parametrize(
    ("channels", "filters", "size", "kernel", "stride"),
    [
        (128, 128, 28, 3, 1),
        (64, 64, 56, 3, 1),
        (128, 128, 56, 3, 2),
        (256, 256, 28, 3, 2),
        (256, 256, 14, 3, 1),
        (32, 32, 112, 3, 1),
        (512, 256, 28, 1, 1),
        (1024, 512, 14, 1, 1),
        (1024, 256, 14, 1, 1),
        (384, 96, 14, 1, 1),
    ],
)
def test_two_cores_get_as_many_rows_or_filters(
    channels: int, filters: int, size: int, kernel: int, stride: int
) -> None:
    target = replace(targets.load("avx2"), l2_bytes=2**19, cores=2)
    op = op_of(channels, filters, size, kernel=kernel, stride=stride)
    schedule, height = conv_default(op, target), size // stride
    rows, block = schedule.integer("rows"), schedule.integer("kb")
    bands = [min(rows, height - top) for top in range(0, height, rows)]
    blocks = [min(block, filters - first) for first in range(0, filters, block)]
    busy = dealt([band * share for band in bands for share in blocks])
    assert max(busy) <= 1.04 * sum(busy) / 2
    alone = conv_default(op, replace(target, cores=1)).integer("rows")
    assert alone >= rows  # one core takes bands as high as its cache allows


def test_a_row_is_copied_by_no_more_than_one_neighbour() -> None:
    target = replace(targets.load("avx2"), l2_bytes=2**19, cores=1)
    assert conv_default(op_of(64, 64, 56, kernel=3), target).integer("rows") >= 6


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_a_search_tries_how_far_ahead_results_are_asked_for(isa: str) -> None:
    op, target = op_of(64, 256, 56), targets.load(isa)
    space = conv_space(op, target)
    assert conv_default(op, target) in space
    assert {schedule.integer("ahead") for schedule in space} == {0, 1, 2, 4, 8}
    assert {schedule.integer("prefetch") for schedule in space} >= {0, 8, 48}
