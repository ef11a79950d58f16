"""Phases in Z/NZ: laws for all stages and uses, by z3 over the integers, and by a machine that runs both sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.errors import InvalidSchedule
from tracea.semantic.index import Var
from tracea.semantic.phase import Phase, empty_parity, full_parity, overwritten, passes, slot, trips

z3 = pytest.importorskip("z3")

STAGES, USES = st.integers(1, 1 << 20), st.integers(0, 1 << 40)


def _proved(claim: object, *facts: object) -> bool:
    solver = z3.Solver()
    solver.set("timeout", 5000)
    solver.add(*facts, z3.Not(claim))
    return bool(solver.check() == z3.unsat)


def _use(name: str) -> tuple[object, object, object, tuple[object, ...]]:
    # A use by its quotient and remainder, which exist and are unique for every N >= 1.
    n, q, r = z3.Int("N"), z3.Int(f"q_{name}"), z3.Int(f"r_{name}")
    return q * n + r, q, r, (n >= 1, q >= 0, r >= 0, r < n)


def test_advancing_is_the_phase_of_the_next_use_for_all_stages() -> None:
    n = z3.Int("N")
    use, q, r, facts = _use("k")
    wrap = r + 1 == n
    next_q, next_r = z3.If(wrap, q + 1, q), z3.If(wrap, 0, r + 1)
    assert _proved(z3.And(next_q * n + next_r == use + 1, next_r >= 0, next_r < n), *facts)
    assert _proved((next_q % 2 != q % 2) == wrap, *facts)  # the parity flips where the slot returns to 0


def test_uses_closer_than_the_stages_never_share_a_slot() -> None:
    n = z3.Int("N")
    use, _, r, facts = _use("k")
    other, _, r_other, other_facts = _use("j")
    distance = other - use
    assert _proved(z3.Implies(z3.And(distance > 0, distance < n), r != r_other), *facts, *other_facts)
    assert _proved(z3.Implies(distance == n, r == r_other), *facts, *other_facts)


def test_the_fetch_of_step_k_reuses_the_slot_of_step_k_minus_1() -> None:
    n = z3.Int("N")
    use, q, r, facts = _use("k")  # use = k − 1, so k + N − 1 = use + N
    assert _proved(use + n == (q + 1) * n + r, *facts)


@given(USES, STAGES)
def test_slot_and_parity_are_what_they_say(use: int, stages: int) -> None:
    assert slot(use, stages) + use // stages * stages == use
    assert full_parity(use, stages) != empty_parity(use, stages)
    assert full_parity(use + stages, stages) == empty_parity(use, stages)
    assert slot(overwritten(use, stages), stages) == slot(use, stages)
    assert full_parity(use + 2 * stages, stages) == full_parity(use, stages)


@given(st.integers(1, 9), st.integers(0, 200))
def test_a_device_that_advances_agrees(stages: int, uses: int) -> None:
    phase = Phase()
    for use in range(uses):
        assert phase == Phase.of(use, stages)
        phase = phase.advanced(stages)


@given(st.integers(0, 50), st.integers(1, 7))
def test_expressions_evaluate_to_the_same(use: int, stages: int) -> None:
    k, n = Var("k"), Var("n")
    for law in (slot, full_parity, empty_parity, overwritten):
        assert law(k, n).evaluate({"k": use, "n": stages}) == law(use, stages)


@given(st.integers(0, 30), st.integers(0, 12))
def test_every_use_is_fetched_once_and_computed_once(steps: int, distance: int) -> None:
    # The loop as kernels run it: the prologue, then one conditional fetch a step.
    fetched = [use for use in range(distance) if use < steps]
    prologue = len(fetched)
    main = drain = 0
    for step in range(steps):
        if step + distance < steps:
            fetched.append(step + distance)
            main += 1
        else:
            drain += 1
        assert step in fetched  # with distance 0 in this very step
    split = trips(steps, distance)
    assert (split.prologue, split.main, split.drain) == (prologue, main, drain)
    assert sorted(fetched) == list(range(steps))
    assert split.prologue + split.main == split.main + split.drain == steps


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 1 << 32))
def test_one_bit_of_phase_suffices_under_every_schedule(stages: int, uses: int, seed: int) -> None:
    # Both sides run in any order. Completed phases of each slot's barriers decide who may go on; a wait that passed
    # for a wrong reason would fill a slot still unread, or read one not yet filled.
    rng = np.random.default_rng(seed)
    full, empty = [0] * stages, [0] * stages
    held: list[int | None] = [None] * stages
    produced = consumed = 0
    while consumed < uses:
        can_produce = produced < uses and passes(empty[produced % stages], empty_parity(produced, stages))
        can_consume = passes(full[consumed % stages], full_parity(consumed, stages))
        assert can_produce or can_consume  # no deadlock
        if can_produce and (not can_consume or rng.random() < 0.5):
            assert held[produced % stages] is None
            held[produced % stages] = produced
            full[produced % stages] += 1
            produced += 1
        else:
            assert held[consumed % stages] == consumed
            held[consumed % stages] = None
            empty[consumed % stages] += 1
            consumed += 1


def test_a_wait_passes_wrongly_once_a_side_is_two_ahead() -> None:
    assert [passes(completed, 0) for completed in (0, 1, 2)] == [False, True, False]


@pytest.mark.parametrize(("steps", "distance"), [(-1, 2), (2, -1)])
def test_negative_counts_are_refused(steps: int, distance: int) -> None:
    with pytest.raises(InvalidSchedule):
        trips(steps, distance)


def test_a_slot_beyond_the_ring_is_refused() -> None:
    with pytest.raises(InvalidSchedule):
        Phase(3, 0).advanced(3)
