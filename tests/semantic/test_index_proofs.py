"""What an index is computed from: divisions as they are written and as they are printed, and entries of tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from objects.declare import argument
from objects.vectors import at, copied, refused, spread, vectors, x_and_y

from tracea.core.dtype import DType
from tracea.errors import InvalidIndex
from tracea.semantic.index import Const, Index, Lookup, Param, Var, ceil_div, equal
from tracea.semantic.interpreter import interpret
from tracea.semantic.nodes import For, Let, Node, block
from tracea.semantic.nodes_async import Gather
from tracea.semantic.predicate import And, Predicate
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import BufferRole, Table, TileKernel

TASK, L, POINT = Var("i"), Var("l"), Var("point")
N, ANY, D = Param("n", 0, 1000), Param("any", 0, 1000), Param("d", 1, 1000)
N_FROM_1 = Param("n", 1, 1000)
TABLE = Table(name="table", length=Const(2), minimum=Const(0), maximum=Const(3))


def with_place(place: Index, *, n: Param = N, by: Param = D) -> TileKernel:
    """Return a kernel that reads x, of as many elements as ``by`` says, at one place."""
    x, y = x_and_y(4)
    task = spread(TASK, 4, copied(at("x", place), at("y", TASK)))
    return vectors(task, params=(n, by), buffers=(replace(x, shape=(by,)), y))


def of_quotient(n: Param) -> TileKernel:
    """Return a kernel with a task for each part of n, of which none is written where there is none."""
    count = ceil_div(n, D)
    x, y = argument("x", DType.F32, (1,), BufferRole.INPUT), argument("y", DType.F32, (count,), BufferRole.OUTPUT)
    return vectors(spread(TASK, count, copied(at("x", 0), at("y", TASK))), params=(n, D), buffers=(x, y))


def test_a_remainder_whose_printed_dividend_may_be_negative_is_refused() -> None:
    refused(with_place((N + D - 1) % D), "division", "dividend n - 1 of .* % d was not shown to be at least 0")
    assert prove(with_place((N_FROM_1 + D - 1) % D, n=N_FROM_1)).facts


def test_a_quotient_rounded_up_that_is_printed_by_one_rounded_down_is_refused_where_it_may_be_zero() -> None:
    refused(of_quotient(N), "division", "dividend n - 1 of .* / d was not shown to be at least 0")
    assert str(ceil_div(N, D).simplify()) == "((n - 1) / d) + 1"
    assert prove(of_quotient(N_FROM_1)).facts


def test_the_number_of_tasks_that_is_printed_for_a_step_is_looked_at_too() -> None:
    length = Var("length")
    task = replace(
        spread(TASK, N, copied(at("x", TASK, last=length), at("y", TASK, last=length)), step=D), length=length
    )
    kernel = vectors(task, params=(N, D), buffers=x_and_y(N))
    refused(kernel, "division", "dividend n - 1 of .* / d")


def test_a_quotient_by_a_size_that_may_be_negative_is_not_taken_for_zero() -> None:
    size = Param("size", -4, 0)
    x, y = argument("x", DType.F32, (1,), BufferRole.INPUT), argument("y", DType.F32, (8,), BufferRole.OUTPUT)
    task = spread(TASK, 8, copied(at("x", TASK // (size + 8)), at("y", TASK)))
    refused(vectors(task, params=(size,), buffers=(x, y)), "bounds", "x axis 0: .* was not shown")


@pytest.mark.parametrize(
    ("stride", "match"),
    [
        (N // ANY, "x: divisor any of n / any was not shown to be at least 1"),
        ((N - 7) // 3, "x: dividend n - 7 of .* was not shown to be at least 0"),
    ],
    ids=str,
)
def test_a_stride_is_divided_by_what_is_not_zero(stride: Index, match: str) -> None:
    x, y = x_and_y(4)
    task = spread(TASK, 4, copied(at("x", TASK), at("y", TASK)))
    refused(vectors(task, params=(N, ANY), buffers=(replace(x, strides=(stride,)), y)), "division", match)


def test_an_assumption_does_not_show_its_own_divisor() -> None:
    task = spread(TASK, 4, Let(var=L, value=N // ANY), copied(at("x", TASK), at("y", TASK)))
    kernel = vectors(task, params=(N, ANY), assumptions=equal(Const(8) % ANY, 0))
    refused(kernel, "division", "vectors: divisor any of 8 % any was not shown to be at least 1")


def looked_up(place: Index, table: str = "table") -> TileKernel:
    nodes: tuple[Node, ...] = (Let(var=L, value=Lookup(table, place)), copied(at("x", L), at("y", TASK)))
    return vectors(spread(TASK, 4, *nodes), tables=(TABLE,))


@pytest.mark.parametrize("place", [TASK, TASK - 1, TASK - 10, TASK // 2 + 1, TASK + 1_000_000_000], ids=str)
def test_an_entry_that_a_table_may_not_have_is_refused(place: Index) -> None:
    refused(looked_up(place), "bounds", r"Let at 0.0.0: table.*: entry .* was not shown to be in \[0, 2\)")
    assert prove(looked_up(TASK // 2)).facts
    refused(looked_up(TASK // 2, "other"), "bounds", "a table that vectors does not have")


@pytest.mark.parametrize(("place", "entry"), [(Const(2), 2), (Const(-1), -1)], ids=["above", "below"])
def test_the_interpreter_names_an_entry_that_a_table_does_not_have(place: Index, entry: int) -> None:
    arrays = {name: np.zeros(4, np.float32) for name in "xy"}
    with pytest.raises(InvalidIndex, match=f"table: got {entry}, expected 0 .. 1"):
        interpret(looked_up(place), arrays, {}, tables={"table": np.array([0, 3], np.int32)})


def gathered(*conditions: Predicate) -> TileKernel:
    x, y = x_and_y(4)
    gather = Gather(
        source="x", points=(POINT,), coordinates=(POINT,), predicate=And(conditions), target=at("y", TASK * 4, last=4)
    )
    return vectors(spread(TASK, 1, gather), params=(ANY,), buffers=(x, y))


def test_a_condition_of_a_gather_does_not_show_its_own_divisor() -> None:
    even = equal(Const(8) % ANY, 0)
    refused(gathered(even, ANY > 0), "division", "divisor any of 8 % any")
    assert prove(gathered(ANY > 0, even)).facts


@pytest.mark.parametrize("of_tasks", [True, False], ids=["tasks", "loop"])
def test_a_loop_in_steps_whose_end_does_not_fit_its_width_is_refused(of_tasks: bool) -> None:
    def stepping(most: int) -> TileKernel:
        size, length, column = Param("size", 0, most), Var("length"), Var("column")
        if of_tasks:
            piece = copied(at("x", TASK, last=length), at("y", TASK, last=length))
            tasks = replace(spread(TASK, size, piece, step=4096), length=length)
            return vectors(tasks, params=(size,), buffers=x_and_y(size))
        piece = copied(at("x", TASK, column, last=length), at("y", TASK, column, last=length))
        row = For(var=column, extent=size, step=Const(4096), length=length, body=block(piece))
        return vectors(spread(TASK, 4, row), params=(size,), buffers=x_and_y(4, size))

    refused(stepping(2**63 - 1), "width", r"size \+ 4095 has 4095 .. \d+, which does not fit 64 bits")
    assert prove(stepping(2**62)).facts
