"""Kernels of attention's gradients: any extents, extremes, what is not seen; and mistakes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.attention_cases import NEVER, attention, gradient, gradient_cases
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.native import host_isas, run_isas
from tests.kernels.planted import assert_refused
from tests.kernels.test_attention import later

from tracea.core.dtype import DType
from tracea.core.expr import Constant, Input
from tracea.core.op import AttentionGradientOp, PairSpans
from tracea.core.reference import evaluate
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import find
from tracea.semantic.index import Const, Var, maximum
from tracea.semantic.nodes import Block, For, Node, Pack, PointwiseTile
from tracea.semantic.nodes_attention import AttentionStart
from tracea.semantic.nodes_attention_gradient import (
    AttentionDeltas,
    AttentionGradient,
    AttentionPeaks,
    AttentionSlopeEnd,
)
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.targets import load

CASES = {case.name: case for case in gradient_cases()}
HOST = host_isas()[0]


def with_results(op: AttentionGradientOp, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the inputs with y what the forward op makes of them, so that deltas are those of its weights."""
    y = evaluate(op.forward, inputs[2:])
    return [inputs[0], np.asarray(y).astype(op.y.dtype.numpy), *inputs[2:]]


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["gradient_causal", "gradient_causal_window", "gradient_dense"])
def test_gradients_built_once_serve_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built, forward = unit_of(gradient_cases(), isa), build(CASES[name], isa), CASES[name].op.forward
    for _ in range(4):
        batch, kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 3))
        s, t, dv = int(rng.integers(0, 140)), int(rng.integers(0, 140)), int(rng.integers(1, 40))
        d = int(rng.integers(1, 4)) * built.kernel.schedule.integer("mr") + built.kernel.schedule.integer("tail")
        mask = {"causal": forward.causal, "window": forward.window, "scale": 0.25}
        op = gradient(attention(batch, kv_heads * sharing, kv_heads, s, t, d, dv, **mask))
        check(unit, built, op, with_results(op, random_inputs(op, rng)), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
def test_what_sees_nothing_and_what_is_not_seen_have_zero_gradients(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(gradient_cases(), isa)
    op = CASES["gradient_far_window"].op
    inputs = random_inputs(op, rng)
    got = run(unit, build(CASES["gradient_far_window"], isa), op, inputs)
    dq = got[: op.offsets[1]].reshape(op.parts[0])
    assert (dq[:, :, 50:] == 0).all()
    assert (dq[:, :, :28] != 0).any()
    op = CASES["gradient_allowed"].op
    inputs = random_inputs(op, rng)
    inputs[-1][...] = True
    inputs[-1][5], inputs[-1][:, 3] = False, False
    got = run(unit, build(CASES["gradient_allowed"], isa), op, inputs)
    parts = [
        got[first : first + np.prod(shape)].reshape(shape) for first, shape in zip(op.offsets, op.parts, strict=True)
    ]
    assert (parts[0][:, :, 5] == 0).all()
    assert (parts[1][:, :, 3] == 0).all()
    assert (parts[2][:, :, 3] == 0).all()
    assert all(np.isfinite(part).all() for part in parts)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("size", [1e4, 1e9, 1e30])
def test_extreme_scores_choose_the_largest(isa: str, size: float, rng: np.random.Generator) -> None:
    unit, name = unit_of(gradient_cases(), isa), "gradient_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[-1] = np.where(rng.random(inputs[-1].shape) < 0.5, -size, size).astype(np.float32)
    inputs[-1][3], inputs[-1][4] = NEVER, -size
    check(unit, build(CASES[name], isa), CASES[name].op, with_results(CASES[name].op, inputs), threads=2)


def test_the_team_changes_no_bit(rng: np.random.Generator) -> None:
    unit = unit_of(gradient_cases(), HOST)
    inputs = random_inputs(CASES["gradient_causal"].op, rng)
    first = run(unit, build(CASES["gradient_causal"], HOST), CASES["gradient_causal"].op, inputs)
    for threads in (1, 2, 3, 5):
        again = run(unit, build(CASES["gradient_causal"], HOST), CASES["gradient_causal"].op, inputs, threads=threads)
        assert first.tobytes() == again.tobytes()


def loop(name: str, change: Any) -> Any:
    return lambda node: change(node) if node.var.name == name else node


def pack(target: str, change: Any) -> Any:
    return lambda node: change(node) if node.target.buffer == target else node


def moved(field: str, axis: int = -2) -> Any:
    return lambda node: replace(node, **{field: later(getattr(node, field), axis, -1)})


MISTAKES = {
    "keys too few for peaks": (For, loop("peak_offset", lambda n: replace(n, extent=maximum(0, n.extent - 1)))),
    "keys too few": (For, loop("slope_offset", lambda n: replace(n, extent=maximum(0, n.extent - 1)))),
    "queries too few": (For, loop("first", lambda n: replace(n, extent=maximum(0, n.extent - 1)))),
    "heads too few": (For, loop("i_sharing", lambda n: replace(n, extent=maximum(0, n.extent - 1)))),
    "queries twice": (
        For,
        loop("first", lambda n: replace(n, body=Block(nodes=(For(var=Var("again"), extent=Const(2), body=n.body),)))),
    ),
    "no zeros": (PointwiseTile, lambda n: None if n.expr == Constant(0.0) else n),
    "ones": (PointwiseTile, lambda n: replace(n, expr=Constant(1.0)) if n.expr == Constant(0.0) else n),
    "no store": (PointwiseTile, lambda n: None if n.target.buffer == "grad_k" else n),
    "twice the store": (PointwiseTile, lambda n: replace(n, expr=Input(0) * 2.0) if n.inputs else n),
    "no start": (AttentionStart, lambda n: None),
    "no peaks": (AttentionPeaks, lambda n: None),
    "no deltas": (AttentionDeltas, lambda n: None),
    "no end": (AttentionSlopeEnd, lambda n: None),
    "no gradients": (AttentionGradient, lambda n: None),
    "an end elsewhere": (AttentionSlopeEnd, moved("target")),
    "other keys": (AttentionGradient, moved("keys")),
    "other values": (AttentionGradient, moved("values")),
    "keys of another head": (AttentionPeaks, moved("keys", 1)),
    "sums of other keys": (AttentionGradient, moved("key_sums")),
    "sums of other values": (AttentionGradient, moved("value_sums")),
    "another position": (AttentionGradient, lambda n: replace(n, first_key=n.first_key + 1)),
    "another position for peaks": (AttentionPeaks, lambda n: replace(n, first_query=n.first_query + 1)),
    "no mask": (AttentionGradient, lambda n: replace(n, causal=False)),
    "no mask for peaks": (AttentionPeaks, lambda n: replace(n, causal=False)),
    "another scale": (AttentionGradient, lambda n: replace(n, scale=0.5)),
    "another slope": (AttentionGradient, lambda n: replace(n, slope=Constant(2.0))),
    "fewer rows": (AttentionDeltas, lambda n: replace(n, rows=n.rows - 1)),
    "queries for gradients": (AttentionGradient, lambda n: replace(n, grads=n.queries)),
    "results for gradients": (AttentionDeltas, lambda n: replace(n, results=n.grads)),
    "peaks for totals": (AttentionGradient, lambda n: replace(n, totals=n.peaks)),
    "rows of gradients for queries": (AttentionGradient, lambda n: replace(n, query_rows=n.grad_rows)),
    "other queries": (Pack, pack("queries", moved("source"))),
    "other rows of queries": (Pack, pack("query_rows", moved("source"))),
    "other results": (Pack, pack("results", moved("source"))),
    "rows the other way": (Pack, pack("grad_rows", lambda n: replace(n, axis=0))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["gradient_causal"], "avx512").kernel, MISTAKES[mistake])


def test_a_kernel_of_gradients_says_what_it_sums() -> None:
    kernel = build(CASES["gradient_causal"], "avx512").kernel
    assert [fact.statement for fact in prove(kernel).about("attention")] == [
        "every visible key of k is taken once over peak_offset/24",
        "every visible key of k is taken once over slope_offset/24",
        "all queries of a key head give to its gradients once, in sequence",
    ]


def test_what_gradients_are_not_of_is_refused() -> None:
    forward = attention()
    y = TensorType(forward.shape, forward.q.dtype)
    with pytest.raises(InvalidShape, match="grad"):
        AttentionGradientOp(forward=forward, grad=forward.k, y=y)
    with pytest.raises(InvalidOp, match="spans"):
        gradient(attention(spans=PairSpans(rows=8, room=8)))
    with pytest.raises(InvalidOp, match="layout"):
        gradient(replace(forward, out=TensorType(forward.shape, DType.BF16)))
    kernel = build(CASES["gradient_causal"], "avx512").kernel
    with pytest.raises(InvalidOp, match="attention"):
        arguments(kernel, gradient(attention(s=130, t=131)))
    variant, target, op = find("attention.gradient"), load("avx512"), gradient(forward)
    assert variant.build is not None
    assert variant.default_schedule is not None
    schedule = variant.default_schedule(op, target)
    with pytest.raises(InvalidSchedule, match="registers"):
        variant.build(op, schedule.with_values(mr=20, nv=3), target)


@pytest.mark.parametrize("kind", [AttentionPeaks, AttentionGradient])
def test_operands_of_a_score_in_another_order_are_refused(kind: type[Node]) -> None:
    kernel = build(CASES["gradient_alibi"], "avx512").kernel
    assert prove(kernel).about("attention")
    (place, node) = next((place, node) for place, node in places(kernel.body) if isinstance(node, kind))
    with pytest.raises(ProofFailed, match="operands"):
        prove(edited(kernel, place, replace(node, operands=node.operands[::-1])))
