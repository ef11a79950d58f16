"""Judge every CUDA GEMM variant on every architecture with every element type, and write docs/gpu-matrix.md.

``python tools/gpu_matrix.py`` judges all cells and features; ``--sample 12`` an even selection and ``--variant`` those
of one variant, which write nothing unless ``--keep`` collects the pieces. No GPU is used.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import msgspec

import tracea
from tracea.testing.gpu_matrix import (
    COLUMNS,
    FEATURES,
    NOT_CHECKED,
    Cell,
    Feature,
    Row,
    cells,
    judge_cell,
    judge_feature,
    rejection,
    sample,
)
from tracea.testing.gpu_times import Times, cold_times

PAGE = Path(__file__).parents[1] / "docs" / "gpu-matrix.md"
_HEAD = """\
# The matrix of CUDA kernels

Written by `make gpu-matrix`; do not edit. Each row is one GEMM variant on one architecture with one element type.

- **proofs**: every proof of the kernel holds, for each problem below.
- **emulator**: the emitted text, run on the host under hostile schedules, shows no race, no uninitialised or outside
  access, no divergence, no deadlock, no wait that is too lax.
- **float64**: its results are within the accuracy contract of the float64 reference, for tails on every axis, odd
  extents and strides, one row, one column, one element, and a k shorter than the stages. Variants for rows along k
  take five of the seven problems.
- **banks**: shared memory in the main loop has as many ways as stated, by proof and by the emulator's count alike; a
  swizzled tile has one. Without tensor cores the emulator counts no more than proved.
- **compiled**: NVRTC makes a binary of the schedules for large problems, aligned and odd.
- **budget**: no spilled byte, no stack, no complaint of the compiler, and the instructions that the variant is named
  for.

Ways are those proved and those observed. Registers, shared bytes and resident blocks are those of the aligned schedule
for 4096³ with b stored as (n, k), as compiled; `tracea emit` has that schedule with `--transpose-b`, `gemm.simt` as all
others. No GPU took part: nothing here is a time on one, or a throughput.

