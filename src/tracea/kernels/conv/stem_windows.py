"""How a convolution of few channels lies on matrix tiles: its windows in granules, and its bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.tensor_type import static
from tracea.errors import InvalidSchedule
from tracea.kernels.conv.amx import amx_space_of
from tracea.kernels.gemm.blocking import equal_blocks, round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE
from tracea.kernels.space import ScheduleSpace
from tracea.semantic.index import Index
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["TERMS", "StemWindows", "stem_default", "stem_space"]

TERMS: Final = 3  # of a float32
_PIXEL_BYTES: Final = 2 * (TERMS * GRANULE + 1)
_TASKS_PER_CORE: Final = 3


@dataclass(frozen=True, slots=True)
class StemWindows:
    """An op's windows in numbers: ``rows`` of taps are in one granule, ``taps`` granules in a window."""

    channels: int
    wide: int
    rows: int
    taps: int
    down: int
    right: int
    overlap: bool

    @classmethod
    def of(cls, op: Conv2dOp, *, overlap: bool) -> StemWindows:
        """Return the windows of ``op``; pixels of the halo ``overlap``, or are windows of their own."""
        _, channels, r, s = op.w.static_shape
        fitting = [rows for rows in range(1, r + 1) if r % rows == 0 and rows * s * channels <= GRANULE]
        rows = 1 if overlap else max(fitting, default=1)
        return cls(channels, s, rows, r // rows, *op.stride, overlap)

    @classmethod
    def scheduled(cls, op: Conv2dOp, schedule: Schedule) -> StemWindows:
        """Return the windows of ``op`` as its schedule has them.

        Raises:
            InvalidSchedule: there is no ``overlap``, or pixels lie further apart than a granule is long.
        """
        overlap = schedule.integer("overlap")
        if overlap not in (0, 1) or (overlap and not _can_overlap(op)):
            raise InvalidSchedule(
                field="overlap",
                got=overlap,
                expected=f"0, or 1 where pixels begin less than {GRANULE} elements apart",
                remedy="see the variant's space",
            )
        return cls.of(op, overlap=bool(overlap))

    @property
    def lanes(self) -> int:
        """Lanes of a granule that are not zero."""
        return self.rows * self.wide * self.channels

    @property
    def step(self) -> int:
        """Elements from a pixel of the halo that overlaps the next one to that one."""
        return self.right * self.channels

    @property
    def more(self) -> int:
        """Pixels of a row of the halo that begin behind the last result's, which ends with them."""
        return -(-self.lanes // self.step) - 1 if self.overlap else 0

    def image(self, rows: Index | int, columns: Index | int) -> tuple[Index, Index]:
        """Return the rows and columns of the image that windows of so many results lie in."""
        high, wide = self.rows * self.taps, self.wide
        return (rows - 1) * self.down + high, (columns - 1) * self.right + wide  # type: ignore[return-value]

    def halo(self, rows: Index | int) -> Index:
        """Return the rows of the halo that windows of so many results lie in."""
        return (rows - 1) * self.down + (self.taps - 1) * self.rows + 1  # type: ignore[return-value]


def stem_default(op: Conv2dOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return _bands(op, target, overlap=0)


def _bands(op: Conv2dOp, target: Target, *, overlap: int) -> Schedule:
    """Return bands whose halo and results fit half of the second cache, and are enough for all cores."""
    windows = StemWindows.of(op, overlap=bool(overlap))
    pixel_bytes = 2 * (TERMS * windows.step + 1) if overlap else _PIXEL_BYTES
    height, width = (static(size) for size in op.shape[2:])
    filters = static(op.w.shape[0]) // op.groups
    columns = (width - 1) * windows.right + windows.wide
    row_bytes = width * pixel_bytes + columns * windows.channels * DType.F32.nbytes
    result_bytes = width * filters * op.infer().dtype.nbytes
    beside = max(0, windows.rows * windows.taps - windows.down) * row_bytes  # rows that two bands read
    rows = (target.l2_bytes // 2 - beside) // (windows.down * row_bytes + result_bytes)
    rows = equal_blocks(height, min(height, max(1, rows)))
    wanted = 1 if target.cores == 1 else _TASKS_PER_CORE * target.cores
    while static(op.shape[0]) * op.groups * -(-height // rows) < wanted and rows > 1:
        rows = equal_blocks(height, max(1, rows // 2))
    return Schedule(rows=rows, kb=round_up(filters, TILE), overlap=overlap)


def stem_space(op: Conv2dOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    ways = (0, 1) if _can_overlap(op) else (0,)
    return ScheduleSpace.listed(
        schedule for overlap in ways for schedule in amx_space_of(op, _bands(op, target, overlap=overlap))
    )


def _can_overlap(op: Conv2dOp) -> bool:
    return op.stride[1] * op.w.static_shape[1] < GRANULE
