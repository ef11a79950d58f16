"""Tune one problem twice on a loaded machine, again and again: do the two tunings choose schedules of the same speed?

    taskset -c 0,1 python benchmarks/loaded_tuning.py --output benchmarks/results/loaded-tuning.json
    taskset -c 0,1 python benchmarks/loaded_tuning.py --threads 2 --output benchmarks/results/loaded-tuning-team.json

A busy loop runs on one core: beside the timed one, or on it. A team of two threads is timed on both cores, with a loop
on one of them, and with one on each (a quarter of the repeats: such tunings take long). What is tuned is one product
under schedules that are compiled and judged once: the default, those that differ least from it, which are the hard ones
to tell apart, and as many drawn from the whole space. A tuning is what ``tracea tune`` does with them: each is timed in
turns with the first, the three fastest race, and the search's fastest keeps a tie. A one-shot tuning times each once,
one after the other, and takes the fastest. Both read the same clock of their thread, to which the loop does not add;
one-shot with the wall's clock, as a script would, stands beside. A team has no clock but the wall's. The true times are
of a machine without the loop, all schedules in turns, half of the rounds before everything else and half after it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow.compile import compile_node
from tracea.flow.evaluate import Candidate, judge_candidate
from tracea.flow.history import schedule_of
from tracea.flow.tuning import search_space
from tracea.kernels.registry import find
from tracea.profiler import capture, compare, race
from tracea.profiler.measurement import median_interval
from tracea.targets.target import for_threads

VARIANT = "gemm.packed"
FINALISTS = 3
BATCH_US = {1: 1_000.0, 2: 2_000.0}
WARMUP_US = 2_000.0
CLOSE = 1.03
TRUE_PAIRS = 80

Functions = Mapping[str, Callable[[], object]]


surroundings = cache(capture)  # reads what is installed: once for all comparisons


def candidates(op: GemmOp, count: int, seed: int, threads: int) -> dict[str, Callable[[], object]]:
    """Compile and judge ``count`` schedules, the default first, then its neighbours; a call each on the same arrays."""
    variant, target = find(VARIANT), for_threads(host(), threads)
    space = search_space(op, variant, target)
    assert variant.default_schedule is not None
    rng = np.random.default_rng(seed)
    default = variant.default_schedule(op, target)
    row = space.encode(default.values_)
    assert row is not None  # a default is one of its space
    apart = np.count_nonzero(space.rows != np.asarray(row), axis=1)
    drawn = rng.permutation(len(space))
    near = drawn[np.argsort(apart[drawn], kind="stable")][: count // 2 + 1]
    picked = dict.fromkeys(int(index) for index in (*near, *drawn))
    chosen = (default, *(schedule_of(space.decode(space.row(index))) for index in picked))
    a, b = (rng.standard_normal(kind.static_shape).astype(np.float32) for kind in op.operands)
    out = np.empty(op.infer().static_shape, np.float32)
    found: dict[str, Callable[[], object]] = {}
    for schedule in chosen:
        if len(found) == count:
            break
        if schedule.key in found:
            continue
        judge_candidate(op, Candidate(variant=VARIANT, schedule=schedule.key), threads=threads, seed=seed).require()
        program = compile_node(op, {}, threads=threads, variant=VARIANT, schedule=schedule).program
        found[schedule.key] = program.bound(a, b, out=out, threads=threads)
    return found


def timing(threads: int) -> dict[str, Any]:
    """Return how everything is timed: one thread by its own clock, a team by the wall's."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    return {"batch_us": BATCH_US[threads], "threads": threads, "clock": clock}


def tuned(functions: Functions, threads: int) -> tuple[str, dict[str, Any]]:
    """Search and final, as ``tracea tune`` does them; return the choice and what the race says."""
    first, *others = functions
    options = {**timing(threads), "warmup_us": WARMUP_US, "environment": surroundings(threads=threads)}
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
        "unclear": len(final.unclear),
        "slices_left_out": measured.left_out,
    }


def one_shot(functions: Functions, clock: Callable[[], int], batch_us: float) -> str:
    """Call each once to warm it up and time one batch, one schedule after the other; return the fastest."""
    took: dict[str, float] = {}
    for name, function in functions.items():
        function()
        start, calls = clock(), 0
        while clock() - start < batch_us * 1e3:
            function()
            calls += 1
        took[name] = (clock() - start) / calls
    return min(took, key=lambda name: took[name])


@contextmanager
def busy_loops(cores: Sequence[int]) -> Generator[None]:
    """Keep each of the cores busy with an endless loop."""
    with ExitStack() as stack:
        for core in cores:
            loop = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", loop]))
            stack.callback(process.kill)
        if cores:
            time.sleep(0.3)
        yield


