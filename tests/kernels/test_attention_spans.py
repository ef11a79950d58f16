"""Attention over listed pairs: one kernel runs every tiling, what it hides is not read, and mistakes are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.attention_cases import TILINGS, attention, attention_cases, listed, listed_inputs, tiling
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.native import run_isas
from tests.kernels.test_attention import changed, later

from tracea.core.attention_meaning import hidden_from
from tracea.core.op import PairSpans
from tracea.errors import InvalidOp, InvalidSchedule, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.attention.spans import Band, span_tables
from tracea.semantic.index import Const, Lookup, maximum
from tracea.semantic.nodes import For, Let
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.nodes_spans import SpanTables, spans_fault
from tracea.semantic.proofs import prove
from tracea.semantic.tile_builders import TileGrid, block_sparse_tiles, dense_tiles
from tracea.semantic.tile_order import TileOrder

CASES = {case.name: case for case in attention_cases()}
CODES = {"attention_spans": 48, "attention_spans_by_head": 24, "attention_spans_scored": 70}


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("kind", TILINGS)
def test_one_kernel_runs_every_tiling(kind: str, isa: str, rng: np.random.Generator) -> None:
    tables, _, band = tiling(kind)
    name = "attention_spans_by_head" if len(tables) > 1 else "attention_spans"
    op, given = listed(tables, CODES[name], band)
    for threads in (1, 3):
        check(
            unit_of(attention_cases(), isa), build(CASES[name], isa), op, listed_inputs(op, given, rng), threads=threads
        )


def test_spans_say_what_tilings_say() -> None:
    queries, keys = np.arange(130)[:, None], np.arange(100)[None, :]
    wanted = {
        "dense": np.ones((130, 100), bool),
        "causal": keys <= queries,
        "windowed": np.abs(keys - queries) < 9,
        "local_global": ((np.abs(keys - queries) < 7) | (keys < 20) | (queries < 20)) & (keys <= queries),
        "blocks": np.kron(np.random.default_rng(5).random((9, 7)) < 0.4, np.ones((16, 16), bool))[:130, :100],
    }
    for kind, expected in wanted.items():
        tables, order, band = tiling(kind)
        for rows_of_list in (order, 1, 37, 200):
            op, given = listed(tables, rows_of_list, band)
            seen = ~hidden_from(op, listed_inputs(op, given, np.random.default_rng(0)))
            assert (seen == expected).all(), (kind, rows_of_list)
    op, given = listed(*tiling("ragged"))
    group = np.repeat(np.arange(5), [40, 0, 1, 64, 25])[:, None] == np.repeat(np.arange(5), [10, 5, 0, 64, 21])[None, :]
    assert (~hidden_from(op, listed_inputs(op, given, np.random.default_rng(0))) == group).all()


def test_an_order_of_launches_changes_no_table() -> None:
    grid = TileGrid(rows=130, columns=100, depth=16, tile_rows=48, tile_columns=32)
    row = span_tables([dense_tiles(grid)], rows=48, band=Band(causal=True))
    other = span_tables([dense_tiles(grid, order=TileOrder.HILBERT)], rows=48, band=Band(causal=True))
    assert all((a == b).all() for a, b in zip(row[1:], other[1:], strict=True))


@pytest.mark.parametrize("isa", run_isas())
def test_queries_of_no_span_give_zeros_and_hidden_values_are_not_read(isa: str, rng: np.random.Generator) -> None:
    grid = TileGrid(rows=130, columns=100, depth=16, tile_rows=26, tile_columns=50)
    mask = np.array([[True, False], [False, False], [True, False], [True, False], [True, False]])
    op, given = listed([block_sparse_tiles(grid, mask)], 48, Band())
    inputs = listed_inputs(op, given, rng)
    inputs[1][:, :, 50:], inputs[2][:, :, 50:] = np.nan, np.inf
    got = run(unit_of(attention_cases(), isa), build(CASES["attention_spans"], isa), op, inputs)
    assert np.isfinite(got).all()
    assert (got[:, :, 26:52] == 0).all()
    assert (got[:, :, :26] != 0).all()


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", CODES)
def test_a_kernel_with_spans_serves_other_extents_and_masks(name: str, isa: str, rng: np.random.Generator) -> None:
    built, spans = build(CASES[name], isa), CASES[name].op.spans
    for _ in range(4):
        kv_heads, sharing = (int(value) for value in rng.integers(1, 4, 2))
        s, t = (int(value) for value in rng.integers(1, 150, 2))
        more = {"score": CASES[name].op.score, "dv": CASES[name].op.v.static_shape[3]}
        op = attention(1, kv_heads * sharing, kv_heads, s, t, 16, spans=replace(spans, room=4096), **more)
        check(unit_of(attention_cases(), isa), built, op, random_inputs(op, rng), threads=2)


def other_number(node: Let) -> Let:
    return replace(node, value=node.value + 1) if node.var.name == "span_number" else node


def other_begin(node: Let) -> Let:
    return replace(node, value=maximum(0, node.value - 1)) if node.var.name == "key_begin" else node


def other_list(node: Let) -> Let:
    return replace(node, value=Lookup("span_first", Const(0))) if node.var.name == "span_begin" else node


MISTAKES = {
    "the next span": (Let, other_number),
    "another first key": (Let, other_begin),
    "the first list": (Let, other_list),
    "a span too few": (For, lambda node: replace(node, extent=node.extent - 1) if node.var.name == "span" else node),
    "no span": (AttentionStep, lambda node: replace(node, span=None)),
    "a band of another span": (
        AttentionStep,
        lambda node: replace(node, span=replace(node.span, number=node.span.number + 1)),
    ),
    "blocks of other rows": (
        AttentionStep,
        lambda node: replace(node, span=replace(node.span, tables=replace(node.span.tables, rows=24))),
    ),
    "other tables": (
        AttentionStep,
        lambda node: replace(node, span=replace(node.span, tables=replace(node.span.tables, first="span_fields"))),
    ),
    "other keys": (AttentionStep, lambda node: replace(node, keys=later(node.keys, -2, -1))),
}


def test_a_mistake_with_spans_is_refused() -> None:
    kernel = build(CASES["attention_spans"], "avx512").kernel
    assert prove(kernel).about("attention")
    for name, (kind, change) in MISTAKES.items():
        wrong = replace(kernel, body=changed_inside(kernel, kind, change).body)
        assert wrong.body != kernel.body, name
        with pytest.raises(ProofFailed):
            prove(wrong)


def changed_inside(kernel, kind, change):
    """As ``changed``, but loops that a change leaves alone are looked into."""

    def apply(node):
        made = change(node)
        if made is not node or not isinstance(node, For):
            return made
        return (
            replace(node, body=changed(replace(kernel, body=node.body), kind, change).body)
            if any(isinstance(inner, kind) for inner in node.body.walk())
            else node
        )

    return changed(kernel, kind, apply)


def test_tables_that_are_no_spans_are_named() -> None:
    tables = SpanTables(rows=8, queries=Const(20), keys=Const(9), lists=Const(3), room=Const(4))

    def fault(first: list[int], *spans: list[int]) -> str:
        fields = np.zeros((4, 6), np.int32)
        fields[: len(spans)] = np.reshape(spans, (-1, 6))
        return spans_fault(tables, {"span_first": np.array(first), "span_fields": fields.reshape(-1)})

    assert fault([0, 1, 1, 2], [0, 8, 0, 9, 4, 4], [16, 20, 3, 9, 0, 0]) == ""
    assert "ascend" in fault([0, 1, 0, 2], [0, 8, 0, 9, 4, 4], [16, 20, 3, 9, 0, 0])
    assert "ascend" in fault([0, 1, 1, 5])
    assert "span 0" in fault([0, 1, 1, 1], [0, 9, 0, 9, 4, 4])
    assert "span 0" in fault([0, 0, 0, 1], [16, 21, 0, 9, 4, 4])
    assert "span 0" in fault([0, 1, 1, 1], [0, 8, 0, 10, 4, 4])
    assert "in common" in fault([0, 2, 2, 2], [0, 8, 0, 9, 4, 4], [7, 8, 8, 9, 4, 4])
    assert fault([0, 2, 2, 2], [0, 8, 0, 9, 100, 0], [0, 8, 0, 9, -1, 100]) == ""
    assert "in common" in fault([0, 2, 2, 2], [0, 8, 0, 9, 100, 0], [0, 8, 0, 9, 0, 100])


def test_two_spans_with_a_pair_in_common_are_found_wherever_they_are(rng: np.random.Generator) -> None:
    found = 0
    for _ in range(200):
        count = int(rng.integers(1, 7))
        begin, key_begin = rng.integers(0, 16, count), rng.integers(0, 9, count)
        spans = np.stack(
            [begin, rng.integers(begin, begin // 8 * 8 + 9), key_begin, rng.integers(key_begin, 10)]
            + [rng.integers(-3, 6, count) for _ in range(2)],
            axis=1,
        )
        spans = spans[np.argsort(begin // 8, kind="stable")]
        pairs = [
            {(i, j) for i in range(b, e) for j in range(low, high) if i - behind <= j <= i + ahead}
            for b, e, low, high, behind, ahead in spans.tolist()
        ]
        tables = SpanTables(rows=8, queries=Const(16), keys=Const(9), lists=Const(2), room=Const(count))
        first = np.array([0, int((begin < 8).sum()), count])
        said = spans_fault(tables, {"span_first": first, "span_fields": spans.astype(np.int32).reshape(-1)})
        common = any(pairs[i] & pairs[j] for i in range(count) for j in range(i))
        assert bool(said) is common, (spans, said)
        found += common
    assert 0 < found < 200


def test_what_spans_do_not_go_with_is_refused() -> None:
    with pytest.raises(InvalidOp, match="spans"):
        attention(spans=PairSpans(rows=8, room=8), causal=True)
    with pytest.raises(InvalidOp, match="rows"):
        PairSpans(rows=0, room=8)
    kernel = build(CASES["attention_spans"], "avx512").kernel
    with pytest.raises(InvalidOp, match="attention"):
        arguments(kernel, attention(s=130, t=100, spans=PairSpans(rows=24, room=64)))
    tables, rows, band = tiling("blocks_by_head")
    with pytest.raises(InvalidSchedule, match="one for all heads"):
        span_tables(tables, rows=rows, band=band)
