"""Cumulative sums, embeddings, the k largest and rotary embeddings against float64 and torch, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import assert_meaning, poisoned, strided, type_of, values

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import CumulativeSumOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import InvalidDType, InvalidIndex, InvalidOp, InvalidShape, OverlappingOutput
from tracea.kernels.pointwise.chain import chain_plan
from tracea.kernels.registry import candidates

pytestmark = pytest.mark.usefixtures("one_thread")


def test_cumulative_sums_along_random_axes(rng):
    for _ in range(6):
        shape = tuple(int(size) for size in rng.integers(1, 40, int(rng.integers(1, 4))))
        kind, dtype = ("torch", "numpy")[rng.integers(2)], (DType.F32, DType.F64, DType.BF16)[rng.integers(3)]
        x = strided(rng, kind, dtype, shape, ("rows", "columns", "gaps", "broadcast")[rng.integers(4)])
        dim = int(rng.integers(len(shape)))
        out = poisoned(kind, dtype, shape, "columns") if rng.integers(2) else None
        result = tracea.ops.cumsum(x, dim, out=out)
        assert type(result) is type(x)
        assert_meaning(result, CumulativeSumOp(x=type_of(x), axis=dim), x)


@pytest.mark.parametrize("dim", [0, 1])
def test_long_cumulative_sums_lose_nothing_and_infinity_stays(rng, dim):
    x = torch.from_numpy(rng.standard_normal((20, 20000))).float() + 1
    x = x if dim == 1 else x.T.contiguous()
    expected = x.double().cumsum(dim)
    assert float(((tracea.ops.cumsum(x, dim) - expected) / expected.abs().clamp(min=1)).abs().max()) < 1e-6
    x[3, 4], x[5, 5] = math.inf, math.nan
    assert torch.allclose(tracea.ops.cumsum(x, dim), x.cumsum(dim), equal_nan=True, rtol=1e-4, atol=1e-3)
    assert tuple(tracea.ops.cumsum(x[:0], dim).shape) == tuple(x[:0].shape)


@pytest.mark.parametrize("columns", [2, 3, 15, 70, 333])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_what_is_not_finite_reaches_all_later_sums_and_no_earlier_one(rng, dtype, columns):
    x = torch.from_numpy(rng.integers(-8, 9, (2 * columns, columns))).to(dtype)  # sums that every type holds
    row = torch.arange(columns)
    x[row, row], x[columns + row, row] = math.inf, math.nan
    assert torch.equal(tracea.ops.cumsum(x, 1).nan_to_num(nan=1e4), x.cumsum(1).nan_to_num(nan=1e4))
    x[row, row.flip(0)] = -math.inf
    assert torch.equal(tracea.ops.cumsum(x, 1).nan_to_num(nan=1e4), x.cumsum(1).nan_to_num(nan=1e4))
    backward = tracea.ops.cumsum_backward(x, 1)
    assert torch.equal(backward.nan_to_num(nan=1e4), x.flip(1).cumsum(1).flip(1).nan_to_num(nan=1e4))
    zeros = torch.full((2, columns), -0.0, dtype=dtype)
    assert torch.equal(torch.signbit(tracea.ops.cumsum(zeros, 1)), torch.signbit(zeros.cumsum(1)))


def test_the_error_of_a_long_row_is_that_of_its_last_vectors(rng):
    x = torch.from_numpy(rng.random(1_000_003)).float()
    expected = x.double().cumsum(0)
    assert float(((tracea.ops.cumsum(x, 0) - expected) / expected).abs().max()) < 3e-7


@pytest.mark.costly
@pytest.mark.parametrize("dtype", drawn(1, [torch.float32, torch.bfloat16, torch.int32], of="tables"), ids=str)
def test_embedding_copies_rows_bit_by_bit(rng, dtype):
    table = torch.from_numpy(rng.integers(-1000, 1000, (50, 13))).to(dtype)
    for shape in ((7,), (2, 3, 4), (), (0, 3)):
        places = torch.from_numpy(np.asarray(rng.integers(0, 50, shape)))
        for source in (table, table[:, ::2], table.T.contiguous().T):
            expected = torch.nn.functional.embedding(places, source)
            assert torch.equal(tracea.ops.embedding(places, source), expected)
    out = torch.zeros(3, 2, 13, dtype=dtype)
    places = torch.from_numpy(rng.integers(0, 50, (2, 3)).astype(np.int32)).T
    assert tracea.ops.embedding(places, table, out=out) is out
    assert torch.equal(out, table[places.long()])


def test_embedding_copies_large_integers_into_a_result_with_gaps():
    table = np.array([[2**53 + 1, 7], [-(2**63), 2**63 - 1]])
    out = np.zeros((1, 2, 4), np.int64)[..., ::2]
    tracea.ops.embedding(np.array([[1, 0]]), table, out=out)
    assert np.array_equal(out, table[[[1, 0]]])


def test_an_index_beyond_the_table_is_said_with_the_number_of_rows():
    table = torch.zeros(5, 2)
    for wrong in (5, -1, 2**40):
        with pytest.raises(InvalidIndex, match=rf"indices: got {wrong}, expected 0 to 4, of 5 rows"):
            tracea.ops.embedding(torch.tensor([[0, wrong]]), table)
    with pytest.raises(IndexError):
        tracea.ops.embedding(torch.tensor([0]), table[:0])


@pytest.mark.costly
@pytest.mark.parametrize("largest", drawn(1, [True, False], of="the k largest"))
def test_the_k_largest_are_those_of_torch(rng, largest):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.from_numpy(rng.permutation(6 * 200).reshape(6, 200).astype(np.float64)).to(dtype)
        x[0, 3], x[1, 4], x[2, 5] = math.nan, math.inf, -math.inf
        for k, dim in ((1, -1), (128, 1), (3, 0)):
            values, places = tracea.ops.topk(x, k, dim, largest=largest)
            expected = torch.topk(x, k, dim, largest)
            assert torch.allclose(values.double(), expected.values.double(), equal_nan=True)
            assert torch.allclose(x.gather(dim, places).double(), values.double(), equal_nan=True)
    equal = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    assert tracea.ops.topk(equal, 3)[1].tolist() == [[1, 2, 4]]
    assert tracea.ops.topk(equal, 2, largest=False)[1].tolist() == [[0, 3]]


SORTED = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
]


def elements(rng: np.random.Generator, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return elements over the whole type, floats with equal ones, zeros of both signs and what is no number."""
    if not dtype.is_floating_point:
        ends = torch.iinfo(dtype)
        return torch.from_numpy(np.asarray(rng.integers(ends.min, ends.max, shape, endpoint=True))).to(dtype)
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape))).to(dtype)
    for value in (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0):
        x[torch.from_numpy(np.asarray(rng.random(shape) < 0.08))] = value
    return x


