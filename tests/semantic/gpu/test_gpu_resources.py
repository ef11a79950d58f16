"""What a block needs of its multiprocessor, and the demands that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.semantic.index import Const
from tracea.semantic.nodes_async import Roles
from tracea.semantic.proofs.resources import block_resources, prove_resources
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import load_gpu
from tracea.testing.gpu_cases import gpu_cases

CASES = {case.variant.id: case for case in reversed(gpu_cases())}  # the first of each variant


def with_roles(kernel: TileKernel, edit: Callable[[Roles], Roles]) -> TileKernel:
    place, roles = next((place, node) for place, node in places(kernel.body) if isinstance(node, Roles))
    return edited(kernel, place, edit(roles))


def test_too_much_shared_memory_names_the_stages_that_fit() -> None:
    kernel = CASES["gemm.mma_cp_async"].kernel()
    large = replace(
        kernel,
        buffers=tuple(
            replace(b, shape=(Const(40), *b.shape[1:])) if b.name in ("a_tiles", "b_tiles") else b
            for b in kernel.buffers
        ),
    )
    target = load_gpu("sm_80")
    with pytest.raises(ResourceExceeded, match=r"stages=\d+") as caught:
        list(prove_resources(large, target))
    assert caught.value.needed_bytes > caught.value.limit_bytes == target.shared_bytes_per_block


def test_roles_cannot_take_more_registers_than_the_block_has() -> None:
    kernel = CASES["gemm.wgmma"].kernel()

    def greedy(node: Roles) -> Roles:
        return replace(
            node, roles=tuple(replace(r, registers=240 if r.lanes > 32 else r.registers) for r in node.roles)
        )

    with pytest.raises(InvalidSchedule, match="setmaxnreg waits for ever"):
        list(prove_resources(with_roles(kernel, greedy), load_gpu("sm_90a")))


def test_too_many_threads_are_refused() -> None:
    kernel = CASES["gemm.mma_tma"].kernel()

    def many(node: Roles) -> Roles:
        return replace(node, roles=tuple(replace(role, executors=17) for role in node.roles))

    with pytest.raises(InvalidSchedule, match="at most 32 warps"):
        list(prove_resources(with_roles(kernel, many), load_gpu("sm_120a")))


def test_resources_count_roles_and_fragments() -> None:
    need = block_resources(CASES["gemm.wgmma"].kernel())
    assert need.threads == 3 * 128
    assert need.shared_bytes == CASES["gemm.wgmma"].kernel().team_scratch_bytes.constant
    assert need.blocks_per_sm(load_gpu("sm_90a")) >= 1


def test_a_tile_of_128_columns_in_registers_has_the_lanes_of_a_warp() -> None:
    tile = {"bm": 128, "bn": 128, "bk": 8, "warps_m": 4, "warps_n": 2, "lane_rows": 8, "lane_columns": 8}
    case = CASES["gemm.simt"]
    need = block_resources(replace(case, changes={**case.changes, **tile}).kernel())
    assert need.threads == 8 * 32
    assert need.fragment_registers >= 64 + 8 + 8
