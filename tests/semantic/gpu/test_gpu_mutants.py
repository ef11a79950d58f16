"""Mutants of GPU kernels and of their text: a seeded sample here, all of them by ``tools/gpu_mutants.py``."""

from __future__ import annotations

import random

import pytest

from tracea.emitters.cuda.emitter import emit
from tracea.errors import TraceaError
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.minimal_sync import superfluous_waits
from tracea.semantic.tile_kernel import TileKernel
from tracea.testing.gpu_cases import EQUIVALENT, GpuCase, gpu_cases
from tracea.testing.gpu_judge import certified_ways
from tracea.testing.gpu_mutants import gpu_mutants
from tracea.testing.register_bounds import register_overruns
from tracea.testing.text_mutants import text_mutants

CASES = gpu_cases()
SAMPLE = 12
# What proofs accept: a buffer that promises less alignment than its pieces of 16 bytes need.
LEFT_TO_OTHERS = {("gemm.mma_sync sm_75", f"guard: {name}: aligned to 8 bytes") for name in ("a", "b")}


def noticed_by_proof(kernel: TileKernel, spare_waits: int) -> bool:
    try:
        prove(kernel)
    except TraceaError:
        return True
    return len(superfluous_waits(kernel)) > spare_waits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_proofs_alone_notice_most_mutants_of_the_pipeline(case: GpuCase) -> None:
    families = {"wait", "stage", "order", "role", "guard", "sum"}
    chosen = [mutant for mutant in gpu_mutants(case.kernel()) if mutant.family in families]
    chosen = random.Random(0).sample(chosen, min(SAMPLE, len(chosen)))
    spare = len(superfluous_waits(case.kernel()))
    missed = [f"{m.family}: {m.description}" for m in chosen if not noticed_by_proof(m.kernel, spare)]
    assert [d for d in missed if (case.name, d) not in EQUIVALENT and (case.name, d) not in LEFT_TO_OTHERS] == []


def test_every_argued_mutant_is_one_that_exists() -> None:
    existing: set[tuple[str, str]] = set()
    for case in CASES:
        kernel = case.kernel()
        texts = text_mutants(emit(kernel, case.target))
        found = [*gpu_mutants(kernel), *texts]
        existing |= {(case.name, f"{mutant.family}: {mutant.description}") for mutant in found}
    assert set(EQUIVALENT) <= existing
    assert len(EQUIVALENT) <= 0.02 * len(existing)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_sample_of_mutants_is_noticed_and_the_original_is_not(case: GpuCase) -> None:
    kernel = case.kernel()
    judge = case.judge(kernel, certified_ways(kernel))
    assert list(judge.false_alarms(kernel)) == []
    ir = random.Random(0).sample(list(gpu_mutants(kernel)), 40)
    text = random.Random(0).sample(list(text_mutants(judge.emit(kernel))), 40)
    missed = [f"{m.family}: {m.description}" for m in ir if judge.of_kernel(m.kernel) is None]
    missed += [f"{m.family}: {m.description}" for m in text if judge.of_text(m.source) is None]
    unexplained = [d for d in missed if (case.name, d) not in EQUIVALENT]
    assert len(unexplained) <= 0.02 * 80, unexplained


def test_mutants_cover_every_family() -> None:
    wanted = {"bound", "guard", "mask", "order", "role", "split", "stage", "stride", "sum", "swizzle", "wait", "width"}
    found = {mutant.family for case in CASES for mutant in gpu_mutants(case.kernel())}
    assert found >= wanted - {"sum", "width"}
    case = CASES[2]
    texts = text_mutants(case.judge(case.kernel(), 1).emit(case.kernel()))
    assert {mutant.family for mutant in texts} == {"sync", "call", "index", "bound", "mask", "swizzle"}


def test_registers_beyond_their_array_are_found() -> None:
    text = "float sums[2][4];\nfor (int32_t i = 0; i <= 2; ++i) {\n  clear(sums[i]);\n}\n"
    assert list(register_overruns(text)) == ["line 3: sums[i]: i is 2, the array has 2"]
    assert list(register_overruns(text.replace("<=", "<"))) == []
