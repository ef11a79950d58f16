"""How long the host takes for a CUDA GEMM: to prove and print it, to compile it, and to emulate 256³."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracea.emulator.native import core
from tracea.errors import ToolchainMissing
from tracea.runtime.nvrtc import compile_cuda
from tracea.testing.gpu_matrix import build, random_values, run_in_emulator
from tracea.testing.gpu_problems import LARGE, Cell, Problem

__all__ = ["Times", "cold_times"]

_CUBE: Final = Problem(m=256, n=256, k=256, transpose_b=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one kernel's stations; None where the tool is missing. ``host_compile`` is g++ for the emulator."""

    cell: Cell
    emit: float
    nvrtc: float | None
    host_compile: float | None
    emulate: float | None

    @staticmethod
    def least(runs: Sequence[Times]) -> Times:
        """Return the least of each station over several runs."""

        def of(values: Sequence[float | None]) -> float | None:
            return min((value for value in values if value is not None), default=None)

        return Times(
            cell=runs[0].cell,
            emit=min(run.emit for run in runs),
            nvrtc=of([run.nvrtc for run in runs]),
            host_compile=of([run.host_compile for run in runs]),
            emulate=of([run.emulate for run in runs]),
        )


def cold_times(cell: Cell) -> Times:
    """Measure in this process, which must not have made a kernel yet, with an empty cache; the core is built first."""
    nvrtc: float | None = None
    host: float | None = None
    emulate: float | None = None
    with suppress(ToolchainMissing):
        core()
    known = os.environ.get("TRACEA_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="tracea-times-") as cache:
        os.environ["TRACEA_CACHE_DIR"] = cache
        try:
            start = time.perf_counter()
            _, _, source = build(cell, LARGE.op(cell.element))
            emit = time.perf_counter() - start
            with suppress(ToolchainMissing):
                start = time.perf_counter()
                compile_cuda(source)
                nvrtc = time.perf_counter() - start
            op = _CUBE.op(cell.element)
            kernel, _, source = build(cell, op)
            rng = np.random.default_rng(0)
            inputs = [random_values(operand.static_shape, operand.dtype, rng) for operand in op.operands]
            with suppress(ToolchainMissing):
                start = time.perf_counter()
                _, report = run_in_emulator(kernel, source, op, inputs, (0,))
                emulate = report.seconds
                host = time.perf_counter() - start - emulate
        finally:
            del os.environ["TRACEA_CACHE_DIR"]
            if known is not None:
                os.environ["TRACEA_CACHE_DIR"] = known
    return Times(cell=cell, emit=emit, nvrtc=nvrtc, host_compile=host, emulate=emulate)
