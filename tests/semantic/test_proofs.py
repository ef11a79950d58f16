"""Each proof refuses a kernel that is wrong in just the way that it is there for, and says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from objects import (
    flash_attention,
    halo_conv,
    implicit_conv,
    packed_gemm,
    registry_gemm,
    sm80_gemm,
    sm90_gemm,
    stream_k,
)
from objects.declare import argument, scratch
from objects.vectors import at, copied, refused, repeated, spread, vectors, when, x_and_y

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.errors import ProofFailed
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, differs, equal, minimum
from tracea.semantic.nodes import (
    Barrier,
    CopyTile,
    For,
    If,
    Intrinsic,
    Let,
    Level,
    MicroKernel,
    Node,
    Pack,
    Parallel,
    PointwiseTile,
    block,
)
from tracea.semantic.nodes_async import (
    AwaitFlag,
    Gather,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Mma,
    WaitGroup,
    WgmmaWait,
)
from tracea.semantic.predicate import FALSE, TRUE, And
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.testing.mutants import edited, places

N = Param("n")
ROLES = {"x": BufferRole.INPUT, "y": BufferRole.OUTPUT, "t": BufferRole.SCRATCH}


def change(kernel: TileKernel, kind: type[Node], how: Callable[[Any], Node | None], which: int = 0) -> TileKernel:
    """Return the kernel with one node of a kind changed."""
    place, node = [(place, node) for place, node in places(kernel.body) if isinstance(node, kind)][which]
    return edited(kernel, place, how(node))


def pointwise(*body: Node, buffers: tuple[Buffer, ...] = (), params: tuple[Param, ...] = (N,)) -> TileKernel:
    """Return a kernel over vectors x and y of n elements."""
    vectors = tuple(argument(name, DType.F32, (N,), ROLES[name]) for name in ("x", "y"))
    return TileKernel(
        name="vectors",
        op=None,
        variant="test",
        schedule=Schedule(),
        target="cpu",
        params=params,
        buffers=(*vectors, *buffers),
        body=block(*body),
    )


def double(offset: Any, extent: Any, target: str = "y", source: str = "x") -> PointwiseTile:
    """Return a node that doubles an interval."""
    vector = argument("v", DType.F32, (N,), BufferRole.INPUT)
    region = vector.region((offset,), (extent,))
    return PointwiseTile(
        intrinsic=Intrinsic(name="double", meaning=lambda: None, source="definition"),
        expr=Input(0) * 2.0,
        inputs=(replace(region, buffer=source),),
        target=replace(region, buffer=target),
    )


def tasks(body: Callable[[Var, Var], tuple[Node, ...]], *, step: int = 16, name: str = "i") -> Parallel:
    """Return a task loop over n in steps."""
    var, length = Var(name), Var(f"{name}_length")
    inside = block(*body(var, length))
    return Parallel(level=Level.TASK, var=var, extent=N, step=Const(step), length=length, body=inside)


def test_a_vector_kernel_is_proved() -> None:
    certificate = prove(pointwise(tasks(lambda i, size: (double(i, size),))))
    assert certificate.about("coverage")[0].statement == "y is tiled once by i/16"
    assert any(guard.startswith("0 <= n <= ") for guard in certificate.guards)


def test_bounds_refuse_a_tail_without_its_mask() -> None:
    refused(pointwise(tasks(lambda i, _: (double(i, 16),))), "bounds", "axis 0: end .* <= n was not shown")


def test_bounds_refuse_a_halo_copy_without_its_mask() -> None:
    refused(change(halo_conv.build(), CopyTile, lambda node: replace(node, masked=False)), "bounds")


def test_bounds_refuse_a_gather_that_lost_part_of_its_predicate() -> None:
    kernel = implicit_conv.build()
    predicate = next(node for _, node in places(kernel.body) if isinstance(node, Gather)).predicate
    assert isinstance(predicate, And)
    assert len(predicate.parts) == 6
    # Without the second, depth < DEPTH, it reads within bounds what the weights' zeros cancel.
    for dropped in (0, 2, 3, 4, 5):
        parts = tuple(part for number, part in enumerate(predicate.parts) if number != dropped)
        refused(change(kernel, Gather, lambda node, parts=parts: replace(node, predicate=And(parts))), "bounds")


def test_division_refuses_a_divisor_that_may_be_zero() -> None:
    zero = Param("zero", 0)
    body = (Let(var=Var("q"), value=N // zero), tasks(lambda i, size: (double(i, size),)))
    refused(pointwise(*body, params=(N, zero)), "division", "was not shown to be at least 1")


@pytest.mark.parametrize("step", [Const(0), Const(-16), Param("zero", 0)], ids=str)
def test_division_refuses_a_step_that_is_not_positive(step: Index) -> None:
    params = (N, step) if isinstance(step, Param) else (N,)
    for loop in (
        For(var=Var("k"), extent=Const(4), step=step, body=block(double(0, N))),
        replace(tasks(lambda i, size: (double(i, size),)), step=step),
    ):
        refused(pointwise(loop, params=params), "division", f"step {step} of [ki] was not shown to be at least 1")
    hidden = (Let(var=Var("none"), value=Const(0)), For(var=Var("k"), extent=Const(4), step=Var("none"), body=block()))
    refused(pointwise(*hidden), "division", "step 0 of k was not shown")


def test_division_refuses_a_dividend_that_may_be_negative() -> None:
    body = (Let(var=Var("q"), value=(N - 1) // 2), tasks(lambda i, size: (double(i, size),)))
    refused(pointwise(*body), "division", "was not shown to be at least 0")


def test_width_refuses_what_does_not_fit_int32() -> None:
    body = (Let(var=Var("q"), value=N * 2, bits=32), tasks(lambda i, size: (double(i, size),)))
    refused(pointwise(*body), "width", "does not fit 32 bits")


def test_width_refuses_what_does_not_fit_int64() -> None:
    body = (Let(var=Var("q"), value=N * N * N), tasks(lambda i, size: (double(i, size),)))
    refused(pointwise(*body), "width", "does not fit 64 bits")


def test_scratch_refuses_a_size_that_may_be_negative_and_one_over_the_limit() -> None:
    body = tasks(lambda i, size: (double(i, size),))
    negative = scratch("t", DType.F32, MemorySpace.TEAM, N - 4)
    refused(pointwise(body, buffers=(negative,)), "scratch", "at least 0")
    fixed = scratch("t", DType.F32, MemorySpace.TEAM, 1000)
    kernel = pointwise(body, buffers=(fixed,))
    assert prove(kernel, limits_bytes={MemorySpace.TEAM: 4032}).facts
    with pytest.raises(ProofFailed, match="exceed the limit of 4000 bytes"):
        prove(kernel, limits_bytes={MemorySpace.TEAM: 4000})


def test_shapes_refuse_operands_that_do_not_fit_their_tile() -> None:
    def other(i: Var, size: Var) -> tuple[Node, ...]:
        tile = double(i, size)
        return (replace(tile, inputs=(double(i, minimum(size, 8)).inputs[0],)),)

    refused(pointwise(tasks(other)), "shapes", "broadcast")
    wrong = change(packed_gemm.build(), Pack, lambda node: replace(node, panel=node.panel - 1))
    refused(wrong, "shapes", "panels")


def test_coverage_refuses_an_output_that_is_not_written() -> None:
    refused(pointwise(), "coverage", "no node")
    scratch_only = scratch("t", DType.F32, MemorySpace.TEAM, N)
    kernel = pointwise(tasks(lambda i, size: (double(i, size, target="t"),)), buffers=(scratch_only,))
    refused(kernel, "coverage", "never written")


def test_shapes_refuse_a_tile_that_the_routine_cannot_hold() -> None:
    def wider(node: For) -> For:
        return replace(node, step=node.step + 1)

    refused(change(halo_conv.build(), For, wider, which=2), "shapes", r"5\) rows, the routine holds 4")


def test_coverage_refuses_a_gap() -> None:
    refused(pointwise(tasks(lambda i, size: (double(i, minimum(size, 15)),))), "coverage", "was not shown to tile")


def test_coverage_refuses_an_element_written_twice() -> None:
    twice = For(var=Var("again"), extent=Const(2), body=block(double(0, N)))
    refused(pointwise(Parallel(level=Level.TASK, var=Var("t"), extent=Const(1), body=block(twice))), "coverage")
    both = (tasks(lambda i, size: (double(i, size),)), Barrier(), tasks(lambda i, size: (double(i, size),), name="j"))
    refused(pointwise(*both), "coverage", "exclude each other")


def test_coverage_refuses_a_write_that_happens_sometimes() -> None:
    guarded = tasks(lambda i, size: (If(predicate=i > 0, then=block(double(i, size))),))
    refused(pointwise(guarded), "coverage")


HALF, ANY, TASK, COLUMN, STEP = Param("m") // 2, Param("m"), Var("i"), Var("j"), Var("k")
FOUR = spread(TASK, 4, copied(at("x", TASK), at("y", TASK)))
ROW = repeated(COLUMN, 4, copied(at("x", TASK, COLUMN), at("y", TASK, COLUMN)))


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (when(HALF >= 1, repeated(STEP, HALF, when(equal(STEP, 0), FOUR))), (4,)),
        (when(minimum(ANY, 1) >= 1, replace(FOUR, extent=minimum(ANY, 1) * 4)), (4,)),
        (spread(TASK, N, when(TASK >= 1, repeated(STEP, TASK, when(equal(STEP, 0), ROW)))), (N, 4)),
    ],
    ids=["loop", "count", "loop in a task"],
)
def test_coverage_refuses_a_loop_that_only_its_guard_shows_to_run(body: Node, shape: tuple[Index | int, ...]) -> None:
    refused(vectors(body, params=(ANY, N), buffers=x_and_y(*shape)), "coverage")


def test_coverage_accepts_the_two_branches_of_a_condition() -> None:
    def either(i: Var, size: Var) -> tuple[Node, ...]:
        return (If(predicate=i > 64, then=block(double(i, size)), otherwise=block(double(i, size))),)

    assert prove(pointwise(tasks(either))).about("coverage")


def test_coverage_refuses_a_sum_that_may_never_begin() -> None:
    kernel = packed_gemm.build()
    old = packed_gemm.K
    empty = Param(old.name, 0)

    def swap(node: For) -> Node:
        return replace(node, extent=empty)

    changed = change(kernel, For, swap, which=1)
    refused(replace(changed, params=(*(p for p in kernel.params if p != old), empty)), "bounds")


@pytest.mark.parametrize("wrong", [TRUE, FALSE])
def test_coverage_refuses_a_sum_that_starts_or_finishes_wrongly(wrong: Any) -> None:
    refused(change(packed_gemm.build(), MicroKernel, lambda node: replace(node, accumulate=wrong)), "coverage")
    finish = change(packed_gemm.build(), MicroKernel, lambda node: replace(node, finish=wrong))
    refused(finish, "coverage" if wrong == FALSE else "reduction")


def test_reduction_refuses_operands_at_different_steps() -> None:
    def shift(node: Pack) -> Pack:
        k_block = node.source.extent[-1]
        source = replace(node.source, offset=(node.source.offset[0], Const(0)))
        assert str(k_block) == "k_block"
        return replace(node, source=source)

    refused(change(packed_gemm.build(), Pack, shift, which=1), "reduction", "first step of a and of b differ")


def test_reduction_refuses_another_panel_than_the_tiles() -> None:
    def shift(node: MicroKernel) -> MicroKernel:
        return replace(node, b=replace(node.b, offset=(Const(0), *node.b.offset[1:])))

    refused(change(packed_gemm.build(), MicroKernel, shift), "reduction", "columns of b and of the tile differ")


def test_races_refuse_tasks_that_overlap() -> None:
    shared = scratch("t", DType.F32, MemorySpace.TEAM, 16)

    def through_scratch(i: Var, size: Var) -> tuple[Node, ...]:
        fill, take = double(i, size, target="t"), double(i, size, source="t")
        at_zero = replace(fill.target, offset=(Const(0),))
        return (replace(fill, target=at_zero), replace(take, inputs=(at_zero,)))

    kernel = pointwise(tasks(through_scratch), buffers=(shared,))
    refused(kernel, "races", "neither disjoint nor separated by a barrier")
    own = replace(shared, space=MemorySpace.THREAD)
    assert prove(replace(kernel, buffers=(*kernel.buffers[:2], own))).facts


def test_races_refuse_a_write_that_every_thread_does() -> None:
    refused(pointwise(double(0, N)), "races", "every executor writes y")


def test_races_refuse_a_write_to_an_input() -> None:
    def overwrite(i: Var, size: Var) -> tuple[Node, ...]:
        return (double(i, size), double(i, size, target="x"))

    refused(pointwise(tasks(overwrite)), "races", "the caller's to keep")


def test_initialization_refuses_a_read_of_what_was_not_written() -> None:
    def half(i: Var, size: Var) -> tuple[Node, ...]:
        fill, take = double(i, minimum(size, 8), target="t"), double(i, size, source="t")
        at_zero = replace(fill.target, offset=(Const(0),))
        return (replace(fill, target=at_zero), replace(take, inputs=(replace(at_zero, extent=take.target.extent),)))

    own = scratch("t", DType.F32, MemorySpace.THREAD, 16)
    refused(pointwise(tasks(half), buffers=(own,)), "initialized", "written all of that")


def test_initialization_refuses_an_output_that_is_read_before_it_is_written() -> None:
    more = argument("z", DType.F32, (4,), BufferRole.OUTPUT)
    write, read = copied(at("x", TASK), at("y", TASK)), copied(at("y", TASK), at("z", TASK))
    kernel = vectors(spread(TASK, 4, read, write), buffers=(*x_and_y(4), more))
    refused(kernel, "initialized", "CopyTile at 0.0.0: reads y.*, and no node before it")
    assert prove(replace(kernel, body=block(spread(TASK, 4, write, read)))).about("initialized")


def test_a_condition_of_more_cases_than_anybody_waits_for_is_refused_by_their_number() -> None:
    def differing(count: int) -> TileKernel:
        condition = And(tuple(differs(N, 7 * number + 1) for number in range(count)))
        return vectors(spread(TASK, 4, when(condition, copied(at("x", TASK), at("y", TASK)))), params=(N,))

    refused(differing(12), "conditions", "n != 1 and n != 8 .* has 4096 cases, of which at most 256 are looked at")
    refused(differing(8), "coverage")  # 256 cases are looked at


def test_an_array_without_an_axis_is_refused_by_name() -> None:
    refused(vectors(copied(at("x"), at("y")), buffers=x_and_y()), "shapes", "x: has no axis")


def test_slots_refuse_a_laxer_wait() -> None:
    laxer = change(sm80_gemm.build(3), WaitGroup, lambda node: replace(node, pending=node.pending + 1))
    refused(laxer, "slots", "only groups below")


def test_slots_refuse_another_parity_slot_count_or_number_of_bytes() -> None:
    kernel = sm90_gemm.build(3)
    for which in (0, 1):
        flipped = change(kernel, MbarrierWait, lambda node: replace(node, parity=(node.parity + 1) % 2), which)
        refused(flipped, "slots", "needs")
        moved = change(kernel, MbarrierWait, lambda node: replace(node, slot=(node.slot + 1) % 3), which)
        refused(moved, "slots", "is in slot")
        counted = change(kernel, MbarrierInit, lambda node: replace(node, count=node.count + 1), which)
        refused(counted, "rule B", "arrivals a phase")
    refused(change(kernel, MbarrierExpect, lambda node: replace(node, nbytes=node.nbytes - 2)), "slots", "bytes")
    refused(change(kernel, WgmmaWait, lambda node: replace(node, pending=node.pending + 1)), "slots", "groups below")


def test_products_refuse_a_sum_that_is_lost_or_starts_late() -> None:
    refused(change(sm80_gemm.build(), Mma, lambda node: replace(node, accumulate=FALSE)), "products", "starts anew")
    late = change(sm80_gemm.build(), Mma, lambda node: replace(node, accumulate=Var("k") > 1))
    with pytest.raises(ProofFailed):
        prove(late)


def test_products_refuse_a_trip_count_that_does_not_cover_k() -> None:
    kernel = flash_attention.build()
    assert prove(kernel)
    short = change(sm80_gemm.build(2), For, lambda node: replace(node, extent=ceil_div(sm80_gemm.K - 1, 16)), which=1)
    with pytest.raises(ProofFailed):
        prove(short)


def test_flags_refuse_an_entry_of_another_worker() -> None:
    def own(node: AwaitFlag) -> AwaitFlag:
        return replace(node, flag=replace(node.flag, offset=(Var("worker"), node.flag.offset[1])))

    refused(change(stream_k.build(), AwaitFlag, own), "flags", "does not wait for its flag")


def test_an_error_names_node_loops_and_limit() -> None:
    with pytest.raises(ProofFailed) as caught:
        prove(pointwise(tasks(lambda i, _: (double(i, 16),))))
    text = str(caught.value)
    for part in ("PointwiseTile at 0.0.0", "x axis 0", "<= n", "0 <= i/16 < (n + 15) / 16"):
        assert part in text


def test_coverage_refuses_loops_without_an_iteration() -> None:
    empty = For(var=Var("never"), extent=Const(0), body=block(double(0, N)))
    refused(pointwise(Parallel(level=Level.TASK, var=Var("t"), extent=Const(1), body=block(empty))), "coverage")
    none = Parallel(level=Level.TASK, var=Var("t"), extent=Const(0), body=block(double(Var("t"), N)))
    with pytest.raises(ProofFailed):
        prove(pointwise(none))


def test_initialization_refuses_sums_that_another_thread_may_hold() -> None:
    kernel = registry_gemm.build()
    buffers = tuple(
        replace(buffer, space=MemorySpace.THREAD) if buffer.name == "sums" else buffer for buffer in kernel.buffers
    )
    refused(replace(kernel, buffers=buffers), "initialized", "sums")
