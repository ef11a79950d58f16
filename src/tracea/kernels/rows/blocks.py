"""What schedules over rows have in common: the rows of a task, and what is done about memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracea.core.tensor_type import TensorType
from tracea.kernels.rows.operands import known
from tracea.semantic.nodes import Level
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["PREFETCH", "default_blocks", "level", "passes_by", "piece_of_row", "prefetched", "stays", "streams"]

PREFETCH: Final = 64  # vectors: 4 KiB ahead, a page, where the processor's own prefetching of a stream stops
_BLOCK_BYTES: Final = 4 << 20  # a task's share of a tensor: far more than handing out the task, or its first row, costs
# Of one long row: what a piece begins with was not asked for ahead, and what it ends with is waited for.
_PIECE_BYTES: Final = 4 << 20
# A last cache of this size is spread over the whole processor: one core reads it no faster than memory (measured on a
# Sapphire-Rapids-class host: 29 GB/s from both, which is lines in flight over latency).
_FAR_CACHE_BYTES: Final = 256 << 20
_L3_SHARE_BYTES: Final = 32 << 20  # of one core, at most: a virtual machine may show the whole last cache of its host


def default_blocks(dims: Sequence[int], nbytes: int, target: Target) -> tuple[int, str]:
    """Return the rows of a task and which axis makes the tasks: enough for every core, each worth its hand-out."""
    rows = dims[-2] if len(dims) > 1 else 1
    by_bytes = max(1, _BLOCK_BYTES // max(1, dims[-1] * nbytes))
    by_cores = max(1, -(-rows // (4 * target.cores)))
    outer = len(dims) > 2 and dims[0] >= 4 * target.cores and dims[0] > rows
    return max(1, min(by_bytes, by_cores)), "outer" if outer else "rows"


def piece_of_row(columns: int, nbytes: int, target: Target) -> int:
    """Return the elements of a task where tasks are pieces of one long row: whole pages, enough for every core."""
    pages = -(-columns * nbytes // (4 * target.cores * target.page_bytes))
    return max(1, min(_PIECE_BYTES, pages * target.page_bytes) // nbytes)


def streams(result_bytes: int, target: Target) -> bool:
    """Whether a result is too large to be found in a cache by who reads it next."""
    shared = min(target.l3_bytes, _L3_SHARE_BYTES * target.cores)
    return result_bytes > (shared // 2 if shared else 8 * target.l2_bytes)


def passes_by(types: Sequence[TensorType], target: Target) -> bool:
    """Whether the tensors leave the cores' own caches for a last cache that is as far as memory.

    Storing past both then costs who reads the result little, and saves reading its lines before they are written.
    """
    return target.l3_bytes >= _FAR_CACHE_BYTES and not _fits(types, target)


def stays(types: Sequence[TensorType], target: Target) -> bool:
    """Whether the cores' own caches hold the tensors: then who had some rows in the last run has them still.

    A result that is stored past the caches takes no part in it.
    """
    return target.cores > 1 and _fits(types, target)


def _fits(types: Sequence[TensorType], target: Target) -> bool:
    sizes = (math.prod(known(dim) for dim in type_.shape) * type_.dtype.nbytes for type_ in types)
    return sum(sizes) <= target.cores * target.l2_bytes


def level(schedule: Schedule) -> Level:
    """Return how blocks are dealt: to who asks first, or, with ``fixed``, to the same thread in every run."""
    return Level.TEAM if "fixed" in schedule and schedule.integer("fixed") else Level.TASK


def prefetched(schedule: Schedule) -> int:
    """Return how many vectors ahead operands are asked for; a schedule without the choice asks for nothing.

    Raises:
        InvalidSchedule: the number is negative.
    """
    if "prefetch" not in schedule:
        return 0
    schedule.check_range(0, "prefetch")
    return schedule.integer("prefetch")
