"""Contest: a problem run by ours and by the peers, in turns, in fresh processes.

First pass: one process runs ours and every peer that supports the problem, compares all results with float64, and picks
the fastest peer; a suite's problems share such processes, since some libraries take seconds to load. Second pass: ours
against that peer, and against the one that the problem is always compared with, in three fresh processes. One-shot
sweeps mis-rank by 20 to 40 % on a host that shares its cores, so the first pass decides nothing but whom to face.

Results go to the same kind of memory on both sides: where the peer can only return new memory, ours does too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracea.bench.doubt import DOUBT, why_in_doubt
from tracea.bench.ours import BASELINES, baselines
from tracea.bench.ours import contender as our_contender
from tracea.bench.peers import peers as known_peers
from tracea.bench.peers import surroundings
from tracea.bench.peers.peer import Allocation, Contender
from tracea.bench.problem import Problem
from tracea.bench.same_result import error_and_limit
from tracea.bench.suites import problems
from tracea.core.op import Op
from tracea.core.reference import evaluate
from tracea.errors import BudgetExceeded, InvalidOption, RunError, VerdictFailed
from tracea.profiler.duration import shown_us
from tracea.profiler.environment import equal_terms
from tracea.profiler.machine import cores_allowed
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement, Ratio
from tracea.profiler.processes import run_in_processes
from tracea.profiler.record import Row
from tracea.profiler.timer import compare
from tracea.profiler.watch import PATIENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Heat",
    "Refused",
    "Rules",
    "contest",
    "heat",
    "screen",
    "screen_contenders",
    "time_contenders",
]

_OURS: Final = "ours"
_OTHER: Final = "ours in the other order"  # of the images' axes
_SCREENING_PAIRS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a contest is held; ``pairs`` is counted per process.

    Raises:
        InvalidOption: an unknown peer, a count below 1, or more threads than cores.
    """

    threads: int
    against: tuple[str, ...]
    pairs: int = MINIMUM_PAIRS
    processes: int = 3
    library: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        known_peers(self.against)
        cores = len(cores_allowed())
        for field, value, most in (
            ("pairs", self.pairs, None),
            ("processes", self.processes, None),
            ("threads", self.threads, cores),
        ):
            if value < 1 or (most is not None and value > most):
                raise InvalidOption(
                    field=field,
                    got=value,
                    expected="at least 1" if most is None else f"1 to {most}, the cores that this process may use",
                    remedy=f"give another number of {field}",
                )


class Heat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What one process measured: ours as "ours" and each peer by its name, all with results in memory of one kind.

    Beside them what ours is measured by, under a name of ``BASELINES``. In a first pass ours is there in either order
    of a problem that has two.
    """

    allocation: Allocation
    measurements: dict[str, Measurement]


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Who computed something else, and by how much."""

    contender: str
    error: float
    limit: float


def screen(suite: str, several: Sequence[Problem], rules: Rules) -> dict[str, Heat | Refused]:
    """Hold the first pass of several problems in one process; return what each found, by the problem's name.

    Nothing is returned where that process fails: each contest then holds its own first pass, and says what is wrong.
    """
    first = [
        _heat_arguments(
            suite,
            problem,
            rules,
            [peer.name for peer in known_peers(rules.against) if peer.supports(problem)],
            screening=True,
        )
        for problem in several
    ]
    try:
        (answers,) = _run("screen_contenders", {"heats": first}, rules, processes=1)
    except (RunError, BudgetExceeded):
        return {}
    return {
        problem.name: msgspec.convert(answer, Heat | Refused) for problem, answer in zip(several, answers, strict=True)
    }


def contest(suite: str, problem: Problem, rules: Rules, screened: Heat | Refused | None = None) -> Row:
    """Return the row of a problem: the measurements of the last process, and the ratio to each peer that was faced.

    ``screened`` is the problem's first pass where :func:`screen` held it.

    Raises:
        VerdictFailed: a contender computed something else. RunError: a process failed.
    """
    supported = [peer.name for peer in known_peers(rules.against) if peer.supports(problem)]
    held = _heats(suite, problem, rules, supported, screening=True) if screened is None else _accepted([screened])
    first = held[0].measurements
    order = min((first[name].median_us, name) for name in (_OURS, _OTHER) if name in first)[1]
    rivals = sorted((measurement.median_us, name) for name, measurement in first.items() if name not in (_OURS, _OTHER))
    faced = [name for _, name in rivals[:1]]
    # The best of the family that the problem is always compared with, where another one is faster.
    faced += [name for _, name in rivals if name.partition(".")[0] == problem.yardstick and name not in faced][:1]
    heats = _heats(suite, problem, rules, faced, screening=False, other=order == _OTHER)
    last = heats[-1]
    return Row(
        problem=problem.name,
        measurements=tuple(each for key, each in last.measurements.items() if key not in BASELINES),
        ratios={
            last.measurements[name].name: Ratio.merge(
                [(each.measurements[name], each.measurements[_OURS]) for each in heats]
            )
            for name in faced
        },
        notes={
            "group": problem.group,
            "allocation": last.allocation.value,
            "ceiling": problem.ceiling,
            "library": "competing" if rules.library else "disabled",
            "screened": ", ".join(f"{name} {shown_us(us)}" for us, name in rivals),
            DOUBT: why_in_doubt([each.measurements[name] for each in heats for name in (_OURS, *faced)]),
            **_beside_baselines(heats),
            **({} if problem.other is None else {"images": _order(problem.other if order == _OTHER else problem.op)}),
        },
        flops=problem.op.flops,
        nbytes=problem.op.bytes,
    )


