"""Run a suite against peers, and say what came out as a record and as a table."""

from __future__ import annotations

import math
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tracea.bench.contest import Rules, contest
from tracea.bench.suites import problems
from tracea.core.dtype import DType
from tracea.doctor import measured_ceilings, probe_machine
from tracea.errors import InvalidOption
from tracea.profiler.environment import capture
from tracea.profiler.measurement import MINIMUM_PAIRS
from tracea.profiler.record import Record, Row, write

__all__ = ["render", "run_suite"]

_PEAK: Final = "peak f32 GFLOP/s"
_COPY: Final = "copy GB/s"
_DISCLOSURE: Final = "same threads, layout and allocation (out=) on both sides; library variants of ours disabled"


def run_suite(
    suite: str,
    *,
    against: tuple[str, ...] = ("torch", "onnxruntime"),
    threads: tuple[int, ...] = (1, 2),
    only: str | None = None,
    pairs: int = MINIMUM_PAIRS,
    processes: int = 3,
    library: bool = False,
    output: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Time every problem of a suite whose name contains ``only``; one record per number of threads.

    With ``output``, a folder, each record is written as ``<suite>-<threads>t.json`` there.

    Raises:
        InvalidOption: the suite is unknown, or no problem's name contains ``only``.
    """
    chosen = [problem for problem in problems(suite) if only is None or only in problem.name]
    if not chosen:
        names = [problem.name for problem in problems(suite)]
        raise InvalidOption(field="only", got=only, expected=names, remedy="name a part of a problem's name")
    machine = probe_machine()
    records: list[Record] = []
    for count in threads:
        rules = Rules(threads=count, against=against, pairs=pairs, processes=processes, library=library)
        measured = measured_ceilings(machine, again=True).roofline(machine.hardware.isas[0], DType.F32, threads=count)
        limits = {_PEAK: measured.peak_gflops, _COPY: measured.bandwidth_gbytes}
        rows: list[Row] = []
        for problem in chosen:
            rows.append(contest(suite, problem, rules))
            if progress is not None:
                progress(_line(rows[-1], limits))
        record = Record(
            suite=suite,
            command=shlex.join(("tracea", *sys.argv[1:])),
            environment=capture(threads=count),
            ceilings=limits,
            rows=tuple(rows),
        )
        records.append(record)
        if output is not None:
            write(output / f"{suite}-{count}t.json", record)
    return records


def render(record: Record) -> str:
    """Return the record as text: its surroundings, a line a problem, and the geometric mean of each group."""
    environment = record.environment
    versions = ", ".join(f"{name} {version}" for name, version in sorted(environment.toolchain.items()))
    limits = ", ".join(f"{name} {value:.4g}" for name, value in record.ceilings.items())
    lines = [
        f"suite {record.suite} · {environment.threads} threads · {environment.hardware} · {environment.date}",
        f"  {versions}",
        f"  measured in this run: {limits}",
        f"  {_DISCLOSURE}",
        f"  {'problem':34s} {'ours µs':>10s} {'rate':>16s}  ratio (peer / ours)",
        *(f"  {_line(row, record.ceilings)}" for row in record.rows),
    ]
    groups: dict[str, list[float]] = defaultdict(list)
    for row in record.rows:
        for ratio in row.ratios.values():
            groups[row.notes.get("group", "")].append(ratio.median)
            groups["all"].append(ratio.median)
    lines += [
        f"  geomean {name}: {math.exp(statistics.fmean(map(math.log, found))):.3f}" for name, found in groups.items()
    ]
    return "\n".join(lines)


def _line(row: Row, limits: Mapping[str, float]) -> str:
    ours = row.measurements[0]
    ratios = "; ".join(f"{ratio} of {name}" for name, ratio in row.ratios.items()) or "no peer"
    return f"{row.problem:34s} {ours.median_us:10.4g} {_rate(row, limits):>16s}  {ratios}"


def _rate(row: Row, limits: Mapping[str, float]) -> str:
    """Return the share of the ceiling that binds: arithmetic for what is dense, bandwidth for what is not."""
    microseconds = row.measurements[0].median_us
    compute = row.flops / microseconds / 1e3 / limits[_PEAK]
    memory = row.nbytes / microseconds / 1e3 / limits[_COPY]
    return f"{compute:.0%} of peak" if compute >= memory else f"{memory:.0%} of copy"
