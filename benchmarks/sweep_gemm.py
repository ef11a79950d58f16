"""Time every schedule of the packed GEMM for one problem, and record the whole space for replays.

    python benchmarks/sweep_gemm.py -m 512 -n 768 -k 768 --compile-core 0 --time-core 1

Each schedule is built, proved, compiled and judged on poisoned outputs against float64 before it is timed; one that
fails ends the sweep. Schedules of one register tile share a unit, since they share the code that is slow to compile.

Every schedule is timed in turns with the variant's default, by one thread's own time, in rounds that each walk the
space in another random order; operands lie in huge pages, as in the suites. Its latency is the default's times the
median of its quotients over all rounds, so the host's slow phases cancel. The schedules close to the best get more
rounds: the lowest of a thousand noisy figures is otherwise a lucky one.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.errors import VerdictFailed
from tracea.flow.kernel import build
from tracea.gates import Bench, Case, Distribution, Verdict, build_cases, check_correctness
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer
from tracea.kernels.gemm.blocking import packed_default
from tracea.kernels.gemm.packed_space import unpruned_space
from tracea.optimizer import SearchSpace
from tracea.optimizer.replay import RecordedSpace
from tracea.profiler import Timed, capture, compare
from tracea.runtime.buffers import aligned_empty
from tracea.runtime.compiler import compile
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program
from tracea.runtime.toolchain import find_compiler
from tracea.semantic.schedule import Schedule
from tracea.targets.target import for_threads

VARIANT = "gemm.packed"
RESULTS = Path(__file__).parent / "results" / "sweeps"
UNIT = 96  # schedules compiled together
PAIRS = 5  # a round
CLOSE = 1.06  # schedules within this factor of the best get more rounds
BATCH_US, WARMUP_US = 2_000.0, 2_000.0


@dataclass(slots=True)
class Candidate:
    """One schedule with its program and the quotients, latency over the reference's, that were measured so far."""

    position: int
    schedule: Schedule
    program: Program
    call: Timed | None = None
    quotients: list[float] = field(default_factory=list[float])
    rounds: list[float] = field(default_factory=list[float])

    @property
    def ratio(self) -> float:
        """The latency over the reference's."""
        return statistics.median(self.quotients)


def program_of(op: GemmOp, schedules: Sequence[Schedule]) -> list[Program]:
    """Return the programs of schedules that were compiled in one unit."""
    built = [build(op, VARIANT, schedule, for_threads(host(), 1), kept=True) for schedule in schedules]
    programs: list[Program] = []
    for each, loaded in zip(built, compile([each.source for each in built]), strict=True):
        pointers: dict[str, InputSlot | OutputSlot] = {
            buffer.name: InputSlot(index) for index, buffer in enumerate(operand_buffers(each.kernel))
        }
        pointers[result_buffer(each.kernel).name] = OutputSlot(0)
        call = Call.binding(loaded, pointers=pointers, integers=arguments(each.kernel))
        programs.append(Program(calls=(call,), inputs=op.operands, outputs=(op.infer(),), name=loaded.name))
    return programs