@pytest.mark.costly
@pytest.mark.parametrize("dtype", drawn(2, SORTED, of="sorting"), ids=str)
def test_rows_of_any_length_are_sorted_as_torch_sorts_them_stably(rng, dtype):
    for shape, dim in (((), 0), ((5, 0), 1), ((0, 5), -1), ((40,), 0), ((3, 5, 130), 1), ((2, 700), 1), ((1100, 3), 0)):
        x = elements(rng, dtype, *shape)
        for view in (x, x[..., ::2], x.mT) if len(shape) > 1 else (x,):
            for descending in (False, True):
                values, places = tracea.ops.sort(view, dim, descending=descending)
                expected = torch.sort(view, dim=dim, descending=descending, stable=True)
                assert torch.equal(places, expected.indices)
                assert torch.equal(tracea.ops.argsort(view, dim, descending=descending, stable=True), places)
                assert values.dtype is dtype
                assert torch.allclose(values, expected.values, 0, 0, equal_nan=True)
    array = elements(rng, dtype, 4, 9)
    if dtype is not torch.bfloat16:
        found = tracea.ops.sort(array.numpy(), 0)
        assert all(type(each) is np.ndarray for each in found)
        assert np.array_equal(found[1], array.sort(dim=0, stable=True).indices.numpy())


@pytest.mark.parametrize("largest", [True, False])
def test_more_than_a_few_of_a_row_are_the_first_that_sorting_gives(rng, largest):
    for dtype, columns, k in ((torch.float32, 3000, 129), (torch.bfloat16, 200, 150), (torch.int64, 40, 7)):
        x = elements(rng, dtype, 3, columns)
        values, places = tracea.ops.topk(x, k, largest=largest)
        expected = x.sort(descending=largest, stable=True)
        assert torch.equal(places, expected.indices[:, :k])
        assert torch.allclose(values, expected.values[:, :k], 0, 0, equal_nan=True)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool) -> torch.Tensor:
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    made = first * cos - second * sin, second * cos + first * sin
    return torch.stack(made, -1).flatten(-2) if interleaved else torch.cat(made, -1)


