"""How a convolution on matrix tiles is parted into tasks: bands of rows by blocks of filters, by what a task costs.

A tile is 32 pixels by 32 filters, whatever it is filled with, and every task splits the pixels that it reads into
terms. So small images are a matter of whole tiles: 49 pixels are two of them, but seven rows of 7 pixels are seven.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE
from tracea.targets.target import Target

__all__ = ["best_bands"]

# Cycles, measured (benchmarks/NOTES.md): the six products of a granule; splitting 32 channels of a pixel, and fetching
# them where another core wrote them; beginning and ending a task; fetching a granule of filters that no cache holds.
_PRODUCTS: Final = 500
_SPLIT: Final = 12
_SHARED: Final = 20
_TASK: Final = 4000
_FETCH: Final = 250
_HALF: Final = 0.6  # of a tile's products: what one of at most 16 pixels costs
_ENOUGH: Final = 1.01  # of the least cost: as good, and more tasks are dealt more evenly on a machine with other work
_MOST_TASKS: Final = 4  # of a core
_MORE_BANDS: Final = 16  # than the fewest that fit the caches


@dataclass(frozen=True, slots=True)
class _Choice:
    """A band's rows, a task's filters, how many tasks that makes, and the cycles until the last core is done."""

    rows: int
    filters: int
    tasks: int
    cycles: float


def best_bands(op: Conv2dOp, target: Target, *, most: int, filter_bytes: int) -> tuple[int, int]:
    """Return the rows of a band, at most ``most``, and the filters of a task: those that end first on all cores.

    ``filter_bytes`` are those of all filters in their panels.
    """
    cores, heavy = max(1, target.cores), filter_bytes > target.l2_bytes // 2
    choices = list(_choices(op, cores, most, heavy=heavy))
    least = min(choice.cycles for choice in choices)
    # One core deals nothing to others, and filters that no cache holds are walked as seldom as possible: then the least
    # cost, and of equal ones the fewest tasks.
    slack, tasks = (1.0, 1) if cores == 1 or heavy else (_ENOUGH, _MOST_TASKS * cores)
    good = (choice for choice in choices if choice.cycles <= slack * least)
    best = max(good, key=lambda choice: (min(choice.tasks, tasks), -choice.cycles, -choice.tasks))
    return best.rows, best.filters


def _choices(op: Conv2dOp, cores: int, most: int, *, heavy: bool) -> Iterator[_Choice]:
    height, filters = static(op.shape[2]), static(op.w.shape[0]) // op.groups
    fewest = -(-height // most)
    bands = dict.fromkeys(-(-height // count) for count in range(fewest, min(height, fewest + _MORE_BANDS) + 1))
    blocks = dict.fromkeys(round_up(-(-filters // count), TILE) for count in range(1, _MOST_TASKS * cores + 1))
    for rows in bands:
        for block in blocks:
            tasks = static(op.shape[0]) * op.groups * -(-height // rows) * -(-filters // block)
            rounds = -(-tasks // cores)
            # All cores read a band whose filters are parted, and but for one of them another core wrote it.
            split = _SPLIT + (_SHARED if block < filters and cores > 1 else 0)
            yield _Choice(rows, block, tasks, rounds * _cycles(op, rows, min(block, filters), split, heavy=heavy))


def _cycles(op: Conv2dOp, rows: int, filters: int, split: int, *, heavy: bool) -> float:
    """Return the cycles of a task."""
    (down, right), (gap_r, gap_s) = op.stride, op.dilation
    _, channels, r, s = op.w.static_shape
    columns, blocks = static(op.shape[3]), -(-channels // GRANULE)
    high, wide = (rows - 1) * down + (r - 1) * gap_r + 1, (columns - 1) * right + (s - 1) * gap_s + 1
    pixels = min(high, rows * r) * min(wide, columns * s)  # what no tap reads is left out
    whole, rest = divmod((rows - 1) * -(-wide // right) + columns, TILE)
    tiles = whole + (0 if rest == 0 else _HALF if rest <= TILE // 2 else 1)
    granules = blocks * r * s * -(-filters // TILE)
    return _TASK + pixels * blocks * split + granules * (tiles * _PRODUCTS + (_FETCH if heavy else 0))