def require_correct(program: Program, op: GemmOp, case: Case, bench: Bench) -> None:
    """Judge a program on poisoned outputs, in kept and in fresh misaligned buffers.

    Raises: VerdictFailed.
    """

    def run(inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
        program.run(*inputs, out=out, threads=1)

    Verdict(subject=program.name, checks=check_correctness(run, bench, [case]), seed=0).require()


class Sweep:
    """One problem's space, its programs and their times."""

    def __init__(self, op: GemmOp, *, rows: int | None, seed: int) -> None:
        self.op = op
        self.target = for_threads(host(), 1)
        self.rng = np.random.default_rng(seed)
        self.space = unpruned_space(op, self.target)
        self.default = packed_default(op, self.target)
        chosen = list(range(len(self.space)))
        if rows is not None and rows < len(chosen):
            default = list(self.space).index(self.default)
            others = self.rng.permutation([position for position in chosen if position != default])
            chosen = sorted([default, *others[: rows - 1].tolist()])
        self.positions = chosen
        self.reference_us: list[float] = []

    def units(self) -> list[list[int]]:
        """Return the positions in groups that share their code for a tile."""

        def tile(position: int) -> tuple[int | str, ...]:
            schedule = self.space.schedule(self.space.rows[position])
            return tuple(schedule[name] for name in ("mr", "nv", "unroll", "prefetch_a", "prefetch_b", "upcoming"))

        groups = [list(group) for _, group in groupby(sorted(self.positions, key=tile), key=tile)]
        return [group[first : first + UNIT] for group in groups for first in range(0, len(group), UNIT)]

    def candidates(self, *, judged: bool) -> list[Candidate]:
        """Return the schedules with their programs, compiled and judged, which the run before may have done."""
        units = self.units()
        found: list[Candidate] = []
        case = build_cases(self.op, self.rng, (Distribution.WIDE,))[0]
        bench = Bench(self.op)
        for number, unit in enumerate(units, 1):
            started = time.perf_counter()
            named = [self.space.schedule(self.space.rows[position]) for position in unit]
            for position, schedule, program in zip(unit, named, program_of(self.op, named), strict=True):
                if not judged:
                    require_correct(program, self.op, case, bench)
                found.append(Candidate(position=position, schedule=schedule, program=program))
            seconds = time.perf_counter() - started
            print(f"unit {number}/{len(units)}: {len(unit)} schedules in {seconds:.1f} s, all right", flush=True)
        return found

    def time(self, candidates: Sequence[Candidate], rounds: int, close_rounds: int) -> None:
        """Time all candidates in turns with the default, then those close to the best again."""
        inputs = [aligned_empty(operand.static_shape, DType.F32) for operand in self.op.operands]
        for array in inputs:
            self.rng.standard_normal(dtype=np.float32, out=array)
        out = aligned_empty(self.op.infer().static_shape, DType.F32)
        for each in candidates:
            each.call = each.program.bound(*inputs, out=out, threads=1)
        reference = next(each for each in candidates if each.schedule == self.default)
        assert reference.call is not None  # bound above
        for number in range(rounds):
            self._round(candidates, reference.call, f"round {number + 1} of all")
        for number in range(close_rounds):
            limit = CLOSE * min(each.ratio for each in candidates)
            self._round([e for e in candidates if e.ratio <= limit], reference.call, f"round {number + 1} of the close")

    def _round(self, candidates: Sequence[Candidate], reference: Callable[[], object], name: str) -> None:
        started = time.perf_counter()
        environment = capture(threads=1)
        for index in self.rng.permutation(len(candidates)).tolist():
            each = candidates[index]
            assert each.call is not None  # bound by time()
            timed = compare(
                {"candidate": each.call, "reference": reference},
                pairs=PAIRS,
                batch_us=BATCH_US,
                warmup_us=WARMUP_US,
                environment=environment,
                clock=time.thread_time_ns,
            )
            pairs = zip(timed["candidate"].samples_us, timed["reference"].samples_us, strict=True)
            quotients = [mine / other for mine, other in pairs]
            each.quotients += quotients
            each.rounds.append(statistics.median(quotients))
            self.reference_us += timed["reference"].samples_us
        print(f"{name}: {len(candidates)} schedules in {time.perf_counter() - started:.0f} s", flush=True)

    def recorded(self, candidates: Sequence[Candidate], rounds: int, command: str) -> RecordedSpace:
        """Return the space with its latencies and how they were measured."""
        ordered = sorted(candidates, key=lambda each: each.position)
        reference_ms = statistics.median(self.reference_us) / 1e3
        environment = capture(threads=1, toolchain={"compiler": find_compiler().version})
        moved = statistics.median(abs(each.rounds[0] / each.rounds[-1] - 1.0) for each in ordered)
        sample = "" if len(ordered) == len(self.space) else f"a random {len(ordered)} of {len(self.space)} schedules; "
        m, n, k = self.op.m, self.op.n, self.op.k
        space = SearchSpace.enumerated(
            self.space.names, self.space.values, [self.space.rows[each.position] for each in ordered]
        )
        default = space.encode(self.default.values_)
        assert default is not None  # the reference is one of them
        return RecordedSpace(
            name=f"{VARIANT} {m}x{n}x{k} f32",
            source=(
                f"{sample}{command}; {environment.date}; {environment.hardware}, {self.target.isa}, 1 thread; "
                + ", ".join(f"{name} {version}" for name, version in environment.toolchain.items())
                + f"; {rounds} rounds of {PAIRS} pairs with the default schedule, {reference_ms:.3f} ms of thread time;"
                f" between the first round and the last a schedule's median moved by {moved:.1%} (median)"
            ),
            space=space,
            latencies_ms=np.array([reference_ms * each.ratio for each in ordered]),
            seeds=(default,),
        )


@contextmanager
def timing_on(core: int | None) -> Iterator[None]:
    """Move to a core that no other sweep times on at once."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    with Path(tempfile.gettempdir(), f"tracea-sweep-core-{core}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gc.collect()
        gc.freeze()  # else compare() would walk a thousand kernels' objects each time
        yield


def main() -> None:
    """Parse the command line, sweep, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "mnk":
        parser.add_argument(f"-{name}", type=int, required=True)
    parser.add_argument("--rows", type=int, help="time only this many, the default and random others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--close-rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prepare", action="store_true", help="prove, compile and judge only, for --prepared")
    parser.add_argument("--prepared", action="store_true", help="time what --prepare left in the cache")
    parser.add_argument("--compile-core", type=int, help="the core to build, compile and judge on")
    parser.add_argument("--time-core", type=int, help="the core to time on, one sweep at once")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.compile_core is not None:
        os.sched_setaffinity(0, {options.compile_core})
    op = GemmOp.of(m=options.m, n=options.n, k=options.k, dtype=DType.F32)
    sweep = Sweep(op, rows=options.rows, seed=options.seed)
    print(f"{op.key}: {len(sweep.space)} schedules, {len(sweep.positions)} of them now", flush=True)
    try:
        candidates = sweep.candidates(judged=options.prepared)
    except VerdictFailed as failed:
        sys.exit(f"a schedule of the space is wrong: {failed}")
    if options.prepare:
        return
    with timing_on(options.time_core):
        sweep.time(candidates, options.rounds, options.close_rounds)
    recorded = sweep.recorded(candidates, options.rounds, shlex.join(["python", *sys.argv]))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"gemm_{op.m}x{op.n}x{op.k}_f32.json.gz"
    recorded.save(path)
    best = int(np.nanargmin(recorded.latencies_ms))
    print(f"{path}\n{recorded.source}")
    print(f"best {recorded.best_ms:.3f} ms, {op.flops / recorded.best_ms / 1e6:.0f} GFLOP/s:", end=" ")
    print(recorded.space.decode(recorded.space.row(best)))
    print(f"median / best {float(np.nanmedian(recorded.latencies_ms)) / recorded.best_ms:.3f}")


if __name__ == "__main__":
    main()
