"""Kernels of one float input `a` and one float output `c`, and a run of such a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import KernelSource
from tracea.emulator import Report, emulate
from tracea.testing.conformance.source import IN, OUT, kernel


def run(source: KernelSource, *, size: int = 64, schedules: Any = (0, 1, 2), **arrays: Any) -> tuple[Report, Any]:
    """Run a kernel of float input `a` and float output `c`."""
    rng = np.random.default_rng(1)
    given = {"a": rng.standard_normal(size).astype(np.float32), "c": np.zeros(size, np.float32), **arrays}
    names = {pointer.name for pointer in source.pointers}
    report = emulate(source, {k: v for k, v in given.items() if k in names}, {}, schedules=schedules)
    return report, given


def floats(body: str, **options: Any) -> KernelSource:
    """Return a kernel of float input `a` and float output `c`."""
    options.setdefault("threads", 64)
    return kernel(body, pointers={"a": (DType.F32, IN), "c": (DType.F32, OUT)}, **options)
