"""Reduction: what is summed into a tile covers K once, with both operands at the tile's rows, columns and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.op import ReduceKind
from tracea.semantic.index import ceil_div
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, ReduceTile
from tracea.semantic.nodes_winograd import is_place_product
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import exactly_at, first_and_last
from tracea.semantic.proofs.groups import is_group
from tracea.semantic.proofs.intermediate import traced
from tracea.semantic.proofs.partial_sums import prove_partial_sum
from tracea.semantic.proofs.pooling import is_pool, prove_pool
from tracea.semantic.proofs.provenance import Origin
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.proofs.windows import is_window, window_sum
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_reduction"]


def prove_reduction(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of each micro-kernel and reduction that its sum is complete: each step of K, or each reduced element, once.

    Raises:
        ProofFailed: the blocks were not shown to tile K, the operands are not aligned, or the sum starts or finishes
        elsewhere.
    """
    for site in sites:
        if isinstance(site.node, MicroKernel) and is_place_product(site.node):
            continue  # proofs/winograd.py
        if isinstance(site.node, MicroKernel):
            yield _micro_kernel(kernel, sites, site, site.node)
        elif isinstance(site.node, ReduceTile) and is_pool(site.node):
            yield prove_pool(kernel, site, site.node)
        elif isinstance(site.node, ReduceTile):
            yield from _reduce_tile(kernel, site, site.node)


def _micro_kernel(kernel: TileKernel, sites: Sequence[Site], site: Site, node: MicroKernel) -> Fact:
    if is_window(node):
        fact, summed = window_sum(kernel, sites, site, node)
        tile = _result_box(kernel, site, node)
        _undisturbed(
            site, node, summed, {loop for loop in site.loops if any(loop.var in o.atoms() for o in tile.offset)}
        )
        return fact
    result = _result_box(kernel, site, node)
    a, b = (_origin(kernel, sites, site, site.box(region)) for region in (node.a, node.b))
    ours = {loop for loop in site.loops if any(loop.var in offset.atoms() for offset in result.offset)}
    # Panels of a constant end in the zeros of a granule: there the steps are those of a, which b's have to equal.
    swept = a.box if _is_granular(node, b) else b.box
    shape = [site.canonical(size) for size in kernel.buffer(swept.buffer).shape]
    depths: list[int] = []
    summed: list[Loop] = []
    for axis in (len(shape) - 1,) if swept is not b.box else range(len(shape) - 1):
        offset, extent, full = swept.offset[axis], swept.extent[axis], shape[axis]
        if full.constant == 1 or any(loop.var in offset.atoms() for loop in ours):
            continue
        if is_group(kernel, swept.buffer, offset):
            continue  # proofs/groups.py shows that it is the tile's
        used = chain(offset, extent, full, site.loops, site.unguarded)
        if used is None or set(used.loops) & set(summed):
            raise refuse(
                "reduction",
                site.label,
                f"{swept.buffer} axis {axis}: [{offset.to_index()} : +{extent.to_index()}] was not shown to cover "
                f"[0, {full.to_index()}) once",
            )
        depths.append(axis if swept is b.box else len(b.box.offset) - 2)
        summed += used.loops
    if not depths:
        return prove_partial_sum(kernel, sites, site, a=a, b=b)
    _aligned(kernel, site, node, a=a, b=b, result=result, depths=depths)
    first, last = first_and_last(summed)
    if not exactly_at(site.unguarded, site.condition(node.accumulate), first, holds=False):
        raise refuse(
            "reduction", site.label, f"the sum does not start exactly at the first block of K: {node.accumulate}"
        )
    target = node.epilogue.target if node.epilogue else None
    if (node.epilogue or target) and not exactly_at(site.unguarded, site.condition(node.finish), last, holds=True):
        raise refuse("reduction", site.label, f"the sum does not finish exactly at the last block of K: {node.finish}")
    _undisturbed(site, node, summed, ours)
    blocks = ", ".join(str(loop.var) for loop in summed) or "one block"
    return Fact("reduction", site.label, f"axes {depths} of {b.box.buffer} are covered once over {blocks}")


def _result_box(kernel: TileKernel, site: Site, node: MicroKernel) -> Box:
    """Return the tile in the coordinates of the result: where the epilogue puts it, if that is not in place."""
    target = node.epilogue.target if node.epilogue else None
    return site.box(node.c if target is None else target)


def _origin(kernel: TileKernel, sites: Sequence[Site], site: Site, box: Box) -> Origin:
    found = traced(kernel, sites, site, box)
    if found is None:
        raise refuse("reduction", site.label, f"what {box.buffer} holds was not traced to an operand")
    return found


