"""Shapes: the regions of one node fit each other, as its meaning needs them to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.semantic.index import ceil_div
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import (
    CopyTile,
    EpilogueCall,
    MicroKernel,
    Pack,
    PointwiseTile,
    ReduceTile,
    Region,
    RowTile,
)
from tracea.semantic.nodes_async import AsyncCopy, StoreFragment, TmaCopy
from tracea.semantic.nodes_attention import AttentionStep
from tracea.semantic.nodes_attention_gradient import AttentionGradient
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.nodes_pairs import PairsTile
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.nodes_winograd import TransformBack
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.register_tiles import check_register_tile, check_rest
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["prove_shapes"]

_ONE = Polynomial.of(1)


def prove_shapes(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that copies fill targets of their extent, panels hold what is packed, and operands broadcast.

    Raises:
        ProofFailed: two extents that must agree were not shown to.
    """
    checked = 0
    for site in sites:
        node = site.node
        match node:
            case CopyTile() | AsyncCopy() | TmaCopy():
                ours, theirs = (_wide(site.box(region).extent) for region in (node.source, node.target))
                _agree(site, "source and target", ours, theirs)
            case Pack():
                _packed(site, node)
            case Halo():
                _halo(site, node)
            case MicroKernel() | RunProduct() | ReduceTile() | RowTile() | StoreFragment():
                target = node.c if isinstance(node, MicroKernel | RunProduct) else node.target
                if isinstance(node, MicroKernel | RunProduct):
                    check_register_tile(site, node)
                if isinstance(node, RowTile):
                    _broadcast(site, node.inputs, site.box(target).extent)
                if isinstance(node, ReduceTile):
                    _reduced(site, node)
                if node.epilogue is not None:
                    _epilogue(site, node.epilogue, target)
            case AttentionStep():
                check_rest(site, node.intrinsic, node.values)
            case AttentionGradient():
                check_rest(site, node.intrinsic, node.keys)
            case TransformBack():
                _broadcast(site, node.operands, site.box(node.target).extent)
            case PointwiseTile():
                _broadcast(site, [r for r in node.inputs if isinstance(r, Region)], site.box(node.target).extent)
            case PairsTile():
                tile = site.box(node.target).extent
                _agree(site, "the last axis and a pair", list(tile[-1:]), [Polynomial.of(2)])
                _broadcast(site, node.inputs, tile[:-1])
            case _:
                continue
        checked += 1
    yield Fact("shapes", kernel.name, f"the regions of {checked} nodes fit each other")


def _packed(site: Site, node: Pack) -> None:
    source, target = site.box(node.source).extent, site.box(node.target).extent
    lines, depth = (source[-2], source[-1]) if node.axis == 0 else (source[-1], source[-2])
    outer = -1 - node.merged if node.axis == 1 else -2
    for extent in source[outer:-2]:
        depth = depth * extent
    panels = normalize(ceil_div(lines.to_index(), node.panel))
    width = Polynomial.of(node.width)
    whole = normalize(ceil_div(depth.to_index(), node.granule) * node.granule)
    if node.granule > 1 and target[-2] != depth and site.facts.proves_equal(target[-2], whole):
        depth = whole  # the target says the last granule's zeros too
    _agree(site, "panels and packed lines", [panels, depth, width], list(target[-3:]))
    _agree(site, "leading axes", [extent for extent in (*source[:outer], *target[:-3]) if extent != _ONE], [])


def _halo(site: Site, node: Halo) -> None:
    source, target = site.box(node.source).extent, site.box(node.target).extent
    width = Polynomial.of(node.terms * node.lanes + 1)
    rows, columns, channels = source[-3:]
    if node.merged is not None:
        (high, wide), right = node.merged, node.steps[1]
        channels = channels * (high * wide)
        whole = (target[-2] - 1) * right + wide  # the columns that the target's windows cover
        _agree(site, "image and windows", [rows, columns], [target[-3] + (high - 1), whole])
        rows, columns = target[-3:-1]
    blocks = normalize(ceil_div(channels.to_index(), node.lanes))
    _agree(site, "image and halo", [blocks, rows, columns, width], list(target[-4:]))
    _agree(site, "leading axes", [extent for extent in (*source[:-3], *target[:-4]) if extent != _ONE], [])


def _epilogue(site: Site, epilogue: EpilogueCall, target: Region) -> None:
    tile = site.box(target).extent
    if epilogue.target is not None:
        tile = site.box(epilogue.target).extent
        _agree(site, "sums and target", _wide(site.box(target).extent), _wide(tile))
    _broadcast(site, [operand for operand in epilogue.operands if isinstance(operand, Region)], tile)


def _reduced(site: Site, node: ReduceTile) -> None:
    """Show that an input has each axis whole, and that the target has those which are left."""
    shape = tuple(map(site.canonical, node.shape))
    _broadcast(site, node.inputs, shape)
    left = [extent for axis, extent in enumerate(shape) if axis not in node.axes]
    _agree(site, "what is not reduced and target", _wide(left), _wide(site.box(node.target).extent))
    boxes = [site.box(region).extent for region in node.inputs]
    for axis, size in enumerate(shape, start=-len(shape)):
        has = any(-axis <= len(box) and site.facts.proves_equal(box[axis], size) for box in boxes)
        if size != _ONE and not has:
            raise refuse("shapes", site.label, f"no input has the {size.to_index()} elements of axis {axis}")


def _broadcast(site: Site, operands: Sequence[Region], tile: Sequence[Polynomial]) -> None:
    for operand in operands:
        extents = site.box(operand).extent
        leading = [extent for extent in extents[: max(0, len(extents) - len(tile))] if extent != _ONE]
        pairs = zip(reversed(extents), reversed(tile), strict=False)
        if leading or not all(extent == _ONE or site.facts.proves_equal(extent, size) for extent, size in pairs):
            raise refuse(
                "shapes",
                site.label,
                f"{operand} was not shown to broadcast to [{', '.join(str(size.to_index()) for size in tile)}]",
            )


def _wide(extents: Sequence[Polynomial]) -> list[Polynomial]:
    return [extent for extent in extents if extent != _ONE]


def _agree(site: Site, what: str, left: Sequence[Polynomial], right: Sequence[Polynomial]) -> None:
    if len(left) != len(right) or not all(site.facts.proves_equal(a, b) for a, b in zip(left, right, strict=True)):
        ours, theirs = (", ".join(str(extent.to_index()) for extent in side) for side in (left, right))
        raise refuse("shapes", site.label, f"{what} differ: [{ours}] and [{theirs}]")
