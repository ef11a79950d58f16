"""What a search's child process runs in tests: the real evaluation, but for schedules that misbehave on purpose."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracea.flow import evaluate as real
from tracea.runtime.program import Program

CRASHING = "TRACEA_TEST_CRASHING"  # the schedule that takes the final's process down, or is wrong


def misbehave(data: Any) -> dict[str, Any]:
    """Evaluate the first schedule as it is; of the later ones some crash, some leave zeros, some miss a row."""
    request = msgspec.convert(data, real.Request)
    if request.reference is None or request.candidates[0] == request.reference:
        return real.evaluate(data)
    match sum(request.candidates[0].schedule.encode()) % 3:
        case 0:
            ctypes.string_at(0)
        case 1:
            return _spoiled(data, lambda out: out.fill(0))
        case _:
            return _spoiled(data, lambda out: out[-1].fill(np.nan))
    raise AssertionError("string_at(0) returned")


def rank(data: Any) -> list[dict[str, Any]]:
    """Rank as it is, but for one schedule."""
    request = msgspec.convert(data, real.Request)
    if os.environ[CRASHING] in [candidate.schedule for candidate in request.candidates]:
        ctypes.string_at(0)
    return real.rank(data)


def slow_against_libraries(data: Any) -> dict[str, Any]:
    """Compare with the libraries as it is, but let the first of a request's candidates take some 200 us longer."""
    request = msgspec.convert(data, real.Request)
    timed = real._Bench.timed

    def slow(self: Any, candidate: real.Candidate) -> Callable[[], object]:
        function = timed(self, candidate)

        def late() -> None:
            function()
            until = time.perf_counter_ns() + 200_000
            while time.perf_counter_ns() < until:
                pass

        return late if candidate == request.candidates[0] else function

    real._Bench.timed = slow  # type: ignore[method-assign]
    return real.against_libraries(data)


def evaluate_one_wrong(data: Any) -> dict[str, Any]:
    """Evaluate as it is, but let one schedule leave zeros."""
    request = msgspec.convert(data, real.Request)
    if request.candidates[0].schedule == os.environ[CRASHING]:
        return _spoiled(data, lambda out: out.fill(0))
    return real.evaluate(data)


def evaluate_with_one_killed(data: Any) -> dict[str, Any]:
    """Evaluate as it is, but let one schedule be killed, as the machine does for want of memory."""
    request = msgspec.convert(data, real.Request)
    if request.candidates[0].schedule == os.environ[CRASHING]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real.evaluate(data)


def evaluate_noting(data: Any) -> dict[str, Any]:
    """Evaluate as it is, and note when something was timed."""
    _note_timings()
    return real.evaluate(data)


def rank_noting(data: Any) -> list[dict[str, Any]]:
    """Rank as it is, and note when something was timed."""
    _note_timings()
    return real.rank(data)


def _note_timings() -> None:
    """Let the two ways to time write when they began and ended, once in a process."""
    for name in ("compare", "race"):
        function = getattr(real, name)
        if not hasattr(function, "__wrapped__"):
            setattr(real, name, _noting(function))


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        began = time.time_ns()
        try:
            return function(*args, **options)
        finally:
            with Path(os.environ["TRACEA_TEST_TIMINGS"]).open("a", encoding="utf-8") as log:
                log.write(f"[{began}, {time.time_ns()}]\n")

    return noting


def _spoiled(data: Any, spoil: Callable[[Any], object]) -> dict[str, Any]:
    run = Program.run

    def wrong(self: Program, *arrays: Any, out: Any = None, threads: int | None = None) -> Any:
        result = run(self, *arrays, out=out, threads=threads)
        spoil(out)
        return result

    Program.run = wrong  # type: ignore[method-assign]
    try:
        return real.evaluate(data)
    finally:
        Program.run = run  # type: ignore[method-assign]
