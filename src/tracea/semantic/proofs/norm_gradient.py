"""Gradients of a norm: rows or planes are whole and the same everywhere, and all sums go into the results once.

That the blocks of rows, or the groups of planes, cover the gradient for the source once is its coverage, and that a
fold takes each block's sums is that reduction's own proof. Here: block p of rows writes part p of the sums, a group its
place in its image's part, and one fold a sum takes the parts as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.expr import Input
from tracea.core.ops.norm_gradient import NormGradientOp
from tracea.core.ops.rows import ReduceKind, RowKind
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import ReduceTile
from tracea.semantic.nodes_norm_gradient import NormGradientTile, PlaneGradientTile
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_norm_gradient"]

_NAME = "norm gradient"
_ZERO, _ONE = Polynomial({}), Polynomial.of(1)
_BATCH_RANK = 3  # of x of a batch norm, whose parameters are a channel's of all images, not a plane's


def prove_norm_gradient(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that a kernel of a norm's gradients gives each row to all of them, once.

    Raises:
        ProofFailed: it was not shown.
    """
    found = [(site, site.node) for site in sites if isinstance(site.node, NormGradientTile | PlaneGradientTile)]
    if not found:
        return
    if len(found) != 1:
        raise refuse(_NAME, kernel.name, f"{len(found)} nodes, not one")
    ((site, node),) = found
    _same_norm(kernel, site, node)
    if isinstance(node, NormGradientTile):
        if len(site.loops) != 1 or site.guards:
            detail = f"rows are walked by {len(site.loops)} loops, not by one without a condition"
            raise refuse(_NAME, site.label, detail)
        pairs, what = _whole_rows(kernel, site, node), "row"
        pairs.append(("part of the sums", site.box(node.sums).offset[0], site.loops[0].atom))
    else:
        offsets = site.box(node.target).offset
        walked = [loop for loop in site.loops if any(loop.var in offset.atoms() for offset in offsets)]
        if len(walked) != len(site.loops) or site.guards:
            detail = f"of {len(site.loops)} loops {len(walked)} move the planes, without a condition"
            raise refuse(_NAME, site.label, detail)
        pairs, what = _whole_planes(kernel, site, node), "group"
    for pair, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse(_NAME, site.label, f"{pair}: {left.to_index()} and {right.to_index()}")
    names = [node.target.buffer, *_folded(kernel, sites, site, node)]
    outputs = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT]
    if names != outputs:
        raise refuse(_NAME, site.label, f"the gradients go to {names}, not to {outputs}")
    over = ", ".join(str(loop.var) for loop in site.loops)
    yield Fact(_NAME, site.label, f"each {what} gives to {', '.join(outputs)} once over {over}")


def _same_norm(kernel: TileKernel, site: Site, node: NormGradientTile | PlaneGradientTile) -> None:
    op = kernel.op
    if not isinstance(op, NormGradientOp):
        return
    kind = node.kind if isinstance(node, NormGradientTile) else RowKind.LAYER_NORM
    ours = (kind, node.eps, node.weight is not None, site.box(node.sums).extent[-2].constant)
    theirs = (op.kind, op.eps, op.weight is not None, len(op.parts) - 1)
    if ours != theirs:
        raise refuse(_NAME, site.label, f"kind, eps, weight and sums are {ours}, the op's {theirs}")
    read = [region.buffer for region in (node.grads, node.source, node.weight) if region is not None]
    given = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT]
    if read != given:
        raise refuse(_NAME, site.label, f"reads {read}, the op's operands are {given}")


def _whole_rows(kernel: TileKernel, site: Site, node: NormGradientTile) -> list[tuple[str, Polynomial, Polynomial]]:
    """Return what has to be equal for rows to be whole, and the same in every operand."""
    target = site.box(node.target)
    size = site.canonical(kernel.buffer(node.target.buffer).shape[-1])
    pairs = [("first column", target.offset[-1], _ZERO), ("columns", target.extent[-1], size)]
    for region in (node.grads, node.source):
        box = site.box(region)
        pairs += [(f"rows of {box.buffer}", *both) for both in zip(box.offset, target.offset, strict=True)]
        pairs += [(f"extent of {box.buffer}", *both) for both in zip(box.extent, target.extent, strict=True)]
    if node.weight is not None:
        box = site.box(node.weight)
        pairs += [("first weight", offset, _ZERO) for offset in box.offset]
        pairs += [("weights", *both) for both in zip(box.extent, (_ONE, size), strict=True)]
    box = site.box(node.sums)
    pairs += [("first of the sums", offset, _ZERO) for offset in box.offset[1:]]
    pairs += [("a part of the sums", box.extent[0], _ONE), ("columns of the sums", box.extent[-1], size)]
    return pairs