def _aligned(
    kernel: TileKernel, site: Site, node: MicroKernel, *, a: Origin, b: Origin, result: Box, depths: Sequence[int]
) -> None:
    """Show that a matrix product with one reduced axis takes the tile's rows and columns, at the same steps."""
    if len(depths) != 1 or len(a.box.offset) < 2:
        return
    depth = depths[0]
    a_depth, a_rows = (-2, -1) if _packed_operand(kernel, a) else (-1, -2)
    pairs = [
        ("first step of a and of b", a.box.offset[a_depth], b.box.offset[depth]),
        ("steps of a and of b", a.box.extent[a_depth], b.box.extent[depth]),
    ]
    if result.buffer and kernel.buffer(result.buffer).role is BufferRole.OUTPUT and not _packed_operand(kernel, a):
        pairs.append(("rows of a and of the tile", a.box.offset[a_rows], result.offset[-2]))
    if kernel.buffer(result.buffer).role is BufferRole.OUTPUT and depth == len(b.box.offset) - 2 and b.packed:
        pairs.append(("columns of b and of the tile", b.box.offset[-1], result.offset[-1]))
    if kernel.buffer(result.buffer).role is BufferRole.OUTPUT and depth == len(b.box.offset) - 2 and not b.packed:
        columns = b.box.offset[-1]
        if _is_granular(node, b):
            columns = columns + b.box.offset[-3] * _width(node)
        elif _is_panel(kernel, site, b, result):
            columns = columns + b.box.offset[-3] * site.canonical(kernel.buffer(b.box.buffer).shape[-1])
        pairs.append(("columns of b and of the tile", columns, result.offset[-1]))
    _wide_enough(site, node, b, result, a.box.extent[a_rows])
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse("reduction", site.label, f"{what} differ: {left.to_index()} and {right.to_index()}")


def _wide_enough(site: Site, node: MicroKernel, b: Origin, result: Box, tall: Polynomial) -> None:
    """Show that the operands bring at least the tile's rows and columns."""
    rows, columns = (Polynomial.of(1), *result.extent)[-2:]
    wide = b.box.extent[-3] * _width(node) if _is_granular(node, b) else b.box.extent[-1]
    brought = [("rows of a", tall, rows), ("columns of b", wide, columns)]
    for what, has, needs in brought:
        if not site.facts.proves(has - needs):
            raise refuse("reduction", site.label, f"{has.to_index()} {what}, the tile needs {needs.to_index()}")


def _is_granular(node: MicroKernel, b: Origin) -> bool:
    """Whether b is a constant in panels of whole granules, several of them in one region.

    A region of two axes is a matrix, of which a routine reads no more steps than there are (``nodes.in_granules``).
    """
    return node.granule > 1 and not b.packed and len(b.box.offset) >= 3


def _width(node: MicroKernel) -> int:
    """Return the columns of one panel of such a b."""
    return int(node.intrinsic.attribute("tile"))


def _packed_operand(kernel: TileKernel, a: Origin) -> bool:
    return not a.packed and kernel.buffer(a.box.buffer).role is BufferRole.CONSTANT and len(a.box.offset) >= 3


def _is_panel(kernel: TileKernel, site: Site, b: Origin, result: Box) -> bool:
    """Whether b's region is one of as many panels as the result's columns fill; its rank may be that of a batch."""
    sizes = kernel.buffer(b.box.buffer).shape
    if len(sizes) < 3 or b.box.extent[-3].constant != 1:
        return False
    panels = ceil_div(kernel.buffer(result.buffer).shape[-1], sizes[-1])
    return site.facts.proves_equal(site.canonical(sizes[-3]), site.canonical(panels))


def _undisturbed(site: Site, node: MicroKernel, summed: Sequence[Loop], ours: set[Loop]) -> None:
    """Show that between two blocks of K no other tile is summed in the same place."""
    if not summed:
        return
    outermost = min(site.loops.index(loop) for loop in summed)
    place = site.box(node.c)
    for loop in site.loops[outermost:]:
        if loop in summed:
            continue
        if not any(loop.var in offset.atoms() for offset in place.offset):
            raise refuse(
                "reduction",
                site.label,
                f"{place.buffer} holds one sum for all iterations of {loop.var} inside the loop over K",
            )


def _reduce_tile(kernel: TileKernel, site: Site, node: ReduceTile) -> Iterator[Fact]:
    result = site.box(node.epilogue.target if node.epilogue and node.epilogue.target else node.target)
    ours = {loop for loop in site.loops if any(loop.var in offset.atoms() for offset in result.offset)}
    summed: set[Loop] = set()
    elements = Polynomial.of(1)
    widest = max(node.inputs, key=lambda region: len(region.offset), default=None)
    if widest is None:
        return
    box, shape = site.box(widest), [site.canonical(size) for size in kernel.buffer(widest.buffer).shape]
    skipped = len(node.shape) - len(shape)
    for axis in node.axes:
        at = axis - skipped
        if at < 0:
            continue
        used = chain(
            box.offset[at], box.extent[at], shape[at], [loop for loop in site.loops if loop not in ours], site.unguarded
        )
        if used is None:
            raise refuse(
                "reduction",
                site.label,
                f"{box.buffer} axis {at}: [{box.offset[at].to_index()} : +{box.extent[at].to_index()}] "
                "was not shown to cover "
                f"[0, {shape[at].to_index()}) once",
            )
        summed |= set(used.loops)
        elements = elements * shape[at]
    count = site.canonical(node.count)
    if node.kind is ReduceKind.MEAN and not site.facts.proves_equal(count, elements):
        raise refuse(
            "reduction", site.label, f"a mean of {elements.to_index()} elements is divided by {count.to_index()}"
        )
    first, last = first_and_last([loop for loop in site.loops if loop in summed])
    if not exactly_at(site.unguarded, site.condition(node.accumulate), first, holds=False):
        raise refuse(
            "reduction", site.label, f"the reduction does not start exactly at its first block: {node.accumulate}"
        )
    if not exactly_at(site.unguarded, site.condition(node.finish), last, holds=True):
        raise refuse("reduction", site.label, f"the reduction does not finish exactly at its last block: {node.finish}")
    yield Fact("reduction", site.label, f"axes {list(node.axes)} of {box.buffer} are covered once")
