"""Which tile of sums a convolution takes without a search: by products, by reads, and by the sets of a cache."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from tests.kernels.conv_layers import core, op_of

from tracea import targets
from tracea.core.op import Conv2dOp
from tracea.kernels.conv.blocking import conv_default, conv_space
from tracea.targets.target import Target


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
