"""Searches of the packed GEMM on recorded sweeps: every schedule's time is known, so nothing is timed here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tracea.optimizer import sampler
from tracea.optimizer.replay import RecordedSpace, replay

SWEEPS = Path(__file__).parents[2] / "benchmarks" / "results" / "sweeps"
PATHS = sorted(SWEEPS.glob("gemm_*.json.gz"))
PROBLEMS = ["1024x1024x256", "128x3072x768", "512x768x768", "768x768x768"]
SPREAD = 1.4  # the least that the median schedule takes over the best
SEEDS = range(5)
TRIALS = 30


def problem(path: Path) -> str:
    return path.name.removeprefix("gemm_").removesuffix("_f32.json.gz")


def fractions(name: str, recorded: RecordedSpace, *, seeded: bool) -> list[float]:
    """Return the fraction of the best after 30 trials, one a seed; tuning is ``seeded`` with the default schedule."""
    first = recorded.seeds if seeded else ()
    searches = (sampler(name, recorded.space, seed=seed, seeds=first) for seed in SEEDS)
    return [float(replay(search, recorded, TRIALS)[-1]) for search in searches]


def test_these_problems_were_swept() -> None:
    assert [problem(path) for path in PATHS] == PROBLEMS


@pytest.mark.parametrize("path", PATHS, ids=problem)
def test_a_sweep_is_whole_and_says_how_it_was_made(path: Path) -> None:
    recorded = RecordedSpace.load(path)
    assert len(recorded.space) >= 500
    assert not np.isnan(recorded.latencies_ms).any()
    assert len(recorded.seeds) == 1
    for word in ("sweep_gemm.py", "thread", "compiler", "pairs"):
        assert word in recorded.source


@pytest.mark.parametrize("path", PATHS, ids=problem)
def test_a_space_is_worth_a_search(path: Path) -> None:
    recorded = RecordedSpace.load(path)
    assert float(np.median(recorded.latencies_ms)) / recorded.best_ms >= SPREAD


@pytest.mark.parametrize("seeded", [True, False], ids=["from the default schedule", "from nothing"])
@pytest.mark.parametrize("path", PATHS, ids=problem)
def test_thirty_trials_come_within_three_percent_of_the_best(path: Path, seeded: bool) -> None:
    recorded = RecordedSpace.load(path)
    ours, random = (fractions(name, recorded, seeded=seeded) for name in ("default", "random"))
    print(f"{recorded.name}: {np.median(ours):.3f} of the best after {TRIALS} trials, random {np.median(random):.3f}")
    assert float(np.median(ours)) >= 0.97, ours
    assert float(np.median(ours)) >= float(np.median(random)), (ours, random)
