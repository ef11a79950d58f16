"""Reduced problems: what stands for a large problem in the emulator, small enough, and as much like it as shows faults.

Sizes are arguments of a GPU kernel's text, so that the very text of the large problem runs on a small one. What a fault
needs in order to show is kept: several tiles along both axes, more along one than along the other, the last ones of the
shape that the problem's last ones have; a ring of stages that is used again (a second phase, and a third); persistent
blocks and stream-K's workers that take more than one tile. Where one problem with all of it were too much work there
are two, one of many tiles and one of many steps. What neither has is said.

Worked example: 4096³ under bm=128, bn=256, bk=32, stages=4 is 384×512×64, of six tiles, and 128×256×288, of nine steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import TYPE_CHECKING, Final

from tracea.core.op import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType, static
from tracea.errors import InvalidOp

if TYPE_CHECKING:
    from tracea.semantic.schedule import Schedule

__all__ = ["LARGEST", "ReducedProblem", "Reduction", "reduced", "reduction"]

LARGEST: Final = 2**25  # multiply-adds of a problem that cannot be smaller: above it nothing is emulated
_EMULATED: Final = 2**21  # of one that can: about a second with all detectors
_RESIDUE: Final = 16  # extents keep their remainder, and with it what their strides are multiples of
_LONGEST_STEP: Final = 64  # an innermost stride up to this is kept as it is
_GRIDS: Final = ((2, 2), (2, 1), (1, 2), (1, 1))  # rows and columns of tiles, where more are too much work
_TAKEN: Final = 3  # tiles of a persistent block: where two groups take turns, one of them takes a second


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedProblem:
    """A problem for the emulator: ``steps`` of k in a row, and ``multiprocessors`` where a persistent grid asks."""

    op: GemmOp
    steps: int
    multiprocessors: int | None = None

    @property
    def work(self) -> int:
        """Its multiply-adds."""
        op = self.op
        return prod(static(extent) for extent in (*op.batch, op.m, op.n, op.k))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The problems that stand for one, the one of many tiles first, and what of it they do not show."""

    problems: tuple[ReducedProblem, ...]
    unseen: tuple[str, ...] = ()


def reduced(op: GemmOp, schedule: Schedule) -> GemmOp:
    """Return the op with extents of a few tiles at most, each with the remainder of its last tile: the same text.

    It keeps as many steps of k as the schedule's workers need, where the op has them: else its kernel refuses it.

    Raises:
        InvalidOp: an operand's layout is not strided.
    """
    return reduction(op, schedule).problems[0].op


