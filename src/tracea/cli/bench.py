"""``tracea bench``: a suite of problems against the peers, interleaved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tracea.cli.console import print_json
from tracea.cli.report_file import require_folder
from tracea.errors import InvalidOption
from tracea.flow.phases import telling
from tracea.flow.progress import shown_progress

if TYPE_CHECKING:
    from tracea.profiler.record import Record

__all__ = ["bench"]

_AGAINST: Final = "torch,onnxruntime"
_PROCESSES: Final = 3
_DIGITS: Final = 9  # no machine has more cores


@Parameter(name="*", group="Suite gpu")
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFlags:
    """What only the GPU suite takes."""

    driver: str | None = None
    """cuda, or null: everything up to the device, without one"""
    target: str | None = None
    """the architecture, such as sm_90a; by default the device's own"""
    device: int | None = None
    """the device's number"""
    stages: str | None = None
    """some of compile,conformance,correctness,sanitizer,banks,tuning,contest"""
    every: int | None = None
    """take each n-th item of a stage"""
    trials: int | None = None
    """schedules that the tuning may try for each variant of a problem"""
    workers: int | None = None
    """processes that compile; by default one a core"""
    seed: int | None = None
    """of the inputs and of the search"""


def bench(
    *,
    suite: str = "gemm",
    against: str | None = None,
    threads: str | None = None,
    only: str | None = None,
    pairs: int | None = None,
    processes: int | None = None,
    library: Annotated[bool, Parameter(negative=())] = False,
    output: Path | None = None,
    resume: Annotated[bool, Parameter(negative=())] = False,
    gpu: GpuFlags = GpuFlags(),
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Time a suite against its peers in interleaved rounds, and report ratios with their intervals.

    Example: tracea bench --suite gemm --against torch,onnxruntime --threads 1

    Parameters
    ----------
    suite
        gemm, rows, conv, conv-normwise (3x3 and 5x5 layers by Winograd), attention, sparse, or gpu, which has flags of
        its own.
    against
        The peers, by comma; by default torch,onnxruntime.
    threads
        Numbers of threads, by comma; each gives a record. By default one, and two as well where there are two cores.
    only
        Problems whose name, or group, contains this, or one of several parts with | between; an underscore is as good
        as a space.
    pairs
        Interleaved pairs in each process; by default 30.
    processes
        Fresh processes for each problem; by default 3.
    library
        Let our library variants compete too.
    output
        Folder for the records; by default that of this processor's core in benchmarks/results where that exists, such
        as benchmarks/results/zen3, but none for a part of a suite: a record of a few rows would take the place of the
        whole.
    resume
        Go on with what the same command left in the folder when it was stopped.
    json
        Print the records as JSON.
    """
    if suite == "gpu":
        _refuse_cpu_flags(
            against=against, threads=threads, only=only, processes=processes, library=library, resume=resume
        )
        return _gpu_suite(gpu, pairs=pairs, output=output, json=json)
    _refuse_gpu_flags(gpu, suite)
    if threads is None:
        from tracea.profiler.machine import cores_usable

        threads = "1,2" if cores_usable() > 1 else "1"
    counts = _numbers(threads)
    peers = _parts(_AGAINST if against is None else against)
    if not peers:
        raise InvalidOption(field="--against", got=against, expected="names of peers", remedy=f"--against {_AGAINST}")
    from tracea.bench.results import RESULTS, folder_of_this_core
    from tracea.bench.run import render, run_suite
    from tracea.profiler.measurement import MINIMUM_PAIRS

    require_folder(output, option="--output")
    folder = output or (folder_of_this_core() if only is None and RESULTS.is_dir() else None)
    if resume and folder is None:
        raise InvalidOption(
            field="--resume", got="no folder for records", expected="--output", remedy="name the folder of the run"
        )
    with shown_progress() as progress, telling(progress.phase):
        records = run_suite(
            suite,
            against=tuple(peers),
            threads=counts,
            only=only,
            pairs=MINIMUM_PAIRS if pairs is None else pairs,
            processes=_PROCESSES if processes is None else processes,
            library=library,
            output=folder,
            resume=resume,
            progress=progress.note,
        )
    if json:
        print_json([_as_dict(record) for record in records])
    else:
        print("\n\n".join(render(record) for record in records))
        if folder is not None:
            print(f"\nrecords in {folder}")
    return 0


def _gpu_suite(flags: GpuFlags, *, pairs: int | None, output: Path | None, json: bool) -> int:
    from tracea.bench.gpu.run import RESULTS, is_part, render, run_gpu_suite

    stated = {name: value for name, value in asdict(flags).items() if value is not None}
    stated["stages"] = tuple(_parts(flags.stages or ""))
    if pairs is not None:
        stated["pairs"] = pairs
    require_folder(output, option="--output")
    folder = output
    whole = not is_part(stated["stages"], flags.every or 1)
    if folder is None and whole and flags.driver != "null" and RESULTS.is_dir():
        folder = RESULTS
    with shown_progress() as progress, telling(progress.phase):
        record = run_gpu_suite(output=folder, progress=progress.note, **stated)
    if json:
        import msgspec

        print_json(msgspec.to_builtins(record))
    else:
        print(render(record))
        if folder is not None:
            print(f"\nrecord in {folder}")
    return 1 if record.failures else 0


def _refuse_gpu_flags(flags: GpuFlags, suite: str) -> None:
    given = [f"--{name}" for name, value in asdict(flags).items() if value is not None]
    if given:
        raise InvalidOption(
            field=given[0], got=suite, expected="--suite gpu", remedy="leave it out, or say --suite gpu"
        )


def _refuse_cpu_flags(**flags: str | int | None) -> None:
    given = [f"--{name}" for name, value in flags.items() if value is not None and value is not False]
    if given:
        raise InvalidOption(
            field=given[0],
            got="gpu",
            expected="a suite of the CPU",
            remedy="leave it out: tracea bench --help lists the flags of --suite gpu",
        )


def _parts(text: str) -> list[str]:
    return [part for item in text.split(",") if (part := item.strip())]


def _numbers(text: str) -> tuple[int, ...]:
    parts = _parts(text)
    if not parts or not all(part.isascii() and part.isdecimal() and len(part) <= _DIGITS for part in parts):
        raise InvalidOption(field="--threads", got=text, expected="whole numbers from 1 on", remedy="--threads 1,2")
    return tuple(dict.fromkeys(map(int, parts)))  # each once: the same number twice would be the same record


def _as_dict(record: Record) -> Any:
    import msgspec

    return msgspec.to_builtins(record)
