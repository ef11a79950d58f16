"""``tracea optimize``: capture a model, fuse, tune, verify, and time it against PyTorch."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tracea.cli.console import called_as, counted, print_json, print_table, print_title, printable
from tracea.flow.progress import shown_progress

if TYPE_CHECKING:
    from tracea.bench.session import OptimizeReport
    from tracea.profiler.measurement import Ratio

__all__ = ["optimize", "render"]


def optimize(
    builder: str,
    /,
    *,
    trials: int = 16,
    seconds: float | None = None,
    threads: int | None = None,
    peers: bool = True,
    again: Annotated[bool, Parameter(negative=())] = False,
    accuracy: str = "elementwise",
    verbose: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Make a model's program for this machine: captured, fused, tuned, verified, and timed against PyTorch.

    Example: tracea optimize examples/mlp.py:build --trials 50

    Parameters
    ----------
    builder
        file.py:function; the function takes nothing and returns (module, example_inputs).
    trials
        Trials at most for each kernel; those of earlier runs count. Each variant that fits tries its first schedule in
        any case. 0 searches nothing: what earlier searches found, else the default schedules, verified.
    seconds
        Seconds at most for the search of each kernel, as --trials is, and for each number of threads.
    threads
        Threads to run on, at most the cores that this process may use; by default one, and two as well where there are
        two cores.
    peers
        Time eager and Inductor too.
    again
        Time all of them again where an earlier run did; without it the table is that run's, with its date. What other
        programs disturbed when a search compared its fastest kernels is compared again too.
    accuracy
        The contract of convolutions: elementwise, for all inputs, or normwise, for finite ones, which lets 3×3 and
        5×5 filters take fewer products.
    verbose
        Name each fused kernel, not how often there is one of a kind.
    json
        Print the report as JSON.
    """
    from tracea.bench.session import optimize_file
    from tracea.cli.budget import search_given

    budget = search_given(trials, seconds)
    with shown_progress() as progress:
        report = optimize_file(
            builder,
            budget=budget,
            threads=threads,
            progress=progress,
            peers=peers,
            again=again,
            accuracy=accuracy,
            verbose=verbose or json,
        )
    if json:
        print_json(report.to_json())
    else:
        asked = shlex.quote(builder)
        asked += "" if threads is None else f" --threads {threads}"
        asked += "" if accuracy == "elementwise" else f" --accuracy {accuracy}"
        asked += "" if trials else " --trials 0"
        render(report, again=f"{called_as()} optimize {asked} --again", searched=budget is not None)
    return 0 if all(verdict.passed for verdict in report.verdicts) else 1


def render(report: OptimizeReport, *, again: str, searched: bool) -> None:
    """Print a report part by part; ``again`` times all contenders once more, ``searched`` is whether it was allowed."""
    from tracea.profiler.duration import shown_us

    print_title("machine")
    print(printable(report.machine))
    print_title("captured and fused")
    print(printable(report.graph))
    print_title("verdicts")
    for label, verdict in zip(report.judged, report.verdicts, strict=True):
        lines = f"{label}: {verdict}".splitlines()
        print(printable("\n".join(lines[:1] if verdict.passed else lines)))
    print_title("result")
    if report.table:
        print_table(
            ("contender", "threads", "median", "time over ours", "measured", ""),
            [
                (
                    row.name,
                    str(row.threads),
                    shown_us(1e3 * row.median_ms),
                    _shown(row.ratio),
                    row.measured,
                    f"doubtful: {row.doubt}" if row.doubt else "",
                )
                for row in report.table
            ],
            title="interleaved in fresh processes",
            numbers=(1, 2),
        )
        print(
            "time over ours is the median of the quotients of rounds in turns, with its interval: other than the "
            "quotient of the medians where a run was disturbed"
        )
    if any(row.doubt for row in report.table):
        print(
            "doubtful times may be too long, and their ratios wrong: other programs, or the system, ran on the same "
            f"cores. On an idle machine this measures them again: {again}"
        )
    for problem in report.problems:
        print(f"warning: {printable(problem)}")
    if report.share is not None and report.kernels_us is not None:
        disturbed = any(row.doubt and row.threads == report.threads for row in report.table)
        print(_shares(report.share, report.kernels_us, report.call_us, report.threads, disturbed=disturbed))
    if not searched:
        print("nothing was searched: schedules are those that earlier searches found, else the defaults")
    elif report.from_cache:
        print("every schedule was known: nothing was searched")
    print(f"{report.seconds:.1f} s in all, without the start and the end of Python itself")


def _shares(share: float, kernels_us: float, call_us: float | None, threads: int, *, disturbed: bool) -> str:
    """Say how much of the kernels' time is ours, and how much of a measured call the kernels are."""
    from tracea.profiler.duration import shown_us

    text = (
        f"{counted(threads, 'thread')}: {share:.1%} of the time in kernels is in our kernels: all were measured, each "
        f"by itself, {shown_us(kernels_us)} added up"
    )
    if call_us is None:
        return text
    beside = "the rest is the call itself, and kernels that take longer one after another than alone"
    if disturbed:
        beside = "a doubtful time, which other programs made longer, so that the rest says nothing"
    elif kernels_us >= call_us:
        beside = "kernels by themselves were slower, as where other programs disturbed their search"
    return f"{text}; that is {kernels_us / call_us:.0%} of the {shown_us(call_us)} of a call in the table: {beside}"


def _shown(ratio: Ratio | None) -> str:
    return "" if ratio is None else str(ratio)
