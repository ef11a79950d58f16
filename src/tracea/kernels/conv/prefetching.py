"""What a convolution's tile asks for before it needs it: steps of its panel, later results, the next panel."""

from __future__ import annotations

from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.kernels.conv.operands import ConvOperands
from tracea.kernels.cores import waits_long
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index
from tracea.semantic.tile_kernel import Buffer
from tracea.targets.target import Target

__all__ = [
    "AHEAD_TILES",
    "FAR",
    "FARTHEST",
    "MOST_AHEAD",
    "MOST_UPCOMING",
    "UPCOMING_LINES",
    "come_from_afar",
    "results_ahead",
    "share_of",
    "upcoming_lines",
]

FAR: Final = 8  # steps of a panel that is asked for ahead
FARTHEST: Final = 48  # of one that comes late
AHEAD_TILES: Final = (0, 1, 2, 4, 8)
MOST_AHEAD: Final = 64  # tiles
_AHEAD_STEPS: Final = 128  # from a tile to that whose results it asks for
_AHEAD_FROM: Final = 2  # second-level caches: of what a convolution reads and writes
UPCOMING_LINES: Final = (0, 1, 2, 4)
MOST_UPCOMING: Final = 16  # lines of a run of steps


def results_ahead(op: Conv2dOp, target: Target) -> int:
    """Return how many tiles ahead results, and what the epilogue reads, are asked for; 0: not at all.

    Pixels lie apart where channels are next to each other, and what leaves the caches waits for each. Measured on a
    Zen 3, one thread, filters and images warm and cold: 64 to 256 1x1 56² with a residual 1.2 to 1.4 times as fast, 16
    to 96 1x1 112² 1.0 to 1.4, others of ResNet-50 1.0 to 1.15; what the second-level cache holds 0.97 to 1.0. On a Xeon
    with AVX-512 the convolutions of ResNet-50 with a residual take 0.99 to 1.12 of the time, at any distance.
    """
    moved = sum(tensor.storage_bytes for tensor in (*op.operands, op.infer()))
    far = target.isa == "avx2" and moved > _AHEAD_FROM * target.l2_bytes
    if not far or not ConvOperands.of(op).sums_in_place:
        return 0
    return min(AHEAD_TILES[-1], -(-_AHEAD_STEPS // max(1, op.taps)))


def come_from_afar(filter_bytes: int, target: Target) -> bool:
    """Tell whether filters of so many bytes come from beyond the second-level cache, on a core that waits long then."""
    return waits_long(target) and 2 * filter_bytes >= target.l2_bytes


def upcoming_lines(target: Target, *, filter_bytes: int, steps: int, lines: int, tiles: int) -> int:
    """Return how many lines of the next panel a tile asks for in each run of its steps; 0: none.

    ``filter_bytes`` are those of all filters, ``lines`` those of a step, ``tiles`` read a panel one after the other.
    The first of them waits for what comes from beyond the second-level cache, while the others leave memory idle: each
    asks for its share of the next panel. Measured on a Xeon without its tiles, one thread, filters cold, share of the
    time: 1024 to 2048 1x1/2 14² 0.81, 512 3x3/2 14² 0.84, 512 3x3 7² 0.88, 1024 to 256 1x1 14² 0.89, 512 to 2048 1x1 7²
    0.94, 256 to 1024 14² 0.96, by fewer products 256 14² 0.80; filters of half the cache or less 0.99 to 1.06.
    """
    if not come_from_afar(filter_bytes, target):
        return 0
    return min(MOST_UPCOMING, max(1, round(steps * lines / tiles)))


def share_of(
    panels: Buffer, following: tuple[Index, ...], *, steps: Index, run: int, lines: int, tile: Index
) -> Region | None:
    """Return where those lines begin that tile number ``tile`` asks for, of the panel at ``following``; None of none.

    It takes ``lines`` of them with each ``run`` of its ``steps``.
    """
    if not lines:
        return None
    elements = 64 // panels.dtype.nbytes
    share = tile * (steps // run * (lines * elements))
    extent = (Const(1),) * (len(following) + 1)
    return panels.region((*following, share), extent)
