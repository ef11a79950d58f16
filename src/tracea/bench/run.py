"""Run a suite against peers, and say what came out as a record and as a table."""

from __future__ import annotations

import math
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tracea.bench.contest import Rules, contest, screen
from tracea.bench.doubt import why_row_in_doubt
from tracea.bench.ours import BASELINES
from tracea.bench.peers import require_peers
from tracea.bench.suites import problems
from tracea.bench.unfinished import Unfinished
from tracea.core.dtype import DType
from tracea.doctor import diagnose_load, measure_ceilings, probe_machine
from tracea.errors import InvalidOption
from tracea.flow.phases import phase
from tracea.profiler.duration import shown_us
from tracea.profiler.environment import capture
from tracea.profiler.load import measure_load
from tracea.profiler.measurement import MINIMUM_PAIRS
from tracea.profiler.record import Record, Row

if TYPE_CHECKING:
    from tracea.bench.contest import Heat, Refused
    from tracea.doctor.probe import Machine

__all__ = ["render", "run_suite"]

_PEAK: Final = "peak f32 GFLOP/s"
_COPY: Final = "copy GB/s"
_SCREENED_TOGETHER: Final = 12  # problems of one process: what it loads costs them a twelfth each
_DISCLOSURE: Final = (
    "both sides: same threads; operands on cache lines, row-major, images in the order that each is fastest with; huge",
    "pages from 2 MiB on; results in memory given once (out), or in new memory on both sides where the peer returns no",
    "other (fresh), as each row says, which the process keeps when it is freed; constant weights prepacked on both",
    "sides; library variants of ours {library};",
    "of the peers that were asked for the fastest one in a first pass is timed, and the one that a row is rated by",
)


