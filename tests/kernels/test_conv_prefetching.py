"""What a convolution's tile asks for before it needs it, and where that pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kernels.conv_layers import core, op_of

from tracea import targets
from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.conv.blocking import ConvBlocking, conv_default
from tracea.kernels.conv.packed import PREPACKED
from tracea.kernels.conv.prefetching import share_of
from tracea.kernels.conv.winograd import WINOGRAD_PREPACKED
from tracea.kernels.conv.winograd_blocking import winograd_default
from tracea.semantic.index import Const
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace
from tracea.targets.target import Target


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


def test_tiles_ask_for_their_share_of_heavy_filters_where_these_come_from_afar() -> None:
    xeon = replace(core(2, 48, 12), l2_bytes=2 << 20)
    near = replace(xeon, features=xeon.features | {"avx512_bf16"})  # a Zen 5

    def lines(target: Target, *sizes: int, kernel: int = 1, stride: int = 1) -> int:
        return conv_default(op_of(*sizes, kernel=kernel, stride=stride), target).integer("upcoming")

    heavy = ((512, 512, 7, 3, 1), (512, 512, 14, 3, 2), (1024, 256, 14, 1, 1), (1024, 2048, 14, 1, 2))
    for channels, filters, size, kernel, stride in heavy:
        assert lines(xeon, channels, filters, size, kernel=kernel, stride=stride) == 1
        assert lines(near, channels, filters, size, kernel=kernel, stride=stride) == 0
    assert lines(xeon, 2048, 512, 7) == 1  # one row of seven pixels
    assert lines(xeon, 64, 64, 56, kernel=3) == lines(xeon, 128, 512, 28) == 0  # half of the cache holds them
    by_norm = [replace(op_of(c, c, size, kernel=3), accuracy=Accuracy.NORMWISE) for c, size in ((256, 14), (64, 56))]
    assert [winograd_default(op, xeon).integer("upcoming") for op in by_norm] == [2, 0]


def test_few_pixels_are_not_worth_transformed_filters_from_afar() -> None:
    xeon = replace(core(2, 48, 12), l2_bytes=2 << 20)
    near = replace(xeon, features=xeon.features | {"avx512_bf16"})
    small, large = (replace(op_of(512, 512, size, kernel=3), accuracy=Accuracy.NORMWISE) for size in (7, 14))
    direct = PREPACKED.score(small, xeon)
    assert WINOGRAD_PREPACKED.score(small, xeon) < direct < WINOGRAD_PREPACKED.score(large, xeon)
    assert WINOGRAD_PREPACKED.score(small, near) > direct


@pytest.mark.parametrize(("name", "value"), [("ahead", -1), ("ahead", 65), ("upcoming", -1), ("upcoming", 17)])
def test_what_is_asked_for_is_bounded(name: str, value: int) -> None:
    op, target = op_of(64, 256, 56), targets.load("avx2")
    with pytest.raises(InvalidSchedule, match=name):
        ConvBlocking.of(conv_default(op, target).with_values(**{name: value}), op, target)


def test_shares_of_a_panel_follow_one_another() -> None:
    panels = Buffer(
        name="w",
        dtype=DType.F32,
        space=MemorySpace.GLOBAL,
        shape=tuple(map(Const, (1, 4, 3, 3, 8, 32))),
        role=BufferRole.CONSTANT,
    )
    following = (Const(0), Const(2), Const(0), Const(0), Const(0))
    shares = [share_of(panels, following, steps=Const(72), run=4, lines=2, tile=Const(tile)) for tile in range(4)]
    begun = [share.offset[-1].evaluate({}) for share in shares if share is not None]
    assert begun == [tile * 72 // 4 * 2 * 16 for tile in range(4)]  # 16 numbers a line
    assert share_of(panels, following, steps=Const(72), run=4, lines=0, tile=Const(0)) is None