def reduction(op: GemmOp, schedule: Schedule) -> Reduction:
    """Return the problems that stand for ``op`` under a schedule.

    Raises:
        InvalidOp: an operand's layout is not strided.
    """
    cut = _Cut.of(op, schedule)
    wide, unseen = cut.of_tiles()
    if wide.steps >= cut.wanted:
        return Reduction(problems=(wide,), unseen=unseen)
    long = cut.of_steps()
    if long is not None:
        return Reduction(problems=(wide, long), unseen=unseen)
    missing = (
        f"ring reuse: {cut.stages} stages are used again from step {cut.stages + 1} of k on, of which the problem has "
        f"{cut.real_run}; {wide.steps} were emulated, since {cut.needed} are above {LARGEST} multiply-adds"
    )
    return Reduction(problems=(wide,), unseen=(*unseen, missing) if wide.steps < cut.needed else unseen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A problem's tiles and steps, and how a schedule's blocks share them."""

    op: GemmOp
    bm: int
    bn: int
    bk: int
    stages: int
    split: int
    workers: int
    persistent: bool

    @classmethod
    def of(cls, op: GemmOp, schedule: Schedule) -> _Cut:
        value = {name: number for name, number in schedule.values_.items() if isinstance(number, int)}
        return cls(
            op=op,
            bm=value.get("bm", 64),
            bn=value.get("bn", 64),
            bk=value.get("bk", 64),
            stages=value.get("stages", 2),
            split=value.get("split_k", 1),
            workers=value.get("stream_k", 0),
            persistent=bool(value.get("persistent", 0)),
        )

    @property
    def rows(self) -> int:
        """Rows of tiles of the problem."""
        return -(-static(self.op.m) // self.bm)

    @property
    def columns(self) -> int:
        """Columns of tiles."""
        return -(-static(self.op.n) // self.bn)

    @property
    def steps(self) -> int:
        """Steps of k."""
        return -(-static(self.op.k) // self.bk)

    @property
    def batch(self) -> tuple[int, ...]:
        """Two at most of every batch axis."""
        return tuple(min(static(extent), 2) for extent in self.op.batch)

    @property
    def real_run(self) -> int:
        """The most steps of k that a block of the problem takes in a row, from an empty ring on."""
        return self.run(self.steps, prod(map(static, self.op.batch)) * self.rows * self.columns)

    def run(self, steps: int, tiles: int) -> int:
        """Return the most steps of k in a row of a problem with so many steps and tiles."""
        if self.workers:
            return min(steps, -(-tiles * steps // self.workers))
        return -(-steps // self.split)

    @property
    def needed(self) -> int:
        """Steps in a row that use stages again: each once, then two of them."""
        return min(self.real_run, self.stages + 2)

    @property
    def wanted(self) -> int:
        """Steps in a row after which phases are what they were: each stage twice, then one of them."""
        return min(self.real_run, 2 * self.stages + 1)

    def of_tiles(self) -> tuple[ReducedProblem, tuple[str, ...]]:
        """Return the problem of many tiles, with as many steps as there is time for, and what it does not have."""
        rows, columns = 1, 1
        for rows, columns in self._grids():
            if self._of(rows, columns, self._least(rows, columns)).work <= LARGEST:
                break
        found = self._of(rows, columns, self._least(rows, columns))
        if found.work > LARGEST:
            return found, ()  # nobody emulates it
        for run in range(self.wanted, found.steps, -1):
            longer = self._of(rows, columns, max(self._least(rows, columns), self._steps_of(rows, columns, run)))
            if longer.work <= _EMULATED:
                found = longer
                break
        return found, tuple(self._missing(rows, columns))

    def of_steps(self) -> ReducedProblem | None:
        """Return the problem of few tiles whose ring of stages is used again; None where it is too much work."""
        batches = prod(self.batch)
        if self.workers:
            # A worker begins in another's tile and ends in a third's: shares of two thirds of a tile.
            grids = [self._grown(1, 1, max(1, self.workers * 2 // 3))]
        elif self.persistent:
            grids = [(1, min(self.columns, 2)), (1, 1)]
        else:
            grids = [(1, 1)]
        for rows, columns in grids:
            for run in range(self.wanted, self.needed - 1, -1):
                walks = self.persistent and batches * rows * columns > 1
                if walks and run % (2 * self.stages) == 0 and run > self.needed:
                    continue  # the second tile would begin where the first did
                found = self._of(rows, columns, self._steps_of(rows, columns, run))
                if found.work <= LARGEST and found.steps >= self.needed:
                    return found
        return None

    def _grids(self) -> Iterator[tuple[int, int]]:
        if self.workers:
            # Workers that take a whole tile beside parts of others, or parts of two, where the problem has as many.
            yield self._grown(3, 2, 2 * self.workers + 1)
            yield self._grown(3, 2, self.workers + 1)
        there = self.rows, self.columns
        # More tiles along one axis than along the other: of the one that has them.
        best = (3, 2) if self.rows >= _TAKEN else (self.rows, 3)
        yield from ((min(rows, there[0]), min(columns, there[1])) for rows, columns in (best, *_GRIDS))

    def _grown(self, rows: int, columns: int, tiles: int) -> tuple[int, int]:
        """Return a grid of at least so many tiles in all batches, as far as the problem has them."""
        rows, columns = min(rows, self.rows), min(columns, self.columns)
        each = -(-tiles // max(1, prod(self.batch)))
        if rows * columns < each:
            rows = min(self.rows, max(rows, -(-each // max(1, columns))))
            columns = min(self.columns, max(columns, -(-each // max(1, rows))))
        return rows, columns

    def _least(self, rows: int, columns: int) -> int:
        """Return the fewest steps of k: workers that share them need one each, for a tile or for all together."""
        tiles = max(1, prod(self.batch) * rows * columns)
        return max(2, self.split, -(-self.workers // tiles))

    def _steps_of(self, rows: int, columns: int, run: int) -> int:
        """Return how many steps of k give some block so many in a row."""
        if not self.workers:
            return run * self.split
        tiles = max(1, prod(self.batch) * rows * columns)
        return max(run, -(-self.workers * run // tiles))

    def _of(self, rows: int, columns: int, steps: int) -> ReducedProblem:
        op = _resized_op(
            self.op,
            batch=self.batch,
            m=_cut(static(self.op.m), self.bm, rows),
            n=_cut(static(self.op.n), self.bn, columns),
            k=_cut(static(self.op.k), self.bk, steps),
        )
        tiles = prod(self.batch) * rows * columns
        return ReducedProblem(
            op=op,
            steps=self.run(-(-static(op.k) // self.bk), tiles),
            multiprocessors=max(1, tiles // _TAKEN) if self.persistent else None,
        )

    def _missing(self, rows: int, columns: int) -> Iterator[str]:
        """Yield what a grid of tiles does not show of the problem's."""
        if rows < min(self.rows, 2) or columns < min(self.columns, 2):
            yield (
                f"tiles: {rows}×{columns} of the problem's {self.rows}×{self.columns} were emulated, "
                f"since more are above {LARGEST} multiply-adds"
            )
        tiles, there = (prod(batch) * r * c for batch, r, c in self._both(rows, columns))
        needed = min(there, 2 * self.workers + 1)
        if self.workers and tiles < needed:
            yield (
                f"second tiles: {self.workers} workers share {there} tiles, {tiles} were emulated, "
                f"since {needed} are above {LARGEST} multiply-adds"
            )

    def _both(self, rows: int, columns: int) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        return (self.batch, rows, columns), (tuple(map(static, self.op.batch)), self.rows, self.columns)


def _cut(extent: int, tile: int, count: int) -> int:
    """Return the extent of so many tiles, the last one that of ``extent``; a single one is whole.

    Worked example: 200 in tiles of 32 ends with a tile of 8; three tiles of it are 32 + 32 + 8.
    """
    period = lcm(tile, _RESIDUE)
    limit = tile if count <= 1 else -(-(count - 1) * tile // period) * period + (extent % period or period)
    return min(extent, limit)


def _resized_op(op: GemmOp, *, batch: tuple[int, ...], m: int, n: int, k: int) -> GemmOp:
    result = (*batch, m, n)
    epilogue = replace(op.epilogue, operands=tuple(_resized(each, result) for each in op.epilogue.operands))
    a, b = _resized(op.a, (*batch, m, k)), _resized(op.b, (*batch, k, n))
    out = None if op.out is None else _resized(op.out, result)
    return replace(op, m=m, n=n, k=k, batch=batch, a=a, b=b, epilogue=epilogue, out=out)


def _resized(kind: TensorType, full: tuple[int, ...]) -> TensorType:
    """Return a type with the extents of ``full``, its axes in memory in the order that they had; 1 stays 1.

    Strides keep their remainder modulo 16, and rows that had a gap behind them keep one. An axis that went on where
    another one ended still does: kernels walk such batch axes like one.
    """
    wanted = full[len(full) - kind.rank :]
    shape = tuple(1 if old == 1 else new for old, new in zip(kind.static_shape, wanted, strict=True))
    if kind.layout is None:
        return TensorType(shape, kind.dtype)
    if not isinstance(kind.layout, StridedLayout):
        raise InvalidOp(
            field="layout", got=str(kind), expected="a strided layout", remedy="verify the op before packing"
        )
    strides = [0] * kind.rank
    step, old_step = 1, 1
    for axis in sorted(range(kind.rank), key=lambda axis: (abs(kind.strides[axis]), -axis)):
        old = abs(kind.strides[axis])
        if old == 0:
            continue
        stride = step + (old - step) % _RESIDUE
        if old == old_step:
            stride = step
        elif step == 1 and old <= _LONGEST_STEP:
            stride = old
        elif old > old_step and stride == step:
            stride += _RESIDUE
        strides[axis] = stride if kind.strides[axis] > 0 else -stride
        if kind.static_shape[axis] != 1:  # one element ends where nothing begins
            step, old_step = stride * shape[axis], old * kind.static_shape[axis]
    return TensorType(shape, kind.dtype, StridedLayout(tuple(strides)))
