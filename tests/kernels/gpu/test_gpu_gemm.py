"""Every GPU GEMM is proved, means what the reference says, and prints the golden text; what cannot be is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.gpu.gpu_cases import CASES, GpuCase, data, strided

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.reference import error_bound, evaluate
from tracea.emitters.cuda.emitter import emit
from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.kernels.arguments import arguments, operand_buffers, result_buffer, tables
from tracea.kernels.registry import CUDA_VARIANTS, candidates, find
from tracea.semantic.interpreter import interpret
from tracea.semantic.proofs import prove
from tracea.targets import gpu_names, load_gpu
from tracea.testing.address_widths import narrow_addresses

HALF = GemmOp.of(m=4096, n=4096, k=4096, dtype=DType.F16, transpose_b=True)


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> GpuCase:
    return request.param


def test_requirements_hold_and_the_proofs_pass(case: GpuCase) -> None:
    assert find(case.variant).unmet(case.op, load_gpu(case.target)) == ()
    facts = prove(case.build()).facts
    products = [fact for fact in facts if fact.proof == "products"]
    assert products
    assert all("no traced array" not in fact.statement for fact in products)


def test_interpreter_agrees_with_the_reference(case: GpuCase, rng: np.random.Generator) -> None:
    op, kernel = case.op, case.build()
    inputs = data(op, rng)
    buffers = {
        buffer.name: array.swapaxes(-1, -2) if buffer.name.endswith("_t") else array
        for buffer, array in zip(operand_buffers(kernel), inputs, strict=True)
    }
    result = strided(np.zeros(op.infer().static_shape), op.infer())
    buffers[result_buffer(kernel).name] = result
    interpret(kernel, buffers, arguments(kernel), tables=tables(kernel), seed=int(rng.integers(1 << 30)))
    error = np.abs(result.astype(np.float64) - evaluate(op, inputs))
    assert np.all(error <= error_bound(op, inputs, worst_case=True))


def test_every_variant_with_a_kernel_has_a_case() -> None:
    assert {case.variant for case in CASES.values()} == {v.id for v in CUDA_VARIANTS if v.build is not None}


@pytest.mark.parametrize("name", CASES)
def test_text_is_the_golden_one(name: str, golden: Any) -> None:
    case = CASES[name]
    golden.check(f"cuda/{name}.{case.target}.cu", emit(case.build(), case.target).text)


def test_text_and_name_depend_on_nothing_but_the_kernel() -> None:
    case = CASES["cp_async.f16.fused"]
    first, second = (emit(case.build(), case.target) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("target", gpu_names())
def test_default_schedules_are_in_their_spaces(target: str) -> None:
    where = load_gpu(target)
    ours = [variant for variant in candidates(HALF, where) if not variant.is_library]
    assert ours
    for variant in ours:
        assert variant.default_schedule is not None
        assert variant.space is not None
        assert variant.default_schedule(HALF, where) in variant.space(HALF, where)


def test_blackwell_rejects_tcgen05_and_runs_by_mma() -> None:
    target = load_gpu("sm_100a")
    (reason,) = (unmet for _, unmet in find("gemm.tcgen05").unmet(HALF, target))
    assert "none in this version" in reason.found
    assert "gemm.mma_tma" in [variant.id for variant in candidates(HALF, target)]


@pytest.mark.parametrize(
    ("variant", "target", "op", "needed"),
    [
        ("gemm.mma_cp_async", "sm_75", HALF, "cp_async"),
        ("gemm.wgmma", "sm_80", HALF, "tma"),
        ("gemm.wgmma", "sm_120a", HALF, "wgmma"),
        ("gemm.mma_cp_async", "sm_80", GemmOp.of(m=8, n=8, k=8, dtype=DType.E4M3, out_dtype=DType.F32), "fp8"),
        ("gemm.mma_sync", "sm_75", GemmOp.of(m=8, n=8, k=8, dtype=DType.BF16), "bf16"),
        ("gemm.simt", "sm_80", GemmOp.of(m=8, n=8, k=8, math=MatrixMath.TF32), "ieee"),
        ("gemm.mma_tma", "sm_90a", GemmOp.of(m=8, n=8, k=8, dtype=DType.F16), "along k"),
        ("gemm.mma_tma", "sm_90a", GemmOp.of(m=8, n=8, k=9, dtype=DType.F16, transpose_b=True), "16 bytes"),
        ("gemm.wgmma", "sm_90a", GemmOp.of(m=8, n=8, k=8, transpose_b=True, math=MatrixMath.TF32), "f16"),
    ],
)
def test_what_a_target_lacks_is_rejected_by_name(variant: str, target: str, op: GemmOp, needed: str) -> None:
    found = [unmet.needed for _, unmet in find(variant).unmet(op, load_gpu(target))]
    assert any(needed in text for text in found), found


@pytest.mark.parametrize(
    ("name", "change", "remedy"),
    [
        ("cp_async.f16", {"bm": 40}, "use 48, the nearest"),
        ("cp_async.f16", {"bn": 20}, "use 32, the nearest"),
        ("cp_async.f16", {"bk": 24}, "use 32, the nearest"),
        ("cp_async.f16", {"stages": 9}, "use 8"),
        ("cp_async.f16", {"warps_m": 0}, "use 1 or more"),
        ("cp_async.f16", {"bm": 256, "bn": 256}, "use bm=128"),
        ("cp_async.f16", {"bm": 512, "bn": 512}, "use bm="),
        ("cp_async.f16", {"fragments": 3}, "use fragments=2"),
        ("cp_async.f16", {"fragments": 2, "bk": 16}, "use fragments=1"),
        ("mma_sync.f16", {"stages": 3}, "use stages=2"),
        ("simt.f32", {"stages": 1}, "use stages=2"),
        ("cp_async.f16", {"swizzle": 2}, "1: free of bank conflicts"),
        ("cp_async.f16.odd", {"chunk_a": 16}, "use 2"),
        ("cp_async.f16", {"split_k": 2, "stream_k": 4}, "split_k=1, stream_k=0"),
        ("wgmma.f16", {"bn": 80}, "use 64"),
        ("wgmma.f16", {"bm": 96}, "use bm=128"),
        ("wgmma.f16", {"bk": 48}, "use 32"),
        ("wgmma.f16", {"swizzle": 0}, "use swizzle=1"),
    ],
)
def test_an_impossible_tile_names_the_nearest_legal_one(name: str, change: dict[str, int], remedy: str) -> None:
    case = CASES[name]
    with pytest.raises(InvalidSchedule) as caught:
        GpuCase(variant=case.variant, target=case.target, options=case.options, schedule=case.schedule | change).build()
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("variant", "target", "options", "schedule", "remedy"),
    [
        ("gemm.mma_cp_async", "sm_86", {"n": 4096, "m": 4096}, {"stages": 6, "bm": 128, "bn": 128}, "stages=5"),
        ("gemm.wgmma", "sm_90a", {"transpose_b": True}, {"bm": 128, "bn": 256, "groups": 2, "stages": 7}, "stages=4"),
        (
            "gemm.wgmma",
            "sm_90a",
            {"transpose_b": True},
            {"bm": 1408, "bn": 32, "bk": 64, "groups": 2},
            "use bm=",  # two stages of bk=32 fit, but no box of the copy engine has 1408 rows
        ),
    ],
)
def test_too_much_shared_memory_names_the_stages_that_fit(
    variant: str, target: str, options: dict[str, Any], schedule: dict[str, int], remedy: str
) -> None:
    with pytest.raises(ResourceExceeded) as caught:
        GpuCase(variant=variant, target=target, options=options, schedule=schedule).build()
    assert remedy in str(caught.value)
    assert caught.value.needed_bytes > caught.value.limit_bytes


@pytest.mark.parametrize("name", CASES)
def test_addresses_are_computed_in_64_bits(name: str) -> None:
    case = CASES[name]
    assert list(narrow_addresses(emit(case.build(), case.target).text)) == []
