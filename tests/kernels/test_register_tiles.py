"""Register tiles: a kernel whose tiles are not what their routine holds is not proved, nor one that lacks a guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.kernels.cases import all_cases, tile_cases
from tests.kernels.conformance import build

from tracea.core.op import GemmOp, Op
from tracea.errors import ProofFailed
from tracea.kernels.registry import find
from tracea.semantic.index import Const
from tracea.semantic.nodes import For, MicroKernel
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load
from tracea.testing.mutants import unguarded

CASES = {case.name: case for case in (*all_cases(), *tile_cases())}
TILES = frozenset(case.name for case in tile_cases())
# Of panels, which do not say how many taps they were packed with: what a kernel takes them for is a matter of its op.
TAPS = frozenset({"conv.amx_stem", "conv.amx_stem_prepacked"})


def made(variant: str, op: Op, **schedule: int | str) -> TileKernel:
    target, found = load("avx512"), find(variant)
    assert found.build is not None
    assert found.default_schedule is not None
    return found.build(op, found.default_schedule(op, target).with_values(**schedule), target)


def stepping(kernel: TileKernel, var: str, step: int) -> TileKernel:
    """Return the kernel with another step of one loop."""
    place, loop = next(
        (place, node) for place, node in places(kernel.body, ()) if isinstance(node, For) and node.var.name == var
    )
    return edited(kernel, place, replace(loop, step=Const(step)))


def saying(kernel: TileKernel, *, without: str = "", **attributes: int | str) -> TileKernel:
    """Return the kernel whose first tile says something else of itself, or does not say one thing."""
    place, tile = next((place, node) for place, node in places(kernel.body, ()) if isinstance(node, MicroKernel))
    assert isinstance(tile, MicroKernel)
    said = dict(tile.intrinsic.attributes) | attributes
    changed = tuple(pair for pair in said.items() if pair[0] != without)
    return edited(kernel, place, replace(tile, intrinsic=replace(tile.intrinsic, attributes=changed)))


def test_no_kernel_is_proved_without_one_of_its_guards() -> None:
    seen = 0
    for name, case in CASES.items():
        kernel = build(case, "amx" if name in TILES else "avx512").kernel
        for mutant in unguarded(kernel):
            if kernel.variant in TAPS and " == " in mutant.description:
                continue
            seen += 1
            with pytest.raises(ProofFailed):
                print(name, mutant.description, prove(mutant.kernel).kernel)
    assert seen > 100


DIRECT = GemmOp.of(m=16, n=512, k=1024)  # tiles of 6 rows by 64 columns, the last one of 4


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (partial(stepping, var="jr", step=65), "65.* columns, the routine holds 64"),
        (partial(stepping, var="jr", step=512), "512.* columns, the routine holds 64"),
        (partial(stepping, var="ir", step=5), "rows, the routine has code for 6, 4"),
        (partial(stepping, var="ir", step=1), "1 rows, the routine has code for 6, 4"),
        (partial(saying, rows="6"), "rows, the routine has code for 6"),
        (partial(saying, rows="6,3"), "rows, the routine has code for 6, 3"),
        (partial(saying, rows="4,6"), "code for 4,6 rows, of tiles that hold 6"),
        (partial(saying, nr=32), "columns, the routine holds 32"),
    ],
)
def test_a_tile_that_its_routine_does_not_hold_is_refused(
    wrong: Callable[[TileKernel], TileKernel], found: str
) -> None:
    kernel = made("gemm.direct", DIRECT)
    assert prove(kernel).facts
    with pytest.raises(ProofFailed, match=found):
        prove(wrong(kernel))


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_streamed_rows_are_those_that_the_routine_has_code_for(rows: int) -> None:
    kernel = made("gemm.stream", GemmOp.of(m=3, n=500, k=257))
    assert prove(kernel).facts
    with pytest.raises(ProofFailed, match=f"m rows, the routine has code for {rows}"):
        prove(saying(kernel, rows=rows))
