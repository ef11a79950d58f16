"""Swizzles: bijective, alignment preserving, free of bank conflicts where chosen, and no wider than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule
from tracea.semantic.index import Const
from tracea.semantic.json_text import kernel_to_dict
from tracea.semantic.nodes import block
from tracea.semantic.printer import print_kernel
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import COLUMN_BYTES, TMA_MODES, WAVEFRONT_BYTES, Swizzle, choose, staged
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel

SWIZZLES = st.builds(
    lambda bits, base, more: Swizzle(bits, base, bits + more), st.integers(1, 5), st.integers(0, 5), st.integers(0, 5)
)


def _ways(swizzle: Swizzle | None, row_bytes: int, access_bytes: int) -> int:
    # Most accesses of one phase that fall into one group of banks, over all columns and all first rows.
    lanes = WAVEFRONT_BYTES // access_bytes
    worst = 0
    for first in range(lanes):
        for column in range(row_bytes // access_bytes):
            offsets = (first * lanes + np.arange(lanes)) * row_bytes + column * access_bytes
            stored = offsets if swizzle is None else swizzle.apply(offsets)
            groups = stored // access_bytes % lanes
            worst = max(worst, int(np.bincount(groups, minlength=lanes).max()))
    return worst


@given(SWIZZLES)
def test_a_swizzle_is_an_involution_that_keeps_pieces_whole(swizzle: Swizzle) -> None:
    offsets = np.arange(min(swizzle.period_bytes * 2, 1 << 16))
    stored = swizzle.apply(offsets)
    assert np.array_equal(swizzle.apply(stored), offsets)
    assert np.array_equal(stored % swizzle.alignment_bytes, offsets % swizzle.alignment_bytes)
    assert np.array_equal(stored // swizzle.span_bytes, offsets // swizzle.span_bytes)


@given(SWIZZLES, st.integers(0, (1 << 30) - 1), st.integers(0, (1 << 30) - 1))
def test_a_swizzle_is_linear(swizzle: Swizzle, x: int, y: int) -> None:
    assert swizzle.apply(x ^ y) == swizzle.apply(x) ^ swizzle.apply(y)
    assert swizzle.apply(x + swizzle.period_bytes) == swizzle.apply(x) + swizzle.period_bytes


@given(SWIZZLES)
def test_a_swizzle_as_layout_is_the_same_map_and_its_own_inverse(swizzle: Swizzle) -> None:
    layout = swizzle.as_layout()
    offsets = np.arange(min(swizzle.period_bytes, 1 << 14))
    assert np.array_equal(layout.apply(logical=offsets)["stored"], swizzle.apply(offsets))
    assert layout.is_bijective
    assert layout.inverse() == layout.renamed({"logical": "stored", "stored": "logical"})
    with pytest.raises(InvalidSchedule):
        swizzle.as_layout(bits=layout.input_bits - 1)


@pytest.mark.parametrize("access_bytes", [4, 8, 16])
@pytest.mark.parametrize("row_bytes", [16, 32, 48, 64, 80, 128, 256, 512, 1024])
def test_the_chosen_swizzle_has_no_conflict(row_bytes: int, access_bytes: int) -> None:
    if access_bytes < COLUMN_BYTES and row_bytes in (48, 80):
        with pytest.raises(InvalidSchedule):
            choose(row_bytes, access_bytes)
        return
    assert _ways(choose(row_bytes, access_bytes), row_bytes, access_bytes) == 1


@pytest.mark.parametrize(("row_bytes", "ways"), [(16, 1), (32, 2), (64, 4), (128, 8), (256, 8), (48, 1)])
def test_without_swizzle_a_column_conflicts(row_bytes: int, ways: int) -> None:
    assert _ways(None, row_bytes, COLUMN_BYTES) == ways


@pytest.mark.parametrize("row_bytes", [32, 64, 128, 256])
def test_a_smaller_swizzle_than_the_chosen_conflicts(row_bytes: int) -> None:
    chosen = choose(row_bytes)
    assert chosen is not None
    weaker = Swizzle(chosen.bits - 1, chosen.base, chosen.shift) if chosen.bits > 1 else None
    assert _ways(weaker, row_bytes, COLUMN_BYTES) == 2


def test_xor_of_the_wrong_row_bits_conflicts() -> None:
    # The 128-byte mode on 64-byte rows takes r1 r2 r3 into c0 c1 r0: it is free; on 256-byte rows it takes the
    # column's own top bit, and two rows collide.
    assert _ways(TMA_MODES[128], 64, COLUMN_BYTES) == 1
    assert _ways(TMA_MODES[128], 256, COLUMN_BYTES) == 2


def test_the_copy_engines_modes_are_what_rows_of_their_width_need() -> None:
    for nbytes, mode in TMA_MODES.items():
        assert choose(nbytes) == mode
        assert mode.tma_bytes == nbytes
        assert mode.period_bytes == 8 * nbytes
    assert Swizzle(3, 4, 4).tma_bytes is None


@pytest.mark.parametrize(("bits", "base", "shift"), [(0, 4, 3), (3, -1, 3), (3, 4, 2), (3, 25, 5)])
def test_a_map_that_is_no_swizzle_is_refused(bits: int, base: int, shift: int) -> None:
    with pytest.raises(InvalidSchedule):
        Swizzle(bits, base, shift)


@pytest.mark.parametrize(("row_bytes", "access_bytes"), [(8, 16), (40, 16), (64, 12), (96, 16)])
def test_rows_that_no_swizzle_fits_are_refused(row_bytes: int, access_bytes: int) -> None:
    with pytest.raises(InvalidSchedule):
        choose(row_bytes, access_bytes)


def _tile(name: str, swizzle: Swizzle | None, space: MemorySpace = MemorySpace.TEAM) -> Buffer:
    return Buffer(
        name=name,
        dtype=DType.F16,
        space=space,
        shape=(Const(16), Const(64)),
        role=BufferRole.SCRATCH,
        swizzle=swizzle,
    )


def test_only_shared_memory_is_swizzled() -> None:
    assert _tile("a", TMA_MODES[128]).alignment_bytes == 1024
    assert _tile("a", None).alignment_bytes == 64
    with pytest.raises(InvalidSchedule):
        _tile("a", TMA_MODES[128], MemorySpace.THREAD)


def _kernel(*buffers: Buffer) -> TileKernel:
    return TileKernel(
        name="tiles",
        op=None,
        variant="test.tiles",
        schedule=Schedule(),
        target="sm_80",
        params=(),
        buffers=buffers,
        body=block(),
    )


def test_a_swizzled_buffer_begins_at_a_period_and_is_printed_so() -> None:
    narrow = Buffer(name="n", dtype=DType.F16, space=MemorySpace.TEAM, shape=(Const(40),), role=BufferRole.SCRATCH)
    kernel = _kernel(narrow, _tile("a", TMA_MODES[128]), _tile("b", None))
    assert [kernel.scratch_offset_bytes(name).constant for name in ("n", "a", "b")] == [0, 1024, 3072]
    assert kernel.team_scratch_bytes.constant == 5120
    assert "a: f16[16, 64] in team swizzle(3, 4, 3)" in print_kernel(kernel)
    stored = kernel_to_dict(kernel)["buffers"]
    assert [buffer["swizzle"] for buffer in stored] == [
        None,
        {"node": "Swizzle", "bits": 3, "base": 4, "shift": 3, "also": None},
        None,
    ]
    assert _kernel(_tile("a", TMA_MODES[64])) != _kernel(_tile("a", None))


@pytest.mark.parametrize("row_bytes", [64, 128])
@pytest.mark.parametrize("lane_bytes", [16, 32])
def test_staged_sums_are_written_and_read_without_a_conflict(row_bytes: int, lane_bytes: int) -> None:
    swizzle = staged(row_bytes, lane_bytes)
    assert swizzle is not None
    stored = swizzle.apply(np.arange(16 * row_bytes))
    assert np.array_equal(np.sort(stored), np.arange(stored.size))
    assert np.array_equal(swizzle.apply(stored), np.arange(stored.size))
    lane = np.arange(32)
    for column in range(0, row_bytes, 32):  # pairs of words, 16 lanes a phase
        words = swizzle.apply(lane // 4 * row_bytes + column + lane % 4 * 8) // 8
        assert all(len(set(words[phase] % 16)) == 16 for phase in (slice(16), slice(16, 32)))
    across = row_bytes // lane_bytes
    for part in range(0, lane_bytes, 16):  # 16 bytes, 8 lanes a phase
        pieces = swizzle.apply(lane // across * row_bytes + lane % across * lane_bytes + part) // 16
        assert all(len(set(pieces[first : first + 8] % 8)) == 8 for first in range(0, 32, 8))


def test_two_swizzles_at_once_are_stated_and_must_not_disturb_each_other() -> None:
    both = staged(128, 32)
    assert str(both) == "swizzle(2, 5, 2) and swizzle(1, 4, 3)"
    assert both is not None
    assert (both.alignment_bytes, both.span_bytes, both.period_bytes, both.tma_bytes) == (16, 128, 512, None)
    assert both.as_layout().rank == both.period_bits
    with pytest.raises(InvalidSchedule, match="column bits"):
        Swizzle(2, 5, 2, Swizzle(1, 7, 3))
    assert staged(96, 32) is None