def run_suite(
    suite: str,
    *,
    against: tuple[str, ...] = ("torch", "onnxruntime"),
    threads: tuple[int, ...] = (1, 2),
    only: str | None = None,
    pairs: int = MINIMUM_PAIRS,
    processes: int = 3,
    library: bool = False,
    output: Path | None = None,
    resume: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Time a suite's problems, all or ``only`` some as :func:`problems` names them; one record per number of threads.

    With ``output``, a folder, each record is written as ``<suite>-<threads>t.json`` there, its rows beside it as they
    are measured; with ``resume``, rows that a run of the same command left there when it was stopped are not measured
    again.

    Raises:
        InvalidOption: the suite, a problem or a peer is unknown, a count cannot be had, or what is to be resumed was
            another run.
        ToolchainMissing: a peer is not installed.
        VerdictFailed, RunError: as :func:`contest`.
    """
    chosen = problems(suite, only)
    every = [
        Rules(threads=count, against=against, pairs=pairs, processes=processes, library=library) for count in threads
    ]
    require_peers(against)
    if progress is not None and (problem := diagnose_load(measure_load())):
        progress(f"warning: {problem}")
    machine = probe_machine()
    runs: list[Unfinished] = []
    for rules in every:
        count = rules.threads
        path = None if output is None else output / f"{suite}-{count}t.json"
        begun = Record(suite=suite, command=_command(), environment=capture(threads=count), rows=())
        run = Unfinished.read(path, begun) if resume and path is not None else None
        if run is None:
            phase("measure what this machine reaches at best")
            run = Unfinished(path, msgspec.structs.replace(begun, ceilings=_limits(machine, count)))
        done = {row.problem for row in run.record.rows}
        left = [problem for problem in chosen if problem.name not in done]
        screened: dict[str, Heat | Refused] = {}
        for number, problem in enumerate(left):
            if number % _SCREENED_TOGETHER == 0:
                several = left[number : number + _SCREENED_TOGETHER]
                phase(f"{suite}, {_threads(count)}: find the fastest peer of problems from {len(done) + number + 1} on")
                screened = screen(suite, several, rules)
            phase(f"{suite} {problem.name}, {_threads(count)}: problem {len(done) + number + 1} of {len(chosen)}")
            run.add(contest(suite, problem, rules, screened.get(problem.name)))
            if progress is not None:
                progress(_line(run.record.rows[-1], run.record.ceilings))
        run.finish()
        runs.append(run)
    for run in runs:  # a run that is stopped at its second number of threads has the first still
        run.forget()
    return [run.record for run in runs]


def _command() -> str:
    """Return the command that is run, as it would be run from the beginning."""
    return shlex.join(("tracea", *(word for word in sys.argv[1:] if word != "--resume")))


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _limits(machine: Machine, threads: int) -> dict[str, float]:
    """Return the ceilings measured now; none where the doctor measures none for this number of threads."""
    measured = measure_ceilings(machine)
    try:
        roofline = measured.roofline(machine.hardware.isas[0], DType.F32, threads=threads)
    except InvalidOption:
        return {}
    return {_PEAK: roofline.peak_gflops, _COPY: roofline.bandwidth_gbytes}


def render(record: Record) -> str:
    """Return the record as text: its surroundings, a line a problem, and the geometric mean of each group."""
    environment = record.environment
    versions = ", ".join(f"{name} {version}" for name, version in sorted(environment.toolchain.items()))
    limits = ", ".join(f"{name} {value:.4g}" for name, value in record.ceilings.items())
    competing = any(row.notes.get("library") == "competing" for row in record.rows)
    library = "competing" if competing else "disabled (the face group decides as any call does)"
    lines = [
        f"suite {record.suite} · {_threads(environment.threads)} · {environment.hardware} · {environment.date}",
        f"  {versions}",
        f"  measured in this run: {limits or f'no ceiling for {_threads(environment.threads)}'}",
        *(f"  {line.format(library=library)}" for line in _DISCLOSURE),
        f"  {'problem':34s} {'results':>7s} {'ours':>12s} {'rate':>13s}  peer / ours, and the peer's rate",
        *(f"  {_line(row, record.ceilings)}" for row in record.rows),
    ]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in record.rows:
        if row.ratios:
            groups[row.notes.get("group", "")].append(row)
            groups["all"].append(row)
    lines += [_geomean(name, rows) for name, rows in groups.items()]
    if any(map(why_row_in_doubt, record.rows)):
        lines.append("  doubtful times may be too long, and their ratios wrong: measure again on an idle machine")
    return "\n".join(lines)


def _geomean(name: str, rows: Sequence[Row]) -> str:
    """Return the line of a group's geometric mean of ratios to the strongest peer, and what of it is in doubt."""
    strongest = [min(ratio.median for ratio in row.ratios.values()) for row in rows]
    doubtful = sum(bool(why_row_in_doubt(row)) for row in rows)
    doubt = f", in doubt: {doubtful} of its {len(rows)} rows {'is' if doubtful == 1 else 'are'} doubtful"
    return f"  geomean {name}: {math.exp(statistics.fmean(map(math.log, strongest))):.3f}{doubt * (doubtful > 0)}"


def _line(row: Row, limits: Mapping[str, float]) -> str:
    ours = row.measurements[0]
    peers = {peer.name: peer for peer in row.measurements[1:]}
    ratios = "; ".join(
        f"{ratio} of {name}, {_rate(row, peers[name].median_us, limits)}" for name, ratio in row.ratios.items()
    )
    for name in BASELINES:
        if name in row.notes:
            ratios += f"; {row.notes[name]} of the rate of a {name} in the same turns"
    ratios = ratios or "no peer"
    if doubt := why_row_in_doubt(row):
        ratios += f"; doubtful: {doubt}"
    rate = _rate(row, ours.median_us, limits)
    allocation = row.notes.get("allocation", "")
    return f"{row.problem:34s} {allocation:>7s} {shown_us(ours.median_us):>12s} {rate:>13s}  {ratios}"


def _rate(row: Row, microseconds: float, limits: Mapping[str, float]) -> str:
    """Return the share that is reached of what bounds the problem."""
    if not limits:
        return ""
    compute = row.flops / microseconds / 1e3 / limits[_PEAK]
    memory = row.nbytes / microseconds / 1e3 / limits[_COPY]
    ceiling = row.notes.get("ceiling", "roofline")
    if ceiling == "copy" or (ceiling == "roofline" and memory > compute):
        return f"{memory:.0%} of copy"
    return f"{compute:.0%} of peak"
