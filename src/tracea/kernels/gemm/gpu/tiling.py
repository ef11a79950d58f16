"""GpuTiling: the tile of a block, how its warps share it, and what of it a target can hold, or the nearest legal one.

Worked example: bm = 128, bn = 128, bk = 32 of f16 in four stages are 4 · (8 192 + 8 192) bytes of shared memory; eight
warps in two rows of four have 64×32 sums each, 64 registers of a lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.kernels.gemm.gpu.products import FmaProduct, WarpProduct
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import GpuTarget

__all__ = ["GpuTiling", "fits", "nearest"]

_WIDE_STRIP: Final = 32
_REGISTERS_BESIDE: Final = 40  # addresses, counters and what the epilogue computes
_REGISTERS_BESIDE_HELD: Final = 80  # every held piece has an address of its own
_REGISTERS_CONVERTED: Final = 150  # products that the compiler makes of wider ones, many at once
_PARTITIONS: Final = 4  # of a multiprocessor: each holds every fourth warp in a quarter of the registers
_MOST_STAGES: Final = 8
_MOST_FRAGMENTS: Final = 2
_HELD_STAGES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTiling:
    """A block's tile (``bm`` × ``bn`` × ``bk``), its ring of ``stages`` and its grid of warps."""

    bm: int
    bn: int
    bk: int
    stages: int
    warps_m: int
    warps_n: int
    product: WarpProduct | FmaProduct
    held: bool = False
    producers: int = 0
    fragments: int = 1

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        product: WarpProduct | FmaProduct,
        target: GpuTarget,
        *,
        held: bool = False,
        producers: int = 0,
    ) -> GpuTiling:
        """Return the tiling that a schedule says, checked against the product's shape and the target's limits.

        ``held``: a stage is on its way through registers while another one is multiplied. ``producers`` are warps of
        the block beside those that multiply.

        Raises:
            InvalidSchedule: a number that the product cannot be cut into; the remedy is the nearest that it can.
            ResourceExceeded: more shared memory, registers or threads than a block may have.
        """
        found = cls.read(schedule, product, held=held, producers=producers)
        found.check(target)
        return found

    @classmethod
    def read(cls, schedule: Schedule, product: WarpProduct | FmaProduct, *, held: bool, producers: int) -> GpuTiling:
        """Return the tiling that a schedule says, unchecked."""
        get = schedule.integer
        return cls(
            bm=get("bm"),
            bn=get("bn"),
            bk=get("bk"),
            stages=get("stages") if "stages" in schedule else 1,
            warps_m=get("warps_m"),
            warps_n=get("warps_n"),
            product=product,
            held=held,
            producers=producers,
            fragments=get("fragments") if "fragments" in schedule else 1,
        )

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.warps_m * self.warps_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def wm(self) -> int:
        """Rows of a warp's tile."""
        return self.bm // self.warps_m

    @property
    def wn(self) -> int:
        """Columns of a warp's tile."""
        return self.bn // self.warps_n

    @property
    def row_fragments(self) -> int:
        """Fragments of A that a warp holds."""
        return self.wm // self.product.rows

    @property
    def column_fragments(self) -> int:
        """Fragments of B that a warp holds."""
        return self.wn // self.product.columns

    @property
    def strip_columns(self) -> int:
        """Columns of sums, of one fragment's rows, that a warp stages at once on their way to the result."""
        return _WIDE_STRIP if self.wn % _WIDE_STRIP == 0 else _WIDE_STRIP // 2

    @property
    def ring_bytes(self) -> int:
        """Shared memory of all stages of A and B."""
        return self.stages * (self.bm + self.bn) * self.bk * self.product.storage.nbytes

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which sums reach the result; lanes without tensor cores store what they hold."""
        if isinstance(self.product, FmaProduct):
            return 0
        return self.warps * self.product.rows * self.strip_columns * self.product.accumulator.nbytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.ring_bytes + self.staging_bytes

    @property
    def sum_registers(self) -> int:
        """Registers of a lane that hold sums."""
        return self.wm * self.wn // 32 * (self.product.accumulator.nbytes // 4)

    @property
    def registers(self) -> int:
        """Registers that a lane needs: sums, each slot's fragments, and what addresses take."""
        product = self.product
        fragments = self.row_fragments * _words(product.a_shape, product)
        fragments += self.column_fragments * _words(product.b_shape, product)
        fragments *= self.fragments
        if isinstance(product, WarpProduct) and product.converted:
            fragments += _REGISTERS_CONVERTED
        if not self.held:
            return self.sum_registers + fragments + _REGISTERS_BESIDE
        stage = (self.bm + self.bn) * self.bk * product.storage.nbytes // (4 * self.threads)
        return self.sum_registers + fragments + stage + _REGISTERS_BESIDE_HELD

    def check(self, target: GpuTarget) -> None:
        """Check divisibility, threads, shared memory and registers.

        Raises:
            InvalidSchedule, ResourceExceeded: as :meth:`of`.
        """
        product = self.product
        group = product.columns * product.column_group
        _positive(bm=self.bm, bn=self.bn, bk=self.bk, stages=self.stages, warps_m=self.warps_m, warps_n=self.warps_n)
        _multiple("bm", self.bm, self.warps_m * product.rows)
        _multiple("bn", self.bn, self.warps_n * group)
        _multiple("bk", self.bk, product.k)
        if self.bk & (self.bk - 1) or self.bk * product.storage.nbytes < 16:
            least = max(product.k, 16 // product.storage.nbytes)
            raise InvalidSchedule(
                field="bk", got=self.bk, expected=f"a power of two from {least}", remedy=f"use {nearest_power(self.bk)}"
            )
        if not 1 <= self.fragments <= _MOST_FRAGMENTS or self.fragments > self.bk // product.k:
            raise InvalidSchedule(
                field="fragments",
                got=self.fragments,
                expected=f"1, or {_MOST_FRAGMENTS} where a stage has as many steps of k; bk={self.bk} has "
                f"{self.bk // product.k}",
                remedy="use fragments=1" if self.bk < 2 * product.k else f"use fragments={_MOST_FRAGMENTS}",
            )
        if self.held and self.stages != _HELD_STAGES:
            raise InvalidSchedule(
                field="stages",
                got=self.stages,
                expected=f"{_HELD_STAGES}: one is multiplied while registers fill the other",
                remedy=f"use stages={_HELD_STAGES}",
            )
        if not self._least_stages <= self.stages <= _MOST_STAGES:
            most = min(_MOST_STAGES, max(self._fitting_stages(target), self._least_stages))
            raise InvalidSchedule(
                field="stages",
                got=self.stages,
                expected=f"{self._least_stages} to {most}, as many as this tile has room for on {target.name}",
                remedy=f"use {min(max(self.stages, self._least_stages), most)}",
            )
        if self.threads > target.threads_per_block:
            raise InvalidSchedule(
                field="warps_m * warps_n",
                got=self.warps,
                expected=f"at most {target.threads_per_block // 32} warps on {target.name}",
                remedy="use fewer warps",
            )
        most = self._most_registers(target)
        if self.registers > most:  # before shared memory: fewer stages would not help
            raise InvalidSchedule(
                field="registers of a lane",
                got=self.registers,
                expected=f"at most {most} on {target.name} with {self.threads} threads",
                remedy=f"{self._lighter(target)}: {self.wm}x{self.wn} sums a warp are {self.sum_registers}",
            )
        if self.shared_bytes > target.shared_bytes_per_block:
            raise ResourceExceeded(
                what="shared memory",
                needed_bytes=self.shared_bytes,
                limit_bytes=target.shared_bytes_per_block,
                remedy=self._smaller(target),
            )

    @property
    def _least_stages(self) -> int:
        # One stage that another warp fills is never ahead: its consumers would wait for every copy from its start.
        return 2 if self.producers else 1

    def _most_registers(self, target: GpuTarget) -> int:
        together = -(-(self.warps + self.producers) // _PARTITIONS)
        return min(target.registers_per_thread, target.registers_per_sm // (_PARTITIONS * 32 * together) // 8 * 8)

    def is_held_by(self, target: GpuTarget) -> bool:
        """Whether whole fragments, registers, threads and shared memory all fit."""
        product = self.product
        return (
            min(self.bm, self.bn, self.bk, self.stages, self.warps_m, self.warps_n) >= 1
            and self.bm % (self.warps_m * product.rows) == 0
            and self.bn % (self.warps_n * product.columns * product.column_group) == 0
            and self.bk % product.k == 0
            and self.bk & (self.bk - 1) == 0
            and self.threads <= target.threads_per_block
            and self.fragments <= max(1, self.bk // product.k)
            and self.registers <= self._most_registers(target)
            and self.shared_bytes <= target.shared_bytes_per_block
        )

    def _lighter(self, target: GpuTarget) -> str:
        """Return the change that the target can hold: another grid of warps first, then a smaller tile."""
        names = ("bm", "bn", "bk", "warps_m", "warps_n", "stages", "fragments")
        for found in self._lighter_ones():
            if found.is_held_by(target):
                changed = [name for name in names if getattr(found, name) != getattr(self, name)]
                return "use " + ", ".join(f"{name}={getattr(found, name)}" for name in changed)
        return "use a smaller tile"

    def _lighter_ones(self) -> Iterator[GpuTiling]:
        rows, columns = self.warps_m, self.warps_n
        grids = ((rows, columns), (2 * rows, columns), (rows, 2 * columns), (2 * rows, 2 * columns))
        fewer = (-(-rows // 2), columns), (rows, -(-columns // 2)), (-(-rows // 2), -(-columns // 2))
        least = max(self.product.k, 16 // self.product.storage.nbytes)
        bk = self.bk
        while bk >= least:
            tile = replace(self, bk=bk, fragments=min(self.fragments, bk // self.product.k))
            while tile.bm >= self.product.rows and tile.bn >= self.product.columns:
                for warps_m, warps_n in (*grids, *fewer):
                    for stages in range(self.stages, min(self.stages, 2) - 1, -1):
                        yield replace(tile, warps_m=warps_m, warps_n=warps_n, stages=stages)
                tile = replace(tile, bm=tile.bm // 2) if tile.bm >= tile.bn else replace(tile, bn=tile.bn // 2)
            bk //= 2

    def _fitting_stages(self, target: GpuTarget) -> int:
        stage = (self.bm + self.bn) * self.bk * self.product.storage.nbytes
        return (target.shared_bytes_per_block - self.staging_bytes) // stage

    def _smaller(self, target: GpuTarget) -> str:
        stage, fitting = self.ring_bytes // self.stages, self._fitting_stages(target)
        if fitting >= 1:
            return f"stages={fitting}"
        return f"halve bk or the tile: one stage is {stage} bytes"


def _words(shape: tuple[int, ...], product: WarpProduct | FmaProduct) -> int:
    nbytes = product.storage.nbytes if isinstance(product, WarpProduct) else product.accumulator.nbytes
    return shape[1] * nbytes // 4


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise InvalidSchedule(field=name, got=value, expected="at least 1", remedy="use 1 or more")


def _multiple(name: str, value: int, of: int) -> None:
    if value % of:
        raise InvalidSchedule(
            field=name, got=value, expected=f"a multiple of {of}", remedy=f"use {nearest(value, of)}, the nearest"
        )


def nearest(value: int, of: int) -> int:
    """Return the positive multiple that is nearest."""
    return max(of, (value + of // 2) // of * of)


def nearest_power(value: int) -> int:
    """Return the power of two that is nearest, 16 at least."""
    return max(16, 1 << max(0, value.bit_length() - 1))


def fits(
    values: Mapping[str, int | str],
    product: WarpProduct | FmaProduct,
    target: GpuTarget,
    *,
    held: bool = False,
    producers: int = 0,
) -> bool:
    """Whether a schedule's values make a tiling that the target can hold."""
    tiling = GpuTiling.read(Schedule(values), product, held=held, producers=producers)
    if not tiling.is_held_by(target):  # no remedy is searched for
        return False
    try:
        tiling.check(target)
    except (InvalidSchedule, ResourceExceeded):
        return False
    return True
