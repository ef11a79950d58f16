"""Persistent blocks whose warpgroups take turns: what is proved of them, and every mistake that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tracea.emitters.cuda.emitter import emit
from tracea.emulator import emulate
from tracea.errors import InvalidSchedule, ProofFailed, TraceaError
from tracea.kernels.arguments import arguments
from tracea.kernels.gemm.gpu.tma_variants import WGMMA
from tracea.semantic.index import Const, Index, Var
from tracea.semantic.interpreter import interpret
from tracea.semantic.nodes import Node
from tracea.semantic.nodes_async import (
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    TileLoop,
    WgmmaCommit,
    WgmmaWait,
)
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.minimal_sync import superfluous_waits
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import load_gpu
from tracea.testing.gpu_cases import GpuCase
from tracea.testing.gpu_judge import gemm_arguments

SMALL = {"bm": 64, "bn": 32, "bk": 32, "stages": 3, "groups": 2, "persistent": 1, "pingpong": 1}
KINDS = {
    "pingpong": SMALL,
    "cooperative": {**SMALL, "bm": 128, "pingpong": 0},
    "one group": {**SMALL, "groups": 1, "pingpong": 0},
}
SYNCHRONISATION = (MbarrierWait, MbarrierArrive, MbarrierExpect, WgmmaWait, WgmmaCommit)
# m, n, k and multiprocessors: one tile a block, two, three, five; odd tails, and steps fewer than the stages.
CALLS = ((64, 32, 8, 1), (65, 33, 72, 2), (70, 65, 200, 2), (129, 97, 40, 2), (300, 31, 104, 1))


def kernel_of(kind: str = "pingpong", **changes: int) -> TileKernel:
    case = GpuCase(variant=WGMMA, target="sm_90a", changes={**KINDS[kind], **changes}, sizes=(), b_along_k=True)
    return case.kernel()


def edits(kernel: TileKernel, kind: Any, edit: Callable[[Any], Node | None]) -> list[TileKernel]:
    return [edited(kernel, place, edit(node)) for place, node in places(kernel.body) if isinstance(node, kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_proofs_hold_and_no_wait_is_superfluous(kind: str) -> None:
    kernel = kernel_of(kind)
    facts = prove(kernel).about("slots")
    assert sum("for 3 stages and any trip count" in fact.statement for fact in facts) == 2
    assert superfluous_waits(kernel) == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k", "multiprocessors"), CALLS)
def test_interpreter_and_emulator_agree_with_the_reference(
    kind: str, m: int, n: int, k: int, multiprocessors: int
) -> None:
    kernel = kernel_of(kind)
    call = gemm_arguments(kernel, m=m, n=n, k=k)
    params = {**call.params, "multiprocessors": multiprocessors}
    assert call.agrees(interpret(kernel, call.fresh(), params, seed=k)[call.output])
    arrays = call.fresh()
    report = emulate(emit(kernel, "sm_90a"), arrays, params, schedules=range(16))
    assert report.clean, str(report)
    assert report.deterministic
    assert call.agrees(arrays[call.output])


def test_without_any_wait_arrival_or_group_it_is_refused() -> None:
    kernel = kernel_of()
    broken = edits(kernel, SYNCHRONISATION, lambda _: None)
    assert len(broken) == 10
    for each in broken:
        with pytest.raises(TraceaError):
            prove(each)


def off(node: Any, name: str, by: int) -> Any:
    index: Index = getattr(node, name)
    return replace(node, **{name: index + by})


@pytest.mark.parametrize("by", [1, 2])
def test_another_parity_slot_or_count_is_refused(by: int) -> None:
    kernel = kernel_of()
    broken = edits(kernel, (MbarrierWait, MbarrierArrive), lambda node: off(node, "slot", by))
    broken += edits(kernel, MbarrierWait, lambda node: replace(node, parity=(node.parity + 1) % 2))
    broken += edits(kernel, MbarrierInit, lambda node: off(node, "count", by))
    for each in broken:
        with pytest.raises(TraceaError):
            prove(each)


@pytest.mark.parametrize(
    "change",
    [
        lambda node: replace(node, share=Const(0)),
        lambda node: replace(node, share=node.share + 1),
        lambda node: replace(node, shares=node.shares + 1),
        lambda node: replace(node, steps=node.steps + 1),
        lambda node: replace(node, tiles=node.tiles - 1),
        lambda node: replace(node, worker=node.worker + 1),
        lambda node: replace(node, workers=node.workers + 1),
    ],
)
def test_other_turns_on_either_side_are_refused(change: Callable[[TileLoop], TileLoop]) -> None:
    kernel = kernel_of()
    for each in edits(kernel, TileLoop, change):
        if each != kernel:  # the producer's share is 0 already
            with pytest.raises(TraceaError):
                prove(each)


def test_three_executors_need_more_than_one_bit() -> None:
    kernel = kernel_of()
    wide = edits(kernel, TileLoop, lambda node: replace(node, shares=node.shares + 1))[0]
    with pytest.raises(ProofFailed):
        prove(wide)


def test_one_baton_for_both_groups_is_refused_since_a_warp_may_be_two_turns_ahead_of_another() -> None:
    def single(kernel: TileKernel) -> TileKernel:
        for place, node in places(kernel.body):
            if isinstance(node, MbarrierWait) and node.barrier == "baton":
                kernel = edited(kernel, place, replace(node, slot=Const(0), parity=(Var("turn") + 1) % 2))
            elif isinstance(node, MbarrierArrive) and node.barrier == "baton":
                kernel = edited(kernel, place, replace(node, slot=Const(0)))
        return kernel

    kernel = kernel_of()
    assert single(kernel) != kernel
    with pytest.raises(ProofFailed, match="not in step"):
        prove(single(kernel))


def test_one_baton_for_both_groups_is_noticed_by_the_emulator_whose_waits_hold_a_warp_and_not_its_group() -> None:
    kernel = kernel_of()
    source = emit(kernel, "sm_90a")
    text = source.text
    for ours, theirs in (
        ("mbarrier_wait(baton + turn % 2 * 8, ((turn + 1) / 2 + 1) % 2);", "mbarrier_wait(baton, (turn + 1) % 2);"),
        ("release_slot(baton + (turn + 1) % 2 * 8);", "release_slot(baton);"),
        ("s_baton < 2;", "s_baton < 1;"),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    call = gemm_arguments(kernel, m=128, n=96, k=224)
    params = {**call.params, "multiprocessors": 1}
    assert emulate(source, call.fresh(), params, schedules=range(16)).clean
    report = emulate(replace(source, text=text), call.fresh(), params, schedules=range(16))
    assert not report.clean


def test_turns_need_two_groups_of_a_persistent_block_in_rows() -> None:
    for changes in ({"groups": 1}, {"persistent": 0}, {"pingpong": 2}):
        with pytest.raises(InvalidSchedule):
            kernel_of(**changes)


def test_a_grid_has_a_block_for_each_multiprocessor_of_the_target() -> None:
    kernel = kernel_of()
    values = arguments(kernel)
    launch = emit(kernel, "sm_90a").launch
    assert launch is not None
    assert values["multiprocessors"] == load_gpu("sm_90a").sm_count
    assert launch.blocks.evaluate(values | {"multiprocessors": 3}) == 3
    assert launch.blocks.evaluate(values) == 32  # tiles of 256 x 256
