"""The latency gate: not slower than the best library beyond the noise, both in turns on the same arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tracea.errors import InvalidOption
from tracea.gates.verdict import Check
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement, Ratio
from tracea.profiler.timer import compare

__all__ = ["RUNS_TIMED", "WARMUP_RUNS", "check_latency"]

WARMUP_RUNS: Final = 50
RUNS_TIMED: Final = 200


def check_latency(
    ours: Callable[[], object],
    libraries: Mapping[str, Callable[[], object]],
    *,
    least: float = 1.0,
    runs: int = RUNS_TIMED,
    warmup: int = WARMUP_RUNS,
    seconds: float = 60.0,
    threads: int = 1,
    **timing: Any,
) -> tuple[Check, dict[str, Measurement]]:
    """Compare ours with the fastest of the libraries and return the check with all measurements.

    It fails where the whole interval of library / ours is below ``least``: slower for certain. Each is warmed up
    ``warmup`` times and then timed ``runs`` times; where that takes more than ``seconds``, as often as fits, at least
    30 times, and the check says so. ``timing`` is handed to ``profiler.compare``.

    Raises:
        InvalidOption: no library to compare with.
    """
    if not libraries:
        raise InvalidOption(
            field="libraries", got=0, expected="at least 1", remedy="name what it must not be slower than"
        )
    functions = {**libraries, "ours": ours}
    spent = _warmed_up(functions, warmup, seconds / 4)
    affordable = int(seconds / spent) if spent > 0 else runs
    pairs = max(min(runs, affordable), min(runs, MINIMUM_PAIRS))
    options: dict[str, Any] = {"batch_us": 0.0, "warmup_us": 0.0, **timing}
    measured = compare(functions, pairs=pairs, threads=threads, **options)
    best = min(libraries, key=lambda name: measured[name].median_us)
    ratio = Ratio.of(measured[best], measured["ours"])
    shortened = f", {runs} would take over {seconds:g} s" if pairs < runs else ""
    ours_measured = measured["ours"]
    check = Check(
        name=f"latency: {best} / ours",
        passed=ratio.high >= least,
        figure=ratio.median,
        limit=least,
        detail=f"{ratio} of {pairs} interleaved runs after {warmup} warm-up runs{shortened}; "
        f"{ours_measured.discarded} disturbed rounds measured again, {ours_measured.disturbed} kept; "
        "fails where the whole interval is below the limit",
        interval=(ratio.low, ratio.high),
    )
    return check, measured


def _warmed_up(functions: Mapping[str, Callable[[], object]], runs: int, seconds: float) -> float:
    """Run each function in turns, ``runs`` times or for so many seconds; return the seconds of the last turn."""
    began, last = time.perf_counter(), 0.0
    for _ in range(max(1, runs)):
        turn = time.perf_counter()
        for function in functions.values():
            function()
        last = time.perf_counter() - turn
        if time.perf_counter() - began > seconds:
            break
    return last
