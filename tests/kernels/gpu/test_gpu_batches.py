"""Batches of GPU GEMMs: axes that do not merge, and tiles whose steps of k are shared, are proved and right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.drawn import drawn

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.kernel import build, choose_for_gpu
from tracea.flow.verify import EmulatedRun
from tracea.targets import load_gpu


def of_heads(batch: int, heads: int, tokens: int, depth: int) -> GemmOp:
    """Return q kᵀ of attention on [batch, tokens, heads, depth]: two batch axes that no stride makes one."""
    row, whole = heads * depth, tokens * heads * depth
    op = GemmOp.of(m=tokens, n=tokens, k=depth, batch=(batch, heads), dtype=DType.F16, transpose_b=True)
    a = TensorType((batch, heads, tokens, depth), DType.F16, StridedLayout((whole, depth, row, 1)))
    b = TensorType((batch, heads, depth, tokens), DType.F16, StridedLayout((whole, depth, 1, row)))
    return replace(op, a=a, b=b)


@pytest.mark.parametrize(
    ("variant", "target", "schedule"),
    drawn(
        2,
        [
            pytest.param("gemm.simt", "sm_75", {}),
            pytest.param("gemm.mma_sync", "sm_75", {"bm": 32, "bn": 32, "warps_m": 1, "warps_n": 2}),
            pytest.param("gemm.mma_cp_async", "sm_80", {"bm": 32, "bn": 32, "warps_m": 1, "warps_n": 2, "split_k": 2}),
        ],
        of="batches on GPUs",
    ),
)
def test_two_batch_axes_that_do_not_merge(variant: str, target: str, schedule: dict[str, int | str]) -> None:
    op, gpu = of_heads(2, 3, 40, 80), load_gpu(target)
    built = build(op, *choose_for_gpu(op, gpu, variant=variant, schedule=schedule), gpu)
    assert {"batch0", "batch1"} <= {param.name for param in built.kernel.params}
    rng = np.random.default_rng(7)
    inputs = [rng.integers(-3, 4, kind.static_shape).astype(np.float16) for kind in op.operands]
    out = np.full(op.infer().static_shape, np.nan, np.float16)
    EmulatedRun(op, built, (2,))(inputs, out)
    assert np.array_equal(out, (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)).astype(np.float16))


def test_a_batch_shares_its_steps_of_k() -> None:
    op, gpu = GemmOp.of(m=1, n=128, k=4096, batch=(8,), dtype=DType.F16), load_gpu("sm_80")
    variant, schedule = choose_for_gpu(op, gpu)
    assert schedule.integer("split_k") > 1
    facts = build(op, variant, schedule, gpu).certificate.facts
    assert any(fact.proof == "scratch" and fact.node == "workspace" for fact in facts)
