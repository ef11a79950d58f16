"""What ``tracea optimize`` does: a model from a file, made fast, verified, and compared with PyTorch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

import tracea
from tracea import targets
from tracea.bench.doubt import why_in_doubt
from tracea.bench.models import CONTENDERS, OURS, find_builder, load_builder, time_models
from tracea.core.contract import Accuracy
from tracea.core.passes.accuracy import with_accuracy
from tracea.doctor import Decision, examine
from tracea.doctor.installed import require_torch
from tracea.flow.certificates import code_digest
from tracea.flow.graph_explanation import GraphExplanation, explain_graph
from tracea.flow.history import study_key
from tracea.flow.load_note import load_noted_once, note_load
from tracea.flow.phases import phase, telling
from tracea.flow.progress import silent
from tracea.flow.tuning import check_timed_threads
from tracea.gates import Verdict
from tracea.interface.optimized import Optimized
from tracea.optimizer.budget import Budget
from tracea.profiler.duration import shown_us
from tracea.profiler.machine import cores_allowed
from tracea.profiler.measurement import MINIMUM_PAIRS, Measurement, Ratio
from tracea.runtime.buffers import view
from tracea.runtime.cache import content_key, default_store

__all__ = ["OptimizeReport", "TableRow", "explain_file", "optimize_file"]

_BUDGET: Final = Budget()
PROCESSES: Final = 3
# What an optimized module is and runs: with another byte of it other times are measured.
_RUNNING: Final = ("core", "emitters", "flow", "interface", "kernels", "runtime", "semantic", "targets")


class Listener(Protocol):
    """What is told of a search's progress."""

    def __call__(self, label: str, progress: Any) -> None: ...
    def note(self, line: str) -> None:
        """Take a line that stays."""

    def phase(self, text: str) -> None:
        """Take the name of a step that begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One contender at one number of threads; ``ratio`` is its time over ours.

    ``measured`` is when that was, and ``doubt`` why the times may be wrong, empty where nothing speaks against them.
    """

    name: str
    threads: int
    median_ms: float
    ratio: Ratio | None
    measured: str = ""
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What an optimized model has to tell.

    ``judged`` says of each verdict which op it is of, at how many threads. ``share`` is our kernels' part of the
    measured times of all kernels at ``threads``, the first number of threads, and ``kernels_us`` those times added up.
    ``problems`` are what stood in the way of good times just now. Units: ``seconds`` is the whole call's.
    """

    machine: str
    graph: str
    verdicts: tuple[Verdict, ...]
    judged: tuple[str, ...]
    threads: int
    share: float | None
    kernels_us: float | None
    table: tuple[TableRow, ...]
    from_cache: bool
    seconds: float
    problems: tuple[str, ...] = ()

    @property
    def call_us(self) -> float | None:
        """The median of a call of ours at ``threads``; None where none was timed."""
        own = [row for row in self.table if row.ratio is None and row.threads == self.threads]
        return 1e3 * own[0].median_ms if own else None

    @property
    def measured(self) -> tuple[str, ...]:
        """When the table's rows were measured, each date once."""
        return tuple(dict.fromkeys(row.measured for row in self.table))

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return msgspec.json.encode(self).decode()


def optimize_file(
    builder: str,
    *,
    budget: Budget | None = _BUDGET,
    threads: int | None = None,
    progress: Listener | None = None,
    peers: bool = True,
    again: bool = False,
    accuracy: str = "elementwise",
    verbose: bool = False,
    pairs: int = MINIMUM_PAIRS,
    processes: int = PROCESSES,
) -> OptimizeReport:
    """Optimize the model of ``file.py:function`` and return what there is to tell.

    Without ``threads`` the model is made for one thread, and for two where there are two cores. The comparison with
    PyTorch is measured in fresh ``processes``, ``pairs`` rounds in each, and kept: a second call with the same model,
    machine and toolchain answers from the record, unless it is to be measured ``again``, and with it the finals of
    the searches that are in doubt. Without a ``budget`` nothing is searched, as ``tracea.optimize`` says, and the
    kernels are judged all the same. ``accuracy`` is the contract of convolutions, as ``tracea.optimize`` takes it.
    ``verbose`` names each fused kernel, else those of a kind are counted.

    Raises:
        InvalidOption: there is no such file, function or accuracy, or there are fewer cores than threads asked for.
        UnsupportedNode: the model uses what no op expresses. ToolchainMissing: PyTorch is not installed.
    """
    with telling(None if progress is None else progress.phase):
        return _optimized(
            builder,
            budget=budget,
            threads=threads,
            progress=progress,
            peers=peers,
            again=again,
            accuracy=Accuracy.of(accuracy),
            verbose=verbose,
            pairs=pairs,
            processes=processes,
        )


