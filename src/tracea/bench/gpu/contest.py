"""Stage ``contest``: ours against cuBLAS and against what Triton makes of the same program, in turns, in graphs.

Ours is the fastest of a few schedules, screened in a run of their own; the contest is a fresh run of ours and the
peers. Where the clock drifted, the run is repeated once, and the drift is in the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tracea.bench.gpu.candidates import first_schedules
from tracea.bench.gpu.compile_ahead import dry_problems
from tracea.bench.gpu.problems import GpuProblem, contest_problems
from tracea.bench.gpu.session import Item, Session, closing
from tracea.bench.gpu.settings import ItemOutcome, Status
from tracea.bench.gpu.timed import TimedProblem
from tracea.core.op import GemmOp
from tracea.errors import RunError, TraceaError
from tracea.flow.gpu import compile_for_gpu
from tracea.optimizer.priors import load_heroes
from tracea.profiler.environment import capture
from tracea.profiler.gpu_timer import DRIFT_LIMIT, DeviceTimed, clock_drift, compare_on_device
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row
from tracea.runtime.cuda.driver import DeviceFacts
from tracea.targets.gpu import GpuTarget

__all__ = ["items", "peak_tflops"]

_SCREEN_PAIRS = 5
_TOO_LATE = 2.0
_FOR_INDUCTOR = 45.0  # seconds that its search of one problem may take
_INDUCTOR = ("squares", "transformer", "fused")


def items(session: Session) -> Iterator[Item]:
    """Yield an item for each problem."""
    for problem in dry_problems(session, contest_problems()):
        yield Item(name=problem.name, run=lambda problem=problem: _contest(session, problem))


def peak_tflops(target: GpuTarget, facts: DeviceFacts) -> float:
    """Return the stated peak of dense f16 and bf16 products: multiply-adds a cycle × multiprocessors × highest clock.

    It is a figure of data sheets; under load the clock is lower.
    """
    return 2.0 * target.f16_fma_per_cycle * facts.sm_count * facts.clock_khz * 1e3 / 1e12


def _contest(session: Session, problem: GpuProblem) -> ItemOutcome:
    if session.seconds_left < _TOO_LATE:
        return ItemOutcome(status=Status.SKIPPED, detail="the stage's seconds are spent")
    timed = TimedProblem(session, problem)
    with closing(timed.close) as refused:
        outcome = _timed(session, timed)
    return session.failed_after(outcome, refused)


def _timed(session: Session, timed: TimedProblem) -> ItemOutcome:
    ours, refused = _ours(session, timed)
    if not ours:
        return session.outcome(refused or ["no variant of ours fits"])
    if session.is_dry:
        return _dry(session, timed, ours, refused)
    screened = _run(session, timed, ours, pairs=_SCREEN_PAIRS)
    best = min(screened, key=lambda name: screened[name].median_us)
    contenders = {best: ours[best], **timed.peers()}
    notes = {"group": timed.problem.group, "screened": str(len(ours)), "refused": str(len(refused))}
    if timed.problem.group in _INDUCTOR and session.seconds_left > 2 * _FOR_INDUCTOR:
        session.note(f"patience {_FOR_INDUCTOR}")
        try:
            inductor = timed.inductor()
        except Exception as error:  # a peer that does not compile this is not a failure of ours
            notes["inductor"] = f"{type(error).__name__}: {error}"[:300]
        else:
            if inductor is not None:
                contenders["Triton by Inductor max-autotune"] = inductor
    measured = _run(session, timed, contenders, pairs=session.settings.pairs)
    drift = clock_drift(measured)
    if abs(drift) > DRIFT_LIMIT and session.seconds_left > _TOO_LATE:
        notes["repeated"] = f"the first run drifted by {drift:+.1%}"
        measured = _run(session, timed, contenders, pairs=session.settings.pairs)
        drift = clock_drift(measured)
    notes |= {"drift": f"{drift:+.4f}", "input sets": str(timed.input_sets), "flush bytes": str(timed.flush.nbytes)}
    peak = peak_tflops(session.target, session.driver.facts())
    rates = {name: timed.problem.flops / each.median_us / 1e6 for name, each in measured.items()}
    op: GemmOp = timed.op
    row = Row(
        problem=timed.problem.name,
        measurements=tuple(measured.values()),
        ratios={name: Ratio.of(peer, measured[best]) for name, peer in measured.items() if name != best},
        flops=timed.problem.flops,
        nbytes=op.bytes,
        notes=notes,
    )
    return session.outcome(
        refused,
        row=msgspec.to_builtins(row),
        tflops=rates,
        share_of_peak={name: rate / peak for name, rate in rates.items()},
        peak_tflops=peak,
    )


def _ours(session: Session, timed: TimedProblem) -> tuple[dict[str, DeviceTimed], list[str]]:
    """Return our calls that are right, by name, and what was said of those that are not."""
    found: dict[str, DeviceTimed] = {}
    refused: list[str] = []
    folder = Path(session.settings.heroes) if session.settings.heroes else None
    heroes = load_heroes(folder) if folder is not None and folder.is_dir() else ()
    for variant, schedule in first_schedules(timed.op, session.target, heroes):
        name = f"tracea {variant} {schedule.key}"
        if name in session.avoid:
            refused.append(f"{name}: {session.avoid[name]}")
            continue
        session.note(name)
        try:
            call = timed.ours(compile_for_gpu(timed.op, variant, schedule, session.target))
            wrong = "" if session.is_dry else timed.check(call)
        except TraceaError as error:
            wrong = str(error)
        else:
            found.update({} if wrong else {name: call})
        if wrong:
            session.require_sound(f"{name}: {wrong}")
            refused.append(f"{name}: {wrong}")
    session.note("")
    return found, refused


def _run(session: Session, timed: TimedProblem, calls: dict[str, DeviceTimed], *, pairs: int) -> dict[str, Measurement]:
    return compare_on_device(
        session.driver,
        calls,
        stream=session.stream,
        environment=capture(threads=1),
        input_sets=timed.input_sets,
        flush=timed.flush,
        pairs=pairs,
    )


def _dry(session: Session, timed: TimedProblem, ours: dict[str, DeviceTimed], refused: list[str]) -> ItemOutcome:
    """Capture and replay every call of ours, and see that nothing pretends to have a time."""
    if session.emulated is not None:
        session.emulated.forget()
    driver = session.driver
    with driver.capture(session.stream) as graphs:
        for call in ours.values():
            for index in range(timed.input_sets):
                call(index)
    driver.replay(graphs[0], stream=session.stream)
    try:
        _run(session, timed, ours, pairs=1)
    except RunError as error:
        return session.outcome(refused, contenders=sorted(ours), up_to=str(error))
    return session.outcome([*refused, "the null driver told a time"])
