"""Verified, then timed: of several candidates for one op, only those whose verdict passed are ever timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.gates.case import ALL, build_cases
from tracea.gates.distribution import Distribution
from tracea.gates.gate import judge
from tracea.gates.guarded import GuardedArray
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement
from tracea.profiler.timer import compare

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracea.core.op import Op
    from tracea.gates.correctness import Run
    from tracea.gates.verdict import Verdict

__all__ = ["VerifiedTimes", "time_verified"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTimes:
    """The verdict on every candidate, and the interleaved times of those that passed."""

    verdicts: Mapping[str, Verdict]
    measurements: Mapping[str, Measurement]


def time_verified(
    candidates: Mapping[str, Run],
    op: Op,
    *,
    seed: int = 0,
    distributions: Iterable[Distribution] = ALL,
    pairs: int = MINIMUM_PAIRS,
    threads: int = 1,
    **timing: Any,
) -> VerifiedTimes:
    """Judge each candidate on the same cases, then time those that passed in turns on the same arrays.

    ``timing`` is handed to ``profiler.compare``. No candidate passed: there are no measurements.
    """
    rng = np.random.default_rng(seed)
    cases = build_cases(op, rng, distributions)
    verdicts = {name: judge(run, op, subject=name, seed=seed, cases=cases) for name, run in candidates.items()}
    passed = [name for name, verdict in verdicts.items() if verdict.passed]
    if not passed:
        return VerifiedTimes(verdicts=verdicts, measurements={})
    inputs = [GuardedArray.of(operand) for operand in op.operands]
    for guarded, values in zip(inputs, build_cases(op, rng, [Distribution.NORMAL])[0].inputs, strict=True):
        guarded.fill(values)
    output = GuardedArray.of(op.infer())
    arrays = [guarded.array for guarded in inputs]
    functions = {name: partial(candidates[name], arrays, output.array) for name in passed}
    return VerifiedTimes(verdicts=verdicts, measurements=compare(functions, pairs=pairs, threads=threads, **timing))
