"""Run the GPU suite stage by stage, and say what came out."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.bench.gpu.record import GpuRecord, Journal, StageRecord, file_name
from tracea.bench.gpu.settings import ITEM_SECONDS, STAGES, ItemOutcome, Settings, StageRequest, Status
from tracea.bench.gpu.watch import watch_stage
from tracea.bench.results import RESULTS
from tracea.bench.unfinished import Unfinished
from tracea.doctor.gpus import target_for
from tracea.errors import InvalidDevice, InvalidOption
from tracea.flow.phases import phase
from tracea.optimizer.priors import Hero, load_heroes, read_heroes, save_heroes
from tracea.profiler.duration import shown_us
from tracea.profiler.environment import capture
from tracea.profiler.record import Row
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import load_gpu

__all__ = ["is_part", "render", "run_gpu_suite"]

_TOTAL_SECONDS: Final = 585.0
_DRY_SLACK: Final = 4.0  # the emulator, on any machine, is no device: a dry run's items and stages may take this longer
_SECONDS_BETWEEN_LINES: Final = 5.0
_PACKAGES: Final = ("cuda-bindings", "nvidia-cuda-nvrtc", "triton", "ml-dtypes", "scipy")
_HEROES: Final = "heroes"


def run_gpu_suite(
    *,
    driver: str = "cuda",
    target: str | None = None,
    device: int = 0,
    stages: tuple[str, ...] = (),
    every: int = 1,
    workers: int | None = None,
    pairs: int = 30,
    trials: int = 24,
    seed: int = 0,
    output: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> GpuRecord:
    """Run the stages, all of them by default, each within its seconds and all within ten minutes; return the record.

    A dry run has four times as long: the emulator stands for the device.

    With ``output``, a folder, the record is there at the end, that of a part of the suite under a name of its own, and
    hero configs in ``heroes/`` beside it; what a run that was stopped has found is in ``*.unfinished.json``.

    Raises:
        InvalidOption: an unknown stage, driver or target; a file of hero configs that cannot be read.
        ToolchainMissing: there is no driver.
        InvalidDevice: the device is none that kernels can be compiled for.
    """
    chosen = _stages(stages)
    if every < 1 or pairs < 1 or trials < 1 or (workers is not None and workers < 1):
        got = {"every": every, "pairs": pairs, "trials": trials, "workers": workers}
        raise InvalidOption(field="numbers", got=got, expected="each at least 1", remedy="leave them out")
    if driver == "null" and output is not None and _is_for_results(output):
        raise InvalidOption(
            field="--output",
            got=output,
            expected=f"another folder than {RESULTS}: a dry run has no result",
            remedy="--output build/gpu-dry-run",
        )
    name, facts = _device(driver, target, device)
    slack = _DRY_SLACK if driver == "null" else 1.0
    known = output or (RESULTS if driver == "cuda" else None)  # a contest that is not kept takes what was kept before
    heroes = known / _HEROES if known is not None else None
    if heroes is not None and heroes.is_dir() and not {"tuning", "contest"}.isdisjoint(chosen):
        load_heroes(heroes)  # a file that cannot be read is told of now, not after minutes
    settings = Settings(
        target=name,
        driver=driver,
        device=device,
        every=every,
        seed=seed,
        workers=workers or os.cpu_count() or 1,
        pairs=pairs,
        trials=trials,
        heroes="" if heroes is None else str(heroes),
        item_seconds=ITEM_SECONDS * slack,
    )
    record = GpuRecord(
        command=shlex.join(("tracea", *sys.argv[1:])),
        measured=driver == "cuda",
        settings=settings,
        device=facts,
        environment=capture(threads=1, toolchain=_versions()),
    )
    journal = Journal(record, output, is_part=is_part(stages, every))
    journal.save()
    if progress is not None:
        progress(_announced(record, chosen, slack, journal.path))
    end = time.monotonic() + _TOTAL_SECONDS * slack
    for number, stage in enumerate(chosen, start=1):
        seconds = min(STAGES[stage] * slack, end - time.monotonic())
        phase(f"stage {number}/{len(chosen)}, {stage}: at most {max(0.0, seconds):.0f} s")
        _run_stage(stage, journal, seconds, progress)
        if stage == "tuning" and output is not None:
            _write_heroes(output / _HEROES / file_name(facts, settings), record)
    journal.finish()
    return record


def is_part(stages: Iterable[str], every: int) -> bool:
    """Tell whether a run of these stages, all of them where none is named, is less than the whole suite.

    Raises:
        InvalidOption: an unknown stage.
    """
    return every > 1 or _stages(stages) != tuple(STAGES)


def _is_for_results(folder: Path) -> bool:
    return folder.resolve().parts[-len(RESULTS.parts) :] == RESULTS.parts


def _run_stage(stage: str, journal: Journal, seconds: float, progress: Callable[[str], None] | None) -> None:
    entry = journal.record.stages[stage] = StageRecord(budget_seconds=seconds)
    begin = said_at = time.monotonic()

    def told(name: str, outcome: ItemOutcome) -> None:
        nonlocal said_at
        entry.items[name] = outcome
        entry.seconds = time.monotonic() - begin
        journal.save()
        if progress is None:
            return
        if outcome.status not in (Status.PASSED, Status.DRY):
            progress(f"{stage}: {name}: {outcome.status}: {outcome.detail[:200]}")
        elif time.monotonic() - said_at >= _SECONDS_BETWEEN_LINES:
            progress(f"{stage}: {len(entry.items)} items, the last {name}: {outcome.status}; {entry.seconds:.0f} s")
        else:
            return
        said_at = time.monotonic()

    if seconds > 0:
        request = StageRequest(stage=stage, settings=journal.record.settings, seconds=seconds)
        entry.reason = watch_stage(request, told)
    else:
        entry.reason = "the suite's seconds are spent"
    entry.seconds = time.monotonic() - begin
    journal.save()
    if progress is not None:
        progress(f"{stage}: {_counted(entry)} in {entry.seconds:.0f} s")


def _announced(record: GpuRecord, stages: Sequence[str], slack: float, path: Path | None) -> str:
    seconds = min(_TOTAL_SECONDS, sum(map(STAGES.__getitem__, stages))) * slack
    what = "GPU suite" if record.measured else "dry run of the GPU suite, the emulator in the place of a device"
    kept = "is not kept" if path is None else f"goes to {path}, until then {Unfinished.place(path).name}"
    count = "1 stage" if len(stages) == 1 else f"{len(stages)} stages"
    return (
        f"{what}, {record.settings.target}: {count} ({', '.join(stages)}), at most {seconds / 60:.0f} minutes; "
        f"the record {kept}"
    )


def _stages(named: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(named)
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        raise InvalidOption(field="stages", got=unknown, expected=list(STAGES), remedy="name stages by comma")
    return tuple(name for name in STAGES if not wanted or name in wanted)


def _device(driver: str, target: str | None, device: int) -> tuple[str, dict[str, Any]]:
    """Return the target and what is known of the device."""
    if driver == "null":
        name = target or "sm_90a"
        return name, msgspec.to_builtins(NullDriver(load_gpu(name)).facts())
    if driver != "cuda":
        raise InvalidOption(field="driver", got=driver, expected=("cuda", "null"), remedy="--driver cuda")
    from tracea.runtime.cuda.cuda_driver import CudaDriver

    facts = CudaDriver(device).facts()
    name = target or target_for(facts.compute_capability)
    if name is None:
        raise InvalidDevice(
            field=f"GPU {device}",
            got=f"{facts.name}, compute capability {facts.compute_capability / 10:.1f}",
            expected="one that a target runs on",
            remedy="tracea doctor lists targets; --driver null runs without a device",
        )
    load_gpu(name)
    return name, msgspec.to_builtins(facts)


def _versions() -> dict[str, str]:
    found = {"system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _write_heroes(path: Path, record: GpuRecord) -> None:
    entry = record.stages.get("tuning")
    found = [item.data["hero"] for item in entry.items.values() if "hero" in item.data] if entry is not None else []
    if not found or not record.measured:
        return
    heroes = {_found_for(hero): hero for hero in read_heroes(path)} if path.is_file() else {}
    heroes |= {_found_for(hero): hero for hero in (msgspec.convert(hero, Hero) for hero in found)}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_heroes(path, heroes.values())


def _found_for(hero: Hero) -> tuple[str, Any]:
    # A run that was cut short, or took some of the problems, has nothing to say of the others.
    return hero.op_key, hero.record.hardware.get("target")


def _counted(entry: StageRecord) -> str:
    counts = ", ".join(f"{number} {status}" for status, number in sorted(entry.counts.items())) or "no item"
    return f"{counts}{f' ({entry.reason})' * bool(entry.reason)}"


def render(record: GpuRecord) -> str:
    """Return the record as text: the device, a line a stage, a line a timed problem, the failures last."""
    device = record.device
    kind = "measured" if record.measured else "dry run: no device took part, and nothing here is a time"
    lines = [
        f"GPU suite · {device.get('name')} · {record.settings.target} · CUDA {device.get('driver_version')} · "
        f"{record.environment.date} · {kind}",
    ]
    for stage, entry in record.stages.items():
        lines.append(f"  {stage:12s} {_counted(entry)}; {entry.seconds:.0f} of {entry.budget_seconds:.0f} s")
    contest = record.stages.get("contest")
    for item in contest.items.values() if contest is not None else ():
        if "row" in item.data:
            lines.append(_row_line(msgspec.convert(item.data["row"], Row), item.data))
    failures = record.failures
    lines += [f"  FAILED {failure[:300]}" for failure in failures]
    return "\n".join(lines)


def _row_line(row: Row, data: dict[str, Any]) -> str:
    ours = row.measurements[0]
    peers = "; ".join(f"{ratio} of {name}" for name, ratio in row.ratios.items()) or "no peer"
    rate, share = data["tflops"][ours.name], data["share_of_peak"][ours.name]
    return f"  {row.problem:42s} {shown_us(ours.median_us):>12s} {rate:7.1f} TFLOP/s {share:4.0%}  {peers}"
