"""Mutants of the GPU kernels that are no mistake, each with the reason why: the only ones that nobody need notice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["ARGUMENTS", "Argument", "argument_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """Why mutants of a kernel are no mistake: ``count`` of them have descriptions that match the whole ``pattern``.

    A pattern leaves out where in the kernel a node stands, and in which column a number: that may change.
    """

    kernel: str
    pattern: str
    reason: str
    count: int = 1


_FREE_AS_WELL = "rows of 64 bytes: both sides take another bijection, which is free of conflicts as well"
_STAGING = "both sides of the staging tile take the other bijection, which is free of conflicts as well"
_OWN_REGISTERS = (
    "the next tile is read from inputs, which nobody writes, into registers of the lane's own, which nothing uses"
    " before the barrier: the two commute"
)
_BELOW_BOTH = "p counts the stages that are filled before the loop, 0 and 1: p % 2 and p % 4 are p % 3"
_LATER_COMMIT = "the products between start no copy: the group has the same copies, and is awaited at the same count"
_STRICTER = (
    "waits for one group more than it must, which ends by itself, whatever other threads do: slower, not wrong; of the"
    " IR it is reported as superfluous"
)
_FENCE = (
    "the fence orders the lane's registers with wgmma; the wait for a stage touches none, and no wgmma stands between"
)
_ANY_THREAD = "one thread initialises the barriers and fences them itself, before a barrier of the block: any one may"
_ANY_WARP = "one warp of the producers' warpgroup brings the tiles: any of its four may"
_OWN_SUMS = "sums are registers of the lane's own: they may be cleared on either side of what orders memory"
_ALWAYS = "the guard is between constants, and always holds"
_LATER_ARRIVAL = (
    "hands on later what others wait for, and waits for none of them in between, but for its own products and its own"
    " lanes: they wait longer; each phase is awaited and completed as before"
)
_FIRST_ROW = "the first row of a tile is a row of the result: the guard always holds"
_NO_SECOND_TILE = (
    "more workers than tiles, and only where there are fewer tiles than multiprocessors: no block takes a second one"
    " (the product of 32 bits is another only for a result of more than 30 TB)"
)
_ONE_WARP = "the role has one warp"

_SIMT, _SYNC, _ASYNC = "gemm.simt sm_75", "gemm.mma_sync sm_75", "gemm.mma_cp_async sm_80"
_SHARES, _WGMMA, _TURNS = "gemm.mma_cp_async sm_80 stream-K", "gemm.wgmma sm_90a", "gemm.wgmma sm_90a in turns"
_TMA = "gemm.mma_tma sm_120a"
_A_SWIZZLE = r"swizzle: a_tiles: swizzle\(3, 4, 3\) for swizzle\(2, 4, 3\)"
_STAGING_SWIZZLE = (
    r"swizzle: staging: swizzle\(2, 5, 2\) and swizzle\(2, 4, 3\) for swizzle\(2, 5, 2\) and swizzle\(1, 4, 3\)"
)

ARGUMENTS: tuple[Argument, ...] = (
    Argument(kernel=_SIMT, pattern=r"order: Barrier at [\d.]+: after CopyTile", reason=_OWN_REGISTERS),
    Argument(kernel=_SYNC, pattern=r"order: Barrier at [\d.]+: after CopyTile", reason=_OWN_REGISTERS),
    Argument(kernel=_SYNC, pattern=_A_SWIZZLE, reason=_FREE_AS_WELL),
    Argument(kernel=_SYNC, pattern=_STAGING_SWIZZLE, reason=_STAGING),
    *(
        argument
        for kernel in (_ASYNC, _SHARES)
        for argument in (
            Argument(kernel=kernel, pattern=_A_SWIZZLE, reason=_FREE_AS_WELL),
            Argument(kernel=kernel, pattern=_STAGING_SWIZZLE, reason=_STAGING),
            Argument(kernel=kernel, pattern=r"order: CommitGroup at [\d.]+: after For", reason=_LATER_COMMIT),
            Argument(
                kernel=kernel,
                pattern=r"call: copy_async<.*\+ p % 3 \* 4096.*: argument 3 at \d+ becomes [24]",
                reason=_BELOW_BOTH,
                count=4,
            ),
            Argument(
                kernel=kernel,
                pattern=r"sync: cp_async_wait<1>\(\);: template argument 1 at \d+ becomes 0",
                reason=_STRICTER,
            ),
        )
    ),
    Argument(kernel=_SHARES, pattern=r"order: Barrier at [\d.]+: after Clear", reason=_OWN_SUMS),
    Argument(kernel=_SHARES, pattern=r"guard: launches without 3 <= 2147483647", reason=_ALWAYS),
    *(
        argument
        for kernel, beginnings in ((_WGMMA, 1), (_TURNS, 2))
        for argument in (
            Argument(kernel=kernel, pattern=_STAGING_SWIZZLE, reason=_STAGING),
            Argument(kernel=kernel, pattern=r"order: MbarrierWait at [\d.]+: after WgmmaFence", reason=_FENCE),
            Argument(
                kernel=kernel,
                pattern=r"bound: if \(thread_index\(\) == 0\) \{: condition 0 at \d+ becomes 1",
                reason=_ANY_THREAD,
                count=beginnings,
            ),
            Argument(
                kernel=kernel,
                pattern=r"bound: if \(warp_number == 8 && elect_one\(\)\) \{: condition 8 at \d+ becomes 9",
                reason=_ANY_WARP,
            ),
            Argument(
                kernel=kernel,
                pattern=r"sync: wgmma_wait<1>\(\);: template argument 1 at \d+ becomes 0",
                reason=_STRICTER,
            ),
        )
    ),
    Argument(
        kernel=_TURNS,
        pattern=r"bound: If at 0\.0\.3\.0\.0\.0\.8: (#0 row becomes row - 1|#1 m becomes m \+ 1)",
        reason=_FIRST_ROW,
        count=2,
    ),
    Argument(
        kernel=_TURNS,
        pattern=r"(bound|mask): if \(row < m\) \{: (< at \d+ becomes <=|without row < m)",
        reason=_FIRST_ROW,
        count=2,
    ),
    Argument(kernel=_TURNS, pattern=r"order: MbarrierWait at [\d.]+: after Clear", reason=_OWN_SUMS),
    Argument(
        kernel=_TURNS,
        pattern=r"order: MbarrierArrive at [\d.]+: after (WgmmaWait|If)",
        reason=_LATER_ARRIVAL,
        count=2,
    ),
    Argument(
        kernel=_TURNS,
        pattern=r"bound: for \(Turns .*: bound (127 at (44|52) becomes 128|128 at (51|59) becomes 127"
        r"|63 at (63|71) becomes 64|64 at (69|77) becomes 63)",
        reason=_NO_SECOND_TILE,
        count=8,
    ),
    Argument(kernel=_TMA, pattern=_STAGING_SWIZZLE, reason=_STAGING),
    Argument(
        kernel=_TMA,
        pattern=r"bound: if \(thread_index\(\) == 0\) \{: condition 0 at \d+ becomes 1",
        reason=_ANY_THREAD,
    ),
    Argument(
        kernel=_TMA,
        pattern=r"mask: if \(warp_number == 4 && elect_one\(\)\) \{: without warp_number == 4",
        reason=_ONE_WARP,
    ),
)


@cache
def argument_for(kernel: str, description: str) -> Argument | None:
    """Return the argument that covers a mutant of a kernel, by its family and description."""
    return next(
        (given for given in ARGUMENTS if given.kernel == kernel and re.fullmatch(given.pattern, description)), None
    )
