"""Proofs about tiles whose steps several blocks share: the pipeline within a segment, the flags between blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tracea.errors import ProofFailed
from tracea.semantic.index import Const
from tracea.semantic.nodes import Barrier, Node, block
from tracea.semantic.nodes_async import AwaitFlag, CommitGroup, SegmentLoop, SignalFlag, WaitGroup
from tracea.semantic.predicate import And
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel
from tracea.testing.gpu_cases import gpu_cases

CASE = next(case for case in gpu_cases() if case.variant.id == "gemm.mma_cp_async")
SHARED = [{"split_k": 2}, {"split_k": 1, "stream_k": 108}]

pytestmark = pytest.mark.parametrize("changes", SHARED, ids=("split", "stream"))


def kernel_of(changes: dict[str, int]) -> TileKernel:
    return replace(CASE, changes={**CASE.changes, **changes}).kernel()


def change(kernel: TileKernel, kind: type[Any], edit: Callable[[Any], Node | None], which: int = 0) -> TileKernel:
    place, node = [(p, n) for p, n in places(kernel.body) if isinstance(n, kind)][which]
    return edited(kernel, place, edit(node))


def names_flag(axis: int, value: Callable[[Any], Any]) -> Callable[[Any], Node]:
    """Return an edit that names another flag."""

    def edit(node: Any) -> Node:
        offset = list(node.flag.offset)
        offset[axis] = value(offset[axis])
        changed: Node = replace(node, flag=replace(node.flag, offset=tuple(offset)))
        return changed

    return edit


def test_segments_and_flags_are_proved(changes: dict[str, int]) -> None:
    certificate = prove(kernel_of(changes))
    assert {fact.node for fact in certificate.about("slots")} == {"a_tiles", "b_tiles"}
    (fact,) = certificate.about("flags")
    assert (fact.node, fact.statement) == ("workspace", "1 reads await the flags of their entries")


@pytest.mark.parametrize(
    ("kind", "proof", "match"),
    [
        (SignalFlag, "flags", "no flag is set for the entry of workspace"),
        (AwaitFlag, "flags", "does not wait for its flag before"),
        (WaitGroup, "slots", "waits for no group"),
        (CommitGroup, "slots", "is in group"),
        (Barrier, "slots", "barrier"),
    ],
)
def test_no_synchronisation_of_shared_tiles_can_go(
    changes: dict[str, int], kind: type[Node], proof: str, match: str
) -> None:
    kernel = kernel_of(changes)
    count = sum(isinstance(node, kind) for node in kernel.body.walk())
    assert count
    for which in range(count):
        with pytest.raises(ProofFailed, match=match) as caught:
            prove(change(kernel, kind, lambda node: None, which))
        assert caught.value.proof == proof


@pytest.mark.parametrize("kind", [SignalFlag, AwaitFlag])
@pytest.mark.parametrize(
    ("axis", "value"), [(0, lambda entry: entry - 1), (0, lambda _: Const(0)), (1, lambda _: Const(0))]
)
def test_the_flag_of_another_entry_is_refused(
    changes: dict[str, int], kind: type[Node], axis: int, value: Callable[[Any], Any]
) -> None:
    with pytest.raises(ProofFailed) as caught:
        prove(change(kernel_of(changes), kind, names_flag(axis, value)))
    assert caught.value.proof in ("flags", "bounds")


def test_a_flag_set_before_its_entry_is_written_is_refused(changes: dict[str, int]) -> None:
    kernel = kernel_of(changes)
    nodes = dict(places(kernel.body))
    place = next(p for p, node in nodes.items() if isinstance(node, SignalFlag))
    before = (*place[:-1], place[-1] - 1)
    early = edited(edited(kernel, place, None), before, block(nodes[place], nodes[before]))
    with pytest.raises(ProofFailed, match="no flag is set for the entry") as caught:
        prove(early)
    assert caught.value.proof == "flags"


def test_an_entry_taken_before_its_flag_is_refused(changes: dict[str, int]) -> None:
    kernel = kernel_of(changes)
    nodes = dict(places(kernel.body))
    place = next(p for p, node in nodes.items() if isinstance(node, AwaitFlag))
    after = (*place[:-1], place[-1] + 1)
    late = edited(edited(kernel, after, None), place, block(nodes[after], nodes[place]))
    with pytest.raises(ProofFailed, match="does not wait for its flag before") as caught:
        prove(late)
    assert caught.value.proof == "flags"


def test_one_worker_more_than_was_launched_is_refused(changes: dict[str, int]) -> None:
    kernel = kernel_of(changes)
    with pytest.raises(ProofFailed):
        prove(change(kernel, SegmentLoop, lambda node: replace(node, workers=node.workers + 1)))


def test_workers_without_a_share_are_refused(changes: dict[str, int]) -> None:
    kernel = kernel_of(changes)
    assert isinstance(kernel.assumptions, And)
    refusals = 0
    for part in kernel.assumptions.parts:
        rest = And(tuple(other for other in kernel.assumptions.parts if other is not part))
        try:
            prove(replace(kernel, assumptions=rest))
        except ProofFailed as error:
            refusals += "without a share" in str(error)
    assert refusals == 1
