"""GroupTiling: the tile of a block of warpgroups, and what of it wgmma and a target can take, or the nearest legal one.

Worked example: bm = 128, bn = 256 of two groups is one fragment of 64×256 sums each, 128 registers of a lane; with bk =
64 of f16, four stages are 4 · (16 384 + 32 768) bytes of shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.kernels.gemm.gpu.products import GroupProduct
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import GpuTarget

__all__ = ["GROUP_ROWS", "STRIP_COLUMNS", "GroupTiling"]

GROUP_ROWS: Final = 64
STRIP_COLUMNS: Final = 32  # of sums that a group stages at once on their way to the result
_MOST_COLUMNS: Final = 256
# Three warpgroups in a block begin with 168 registers a lane, less than a large tile needs: two groups take more.
_TWO: Final = 2
_PRODUCER_REGISTERS: Final = 40
_BARRIER_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTiling:
    """A block's tile shared by ``groups`` warpgroups, each with so many 64-row fragments of all its columns.

    ``persistent``: a block takes one tile after the other. ``pingpong``: its two groups take turns, a whole tile each.
    """

    bm: int
    bn: int
    bk: int
    stages: int
    groups: int
    product: GroupProduct
    persistent: bool = False
    pingpong: bool = False

    @classmethod
    def of(cls, schedule: Schedule, product: GroupProduct, target: GpuTarget) -> GroupTiling:
        """Return the tiling that a schedule says.

        Raises:
            InvalidSchedule: a number that wgmma cannot take; the remedy is the nearest that it can.
            ResourceExceeded: more shared memory than a block may have.
        """
        get = schedule.integer
        found = cls(
            bm=get("bm"),
            bn=get("bn"),
            bk=get("bk"),
            stages=get("stages"),
            groups=get("groups"),
            product=product,
            persistent=_flag(schedule, "persistent"),
            pingpong=_flag(schedule, "pingpong"),
        )
        if not 1 <= found.groups <= _TWO:
            raise InvalidSchedule(
                field="groups",
                got=found.groups,
                expected=f"1 or {_TWO}",
                remedy=f"use groups={_TWO if found.groups > _TWO else 1}",
            )
        if found.pingpong and not (found.persistent and found.groups == _TWO):
            raise InvalidSchedule(
                field="pingpong, persistent, groups",
                got=(int(found.pingpong), int(found.persistent), found.groups),
                expected="two groups of a persistent block, to take turns",
                remedy="use persistent=1, groups=2, or pingpong=0",
            )
        step = GROUP_ROWS * (1 if found.pingpong else found.groups)
        if found.bm < step or found.bm % step:
            raise InvalidSchedule(
                field="bm",
                got=found.bm,
                expected=f"a multiple of {step}: 64 rows for each of {step // GROUP_ROWS} groups",
                remedy=f"use bm={max(step, found.bm // step * step)}",
            )
        if found.bn % STRIP_COLUMNS or not STRIP_COLUMNS <= found.bn <= _MOST_COLUMNS:
            raise InvalidSchedule(
                field="bn",
                got=found.bn,
                expected="a multiple of 32 up to 256",
                remedy=f"use {min(_MOST_COLUMNS, max(STRIP_COLUMNS, found.bn // STRIP_COLUMNS * STRIP_COLUMNS))}",
            )
        if found.bk < 1 or found.bk % product.k:
            raise InvalidSchedule(
                field="bk",
                got=found.bk,
                expected=f"a multiple of {product.k}",
                remedy=f"use bk={4 * product.k}",
            )
        if found.stages < _TWO:
            raise InvalidSchedule(
                field="stages", got=found.stages, expected="two stages at least", remedy=f"use stages={_TWO}"
            )
        if found.registers > found.consumer_registers:
            raise InvalidSchedule(
                field="registers of a lane",
                got=found.registers,
                expected=f"at most {found.consumer_registers}",
                remedy="use a smaller tile or two groups",
            )
        if found.shared_bytes > target.shared_bytes_per_block:
            raise ResourceExceeded(
                what="shared memory",
                needed_bytes=found.shared_bytes,
                limit_bytes=target.shared_bytes_per_block,
                remedy=found._smaller(target),
            )
        return found

    @property
    def rows_of_group(self) -> int:
        """Rows of a warpgroup's share."""
        return self.bm if self.pingpong else self.bm // self.groups

    @property
    def fragments(self) -> int:
        """64-row fragments of a warpgroup."""
        return self.rows_of_group // GROUP_ROWS

    @property
    def consumer_role_registers(self) -> int | None:
        """What a consumer's lane takes of the block's pool; None leaves what it begins with."""
        return self.consumer_registers if self.groups == _TWO else None

    @property
    def producer_role_registers(self) -> int | None:
        """What a producer's lane keeps of its registers; None leaves what it begins with."""
        return _PRODUCER_REGISTERS if self.groups == _TWO else None

    @property
    def consumer_registers(self) -> int:
        """Registers that a consumer's lane may have: two groups take what the producers give back."""
        return 232 if self.groups == _TWO else 255

    @property
    def registers(self) -> int:
        """Registers that a consumer's lane needs."""
        return self.fragments * self.bn // 2 + 56

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage of A and B."""
        return (self.bm + self.bn) * self.bk * self.product.storage.nbytes

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which sums reach the result."""
        return self.groups * GROUP_ROWS * STRIP_COLUMNS * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, with room for alignment and barriers."""
        return self.stages * self.stage_bytes + self.staging_bytes + _BARRIER_BYTES

    def _smaller(self, target: GpuTarget) -> str:
        """Return the change that fits: fewer stages, two at least, or a smaller tile."""
        beside = self.staging_bytes + _BARRIER_BYTES
        fitting = (target.shared_bytes_per_block - beside) // self.stage_bytes
        if fitting >= _TWO:
            return f"stages={fitting}"
        smaller = replace(self, stages=_TWO)
        while smaller.shared_bytes > target.shared_bytes_per_block and smaller.bk > self.product.k:
            smaller = replace(smaller, bk=smaller.bk // 2)
        if smaller.shared_bytes > target.shared_bytes_per_block:
            return f"use a smaller tile: two stages of {self.stage_bytes} bytes do not fit"
        return f"stages={_TWO}, bk={smaller.bk}"


def _flag(schedule: Schedule, name: str) -> bool:
    value = schedule.get(name, 0)
    if value not in (0, 1):
        raise InvalidSchedule(field=name, got=value, expected="0 or 1", remedy=f"use {name}=0 for one tile a block")
    return value == 1
