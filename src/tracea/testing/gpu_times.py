"""What a CUDA GEMM costs the host: to prove and print it, to compile it, and to emulate 256³.

Seconds are of a processor, this process and its children together: another process beside it changes them little.
"""

from __future__ import annotations

import os
import tempfile
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
    """Processor seconds of one kernel's stations; None where a tool is missing; ``host_compile``: the emulator's."""

    cell: Cell
    emit: float
    nvrtc: float | None
    host_compile: float | None
    emulate: float | None


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
            start = _spent()
            _, _, source = build(cell, LARGE.op(cell.element))
            emit = _spent() - start
            with suppress(ToolchainMissing):
                start = _spent()
                compile_cuda(source)
                nvrtc = _spent() - start
            op = _CUBE.op(cell.element)
            kernel, _, source = build(cell, op)
            rng = np.random.default_rng(0)
            inputs = [random_values(operand.static_shape, operand.dtype, rng) for operand in op.operands]
            with suppress(ToolchainMissing):
                before = _spent()
                run_in_emulator(kernel, source, op, inputs, (0,))
                between = _spent()
                run_in_emulator(kernel, source, op, inputs, (0,))
                emulate = _spent() - between
                host = between - before - emulate
        finally:
            del os.environ["TRACEA_CACHE_DIR"]
            if known is not None:
                os.environ["TRACEA_CACHE_DIR"] = known
    return Times(cell=cell, emit=emit, nvrtc=nvrtc, host_compile=host, emulate=emulate)


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
