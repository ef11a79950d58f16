"""Compare samplers on spaces that were measured exhaustively: the fraction of the best latency that each reaches.

    python benchmarks/replay_tuning.py                                  # the spaces that the tests carry
    python benchmarks/replay_tuning.py A.json.gz B.json.gz --seeds 40   # recorded spaces, or Kernel Tuner cache files

    python benchmarks/replay_tuning.py benchmarks/results/sweeps/*.gz   # the packed GEMM on a CPU (sweep_gemm.py)

The median over the seeds after 30, 50 and 100 trials, and the share of seeds that reached 0.97 within 30. A space that
was recorded with a default schedule is searched from there, as tuning does; --unseeded leaves that out. With --history
each space is also searched with each other one of the same parameters as its relative.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tracea.errors import InvalidOption
from tracea.optimizer import SearchSpace, sampler
from tracea.optimizer.replay import RecordedSpace, replay

MARKS = (30, 50, 100)
FIXTURES = Path(__file__).parents[1] / "tests" / "optimizer" / "data"


def from_kernel_tuner(path: Path) -> RecordedSpace:
    """Read a Kernel Tuner cache file; parameters with one value only are dropped."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    recorded = json.loads(text)
    entries: list[dict[str, Any]] = list(recorded["cache"].values())
    names = [name for name in recorded["tune_params_keys"] if len({entry[name] for entry in entries}) > 1]
    values = [sorted({entry[name] for entry in entries}) for name in names]
    rows = [[values[column].index(entry[name]) for column, name in enumerate(names)] for entry in entries]
    return RecordedSpace(
        name=f"{recorded['kernel_name']} {recorded['device_name']}",
        source=f"Kernel Tuner cache file {path.name}",
        space=SearchSpace.enumerated(names, values, rows),
        latencies_ms=np.array([entry["time"] if isinstance(entry["time"], float) else math.nan for entry in entries]),
    )


@cache
def load(path: Path) -> RecordedSpace:
    """Read either format."""
    try:
        return RecordedSpace.load(path)
    except InvalidOption:
        return from_kernel_tuner(path)


class Search(NamedTuple):
    """What is replayed: a recorded space, a sampler, a relative's record, and whether the default comes first."""

    path: Path
    name: str
    relative: Path | None = None
    seeded: bool = True


def run(search: Search, seed: int) -> tuple[list[float], float]:
    """Replay one search; return the fractions at the marks and the milliseconds a trial took."""
    recorded = load(search.path)
    history = load(search.relative).history() if search.relative is not None else ()
    seeds = recorded.seeds if search.seeded else ()
    started = time.perf_counter()
    strategy = sampler(search.name, recorded.space, seed=seed, history=history, seeds=seeds)
    reached = replay(strategy, recorded, max(MARKS))
    spent_ms = 1e3 * (time.perf_counter() - started) / len(reached)
    return [float(reached[min(mark, len(reached)) - 1]) for mark in MARKS], spent_ms


def report(pool: ProcessPoolExecutor, search: Search, seeds: int) -> None:
    """Print one row of the table."""
    results = list(pool.map(run, [search] * seeds, range(seeds)))
    fractions = np.array([fraction for fraction, _ in results])
    medians = "".join(f"{value:9.3f}" for value in np.median(fractions, axis=0))
    label = search.name if search.relative is None else f"{search.name} after {load(search.relative).name}"
    hits = float(np.mean(fractions[:, 0] >= 0.97))
    print(f"  {label:<58}{medians}{hits:11.0%}{np.mean([spent for _, spent in results]):10.1f}", flush=True)


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spaces", nargs="*", type=Path, default=sorted(FIXTURES.glob("*.json.gz")))
    parser.add_argument("--samplers", default="random,evolution,gp,tpe", help="comma-separated names")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--history", action="store_true", help="also search with each relative's history")
    parser.add_argument("--unseeded", action="store_true", help="do not start from the recorded default schedule")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(options.workers) as pool:
        for path in options.spaces:
            recorded = load(path)
            failed = int(np.isnan(recorded.latencies_ms).sum())
            spread = float(np.nanmedian(recorded.latencies_ms)) / recorded.best_ms
            close = int((recorded.latencies_ms <= recorded.best_ms / 0.97).sum())
            print(
                f"{recorded.name}: {len(recorded.space)} schedules, {failed} fail,"
                f" median/best {spread:.2f}, {close} within 0.97"
            )
            seeded = not options.unseeded
            for row in recorded.seeds if seeded else ():
                fraction = recorded.best_ms / (recorded.latency_ms(row) or math.inf)
                print(f"  from the default schedule, {fraction:.3f} of the best")
            print(
                f"  {'sampler, median of ' + str(options.seeds) + ' seeds':<58}"
                + "".join(f"{f'@{m}':>9}" for m in MARKS)
                + f"{'0.97 @30':>11}{'ms/trial':>10}"
            )
            for name in options.samplers.split(","):
                report(pool, Search(path, name, seeded=seeded), options.seeds)
            for relative in options.spaces if options.history else []:
                if relative != path and load(relative).space.parameters == recorded.space.parameters:
                    report(pool, Search(path, "default", relative, seeded), options.seeds)


if __name__ == "__main__":
    main()
