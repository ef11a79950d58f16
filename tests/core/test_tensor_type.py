from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, StridedLayout, SymbolicDim, TensorType, broadcast_shapes
from tracea.errors import InvalidGraph, InvalidShape, InvalidStride

F32 = DType.F32


def test_strides_of_a_contiguous_type_are_row_major() -> None:
    assert TensorType((2, 3, 4), F32).strides == (12, 4, 1)
    assert TensorType((), F32).elements == 1
    assert TensorType((2, 0, 4), F32).nbytes == 0


def test_strides_that_say_row_major_become_none() -> None:
    assert TensorType((2, 3), F32, StridedLayout((3, 1))) == TensorType((2, 3), F32)
    assert TensorType((1, 3), F32, StridedLayout((99, 1))).is_contiguous
    assert not TensorType((2, 3), F32, StridedLayout((1, 2))).is_contiguous


def test_a_transpose_is_a_layout() -> None:
    transposed = TensorType((2, 3), F32).permuted((1, 0))
    assert transposed == TensorType((3, 2), F32, StridedLayout((1, 3)))
    assert transposed.permuted((1, 0)) == TensorType((2, 3), F32)
    assert transposed.storage_bytes == transposed.nbytes == 24


def test_extent_covers_negative_strides_and_gaps() -> None:
    flipped = TensorType((4,), F32, StridedLayout((-2,)))
    assert flipped.extent == (-6, 1)
    assert flipped.storage_bytes == 28
    assert TensorType((3, 5), F32, StridedLayout((0, 1))).distinct_elements == 5


def test_blocked_storage_is_padded() -> None:
    nchw16 = TensorType((1, 20, 7, 7), F32, BlockedLayout(((1, 16),)))
    assert nchw16.storage_shape == (1, 2, 7, 7, 16)
    assert nchw16.storage_bytes == 2 * 7 * 7 * 16 * 4
    panels = TensorType((5, 40), F32, BlockedLayout(((1, 32),), order=(1, 0)))
    assert panels.storage_shape == (2, 5, 32)
    with pytest.raises(InvalidStride, match="unpack"):
        _ = nchw16.strides


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-6, 6)), max_size=3))
def test_overlap_is_never_missed(axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(a for a, _ in axes), tuple(b for _, b in axes)
    tensor = TensorType(shape, F32, StridedLayout(strides))
    offsets = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)]
    low, high = tensor.extent
    if tensor.is_contiguous:
        assert len(set(offsets)) == tensor.elements
    else:
        assert (low, high) == (min(offsets), max(offsets) + 1)
    if len(set(offsets)) < len(offsets):
        assert tensor.overlaps_itself  # it may also say so of strides that interleave without meeting


@pytest.mark.parametrize("shape", [(-1, 2), (2.5,), (True,), ("2",), (None,)])
def test_an_extent_must_be_a_whole_number(shape: tuple[object, ...]) -> None:
    with pytest.raises(InvalidShape, match="extents"):
        TensorType(shape, F32)  # type: ignore[arg-type]


def test_sizes_beyond_int64_are_refused_and_large_ones_are_not() -> None:
    assert TensorType((70_000, 70_000), F32).nbytes == 19_600_000_000
    with pytest.raises(InvalidShape, match="64-bit"):
        TensorType((2**40, 2**40), F32)


def test_numpy_integers_are_extents() -> None:
    assert TensorType((np.int64(3),), F32) == TensorType((3,), F32)  # type: ignore[arg-type]


def test_symbolic_extents_bind_within_their_bounds() -> None:
    rows = SymbolicDim("rows", minimum=1, maximum=512)
    tensor = TensorType((rows, 768), F32)
    assert tensor.strides == (768, 1)
    assert tensor.bind({"rows": 128}) == TensorType((128, 768), F32)
    assert tensor.bind({"other": 1}) is tensor
    with pytest.raises(InvalidShape, match="bind"):
        _ = tensor.elements
    with pytest.raises(InvalidShape, match="512"):
        tensor.bind({"rows": 513})
    with pytest.raises(InvalidShape):
        _ = TensorType((2, rows, rows), F32).strides


@pytest.mark.parametrize("bad", [("", 0, None), ("a b", 0, None), ("rows", -1, None), ("rows", 5, 4)])
def test_a_symbolic_extent_needs_a_name_and_bounds(bad: tuple[str, int, int | None]) -> None:
    with pytest.raises(InvalidShape):
        SymbolicDim(*bad)


def test_broadcasting_follows_numpy() -> None:
    rows = SymbolicDim("rows")
    assert broadcast_shapes([(3, 1), (4,)]) == (3, 4)
    assert broadcast_shapes([(rows, 1), (1, 5)]) == (rows, 5)
    assert broadcast_shapes([]) == ()
    for shapes in ([(3,), (4,)], [(rows,), (4,)], [(0,), (3,)]):
        with pytest.raises(InvalidShape):
            broadcast_shapes(shapes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), max_size=3))
def test_broadcasting_agrees_with_numpy(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(InvalidShape):
            broadcast_shapes(shapes)
    else:
        assert broadcast_shapes(shapes) == expected


@pytest.mark.parametrize(
    "tensor",
    [
        TensorType((), DType.BOOL),
        TensorType((2, 3), DType.BF16, StridedLayout((0, -1))),
        TensorType((4, 40), F32, BlockedLayout(((1, 32),), order=(1, 0))),
        TensorType((SymbolicDim("s", 1, 9), 3), F32),
    ],
)
def test_types_round_trip_through_json(tensor: TensorType) -> None:
    assert TensorType.from_dict(tensor.to_dict()) == tensor


def test_json_that_is_no_type_names_the_path() -> None:
    with pytest.raises(InvalidGraph, match=r"\$\.dtype"):
        TensorType.from_dict({"class": "TensorType", "shape": [1], "dtype": "f31"})
    with pytest.raises(InvalidGraph, match=r"\$\.shape"):
        TensorType.from_dict({"class": "TensorType", "shape": "1", "dtype": "f32"})
