"""Tune one problem twice on a loaded machine, again and again: do the two tunings choose schedules of the same speed?

    taskset -c 0,1 python benchmarks/loaded_tuning.py --output benchmarks/results/loaded-tuning.json

A busy loop runs on one core: beside the timed one, or on it. What is tuned is one product under a dozen schedules that
are compiled and judged once. A tuning is what ``tracea tune`` does with them: each is timed in turns with the first,
the three fastest race, and the search's fastest keeps a tie. A one-shot tuning times each once, one after the other,
and takes the fastest. Both read the same clock of their thread, to which the loop does not add; one-shot with the
wall's clock, as a script would, stands beside. The true times are of a quiet machine, all schedules in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow.compile import compile_node, for_threads
from tracea.flow.evaluate import Candidate, judge_candidate
from tracea.flow.history import schedule_of
from tracea.flow.tuning import search_space
from tracea.kernels.registry import find
from tracea.profiler import capture, compare, race
from tracea.profiler.measurement import median_interval

VARIANT = "gemm.packed"
FINALISTS = 3
BATCH_US = 1_000.0
WARMUP_US = 2_000.0
CLOSE = 1.03

Functions = Mapping[str, Callable[[], object]]


surroundings = cache(partial(capture, threads=1))  # reads what is installed: once for all comparisons


def candidates(op: GemmOp, count: int, seed: int) -> dict[str, Callable[[], object]]:
    """Compile and judge ``count`` schedules, the default first; a call each on the same arrays."""
    variant, target = find(VARIANT), for_threads(host(), 1)
    space = search_space(op, variant, target)
    assert variant.default_schedule is not None
    rng = np.random.default_rng(seed)
    chosen = [variant.default_schedule(op, target)]
    picked = rng.choice(len(space), min(len(space), 4 * count), replace=False)
    chosen += [schedule_of(space.decode(space.row(int(index)))) for index in picked]
    a, b = (rng.standard_normal(kind.static_shape).astype(np.float32) for kind in op.operands)
    out = np.empty(op.infer().static_shape, np.float32)
    found: dict[str, Callable[[], object]] = {}
    for schedule in chosen:
        if len(found) == count:
            break
        if schedule.key in found:
            continue
        judge_candidate(op, Candidate(variant=VARIANT, schedule=schedule.key), threads=1, seed=seed).require()
        program = compile_node(op, {}, threads=1, variant=VARIANT, schedule=schedule).program
        found[schedule.key] = program.bound(a, b, out=out, threads=1)
    return found


def tuned(functions: Functions) -> tuple[str, dict[str, Any]]:
    """Search and final, as ``tracea tune`` does them; return the choice and what the race says."""
    first, *others = functions
    options: dict[str, Any] = {"batch_us": BATCH_US, "warmup_us": WARMUP_US, "clock": time.thread_time_ns}
    options["environment"] = surroundings()
    slowness = {first: 1.0}
    for name in others:
        timed = compare({"it": functions[name], "first": functions[first]}, pairs=9, **options)
        pairs = zip(timed["it"].samples_us, timed["first"].samples_us, strict=True)
        slowness[name] = statistics.median(mine / other for mine, other in pairs)
    finalists = sorted(slowness, key=lambda name: slowness[name])[:FINALISTS]
    final = race({name: functions[name] for name in finalists}, finalists[0], **options)
    measured = final.measurements[final.winner]
    return final.winner, {
        "rounds": final.rounds,
        "discarded": measured.discarded,
        "disturbed": measured.disturbed,
        "ties": len(final.ties),
    }


def one_shot(functions: Functions, clock: Callable[[], int]) -> str:
    """Call each once to warm it up and time one batch, one schedule after the other; return the fastest."""
    took: dict[str, float] = {}
    for name, function in functions.items():
        function()
        start, calls = clock(), 0
        while clock() - start < BATCH_US * 1e3:
            function()
            calls += 1
        took[name] = (clock() - start) / calls
    return min(took, key=lambda name: took[name])


@contextmanager
def busy_loop(core: int | None) -> Generator[None]:
    """Keep a core busy with an endless loop; None: no loop."""
    if core is None:
        yield
        return
    loop = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", loop]) as process:
        try:
            time.sleep(0.3)
            yield
        finally:
            process.kill()


def agreement(choose: Callable[[], str], true_us: Mapping[str, float], repeats: int) -> dict[str, Any]:
    """Choose twice, ``repeats`` times, and compare the true times of the two choices."""
    pairs = [(true_us[choose()], true_us[choose()]) for _ in range(repeats)]
    apart = [max(pair) / min(pair) for pair in pairs]
    best = min(true_us.values())
    return {
        "repeats": repeats,
        "share_within_3_percent": sum(ratio < CLOSE for ratio in apart) / repeats,
        "largest_difference": max(apart) - 1.0,
        "median_loss_to_best": statistics.median(us / best for pair in pairs for us in pair) - 1.0,
        "largest_loss_to_best": max(us / best for pair in pairs for us in pair) - 1.0,
    }


def main() -> None:
    """Run all conditions, print a table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--schedules", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timed-core", type=int, default=1)
    parser.add_argument("--other-core", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    op = GemmOp.of(m=192, n=384, k=256)
    functions = candidates(op, options.schedules, options.seed)
    os.sched_setaffinity(0, {options.timed_core})
    quiet = compare(functions, pairs=80, batch_us=BATCH_US, clock=time.thread_time_ns)
    true_us = {name: measurement.median_us for name, measurement in quiet.items()}
    for name, measurement in sorted(quiet.items(), key=lambda item: item[1].median_us):
        low, high, _ = median_interval(measurement.samples_us)
        print(f"  {measurement.median_us:8.2f} µs [{low:.2f}, {high:.2f}]  {name}")
    conditions: dict[str, dict[str, Any]] = {}
    for label, core in (("no loop", None), ("loop beside", options.other_core), ("loop on it", options.timed_core)):
        races: list[dict[str, Any]] = []

        def choose(races: list[dict[str, Any]] = races) -> str:
            winner, facts = tuned(functions)
            races.append(facts)
            return winner

        with busy_loop(core):
            started = time.monotonic()
            found = {"tuned": agreement(choose, true_us, options.repeats)}
            seconds = (time.monotonic() - started) / (2 * options.repeats)
            found["one shot, thread clock"] = agreement(
                lambda: one_shot(functions, time.thread_time_ns), true_us, options.repeats
            )
            found["one shot, wall clock"] = agreement(
                lambda: one_shot(functions, time.perf_counter_ns), true_us, options.repeats
            )
        means = {key: statistics.mean(facts[key] for facts in races) for key in races[0]}
        conditions[label] = {"seconds_of_a_tuning": seconds, "race_means": means, "choices": found}
        for how, figures in found.items():
            print(
                f"{label:12s} {how:24s} within 3 %: {figures['share_within_3_percent']:.0%}, "
                f"largest difference {figures['largest_difference']:.1%}, "
                f"loss to the best: median {figures['median_loss_to_best']:.1%}, "
                f"largest {figures['largest_loss_to_best']:.1%}",
                flush=True,
            )
    if options.output is not None:
        record = {
            "schema_version": 1,
            "suite": "loaded_tuning",
            "command": " ".join(["python", *sys.argv]),
            "environment": msgspec.to_builtins(surroundings()),
            "op": op.key,
            "variant": VARIANT,
            "true_us": true_us,
            "conditions": conditions,
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
