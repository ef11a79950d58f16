"""Who touches what at the same time, and who meets: barriers, subgroups, roles, and turns that differ."""

from __future__ import annotations

import pytest
from objects.declare import argument, scratch, variables
from objects.vectors import at, copied, refused, repeated, spread, vectors, when, x_and_y

from tracea.core.dtype import DType
from tracea.errors import ProofFailed
from tracea.semantic.index import Const, Index, Param, Var, equal
from tracea.semantic.nodes import Barrier, Level, Node, Parallel, block
from tracea.semantic.nodes_async import Role, Roles, TileLoop
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.resources import block_resources
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

N = Param("n", 0, 65_535)
TASK, OTHER, STEP, GRID, WARP, LANE = variables("i j k g w lane")
TILE, TURN, FIRST = variables("tile turn first")
SHARED = scratch("shared", DType.F32, MemorySpace.TEAM, 4)
MEET = Barrier(level=Level.BLOCK)


def roles(count: int, *body: Node) -> Roles:
    return Roles(roles=(Role(name="only", executors=count, index=WARP, body=block(*body)),))


# ---- threads of a CPU team ----


def of_a_team(*body: Node) -> TileKernel:
    return vectors(*body, buffers=(*x_and_y(4), SHARED))


FILL = spread(OTHER, 4, copied(at("x", OTHER), at("shared", OTHER)))


def test_a_barrier_inside_a_task_is_refused_where_threads_without_a_task_never_come() -> None:
    task = spread(TASK, 4, copied(at("x", TASK), at("y", TASK)), Barrier())
    refused(of_a_team(task), "barriers", "Barrier at 0.0.1: stands in the task loop i")
    assert prove(of_a_team(spread(TASK, 4, copied(at("x", TASK), at("y", TASK))), Barrier())).about("barriers")


def test_a_barrier_inside_a_task_orders_nothing() -> None:
    own, turned = copied(at("x", TASK), at("shared", TASK)), copied(at("shared", 3 - TASK), at("y", TASK))
    refused(of_a_team(FILL, Barrier(), spread(TASK, 4, own, Barrier(), turned)), "barriers", "the task loop i")
    refused(of_a_team(FILL, Barrier(), spread(TASK, 4, own, turned)), "races", "neither disjoint")
    assert prove(of_a_team(FILL, Barrier(), spread(TASK, 4, turned))).facts


def test_a_barrier_of_whom_the_kernel_has_none_is_refused() -> None:
    tasks = spread(TASK, 4, copied(at("x", TASK), at("y", TASK)))
    refused(of_a_team(tasks, MEET), "barriers", "no block meets in a kernel for a CPU")
    refused(of_a_grid(warps(2, *OWN, Barrier())), "barriers", "no team meets in a kernel for a GPU")


# ---- executors of a block ----


def of_a_grid(*body: Node, rows: Index | int = N, blocks: Index | int | None = None, shared: int = 4) -> TileKernel:
    """Return a kernel whose blocks take rows of four elements, with shared memory."""
    x = argument("x", DType.F32, (rows, 4), BufferRole.INPUT)
    y = argument("y", DType.F32, (rows, 4), BufferRole.OUTPUT)
    tile = scratch("shared", DType.F32, MemorySpace.TEAM, shared)
    grid = spread(GRID, rows if blocks is None else blocks, *body, level=Level.BLOCK)
    return vectors(grid, params=(N,), buffers=(x, y, tile), target="sm_80")


def warps(count: Index | int, *body: Node, var: Var = WARP) -> Parallel:
    return spread(var, count, *body, level=Level.SUBGROUP)


def halves(place: Index, row: Index = GRID, number: Index = WARP) -> tuple[Node, Node]:
    """Return what carries an executor's half of a row over shared memory."""
    there = copied(at("x", row, number * 2, last=2), at("shared", place, last=2))
    back = copied(at("shared", place, last=2), at("y", row, number * 2, last=2))
    return there, back


OWN = halves(WARP * 2)


def test_warps_with_halves_of_their_own_are_proved_and_those_that_overlap_are_not() -> None:
    assert prove(of_a_grid(warps(2, *OWN, MEET))).about("barriers")
    refused(of_a_grid(warps(2, *halves(WARP))), "races", "neither disjoint")


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ((warps(2, *OWN, when(equal(WARP, 0), MEET)),), "only subgroups with w == 0 meet here"),
        ((warps(2, *OWN, repeated(STEP, WARP, MEET)),), "the loop k, which may be another one for each w"),
        ((warps(2, *OWN, spread(LANE, 32, MEET, level=Level.LANE)),), "the lane loop lane, which only a part"),
        ((warps(2, *OWN), warps(1, MEET, var=OTHER)), "begins executors beside those of Parallel at 0.0.0"),
        ((roles(2, *OWN, MEET),), "the role loop w, which only a part of the block runs"),
    ],
    ids=["guard", "loop", "lanes", "others", "role"],
)
def test_a_block_barrier_that_not_all_subgroups_meet_is_refused(body: tuple[Node, ...], match: str) -> None:
    refused(of_a_grid(*body), "barriers", match)


def test_what_is_touched_before_a_block_has_executors_is_refused() -> None:
    filled = copied(at("x", GRID, WARP * 2, last=2), at("shared", WARP * 2, last=2))
    taken = copied(at("shared", 0, last=4), at("y", GRID, 0, last=4))
    refused(of_a_grid(warps(2, filled), taken), "barriers", "read shared.* outside of subgroups and roles")


def test_executors_of_one_role_that_overlap_are_refused_as_subgroups_are() -> None:
    assert prove(of_a_grid(roles(2, *OWN))).facts
    refused(of_a_grid(roles(2, *halves(WARP))), "races", "neither disjoint")


def test_what_two_roles_touch_is_in_no_order() -> None:
    there, _ = OWN
    _, back = halves(OTHER * 2, number=OTHER)
    writer = Role(name="writer", executors=2, index=WARP, body=block(there))
    reader = Role(name="reader", executors=2, index=OTHER, body=block(back))
    refused(of_a_grid(Roles(roles=(writer, reader))), "races", "neither disjoint")


def in_turns(*body: Node) -> TileLoop:
    """Return the loop of ten blocks over 500 tiles, each a row."""
    return TileLoop(
        worker=GRID,
        workers=Const(10),
        tiles=Const(500),
        steps=Const(1),
        share=Const(0),
        shares=Const(1),
        tile=TILE,
        turn=TURN,
        first=FIRST,
        body=block(*body),
    )


def test_subgroups_in_different_turns_are_not_taken_to_be_in_one() -> None:
    # Two pairs of a turn and a warp have one place: turn 1 of warp 0 and turn 0 of warp 1.
    shifted, own = halves(TURN * 2 + WARP * 2, row=TILE), halves(WARP * 2, row=TILE)
    refused(of_a_grid(warps(2, in_turns(*shifted)), rows=500, blocks=10, shared=1200), "races", "neither disjoint")
    assert prove(of_a_grid(warps(2, in_turns(*own)), rows=500, blocks=10)).facts


def test_a_block_without_a_thread_has_no_resources_to_name() -> None:
    with pytest.raises(ProofFailed, match="resources: vectors: 0 executors of one program, must be at least 1"):
        block_resources(of_a_grid(warps(0, *OWN)))
