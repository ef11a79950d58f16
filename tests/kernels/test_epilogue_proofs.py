"""The proof of epilogues: another expression, another operand, or an operand of another place is refused everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.kernels.cases import all_cases, tile_cases
from tests.kernels.conformance import Case, build

from tracea.core.ops.base import Epilogue
from tracea.errors import ProofFailed
from tracea.semantic.access import Region
from tracea.semantic.index import Const
from tracea.semantic.nodes import Node
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import TileKernel

TILES = frozenset(case.name for case in tile_cases())


def operands_of(node: Node) -> tuple[Any, ...]:
    """The operands of a node's epilogue that are regions."""
    holder: Any = node if hasattr(node, "expr") and hasattr(node, "operands") else getattr(node, "epilogue", None)
    return () if holder is None else tuple(part for part in holder.operands if isinstance(part, Region))


def with_epilogue(node: Any, **changes: object) -> Node:
    """The node with another expression or other operands of its epilogue."""
    if hasattr(node, "operands"):
        return replace(node, **changes)
    return replace(node, epilogue=replace(node.epilogue, **changes))


def fused_cases() -> list[Case]:
    """A case of each variant whose op says an epilogue with operands."""
    found: dict[str, Case] = {}
    for case in (*all_cases(), *tile_cases()):
        epilogue = getattr(case.op, "epilogue", None)
        is_a_chain = case.variant == "gemm.empty"  # of zeros: no tile is finished there
        if isinstance(epilogue, Epilogue) and len(epilogue.operands) > 1 and not is_a_chain:
            found.setdefault(case.variant, case)
    return list(found.values())


def mutants(kernel: TileKernel) -> Iterator[tuple[str, TileKernel]]:
    for place, node in places(kernel.body):
        operands = operands_of(node)
        if not operands:
            continue
        expr = node.expr if hasattr(node, "operands") else node.epilogue.expr  # type: ignore[attr-defined]
        yield "another expression", edited(kernel, place, with_epilogue(node, expr=expr + 1.0))
        yield "operands in reverse", edited(kernel, place, with_epilogue(node, operands=operands[::-1]))
        for index, operand in enumerate(operands):
            for axis, offset in enumerate(operand.offset):
                if offset == Const(0):
                    continue
                offsets = (*operand.offset[:axis], Const(0), *operand.offset[axis + 1 :])
                changed = (*operands[:index], replace(operand, offset=offsets), *operands[index + 1 :])
                yield f"operand {index}, axis {axis}", edited(kernel, place, with_epilogue(node, operands=changed))
            for axis, extent in enumerate(operand.extent):
                if extent == Const(1):
                    continue
                extents = (*operand.extent[:axis], Const(1), *operand.extent[axis + 1 :])
                changed = (*operands[:index], replace(operand, extent=extents), *operands[index + 1 :])
                what = f"operand {index}, one element of axis {axis}"
                yield what, edited(kernel, place, with_epilogue(node, operands=changed))


@pytest.mark.parametrize("case", fused_cases(), ids=lambda case: case.variant)
def test_epilogue_with_one_thing_wrong_is_refused(case: Case) -> None:
    kernel = build(case, "amx" if case.name in TILES else "avx512").kernel
    assert prove(kernel).facts
    found = list(mutants(kernel))
    assert len(found) > 2
    assert not [what for what, mutant in found if is_proved(mutant)]


def is_proved(kernel: TileKernel) -> bool:
    try:
        prove(kernel)
    except ProofFailed:
        return False
    return True
