"""Stages ``sanitizer`` and ``banks``: NVIDIA's own tools on a sample of kernels, each in its own process."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from tracea.bench.gpu.one_kernel import OneKernel
from tracea.bench.gpu.problems import correctness_cells
from tracea.bench.gpu.session import Item, Session
from tracea.bench.gpu.settings import ItemOutcome, Status
from tracea.emulator.report import AccessCost
from tracea.errors import ToolchainMissing
from tracea.flow.kernel import Built, build
from tracea.flow.verify import EmulatedRun
from tracea.targets.gpu import load_gpu

__all__ = [
    "Counters",
    "bank_items",
    "bank_requests",
    "parse_counters",
    "predicted_counters",
    "sanitizer_items",
    "sanitizer_requests",
    "shared_costs",
]

_TOOLS: Final = ("memcheck", "racecheck", "synccheck", "initcheck")
_ERRORS: Final = 9  # the exit code that the sanitizer is asked for
_SECONDS: Final = 30.0
_METRICS: Final = {
    "loads": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "stores": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
_NO_PERMISSION: Final = "ERR_NVGPUCTRPERM"
_TOLERANCE: Final = 0.02  # of the wavefronts: replays that no address explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Wavefronts of shared memory, and those of them that bank conflicts add, by kind of instruction."""

    loads: int
    stores: int
    load_conflicts: int
    store_conflicts: int


def sanitizer_requests(session: Session) -> list[OneKernel]:
    """Return the kernels that the sanitizer looks at: one of each variant."""
    return [_request(session, variant) for variant in _variants(session)][:: session.settings.every]


def bank_requests(session: Session) -> list[OneKernel]:
    """Return the kernels whose bank conflicts are counted: one of each variant, and one without the swizzle."""
    variants = _variants(session)
    requests = [_request(session, variant) for variant in variants]
    if "gemm.mma_cp_async" in variants:
        requests.insert(0, _request(session, "gemm.mma_cp_async", swizzle=0))
    return requests[:: session.settings.every]


def sanitizer_items(session: Session) -> Iterator[Item]:
    """Yield an item for each tool of the sanitizer on each variant."""
    requests = sanitizer_requests(session)
    for tool in _TOOLS:
        for request in requests:
            run = lambda tool=tool, request=request: _sanitized(session, tool, request)  # noqa: E731
            yield Item(name=f"{tool} {request.variant}", run=run)


def bank_items(session: Session) -> Iterator[Item]:
    """Yield an item for each variant's bank conflicts, and one without the swizzle, which has some."""
    for request in bank_requests(session):
        name = f"{request.variant}{' without swizzle' if request.changes else ''}"
        yield Item(name=name, run=lambda request=request: _banks(session, request))


def shared_costs(built: Built, request: OneKernel) -> list[AccessCost]:
    """Return what each place's accesses of shared memory cost in the emulator, on the request's problem."""
    op = request.op()
    run = EmulatedRun(op, built, (0,))
    inputs = [np.ones(operand.static_shape).astype(operand.dtype.numpy) for operand in op.operands]
    run(inputs, np.zeros(op.infer().static_shape, op.infer().dtype.numpy))
    return [cost for cost in run.reports[0].accesses if cost.space == "shared"]


def predicted_counters(built: Built, request: OneKernel) -> Counters:
    """Return what the emulator counts for a kernel on the request's problem, main loop and epilogue together."""
    counts = {"ld": [0, 0], "st": [0, 0]}
    for cost in shared_costs(built, request):
        if cost.place.primitive[:2] in counts:
            count = counts[cost.place.primitive[:2]]
            count[0] += cost.actual
            count[1] += cost.conflicts
    (loads, load_conflicts), (stores, store_conflicts) = counts["ld"], counts["st"]
    return Counters(loads=loads, stores=stores, load_conflicts=load_conflicts, store_conflicts=store_conflicts)


def parse_counters(text: str) -> Counters | None:
    """Return the counters that ``ncu --csv`` printed, summed over its rows; None where one of them is missing."""
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return None
    found: dict[str, int] = {}
    names = {metric: name for name, metric in _METRICS.items()}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        name = names.get(row.get("Metric Name") or "")
        if name is not None:
            found[name] = found.get(name, 0) + round(float((row.get("Metric Value") or "0").replace(",", "")))
    return Counters(**found) if found.keys() == _METRICS.keys() else None


