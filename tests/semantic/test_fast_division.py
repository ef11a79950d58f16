"""Fast division: proved by z3 for some divisors, by its exact condition for all, and against wrong constants."""

from __future__ import annotations

import numpy as np
import pytest
import z3
from hypothesis import example, given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.fast_division import LIMIT, FastDivision, first_error, umulhi

SEED_DIVISOR, SEED_WRONG = 222 * 222, 147_851
DIVISORS = st.one_of(
    st.integers(1, LIMIT - 1),
    st.integers(1, 1000),
    st.builds(lambda bit, near: max(1, (1 << bit) + near), st.integers(0, 30), st.integers(-2, 2)),
)


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 5, 7, 10, 12, 100, 641, 49_284, 65_537, 999_983, (1 << 30) + 1, LIMIT - 1]
)
def test_z3_proves_the_quotient_for_every_x(divisor: int) -> None:
    words = FastDivision.by(divisor)
    x, quotient, rest, computed = z3.Ints("x quotient rest computed")
    scale = 1 << (31 + words.shift)
    solver = z3.Solver()
    solver.set("timeout", 10_000)
    solver.add(x >= 0, x < LIMIT, x == quotient * divisor + rest, rest >= 0, rest < divisor)
    solver.add(computed * scale <= x * words.multiplier, x * words.multiplier < (computed + 1) * scale)
    solver.add(computed != quotient)
    assert solver.check() == z3.unsat


@given(DIVISORS, st.integers(0, LIMIT - 1))
@example(SEED_DIVISOR, SEED_WRONG)
@example(1, LIMIT - 1)
def test_the_quotient_is_right(divisor: int, x: int) -> None:
    words = FastDivision.by(divisor)
    for at in (x, x // divisor * divisor, max(0, x // divisor * divisor - 1), LIMIT - 1):
        assert words.quotient(at) == at // divisor
        assert words.remainder(at) == at % divisor


@given(DIVISORS)
def test_the_words_fit_and_satisfy_the_condition(divisor: int) -> None:
    words = FastDivision.by(divisor)
    assert 0 <= words.multiplier < 1 << 32
    assert 0 <= words.shift < 32
    error = words.multiplier * divisor - (1 << (31 + words.shift))
    assert 0 <= error <= 1 << words.shift  # Granlund and Montgomery's condition
    assert first_error(words.multiplier, 31 + words.shift, divisor) is None


@given(st.integers(1, 60), st.integers(0, 12), st.integers(0, 300), st.integers(1, 700))
def test_the_first_error_is_the_first_error(divisor: int, power: int, multiplier: int, limit: int) -> None:
    wrong = next((x for x in range(limit) if (x * multiplier >> power) != x // divisor), None)
    assert first_error(multiplier, power, divisor, limit) == wrong


def test_the_seeds_constant_is_rejected_at_its_counter_example() -> None:
    multiplier = -(-(1 << 32) // SEED_DIVISOR)
    assert umulhi(SEED_WRONG, multiplier) == 3
    assert SEED_WRONG // SEED_DIVISOR == 2
    assert first_error(multiplier, 32, SEED_DIVISOR) == SEED_WRONG
    with pytest.raises(InvalidSchedule, match="147851"):
        FastDivision(divisor=SEED_DIVISOR, multiplier=multiplier, shift=1)


def test_arrays_are_divided_as_numbers_are() -> None:
    words = FastDivision.by(SEED_DIVISOR)
    x = np.concatenate([np.arange(200_000), np.arange(LIMIT - 1000, LIMIT)])
    assert np.array_equal(words.quotient(x), x // SEED_DIVISOR)
    assert np.array_equal(words.remainder(x), x % SEED_DIVISOR)


def test_a_divisor_beyond_the_range_gives_zero() -> None:
    assert FastDivision.by(1 << 40).quotient(LIMIT - 1) == 0


@pytest.mark.parametrize("words", [(0, 1, 0), (3, 1 << 32, 0), (3, 1, 32), (3, -1, 0), (7, 613_566_756, 0)])
def test_wrong_words_are_refused(words: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidSchedule):
        FastDivision(divisor=words[0], multiplier=words[1], shift=words[2])
    with pytest.raises(InvalidSchedule):
        FastDivision.by(0)


def test_the_text_multiplies_and_shifts() -> None:
    assert FastDivision.text("row", "args.m", "args.s") == "(__umulhi((row) << 1, args.m) >> args.s)"
