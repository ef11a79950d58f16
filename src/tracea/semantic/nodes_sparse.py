"""Nodes of block-sparse kernels: products that sum only the blocks of the depth that a table lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracea.semantic.access import Access, AccessMode, Intrinsic, Region, reads
from tracea.semantic.index import FALSE, TRUE, Const, Index, Lookup, Predicate, ceil_div
from tracea.semantic.nodes import EpilogueCall, Node, coerce, in_granules
from tracea.semantic.tile_kernel import Table

__all__ = ["RunProduct", "Runs", "runs_fault"]

_ONE_LINE = Const(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Tables of the blocks that a factor has: run ``r`` has those numbered ``first[r] … first[r+1] − 1``.

    A run is one line's blocks of one chunk of the depth, ``chunk`` blocks of it: run ``c·lines + g`` of line g and
    chunk c. Block ``e`` lies in line ``line[e]`` at block ``step[e]`` of the depth; the steps of one run ascend.
    ``lines`` and ``steps`` are how many of each there are; the tables ``line`` and ``step`` have room for all blocks.
    """

    lines: Index
    steps: Index
    chunk: int
    first: str = "run_first"
    line: str = "run_line"
    step: str = "run_step"

    @property
    def count(self) -> Index:
        """How many runs there are."""
        return self.lines * ceil_div(self.steps, self.chunk)

    @property
    def tables(self) -> tuple[Table, Table, Table]:
        """The tables, with the ranges that the caller's are checked against."""
        most = self.lines * self.steps
        return (
            Table(name=self.first, length=self.count + 1, minimum=0, maximum=most),  # pyright: ignore[reportArgumentType]
            Table(name=self.line, length=most, minimum=0, maximum=self.lines - 1),  # pyright: ignore[reportArgumentType]
            Table(name=self.step, length=most, minimum=0, maximum=self.steps - 1),  # pyright: ignore[reportArgumentType]
        )

    def begin(self, run: Index) -> Index:
        """Return the number of a run's first block; of the run after the last, how many blocks there are."""
        return Lookup(self.first, run)

    def length(self, run: Index) -> Index:
        """Return how many blocks a run has."""
        return Lookup(self.first, run + 1) - Lookup(self.first, run)


def runs_fault(runs: Runs, env: Mapping[str, Any]) -> str:
    """Return what is wrong with the caller's tables beyond their ranges; nothing where they are what Runs says."""
    first, line, step = (np.asarray(env[name], dtype=np.int64) for name in (runs.first, runs.line, runs.step))
    lines = max(1, int(runs.lines.evaluate(env)))
    counts = np.diff(first)
    if first[0] != 0 or np.any(counts < 0) or first[-1] > len(line):
        return f"{runs.first} does not ascend from 0 to at most {len(line)}"
    used = int(first[-1])
    run = np.repeat(np.arange(len(counts)), counts)
    if not np.array_equal(line[:used], run % lines):
        return f"{runs.line} is not the line of each block"
    if not np.array_equal(step[:used] // runs.chunk, run // lines):
        return f"{runs.step} is not in the chunk of each block"
    if np.any((np.diff(step[:used]) <= 0) & (np.diff(run) == 0)):
        return f"{runs.step} does not ascend within a run"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProduct(Node):
    """A register tile: c = Σ a[steps of block e]·b[e] over the blocks e of a line in a chunk, plus c if ``accumulate``.

    Of several ``lines``, from ``line`` on, each is summed into its own ``size`` columns of c, the last into what is
    left of them.

    Block e is ``min(size, depth − size · step[e])`` steps from ``size · step[e]`` on, counted in a from the chunk's
    first. Then the epilogue, if ``finish``. The interior is that of a :class:`tracea.semantic.nodes.MicroKernel`, with
    ``intrinsic.meaning`` applied to each block.

    Shapes:
        a: panels of the chunk, as the intrinsic takes them. b: (blocks, panels, size, width), all blocks that there
        is room for: what is read are those of the run, and of each the steps that it has. c: (rows, columns).
    """

    intrinsic: Intrinsic
    runs: Runs
    line: Index
    chunk: Index
    size: int
    depth: Index
    a: Region
    b: Region
    c: Region
    accumulate: Predicate = FALSE
    finish: Predicate = TRUE
    epilogue: EpilogueCall | None = None
    granule: int = 1
    lines: Index = _ONE_LINE

    def __post_init__(self) -> None:
        coerce(self, "line", "chunk", "depth", "lines")

    @property
    def run(self) -> Index:
        """The number of the run, of several lines of the first."""
        return self.chunk * self.runs.lines + self.line

    @property
    def base(self) -> Index:
        """The chunk's first step."""
        return self.chunk * (self.runs.chunk * self.size)

    def accesses(self) -> tuple[Access, ...]:
        """Return the reads of a and b, the update of c and what the epilogue touches."""
        mode = AccessMode.WRITE if self.accumulate == FALSE else AccessMode.UPDATE
        own = (*reads(in_granules(self.a, self.granule), self.b), Access(self.c, mode))
        return own + (self.epilogue.accesses() if self.epilogue else ())
