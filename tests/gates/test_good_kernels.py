"""No false alarms: the gates pass what is right, whatever the variant, schedule, element type, strides and threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.kernels.cases import resized, tile_groups, vector_groups
from tests.kernels.conformance import Built, Case, build, unit_of
from tests.kernels.native import Unit, host_isas, poisoned

from tracea.core.op import GemmOp, Op
from tracea.gates import Distribution, Run, build_cases, check_fences, judge
from tracea.kernels.arguments import arguments, buffer_types, result_offsets
from tracea.kernels.registry import find
from tracea.semantic.tile_kernel import BufferRole

Array = np.ndarray[Any, Any]
Kernel: TypeAlias = tuple[tuple[Case, ...], Case, str, Op, int]

RESIZABLE = ("gemm.packed", "gemm.prepacked", "gemm.amx")
SAMPLED = 16


def run_of(unit: Unit, built: Built, op: Op, threads: int) -> Run:
    """A built kernel as the gates run one; a constant operand is packed anew for each call."""
    values = arguments(built.kernel, op)

    def run(inputs: Sequence[Array], out: Array) -> None:
        addresses = [array.ctypes.data for array in inputs]
        kept = None
        if built.pack is not None and built.pack_source is not None:
            position = find(built.case.variant).constant_operand
            assert position is not None
            panels = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.OUTPUT)
            elements = int(np.prod([int(size.evaluate(values)) for size in panels.shape]))
            kept, address = poisoned(elements * panels.dtype.nbytes)
            own = arguments(built.pack, op) if "panels" not in buffer_types(built.pack, op) else values
            unit.call(built.pack.name, [addresses[position], address], own, threads=threads)
            addresses[position] = address
        firsts = result_offsets(built.kernel, op).values()
        results = [out.ctypes.data + first * out.itemsize for first in firsts]
        unit.call(built.kernel.name, [*addresses, *results], values, threads=threads)
        del kept

    return run


def good(isas: Sequence[str], rng: np.random.Generator) -> list[Kernel]:
    """Every case on its own op, and on random extents where its kernel serves others, on one thread or several."""
    found: list[Kernel] = []
    for isa in isas:
        for group in (*vector_groups(), *(tile_groups() if isa == "plain" else ())):
            for case in group:
                found.append((group, case, isa, case.op, int(rng.integers(1, 4))))
                op = case.op
                if isinstance(op, GemmOp) and case.variant in RESIZABLE and not op.batch and not op.infer().layout:
                    m, n, k = (int(extent) for extent in rng.integers(2, 90, 3))
                    found.append((group, case, isa, resized(op, m, n, k), int(rng.integers(1, 4))))
    return found


def refused(kernels: Sequence[Kernel], rng: np.random.Generator) -> list[str]:
    """Return what the gates say against each kernel that they refuse: all distributions, and both sides of a fence."""
    alarms: list[str] = []
    for group, case, isa, op, threads in kernels:
        run = run_of(unit_of(group, isa), build(case, isa), op, threads)
        name = f"{case.name} {op.key} {isa}, {threads} threads"
        verdict = judge(run, op, subject=name, seed=int(rng.integers(2**32)))
        (inputs,) = build_cases(op, rng, [Distribution.NORMAL])
        verdict = replace(verdict, checks=(*verdict.checks, *check_fences(run, op, inputs)))
        if not verdict.passed:
            alarms.append(str(verdict))
    return alarms


def test_a_sample_of_our_kernels_passes(rng: np.random.Generator) -> None:
    every = good(host_isas()[:1], rng)
    chosen = [every[int(index)] for index in rng.choice(len(every), SAMPLED, replace=False)]
    assert not refused(chosen, rng)


@pytest.mark.slow
def test_200_of_our_kernels_pass_without_a_false_alarm(rng: np.random.Generator) -> None:
    kernels = good(host_isas(), rng)
    while len(kernels) < 200:
        kernels += good(host_isas(), rng)
    alarms = refused(kernels, rng)
    assert not alarms, f"{len(alarms)} of {len(kernels)}\n" + "\n".join(alarms[:5])
