"""judge: all gates on one running kernel. What does not pass is neither timed nor cached nor shipped.

Worked example::

    op = GemmOp.of(m=37, n=53, k=100, dtype=DType.F32)
    verdict = judge(lambda inputs, out: np.matmul(*inputs, out=out), op, subject="numpy")
    print(verdict)      # one line a check
    verdict.require()   # raises VerdictFailed
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from tracea.gates.case import ALL, Case, build_cases
from tracea.gates.concurrency import check_concurrency
from tracea.gates.correctness import Bench, Run, check_correctness
from tracea.gates.determinism import HASHES, check_determinism
from tracea.gates.distribution import Distribution
from tracea.gates.memory import MINIMUM_RUNS, MemoryWatch, Prepare
from tracea.gates.operands import check_operands
from tracea.gates.stability import RUNS, check_stability
from tracea.gates.verdict import Check, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracea.core.op import Op

__all__ = ["judge"]


def judge(
    run: Run,
    op: Op,
    *,
    subject: str | None = None,
    seed: int | None = None,
    distributions: Iterable[Distribution] = ALL,
    cases: Sequence[Case] | None = None,
    hashes: int = HASHES,
    runs: int = RUNS,
    concurrent: bool = True,
    prepare: Prepare | None = None,
) -> Verdict:
    """Judge ``run(inputs, out)`` as a kernel of ``op``.

    By correctness, determinism, stability, what it keeps, single operands, and two callers at once.

    ``run`` fills ``out``, which comes poisoned and laid out as ``op.infer()`` says, from arrays laid out as
    ``op.operands`` say. Inputs are fresh in every call unless ``seed`` or ``cases`` say otherwise; a search that
    judges many candidates of one op builds the ``cases`` once. Without ``concurrent`` no two threads run it at once: it
    is given to one caller at a time, as a device's stream is. ``prepare(inputs)`` makes what runs on these inputs need
    and keep, such as a packed weight: it is called before each run that is watched for what it keeps. A kernel that
    fails the correctness gate is not run again.
    """
    number = secrets.randbits(32) if seed is None else seed
    rng = np.random.default_rng(number)
    drawn = build_cases(op, rng, distributions) if cases is None else tuple(cases)
    name = subject or op.key
    bench = Bench(op)
    checks: tuple[Check, ...] = check_correctness(run, bench, drawn)
    if all(check.passed for check in checks):
        widest = next((case for case in drawn if case.name == Distribution.WIDE.value), drawn[0])
        others = [case for case in drawn if case is not widest] or [widest]
        checks += (check_determinism(run, bench, widest, others[0], hashes=hashes),)
        watched = MemoryWatch(run, prepare)
        enough = runs >= MINIMUM_RUNS  # else nobody asks what was kept, and to read it takes longer than a small kernel
        checks += (check_stability(watched if enough else run, bench, drawn, runs=runs),)
        alone = check_operands(run, bench, op, drawn, rng) if enough else None
        together = check_concurrency(run, (bench, Bench(op)), drawn) if enough and concurrent else None
        checks += tuple(
            check for check in (alone, together, watched.check_files(), watched.check()) if check is not None
        )
    return Verdict(subject=name, checks=checks, seed=number)
