"""Proofs about GPU kernels: what each states of the shipped variants, and a counter-example that each refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tracea.errors import ProofFailed, TraceaError
from tracea.semantic.index import Const, Mod, Var
from tracea.semantic.nodes import Barrier, CopyTile, Let, Level, Node, block
from tracea.semantic.nodes_async import (
    AsyncCopy,
    LoadMatrix,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Roles,
    TmaCopy,
    WaitGroup,
    WgmmaWait,
)
from tracea.semantic.predicate import And
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.banks import prove_banks
from tracea.semantic.proofs.index_range import prove_index_range
from tracea.semantic.proofs.minimal_sync import superfluous_waits
from tracea.semantic.proofs.placed_rings import prove_placed_rings
from tracea.semantic.proofs.swizzles import prove_swizzles
from tracea.semantic.proofs.tma import prove_tma
from tracea.semantic.proofs.walk import walk
from tracea.semantic.rewrite import edited, places
from tracea.semantic.swizzle import TMA_MODES
from tracea.semantic.tile_kernel import Buffer, TileKernel
from tracea.testing.gpu_cases import GpuCase, gpu_cases

CASES = {case.variant.id: case for case in reversed(gpu_cases())}  # the first of each variant
TENSOR_CORES = [name for name in CASES if name != "gemm.simt"]


def kernel_of(name: str, **changes: int) -> TileKernel:
    case = CASES[name]
    changed: GpuCase = replace(case, changes={**case.changes, **changes})
    return changed.kernel()


def change(kernel: TileKernel, kind: type[Any], edit: Callable[[Any], Node | None], which: int = 0) -> TileKernel:
    place, node = [(p, n) for p, n in places(kernel.body) if isinstance(n, kind)][which]
    return edited(kernel, place, edit(node))


def with_buffer(kernel: TileKernel, name: str, **changes: Any) -> TileKernel:
    buffers: tuple[Buffer, ...] = tuple(replace(b, **changes) if b.name == name else b for b in kernel.buffers)
    return replace(kernel, buffers=buffers)


def without_alignment(kernel: TileKernel) -> TileKernel:
    """Return the kernel without its guards about remainders of strides."""
    assert isinstance(kernel.assumptions, And)
    kept = tuple(part for part in kernel.assumptions.parts if " % " not in str(part))
    assert len(kept) < len(kernel.assumptions.parts)
    return replace(kernel, assumptions=And(kept))


def refused(kernel: TileKernel, proof: str, match: str) -> ProofFailed:
    with pytest.raises(ProofFailed, match=match) as caught:
        prove(kernel)
    assert caught.value.proof == proof, str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_a_certificate_states_every_fact_as_data(name: str) -> None:
    certificate = prove(kernel_of(name))
    proofs = {fact.proof for fact in certificate.facts}
    assert {"bounds", "coverage", "products", "races", "index range", "banks", "sectors", "resources"} <= proofs
    if name in ("gemm.wgmma", "gemm.mma_tma"):
        assert {"rule A", "rule B", "slots", "tma", "swizzle"} <= proofs
    if name == "gemm.mma_cp_async":
        assert {"slots", "swizzle"} <= proofs
    text = json.loads(json.dumps(certificate.to_dict()))
    ways = [fact["values"]["ways"] for fact in text["facts"] if fact["proof"] == "banks"]
    assert ways
    assert all(isinstance(value, int) for value in ways)


@pytest.mark.parametrize("name", TENSOR_CORES)
def test_main_loops_of_tensor_core_variants_are_free_of_conflicts(name: str) -> None:
    facts = [fact for fact in prove(kernel_of(name)).about("banks") if fact.node.split()[0] in MAIN_LOOP]
    assert facts
    assert {fact.value("ways") for fact in facts} == {1}


MAIN_LOOP = ("AsyncCopy", "LoadMatrix", "Wgmma", "CopyTile")


@pytest.mark.parametrize(("bk", "ways"), [(32, 4), (64, 8)])
def test_without_a_swizzle_the_certificate_states_the_ways(bk: int, ways: int) -> None:
    certificate = prove(kernel_of("gemm.mma_cp_async", swizzle=0, bk=bk))
    found = {fact.value("buffer"): fact.value("ways") for fact in certificate.about("banks") if "ldmatrix" in str(fact)}
    assert found["a_tiles"] == ways


def test_a_conflict_where_none_may_be_names_node_lane_iteration_and_words() -> None:
    kernel = kernel_of("gemm.mma_cp_async", swizzle=0)
    with pytest.raises(ProofFailed) as caught:
        list(prove_banks(kernel, walk(kernel), conflict_free=True))
    error = caught.value
    assert error.proof == "banks"
    assert error.node.startswith("LoadMatrix")
    assert error.lane is not None
    assert "=" in (error.iteration or "")
    assert "words" in error.detail
    assert f"lane {error.lane}" in str(error)


def test_a_swizzle_of_the_wrong_bits_is_refused_where_the_schedule_asks_for_none_to_conflict() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    refused(with_buffer(kernel, "a_tiles", swizzle=None), "banks", "ways")


def test_a_tile_that_a_descriptor_cannot_describe_is_refused() -> None:
    kernel = kernel_of("gemm.wgmma")
    assert list(prove_swizzles(kernel))
    for swizzle in (None, TMA_MODES[128]):  # rows of 64 bytes
        with pytest.raises(ProofFailed, match="wgmma reads rows of 32 elements of f16") as caught:
            list(prove_swizzles(with_buffer(kernel, "b_tiles", swizzle=swizzle)))
        assert caught.value.proof == "swizzle"


def test_sectors_count_what_an_alignment_guarantees() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    (fact, *_) = [fact for fact in prove(kernel).about("sectors") if fact.value("buffer") == "a"]
    assert fact.value("vector_bytes") == 16
    assert fact.value("sectors") == 48  # rows of 64 bytes begin at multiples of 16: three sectors each at worst
    assert fact.value("ideal_sectors") == 32


def test_a_wide_copy_needs_aligned_rows_and_an_aligned_array() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    refused(without_alignment(kernel), "sectors", "was not shown to be a multiple of 16 bytes")
    refused(with_buffer(kernel, "a", aligned_bytes=2), "sectors", "begins at a multiple of 2 bytes")


@pytest.mark.parametrize("name", ["gemm.mma_sync", "gemm.mma_cp_async", "gemm.mma_tma", "gemm.wgmma"])
@pytest.mark.parametrize("operand", [0, 1])
def test_a_piece_of_16_bytes_needs_an_array_that_begins_at_a_multiple_of_16(name: str, operand: int) -> None:
    kernel = kernel_of(name)
    buffer = kernel.buffers[operand]
    assert buffer.aligned_bytes == 16
    with pytest.raises(ProofFailed, match="8 bytes"):
        prove(with_buffer(kernel, buffer.name, aligned_bytes=8))


def test_a_load_to_registers_wider_than_its_guards_is_refused() -> None:
    kernel = kernel_of("gemm.simt")
    loads = [n for n in kernel.body.walk() if isinstance(n, CopyTile) and n.chunk_bytes is not None]
    assert {n.chunk_bytes for n in loads} == {2, 16}
    narrow = next(i for i, n in enumerate(n for n in kernel.body.walk() if isinstance(n, CopyTile)) if n is loads[0])
    wide = change(kernel, CopyTile, lambda node: replace(node, chunk_bytes=4), narrow)
    refused(wide, "sectors", "by 4 bytes")


def test_a_swizzle_must_fit_its_buffer_and_its_elements() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    wide = with_buffer(kernel, "staging", shape=(Const(2), Const(15), Const(33)))
    with pytest.raises(TraceaError):
        prove(wide)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda d: replace(d, box=(512, *d.box[1:])), "must be 1 .. 256"),
        (lambda d: replace(d, box=(*d.box[:-1], d.box[-1] - 1)), "multiple of 16"),
        (lambda d: replace(d, swizzle_bytes=32), "the swizzle spans 32"),
        (lambda d: replace(d, swizzle_bytes=0), "no swizzle"),
        (lambda d: replace(d, swizzle_bytes=48), "must be 0 or one of"),
        (lambda d: replace(d, box=d.box[1:]), "rank"),
    ],
)
def test_tensor_maps_that_the_driver_refuses_are_refused(edit: Callable[[Any], Any], match: str) -> None:
    kernel = kernel_of("gemm.mma_tma")
    sites = list(walk(kernel))
    index = next(i for i, site in enumerate(sites) if isinstance(site.node, TmaCopy))
    node = sites[index].node
    assert isinstance(node, TmaCopy)
    sites[index] = replace(sites[index], node=replace(node, descriptor=edit(node.descriptor)))
    with pytest.raises(ProofFailed, match=match) as caught:
        list(prove_tma(kernel, sites))
    assert caught.value.proof == "tma"


def test_a_tensor_map_needs_strides_of_16_bytes() -> None:
    refused(without_alignment(kernel_of("gemm.mma_tma")), "tma", "multiple of 16 bytes")


def test_rule_a_one_thread_sets_up_before_anyone_uses() -> None:
    kernel = kernel_of("gemm.mma_tma")
    refused(change(kernel, MbarrierInit, lambda node: None), "rule A", "set up at 0 nodes")
    refused(change(kernel, Barrier, lambda node: None), "rule A", "no block barrier lies between")
    refused(change(kernel, MbarrierInit, lambda node: replace(node, slot=Const(0))), "rule A", "set up slots")


def test_rule_b_arrivals_are_those_of_the_roles() -> None:
    kernel = kernel_of("gemm.mma_tma")
    counted = change(kernel, MbarrierInit, lambda node: replace(node, count=node.count + 1), which=1)
    refused(counted, "rule B", "arrivals a phase")

    def more(node: Roles) -> Roles:
        return replace(node, roles=(*node.roles[:-1], replace(node.roles[-1], executors=2)))

    with pytest.raises(TraceaError):
        prove(change(kernel, Roles, more))


@pytest.mark.parametrize("kind", [MbarrierWait, MbarrierExpect, MbarrierArrive, WgmmaWait])
def test_no_wait_or_arrival_of_the_wgmma_kernel_can_go(kind: type[Node]) -> None:
    kernel = kernel_of("gemm.wgmma")
    count = sum(isinstance(node, kind) for node in kernel.body.walk())
    assert count
    for which in range(count):
        with pytest.raises(ProofFailed):
            prove(change(kernel, kind, lambda node: None, which))


def test_an_announcement_before_the_slot_is_empty_is_refused() -> None:
    kernel = kernel_of("gemm.wgmma")
    (place,) = [p for p, n in places(kernel.body) if isinstance(n, MbarrierExpect)]
    wait = (*place[:-1], place[-1] - 1)
    nodes = dict(places(kernel.body))
    early = edited(edited(kernel, place, None), wait, block(nodes[place], nodes[wait]))
    refused(early, "slots", "the phase before may still be open")


def test_an_index_beyond_32_bits_is_refused() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    lets = [node.var.name for node in kernel.body.walk() if isinstance(node, Let)]

    def far(node: Let) -> Let:
        return replace(node, value=node.value + 2**31, bits=64)

    with pytest.raises(ProofFailed, match="does not fit 32 bits") as caught:
        list(prove_index_range(wide := change(kernel, Let, far, lets.index("following")), walk(wide)))
    assert caught.value.proof == "index range"
    (fact,) = prove(kernel).about("index range")
    assert "m <= " in fact.statement


def test_workers_that_divide_the_flat_space_of_steps_need_it_to_fit_64_bits() -> None:
    shares = next(case for case in gpu_cases() if case.way == "stream-K").kernel()
    assert isinstance(shares.assumptions, And)
    kept = tuple(part for part in shares.assumptions.parts if not str(part).endswith("((k + 31) / 32) <= 2147483647"))
    assert len(kept) == len(shares.assumptions.parts) - 1
    caught = refused(replace(shares, assumptions=And(kept)), "index range", "does not fit 64 bits")
    assert "SegmentLoop" in str(caught)


def test_a_release_of_a_use_that_was_not_filled_is_refused() -> None:
    kernel = kernel_of("gemm.wgmma")
    step = Var("k_step")

    def released(behind: int) -> TileKernel:
        return change(kernel, MbarrierArrive, lambda node: replace(node, slot=(step - behind) % 3))

    assert prove(released(1)).about("slots")  # as it is shipped, from step 1
    refused(released(2), "division", "k_step - 2 of .* was not shown to be at least 0")
    refused(released(-1), "slots", "releases use k_step . 1 in iteration k_step")


@pytest.mark.parametrize("name", CASES)
def test_no_shipped_wait_is_superfluous(name: str) -> None:
    assert superfluous_waits(kernel_of(name)) == ()


def test_a_wait_that_is_too_strong_is_reported() -> None:
    kernel = kernel_of("gemm.mma_cp_async", stages=4)
    strict = change(kernel, WaitGroup, lambda node: replace(node, pending=node.pending - 1))
    (found,) = superfluous_waits(strict)
    assert found.node.startswith("WaitGroup")
    assert "may leave 2 groups pending, leaves 1" in found.statement


def test_a_barrier_that_nobody_needs_is_reported() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    place = next(p for p, n in places(kernel.body) if isinstance(n, Barrier) and n.level is Level.BLOCK)
    twice = edited(kernel, place, block(Barrier(level=Level.BLOCK), Barrier(level=Level.BLOCK)))
    assert [found.statement for found in superfluous_waits(twice)] == ["is not needed"] * 2


def test_copies_state_their_width() -> None:
    kernel = kernel_of("gemm.mma_cp_async")
    narrow = change(kernel, AsyncCopy, lambda node: replace(node, chunk_bytes=4))
    facts = [fact for fact in prove(narrow).about("sectors") if fact.value("buffer") == "a"]
    assert {fact.value("vector_bytes") for fact in facts} == {4, 16}


def test_fragments_that_are_loaded_ahead_are_a_ring_of_registers() -> None:
    certificate = prove(kernel_of("gemm.mma_cp_async", fragments=2))
    found = {fact.node for fact in certificate.about("slots") if "slots of registers" in fact.statement}
    assert found == {"a_fragment", "b_fragment"}
    (one,), (two,) = (
        [fact.value("fragment_registers") for fact in prove(kernel).about("resources")]
        for kernel in (kernel_of("gemm.mma_cp_async"), kernel_of("gemm.mma_cp_async", fragments=2))
    )
    assert isinstance(one, int)
    assert isinstance(two, int)
    assert two - one == 2 * 4 + 4 * 2  # two fragments of A and four of B, 4 and 2 registers each


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_a_load_ahead_to_the_slot_that_is_multiplied_is_refused(which: int) -> None:
    kernel = kernel_of("gemm.mma_cp_async", fragments=2)

    def elsewhere(node: LoadMatrix) -> LoadMatrix:
        first, *rest = node.target.offset
        slot = (first.left + 1) % first.right if isinstance(first, Mod) else Const(1)
        return replace(node, target=replace(node.target, offset=(slot, *rest)))

    changed = change(kernel, LoadMatrix, elsewhere, which)
    with pytest.raises(ProofFailed, match="use") as caught:
        list(prove_placed_rings(changed, walk(changed)))
    assert caught.value.proof == "slots"
    with pytest.raises(ProofFailed):
        prove(changed)


@pytest.mark.parametrize("name", ["gemm.simt", "gemm.mma_sync"])
def test_stores_to_the_stage_that_others_read_are_refused(name: str) -> None:
    kernel = kernel_of(name)
    refused(change(kernel, Barrier, lambda node: None), "slots", "no barrier")
    refused(change(kernel, Barrier, lambda node: replace(node, level=Level.SUBGROUP)), "slots", "no barrier")
    stores = [n for n in kernel.body.walk() if isinstance(n, CopyTile) and n.target.buffer == "a_tiles"]
    assert len(stores) == 2

    def same_stage(node: CopyTile) -> CopyTile:
        first = node.target.offset[0]
        if node.target.buffer != "a_tiles" or not isinstance(first, Mod):
            return node
        return replace(
            node, target=replace(node.target, offset=((first.left - 1) % first.right, *node.target.offset[1:]))
        )

    for which in range(sum(isinstance(node, CopyTile) for node in kernel.body.walk())):
        changed = change(kernel, CopyTile, same_stage, which)
        if changed != kernel:
            with pytest.raises(ProofFailed):
                prove(changed)
            break
    else:
        pytest.fail("no store to a stage was changed")


def test_warps_that_fill_the_same_part_of_a_stage_are_refused() -> None:
    kernel = kernel_of("gemm.mma_sync")

    def everybody(node: CopyTile) -> CopyTile:
        if node.target.buffer != "a_tiles":
            return node
        slot, _, *rest = node.target.offset
        return replace(node, target=replace(node.target, offset=(slot, Const(0), *rest)))

    count = sum(isinstance(node, CopyTile) for node in kernel.body.walk())
    for which in range(count):
        kernel = change(kernel, CopyTile, everybody, which)
    with pytest.raises(ProofFailed) as caught:
        prove(kernel)
    assert caught.value.proof in ("slots", "products")


def test_roles_that_walk_tiles_in_different_orders_are_refused() -> None:
    case = CASES["gemm.wgmma"]
    changes = {**case.changes, "bm": 64, "persistent": 1, "pingpong": 1, "order": "wavefront"}
    kernel = replace(case, changes=changes).kernel()  # type: ignore[arg-type]
    prove(kernel)
    looked_up = [i for i, n in enumerate(n for n in kernel.body.walk() if isinstance(n, Let)) if "tile_order" in str(n)]
    assert len(looked_up) == 2
    for which in looked_up:
        one = change(kernel, Let, lambda node: replace(node, value=node.value.index), which)
        with pytest.raises(ProofFailed):
            prove(one)
