"""Judge every CUDA GEMM variant on every architecture with every element type, and write docs/gpu-matrix.md.

``python tools/gpu_matrix.py`` judges all cells (half an hour on two cores); ``--sample 12`` an even selection, which
writes nothing. No GPU is used: the numbers are the compiler's, the proofs' and the emulator's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tracea.testing.gpu_matrix import COLUMNS, NOT_CHECKED, Cell, Row, cells, judge_cell, rejection, sample

PAGE = Path(__file__).parents[1] / "docs" / "gpu-matrix.md"
_HEAD = """\
# The matrix of CUDA kernels

Written by `tools/gpu_matrix.py`; do not edit. Each row is one GEMM variant on one architecture with one element type.

- **proofs**: every proof of the kernel holds, for each problem below.
- **emulator**: the emitted text, run on the host under hostile schedules, shows no race, no uninitialised or outside
  access, no divergence, no deadlock.
- **float64**: its results are within the accuracy contract of the float64 reference, for tails on every axis, odd
  extents and strides, one row, one column, and a k shorter than the stages.
- **compiled**: NVRTC makes a binary of the schedules for large problems, aligned and odd.
- **budget**: no spilled byte, no stack, no complaint of the compiler, and the instructions that the variant is named
  for.

Registers, shared bytes and resident blocks are those of the aligned schedule, as compiled. No GPU took part: nothing
here is a time or a throughput.

"""
_NAMES = ("variant", "architecture", "elements", "problems", *COLUMNS, "registers", "shared", "blocks", "schedule")


def page(rows: Sequence[Row]) -> str:
    """Return the page's text."""
    lines = [_line(row) for row in rows]
    counts = {name: sum(row.outcomes[name] == "ok" for row in rows) for name in COLUMNS}
    summary = ", ".join(f"{name} {count}" for name, count in counts.items())
    unchecked = sum(outcome.startswith(NOT_CHECKED) for row in rows for outcome in row.outcomes.values())
    table = [f"| {' | '.join(_NAMES)} |", "|---" * len(_NAMES) + "|", *lines]
    text = _HEAD + "\n".join(table) + f"\n\nOf {len(rows)} rows ok: {summary}; {unchecked} entries not checked.\n"
    return text + "\n## What is not there, and why\n\n" + "\n".join(_rejections()) + "\n"


def _line(row: Row) -> str:
    outcomes = " | ".join(_short(row.outcomes[name]) for name in COLUMNS)
    used = row.resources
    shared = 0 if used is None else used.static_shared_bytes + used.dynamic_shared_bytes
    figures = f"{used.registers} | {shared} | {used.resident_blocks}" if used is not None else "| |"
    cell = row.cell
    schedule = row.schedule.replace(",", ", ")
    return (
        f"| {cell.variant} | {cell.architecture} | {cell.element} | {row.runs} | {outcomes} | {figures} | {schedule} |"
    )


def _short(outcome: str) -> str:
    return outcome if outcome == "ok" else outcome.replace("|", "/").replace("\n", " ")[:160]


def _rejections() -> list[str]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for cell in cells():
        why = rejection(cell)
        if why is not None:
            grouped.setdefault((cell.variant, why), []).append(f"{cell.architecture} {cell.element}")
    return [f"- **{variant}**: {', '.join(where)}: {why}" for (variant, why), where in grouped.items()]


def _judged(cell: Cell) -> Row:
    row = judge_cell(cell)
    print(f"{row.seconds:6.1f} s  {'ok  ' if row.passed else 'FAIL'}  {cell}", flush=True)
    for name, outcome in row.outcomes.items():
        if outcome != "ok":
            print(f"          {name}: {outcome[:400]}", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge and write; return 1 if any entry failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, default=0, help="judge only so many cells, evenly chosen")
    parser.add_argument("--variant", help="judge only cells of this variant")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = sample(options.sample) if options.sample else [cell for cell in cells() if rejection(cell) is None]
    chosen = [cell for cell in chosen if options.variant in (None, cell.variant)]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(_judged, chosen))
    if not options.sample and options.variant is None:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(f"wrote {PAGE}")
    failed = sum(not row.passed for row in rows)
    print(f"{len(rows)} cells, {failed} not ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
