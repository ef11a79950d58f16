"""tracea.ops.block_sparse_matmul: either factor may have the mask; any mask, kind and layout; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tracea
from tracea.errors import InvalidDType, InvalidOp, InvalidShape

EXTENTS = (70, 90, 110)


def masked(factor: str, block: int, density: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    m, n, k = EXTENTS
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    shape = (k, n) if factor == "b" else (m, k)
    mask = rng.random(tuple(-(-size // block) for size in shape)) < density
    whole = np.kron(mask, np.ones((block, block), dtype=bool))[: shape[0], : shape[1]]
    chosen = b if factor == "b" else a
    exact = np.where(whole, chosen, 0.0)
    wanted = a @ exact if factor == "b" else exact @ b
    chosen[~whole] = np.nan  # what is not listed is not read
    return a, b, mask, wanted


@pytest.mark.costly
@pytest.mark.parametrize("factor", ["a", "b"])
@pytest.mark.parametrize("block", [7, 64])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_either_factor_may_have_the_mask(factor: str, block: int, density: float, rng: np.random.Generator) -> None:
    a, b, mask, wanted = masked(factor, block, density, rng)
    said = factor if mask.shape[0] == mask.shape[1] else None  # else the shape says whose mask it is
    got = tracea.ops.block_sparse_matmul(a, b, mask, block_size=block, factor=said)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    single = [torch.from_numpy(x).float() for x in (a, b)]
    out = torch.empty(wanted.shape)
    same = tracea.ops.block_sparse_matmul(*single, torch.from_numpy(mask), block_size=block, factor=factor, out=out)
    assert same is out
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-3)
    if density == 0.0:
        assert not out.any()


def test_masks_share_a_program_and_none_sees_anothers_blocks(rng: np.random.Generator) -> None:
    for _ in range(4):
        a, b, mask, wanted = masked("b", 16, 0.5, rng)
        got = tracea.ops.block_sparse_matmul(a, b, mask, block_size=16)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_where_both_fit_the_mask_is_the_second_factors(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 64, 64))
    mask = np.array([[True, False], [True, True]])
    whole = np.kron(mask, np.ones((32, 32)))
    np.testing.assert_allclose(tracea.ops.block_sparse_matmul(a, b, mask, block_size=32), a @ (whole * b), atol=1e-12)
    first = tracea.ops.block_sparse_matmul(a, b, mask, block_size=32, factor="a")
    np.testing.assert_allclose(first, (whole * a) @ b, atol=1e-12)


def test_out_may_be_of_other_floats(rng: np.random.Generator) -> None:
    a, b, mask = (
        rng.standard_normal((64, 96), np.float32),
        rng.standard_normal((96, 64), np.float32),
        np.ones((3, 2), bool),
    )
    out = np.full((64, 64), np.nan, np.float16)
    assert tracea.ops.block_sparse_matmul(a, b, mask, block_size=32, out=out) is out
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-2)
    with pytest.raises(InvalidDType):
        tracea.ops.block_sparse_matmul(a, b, mask, block_size=32, out=np.zeros((64, 64), np.int32))


def test_nothing_in_nothing_out() -> None:
    for m, n in ((0, 5), (5, 0), (0, 0)):
        a, b = np.ones((m, 4)), np.ones((4, n))
        mask = np.ones((1, -(-n // 32)), bool)
        assert tracea.ops.block_sparse_matmul(a, b, mask, block_size=32, factor="b").shape == (m, n)


def test_what_does_not_fit_is_refused() -> None:
    a, b, mask = np.ones((64, 96), np.float32), np.ones((96, 32), np.float32), np.ones((3, 1), bool)
    multiply = tracea.ops.block_sparse_matmul
    with pytest.raises(InvalidShape, match="block_mask"):
        multiply(a, b, mask.T, block_size=32)
    with pytest.raises(InvalidShape, match="block_mask"):
        multiply(a, b, mask, block_size=32, factor="a")
    with pytest.raises(InvalidOp, match="factor"):
        multiply(a, b, mask, block_size=32, factor="c")
    for block in (0, 1.5, True, 2**20 + 1, 2**31 - 1):
        with pytest.raises(InvalidOp, match="block_size"):
            multiply(a, b, mask, block_size=block)
    with pytest.raises(InvalidShape):
        multiply(a, a, mask, block_size=32)
    with pytest.raises(InvalidShape):
        multiply(a[:, :0], b, mask, block_size=32)
    with pytest.raises(InvalidDType):
        multiply(a, b.astype(np.float64), mask, block_size=32)
    with pytest.raises(InvalidDType):
        multiply(a, [[1.0]], mask, block_size=32)
    for other in (np.float32, np.int64, np.uint8):
        for given in (mask.astype(other), torch.from_numpy(mask.astype(other))):
            with pytest.raises(InvalidDType, match="booleans"):
                multiply(a, b, given, block_size=32)


@pytest.mark.parametrize(("factor", "mask"), [("b", (0, 2)), ("a", (3, 0))])
def test_a_product_over_nothing_is_zero(factor: str, mask: tuple[int, int]) -> None:
    a, b, out = np.ones((70, 0), np.float32), np.ones((0, 40), np.float32), np.full((40, 70), 9, np.float32).T
    for into in (None, out):
        found = tracea.ops.block_sparse_matmul(a, b, np.ones(mask, bool), block_size=32, factor=factor, out=into)
        assert found.shape == (70, 40)
        assert not found.any()
