"""Contest: a problem run by ours and by the peers, in turns, in fresh processes.

First pass: one process runs ours and every peer that supports the problem, and the fastest peer is picked. Second
pass: ours against that
peer alone, in three fresh processes. One-shot sweeps mis-rank by 20 to 40 % on a host that shares its cores, so the
first pass decides
nothing but whom to face.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from tracea.bench.ours import contender as our_contender
from tracea.bench.peers import peers as known_peers
from tracea.bench.peers.peer import Contender
from tracea.bench.problem import Problem
from tracea.bench.suites import problems
from tracea.errors import VerdictFailed
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement, Ratio
from tracea.profiler.processes import run_in_processes
from tracea.profiler.record import Row
from tracea.profiler.timer import compare

__all__ = ["Rules", "contest", "time_contenders"]

_SCREENING_PAIRS: Final = 8
_TOLERANCE: Final = 2e-3  # of the largest result: whether a contender computes the same thing, not how well


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a contest is held; ``pairs`` is counted per process."""

    threads: int
    against: tuple[str, ...]
    pairs: int = MINIMUM_PAIRS
    processes: int = 3
    library: bool = False
    seed: int = 0


def contest(suite: str, problem: Problem, rules: Rules) -> Row:
    """Return the row of a problem: the measurements of the last process, and the ratio to each peer that was faced.

    Raises:
        VerdictFailed: a contender computed something else than ours.
        RunError: a process failed.
    """
    supported = [peer.name for peer in known_peers(rules.against) if peer.supports(problem)]
    first = _passes(suite, problem, rules, supported, pairs=_SCREENING_PAIRS, processes=1)[0]
    rivals = sorted((measurement.median_us, name) for name, measurement in first.items() if name != "ours")
    if not rivals:
        return Row(
            problem=problem.name,
            measurements=tuple(first.values()),
            ratios={},
            flops=problem.op.flops,
            nbytes=problem.op.bytes,
        )
    best = rivals[0][1]
    rounds = _passes(suite, problem, rules, [best], pairs=rules.pairs, processes=rules.processes)
    ratio = Ratio.merge([(timed[best], timed["ours"]) for timed in rounds])
    return Row(
        problem=problem.name,
        measurements=tuple(rounds[-1].values()),
        ratios={rounds[-1][best].name: ratio},
        notes={"group": problem.group, "screened": ", ".join(f"{name} {us:.4g} µs" for us, name in rivals)},
        flops=problem.op.flops,
        nbytes=problem.op.bytes,
    )


def time_contenders(
    *, suite: str, name: str, peer_names: Sequence[str], pairs: int, threads: int, library: bool, seed: int
) -> Any:
    """Time ours and the named peers in this process and return measurements by name as JSON values."""
    problem = next(problem for problem in problems(suite) if problem.name == name)
    arrays = problem.arrays(seed)
    ours = our_contender(problem, arrays, threads, library=library)
    contenders = {"ours": ours}
    expected = ours.result()
    for peer in known_peers(tuple({peer.split(".")[0] for peer in peer_names})):
        if peer.name in peer_names:
            contenders[peer.name] = peer.build(problem, arrays, threads)
            _check(problem, contenders[peer.name], expected)
    timed = compare({key: contender.run for key, contender in contenders.items()}, pairs=pairs, threads=threads)
    return msgspec.to_builtins({key: replace(timed[key], name=contender.name) for key, contender in contenders.items()})


def _passes(
    suite: str, problem: Problem, rules: Rules, peer_names: Sequence[str], *, pairs: int, processes: int
) -> list[dict[str, Measurement]]:
    arguments = {
        "suite": suite,
        "name": problem.name,
        "peer_names": list(peer_names),
        "pairs": pairs,
        "threads": rules.threads,
        "library": rules.library,
        "seed": rules.seed,
    }
    results = run_in_processes(
        "tracea.bench.contest:time_contenders",
        arguments,
        processes=processes,
        cores=tuple(range(rules.threads)),
        variables={name: str(rules.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
    )
    return [msgspec.convert(result, dict[str, Measurement]) for result in results]


def _check(problem: Problem, contender: Contender, expected: np.ndarray[Any, Any]) -> None:
    error = float(np.abs(contender.result() - expected).max(initial=0.0))
    limit = _TOLERANCE * float(np.abs(expected).max(initial=1.0))
    if not error <= limit:
        raise VerdictFailed(
            gate="same result",
            kernel=f"{contender.name} on {problem.name}",
            got=error,
            limit=limit,
            remedy="the contenders do not compute the same: fix the problem's definition",
        )
