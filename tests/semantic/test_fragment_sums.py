"""Sums on fragments: each begins once, takes each product once, and covers K wherever it was cleared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from objects import flash_attention, sm80_gemm, sm90_gemm
from objects.vectors import refused

from tracea.semantic.index import Const, Var
from tracea.semantic.nodes import For, Node, block
from tracea.semantic.nodes_async import Clear, Mma, Wgmma
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.testing.gpu_cases import gpu_cases
from tracea.testing.mutants import edited, places


@pytest.mark.parametrize(
    ("kernel", "kind", "match"),
    [
        (sm80_gemm.build(), Mma, "anew"),
        (sm90_gemm.build(), Wgmma, "anew|again"),
        (flash_attention.build(), Mma, "again"),
    ],
    ids=["mma", "wgmma", "weighted values"],
)
def test_products_refuse_a_product_that_a_sum_takes_twice(kernel: TileKernel, kind: type[Node], match: str) -> None:
    place, node = [(place, node) for place, node in places(kernel.body) if isinstance(node, kind)][-1]
    refused(edited(kernel, place, block(node, node)), "products", match)


def test_products_refuse_sums_that_are_cleared_in_a_loop_and_do_not_cover_k() -> None:
    kernel = next(case for case in gpu_cases() if case.variant.id == "gemm.mma_cp_async").kernel()
    place, clear = next((place, node) for place, node in places(kernel.body) if isinstance(node, Clear))
    (first, *others), piece = clear.target.extent, Var("piece")
    target = replace(clear.target, offset=(piece, *clear.target.offset[1:]), extent=(Const(1), *others))
    kernel = edited(kernel, place, For(var=piece, extent=first, body=block(replace(clear, target=target))))
    assert prove(kernel).about("products")
    loop = next(
        (place, node)
        for place, node in places(kernel.body)
        if isinstance(node, For) and any(isinstance(inner, Mma) for inner in node.body.walk())
    )
    short = edited(kernel, loop[0], replace(loop[1], extent=loop[1].extent - 1))
    refused(short, "products", "once over")
