"""Ways by counting, by ranks, and by z3: the three agree, and broadcasts are no conflicts."""

from __future__ import annotations

import random

import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.proofs.wavefronts import BANKS, conflict_of, linear_columns, linear_ways, rank
from tracea.semantic.swizzle import Swizzle, choose

WIDTHS = (4, 8, 16)


def addresses(columns: tuple[int, ...]) -> list[int]:
    result = []
    for lane in range(1 << len(columns)):
        address = 0
        for bit, column in enumerate(columns):
            if lane >> bit & 1:
                address ^= column
        result.append(address)
    return result


@given(st.sampled_from(WIDTHS), st.lists(st.integers(0, 2**12 - 1), min_size=5, max_size=5))
def test_the_closed_form_is_what_counting_finds(nbytes: int, columns: list[int]) -> None:
    aligned = tuple(column * nbytes for column in columns)
    assert linear_ways(aligned, nbytes) == conflict_of(addresses(aligned), nbytes).ways


def test_columns_are_found_again() -> None:
    columns = (16, 32, 128, 256, 1024)
    assert linear_columns(addresses(columns)) == columns
    assert linear_columns([5, *addresses(columns)[1:]]) is None
    assert linear_columns([0, 1, 2]) is None


@pytest.mark.parametrize("row_bytes", [16, 32, 64, 128, 256])
def test_eight_rows_of_16_bytes_meet_as_often_as_their_pitch_says_and_never_when_swizzled(row_bytes: int) -> None:
    plain = [row * row_bytes for row in range(8)]
    assert conflict_of(plain, 16).ways == min(8, row_bytes // 16)
    swizzle = choose(row_bytes)
    stored = plain if swizzle is None else [swizzle.apply(address) for address in plain]
    assert conflict_of(stored, 16).ways == 1


def test_one_word_for_all_is_a_broadcast() -> None:
    assert conflict_of([64] * 32, 4).ways == 1
    assert conflict_of([0, 4] * 16, 4).ways == 1


def test_a_conflict_names_lanes_words_and_bank() -> None:
    found = conflict_of([lane * 128 for lane in range(32)], 4)
    assert (found.ways, found.bank) == (32, 0)
    assert found.lanes == tuple(range(32))
    assert "lanes 0, 1" in str(found)


def test_lanes_that_do_nothing_meet_nobody() -> None:
    assert conflict_of([0, None, 128, None] * 8, 4).ways == 2


def test_an_access_across_its_alignment_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="multiple of 16"):
        conflict_of([8] * 8, 16)
    with pytest.raises(InvalidSchedule, match="split it"):
        conflict_of([0] * 8, 12)


@pytest.mark.parametrize("nbytes", WIDTHS)
def test_z3_finds_no_more_ways_than_the_closed_form_and_as_many(nbytes: int) -> None:
    random_ = random.Random(nbytes)
    lane_bits = (32 * 4 // nbytes).bit_length() - 1 if nbytes > 4 else 5
    for _ in range(6):
        columns = tuple(random_.randrange(64) * nbytes for _ in range(5))
        ways = linear_ways(columns, nbytes)
        # Words 0, 1, … of bank B that some lane of the first phase wants: `ways` different ones exist, not one more.
        assert satisfiable(columns[:lane_bits], nbytes, ways)
        assert not satisfiable(columns[:lane_bits], nbytes, ways + 1)


def satisfiable(columns: tuple[int, ...], nbytes: int, count: int) -> bool:
    solver = z3.Solver()
    bank = z3.BitVec("bank", 32)
    words = []
    for number in range(count):
        lane, inside = z3.BitVec(f"lane{number}", 32), z3.BitVec(f"inside{number}", 32)
        solver.add(z3.ULT(lane, 1 << len(columns)), z3.ULT(inside, nbytes // 4))
        address = z3.BitVecVal(0, 32)
        for bit, column in enumerate(columns):
            address = address ^ z3.If(z3.Extract(bit, bit, lane) == 1, z3.BitVecVal(column, 32), z3.BitVecVal(0, 32))
        word = z3.LShR(address, 2) + inside
        solver.add(z3.URem(word, z3.BitVecVal(BANKS, 32)) == bank)
        words.append(word)
    solver.add(z3.Distinct(*words) if count > 1 else z3.BoolVal(True))
    return solver.check() == z3.sat


@given(st.lists(st.integers(0, 255), max_size=10))
def test_rank_is_the_size_of_the_span(vectors: list[int]) -> None:
    span = {0}
    for vector in vectors:
        span |= {vector ^ other for other in span}
    assert 2 ** rank(vectors) == len(span)


def test_a_swizzle_of_full_rank_is_a_bijection() -> None:
    swizzle = Swizzle(3, 4, 3)
    assert sorted(swizzle.apply(offset) for offset in range(1024)) == list(range(1024))
