"""Linear layouts: the laws of their algebra, against plain matrices over GF(2) and against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.linear_layout import LinearLayout

SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@st.composite
def layouts(
    draw: st.DrawFn, *, inputs: list[int] | None = None, outputs: list[int] | None = None, prefix: str = "xy"
) -> LinearLayout:
    sources = draw(SIZES) if inputs is None else inputs
    targets = draw(SIZES) if outputs is None else outputs
    limit = (1 << sum(targets)) - 1
    return LinearLayout(
        tuple((f"{prefix[0]}{i}", tuple(draw(st.integers(0, limit)) for _ in range(n))) for i, n in enumerate(sources)),
        tuple((f"{prefix[1]}{i}", n) for i, n in enumerate(targets)),
    )


@st.composite
def chains(draw: st.DrawFn) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    a, b, c, d = (draw(SIZES) for _ in range(4))
    return (
        draw(layouts(inputs=a, outputs=b, prefix="xy")),
        draw(layouts(inputs=b, outputs=c, prefix="yz")),
        draw(layouts(inputs=c, outputs=d, prefix="zw")),
    )


def _table(layout: LinearLayout) -> list[tuple[int, ...]]:
    axes = [range(1 << len(images)) for _, images in layout.inputs]
    return [
        tuple(layout.apply(**dict(zip(layout.input_names, point, strict=True))).values())
        for point in itertools.product(*axes)
    ]


def test_the_worked_example_is_the_accumulator_of_m16n8() -> None:
    layout = LinearLayout.of(
        {"register": [(0, 1), (8, 0)], "lane": [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)]}, {"row": 4, "column": 3}
    )
    assert layout.apply(lane=5, register=2) == {"row": 9, "column": 2}
    lane, register = np.arange(32)[:, None], np.arange(4)[None, :]
    at = layout.apply(lane=lane, register=register)
    assert np.array_equal(at["row"], lane // 4 + 8 * (register // 2))
    assert np.array_equal(at["column"], 2 * (lane % 4) + register % 2)
    assert layout.is_bijective


@given(layouts())
def test_apply_is_the_matrix_over_gf2(layout: LinearLayout) -> None:
    matrix = layout.matrix().astype(int).reshape(layout.output_bits, layout.input_bits)
    for number, row in enumerate(_flat_table(layout)):
        bits = np.array([number >> bit & 1 for bit in range(layout.input_bits)], dtype=int)
        expected = matrix @ bits % 2
        assert [row >> bit & 1 for bit in range(layout.output_bits)] == list(expected)


def _flat_table(layout: LinearLayout) -> list[int]:
    one = LinearLayout((("x", layout.images),), (("y", layout.output_bits),))
    return [one.apply(x=number)["y"] for number in range(1 << layout.input_bits)]


@given(chains())
def test_composition_is_application_in_turn_and_associative(
    chain: tuple[LinearLayout, LinearLayout, LinearLayout],
) -> None:
    first, second, third = chain
    both = first.then(second)
    axes = [np.arange(1 << len(images)) for _, images in first.inputs]
    points = dict(zip(first.input_names, np.meshgrid(*axes, indexing="ij"), strict=True))
    expected = second.apply(**first.apply(**points))
    assert all(np.array_equal(both.apply(**points)[name], expected[name]) for name in expected)
    assert first.then(second).then(third) == first.then(second.then(third))


@given(layouts())
def test_identity_is_neutral(layout: LinearLayout) -> None:
    for names, before in ((layout.inputs, True), (layout.outputs, False)):
        unit = None
        for name, size in names:
            bits = size if isinstance(size, int) else len(size)
            factor = LinearLayout.identity(name, name, bits)
            unit = factor if unit is None else unit.product(factor)
        assert unit is not None
        assert (unit.then(layout) if before else layout.then(unit)) == layout


@given(layouts())
def test_rank_counts_the_image(layout: LinearLayout) -> None:
    values = _table(layout)
    assert len(set(values)) == 1 << layout.rank
    assert layout.is_injective == (len(set(values)) == len(values))
    assert layout.is_surjective == (len(set(values)) == 1 << layout.output_bits)


@given(layouts())
def test_the_pseudo_inverse_satisfies_its_two_equations(layout: LinearLayout) -> None:
    back = layout.pseudo_inverse()
    assert layout.then(back).then(layout) == layout
    assert back.then(layout).then(back) == back
    if layout.is_bijective:
        assert layout.inverse() == back
        assert layout.then(back).rank == layout.input_bits
        assert layout.inverse().inverse() == layout
    else:
        with pytest.raises(InvalidSchedule):
            layout.inverse()


@given(chains())
def test_the_inverse_of_a_composition_is_the_composition_of_inverses(
    chain: tuple[LinearLayout, LinearLayout, LinearLayout],
) -> None:
    first, second, _ = chain
    if first.is_bijective and second.is_bijective:
        assert first.then(second).inverse() == second.inverse().then(first.inverse())


@given(layouts(), layouts(prefix="xy"))
def test_division_undoes_the_product(inner: LinearLayout, outer: LinearLayout) -> None:
    whole = inner.product(outer)
    assert whole.rank == inner.rank + outer.rank
    quotient = whole.divide(inner)
    assert quotient is not None
    assert inner.product(quotient) == whole


@given(layouts(), layouts(), layouts())
def test_the_product_is_associative(a: LinearLayout, b: LinearLayout, c: LinearLayout) -> None:
    assert a.product(b).product(c) == a.product(b.product(c))


def test_division_is_refused_where_the_factor_does_not_stand_apart() -> None:
    swizzled = LinearLayout.of({"row": [(1, 1), (2, 0)], "column": [(0, 1), (0, 2)]}, {"r": 2, "c": 2})
    assert swizzled.divide(LinearLayout.identity("column", "c", 2)) is None  # the row reaches into the column
    plain = LinearLayout.of({"row": [(1, 0), (2, 0)], "column": [(0, 1), (0, 2)]}, {"r": 2, "c": 2})
    assert plain.divide(LinearLayout.identity("column", "c", 2)) == LinearLayout.of({"row": [(1,), (2,)]}, {"r": 2})
    assert plain.divide(LinearLayout.identity("lane", "c", 1)) is None
    assert plain.divide(LinearLayout.identity("column", "c", 3)) is None


def test_a_replicating_dimension_is_answered_with_its_first_copy() -> None:
    layout = LinearLayout.identity("lane", "row", 4).product(LinearLayout.zeros("lane", 1))
    assert layout.bits_of("lane") == 5
    assert layout.is_surjective
    assert not layout.is_injective
    assert [layout.pseudo_inverse().apply(row=row)["lane"] for row in range(16)] == list(range(16))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearLayout((("x", (4,)),), (("y", 2),)),
        lambda: LinearLayout((("x", (1,)), ("x", (2,))), (("y", 2),)),
        lambda: LinearLayout.of({"x": [(1,)]}, {"y": 1, "z": 1}),
        lambda: LinearLayout.identity("x", "y", 2).then(LinearLayout.identity("z", "w", 2)),
        lambda: LinearLayout.identity("x", "y", 2).apply(x=4),
        lambda: LinearLayout.identity("x", "y", 2).apply(x=-1),
        lambda: LinearLayout.identity("x", "y", 2).apply(y=1),
        lambda: LinearLayout.identity("x", "y", 2).bits_of("z"),
        lambda: LinearLayout.identity("x", "y", 2).ordered(inputs=("z",)),
    ],
)
def test_what_is_no_layout_is_refused(make: object) -> None:
    with pytest.raises(InvalidSchedule):
        make()  # type: ignore[operator]