@pytest.mark.costly
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("columns", "k"), [(2, 2), (12, 3), (40, 22), (129, 70)])
def test_the_k_first_of_rows_side_by_side_take_nan_and_equals_in_order(rng, columns, k, largest):
    for dtype, dim in ((torch.float32, 1), (torch.float64, 0), (torch.bfloat16, 1), (torch.float16, 0)):
        x = torch.from_numpy(rng.integers(-3, 4, (37, columns))).to(dtype)
        for value in (math.nan, math.inf, -math.inf, -0.0):
            x[torch.from_numpy(rng.random(x.shape) < 0.1)] = value
        x = x if dim == 1 else x.T.contiguous()
        values, places = tracea.ops.topk(x, k, dim, largest=largest)
        # Torch sorts NaN as the largest, and stably.
        expected = x.sort(dim=dim, descending=largest, stable=True).indices.narrow(dim, 0, k)
        assert torch.equal(places, expected)
        assert torch.equal(values.nan_to_num(nan=7), x.gather(dim, expected).nan_to_num(nan=7))


def test_elements_by_place_lie_as_their_tensor_does(rng):
    """Along any axis of any order of axes, with gaps or repeated elements."""
    x = torch.from_numpy(rng.standard_normal((5, 6, 7, 8)))
    for view in (x, x.permute(2, 0, 3, 1), x[:, ::2], x[:, :, :1].expand(5, 6, 7, 8)):
        for dim in range(4):
            values, places = tracea.ops.topk(view, 2, dim)
            assert values.is_contiguous()
            assert torch.equal(values, view.gather(dim, places))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", drawn(1, [torch.float32, torch.bfloat16], of="rope"))
def test_rope_turns_pairs(rng, interleaved, dtype):
    angles = torch.from_numpy(rng.standard_normal((5, 1, 4)))
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    x = torch.from_numpy(rng.standard_normal((2, 5, 3, 8))).to(dtype)
    expected = turned(x.double(), cos.double(), sin.double(), interleaved=interleaved)
    close = 1e-6 if dtype is torch.float32 else 3e-2
    assert float((tracea.ops.rope(x, cos, sin, interleaved=interleaved) - expected).abs().max()) < close
    out = torch.full((2, 5, 8, 3), math.nan, dtype=dtype).mT
    heads_first = (cos.squeeze(1), sin.squeeze(1), x.transpose(1, 2))
    found = tracea.ops.rope(heads_first[2], *heads_first[:2], interleaved=interleaved)
    assert float((found.transpose(1, 2) - expected).abs().max()) < close
    assert tracea.ops.rope(x, cos, sin, interleaved=interleaved, out=out) is out
    assert float((out - expected).abs().max()) < close