def _order(op: Op) -> str:
    return "channels last" if op.infer().strides[1] == 1 else "in rows"


def _beside_baselines(heats: Sequence[Heat]) -> dict[str, str]:
    """Return which share of the rate of each baseline in the same turns ours reached."""
    measured = [each.measurements for each in heats]
    return {
        name: str(Ratio.merge([(each[name], each[_OURS]) for each in measured]))
        for name in BASELINES
        if all(name in each for each in measured)
    }


def screen_contenders(*, heats: Sequence[dict[str, Any]]) -> list[Any]:
    """Hold heats one after the other in this process, called in a fresh one; return what each found as JSON values."""
    return [time_contenders(**arguments) for arguments in heats]


def time_contenders(*, suite: str, name: str, **arguments: Any) -> Any:
    """Hold one heat in this process, called in fresh ones; return a Heat or a Refused as JSON values."""
    problem = next(problem for problem in problems(suite) if problem.name == name)
    try:
        return msgspec.to_builtins(heat(problem, **arguments))
    except VerdictFailed as refused:
        return msgspec.to_builtins(
            Refused(contender=str(refused.kernel), error=float(refused.got), limit=float(refused.limit))
        )


def heat(
    problem: Problem,
    *,
    peer_names: Sequence[str],
    pairs: int,
    threads: int,
    library: bool = False,
    seed: int = 0,
    verify: bool = True,
    other: bool = False,
) -> Heat:
    """Time ours and the named peers in this process, in turns.

    With ``verify`` all results are compared with float64, else the peers' with ours, and ours takes part in both orders
    that a problem's images may have; without it in one, the ``other`` or its own.

    Raises:
        VerdictFailed: a contender computed something else.
    """
    arrays = problem.arrays(seed)
    families = tuple(dict.fromkeys(peer.partition(".")[0] for peer in peer_names))
    with surroundings(families, threads):
        rivals = {
            peer.name: peer.build(problem, arrays, threads) for peer in known_peers(families) if peer.name in peer_names
        }
        kinds = {rival.allocation for rival in rivals.values()}
        allocation = Allocation.FRESH if kinds == {Allocation.FRESH} else Allocation.OUT
        second = problem.in_other_order(arrays)
        chosen = {_OURS: second if other else (problem, arrays)}
        if verify and problem.other is not None:
            chosen[_OTHER] = second
        own = {
            key: our_contender(*given, threads, allocation=allocation, library=library) for key, given in chosen.items()
        }
        ours = own[_OURS]
        contenders = {**own, **rivals}
        expected = evaluate(problem.op, arrays) if verify else ours.result()
        for contender in contenders.values():
            _check(problem, contender, expected)
        if not verify:
            contenders |= baselines(problem, arrays, threads)
        timed = compare(
            {key: contender.run for key, contender in contenders.items()}, pairs=pairs, threads=threads, watch=PATIENT
        )
    measurements = {key: replace(timed[key], name=contender.name) for key, contender in contenders.items()}
    return Heat(allocation=ours.allocation, measurements=measurements)


def _heats(
    suite: str, problem: Problem, rules: Rules, peer_names: Sequence[str], *, screening: bool, other: bool = False
) -> list[Heat]:
    arguments = _heat_arguments(suite, problem, rules, peer_names, screening=screening, other=other)
    results = _run("time_contenders", arguments, rules, processes=1 if screening else rules.processes)
    return _accepted([msgspec.convert(result, Heat | Refused) for result in results])


def _heat_arguments(
    suite: str, problem: Problem, rules: Rules, peer_names: Sequence[str], *, screening: bool, other: bool = False
) -> dict[str, Any]:
    return {
        "suite": suite,
        "name": problem.name,
        "peer_names": list(peer_names),
        "pairs": min(_SCREENING_PAIRS, rules.pairs) if screening else rules.pairs,
        "threads": rules.threads,
        "library": rules.library,
        "seed": rules.seed,
        "verify": screening,
        "other": other,
    }


def _run(function: str, arguments: dict[str, Any], rules: Rules, *, processes: int) -> list[Any]:
    return run_in_processes(
        f"tracea.bench.contest:{function}",
        arguments,
        processes=processes,
        cores=cores_allowed()[: rules.threads],
        variables=equal_terms(rules.threads),
    )


def _accepted(answers: Sequence[Heat | Refused]) -> list[Heat]:
    """Return the heats that were held.

    Raises:
        VerdictFailed: a contender was refused in one.
    """
    for answer in answers:
        if isinstance(answer, Refused):
            raise _verdict(answer.contender, answer.error, answer.limit)
    return [answer for answer in answers if isinstance(answer, Heat)]


def _check(problem: Problem, contender: Contender, expected: NDArray[Any]) -> None:
    error, limit = error_and_limit(contender.result(), expected)
    if not error <= limit:
        raise _verdict(f"{contender.name} on {problem.name}", error, limit)


def _verdict(contender: str, error: float, limit: float) -> VerdictFailed:
    return VerdictFailed(
        gate="same result",
        kernel=contender,
        got=error,
        limit=limit,
        remedy="the contenders do not compute the same: fix the problem's definition",
    )
