"""Products whose sum over K is parted between cores: when they are chosen, which bits they have, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.cases import gemm_cases
from tests.kernels.conformance import build, random_inputs, run, unit_of
from tests.kernels.native import run_isas

from tracea.core.expr import Input
from tracea.core.op import GemmOp, ReduceKind
from tracea.errors import InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.gemm.gemv_split import STREAM_SPLIT, build_stream_split
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import Const, FloorDiv, Var
from tracea.semantic.nodes import Barrier, MicroKernel, Node, Parallel, ReduceTile, Region
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load
from tracea.testing.mutants import edited, places

OP = GemmOp.of(m=2, n=1000, k=2048, bias=True)


def kernel() -> TileKernel:
    target = load("avx512")
    assert STREAM_SPLIT.default_schedule is not None
    schedule = STREAM_SPLIT.default_schedule(OP, target).with_values(kc=1024, fold=512)
    return build_stream_split(OP, schedule, target)


def changed(kind: type[Node], how: Callable[[Any], Node | None]) -> TileKernel:
    """Return the kernel with its first node of a kind changed, or left out."""
    whole = kernel()
    place, node = next((place, node) for place, node in places(whole.body) if isinstance(node, kind))
    return edited(whole, place, how(node))


def moved(region: Region, axis: int, offset: Any) -> Region:
    return Region(region.buffer, (*region.offset[:axis], offset, *region.offset[axis + 1 :]), region.extent)


def narrowed(region: Region, axis: int, extent: Any) -> Region:
    return Region(region.buffer, region.offset, (*region.extent[:axis], extent, *region.extent[axis + 1 :]))


def refused(mutant: TileKernel, proof: str, match: str | None = None) -> None:
    with pytest.raises(ProofFailed, match=match) as caught:
        prove(mutant)
    assert caught.value.proof == proof, str(caught.value)


def test_two_cores_share_the_sum_where_b_is_worth_a_barrier() -> None:
    one, two = load("avx512"), replace(load("avx512"), cores=2)
    assert candidates(GemmOp.of(m=1, n=1000, k=2048), two)[0].id == "gemm.stream_split"
    assert candidates(GemmOp.of(m=4, n=4096, k=4096), two)[0].id == "gemm.stream_split"
    assert candidates(GemmOp.of(m=1, n=1000, k=2048), one)[0].id == "gemm.stream"
    assert candidates(GemmOp.of(m=1, n=1000, k=100), two)[0].id != "gemm.stream_split"


def test_default_has_one_part_a_core() -> None:
    for cores in (1, 2, 3, 8):
        target = replace(load("avx512"), cores=cores)
        assert STREAM_SPLIT.default_schedule is not None
        schedule = STREAM_SPLIT.default_schedule(OP, target)
        assert -(-2048 // schedule.integer("kc")) == cores
        assert prove(build_stream_split(OP, schedule, target)).about("reduction")


@pytest.mark.parametrize("isa", run_isas())
def test_bits_do_not_depend_on_the_threads(isa: str, rng: np.random.Generator) -> None:
    case = next(case for case in gemm_cases() if case.name == "stream_split")
    unit, inputs = unit_of(gemm_cases(), isa), random_inputs(case.op, rng)
    first = run(unit, build(case, isa), case.op, inputs, threads=1)
    for threads in (2, 3, 5, 2):
        np.testing.assert_array_equal(run(unit, build(case, isa), case.op, inputs, threads=threads), first)


def test_kernel_is_proved_and_says_how_its_sum_is_parted() -> None:
    statements = [fact.statement for fact in prove(kernel()).about("reduction")]
    assert statements[0].startswith("parts pc/1024 cover K once, each in a slot that ReduceTile at ")


def test_partial_sums_without_the_barrier_are_refused() -> None:
    refused(changed(Barrier, lambda _: None), "races")


def test_parts_that_miss_or_repeat_a_step_are_refused() -> None:
    def short(node: MicroKernel) -> MicroKernel:
        return replace(node, a=narrowed(node.a, 1, node.a.extent[1] - 1), b=narrowed(node.b, 0, node.b.extent[0] - 1))

    refused(changed(MicroKernel, short), "reduction", "was not shown to cover")
    refused(changed(Parallel, lambda node: replace(node, step=Const(1000))), "reduction")


def test_operands_at_different_steps_are_refused() -> None:
    refused(changed(MicroKernel, lambda node: replace(node, a=moved(node.a, 1, Const(0)))), "reduction", "first step")


def test_columns_and_rows_in_the_wrong_place_are_refused() -> None:
    other = changed(MicroKernel, lambda node: replace(node, b=moved(node.b, 1, Const(0))))
    refused(other, "reduction", "columns of b")
    shifted = changed(ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 2, Const(0)),)))
    refused(shifted, "reduction", "columns of partials")
    row = changed(ReduceTile, lambda node: replace(node, inputs=(moved(node.inputs[0], 1, Const(0)),)))
    refused(row, "reduction", "rows of partials")


def test_parts_that_share_a_slot_are_refused() -> None:
    refused(changed(MicroKernel, lambda node: replace(node, c=moved(node.c, 0, Const(0)))), "reduction")
    half = FloorDiv(Var("pc"), Const(2048))
    refused(changed(MicroKernel, lambda node: replace(node, c=moved(node.c, 0, half))), "reduction")


def test_slots_that_are_not_all_added_are_refused() -> None:
    def one(node: ReduceTile) -> ReduceTile:
        return replace(node, inputs=(narrowed(node.inputs[0], 0, Const(1)),), shape=(Const(1), *node.shape[1:]))

    refused(changed(ReduceTile, one), "reduction")


def test_slots_that_are_not_plainly_summed_are_refused() -> None:
    refused(changed(ReduceTile, lambda node: replace(node, kind=ReduceKind.MAX)), "reduction", "is not the sum")
    refused(changed(ReduceTile, lambda node: replace(node, prologue=Input(0) * 2.0)), "reduction", "is not the sum")


def test_partial_sums_that_nobody_adds_are_refused() -> None:
    def unread(node: ReduceTile) -> ReduceTile:
        a = next(buffer for buffer in kernel().buffers if buffer.name == "b")
        whole = a.region((0, node.target.offset[-1]), (a.shape[0], node.target.extent[-1]))
        return replace(node, inputs=(whole,), shape=whole.extent)

    refused(changed(ReduceTile, unread), "reduction", "never added")


def test_longer_sum_than_slots_can_count_is_an_error_with_its_limit() -> None:
    target = load("avx512")
    assert STREAM_SPLIT.default_schedule is not None
    small = STREAM_SPLIT.default_schedule(OP, target).with_values(kc=1)
    with pytest.raises(InvalidShape, match="4096"):
        arguments(build_stream_split(OP, small, target), GemmOp.of(m=2, n=1000, k=5000, bias=True))


def test_schedules_and_ops_that_do_not_fit_are_refused_with_their_numbers() -> None:
    target = load("avx512")
    assert STREAM_SPLIT.default_schedule is not None
    good = STREAM_SPLIT.default_schedule(OP, target)
    for bad in ({"kc": 0}, {"nc": 0}, {"fold": -1}, {"steps": 0}, {"prefetch": -1}):
        with pytest.raises(InvalidSchedule):
            build_stream_split(OP, good.with_values(**bad), target)
    unmet = {requirement.name for requirement, _ in find("gemm.stream_split").unmet(GemmOp.of(m=5, n=8, k=8), target)}
    assert unmet == {"m <= 4"}
    batched = GemmOp.of(m=1, n=8, k=8, batch=(3,))
    assert {requirement.name for requirement, _ in STREAM_SPLIT.unmet(batched, target)} == {"one product"}