def _variants(session: Session) -> list[str]:
    return [cell.variant for cell in correctness_cells(session.target.name) if cell.element == "f16"]


def _request(session: Session, variant: str, **changes: int) -> OneKernel:
    settings = session.settings
    return OneKernel(
        target=settings.target,
        variant=variant,
        element="f16",
        m=256,
        n=256,
        k=136,
        changes=changes,
        device=settings.device,
    )


def _command(*tool: str, request: OneKernel) -> list[str]:
    return [*tool, sys.executable, "-m", "tracea.bench.gpu.one_kernel", msgspec.json.encode(request).decode()]


def _sanitized(session: Session, tool: str, request: OneKernel) -> ItemOutcome:
    missing = _missing(session, "compute-sanitizer")
    command = _command(
        "compute-sanitizer", "--tool", tool, "--error-exitcode", str(_ERRORS), "--print-limit", "5", request=request
    )
    if missing:
        return ItemOutcome(status=Status.NOT_CHECKED, detail=missing, data={"command": command[:6]})
    code, text = _output(command, min(_SECONDS, session.seconds_left))
    if code is None:
        return _unended(session, text)
    said = [line for line in text.splitlines() if line.startswith("=========")]
    if code == 0:
        return session.outcome([], said=said[-1:])
    if code == _ERRORS:
        return session.outcome([f"{tool} reports errors: {' '.join(said[:6])}"])
    return session.outcome([f"exit code {code}: {text[-400:]}"])


def _banks(session: Session, request: OneKernel) -> ItemOutcome:
    built = build(request.op(), request.variant, request.schedule(), load_gpu(request.target))
    try:
        predicted = predicted_counters(built, request)
    except ToolchainMissing as error:  # the emulator needs a C++ compiler, which says nothing of the kernel
        return ItemOutcome(status=Status.NOT_CHECKED, detail=str(error))
    figures: dict[str, Any] = {"predicted": msgspec.to_builtins(predicted)}
    missing = _missing(session, "ncu")
    if session.is_dry:
        return session.outcome([], **figures, up_to=missing)
    if missing:
        return ItemOutcome(status=Status.NOT_CHECKED, detail=missing, data=figures)
    metrics = ",".join(_METRICS.values())
    command = _command("ncu", "--csv", "--metrics", metrics, "-k", built.source.name, request=request)
    code, text = _output(command, min(_SECONDS, session.seconds_left))
    if code is None:
        return _unended(session, text, **figures)
    if _NO_PERMISSION in text:
        detail = f"{_NO_PERMISSION}: this user may not read the GPU's counters"
        return ItemOutcome(status=Status.NOT_CHECKED, detail=detail, data=figures)
    counted = parse_counters(text)
    if counted is None:
        detail = f"ncu, exit code {code}, printed no counters: {text[-300:]}"
        return ItemOutcome(status=Status.NOT_CHECKED, detail=detail, data=figures)
    figures["counted"] = msgspec.to_builtins(counted)
    return session.outcome(_differences(predicted, counted), **figures)


def _differences(predicted: Counters, counted: Counters) -> list[str]:
    """Return in what the hardware's conflicts differ from those that the emulator, and the proof, foretell."""
    found: list[str] = []
    for kind, wavefronts in (("load", predicted.loads), ("store", predicted.stores)):
        expected, got = getattr(predicted, f"{kind}_conflicts"), getattr(counted, f"{kind}_conflicts")
        if abs(expected - got) > _TOLERANCE * wavefronts:
            found.append(f"{got} wavefronts of {kind} conflicts, predicted {expected} of {wavefronts}")
    return found


def _missing(session: Session, tool: str) -> str:
    if session.is_dry:
        return "no device"
    return "" if shutil.which(tool) is not None else f"{tool} is not on PATH. Remedy: add the toolkit's bin folder"


def _output(command: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Return a tool's exit code and what it printed; no code where it was not done in time."""
    seconds = max(1.0, seconds)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no end within {seconds:.0f} s: {Path(command[0]).name}"
    return done.returncode, done.stdout + done.stderr


def _unended(session: Session, text: str, **figures: Any) -> ItemOutcome:
    # The tools slow kernels down many times, and say nothing of one that they did not get through.
    if session.seconds_left <= 0:
        return ItemOutcome(status=Status.SKIPPED, detail=f"the stage's time was up: {text}", data=figures)
    return ItemOutcome(status=Status.NOT_CHECKED, detail=text, data=figures)
