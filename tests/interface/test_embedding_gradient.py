"""The gradient of a table of embeddings: gradcheck in float64, torch elsewhere, any threads, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.interface.test_gradients import doubles, joined

import tracea
from tracea.errors import InvalidDType, InvalidIndex, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")


def exact(grad: torch.Tensor, indices: torch.Tensor, rows: int, padding: int = -1) -> torch.Tensor:
    """Return torch's gradient in float64."""
    return torch.ops.aten.embedding_dense_backward(grad.double(), indices.long(), rows, padding, False)


@pytest.mark.parametrize("shape", [(2, 5), ()])
def test_gradcheck(rng, shape):
    indices = torch.from_numpy(np.asarray(rng.integers(0, 4, shape)))
    call = joined(
        lambda table: tracea.ops.embedding(indices, table),
        lambda g, y, table: tracea.ops.embedding_backward(g, indices, table.shape[0]),
    )
    assert torch.autograd.gradcheck(call, (doubles(rng, 4, 3),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_rows_are_those_of_torch(rng, dtype):
    grad = torch.from_numpy(rng.standard_normal((6, 20, 33))).to(dtype)
    indices = torch.from_numpy(rng.integers(0, 9, (6, 20)).astype(np.int32))
    close = {torch.float64: 1e-13, torch.float32: 1e-5}.get(dtype, 5e-2)
    for padding in (None, -8):
        expected = exact(grad, indices, 11, -1 if padding is None else padding % 11)
        found = tracea.ops.embedding_backward(grad, indices, 11, padding_idx=padding)
        assert found.dtype is dtype
        assert torch.allclose(found.double(), expected, rtol=close, atol=close)
        assert not found[9:].any()


@pytest.mark.costly
def test_strides_of_all_operands(rng):
    grad = torch.from_numpy(rng.standard_normal((6, 20, 33))).float()
    indices = torch.from_numpy(rng.integers(0, 9, (6, 20)))
    turned, line = grad[0].T.contiguous().T, indices[0]
    out = torch.full((33, 11), torch.nan).T
    for each, places in ((turned, line), (grad[:, 0], indices[:, 0]), (grad[:1, 0].expand(6, 33), indices[:, 0])):
        assert tracea.ops.embedding_backward(each, places, 11, out=out) is out
        assert torch.allclose(out.double(), exact(each, places, 11), rtol=1e-5, atol=1e-5)
    strided = torch.full((11, 40), torch.nan)[:, :33]
    tracea.ops.embedding_backward(grad.transpose(0, 1), indices.T, 11, out=strided)
    assert torch.allclose(strided.double(), exact(grad, indices, 11), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 7, 16, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_that_nothing_names_are_zero_between_few_that_are_named(rng, columns, dtype):
    """The zeros of a large table are written in stretches; those of one with gaps between its rows are not."""
    rows = 1000
    for named in ((0, 999, 5, 5, 37, 38, 500), (999,), (0,), (3, 36), (500, 1, 500)):
        grad = torch.from_numpy(rng.standard_normal((len(named), columns))).to(dtype)
        expected = exact(grad, torch.tensor(named), rows).to(dtype)
        whole, gaps = torch.full((rows, columns), torch.nan).to(dtype), torch.full((rows, columns + 3), 3.0).to(dtype)
        for out in (whole, gaps[:, :columns]):
            tracea.ops.embedding_backward(grad, torch.tensor(named), rows, out=out)
            assert torch.equal(out, expected)
        assert (gaps[:, columns:] == 3.0).all()


def test_numpy_arrays_give_one():
    found = tracea.ops.embedding_backward(np.ones((3, 2), np.float32), np.asarray([1, 1, 0]), 3)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_sums_lose_next_to_nothing(dtype):
    count = 30_000
    grad = torch.full((count, 5), 0.1).to(dtype)
    found = tracea.ops.embedding_backward(grad, torch.zeros(count, dtype=torch.int64), 2)
    expected = grad[0].double() * count
    eps = torch.finfo(dtype).eps  # one rounding of the result, and few of float32
    assert float(((found[0].double() - expected) / expected).abs().max()) <= max(eps / 2, 1e-6)
    assert not found[1].any()


@pytest.mark.parametrize("kind", ["drawn", "one", "sorted"])
def test_threads_and_runs_change_no_bit(rng, kind):
    grad = torch.from_numpy(rng.standard_normal((500, 200))).float()
    drawn = rng.integers(0, 40, 500)
    indices = torch.from_numpy({"drawn": drawn, "one": np.full(500, 7), "sorted": np.sort(drawn)}[kind])
    found = set()
    for threads in (1, 2, 2, 3):
        torch.set_num_threads(threads)
        found.add(tracea.ops.embedding_backward(grad, indices, 50).numpy().tobytes())
    assert len(found) == 1


def test_nothing_is_zeros():
    none = torch.zeros(0, dtype=torch.int64)
    out = torch.full((4, 3), torch.nan)
    assert tracea.ops.embedding_backward(torch.zeros(0, 3), none, 4, out=out) is out
    assert out.tolist() == [[0.0] * 3] * 4
    assert tracea.ops.embedding_backward(torch.zeros(0, 3), none, 0).shape == (0, 3)
    assert tracea.ops.embedding_backward(torch.zeros(2, 0), none[:0].new_zeros(2), 4).shape == (4, 0)
    assert tracea.ops.embedding_backward(torch.zeros(2, 0, 3), none.reshape(2, 0), 4).tolist() == [[0.0] * 3] * 4


G, PLACES = torch.zeros(3, 4), torch.arange(3)
REFUSED = {
    "an index before the first": (InvalidIndex, lambda: tracea.ops.embedding_backward(G, PLACES - 1, 3)),
    "an index behind the last": (InvalidIndex, lambda: tracea.ops.embedding_backward(G, PLACES, 2)),
    "an index of no row": (InvalidIndex, lambda: tracea.ops.embedding_backward(G, PLACES, 0)),
    "indices of floats": (InvalidDType, lambda: tracea.ops.embedding_backward(G, G[:, 0], 3)),
    "gradients of integers": (InvalidDType, lambda: tracea.ops.embedding_backward(G.long(), PLACES, 3)),
    "another number of rows": (InvalidShape, lambda: tracea.ops.embedding_backward(G[:2], PLACES, 3)),
    "a gradient without columns": (InvalidShape, lambda: tracea.ops.embedding_backward(G[:, 0], PLACES, 3)),
    "half a row": (InvalidOp, lambda: tracea.ops.embedding_backward(G, PLACES, 3.5)),
    "fewer rows than none": (InvalidOp, lambda: tracea.ops.embedding_backward(G, PLACES, -3)),
    "a padding of no row": (InvalidOp, lambda: tracea.ops.embedding_backward(G, PLACES, 3, padding_idx=3)),
    "a padding of true": (InvalidOp, lambda: tracea.ops.embedding_backward(G, PLACES, 3, padding_idx=True)),
    "an out of another type": (InvalidDType, lambda: tracea.ops.embedding_backward(G, PLACES, 3, out=G.double())),
    "an out of another shape": (
        InvalidShape,
        lambda: tracea.ops.embedding_backward(G, PLACES, 3, out=torch.zeros(4, 4)),
    ),
    "an out that is an input": (OverlappingOutput, lambda: tracea.ops.embedding_backward(G, PLACES, 3, out=G)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
