"""Index expressions: simplification and substitution keep the value, comparisons build conditions, texts are stable."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.index import (
    FALSE,
    INT32_MAX,
    TRUE,
    Const,
    FloorDiv,
    Index,
    Lookup,
    Param,
    Var,
    ceil_div,
    differs,
    equal,
    maximum,
    minimum,
)
from tracea.semantic.linear import normalize

NAMES = ("i", "j", "M", "N")


def indices() -> st.SearchStrategy[Index]:
    leaves = st.one_of(
        st.integers(0, 9).map(Const),
        st.sampled_from([Var("i"), Var("j")]),
        st.sampled_from([Param("M", 1), Param("N", 1)]),
    )

    def grow(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
        divisors = st.one_of(st.integers(1, 7).map(Const), st.sampled_from([Param("M", 1), Param("N", 1)]))
        return st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
            st.tuples(inner, divisors).map(lambda pair: pair[0] // pair[1]),
            st.tuples(inner, divisors).map(lambda pair: pair[0] % pair[1]),
            st.tuples(inner, inner).map(lambda pair: minimum(pair[0], pair[1])),
            st.tuples(inner, inner).map(lambda pair: maximum(pair[0], pair[1])),
        )

    return st.recursive(leaves, grow, max_leaves=10)


ENVIRONMENTS = st.fixed_dictionaries(
    {"i": st.integers(0, 40), "j": st.integers(0, 40), "M": st.integers(1, 30), "N": st.integers(1, 30)}
)


@settings(max_examples=400)
@given(indices(), ENVIRONMENTS)
def test_simplify_keeps_the_value(index: Index, env: dict[str, int]) -> None:
    assert index.simplify().evaluate(env) == index.evaluate(env)


@given(indices())
def test_simplify_reaches_one_form(index: Index) -> None:
    once = index.simplify()
    assert normalize(once) == normalize(index)
    assert once.simplify() == once


@given(indices(), indices(), ENVIRONMENTS)
def test_substitution_commutes_with_evaluation(index: Index, value: Index, env: dict[str, int]) -> None:
    replaced = index.substitute({"i": value})
    assert replaced.evaluate(env) == index.evaluate({**env, "i": value.evaluate(env)})


@given(indices(), ENVIRONMENTS)
def test_evaluation_on_arrays_is_elementwise(index: Index, env: dict[str, int]) -> None:
    arrays = {name: np.array([value, value + 1]) for name, value in env.items()}
    found = np.broadcast_to(index.evaluate(arrays), (2,))
    assert [int(v) for v in found] == [index.evaluate({n: int(a[p]) for n, a in arrays.items()}) for p in range(2)]


@given(st.integers(0, 1000), st.integers(1, 40))
def test_ceil_div_counts_the_tiles(extent: int, tile: int) -> None:
    assert ceil_div(Param("M"), tile).evaluate({"M": extent}) == len(range(0, extent, tile))


def test_parameters_of_one_name_and_different_ranges_are_different() -> None:
    assert Param("M", 1) != Param("M", 2)
    assert normalize(Param("M", 1) + 1) != normalize(Param("M", 2) + 1)


def test_equal_expressions_are_one_object_wherever_they_are_made() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: (Param("n") + 3) * Var("i") // 2, range(64)))
    assert len({id(each) for each in made}) == 1
    assert pickle.loads(pickle.dumps(made[0])) is copy.deepcopy(made[0]) is made[0]
    assert Param("n") is Param("n", 0, INT32_MAX) is Param("n", maximum=INT32_MAX)
    assert Param("n") is not Param("n", minimum=1)


def test_what_no_one_holds_is_forgotten() -> None:
    before = weakref.ref(Var("of this test alone") + 1)
    gc.collect()
    assert before() is None
    assert str(Var("of this test alone") + 1) == "of this test alone + 1"


@pytest.mark.parametrize("make", [Param, Const, lambda: Param("n", most=3), lambda: Var("i", "j")])
def test_a_node_is_made_of_its_parts_alone(make: Callable[[], Index]) -> None:
    with pytest.raises(TypeError, match="made of"):
        make()


def test_terms_cancel_and_multiples_divide_out() -> None:
    i, m = Var("i"), Param("M", 1)
    assert (4 * (i + 2) - 3 * i - i).constant == 8
    assert ((8 * i + 12) // 4).simplify() == (2 * i + 3).simplify()
    assert ((m * i + 1) % m).simplify() == (Const(1) % m).simplify()


def test_comparisons_build_conditions() -> None:
    i, m = Var("i"), Param("M", 1)
    condition = (i < m) & ~equal(i, 3) | differs(i, i)
    assert condition.evaluate({"i": 2, "M": 5}) is True
    assert condition.evaluate({"i": 3, "M": 5}) is False
    assert TRUE.evaluate({}) is True
    assert FALSE.evaluate({}) is False


@pytest.mark.parametrize("use", [lambda: bool(Var("i") < 3), lambda: bool(Var("i")), lambda: Var("i") // 0])
def test_an_expression_is_no_truth_value_and_divides_by_no_zero(use: object) -> None:
    with pytest.raises(InvalidSchedule):
        use()  # type: ignore[operator]


def test_an_unbound_name_is_named_in_the_error() -> None:
    with pytest.raises(InvalidSchedule, match="width"):
        (Var("width") + 1).evaluate({"i": 0})


def test_a_table_is_read_at_its_index() -> None:
    assert Lookup("tiles", Var("i") + 1).evaluate({"tiles": [5, 7, 9], "i": 1}) == 9


def test_a_quotient_of_what_is_positive_has_no_negative_numerator() -> None:
    """Text of C++ rounds towards zero: 3 + (-15 / 16) would be 3, where the floor is 2."""
    rows, columns = Param("M", 1), Param("N", 1)
    quotient = ((rows * 16 - columns * 4 + 14) // 16).simplify()
    assert isinstance(quotient, FloorDiv)
    env = {"M": 3, "N": 12}
    assert quotient.left.evaluate(env) == 3 * 16 - 12 * 4 + 14
    assert quotient.evaluate(env) == 0