def explain_file(
    builder: str,
    *,
    target: str = "host",
    threads: int = 1,
    library: bool = True,
    measure: bool = True,
    accuracy: str = "elementwise",
) -> GraphExplanation:
    """Explain what would run the model of ``file.py:function``, kernel by kernel: captured and fused, nothing built.

    ``accuracy`` is the contract of convolutions, as ``tracea.optimize`` takes it.

    Raises:
        InvalidOption: there is no such file, function, target or accuracy. UnsupportedNode: the model uses what no op
        expresses.
    """
    contract = Accuracy.of(accuracy)
    find_builder(builder)  # before torch, which takes seconds
    require_torch()
    if target != "host" and not targets.names_gpu(target) and target not in targets.target_names():
        raise targets.unknown_target(target)
    phase("import torch")
    import torch

    from tracea.interface.torch.capture import capture

    phase(f"build {builder}")
    module, inputs = load_builder(builder)()
    with torch.inference_mode():
        phase(f"export {type(module).__name__}")
        captured = capture(module, inputs)
        values = {name: view(tensor.detach(), name).numpy() for name, tensor in captured.constants.items()}
        return explain_graph(
            with_accuracy(captured.graph, contract),
            values,
            name=builder,
            target=target,
            threads=threads,
            library=library,
            measure=measure,
        )


def _optimized(
    builder: str,
    *,
    budget: Budget | None,
    threads: int | None,
    progress: Listener | None,
    peers: bool,
    again: bool,
    accuracy: Accuracy,
    verbose: bool,
    pairs: int,
    processes: int,
) -> OptimizeReport:
    started = time.monotonic()
    counts = (threads,) if threads is not None else tuple(range(1, min(2, len(cores_allowed())) + 1))
    for count in counts:
        check_timed_threads(count)
    find_builder(builder)  # before torch, which takes seconds
    require_torch()
    problems: list[str] = []
    note = _unheard if progress is None else progress.note

    def warn(text: str) -> None:
        problems.append(text)
        note(f"warning: {text}")

    phase("import torch")
    import torch

    phase(f"build {builder}")
    module, inputs = load_builder(builder)()
    optimized: dict[int, Optimized] = {}
    rows: list[TableRow] = []
    phase("examine the machine")
    machine = str(examine())
    with torch.inference_mode(), load_noted_once(warn):
        for count in counts:
            optimize = partial(
                tracea.optimize,
                module,
                inputs,
                budget=budget,
                threads=count,
                accuracy=accuracy,
                listener=_labelled(progress, count),
            )
            made: Any = optimize()
            if again and made.optimized.repeat_doubtful_finals():
                made = optimize()
            optimized[count] = made.optimized if budget is not None else made.optimized.judged()
            note(_made(optimized[count], count))
            if not peers:
                continue
            timed = _recorded_times(
                builder,
                made.optimized,
                threads=count,
                pairs=pairs,
                processes=processes,
                again=again,
                accuracy=accuracy,
            )
            rows += (found := _rows(timed, count))
            note("; ".join(f"{row.name} {shown_us(1e3 * row.median_ms)}{_over(row.ratio)}" for row in found))
    first = optimized[counts[0]]
    fused = first.compiled.pipeline if verbose else first.compiled.pipeline.summary
    return OptimizeReport(
        machine=machine,
        graph=f"{first.captured}\n\n{fused}\n\nThe plan for {_threads(counts[0])}:\n"
        f"{first.compiled.plan.explain()}" + "".join(_other_plan(each, first) for each in list(optimized.values())[1:]),
        verdicts=tuple(verdict for each in optimized.values() for verdict in each.verdicts.values()),
        judged=tuple(
            f"{node} ({each.compiled.graph[node].op.name}), {_threads(count)}"
            for count, each in optimized.items()
            for node in each.verdicts
        ),
        threads=counts[0],
        share=first.share,
        kernels_us=first.kernels_us,
        table=tuple(rows),
        from_cache=all(each.from_cache for each in optimized.values()),
        seconds=time.monotonic() - started,
        problems=tuple(problems),
    )


