"""``tracea optimize``: capture a model, fuse, tune, verify, and time it against PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Protocol

from cyclopts import Parameter

from tracea.cli.console import print_json, print_table, print_title, printable
from tracea.cli.progress import shown_progress

__all__ = ["OptimizeReport", "TableRow", "optimize", "render"]


class TableRow(Protocol):
    """One contender of the final table; ``ratio`` is its time over ours, with an interval, None for ours."""

    @property
    def name(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def median_ms(self) -> float: ...
    @property
    def ratio(self) -> Any: ...


class Verdict(Protocol):
    """What the gates found of one kernel."""

    @property
    def passed(self) -> bool: ...


class OptimizeReport(Protocol):
    """What an optimized model has to tell, part by part as it is printed."""

    @property
    def machine(self) -> Sequence[str] | str: ...
    @property
    def graph(self) -> str: ...
    @property
    def verdicts(self) -> Sequence[Verdict]: ...
    @property
    def share(self) -> float | None: ...
    @property
    def table(self) -> Iterable[TableRow]: ...
    @property
    def from_cache(self) -> bool: ...
    def to_json(self) -> str: ...


def optimize(
    builder: str,
    /,
    *,
    trials: int = 50,
    seconds: float | None = None,
    threads: int | None = None,
    peers: bool = True,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Make a model's program for this machine: captured, fused, tuned, verified, and timed against PyTorch.

    Example: tracea optimize examples/mlp.py:build --trials 50

    Parameters
    ----------
    builder
        file.py:function; the function takes nothing and returns (module, example_inputs).
    trials
        Trials at most for each kernel; those of earlier runs count.
    seconds
        Seconds at most for the whole search.
    threads
        Threads to run on; by default one, and the table has two as well where there are cores.
    peers
        Time eager and Inductor too.
    json
        Print the report as JSON.
    """
    from tracea.bench.session import optimize_file

    with shown_progress() as progress:
        report = optimize_file(builder, trials=trials, seconds=seconds, threads=threads, progress=progress, peers=peers)
    if json:
        print_json(report.to_json())
    else:
        render(report)
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


def render(report: OptimizeReport) -> None:
    """Print a report part by part."""
    print_title("machine")
    print(printable(report.machine if isinstance(report.machine, str) else "\n".join(report.machine)))
    print_title("captured and fused")
    print(printable(report.graph))
    print_title("verdicts")
    for verdict in report.verdicts:
        lines = str(verdict).splitlines()
        print(printable("\n".join(lines[:1] if verdict.passed else lines)))
    print_title("result")
    print_table(
        ("contender", "threads", "median ms", "time over ours"),
        [(row.name, str(row.threads), f"{row.median_ms:.4g}", _ratio(row.ratio)) for row in report.table],
        numbers=(1, 2),
    )
    if report.share is not None:
        print(f"{report.share:.1%} of the time is in our kernels")
    if report.from_cache:
        print("answered from earlier measurements; the peers' times are those of the dated record")


def _ratio(ratio: Any) -> str:
    return "" if ratio is None else str(ratio)
