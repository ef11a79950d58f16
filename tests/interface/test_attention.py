"""Attention as users call it, against float64 and torch: layouts, masks, scores, element types, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.interface.accuracy import assert_meaning, strided, type_of

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input, select, tanh
from tracea.core.op import AttentionOp, Epilogue
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

SDPA = torch.nn.functional.scaled_dot_product_attention
NEVER = float("-inf")


def normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


@pytest.mark.costly
def test_random_layouts_of_torch_and_numpy(rng):
    for number in range(4):
        kind, dtype = ("torch", "numpy")[number % 2], (DType.F32, DType.F64, DType.F32, DType.F16)[rng.integers(4)]
        kv_heads, sharing, s, t, d, dv = (int(value) for value in rng.integers(1, (4, 4, 60, 60, 40, 40)))
        layouts = ("rows", "columns", "gaps", "broadcast")
        shapes = ((2, kv_heads * sharing, s, d), (2, kv_heads, t, d), (2, kv_heads, t, dv))
        q, k, v = (strided(rng, kind, dtype, shape, layouts[rng.integers(4)]) for shape in shapes)
        given = {"causal": bool(rng.integers(2)), "window": (None, int(rng.integers(1, 20)))[rng.integers(2)]}
        with torch.inference_mode():
            result = tracea.ops.attention(q, k, v, **given)
        assert type(result) is type(q)
        op = AttentionOp(q=type_of(q), k=type_of(k), v=type_of(v), **given, out=type_of(result))
        assert_meaning(result, op, q, k, v)


@pytest.mark.costly
def test_masks_are_torchs(rng):
    q, k, v = normal(rng, 2, 4, 30, 16), normal(rng, 2, 2, 50, 16), normal(rng, 2, 2, 50, 24)
    masks = (
        torch.from_numpy(rng.random((30, 50)) < 0.7),
        torch.from_numpy(rng.random((2, 1, 1, 50)) < 0.7),
        normal(rng, 2, 4, 30, 50),
        normal(rng, 4, 1, 50),
    )
    for mask in masks:
        expected = SDPA(q.double(), k.double(), v.double(), _wide(mask), enable_gqa=True)
        got = tracea.ops.attention(q, k, v, mask=mask)
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-6)


def _wide(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dtype is torch.bool else mask.double()


def test_a_score_with_operands_and_a_mask(rng):
    q, k, v = normal(rng, 1, 4, 20, 16), normal(rng, 1, 2, 33, 16), normal(rng, 1, 2, 33, 16)
    slopes, mask = normal(rng, 4, 1, 1), torch.from_numpy(rng.random((20, 33)) < 0.8)
    places = torch.arange(20.0)[:, None], torch.arange(33.0)
    score = tanh(Input(0) / 5.0) * 5.0 + Input(1) * (Input(3) - Input(2))
    got = tracea.ops.attention(q, k, v, score=score, operands=(slopes, *places), mask=mask, scale=0.5)
    shifted = score.substitute({0: Input(0), 1: Input(2), 2: Input(3), 3: Input(4)})
    arrays = (mask, slopes, *places)
    epilogue = Epilogue(select(Input(1), shifted, NEVER), tuple(map(type_of, arrays)))
    op = AttentionOp(q=type_of(q), k=type_of(k), v=type_of(v), scale=0.5, score=epilogue, out=type_of(got))
    assert_meaning(got, op, q, k, v, *arrays)


def test_the_result_lies_as_the_queries_do(rng):
    q, k, v = (normal(rng, 2, 40, 4, 16).transpose(1, 2) for _ in range(3))
    got = tracea.ops.attention(q, k, v, causal=True)
    assert got.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(got, SDPA(q, k, v, is_causal=True), rtol=1e-4, atol=1e-5)
    out = torch.full((2, 4, 16, 40), 7.0).mT
    assert tracea.ops.attention(q, k, v, causal=True, out=out) is out
    torch.testing.assert_close(out, got)


@pytest.mark.costly
def test_a_query_without_a_key_gives_zeros(rng):
    q, k, v = (normal(rng, 1, 2, 5, 8) for _ in range(3))
    assert (tracea.ops.attention(q, k[:, :, :0], v[:, :, :0]) == 0).all()
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[3] = False
    got = tracea.ops.attention(q, k, v, mask=mask)
    assert (got[:, :, 3] == 0).all()
    torch.testing.assert_close(got, SDPA(q, k, v, mask).nan_to_num(0.0), rtol=1e-4, atol=1e-5)
    assert tracea.ops.attention(q[:, :, :0], k, v).shape == (1, 2, 0, 8)


@pytest.mark.parametrize("lists", [{}, {"window": 3, "global_tokens": 2}, {"lengths": [2, 3]}])
@pytest.mark.parametrize("queries", [1, 5])
def test_double_precision_is_throughout_or_not_at_all(rng, queries, lists):
    q, k = normal(rng, 1, 4, 5, 8)[:, :, :queries], normal(rng, 1, 4, 5, 8)
    given = {"lengths": [queries], "key_lengths": [5]} if "lengths" in lists and queries == 1 else lists
    for dtype, into in ((torch.float32, torch.float64), (torch.float64, torch.float32), (torch.float16, torch.float64)):
        operands = (q.to(dtype), k.to(dtype), k.to(dtype))
        with pytest.raises(InvalidDType, match="f64 throughout, or not at all"):
            tracea.ops.attention(*operands, **given, out=torch.empty(q.shape, dtype=into))
    with pytest.raises(InvalidDType, match=r"f64 \| f32"):
        tracea.ops.attention(q, k, k, **given, out=torch.empty(q.shape, dtype=torch.int32))


@pytest.mark.parametrize(
    ("shapes", "remedy"),
    [
        (((1, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)), "q and k as many batches (axis 0): they have 1 and 2"),
        (((1, 4, 5, 8), (1, 4, 6, 9), (1, 4, 6, 8)), "q and k as many elements a head (axis 3): they have 8 and 9"),
        (((1, 4, 5, 8), (1, 4, 6, 8), (1, 4, 7, 8)), "k and v as many keys (axis 2): they have 6 and 7"),
        (((1, 4, 5, 8), (1, 3, 6, 8), (1, 3, 6, 8)), "3 does not divide 4"),
    ],
)
def test_the_axis_that_does_not_fit_is_named(shapes, remedy):
    with pytest.raises(InvalidShape) as caught:
        tracea.ops.attention(*(torch.zeros(shape) for shape in shapes))
    assert remedy in caught.value.remedy


def test_what_is_refused(rng):
    q, k, v = (normal(rng, 1, 4, 5, 8) for _ in range(3))
    attend = tracea.ops.attention
    for error, call in (
        (InvalidShape, lambda: attend(q[0], k, v)),
        (InvalidShape, lambda: attend(q, k[:, :3], v[:, :3])),
        (InvalidShape, lambda: attend(q, k, v, mask=torch.zeros(5, 6))),
        (InvalidShape, lambda: attend(q, k, v, out=torch.empty(1, 4, 5, 9))),
        (InvalidDType, lambda: attend(q, k.double(), v)),
        (InvalidDType, lambda: attend(q.int(), k.int(), v.int())),
        (InvalidDType, lambda: attend(q, k, v, mask=np.zeros((5, 5), np.float32))),
        (InvalidOp, lambda: attend(q, k, v, window=0)),
        (InvalidOp, lambda: attend(q, k, v, scale=float("nan"))),
        (InvalidOp, lambda: attend(q, k, v, score=Input(0) + Input(1))),
        (InvalidOp, lambda: attend(q, k, v, score="soft")),
        (InvalidOp, lambda: attend(q, k, v, operands=(q,) * 5)),
        (InvalidOp, lambda: attend(q, k, v, operands=(q,))),
        (OverlappingOutput, lambda: attend(q, k, v, out=q)),
        (InvalidInput, lambda: attend(q.requires_grad_(), k, v)),
    ):
        with pytest.raises(error, match="Remedy: "):
            call()


@pytest.mark.parametrize("queries", [1, 4, 14, 32])  # few on rows, several, on vectors, on matrix tiles
def test_many_keys_of_one_weight_do_not_drift(queries):
    keys = 65_536
    q, k = torch.ones(1, 1, queries, 4), torch.full((1, 1, keys, 4), -1.1512925)
    k[0, 0, 0] = 0.0  # all others have a tenth of this key's weight
    v = torch.ones(1, 1, keys, 3)
    v[0, 0, 0] = keys
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    # Weights that are added up one after the other are all rounded the same way: 2.5e-4 to 1.4e-3 here.
    torch.testing.assert_close(tracea.ops.attention(q, k, v).double(), want, rtol=1e-4, atol=0)
