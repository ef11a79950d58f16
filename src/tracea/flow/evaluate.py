"""Evaluate: what a child process does with one candidate - build, prove, compile, judge, and only then time it.

A candidate is timed in turns with the op's reference schedule, and its latency is the reference's, as first measured
in this process, times the median of their quotients: the machine's slow phases cancel, and latencies of different
trials can be compared. A final is a race: it ends when it is certain who is fastest, and the incumbent keeps a tie.

A child compiles and times one after the other: nothing is compiled while something is timed. Several candidates may be
compiled at once before the first of them is timed.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, Final

import msgspec
import numpy as np

from tracea.core.op import Op, from_dict
from tracea.doctor import host
from tracea.errors import TraceaError
from tracea.flow.compile import Compiled, compile_node
from tracea.flow.kernel import print_unproved
from tracea.gates import ALL, QUICK, Case, GuardedArray, Verdict, build_cases, check_fences, check_latency, judge
from tracea.kernels.registry import find
from tracea.profiler.race import Race, race
from tracea.profiler.timer import Timed, compare
from tracea.runtime.at_once import at_once
from tracea.runtime.compiler import compile
from tracea.semantic.schedule import Schedule
from tracea.targets.target import for_threads

__all__ = ["Candidate", "Request", "against_libraries", "evaluate", "judge_candidate", "rank"]

_PAIRS: Final = 9
_BATCH_US: Final = 4_000.0
_CALLERS: Final = 2  # at once, each with a weight of its own
_REPEATS: Final = 2  # hashes and stability runs of a trial; the winner is judged by all


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A variant under a schedule, as ``Schedule.key`` writes it; a library has none."""

    variant: str
    schedule: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent asks: an op, which of its operands are constant, the threads, and the candidates in question.

    ``reference`` is what each trial is timed beside, ``incumbent`` the candidate that keeps a tie in a final, by
    default the first. ``modules`` are loaded first: a library port finds a library's functions only in a process that
    has loaded it. ``ahead``: the candidates are to be compiled, all at once, and nothing else.
    """

    op: dict[str, Any]
    constants: tuple[int, ...]
    threads: int
    seed: int
    candidates: tuple[Candidate, ...]
    reference: Candidate | None = None
    incumbent: Candidate | None = None
    modules: tuple[str, ...] = ()
    ahead: bool = False


def evaluate(data: Any) -> dict[str, Any]:
    """Judge and time the one candidate of a request; returns the fields of an Outcome, none of one for what is ahead.

    Raises: whatever refuses the candidate: InvalidSchedule, ProofFailed, CompileError, VerdictFailed.
    """
    request = msgspec.convert(data, Request)
    if request.ahead:
        op = from_dict(request.op)
        at_once([partial(_compile_ahead, op, request.threads, each) for each in request.candidates])
        return {}
    bench = _bench(msgspec.json.encode((request.op, request.constants, request.threads, request.seed)).decode())
    (candidate,) = request.candidates
    bench.judge(candidate, quick=True).require()
    if request.reference is None or request.reference == candidate:
        latency_ms, samples = bench.reference_ms(candidate), ()
    else:
        reference_ms = bench.reference_ms(request.reference)
        timed = compare(
            {"candidate": bench.timed(candidate), "reference": bench.timed(request.reference)},
            pairs=_PAIRS,
            batch_us=_BATCH_US,
            threads=request.threads,
            clock=_clock(request.threads),
        )
        pairs = zip(timed["candidate"].samples_us, timed["reference"].samples_us, strict=True)
        samples = tuple(reference_ms * mine / other for mine, other in pairs)
        bench.forget(candidate)
        latency_ms = statistics.median(samples)
    return {"kind": "ok", "latency_ms": latency_ms, "samples_ms": list(samples)}


def _compile_ahead(op: Op, threads: int, candidate: Candidate) -> None:
    """Leave in the cache what a candidate is compiled to, unproved; what fails here fails in its own trial."""
    target, variant = for_threads(host(), threads), find(candidate.variant)
    sides = (False,) if variant.constant_operand is None else (False, True)
    with contextlib.suppress(TraceaError):
        schedule = Schedule.parse(candidate.schedule)
        compile([print_unproved(op, variant.id, schedule, target, is_pack=is_pack) for is_pack in sides])


def rank(data: Any) -> list[dict[str, Any]]:
    """Judge every candidate of a request by all gates and let those that pass race.

    Returns the fields of an Outcome for each candidate, in order: "wrong" for one that a gate refused, "crashed" for a
    library that cannot be loaded. A latency is what was measured; the metric "rank_ms" is never below that of one from
    which a candidate does not differ beyond the noise and which won the tie. "is_unclear": the race went on as long as
    it may and was too noisy to tell it from the winner. A library keeps no tie against a lower median of ours.
    """
    request = msgspec.convert(data, Request)
    missing = _load(request.modules)
    bench = _bench(msgspec.json.encode((request.op, request.constants, request.threads, request.seed)).decode())
    verdicts = {
        i: bench.judge(candidate, quick=False)
        for i, candidate in enumerate(request.candidates)
        if not (missing and find(candidate.variant).is_library)
    }
    passed = {str(i): request.candidates[i] for i, verdict in verdicts.items() if verdict.passed}
    outcomes = {
        str(i): {"kind": "wrong", "detail": str(verdicts[i])}
        if i in verdicts
        else {"kind": "crashed", "detail": missing}
        for i in range(len(request.candidates))
    }
    if passed:
        first = next(
            (name for name, candidate in passed.items() if candidate == request.incumbent), min(passed, key=int)
        )
        functions = {name: bench.timed(candidate) for name, candidate in passed.items()}
        found = race(
            functions,
            first,
            batch_us=_BATCH_US,
            threads=request.threads,
            clock=_clock(request.threads),
            yielding=[name for name, candidate in passed.items() if find(candidate.variant).is_library],
        )
        outcomes |= _outcomes(found)
    return [outcomes[str(i)] for i in range(len(request.candidates))]


def _load(modules: Sequence[str]) -> str:
    """Load modules; return why one could not be, or nothing: without a library ours still compete."""
    try:
        for name in modules:
            import_module(name)
    except (ImportError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def against_libraries(data: Any) -> dict[str, Any]:
    """Time a request's first candidate, which is judged, in turns with the others, the libraries' calls of its op.

    Returns the fields of the latency gate's Check.
    """
    request = msgspec.convert(data, Request)
    for name in request.modules:
        import_module(name)
    bench = _bench(msgspec.json.encode((request.op, request.constants, request.threads, request.seed)).decode())
    ours, *libraries = request.candidates
    check, _ = check_latency(
        bench.timed(ours),
        {library.variant: bench.timed(library) for library in libraries},
        threads=request.threads,
        clock=_clock(request.threads),
    )
    return msgspec.to_builtins(check)


def _outcomes(found: Race) -> dict[str, dict[str, Any]]:
    """Return the fields of an Outcome for all who raced; the metrics say what the race rests on."""
    outcomes: dict[str, dict[str, Any]] = {}
    for name, latency_us in found.latencies_us().items():
        measurement, ratio = found.measurements[name], found.ratios.get(name)
        metrics = {
            "rounds": float(found.rounds),
            "rounds_discarded": float(measurement.discarded),
            "rounds_disturbed": float(measurement.disturbed),
            "slices_left_out": measurement.left_out,
            "is_tie": float(name in found.ties),
            "is_unclear": float(name in found.unclear),
            "rank_ms": latency_us / 1e3,
        }
        if measurement.busy_cores is not None:
            metrics["busy_cores"] = measurement.busy_cores
        if ratio is not None and math.isfinite(ratio.high):
            metrics |= {"winner_over_it": ratio.median, "low": ratio.low, "high": ratio.high}
        outcomes[name] = {
            "kind": "ok",
            "latency_ms": measurement.median_us / 1e3,
            "samples_ms": [sample / 1e3 for sample in measurement.samples_us],
            "metrics": metrics,
        }
    return outcomes


def judge_candidate(
    op: Op, candidate: Candidate, *, constants: Sequence[int] = (), threads: int, seed: int | None = None
) -> Verdict:
    """Judge one candidate by all gates in this process."""
    number = secrets.randbits(32) if seed is None else seed
    return _Bench(op, tuple(constants), threads, number).judge(candidate, quick=False)


@lru_cache(maxsize=2)
def _bench(key: str) -> _Bench:
    op, constants, threads, seed = msgspec.json.decode(key)
    return _Bench(from_dict(op), tuple(constants), threads, seed)


@dataclass(slots=True)
class _Bench:
    """One op with its cases and the memory that candidates are timed on."""

    op: Op
    constants: tuple[int, ...]
    threads: int
    seed: int
    _cases: dict[bool, tuple[Case, ...]] = field(default_factory=dict[bool, "tuple[Case, ...]"])
    _timed: dict[Candidate, Timed] = field(default_factory=dict[Candidate, Timed])
    _reference_ms: dict[Candidate, float] = field(default_factory=dict[Candidate, float])
    _arrays: list[GuardedArray] = field(default_factory=list[GuardedArray])

    def judge(self, candidate: Candidate, *, quick: bool) -> Verdict:
        """Return the verdict; ``quick`` is for a search's trials, which see no fences.

        A library is not fenced: its threads do not exist in the child that the fence's page would end.
        """
        if quick not in self._cases:
            self._cases[quick] = build_cases(self.op, np.random.default_rng(self.seed), QUICK if quick else ALL)
        run = _Run(self, candidate)
        name = f"{candidate.variant} {candidate.schedule}"
        if quick:
            few = _REPEATS
            return judge(run, self.op, subject=name, seed=self.seed, cases=self._cases[True], hashes=few, runs=few)
        verdict = judge(run, self.op, subject=name, seed=self.seed, cases=self._cases[False], prepare=run.prepare)
        if not verdict.passed or find(candidate.variant).is_library:
            return verdict
        return replace(verdict, checks=(*verdict.checks, *check_fences(run, self.op, self._cases[False][0])))

    def timed(self, candidate: Candidate) -> Timed:
        """Return a call without arguments that runs a candidate on arrays that are always the same."""
        if candidate not in self._timed:
            inputs, out = self._operands()
            compiled = self.compiled(candidate, inputs)
            self._timed[candidate] = compiled.program.bound(*self.free(inputs), out=out, threads=self.threads)
        return self._timed[candidate]

    def forget(self, candidate: Candidate) -> None:
        """Give back what a candidate holds, such as its packed weight."""
        self._timed.pop(candidate, None)

    def reference_ms(self, candidate: Candidate) -> float:
        """Return the latency of a reference as it was first measured here."""
        if candidate not in self._reference_ms:
            timed = compare(
                {"reference": self.timed(candidate)}, pairs=_PAIRS, batch_us=_BATCH_US, threads=self.threads
            )
            self._reference_ms[candidate] = timed["reference"].median_us / 1e3
        return self._reference_ms[candidate]

    def compiled(self, candidate: Candidate, inputs: Sequence[np.ndarray[Any, Any]]) -> Compiled:
        """Return the candidate's program for the weights among ``inputs``, which it keeps packed."""
        return compile_node(
            self.op,
            {index: inputs[index] for index in self.constants},
            threads=self.threads,
            variant=candidate.variant,
            schedule=Schedule.parse(candidate.schedule) if candidate.schedule else None,
        )

    def free(self, inputs: Sequence[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the inputs that a call is given: all but the constant ones."""
        return tuple(array for index, array in enumerate(inputs) if index not in self.constants)

    def _operands(self) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
        if not self._arrays:
            rng = np.random.default_rng(self.seed)
            self._arrays = [GuardedArray.of(type_) for type_ in (*self.op.operands, self.op.infer())]
            for guarded in self._arrays[:-1]:
                guarded.fill(rng.standard_normal(guarded.array.shape).astype(guarded.array.dtype))
        arrays = [guarded.array for guarded in self._arrays]
        return arrays[:-1], arrays[-1]


@dataclass(slots=True)
class _Run:
    """A candidate as the gates run it: for each weight a program of its own, of which the last ones are kept."""

    bench: _Bench
    candidate: Candidate
    _programs: dict[bytes, Compiled] = field(default_factory=dict[bytes, Compiled])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, inputs: Sequence[np.ndarray[Any, Any]], out: np.ndarray[Any, Any]) -> None:
        self._program_for(inputs).program.run(*self.bench.free(inputs), out=out, threads=self.bench.threads)

    def prepare(self, inputs: Sequence[np.ndarray[Any, Any]]) -> None:
        """Pack the weight among ``inputs``, and take the workspace, which is the program's too, in a run of its own."""
        self(inputs, GuardedArray.of(self.bench.op.infer()).array)

    def _program_for(self, inputs: Sequence[np.ndarray[Any, Any]]) -> Compiled:
        digest = hashlib.blake2b(b"".join(inputs[index].tobytes() for index in self.bench.constants)).digest()
        with self._lock:
            if digest not in self._programs:
                while len(self._programs) >= _CALLERS:  # each holds a packed weight, and a judgement has dozens
                    del self._programs[next(iter(self._programs))]
                self._programs[digest] = self.bench.compiled(self.candidate, inputs)
            return self._programs[digest]


def _clock(threads: int) -> Callable[[], int]:
    """Return a search's clock: one thread's own time, to which other programs do not add, else the wall's."""
    return time.thread_time_ns if threads == 1 else time.perf_counter_ns
