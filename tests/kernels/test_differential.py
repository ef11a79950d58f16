"""Every variant against float64: the op it was built for, and random extents of the same structure."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.cases import all_cases, chain_cases, gemm_cases, reduce_cases, resized, row_cases
from tests.kernels.conformance import build, check, random_inputs, unit_of
from tests.kernels.native import host_isas
from tracea.core.op import GemmOp

NAMES = [case.name for case in all_cases("avx512")]


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("name", NAMES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    groups = (gemm_cases(isa), row_cases(), chain_cases(), reduce_cases())
    cases = next(group for group in groups if name in {case.name for case in group})
    case = next(case for case in cases if case.name == name)
    unit, built = unit_of(cases, isa), build(case, isa)
    inputs = random_inputs(case.op, rng)
    for threads in (1, 3):
        check(unit, built, case.op, inputs, threads=threads)
