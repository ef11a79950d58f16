"""Derived synchronization is what the slots proof accepts, and the next weaker one is what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects.declare import argument, scratch, variables

from tracea.core.dtype import DType
from tracea.errors import InvalidSchedule, ProofFailed
from tracea.semantic.index import Const, Index, Param, as_index
from tracea.semantic.nodes import Barrier, CopyTile, For, If, Level, Node, Parallel, block
from tracea.semantic.nodes_async import AsyncCopy, CommitGroup, MbarrierWait, WaitGroup
from tracea.semantic.phase import empty_parity, full_parity
from tracea.semantic.proofs.slots import prove_slots
from tracea.semantic.proofs.walk import walk
from tracea.semantic.schedule import Schedule
from tracea.semantic.sync import (
    MEET,
    NOTHING,
    Producer,
    RingUse,
    SyncKind,
    SyncRequirement,
    before_overwrite,
    before_read,
    empty_arrivals,
    wait_groups,
    wgmma_pending,
)
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

STEPS = Param("T", 0)
WARPS, ROWS, COLUMNS = 2, 16, 32


def _ring(use: RingUse, reads: tuple[SyncRequirement, ...], overwrites: tuple[SyncRequirement, ...]) -> TileKernel:
    """Return a block that streams tiles through a ring with the given waits: each warp fetches half of a tile."""
    a = argument("A", DType.F16, (STEPS, WARPS * ROWS, COLUMNS), BufferRole.INPUT)
    c = argument("C", DType.F16, (STEPS, WARPS * ROWS, COLUMNS), BufferRole.OUTPUT)
    ring = scratch("ring", DType.F16, MemorySpace.TEAM, use.stages, WARPS * ROWS, COLUMNS)
    b, warp, p, k = variables("b warp p k")

    def fetch(number: Index) -> If:
        source = a.region((number, warp * ROWS, 0), (1, ROWS, COLUMNS))
        target = ring.region((number % use.stages, warp * ROWS, 0), (1, ROWS, COLUMNS))
        return If(predicate=number < STEPS, then=block(AsyncCopy(source=source, target=target)))

    def nodes(requirements: tuple[SyncRequirement, ...]) -> tuple[Node, ...]:
        return tuple(node for node in (requirement.node() for requirement in requirements) if node is not None)

    rows = (1 - warp) * ROWS  # what the other warp fetched

    def reading(read: Index) -> If:
        source = ring.region((read % use.stages, rows, 0), (1, ROWS, COLUMNS))
        target = c.region((read, rows, 0), (1, ROWS, COLUMNS))
        return If(predicate=read < STEPS, then=block(CopyTile(source=source, target=target)))

    # Registers loaded ahead: the rest of this step's tile, and the beginning of the next one's.
    readings = (reading(k), reading(k + 1)) if use.lookahead else (reading(k),)
    fetching = (*nodes(overwrites), fetch(k + use.distance), CommitGroup())
    step = (*fetching, *nodes(reads)) if use.fetch_first else (*nodes(reads), *fetching)
    program = Parallel(
        level=Level.SUBGROUP,
        var=warp,
        extent=Const(WARPS),
        body=block(
            For(var=p, extent=Const(use.distance), body=block(fetch(p), CommitGroup())),
            For(var=k, extent=STEPS, body=block(*step, *readings)),
        ),
    )
    return TileKernel(
        name="ring",
        op=None,
        variant="test.ring",
        schedule=Schedule(stages=use.stages),
        target="sm_80",
        params=(STEPS,),
        buffers=(a, c, ring),
        body=block(Parallel(level=Level.BLOCK, var=b, extent=as_index(1), body=block(program))),
    )


def _accepted(kernel: TileKernel) -> bool:
    try:
        list(prove_slots(kernel, walk(kernel)))
    except ProofFailed:
        return False
    return True


USES = [
    RingUse(
        stages=stages,
        distance=distance,
        producer=Producer.CP_ASYNC,
        lookahead=lookahead,
        fetch_first=fetch_first,
    )
    for stages in range(1, 6)
    for fetch_first in (False, True)
    for lookahead in (0, 1)
    for distance in range(lookahead + (0 if fetch_first else 1), stages)
]


def _name(use: RingUse) -> str:
    first = "first" if use.fetch_first else "after"
    return f"{use.stages}-{use.distance}-{use.lookahead}-{first}"


@pytest.mark.parametrize("use", USES, ids=_name)
def test_what_is_derived_is_proved_and_each_next_weaker_is_refused(use: RingUse) -> None:
    reads, overwrites = before_read(use), before_overwrite(use)
    assert _accepted(_ring(use, reads, overwrites))
    for position, requirement in enumerate(reads):
        weaker = requirement.weaker()
        if weaker is not None:
            changed = (*reads[:position], weaker, *reads[position + 1 :])
            assert not _accepted(_ring(use, changed, overwrites)), f"{weaker} for {requirement}"
    for requirement in overwrites:
        weaker = requirement.weaker()
        if weaker is not None:
            assert not _accepted(_ring(use, reads, (weaker,))), f"{weaker} for {requirement}"


@pytest.mark.parametrize("use", USES[:12], ids=_name)
def test_what_is_stronger_is_proved_too_and_called_superfluous(use: RingUse) -> None:
    reads, overwrites = before_read(use), before_overwrite(use)
    for position, requirement in enumerate(reads):
        stronger = requirement.stronger()
        if stronger is not None:
            changed = (*reads[:position], stronger, *reads[position + 1 :])
            assert _accepted(_ring(use, changed, overwrites))
            assert requirement.superfluous(stronger) is not None
    assert all(requirement.superfluous(requirement) is None for requirement in reads)


@given(st.integers(1, 12), st.integers(0, 1), st.booleans())
def test_the_short_form_agrees_with_the_derivation(stages: int, lookahead: int, fetch_first: bool) -> None:
    if stages - 1 < lookahead + (0 if fetch_first else 1):
        return
    use = RingUse(
        stages=stages,
        distance=stages - 1,
        producer=Producer.CP_ASYNC,
        lookahead=lookahead,
        fetch_first=fetch_first,
    )
    pending = wait_groups(stages, lookahead=lookahead, fetch_first=fetch_first)
    assert before_read(use)[0] == SyncRequirement(kind=SyncKind.WAIT_GROUP, pending=pending)
    symbolic = wait_groups(as_index(Param("S", 1)), lookahead=lookahead, fetch_first=fetch_first)
    assert symbolic.evaluate({"S": stages}) == pending


def test_the_copy_engines_ring_waits_for_phases() -> None:
    use = RingUse(stages=4, distance=3, producer=Producer.TMA)
    (k,) = variables("k")
    n = Const(4)
    assert before_read(use, k) == (SyncRequirement(kind=SyncKind.MBARRIER, parity=full_parity(k, n)),)
    (empty,) = before_overwrite(use, k)
    assert empty.parity == empty_parity(k, n)
    assert isinstance(empty.node(barrier="empty", slot=k % 4), MbarrierWait)
    assert empty.weaker() == NOTHING
    with pytest.raises(InvalidSchedule):
        empty.node()
    with pytest.raises(InvalidSchedule):
        before_read(use)


def test_plain_stores_need_a_barrier() -> None:
    stores = RingUse(stages=2, distance=1, producer=Producer.STORES)
    assert before_read(stores) == (MEET,)
    assert before_overwrite(stores) == (NOTHING,)


def test_requirements_are_ordered() -> None:
    two, one = (SyncRequirement(kind=SyncKind.WAIT_GROUP, pending=pending) for pending in (2, 1))
    assert two.met_by(one)
    assert not one.met_by(two)
    assert two.stronger() == one
    assert one.weaker() == two
    assert not two.met_by(MEET)
    assert NOTHING.met_by(MEET)
    assert NOTHING.weaker() is None
    assert NOTHING.superfluous(MEET) is not None
    assert MEET.weaker() == NOTHING
    assert isinstance(MEET.node(), Barrier)
    assert isinstance(two.node(), WaitGroup)
    assert NOTHING.node() is None
    assert (str(two), str(MEET)) == ("wait_group(2)", "barrier")


@pytest.mark.parametrize(
    ("stages", "distance", "lookahead", "fetch_first"),
    [(3, 3, 0, False), (3, 0, 0, False), (1, 0, 0, False), (2, 1, 1, False), (1, 1, 0, True)],
)
def test_a_ring_that_is_too_short_is_refused(stages: int, distance: int, lookahead: int, fetch_first: bool) -> None:
    with pytest.raises(InvalidSchedule):
        RingUse(
            stages=stages,
            distance=distance,
            producer=Producer.CP_ASYNC,
            lookahead=lookahead,
            fetch_first=fetch_first,
        )


def test_products_in_flight_leave_a_stage_to_fill() -> None:
    assert wgmma_pending(3, 1) == 1
    assert empty_arrivals(2) == 2
    with pytest.raises(InvalidSchedule, match="use 3 stages"):
        wgmma_pending(2, 2)
    with pytest.raises(InvalidSchedule):
        empty_arrivals(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SyncRequirement(kind=SyncKind.WAIT_GROUP),
        lambda: SyncRequirement(kind=SyncKind.WAIT_GROUP, pending=-1),
        lambda: SyncRequirement(kind=SyncKind.BARRIER, pending=0),
        lambda: SyncRequirement(kind=SyncKind.MBARRIER),
    ],
)
def test_a_requirement_without_its_number_is_refused(make: object) -> None:
    with pytest.raises(InvalidSchedule):
        make()  # type: ignore[operator]
