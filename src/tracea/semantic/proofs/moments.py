"""Moments of columns: every row is in one part, a part's sums have their place, and a fold takes all of an image's.

That parts are written before they are read, and that results are written once, other proofs show. Here: part p holds
rows from p times its step on, the fold knows that step, and what both read are the op's operands, whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tracea.core.ops.moments import MomentsOp
from tracea.semantic.index import ceil_div, minimum
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import Region
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile, state_rows
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_moments"]

_NAME = "moments"
_ZERO, _ONE = Polynomial({}), Polynomial.of(1)
Pairs: TypeAlias = list[tuple[str, Polynomial, Polynomial]]


def prove_moments(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that each row of a column is added up once, and that all of them make its moments.

    Raises:
        ProofFailed: it was not shown.
    """
    tiles = [(site, site.node) for site in sites if isinstance(site.node, MomentsTile)]
    folds = [(site, site.node) for site in sites if isinstance(site.node, MomentsFold)]
    if not tiles and not folds:
        return
    if len(tiles) != 1 or len(folds) != 1:
        raise refuse(_NAME, kernel.name, f"{len(tiles)} tiles and {len(folds)} folds, not one of each")
    ((site, tile),), ((last, fold),) = tiles, folds
    for where in (site, last):
        if where.guards:
            raise refuse(_NAME, where.label, "is under a condition")
    _same_operands(kernel, site, tile)
    _same_operands(kernel, last, fold)
    if tile.target.buffer != fold.states.buffer:
        raise refuse(_NAME, last.label, f"folds {fold.states.buffer}, the sums are in {tile.target.buffer}")
    for at, pairs in ((site, _parts(kernel, site, tile, fold)), (last, _whole(kernel, last, fold))):
        for what, left, right in pairs:
            if not at.facts.proves_equal(left, right):
                raise refuse(_NAME, at.label, f"{what}: {left.to_index()} and {right.to_index()}")
    over = ", ".join(str(loop.var) for loop in site.loops)
    yield Fact(_NAME, site.label, f"each row is in one part of {fold.target.buffer} over {over}")


def _same_operands(kernel: TileKernel, site: Site, node: MomentsTile | MomentsFold) -> None:
    if not isinstance(kernel.op, MomentsOp):
        return
    about = (node.about,) if isinstance(node, MomentsFold) else ()
    read = [region.buffer for region in (node.source, *about, node.grads) if region is not None]
    given = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT]
    if isinstance(node, MomentsTile):
        del given[1:2]  # what the mean is taken about, which a fold reads
    if read != given:
        raise refuse(_NAME, site.label, f"reads {read}, the op's operands are {given}")


def _parts(kernel: TileKernel, site: Site, tile: MomentsTile, fold: MomentsFold) -> Pairs:
    """Return what has to be equal for a part to hold its own rows, of whole columns, at its place."""
    source, target = site.box(tile.source), site.box(tile.target)
    image, part, *rest = target.offset
    _, rows, size = kernel.buffer(tile.source.buffer).shape
    columns, step = site.canonical(size), site.canonical(fold.step)
    walked = [loop for loop in site.loops if any(loop.var in end.atoms() for end in (image, part))]
    if len(walked) != len(site.loops):
        raise refuse(_NAME, site.label, "a loop moves neither the image nor the part")
    parts = site.canonical(ceil_div(rows, fold.step))
    own = site.canonical(minimum(fold.step, rows - tile.source.offset[1]))
    pairs: Pairs = [
        ("image", source.offset[0], image),
        ("one image", source.extent[0], _ONE),
        ("first row of a part", source.offset[1], part * step),
        ("rows of a part", source.extent[1], own),
        ("parts", site.canonical(kernel.buffer(tile.target.buffer).shape[1]), parts),
        ("first column", source.offset[2], _ZERO),
        ("columns", source.extent[2], columns),
        ("one part", target.extent[1], _ONE),
        ("first of the sums", rest[0], _ZERO),
        ("sums", target.extent[2], Polynomial.of(state_rows(graded=tile.grads is not None))),
        ("first column of the sums", rest[1], _ZERO),
        ("columns of the sums", target.extent[3], columns),
    ]
    return pairs + _beside(site, source, tile.grads)


def _whole(kernel: TileKernel, site: Site, fold: MomentsFold) -> Pairs:
    """Return what has to be equal for a fold to take all parts and rows of its columns."""
    states, source, target = site.box(fold.states), site.box(fold.source), site.box(fold.target)
    sizes = [site.canonical(size) for size in kernel.buffer(fold.states.buffer).shape]
    rows = site.canonical(kernel.buffer(fold.source.buffer).shape[1])
    results = 2 if fold.grads is None else 4
    pairs: Pairs = [
        ("first part", states.offset[1], _ZERO),
        ("all parts", states.extent[1], sizes[1]),
        ("first of the sums", states.offset[2], _ZERO),
        ("sums", states.extent[2], Polynomial.of(state_rows(graded=fold.grads is not None))),
        ("first row", source.offset[1], _ZERO),
        ("rows", source.extent[1], rows),
        ("first moment", target.offset[1], _ZERO),
        ("moments", target.extent[1], Polynomial.of(results)),
    ]
    for what, box in (("sums", states), ("rows", source)):
        pairs += [
            (f"image of the {what}", box.offset[0], target.offset[0]),
            (f"columns of the {what}", box.offset[-1], target.offset[-1]),
            (f"extent of the {what}", box.extent[-1], target.extent[-1]),
            (f"one image of the {what}", box.extent[0], _ONE),
        ]
    about = site.box(fold.about)
    pairs += [
        ("image of the pivots", about.offset[0], source.offset[0]),
        ("columns of the pivots", about.offset[2], source.offset[2]),
        ("extent of the pivots", about.extent[2], source.extent[2]),
    ]
    return pairs + _beside(site, source, fold.grads)


def _beside(site: Site, source: Box, grads: Region | None) -> Pairs:
    """Return what has to be equal for gradients to be those of the rows."""
    if grads is None:
        return []
    box = site.box(grads)
    return [
        *(("rows of the gradient", *both) for both in zip(box.offset, source.offset, strict=True)),
        *(("extent of the gradient", *both) for both in zip(box.extent, source.extent, strict=True)),
    ]