**e4m3 and e5m2 on sm_89, and of `gemm.wgmma` on sm_90a**: Hopper's tensor cores are reported to keep about 14 bits when
they sum products of fp8 ([DeepSeek-V3 technical report](https://arxiv.org/abs/2412.19437), on accumulation), and Ada's
may too. The emulator does not model it, and the texts do not promote partial sums to f32: «float64» is ok here and may
fail on hardware.

"""
_FEATURES = """
## Features

Each on the first architecture of its variant, by the same checkers, and compiled for 4096³. Without a swizzle the tiles
have conflicts, which proof and emulator must count alike.

"""
_NAMES = ("variant", "architecture", "elements", "problems", *COLUMNS, "ways", "registers", "shared", "blocks")


@dataclass(slots=True)
class Judged:
    """All that the page states, collected over one run or several."""

    digest: str
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    features: dict[str, Row] = field(default_factory=dict[str, Row])
    times: tuple[Times, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of all rows, added up."""
        return sum(row.seconds for row in (*self.rows.values(), *self.features.values()))


def page(judged: Judged, when: str) -> str:
    """Return the page's text."""
    rows = [judged.rows[str(cell)] for cell in _running()]
    features = [judged.features[str(feature)] for feature in FEATURES]
    table = [f"| {' | '.join((*_NAMES, 'schedule'))} |", "|---" * (len(_NAMES) + 1) + "|"]
    table += [f"{_line(row)} {row.schedule.replace(',', ', ')} |" for row in rows]
    names = [f"| feature | {' | '.join(_NAMES)} |", "|---" * (len(_NAMES) + 1) + "|"]
    names += [f"| {feature.name} {_line(row)}" for feature, row in zip(FEATURES, features, strict=True)]
    head = _HEAD + _overview() + "\n".join(table) + f"\n\n{_summary(rows)}\n"
    body = _FEATURES + "\n".join(names) + f"\n\n{_summary(features)}\n\n"
    missing = "\n## What is not there, and why\n\n" + "\n".join(_rejections()) + "\n"
    return head + body + _times(judged, when) + missing


def _overview() -> str:
    """Return the table of variants by architectures, with the elements of each kernel that is judged below."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in _running():
        found.setdefault(cell.variant, {}).setdefault(cell.architecture, []).append(cell.element)
    columns = list(dict.fromkeys(cell.architecture for cell in cells()))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {variant} | {' | '.join(', '.join(by.get(column, ())) for column in columns)} |"
        for variant, by in found.items()
    ]
    return "\n".join(lines) + "\n\n"


def _summary(rows: Sequence[Row]) -> str:
    counts = ", ".join(f"{name} {sum(row.outcomes[name] == 'ok' for row in rows)}" for name in COLUMNS)
    unchecked = sum(outcome.startswith(NOT_CHECKED) for row in rows for outcome in row.outcomes.values())
    return f"Of {len(rows)} rows ok: {counts}; {unchecked} entries not checked."


def _line(row: Row) -> str:
    outcomes = " | ".join(_short(row.outcomes[name]) for name in COLUMNS)
    used, cell, ways = row.resources, row.cell, "{}, {}".format(*row.ways)
    shared = 0 if used is None else used.static_shared_bytes + used.dynamic_shared_bytes
    figures = f"{used.registers} | {shared} | {used.resident_blocks}" if used is not None else "| |"
    return f"| {cell.variant} | {cell.architecture} | {cell.element} | {row.runs} | {outcomes} | {ways} | {figures} |"


def _short(outcome: str) -> str:
    return outcome if outcome == "ok" else outcome.replace("|", "/").replace("\n", " ")[:160]


def _times(judged: Judged, when: str) -> str:
    lines = [
        "## Times on the host",
        "",
        f"Judged by Tracea {tracea.__version__} on {when}, {_machine()}: {judged.seconds / 60:.0f} minutes, added up "
        "over all rows, on a machine with much other work. The kernels below are f16 of 4096³ (emulated: 256³, one "
        "schedule, with all checks), cold: in a process that has made no kernel, with an empty cache. Seconds are the "
        "processor's.",
        "",
        "| variant | architecture | build, prove and emit | NVRTC | g++ for the emulator | emulate 256³ |",
        "|---|---|---|---|---|---|",
    ]
    for t in judged.times:
        lines.append(
            f"| {t.cell.variant} | {t.cell.architecture} | {t.emit:.2f} s | {_seconds(t.nvrtc)} "
            f"| {_seconds(t.host_compile)} | {_seconds(t.emulate)} |"
        )
    return "\n".join(lines) + "\n"


def _seconds(value: float | None) -> str:
    return NOT_CHECKED if value is None else f"{value:.2f} s"


def _machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} CPUs"


def _rejections() -> list[str]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for cell in cells():
        why = rejection(cell)
        if why is not None:
            grouped.setdefault((cell.variant, why), []).append(f"{cell.architecture} {cell.element}")
    return [f"- **{variant}**: {', '.join(where)}: {why}" for (variant, why), where in grouped.items()]


def _running() -> list[Cell]:
    return [cell for cell in cells() if rejection(cell) is None]


def _cell(task: Cell | Feature) -> Cell:
    return task if isinstance(task, Cell) else task.cell


def _judge(task: Cell | Feature) -> Row:
    row = judge_cell(task) if isinstance(task, Cell) else judge_feature(task)
    print(f"{row.seconds:6.1f} s  {'ok  ' if row.passed else 'FAIL'}  {task}", flush=True)
    for name, outcome in row.outcomes.items():
        if outcome != "ok":
            print(f"          {name}: {outcome[:400]}", flush=True)
    return row


def _digest() -> str:
    """Return a digest of the installed package: rows of another one are judged again."""
    root = Path(tracea.__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".h", ".cpp", ".toml"):
            found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()


def _kept(path: Path | None) -> Judged:
    empty = Judged(_digest())
    if path is None or not path.exists():
        return empty
    judged = msgspec.json.decode(path.read_bytes(), type=Judged)
    return judged if judged.digest == empty.digest else empty


def _keep(path: Path | None, judged: Judged) -> None:
    if path is not None:
        path.write_bytes(msgspec.json.encode(judged))


def _measure() -> tuple[Times, ...]:
    homes = {feature.cell.variant: feature.cell for feature in FEATURES if feature.cell.element == "f16"}
    found: list[Times] = []
    for cell in homes.values():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found.append(alone.submit(cold_times, cell).result())
        print(f"        {found[-1]}", flush=True)
    return tuple(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge and write; return 1 if any entry failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, default=0, help="judge only so many cells, evenly chosen")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--variant", help="judge only cells and features of this variant")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a file that collects rows over several runs of one package")
    options = parser.parse_args(arguments)
    judged, start = _kept(options.keep), time.perf_counter()
    chosen = list(sample(options.sample, options.seed)) if options.sample else _running()
    tasks: list[Cell | Feature] = [cell for cell in chosen if str(cell) not in judged.rows]
    if not options.sample:
        tasks += [feature for feature in FEATURES if str(feature) not in judged.features]
    wanted = [task for task in tasks if options.variant in (None, _cell(task).variant)]
    rows: list[Row] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for task, row in zip(wanted, pool.map(_judge, wanted), strict=True):
            rows.append(row)
            if isinstance(task, Cell):
                judged.rows[str(task)] = row
            else:
                judged.features[str(task)] = row
            _keep(options.keep, judged)
    if len(judged.rows) == len(_running()) and len(judged.features) == len(FEATURES):
        judged.times = _measure()
        _keep(options.keep, judged)
        PAGE.write_text(page(judged, datetime.now(UTC).strftime("%Y-%m-%d")), encoding="utf-8")
        print(f"wrote {PAGE}")
    failed = sum(not row.passed for row in rows)
    print(f"{len(rows)} rows, {failed} not ok, {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