@pytest.mark.costly
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_one_pair_a_row_and_by_wider_tables(rng, interleaved):
    for shape, tables in (((8, 2), torch.float32), ((3, 4, 2), torch.float32), ((5, 6), torch.float64)):
        x = torch.from_numpy(rng.standard_normal(shape)).float()
        angles = torch.from_numpy(rng.standard_normal((*shape[:-1], shape[-1] // 2)))
        expected = turned(x.double(), angles.cos(), angles.sin(), interleaved=interleaved)
        found = tracea.ops.rope(x, angles.cos().to(tables), angles.sin().to(tables), interleaved=interleaved)
        assert found.dtype is torch.float32
        assert float((found - expected).abs().max()) < 1e-6


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_copies_of_any_permutation(rng, kind):
    for dtype in (DType.F32, DType.BF16):
        x = strided(rng, kind, dtype, (3, 20, 9, 17), "rows")
        for order in ((0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 3, 2)):
            view = x.permute(*order) if kind == "torch" else x.transpose(order)
            found = tracea.ops.copy(view)
            assert np.array_equal(values(found).astype(np.float64), values(view).astype(np.float64))
            out = poisoned(kind, dtype, found.shape, "columns")
            assert tracea.ops.copy(view, out=out) is out
            assert np.array_equal(values(out).astype(np.float64), values(view).astype(np.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_copies_into_rows_of_few_elements(rng, dtype):
    for shape in ((2, 103), (3, 5, 103), (2, 70, 4, 33), (7, 3, 65), (3, 0, 9)):
        x = torch.from_numpy(rng.standard_normal((2 * shape[0], *shape[1:]))).to(dtype)
        for whole in (x[: shape[0]], x[::2]):
            view = whole.permute(*reversed(range(whole.dim())))
            found = tracea.ops.copy(view)
            assert found.is_contiguous()
            assert torch.equal(found, view)
            assert torch.equal(tracea.ops.fuse(["relu"])(view), view.relu())
            out = torch.full(view.shape, math.nan, dtype=dtype)
            assert torch.equal(tracea.ops.fuse(["relu", "add"])(view, view[:1], out=out), view.relu() + view[:1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_copies_of_16_bits_keep_every_bit(dtype):
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(256, 256)  # each NaN too
    for view in (bits, bits[:, 3:80], bits[::3], bits.t(), bits[:, 3:80].t(), bits[:7].t(), bits[:, :3].t()):
        assert torch.equal(tracea.ops.copy(view.view(dtype)).view(torch.int16), view)


@pytest.mark.parametrize(
    "dtype", drawn(2, [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool], of="copies")
)
def test_copies_of_integers_keep_every_bit(rng, dtype):
    bits = torch.from_numpy(rng.integers(-(1 << 63), 1 << 63, (12, 70)))
    x = bits > 0 if dtype is torch.bool else bits.to(dtype)
    for view in (x, x.t(), x[::2, 3:40], x[:, ::3], x.view(3, 4, 70).permute(2, 0, 1), x[:1].expand(5, 70)):
        assert torch.equal(tracea.ops.copy(view), view)
        out = torch.zeros(view.shape[::-1], dtype=dtype).permute(*reversed(range(view.dim())))
        assert tracea.ops.copy(view, out=out) is out
        assert torch.equal(out, view)
    assert np.array_equal(tracea.ops.copy(x.numpy().T), x.numpy().T)
    with pytest.raises(tracea.errors.InvalidDType, match="out"):
        tracea.ops.copy(x, out=torch.empty(12, 70, dtype=torch.float64))


@pytest.mark.parametrize("dtype", drawn(1, [torch.uint8, torch.bool, torch.bfloat16], of="narrow copies"))
def test_copies_that_turn_narrow_elements_of_any_extents(rng, dtype):
    for _ in range(6):
        rows, columns, images = (int(extent) for extent in rng.integers((1, 1, 1), (40, 200, 4)))
        x = torch.from_numpy(rng.integers(0, 2, (images, rows + 2, columns + 3))).to(dtype)
        for view in (x[:, :rows, :columns], x[:, ::2, 1:columns], x[:, :3], x[:, :, :4]):
            turned = view.transpose(1, 2)
            assert torch.equal(tracea.ops.copy(turned), turned), tuple(turned.shape)
            out = torch.ones(turned.shape, dtype=dtype).permute(2, 0, 1).contiguous().permute(1, 2, 0)
            assert torch.equal(tracea.ops.copy(turned, out=out), turned), tuple(turned.shape)


def test_few_columns_are_turned_where_an_axis_lies_between():
    machine = host()
    for shape, variant in (((2, 210, 552), "pointwise.transpose"), ((2, 552), "pointwise.chain")):
        type_ = TensorType(shape, DType.F32).permuted(tuple(reversed(range(len(shape)))))
        op = PointwiseOp(expr=Input(0), inputs=(type_,), out_dtype=DType.F32)
        assert candidates(op, machine)[0].id == variant
        assert chain_plan(op).dims(op.shape)[-1] == (552 if len(shape) == 2 else 2)


X, T = torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64)
REFUSED = {
    "an axis that does not exist": (InvalidShape, lambda: tracea.ops.cumsum(X, 2)),
    "sums of integers": (InvalidDType, lambda: tracea.ops.cumsum(T, 0)),
    "indices of floats": (InvalidDType, lambda: tracea.ops.embedding(X, X)),
    "a table of one axis": (InvalidShape, lambda: tracea.ops.embedding(T, X[0])),
    "more than there are": (InvalidOp, lambda: tracea.ops.topk(X, 5)),
    "masks, which have no order": (InvalidDType, lambda: tracea.ops.sort(X > 0)),
    "an axis to sort that does not exist": (InvalidShape, lambda: tracea.ops.argsort(X, 2)),
    "an odd number of elements": (InvalidShape, lambda: tracea.ops.rope(X[:, :3], X[:, :1], X[:, :1])),
    "tables that do not broadcast": (InvalidShape, lambda: tracea.ops.rope(X, X, X)),
    "an out that is an input": (OverlappingOutput, lambda: tracea.ops.cumsum(X, 0, out=X)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()
