"""The printed text of every GPU GEMM runs in the emulator: right, clean under hostile schedules, free of conflicts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.gpu.gpu_cases import CASES, GpuCase, data, strided

from tracea.core.reference import error_bound, evaluate
from tracea.emitters.cuda.emitter import emit
from tracea.emulator import emulate
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer, tables

# Loads of fragments: the accesses of shared memory in a main loop.
_LOADS = ("load_a", "load_b", "wgmma_m64")


@pytest.fixture(
    params=drawn(16, (pytest.param(case, id=name) for name, case in CASES.items()), of="texts in the emulator")
)
def case(request: pytest.FixtureRequest) -> GpuCase:
    return request.param


def test_text_is_right_and_clean_in_the_emulator(case: GpuCase, rng: np.random.Generator) -> None:
    op, kernel = case.op, case.build()
    inputs = data(op, rng)
    arrays = {
        buffer.name: array.swapaxes(-1, -2) if buffer.name.endswith("_t") else array
        for buffer, array in zip(operand_buffers(kernel), inputs, strict=True)
    }
    result = strided(np.zeros(op.infer().static_shape), op.infer())
    arrays[result_buffer(kernel).name] = result
    arrays |= tables(kernel)
    report = emulate(emit(kernel, case.target), arrays, arguments(kernel), schedules=(0, 1, 2))
    assert report.clean, "\n".join(map(str, report.findings))
    error = np.abs(result.astype(np.float64) - evaluate(op, inputs))
    assert np.all(error <= error_bound(op, inputs, worst_case=True))
    conflicts = {
        cost.place.text: cost.conflicts
        for cost in report.accesses
        if cost.space == "shared" and cost.conflicts and cost.place.text.startswith(_LOADS)
    }
    swizzled = case.variant != "gemm.simt" and case.chosen.get("swizzle") == 1
    if swizzled:
        assert not conflicts
    elif case.variant != "gemm.simt":
        assert conflicts, "without a swizzle these tiles have conflicts"
