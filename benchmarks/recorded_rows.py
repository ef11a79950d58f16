"""What benchmarks beside the suites share: their options, and rows timed in fresh processes, printed and recorded."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tracea.bench.doubt import DOUBT, why_in_doubt
from tracea.bench.results import folder_of_this_core
from tracea.profiler.environment import capture, equal_terms
from tracea.profiler.machine import cores_allowed
from tracea.profiler.measurement import Measurement
from tracea.profiler.processes import run_in_processes
from tracea.profiler.record import Record, Row, write

RESULTS = Path(__file__).parent / "results"
PAIRS, PROCESSES = 10, 3
PROCESS_SECONDS = 1800.0  # a first compilation of whole models by Inductor takes minutes
TOLERANCE = 1e-5  # of the largest element, of either side from float64


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options that each of them takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--only", default="", help="rows whose name contains this, printed and not recorded")
    parser.add_argument("--threads", nargs="*", type=int, default=(1, 2))
    return parser


def rows_of_processes(target: str, counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rows that ``target`` (module:function) measures, for each number of threads in a fresh process."""
    found: list[dict[str, Any]] = []
    for threads in counts:
        cores, variables = cores_allowed()[:threads], equal_terms(threads)
        found += run_in_processes(target, {"threads": threads}, processes=1, cores=cores, variables=variables)[0]
    return found


def time_cases(
    cases: Sequence[tuple[Any, ...]],
    name_of: Callable[..., str],
    contenders: Callable[..., dict[str, Callable[[], Any]]],
    *,
    threads: int,
    pairs: int,
    only: str,
) -> list[list[Any]]:
    """Return each case whose name contains ``only``, and both measurements in this process; without pairs, compile."""
    import torch

    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    torch.set_num_threads(threads)
    found: list[list[Any]] = []
    with torch.inference_mode():
        for case in cases:
            if only not in name_of(*case):
                continue
            calls = contenders(*case)
            timed = compare(calls, pairs=pairs, threads=threads, watch=PATIENT) if pairs else {}
            found.append([*case, {key: msgspec.to_builtins(each) for key, each in timed.items()}])
    return found


def close_sides(calls: dict[str, Callable[[], Any]], wanted: Sequence[Any], tolerance: float, name: str) -> None:
    """Compare the tensors that each side returns with those wanted; the tolerance is of the largest element."""
    for side, call in calls.items():
        for found, exact in zip(call(), wanted, strict=True):
            off = float((found.double() - exact).abs().max() / exact.abs().max())
            if not off <= tolerance:
                raise SystemExit(f"{name}: {side} is off by {off:.1e} of the largest")


def with_doubt(row: Row, results: Sequence[list[Any]]) -> Row:
    """Note what disturbed any of the processes, whose last entries are what they measured: a row shows one of them."""
    sides = [msgspec.convert(each, Measurement) for result in results for each in result[-1].values()]
    return msgspec.structs.replace(row, notes={**row.notes, DOUBT: why_in_doubt(sides)})


def record_rows(
    given: argparse.Namespace, target: str, row_of: Callable[[list[list[Any]]], Row], *, suite: str, **arguments: Any
) -> None:
    """Compile, or time what ``target`` yields (module:function) for each number of threads, print it and record it.

    The function is called with ``threads``, ``pairs`` (none where it shall only compile), ``only`` and ``arguments``,
    and ``row_of`` makes a row of what each process measured, which is the last entry of what it returns. The record is
    results/<core>/<suite>-<arguments>-<threads>t.json.
    """
    for threads in given.threads:
        results = run_in_processes(
            target,
            {"threads": threads, "pairs": 0 if given.compile else PAIRS, "only": given.only, **arguments},
            processes=1 if given.compile else PROCESSES,
            cores=cores_allowed()[:threads],
            limit_s=PROCESS_SECONDS,
            variables=equal_terms(threads),
        )
        if not results[0]:
            sys.exit(f"--only: no row's name contains {given.only!r}")
        if given.compile:
            continue
        rows = tuple(with_doubt(row_of(list(each)), each) for each in zip(*results, strict=True))
        for row in rows:
            ratios = ", ".join(f"{peer} / ours {ratio}" for peer, ratio in row.ratios.items())
            print(f"{threads}t {row.problem:42s} {row.measurements[0].median_us:8.1f} us, {ratios}", flush=True)
        if not given.only:
            command = shlex.join(["python", *sys.argv])
            record = Record(suite=suite, command=command, environment=capture(threads=threads), rows=rows)
            name = "-".join([suite, *arguments.values(), f"{threads}t"])
            write(folder_of_this_core(RESULTS) / f"{name}.json", record)
