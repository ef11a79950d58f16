"""The prover: what it shows, z3 shows too; what is false, it never shows."""

from __future__ import annotations

import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from tracea.semantic.index import (
    Add,
    Const,
    FloorDiv,
    Index,
    Lookup,
    Max,
    Min,
    Mod,
    Mul,
    Param,
    Var,
    as_index,
    ceil_div,
    minimum,
)
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.proofs.prover import Facts

M, N, S = Param("M", 1), Param("N", 1), Param("S", 1)


def as_z3(index: Index) -> z3.ArithRef:
    """Return the expression in z3's integers; its div and mod are floored for positive divisors."""
    match index:
        case Const(value=value):
            return z3.IntVal(value)
        case Var(name=name) | Param(name=name):
            return z3.Int(name)
        case Add(left=left, right=right):
            return as_z3(left) + as_z3(right)
        case Mul(left=left, right=right):
            return as_z3(left) * as_z3(right)
        case FloorDiv(left=left, right=right):
            return as_z3(left) / as_z3(right)
        case Mod(left=left, right=right):
            return as_z3(left) % as_z3(right)
        case Min(left=left, right=right):
            return z3.If(as_z3(left) <= as_z3(right), as_z3(left), as_z3(right))
        case Max(left=left, right=right):
            return z3.If(as_z3(left) >= as_z3(right), as_z3(left), as_z3(right))
        case _:
            raise AssertionError(index)


def z3_refutes(facts: list[Polynomial], goal: Polynomial) -> str:
    solver = z3.Solver()
    solver.set("timeout", 2000)
    for param in (M, N, S):
        solver.add(as_z3(param) >= param.minimum)
    for fact in facts:
        solver.add(as_z3(fact.to_index()) >= 0)
    solver.add(as_z3(goal.to_index()) < 0)
    return str(solver.check())


def loop(var: Var, count: Index | int) -> list[Polynomial]:
    return [normalize(var), normalize(as_index(count) - 1 - var)]


def show(facts: list[Polynomial], goal: Index) -> bool:
    proved = Facts(facts).proves(normalize(goal))
    if proved:
        assert z3_refutes(facts, normalize(goal)) in ("unsat", "unknown")
    return proved


def test_a_tail_tile_ends_within_the_axis() -> None:
    i, p = Var("i"), Var("p")
    block = minimum(280, M - 280 * i)
    facts = loop(i, ceil_div(M, 280)) + loop(p, ceil_div(block, 14))
    rows = minimum(14, block - 14 * p)
    assert show(facts, M - 280 * i - 14 * p - rows)
    assert show(facts, rows - 1)
    assert show(facts, 19 - p)
    assert not show(facts, 18 - p)
    assert not show(facts, M - 280 * i - 14 * p - rows - 1)


def test_a_product_is_bounded_by_its_factors() -> None:
    i = Var("i")
    assert show(loop(i, M), S * M - S - S * i)
    assert show(loop(i, M), S * i)
    assert not show(loop(i, M), S * M - S - S * i - 1)


def test_digits_of_a_flat_index_stay_below_their_radix() -> None:
    t = Var("t")
    facts = loop(t, M * N)
    assert show(facts, M - 1 - t // N)
    assert show(facts, N - 1 - t % N)
    assert not show(facts, M - 2 - t // N)


def test_a_difference_is_shown_by_cases() -> None:
    i = Var("i")
    facts = Facts(loop(i, 10))
    assert facts.proves_predicate((i < 4) | (i > 2))
    assert not facts.proves_predicate((i < 4) | (i > 4))
    assert facts.plus([normalize(i) - 10]).contradictory()


def test_rounding_settles_what_rationals_cannot() -> None:
    i, j = Var("i"), Var("j")
    odd_is_even = [normalize(2 * i - 2 * j - 1), normalize(2 * j + 1 - 2 * i)]
    assert Facts(odd_is_even).contradictory()


SMALL = st.integers(-4, 4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Polynomial], Polynomial]:
    i, j = Var("i"), Var("j")
    count = draw(st.sampled_from([Const(5), M, ceil_div(M, 4), ceil_div(N, 3), M + N]))
    other = draw(st.sampled_from([Const(3), minimum(4, M - 4 * i), ceil_div(minimum(6, N), 2), N]))
    terms: list[Index] = [i, j, M, N, minimum(3, M - 3 * i), ceil_div(N, 4), i // 2, j % 3]
    goal: Index = Const(draw(SMALL))
    for term in terms:
        goal = goal + term * draw(SMALL)
    return [*loop(i, count), *loop(j, other)], normalize(goal)


@settings(max_examples=150)
@given(problems())
def test_what_is_proved_z3_does_not_refute(problem: tuple[list[Polynomial], Polynomial]) -> None:
    facts, goal = problem
    if Facts(facts).proves(goal):
        assert z3_refutes(facts, goal) in ("unsat", "unknown")


@settings(max_examples=300)
@given(problems(), st.integers(1, 12), st.integers(1, 12), st.data())
def test_what_is_proved_holds_for_every_value(
    problem: tuple[list[Polynomial], Polynomial], m: int, n: int, data: st.DataObject
) -> None:
    facts, goal = problem
    if not Facts(facts).proves(goal):
        return
    env = {"M": m, "N": n, "S": 1, "i": data.draw(st.integers(0, 12)), "j": data.draw(st.integers(0, 12))}
    if all(fact.to_index().evaluate(env) >= 0 for fact in facts):
        assert goal.to_index().evaluate(env) >= 0


def test_a_product_is_no_less_than_the_products_inside_it() -> None:
    batch, heads = Param("B", 1), Param("H", 1)
    rows, columns = ceil_div(Param("R", 1), 16), ceil_div(Param("C", 1), 64)
    limit = 2**31 - 1
    whole = normalize(batch * heads * rows * columns)
    assert Facts().proves(whole * 6)
    i, j = Var("i"), Var("j")
    tile = normalize((i * heads + j) * rows * columns)
    place = Facts([-whole + limit, whole - tile - 1, *loop(i, batch), *loop(j, heads)])
    assert place.proves(-normalize(i * heads + j) + limit - 1)
    assert not place.proves(-normalize(i * heads + j) + limit - 2)
    free = Polynomial.atom(Var("x"))  # may be negative: then its product is less than the rest
    assert not Facts().proves(whole * free - normalize(batch * heads))
    assert not Facts().proves(normalize(Param("Z", 0) * heads * rows) - normalize(heads))


def test_entries_of_an_ascending_table_are_in_order_and_those_of_others_are_not() -> None:
    i, j = Var("i"), Var("j")
    known = [*loop(i, N), *loop(j, N), normalize(j - i) - 1]
    tables = [(name, Polynomial({}), normalize(M)) for name in ("t", "u")]
    facts = Facts(known, tables=tables, ascending={"t": normalize(N + 1)})

    def grows(table: str, first: Index, second: Index) -> bool:
        return facts.proves(normalize(Lookup(table, second) - Lookup(table, first)))

    assert grows("t", i, i + 1)
    assert grows("t", i, j)
    assert grows("t", i + 1, j)
    assert not grows("t", i + 2, j)
    assert not grows("t", j, i)
    assert not grows("u", i, i + 1)
    assert facts.plus(()).intervals("t") == (normalize(N), normalize(M))
    assert facts.intervals("u") is None
    begins_later = Facts(tables=[("t", Polynomial.of(1), normalize(M))], ascending={"t": normalize(N)})
    assert begins_later.intervals("t") is None
