"""Epilogues: a finished tile is combined as the op says, with its operands, each at the tile's own place.

That an operand broadcasts to the tile is a matter of shapes; that it is the tile's own part and not its neighbour's is
shown here: along each axis that the operand has, it begins where the tile does and ends there too. One element of
several would broadcast, and every place of the tile would be given that of its first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.expr import Expr
from tracea.core.ops.base import Epilogue
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, Node, ReduceTile, Region, RowTile, Scalar
from tracea.semantic.nodes_winograd import TransformBack
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_epilogues"]

_NAME = "epilogue"
_ZERO, _ONE = Polynomial({}), Polynomial.of(1)


def prove_epilogues(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of each tile with an epilogue that it is the op's, of operands at the tile's place.

    Raises:
        ProofFailed: it is another expression, or an operand is another one, or begins elsewhere along an axis, or
            results are written without it.
    """
    for site in sites:
        found = _epilogue(site.node)
        if found is None:
            _leaves_nothing(kernel, site)
            continue
        expr, operands, target = found
        regions = [operand for operand in operands if isinstance(operand, Region)]
        _is_the_ops(kernel, site, expr, regions)
        _at_the_tile(kernel, site, regions, site.box(target))
        yield Fact(_NAME, site.label, f"{len(regions)} operands are read where {target.buffer} is written")


def _epilogue(node: Node) -> tuple[Expr, Sequence[Region | Scalar], Region] | None:
    """Return a node's expression, its operands and where its results go; None of a node without."""
    if isinstance(node, TransformBack):
        return node.expr, node.operands, node.target
    if not isinstance(node, MicroKernel | ReduceTile | RowTile) or node.epilogue is None:
        return None
    own = node.c if isinstance(node, MicroKernel) else node.target
    call = node.epilogue
    return call.expr, call.operands, own if call.target is None else call.target


def _leaves_nothing(kernel: TileKernel, site: Site) -> None:
    """Show that a node without an epilogue does not write results that the op's own is still to be applied to."""
    node, epilogue = site.node, getattr(kernel.op, "epilogue", None)
    if not isinstance(node, MicroKernel | ReduceTile | RowTile) or not isinstance(epilogue, Epilogue):
        return
    written = kernel.buffer(node.c.buffer if isinstance(node, MicroKernel) else node.target.buffer)
    if written.role is BufferRole.OUTPUT and not epilogue.is_identity:
        raise refuse(_NAME, site.label, f"writes {written.name} without the op's epilogue")


def _is_the_ops(kernel: TileKernel, site: Site, expr: Expr, operands: Sequence[Region]) -> None:
    """Show that an expression is that of the op's own epilogue, of the same operands in their order.

    They are the last buffers that a kernel is given.
    """
    epilogue = getattr(kernel.op, "epilogue", None)
    if not isinstance(epilogue, Epilogue):
        return
    given = [buffer.name for buffer in kernel.buffers if buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT)]
    wanted = given[len(given) - len(epilogue.operands) :]
    if expr != epilogue.expr or [operand.buffer for operand in operands] != wanted:
        raise refuse(_NAME, site.label, f"is not the op's epilogue, or not of {', '.join(wanted) or 'no operand'}")


def _at_the_tile(kernel: TileKernel, site: Site, operands: Sequence[Region], tile: Box) -> None:
    for operand in operands:
        box = site.box(operand)
        sizes = [site.canonical(size) for size in kernel.buffer(operand.buffer).shape]
        ours, theirs = (zip(reversed(each.offset), reversed(each.extent), strict=True) for each in (box, tile))
        for (offset, extent), size, (start, length) in zip(ours, reversed(sizes), theirs, strict=False):
            wanted, reach = (_ZERO, _ONE) if size == _ONE else (start, length)
            if not site.facts.proves_equal(offset, wanted):
                there, here = offset.to_index(), wanted.to_index()
                raise refuse(_NAME, site.label, f"{operand} begins at {there}, {tile.buffer} at {here}")
            if not site.facts.proves_equal(extent, reach):
                has, needs = extent.to_index(), reach.to_index()
                raise refuse(_NAME, site.label, f"{operand} has {has} elements, {tile.buffer} {needs} there")
