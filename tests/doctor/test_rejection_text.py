"""What a rejection says it found is text for people: expressions as one writes them, and only what is broken."""

from __future__ import annotations

import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.core.expr import Input, maximum
from tracea.core.op import AttentionOp, GemmOp, Op, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import Rejection, decide
from tracea.doctor.plan import Plan

AVX512 = targets.load("avx512")


def rejection(op: Op, variant: str) -> Rejection:
    """The one reason why a variant does not run an op."""
    (found,) = (each for each in decide(op, AVX512).rejections if each.variant == variant)
    return found


def test_an_expression_is_written_as_text() -> None:
    x = TensorType((4, 8), DType.F32)
    op = PointwiseOp(expr=maximum(Input(0) * 0.5 - Input(1), 0.0), inputs=(x, x), out_dtype=DType.F32)
    found = rejection(op, "pointwise.transpose").found
    assert found.startswith("relu((x0 * 0.5) - x1) of ")
    assert "(function=" not in found
    assert "BinaryFunction" not in decide(op, AVX512).explain()


@pytest.mark.parametrize(
    ("queries", "depth", "needed", "found"),
    [
        (64, 64, "s <= 16", "s = 64"),
        (64, 2048, "s <= 16, d <= 1024, dv <= 1024", "s = 64, d = 2048, dv = 2048"),
    ],
)
def test_only_the_limits_that_are_broken_are_named(queries: int, depth: int, needed: str, found: str) -> None:
    q, k = (TensorType((1, 8, rows, depth), DType.F32) for rows in (queries, 512))
    refused = rejection(AttentionOp(q=q, k=k, v=k), "attention.decode")
    assert (refused.needed, refused.found) == (needed, found)


def test_a_variant_with_several_reasons_is_named_once() -> None:
    decision = decide(GemmOp.of(m=64, n=64, k=64), AVX512)
    refused = [each.variant for each in decision.told_rejections]
    assert len(refused) > len(set(refused))  # gemm.dot needs few rows, and B turned
    told = [name for names, _ in decision.rejected_together for name in names.split(", ")]
    assert sorted(told) == sorted(set(refused))
    (again,) = (
        Plan(target="avx512", decisions={"a": decision, "b": decision}).explain().split("rejected as for [a]: ")[1:]
    )
    assert sorted(again.splitlines()[0].split(", ")) == sorted(set(refused))
