from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.optimizer import Parameter, SearchSpace

SMALL = SearchSpace.constrained(
    {"tile": (16, 32, 64), "unroll": (1, 2), "pack": ("none", "a", "ab")},
    lambda schedule: not (schedule["tile"] == 64 and schedule["unroll"] == 2),
)

values_of_one_type = st.one_of(
    st.lists(st.integers(-4, 300), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True),
    st.just([False, True]),
    st.lists(st.floats(0.25, 8.0, width=16), min_size=1, max_size=3, unique=True),  # apart by more than a rounding
)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    columns = draw(st.lists(values_of_one_type, min_size=1, max_size=4))
    product = list(itertools.product(*(range(len(values)) for values in columns)))
    rows = draw(st.lists(st.sampled_from(product), min_size=1, max_size=40, unique=True))
    return SearchSpace.enumerated([f"p{index}" for index in range(len(columns))], columns, rows)


def test_a_constraint_keeps_the_valid_part_of_the_product_in_order() -> None:
    assert len(SMALL) == 15
    assert SMALL.decode((2, 0, 1)) == {"tile": 64, "unroll": 1, "pack": "a"}
    assert (2, 1, 0) not in SMALL
    assert list(SMALL) == sorted(SMALL)


@given(spaces())
def test_rows_and_schedules_are_two_names_of_the_same(space: SearchSpace) -> None:
    for position, row in enumerate(space):
        assert space.index(row) == position
        assert space.encode(space.decode(row)) == row
        assert all(type(index) is int for index in row)


@given(spaces())
def test_features_lie_in_the_unit_cube_and_tell_rows_apart(space: SearchSpace) -> None:
    features = space.features
    assert features.shape == (len(space), len(space.feature_groups))
    assert np.all((features >= 0.0) & (features <= 1.0))
    # Valid rows differ in some parameter that varies, and the features of that parameter differ.
    assert len(np.unique(features.round(12), axis=0)) == len(space)


@given(spaces(), st.data())
def test_neighbours_are_valid_and_differ_in_as_few_parameters_as_asked(space: SearchSpace, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(list(space)))
    for changes in (1, 2):
        found = [space.row(int(index)) for index in space.neighbours(row, changes=changes)]
        differences = [sum(a != b for a, b in zip(row, other, strict=True)) for other in found]
        assert all(1 <= count <= changes for count in differences)
        assert differences == sorted(differences)
        expected = [other for other in space if 1 <= sum(a != b for a, b in zip(row, other, strict=True)) <= changes]
        assert sorted(found) == sorted(expected)


def test_the_nearest_neighbour_takes_the_smallest_step() -> None:
    space = SearchSpace.constrained({"tile": (64, 8, 16, 128, 32)})
    near = [space.decode(space.row(int(index)))["tile"] for index in space.neighbours((2,))]
    assert near == [8, 32, 64, 128]  # in the order of sizes, not of the listing


def test_a_tile_that_doubles_moves_one_step_and_alignment_has_its_own_column() -> None:
    powers = SearchSpace.constrained({"tile": (1, 2, 4, 8)})
    assert powers.features[:, 0] == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])
    mixed = SearchSpace.constrained({"tile": (16, 32, 48, 64, 80)})
    assert mixed.features.shape == (5, 2)
    assert mixed.features[:, 1] == pytest.approx([0.0, 0.5, 0.0, 1.0, 0.0])


def test_categories_are_equally_far_apart_and_share_a_length_scale() -> None:
    space = SearchSpace.constrained({"pack": ("none", "a", "ab"), "unroll": (1, 2)})
    assert space.feature_groups.tolist() == [0, 0, 0, 1]
    none, a, ab = (space.features_of([(index, 0)])[0] for index in range(3))
    assert np.linalg.norm(none - a) == pytest.approx(1.0)
    assert np.linalg.norm(a - ab) == pytest.approx(1.0)


def test_a_parameter_that_never_varies_has_no_feature() -> None:
    space = SearchSpace.enumerated(["tile", "unroll"], [[16, 32], [1, 2]], [[0, 1], [1, 1]])
    assert space.features.shape == (2, 1)
    assert space.by_parameter([0.25]) == {"tile": 0.25}


def test_numpy_values_and_rows_are_plain_afterwards() -> None:
    space = SearchSpace.enumerated(["tile"], [np.array([16, 32])], np.array([[0], [1]], dtype=np.uint8))
    assert type(space.decode(space.row(1))["tile"]) is int
    assert space.row(1) == (1,)
    with pytest.raises(ValueError, match="read-only"):
        space.rows[0, 0] = 1


def test_a_schedule_of_another_space_is_not_encoded() -> None:
    assert SMALL.encode({"tile": 64, "unroll": 2, "pack": "a"}) is None
    assert SMALL.encode({"tile": 48, "unroll": 1, "pack": "a"}) is None
    assert SMALL.encode({"tile": 64, "unroll": 1}) is None
    assert SMALL.encode({"tile": 16, "unroll": True, "pack": "a"}) is None


@pytest.mark.parametrize(
    ("names", "values", "rows"),
    [
        (["a"], [[1], [2]], [[0]]),
        (["a"], [[1, 2]], [[2]]),
        (["a"], [[1, 2]], [[-1]]),
        (["a"], [[1, 2]], [[0], [0]]),
        (["a"], [[1, 2]], [[0, 0]]),
        (["a"], [[1, 2]], [0, 1]),
        (["a"], [[1, 2]], np.zeros((0, 1), dtype=int)),
        (["a"], [[1, 2]], [[0.5]]),
        (["a"], [[1, 2]], [["x"]]),
        (["a"], [[]], [[0]]),
        (["a", "a"], [[1], [1]], [[0, 0]]),
        ([], [], np.zeros((1, 0), dtype=int)),
        ([""], [[1]], [[0]]),
        (["a"], [[1, 1]], [[0]]),
        (["a"], [[1.0, float("nan")]], [[0]]),
        (["a"], [[[1], [2]]], [[0]]),
    ],
)
def test_a_malformed_space_is_refused_with_a_remedy(names: Any, values: Any, rows: Any) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        SearchSpace.enumerated(names, values, rows)
    assert caught.value.remedy


@pytest.mark.parametrize("row", [(0,), (0, 0, 0, 0), (0, 0, 9), (0, -1, 0), (0.5, 0, 0), "abc", None, (None, 0, 0), 3])
def test_a_malformed_row_is_refused(row: Any) -> None:
    with pytest.raises(InvalidSchedule):
        SMALL.index(row)
    assert row not in SMALL


def test_an_impossible_constraint_and_a_huge_product_are_refused() -> None:
    with pytest.raises(InvalidSchedule, match="at least 1 valid schedule"):
        SearchSpace.constrained({"tile": (1, 2)}, lambda _: False)
    with pytest.raises(InvalidSchedule, match="product of values"):
        SearchSpace.constrained({f"p{index}": range(100) for index in range(6)})


def test_parameters_may_be_given_as_such() -> None:
    space = SearchSpace.constrained([Parameter(name="tile", values=(1, 2))])
    assert space.names == ("tile",)