def _other_plan(other: Optimized, first: Optimized) -> str:
    """Say in which nodes the plan for another number of threads is not the first one's."""
    ours, theirs = other.compiled.plan, first.compiled.plan
    lines = [
        f"\n[{node}] {' '.join(_chosen(ours[node]))}".rstrip()
        for node in ours
        if node not in theirs or _chosen(ours[node]) != _chosen(theirs[node])
    ]
    told = "differs in:" if lines else "is the same."
    return f"\n\nThe plan for {_threads(other.threads)} {told}{''.join(lines)}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _unheard(line: str) -> None:
    """Take a line that nobody waits for."""


def _made(optimized: Optimized, threads: int) -> str:
    """Say what came of a search, in a line: the tables come at the end."""
    chosen = ", ".join(f"{node} by {optimized.plan[node].variant}" for node in optimized.plan)
    return f"{_threads(threads)}: {len(optimized.verdicts)} kernels verified; {chosen}"


def _over(ratio: Ratio | None) -> str:
    return "" if ratio is None else f" ({ratio.median:.2f} times ours)"


def _labelled(progress: Listener | None, threads: int) -> Any:
    if progress is None:
        return silent

    def told(label: str, found: Any) -> None:
        progress(f"{_threads(threads)}: {label}", found)

    return told


def _recorded_times(
    builder: str,
    optimized: Optimized,
    *,
    threads: int,
    pairs: int,
    processes: int,
    again: bool,
    accuracy: Accuracy,
) -> list[dict[str, Measurement]]:
    """Return the times of all contenders: from the dated record of the same program, else, or again, measured now.

    The program is what the builder's file makes: two modules may export the same graph and run differently beside it.
    """
    import torch

    path, _, function = builder.rpartition(":")
    file = Path(path).absolute()
    plan = optimized.compiled.plan
    identity = study_key(next(iter(optimized.compiled.graph)).op, "", threads)
    ingredients = {
        "kind": "model times",
        "code": code_digest(_RUNNING),
        "builder": [str(file), function, hashlib.sha256(file.read_bytes()).hexdigest()],
        "graph": optimized.captured.key,
        "plan": [[node, *_chosen(plan[node])] for node in plan],
        "threads": threads,
        "rounds": [pairs, processes],
        "hardware": identity.hardware_fingerprint,
        "toolchain": identity.toolchain_fingerprint,
        "torch": str(torch.__version__),
        "tracea": tracea.__version__,
    }

    is_known = [True]

    def measure(place: Path) -> None:
        phase(f"{_threads(threads)}: time beside eager and Inductor in {processes} processes")
        is_known.clear()
        note_load()  # only where something is timed: what is known does not depend on who uses the cores now
        timed = time_models(
            f"{file}:{function}",
            threads=threads,
            pairs=pairs,
            processes=processes,
            accuracy=accuracy.value,
        )
        (place / "times.json").write_bytes(msgspec.json.encode(timed))

    key = content_key(ingredients)
    if again:
        default_store().remove(key)
    entry = default_store().entry(key, measure, ingredients)
    timed = msgspec.json.decode((entry / "times.json").read_bytes(), type=list[dict[str, Measurement]])
    if is_known:
        phase(f"{_threads(threads)}: timed beside eager and Inductor before, {timed[0][OURS].environment.date}")
    return timed


def _chosen(decision: Decision) -> tuple[str, str]:
    return decision.variant, "" if decision.schedule is None else decision.schedule.key


def _rows(timed: Sequence[Mapping[str, Measurement]], threads: int) -> list[TableRow]:
    rows: list[TableRow] = []
    for name in (*CONTENDERS, OURS):
        median = sorted(process[name].median_us for process in timed)[len(timed) // 2]
        ratio = None if name == OURS else Ratio.merge([(process[name], process[OURS]) for process in timed])
        rows.append(
            TableRow(
                name=timed[0][name].name,
                threads=threads,
                median_ms=median / 1e3,
                ratio=ratio,
                measured=timed[0][name].environment.date,
                doubt=why_in_doubt([process[name] for process in timed]),
            )
        )
    return rows
