"""tracea.ops.grouped_gemm: any routing, kind and layout; what no group has; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.core.op import BlockSparseOp, GroupedGemmOp, Op
from tracea.errors import (
    InvalidDevice,
    InvalidDType,
    InvalidGraph,
    InvalidInput,
    InvalidOp,
    InvalidShape,
    OverlappingOutput,
    TraceaError,
)

ROWS, DEPTH, COLUMNS = 70, 50, 90

OFFSETS = {
    "even": [20, 40, 60, 70],
    "one has all": [0, 0, 70, 70],
    "none has any": [0, 0, 0, 0],
    "rows of none behind the last": [3, 3, 40, 61],
}


def by_groups(x: np.ndarray, weights: np.ndarray, offsets: list[int], bias: np.ndarray) -> np.ndarray:
    wanted = np.zeros((x.shape[0], weights.shape[2]))
    for group, (begin, end) in enumerate(zip([0, *offsets[:-1]], offsets, strict=True)):
        wanted[begin:end] = np.maximum(x[begin:end] @ weights[group] + bias[group], 0.0)
    return wanted


@pytest.mark.costly
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS)
def test_each_group_of_rows_takes_its_own_matrix(offsets: list[int], rng: np.random.Generator) -> None:
    x, weights = rng.standard_normal((ROWS, DEPTH)), rng.standard_normal((4, DEPTH, COLUMNS))
    bias = rng.standard_normal((4, COLUMNS))
    wanted = by_groups(x, weights, offsets, bias)
    got = tracea.ops.grouped_gemm(x, weights, np.array(offsets), bias=bias, activation="relu")
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    single = [torch.from_numpy(values).float() for values in (x, weights, bias)]
    turned = single[1].transpose(1, 2).contiguous().transpose(1, 2)  # as linear layers hold them
    for matrices in (single[1], turned):
        out = torch.full((ROWS, COLUMNS), torch.nan)
        ends = torch.tensor(offsets, dtype=torch.int32)
        same = tracea.ops.grouped_gemm(single[0], matrices, ends, bias=single[2], activation="relu", out=out)
        assert same is out
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-4)
    half = [values.bfloat16() for values in single]
    low = tracea.ops.grouped_gemm(half[0], half[1], torch.tensor(offsets), bias=half[2], activation="relu")
    assert low.dtype is torch.bfloat16
    np.testing.assert_allclose(low.float().numpy(), wanted, rtol=0.02, atol=0.3)


@pytest.mark.parametrize("kind", [list, tuple])
def test_offsets_may_be_a_list_as_lengths_may(kind: type) -> None:
    x, weights = torch.randn(40, 8), torch.randn(3, 8, 5)
    got = tracea.ops.grouped_gemm(x, weights, kind([10, 20, 40]))
    assert torch.equal(got, tracea.ops.grouped_gemm(x, weights, torch.tensor([10, 20, 40])))


def test_it_is_what_torch_computes_up_to_the_last_offset() -> None:
    x, weights = torch.randn(ROWS, 48), torch.randn(4, 48, 64)
    ends = torch.tensor([9, 9, 50, 66], dtype=torch.int32)
    wanted = torch._grouped_mm(x, weights, offs=ends)
    got = tracea.ops.grouped_gemm(x, weights, ends)
    torch.testing.assert_close(got[:66], wanted[:66], rtol=1e-4, atol=1e-4)
    assert not got[66:].any()


def test_routings_share_a_program_and_none_sees_anothers_rows(rng: np.random.Generator) -> None:
    x, weights = rng.standard_normal((600, 8)), rng.standard_normal((7, 8, 5))
    for _ in range(20):
        offsets = np.sort(rng.integers(0, 601, 7)).tolist()
        got = tracea.ops.grouped_gemm(x, weights, np.array(offsets))
        counts = np.diff([0, *offsets, 600])
        chosen = np.concatenate([weights, np.zeros((1, 8, 5))])[np.repeat(np.arange(8), counts)]
        np.testing.assert_allclose(got, np.einsum("rk,rkn->rn", x, chosen), rtol=1e-12, atol=1e-12)


def test_nothing_in_nothing_out() -> None:
    grouped = tracea.ops.grouped_gemm
    for rows, groups, columns in ((0, 3, 5), (6, 3, 0), (6, 0, 5), (0, 0, 0)):
        ends = np.full(groups, rows)
        found = grouped(np.ones((rows, 4)), np.ones((groups, 4, columns)), ends)
        assert found.shape == (rows, columns)
        assert not groups or (found == 4).all()
        assert groups or not found.any()


def test_a_sum_over_nothing_is_the_bias() -> None:
    bias = np.array([[-1.0, 2.0], [3.0, 4.0]], np.float32)
    x, weights, ends = np.ones((5, 0), np.float32), np.ones((2, 0, 2), np.float32), np.array([1, 4])
    found = tracea.ops.grouped_gemm(x, weights, ends, bias=bias, activation="relu")
    assert found.tolist() == [[0, 2], [3, 4], [3, 4], [3, 4], [0, 0]]
    out = torch.full((5, 2), 7.0)
    assert tracea.ops.grouped_gemm(torch.ones(5, 0), torch.ones(2, 0, 2), torch.tensor([1, 4]), out=out) is out
    assert not out.any()


X, W, ENDS = torch.randn(6, 4), torch.randn(3, 4, 5), torch.tensor([2, 4, 6])

REFUSED: dict[str, tuple[type[TraceaError], str, Callable[[], Any]]] = {
    "descending": (InvalidInput, r"offsets\[1\]", lambda: tracea.ops.grouped_gemm(X, W, torch.tensor([3, 2, 6]))),
    "negative": (InvalidInput, r"offsets\[0\]", lambda: tracea.ops.grouped_gemm(X, W, torch.tensor([-1, 2, 6]))),
    "beyond": (InvalidInput, r"offsets\[2\]: got 7", lambda: tracea.ops.grouped_gemm(X, W, torch.tensor([2, 4, 7]))),
    "far beyond": (
        InvalidInput,
        r"offsets\[1\]",
        lambda: tracea.ops.grouped_gemm(X, W, torch.tensor([2, 2**62, 2**62])),
    ),
    "offsets of floats": (InvalidDType, "offsets", lambda: tracea.ops.grouped_gemm(X, W, ENDS.float())),
    "offsets of int16": (InvalidDType, "offsets", lambda: tracea.ops.grouped_gemm(X, W, ENDS.short())),
    "a list of fractions": (InvalidDType, "offsets", lambda: tracea.ops.grouped_gemm(X, W, [2, 4.5, 6])),
    "a list of too few": (InvalidShape, "offsets", lambda: tracea.ops.grouped_gemm(X, W, [2, 6])),
    "a list beyond int64": (InvalidInput, "offsets", lambda: tracea.ops.grouped_gemm(X, W, [2, 4, 2**70])),
    "too few": (InvalidShape, "offsets", lambda: tracea.ops.grouped_gemm(X, W, ENDS[:2])),
    "a table": (InvalidShape, "offsets", lambda: tracea.ops.grouped_gemm(X, W, ENDS[None])),
    "meta offsets": (InvalidDevice, "offsets", lambda: tracea.ops.grouped_gemm(X, W, ENDS.to("meta"))),
    "meta rows": (InvalidDevice, "x", lambda: tracea.ops.grouped_gemm(X.to("meta"), W, ENDS)),
    "rows of another depth": (InvalidShape, "grouped_gemm", lambda: tracea.ops.grouped_gemm(X[:, :3], W, ENDS)),
    "one matrix": (InvalidShape, "grouped_gemm", lambda: tracea.ops.grouped_gemm(X, W[0], ENDS)),
    "more rows than tables are made for": (
        InvalidShape,
        "16777216 rows",
        lambda: tracea.ops.grouped_gemm(X[:1].expand(2**36, 4), W, ENDS),
    ),
    "more rows than there is memory for": (
        InvalidDevice,
        "x",
        lambda: tracea.ops.grouped_gemm(torch.empty(2**40, 4, device="meta"), W, ENDS),
    ),
    "a nested tensor": (
        InvalidInput,
        "x",
        lambda: tracea.ops.grouped_gemm(torch.nested.nested_tensor([X, X[1:]], layout=torch.jagged), W, ENDS),
    ),
    "no array": (InvalidDType, "weights", lambda: tracea.ops.grouped_gemm(X, 3, ENDS)),
    "another type": (InvalidDType, "grouped_gemm", lambda: tracea.ops.grouped_gemm(X, W.bfloat16(), ENDS)),
    "integers": (InvalidDType, "x", lambda: tracea.ops.grouped_gemm(X.int(), W.int(), ENDS)),
    "a bias for all": (InvalidShape, "bias", lambda: tracea.ops.grouped_gemm(X, W, ENDS, bias=torch.ones(5))),
    "activation": (InvalidOp, "activation", lambda: tracea.ops.grouped_gemm(X, W, ENDS, activation="none such")),
    "out of another shape": (
        InvalidShape,
        "out",
        lambda: tracea.ops.grouped_gemm(X, W, ENDS, out=torch.empty(6, 4)),
    ),
    "out over an operand": (
        OverlappingOutput,
        "out",
        lambda: tracea.ops.grouped_gemm(SQUARE, W[:, :, :4], ENDS, out=SQUARE),
    ),
    "a gradient": (
        InvalidInput,
        "weights",
        lambda: tracea.ops.grouped_gemm(X, W.clone().requires_grad_(), ENDS),
    ),
}
SQUARE = torch.randn(6, 4)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    kind, match, call = REFUSED[name]
    with pytest.raises(kind, match=match):
        call()


GROUPED = GroupedGemmOp.of(m=9, n=5, k=4, groups=2)
SPARSE = BlockSparseOp.of(m=32, n=32, k=32, block=32)


@pytest.mark.parametrize("op", [GROUPED, SPARSE], ids=["grouped", "block_sparse"])
def test_no_graph_takes_tables_that_nothing_checked(op: Op) -> None:
    graph = tracea.Graph()
    graph.set_outputs(graph.add(op, [graph.add_input(type_) for type_ in op.operands]))
    with pytest.raises(InvalidGraph, match="tables as operands"):
        tracea.Context().optimize_graph(graph)
