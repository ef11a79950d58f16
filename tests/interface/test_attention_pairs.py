"""Attention over blocks, sequences of any length side by side, and global tokens, as users call it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.drawn import drawn

import tracea
from tracea.core.expr import Input, tanh
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.interface.attention_pairs import _local_global
from tracea.kernels.attention.spans import Band

pytestmark = pytest.mark.usefixtures("one_thread")

SDPA = torch.nn.functional.scaled_dot_product_attention


def normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def expected(q, k, v, seen) -> torch.Tensor:
    """Return the weighted means in f64, zeros where no key is seen."""
    return SDPA(q.double(), k.double(), v.double(), seen, enable_gqa=True).nan_to_num(0.0)


def close(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lead", drawn(2, [(), (4,), (1, 4), (2, 1), (2, 4)], of="masks of blocks"))
@pytest.mark.parametrize("block", [16, (40, 24), (200, 7)])
def test_a_mask_of_blocks_is_a_mask(lead, block, rng):
    q, k, v = normal(rng, 2, 4, 150, 16), normal(rng, 2, 2, 110, 16), normal(rng, 2, 2, 110, 24)
    rows, columns = block if isinstance(block, tuple) else (block, block)
    mask = torch.from_numpy(rng.random((*lead, -(-150 // rows), -(-110 // columns))) < 0.5)
    causal = bool(rng.integers(2))
    seen = mask.repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., :150, :110]
    seen = torch.broadcast_to(seen, (2, 4, 150, 110)) & (torch.ones(150, 110).tril().bool() | (not causal))
    got = tracea.ops.attention(q, k, v, block_mask=mask, block_size=block, causal=causal)
    close(got, expected(q, k, v, seen))


def test_sequences_side_by_side_see_their_own_keys(rng):
    lengths, key_lengths = [30, 0, 100, 1, 69], [12, 5, 100, 0, 83]
    q, k, v = (normal(rng, 1, heads, 200, 16) for heads in (4, 2, 2))
    for given in ({}, {"causal": True}, {"causal": True, "window": 7}, {"window": 7}):
        got = tracea.ops.attention(q, k, v, lengths=torch.tensor(lengths), key_lengths=key_lengths, **given)
        query = key = 0
        for s, t in zip(lengths, key_lengths, strict=True):
            parts = q[:, :, query : query + s], k[:, :, key : key + t], v[:, :, key : key + t]
            i, j = torch.arange(s)[:, None], torch.arange(t)
            seen = (j <= i) | (not given.get("causal"))
            seen &= (i - j).abs() < given.get("window", 1000)
            close(
                got[:, :, query : query + s], expected(*parts, seen) if s and t else torch.zeros(1, 4, s, 16).double()
            )
            query, key = query + s, key + t


@pytest.mark.costly
def test_masks_and_scores_of_all_tokens_hold_beside_lengths(rng):
    q, k, v = (normal(rng, 1, 2, 90, 16) for _ in range(3))
    mask = torch.from_numpy(rng.random((90, 90)) < 0.7) | torch.eye(90, dtype=torch.bool)
    scale = normal(rng, 90, 90)
    got = tracea.ops.attention(q, k, v, lengths=[40, 50], mask=mask, score=Input(0) * Input(1), operands=(scale,))
    for part in (slice(0, 40), slice(40, 90)):
        own = q[:, :, part], k[:, :, part], v[:, :, part]
        given = {"mask": mask[part, part], "score": Input(0) * Input(1), "operands": (scale[part, part],)}
        alone = tracea.ops.attention(*own, **given)
        torch.testing.assert_close(got[:, :, part], alone, rtol=1e-4, atol=1e-5)


def test_a_block_mask_hides_from_global_tokens_too(rng):
    q, k, v = (normal(rng, 1, 2, 128, 16) for _ in range(3))
    mask = torch.tensor([[True, False], [False, True]])
    i, j = torch.arange(128)[:, None], torch.arange(128)
    seen = ((i - j).abs() < 9) | (i < 3) | (j < 3)
    got = tracea.ops.attention(q, k, v, block_mask=mask, block_size=64, window=9, global_tokens=3)
    close(got, expected(q, k, v, seen & (i // 64 == j // 64)))


@pytest.mark.costly
def test_packed_tokens_of_numpy(rng):
    q, k, v = (rng.standard_normal((90, 2, 8)).astype(np.float32).transpose(1, 0, 2)[None] for _ in range(3))
    got = tracea.ops.attention(q, k, v, lengths=[40, 50], causal=True)
    assert isinstance(got, np.ndarray)
    for part in (slice(0, 40), slice(40, 90)):
        alone = tracea.ops.attention(q[:, :, part], k[:, :, part], v[:, :, part], causal=True)
        np.testing.assert_allclose(got[:, :, part], alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_global_tokens_see_and_are_seen_by_all(causal, rng):
    q, k, v = (normal(rng, 1, 2, 230, 16) for _ in range(3))
    i = torch.arange(230)
    for tokens in (1, 30, 229, 500):
        near = ((i[:, None] - i).abs() < 9) | (i[:, None] < tokens) | (i < tokens)
        got = tracea.ops.attention(q, k, v, window=9, global_tokens=tokens, causal=causal)
        close(got, expected(q, k, v, near & ((i <= i[:, None]) | (not causal))))


def test_blocks_go_with_masks_and_scores(rng):
    q, k, v = (normal(rng, 2, 2, 64, 16) for _ in range(3))
    mask, bias = torch.from_numpy(rng.random((4, 4)) < 0.6), normal(rng, 64, 64)
    score = tanh(Input(0) / 5.0) * 5.0
    got = tracea.ops.attention(q, k, v, block_mask=mask, block_size=16, mask=bias, score=score)
    scores = torch.tanh((q.double() @ k.double().mT) / 4.0 / 5.0) * 5.0 + bias
    seen = mask.repeat_interleave(16, 0).repeat_interleave(16, 1)
    weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1).nan_to_num(0.0)
    close(got, weights @ v.double())


def test_another_mask_compiles_nothing(rng):
    q, k, v = (normal(rng, 1, 2, 100, 8) for _ in range(3))
    out = torch.empty_like(q)
    for density in (0.0, 0.3, 1.0):
        mask = torch.from_numpy(rng.random((4, 4)) < density)
        assert tracea.ops.attention(q, k, v, block_mask=mask, block_size=32, out=out) is out
        seen = mask.repeat_interleave(32, 0).repeat_interleave(32, 1)[:100, :100]
        close(out, expected(q, k, v, seen))


def test_nothing_of_a_block_that_is_not_seen_is_read(rng):
    q, k, v = (normal(rng, 1, 2, 64, 8) for _ in range(3))
    mask = torch.zeros(2, 2, dtype=torch.bool)
    mask[:, 0] = True
    k[:, :, 32:], v[:, :, 32:] = torch.nan, torch.inf
    got = tracea.ops.attention(q, k, v, block_mask=mask, block_size=32)
    close(got, expected(q, k[:, :, :32], v[:, :, :32], None))


def test_a_window_beyond_all_keys_hides_none_from_sequences_of_more_queries(rng):
    q, k, v = normal(rng, 1, 2, 8, 16), normal(rng, 1, 2, 5, 16), normal(rng, 1, 2, 5, 16)
    got = tracea.ops.attention(q, k, v, lengths=[5, 3], key_lengths=[2, 3], window=2**31 - 1)
    close(got, tracea.ops.attention(q, k, v, lengths=[5, 3], key_lengths=[2, 3]).double())


def test_global_tokens_take_tables_as_long_as_the_sequence():
    tokens = 2**20
    spans, first, fields = _local_global(tokens, tokens, Band(window=256, global_tokens=16))
    assert len(first) - 1 == -(-tokens // spans.rows)
    assert len(fields) < 100 * len(first)


def test_masks_of_many_small_blocks_are_checked_at_once(rng):
    q, k, v = (normal(rng, 1, 1, 1024, 16) for _ in range(3))
    mask = torch.from_numpy(rng.random((1024, 1024)) < 0.5)
    close(tracea.ops.attention(q, k, v, block_mask=mask, block_size=1), expected(q, k, v, mask))


def test_empty_problems_are_empty():
    empty = torch.zeros(1, 2, 0, 4)
    assert tracea.ops.attention(empty, empty, empty, lengths=[]).shape == (1, 2, 0, 4)
    assert tracea.ops.attention(empty, empty, empty, lengths=[0, 0]).shape == (1, 2, 0, 4)
    assert tracea.ops.attention(empty, empty, empty, block_mask=torch.zeros(0, 0, dtype=torch.bool)).numel() == 0
    q = torch.ones(1, 2, 3, 4)
    assert (tracea.ops.attention(q, empty, empty, lengths=[3], key_lengths=[0]) == 0).all()
    headless = torch.zeros(2, 0, 5, 4)
    assert tracea.ops.attention(headless, headless, headless, causal=True).shape == (2, 0, 5, 4)
    assert tracea.ops.attention(headless, headless, headless, window=2, global_tokens=1).shape == (2, 0, 5, 4)
    for batch, heads in ((0, 2), (2, 0)):
        nobody, mask = torch.zeros(batch, heads, 64, 8), torch.zeros(batch, heads, 1, 1, dtype=torch.bool)
        assert tracea.ops.attention(nobody, nobody, nobody, block_mask=mask).shape == nobody.shape


def test_what_does_not_fit_is_refused(rng):
    q, k, v = (normal(rng, 1, 2, 64, 8) for _ in range(3))
    mask = torch.ones(2, 2, dtype=torch.bool)
    for error, given in (
        (InvalidShape, {"block_mask": mask}),
        (InvalidShape, {"block_mask": mask[None].expand(3, 2, 2), "block_size": 32}),
        (InvalidShape, {"block_mask": mask[0], "block_size": 32}),
        (InvalidDType, {"block_mask": mask.int(), "block_size": 32}),
        (InvalidDType, {"block_mask": "all", "block_size": 32}),
        (InvalidOp, {"block_mask": mask, "block_size": 0}),
        (InvalidOp, {"block_mask": mask, "block_size": (32, 32, 32)}),
        (InvalidOp, {"block_mask": mask, "block_size": 32.0}),
        (InvalidShape, {"lengths": [63]}),
        (InvalidShape, {"lengths": [65, -1]}),
        (InvalidShape, {"lengths": [64], "key_lengths": [32, 32]}),
        (InvalidOp, {"lengths": 64}),
        (InvalidOp, {"lengths": [64.0]}),
        (InvalidOp, {"key_lengths": [64]}),
        (InvalidOp, {"lengths": [64], "block_mask": mask, "block_size": 32}),
        (InvalidOp, {"lengths": [64], "window": 3, "global_tokens": 2}),
        (InvalidOp, {"global_tokens": 2}),
        (InvalidOp, {"window": 3, "global_tokens": -1}),
        (InvalidOp, {"window": 3, "global_tokens": 1.5}),
        (InvalidDType, {"mask": torch.ones(64, 64, dtype=torch.int64)}),
        (InvalidDType, {"score": Input(0) + Input(1), "operands": (torch.arange(64),)}),
    ):
        with pytest.raises(error, match="Remedy: "):
            tracea.ops.attention(q, k, v, **given)
    with pytest.raises(InvalidShape, match="Remedy: "):
        tracea.ops.attention(q.expand(2, 2, 64, 8), k.expand(2, 2, 64, 8), v.expand(2, 2, 64, 8), lengths=[64])