def _whole_planes(kernel: TileKernel, site: Site, node: PlaneGradientTile) -> list[tuple[str, Polynomial, Polynomial]]:
    """Return what has to be equal for planes to be whole, the same in every operand, and their sums at their place."""
    target, sums = site.box(node.target), site.box(node.sums)
    shape = [site.canonical(size) for size in kernel.buffer(node.target.buffer).shape]
    # The group of an image is one of each, and its planes are all that there are.
    pairs = [("planes of a group", *both) for both in zip(target.extent, (_ONE, _ONE, *shape[2:]), strict=True)]
    pairs += [("first of the planes", offset, _ZERO) for offset in target.offset[2:]]
    for region in (node.grads, node.source):
        box = site.box(region)
        pairs += [(f"planes of {box.buffer}", *both) for both in zip(box.offset, target.offset, strict=True)]
        pairs += [(f"extent of {box.buffer}", *both) for both in zip(box.extent, target.extent, strict=True)]
    each = sums.extent[-1]
    if each not in (_ONE, shape[2]):
        raise refuse(_NAME, site.label, f"{each.to_index()} sums for {shape[2].to_index()} planes")
    if isinstance(kernel.op, NormGradientOp):
        wanted = _ONE if kernel.op.x.rank == _BATCH_RANK else shape[2]
        pairs.append(("sums of a group", each, wanted))
    if node.weight is not None:
        box = site.box(node.weight)
        pairs += [
            ("first weight", *both) for both in zip(box.offset, (_ZERO, target.offset[1], _ZERO, _ZERO), strict=True)
        ]
        pairs += [("weights", *both) for both in zip(box.extent, (_ONE, _ONE, each, _ONE), strict=True)]
    place = (target.offset[0], _ZERO, target.offset[1] * each)
    pairs += [("place of the sums", *both) for both in zip(sums.offset, place, strict=True)]
    pairs.append(("a part of the sums", sums.extent[0], _ONE))
    return pairs


def _folded(
    kernel: TileKernel, sites: Sequence[Site], site: Site, node: NormGradientTile | PlaneGradientTile
) -> Iterator[str]:
    """Yield where each of the sums goes: a plain sum over all parts, column by column."""
    name = node.sums.buffer
    columns = site.canonical(
        kernel.buffer(name if isinstance(node, PlaneGradientTile) else node.target.buffer).shape[-1]
    )
    folds = [
        (other, other.node)
        for other in sites
        if isinstance(other.node, ReduceTile) and any(region.buffer == name for region in other.node.inputs)
    ]
    count = site.box(node.sums).extent[-2].constant
    if len(folds) != count:
        raise refuse(_NAME, site.label, f"{len(folds)} reductions of {name}, not one for each of {count} sums")
    for index, (other, fold) in enumerate(folds):
        plain = fold.kind is ReduceKind.SUM and fold.prologue == Input(0) and fold.axes == (0,)
        if not plain or fold.epilogue is not None or len(fold.inputs) != 1:
            raise refuse(_NAME, other.label, f"is no plain sum of {name} over its parts")
        source, target = other.box(fold.inputs[0]), other.box(fold.target)
        size = other.canonical(kernel.buffer(fold.target.buffer).shape[-1])
        pairs = [
            ("which of the sums", source.offset[1], Polynomial.of(index)),
            ("columns of a sum", source.offset[-1], target.offset[-1]),
            ("extent of a sum", source.extent[-1], target.extent[-1]),
            ("columns of a result", size, columns),
        ]
        for what, left, right in pairs:
            if not other.facts.proves_equal(left, right):
                raise refuse(_NAME, other.label, f"{what}: {left.to_index()} and {right.to_index()}")
        yield fold.target.buffer
