"""Attention kernels against float64: any extents, any schedule of the space, extremes; and mistakes are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.attention_cases import NEVER, SOFT_CAP, added, alibi, allowed, attention, attention_cases
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import host_isas, run_isas

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import Const, Var, maximum
from tracea.semantic.nodes import Barrier, Block, For, Node, Pack, Parallel, PointwiseTile
from tracea.semantic.nodes_attention import (
    AttentionCombine,
    AttentionFinish,
    AttentionStart,
    AttentionState,
    AttentionStep,
)
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

CASES = {case.name: case for case in attention_cases()}
HOST = host_isas()[0]


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["attention_causal", "attention_causal_window", "attention_far_window"])
def test_attention_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, built, op = unit_of(attention_cases(), isa), build(CASES[name], isa), CASES[name].op
    assert isinstance(op, AttentionOp)
    for _ in range(8):
        batch, kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 3))
        s, t, d = int(rng.integers(1, 140)), int(rng.integers(0, 140)), int(rng.integers(1, 40))
        dv = int(rng.integers(0, 3)) * built.kernel.schedule.integer("mr") + built.kernel.schedule.integer("tail")
        other = attention(
            batch, kv_heads * sharing, kv_heads, s, t, d, max(1, dv), causal=op.causal, window=op.window, scale=0.25
        )
        if dv == 0:
            continue
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


def test_random_problems_and_schedules_of_the_space(rng: np.random.Generator) -> None:
    target, variant, cases = load(HOST), find("attention.flash"), []
    assert variant.space is not None
    for number in range(6):
        kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 2))
        s, t = (int(value) for value in rng.integers(1, 300, 2))
        heads = kv_heads * sharing
        score = (None, added(s, t), allowed(2, heads, s, t), alibi(heads, s, t), SOFT_CAP, None)[number]
        op = attention(
            2,
            heads,
            kv_heads,
            s,
            t,
            int(rng.integers(16, 130)),
            int(rng.integers(1, 130)),
            dtype=(DType.F32, DType.F32, DType.BF16, DType.F32, DType.F16, DType.F64)[number],
            causal=bool(rng.integers(2)),
            window=(None, int(rng.integers(1, 50)))[int(rng.integers(2))],
            **({} if score is None else {"score": score}),
        )
        space = variant.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"random{number}", "attention.flash", op, **dict(schedule)))
    unit = unit_of(tuple(cases), HOST)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, HOST), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.parametrize("isa", run_isas())
def test_a_row_without_a_key_is_zero(isa: str, rng: np.random.Generator) -> None:
    unit = unit_of(attention_cases(), isa)
    for name in ("attention_no_keys", "attention_far_window", "decode_no_keys"):
        got = run(unit, build(CASES[name], isa), CASES[name].op, random_inputs(CASES[name].op, rng))
        assert (got[:, :, 50 if "far" in name else 0 :] == 0).all()
    inputs = random_inputs(CASES["attention_allowed"].op, rng)
    inputs[3][5] = False
    inputs[3][7] = np.arange(45) == 44
    got = run(unit, build(CASES["attention_allowed"], isa), CASES["attention_allowed"].op, inputs)
    assert (got[:, :, 5] == 0).all()
    np.testing.assert_allclose(got[:, :2, 7], np.repeat(inputs[2][:, :1, 44], 2, axis=1), rtol=1e-6)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("size", [1e4, 1e9, 1e30])
def test_extreme_scores_choose_the_largest(isa: str, size: float, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_cases(), isa), "attention_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[3] = np.where(rng.random(inputs[3].shape) < 0.5, -size, size).astype(np.float32)
    inputs[3][3], inputs[3][4] = NEVER, -size
    check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@pytest.mark.parametrize("isa", run_isas())
def test_weights_next_to_the_smallest_normal_may_be_flushed(isa: str, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_cases(), isa), "attention_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[0][...], inputs[2][...] = 0.0, 1e30
    inputs[3][...] = rng.uniform(-87.5, -86.8, inputs[3].shape)
    inputs[2][:, :, 0], inputs[3][:, 0] = 0.0, 0.0
    check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@pytest.mark.parametrize("isa", run_isas())
def test_nan_and_infinity_stay_in_their_rows(isa: str, rng: np.random.Generator) -> None:
    unit, name = unit_of(attention_cases(), isa), "attention_added"
    inputs = random_inputs(CASES[name].op, rng)
    inputs[0][0, 1, 2, 3], inputs[3][9, 44], inputs[3][11, 0] = np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        check(unit, build(CASES[name], isa), CASES[name].op, inputs, threads=2)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("size", [19, 33])
def test_infinite_elements_of_keys_stay_in_their_scores(size: int, isa: str, rng: np.random.Generator) -> None:
    unit, kernel = unit_of(attention_cases(), isa), build(CASES["decode_one_part"], isa)
    for queries in (1, 2, 3, 5, 8):
        op = replace(attention(1, 2, 2, queries, 70, size, 40), scale=0.25)
        inputs = random_inputs(op, rng)
        inputs[0] = np.abs(inputs[0]) + np.float32(0.1)
        inputs[1][0, 0, (3, 67), (0, size - 1)] = inputs[1][0, 1, (5, 69), (size // 2, size - 2)] = -np.inf
        check(unit, kernel, op, inputs, threads=2)


def test_the_order_of_tasks_and_the_team_change_no_bit(rng: np.random.Generator) -> None:
    unit = unit_of(attention_cases(), HOST)
    for name in ("attention_causal", "attention_default", "decode_parts"):
        inputs = random_inputs(CASES[name].op, rng)
        first = run(unit, build(CASES[name], HOST), CASES[name].op, inputs)
        for threads in (1, 2, 3, 5):
            again = run(unit, build(CASES[name], HOST), CASES[name].op, inputs, threads=threads)
            assert first.tobytes() == again.tobytes()


def changed(kernel: TileKernel, kind: type[Node], change: Callable[[Node], Node | None]) -> TileKernel:
    """Return the kernel with each node of a kind replaced, or left out."""
    found: list[Node] = []

    def rebuilt(node: Node) -> tuple[Node, ...]:
        if isinstance(node, kind):
            found.append(node)
            other = change(node)
            return () if other is None else (other,)
        if isinstance(node, For | Parallel):
            return (replace(node, body=Block(nodes=tuple(new for each in node.body.nodes for new in rebuilt(each)))),)
        return (node,)

    body = Block(nodes=tuple(new for each in kernel.body.nodes for new in rebuilt(each)))
    assert found
    return replace(kernel, body=body)


def later(region, axis: int, by: int):
    offset = list(region.offset)
    offset[axis] = maximum(0, offset[axis] + by)
    return replace(region, offset=tuple(offset))


MISTAKES = {
    "a key too few": (For, lambda node: replace(node, extent=maximum(0, node.extent - 1))),
    "every key twice": (For, lambda node: For(var=Var("again"), extent=Const(2), body=Block(nodes=(node,)))),
    "values of other keys": (AttentionStep, lambda node: replace(node, values=later(node.values, -2, -1))),
    "keys of another head": (AttentionStep, lambda node: replace(node, keys=later(node.keys, 1, -1))),
    "another position of the keys": (AttentionStep, lambda node: replace(node, first_key=node.first_key + 1)),
    "another position of the queries": (AttentionStep, lambda node: replace(node, first_query=node.first_query + 1)),
    "no mask": (AttentionStep, lambda node: replace(node, causal=False)),
    "a wider window": (AttentionStep, lambda node: replace(node, window=41)),
    "another scale": (AttentionStep, lambda node: replace(node, scale=0.5)),
    "another score": (AttentionStep, lambda node: replace(node, score=Input(0) * 2.0)),
    "fewer rows": (AttentionStep, lambda node: replace(node, rows=node.rows - 1)),
    "no start": (AttentionStart, lambda node: None),
    "no finish": (AttentionFinish, lambda node: None),
    "no queries": (Pack, lambda node: None),
    "other queries": (Pack, lambda node: replace(node, source=later(node.source, -2, -1))),
    "a result elsewhere": (AttentionFinish, lambda node: replace(node, target=later(node.target, -2, -1))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    kernel = build(CASES["attention_causal_window"], "avx512").kernel
    assert prove(kernel).about("attention")
    kind, change = MISTAKES[mistake]
    with pytest.raises(ProofFailed):
        prove(changed(kernel, kind, change))


PARTS = {
    "a part too long": (AttentionCombine, lambda node: replace(node, part=node.part + 1)),
    "no sum of parts": (AttentionCombine, lambda node: None),
    "parts of another head": (AttentionCombine, lambda node: replace(node, state=moved_state(node.state, 0))),
    "a state of another part": (AttentionStep, lambda node: replace(node, state=moved_state(node.state, 3))),
    "totals of one query for all": (AttentionCombine, lambda node: replace(node, state=of_one_query(node.state))),
    "no barrier": (Barrier, lambda node: None),
    "a key too few": (For, lambda node: replace(node, extent=maximum(0, node.extent - 1))),
    "keys of the next part": (For, lambda node: replace(node, extent=node.extent + 1)),
    "values of other keys": (AttentionStep, lambda node: replace(node, values=later(node.values, -2, -1))),
}


def moved_state(state: AttentionState, axis: int) -> AttentionState:
    peaks, totals, sums = (later(region, axis, -1) for region in state.regions)
    return AttentionState(peaks=peaks, totals=totals, sums=sums)


def of_one_query(state: AttentionState) -> AttentionState:
    extent = (*state.totals.extent[:-2], Const(1), *state.totals.extent[-1:])
    return replace(state, totals=replace(state.totals, extent=extent))


@pytest.mark.parametrize("mistake", PARTS)
def test_a_mistake_with_parts_is_refused(mistake: str) -> None:
    kernel = build(CASES["decode_parts"], "avx512").kernel
    assert prove(kernel).about("attention")
    kind, change = PARTS[mistake]
    with pytest.raises(ProofFailed):
        prove(changed(kernel, kind, change))


@pytest.mark.parametrize("name", ["attention_alibi", "decode_alibi"])
def test_operands_of_a_score_in_another_order_are_refused(name: str) -> None:
    kernel = build(CASES[name], "avx512").kernel
    assert prove(kernel).about("attention")

    def reversed_operands(node: Node) -> Node:
        assert isinstance(node, AttentionStep)
        return replace(node, operands=node.operands[::-1])

    with pytest.raises(ProofFailed, match="operands"):
        prove(changed(kernel, AttentionStep, reversed_operands))


@pytest.mark.parametrize("name", ["attention_copied", "attention_causal_window", "decode_parts"])
def test_values_where_the_op_has_its_keys_are_refused(name: str) -> None:
    """Arguments are bound in the order of the buffers, and keys and values may well have one shape."""
    kernel = build(CASES[name], "avx512").kernel
    assert prove(kernel).about("attention")
    q, k, v, *others = kernel.buffers
    assert (k.name, v.name) == ("k", "v")
    with pytest.raises(ProofFailed, match="queries, keys and values"):
        prove(replace(kernel, buffers=(q, v, k, *others)))


@pytest.mark.parametrize("isa", run_isas()[:2])
def test_decoding_built_once_serves_other_extents(isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(attention_cases(), isa), build(CASES["decode_parts"], isa)
    for _ in range(8):
        batch, kv_heads, sharing, s = (int(value) for value in rng.integers(1, (3, 4, 4, 17)))
        t, d, dv = int(rng.integers(0, 1600)), int(rng.integers(1, 90)), int(rng.integers(1, 90))
        other = attention(batch, kv_heads * sharing, kv_heads, s, t, d, dv, scale=1 / math.sqrt(24))
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


def test_a_copy_of_other_rows_is_refused() -> None:
    kernel = build(CASES["attention_copied"], "avx512").kernel

    def moved(node: Node) -> Node:
        assert isinstance(node, PointwiseTile)
        return replace(node, inputs=(later(node.inputs[0], -2, -1),))

    assert prove(kernel).about("attention")
    with pytest.raises(ProofFailed):
        prove(changed(kernel, PointwiseTile, moved))


def test_a_window_that_begins_late_is_refused() -> None:
    kernel = build(CASES["attention_window"], "avx512").kernel
    narrower = build(Case.of("narrow", "attention.flash", attention(s=130, t=100, window=4), bk=16), "avx512").kernel
    with pytest.raises(ProofFailed, match="window"):
        prove(replace(narrower, op=kernel.op))


def test_a_kernel_refuses_an_op_that_it_was_not_built_for() -> None:
    kernel = build(CASES["attention_causal"], "avx512").kernel
    for other in ({"causal": False}, {"window": 3}, {"scale": 0.5}):
        with pytest.raises(InvalidOp, match="attention"):
            arguments(kernel, attention(s=130, t=131, **{"causal": True, **other}))
    with pytest.raises(InvalidShape):
        arguments(kernel, attention(s=130, t=131, dv=17, causal=True))


def test_rows_that_do_not_lie_side_by_side_have_to_be_copied() -> None:
    variant, target = find("attention.flash"), load("avx512")
    assert variant.build is not None
    assert variant.default_schedule is not None
    op = attention(dtype=DType.BF16)
    schedule = variant.default_schedule(op, target)
    with pytest.raises(InvalidSchedule, match="copy_keys"):
        variant.build(op, schedule.with_values(copy_keys=0), target)
    with pytest.raises(InvalidSchedule, match="registers"):
        variant.build(op, schedule.with_values(mr=20, nv=3), target)


@pytest.mark.parametrize(
    ("queries", "causal", "size", "vectors"),
    [
        (16, False, 64, 1),  # three vectors would cost three times as much
        (32, False, 64, 2),
        (48, False, 64, 3),
        (64, False, 64, 2),
        (1024, False, 64, 2),
        (64, True, 64, 1),  # a panel takes the keys before its last query
        (1024, False, 512, 4),
    ],
)
def test_queries_fill_the_vectors_of_a_tile(queries: int, causal: bool, size: int, vectors: int) -> None:
    x = TensorType((1, 8, queries, size), DType.F32)
    op = AttentionOp(q=x, k=x, v=x, causal=causal)
    variant = candidates(op, load("avx512"))[0]
    assert variant.id == "attention.flash"
    assert variant.default_schedule is not None
    assert variant.default_schedule(op, load("avx512")).integer("nv") == vectors


def test_few_queries_are_decoded() -> None:
    keys = TensorType((1, 8, 512, 64), DType.F32)
    for queries, variant in ((11, "attention.decode"), (12, "attention.flash")):
        op = AttentionOp(q=TensorType((1, 8, queries, 64), DType.F32), k=keys, v=keys)
        assert candidates(op, load("avx512"))[0].id == variant