def true_samples(functions: Functions, threads: int) -> dict[str, tuple[float, ...]]:
    """Time all schedules in turns for long, without the loop."""
    timed = compare(functions, pairs=TRUE_PAIRS, **timing(threads))
    return {name: measurement.samples_us for name, measurement in timed.items()}


def pairs_of(choose: Callable[[], str], repeats: int) -> list[tuple[str, str]]:
    """Choose twice, again and again."""
    return [(choose(), choose()) for _ in range(repeats)]


def agreement(pairs: Sequence[tuple[str, str]], true_us: Mapping[str, float]) -> dict[str, Any]:
    """Compare the true times of the two choices of each pair."""
    times = [(true_us[one], true_us[other]) for one, other in pairs]
    apart = [max(pair) / min(pair) for pair in times]
    best = min(true_us.values())
    return {
        "repeats": len(pairs),
        "share_within_3_percent": sum(ratio < CLOSE for ratio in apart) / len(pairs),
        "share_of_one_schedule": sum(one == other for one, other in pairs) / len(pairs),
        "largest_difference": max(apart) - 1.0,
        "median_loss_to_best": statistics.median(us / best for pair in times for us in pair) - 1.0,
        "largest_loss_to_best": max(us / best for pair in times for us in pair) - 1.0,
    }


def main() -> None:
    """Run all conditions, print a table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--schedules", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timed-core", type=int, default=1)
    parser.add_argument("--other-core", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, choices=tuple(BATCH_US))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    threads = options.threads
    op = GemmOp.of(m=192, n=384, k=256)
    functions = candidates(op, options.schedules, options.seed, threads)
    timed, other = options.timed_core, options.other_core
    os.sched_setaffinity(0, {timed} if threads == 1 else {timed, other})
    before = true_samples(functions, threads)
    choices: dict[str, dict[str, list[tuple[str, str]]]] = {}
    conditions: dict[str, dict[str, Any]] = {}
    few = max(1, options.repeats // 4)
    clocks = {"thread": time.thread_time_ns, "wall": time.perf_counter_ns}
    plan: tuple[tuple[str, tuple[int, ...], int], ...] = (
        ("no loop", (), few),
        ("loop beside", (other,), options.repeats),
        ("loop on it", (timed,), options.repeats),
    )
    if threads > 1:
        del clocks["thread"]
        plan = (
            ("no loop", (), few),
            ("loop on one core", (other,), options.repeats),
            ("loops on both cores", (timed, other), few),
        )
    for label, cores, repeats in plan:
        races: list[dict[str, Any]] = []

        def choose(races: list[dict[str, Any]] = races) -> str:
            winner, facts = tuned(functions, threads)
            races.append(facts)
            return winner

        with busy_loops(cores):
            started = time.monotonic()
            choices[label] = {"tuned": pairs_of(choose, repeats)}
            seconds = (time.monotonic() - started) / (2 * repeats)
            for how, clock in clocks.items():
                once = partial(one_shot, functions, clock, BATCH_US[threads])
                choices[label][f"one shot, {how} clock"] = pairs_of(once, repeats)
        means = {key: statistics.mean(facts[key] for facts in races) for key in races[0]}
        conditions[label] = {"seconds_of_a_tuning": seconds, "race_means": means}
    after = true_samples(functions, threads)
    true_us = {name: statistics.median((*before[name], *after[name])) for name in functions}
    for name in sorted(true_us, key=lambda name: true_us[name]):
        low, high, _ = median_interval((*before[name], *after[name]))
        print(f"  {true_us[name]:8.2f} µs [{low:.2f}, {high:.2f}]  {name}")
    for label, found in choices.items():
        conditions[label]["choices"] = {how: agreement(pairs, true_us) for how, pairs in found.items()}
        for how, figures in conditions[label]["choices"].items():
            print(
                f"{label:20s} {how:24s} within 3 %: {figures['share_within_3_percent']:.0%}, "
                f"largest difference {figures['largest_difference']:.1%}, "
                f"loss to the best: median {figures['median_loss_to_best']:.1%}, "
                f"largest {figures['largest_loss_to_best']:.1%}"
            )
        seconds, means = conditions[label]["seconds_of_a_tuning"], conditions[label]["race_means"]
        print(f"{label:20s} a tuning takes {seconds:.2f} s; its race {means}")
    if options.output is not None:
        record = {
            "schema_version": 1,
            "suite": "loaded_tuning",
            "command": " ".join(["python", *sys.argv]),
            "environment": msgspec.to_builtins(surroundings(threads=threads)),
            "op": op.key,
            "variant": VARIANT,
            "true_us": true_us,
            "conditions": conditions,
        }
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
