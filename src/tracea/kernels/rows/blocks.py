"""What schedules over rows have in common: the rows of a task, and what is done about memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracea.core.tensor_type import TensorType
from tracea.kernels.cores import fetches_far
from tracea.kernels.rows.operands import known
from tracea.semantic.nodes import Level
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.targets.target import Target

__all__ = [
    "PREFETCH",
    "PREFETCH_PASSES",
    "PREFETCH_SEVERAL",
    "RETURNING_TASKS",
    "TASKS",
    "asked_ahead",
    "default_blocks",
    "has_far_cache",
    "kept",
    "level",
    "passes_by",
    "piece_of_row",
    "prefetched",
    "returns",
    "streams",
]

# Vectors: past the end of a page, where the processor's own prefetching of a stream stops, but not a whole page ahead,
# where several streams are slower (measured, 4096x4096: gelu(x+b)+r 0.90 of the time, silu(x)*y+r 0.97, one 1.0).
PREFETCH: Final = 48
# Of several streams, each into the first cache: what is asked for far ahead crowds out what is about to be used.
# Measured on Zen 4, 4096x4096, of the time with 48: silu(x)*y+r 0.87 and 0.93 by one and two threads, gelu(x+b)+r 0.88
# and 0.82, one stream 1.2. A first cache of 48 KiB has room for more of them: on a Xeon, of the time with 8 of 16, 32
# and 64: gelu(x+b)+r 0.93, 0.89 and 0.90, silu(x)*y+r 0.98, 0.95 and 0.98.
PREFETCH_SEVERAL: Final = 8
_PREFETCH_ROOMY: Final = 32
_ROOMY_BYTES: Final = 48 << 10
# On a core that fetches far ahead itself: one or two streams, and passes over rows, of which others are buffered; more
# streams are not asked for. Measured on a Zen 5, 4096x4096, one and two threads, of the time with the above:
# gelu(x+b)+r 0.87 and 0.91, relu(x*s+b) 0.93 and 1.0, silu(x)*y+r 0.83 and 0.89, softmax 0.73 and 0.99.
_PREFETCH_FAR: Final = 96
PREFETCH_PASSES: Final = 128
_FEW_STREAMS: Final = 2
TASKS: Final = 4  # of a core, where who is early takes the next one
RETURNING_TASKS: Final = 8  # of a thread that walks its tasks there and back: it turns within one of them
_BLOCK_BYTES: Final = 4 << 20  # a task's share of a tensor: far more than handing out the task, or its first row, costs
# Of one long row: what a piece begins with was not asked for ahead, and what it ends with is waited for.
_PIECE_BYTES: Final = 4 << 20
# A last cache of this size is spread over the whole processor: one core reads it no faster than memory (measured on a
# Sapphire-Rapids-class host: 29 GB/s from both, which is lines in flight over latency).
_FAR_CACHE_BYTES: Final = 256 << 20
# A thread that comes back the way it went finds one part in so many where it left it, at least. Where it would find
# less, dealing rows to whoever asks first is worth more.
_RETURNS: Final = 4
# What storing a line past the caches costs, in lines that a cache fetches or writes back: 1 has relu(x*s+b) 512x768 the
# wrong way round, which one thread stores into the caches in 61 µs and past them in 75; silu(x)*y+r in 178 and 172.
_STORE_PAST: Final = 1.25
_L3_SHARE_BYTES: Final = 32 << 20  # of one core, at most: a virtual machine may show the whole last cache of its host


def default_blocks(dims: Sequence[int], nbytes: int, target: Target, tasks: int = TASKS) -> tuple[int, str]:
    """Return the rows of a task and which axis makes the tasks: ``tasks`` for every core, each worth its hand-out."""
    rows = dims[-2] if len(dims) > 1 else 1
    by_bytes = max(1, _BLOCK_BYTES // max(1, dims[-1] * nbytes))
    by_cores = _shared_out(rows, tasks, target)
    outer = len(dims) > 2 and dims[0] >= 4 * target.cores and dims[0] > rows
    return max(1, min(by_bytes, by_cores)), "outer" if outer else "rows"


def piece_of_row(columns: int, nbytes: int, target: Target, tasks: int = TASKS) -> int:
    """Return the elements of a task where tasks are pieces of one long row: whole pages, ``tasks`` for every core."""
    pages = _shared_out(-(-columns * nbytes // target.page_bytes), tasks, target)
    return max(1, min(_PIECE_BYTES, pages * target.page_bytes) // nbytes)


def _shared_out(count: int, tasks: int, target: Target) -> int:
    """Return how many of ``count`` a task takes, where each core has so many tasks, at least.

    One core has nothing to share out, and takes a round number: the code of other shapes, which is compiled already.
    """
    each = max(1, -(-count // (tasks * target.cores)))
    return 1 << (each.bit_length() - 1) if target.cores == 1 else each


def streams(result_bytes: int, target: Target) -> bool:
    """Whether a result is too large to be found in a cache by who reads it next."""
    shared = min(target.l3_bytes, _L3_SHARE_BYTES * target.cores)
    return result_bytes > (shared // 2 if shared else 8 * target.l2_bytes)


def has_far_cache(target: Target) -> bool:
    """Whether the last cache is spread over the whole processor, and no faster for one core than memory is."""
    return target.l3_bytes >= _FAR_CACHE_BYTES


def passes_by(inputs: Sequence[TensorType], result: TensorType, target: Target) -> bool:
    """Whether a result is stored past the caches because the tensors leave the cores' own ones for a far last cache.

    Storing past them saves reading the result's lines before they are written, and leaves the caches to the operands;
    storing into them saves what a walk there and back finds again.
    """
    own = target.cores * target.l2_bytes
    read, written = _bytes(inputs), _bytes((result,))
    if not has_far_cache(target) or kept((*inputs, result), target):
        return False
    missing_read = 1.0 - min(1.0, own / max(1, read))
    missing = 1.0 - own / (read + written)
    return missing * (read + 2 * written) > missing_read * read + _STORE_PAST * written


def asked_ahead(count: int, target: Target) -> int:
    """Return the vectors ahead at which each of ``count`` streams from memory is asked for; 0: not at all."""
    if fetches_far(target):
        return _PREFETCH_FAR if count <= _FEW_STREAMS else 0
    if count == 1:
        return PREFETCH
    return _PREFETCH_ROOMY if target.l1d_bytes >= _ROOMY_BYTES else PREFETCH_SEVERAL


def kept(types: Sequence[TensorType], target: Target) -> bool:
    """Whether the cores' own caches hold the tensors."""
    return _bytes(types) <= target.cores * target.l2_bytes


def returns(types: Sequence[TensorType], target: Target) -> bool:
    """Whether a thread that has the same rows in every run, and walks them there and back, finds enough of them.

    What the cores' own caches hold it finds in full. A result that is stored past the caches takes no part in it.
    """
    return _bytes(types) <= _RETURNS * target.cores * target.l2_bytes


def _bytes(types: Sequence[TensorType]) -> int:
    return sum(math.prod(known(dim) for dim in type_.shape) * type_.dtype.nbytes for type_ in types)


def level(schedule: Schedule) -> Level:
    """Return how blocks are dealt: to who asks first, or, with ``fixed``, to the same thread, there and back."""
    return Level.TEAM if "fixed" in schedule and schedule.integer("fixed") else Level.TASK


def prefetched(schedule: Schedule) -> int:
    """Return how many vectors ahead operands are asked for; a schedule without the choice asks for nothing.

    Raises:
        InvalidSchedule: the number is negative.
    """
    if "prefetch" not in schedule:
        return 0
    schedule.check_range(0, "prefetch", most=MOST_OF_TILE)
    return schedule.integer("prefetch")
