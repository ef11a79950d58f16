"""Partial sums: a product whose K is parted between executors, each part into a slot of scratch, all slots then added.

Example: part q of a product sums the steps ``[q·kc, q·kc + min(kc, K − q·kc))`` into slot q of ``ceil(K / kc)`` slots;
the parts tile K, every slot is one part's, and a reduction over all slots is the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.expr import Input
from tracea.core.ops.rows import ReduceKind
from tracea.semantic.index import FALSE
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, ReduceTile
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.provenance import Origin
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["leaves_parts", "prove_partial_sum", "prove_slots"]


def prove_partial_sum(kernel: TileKernel, sites: Sequence[Site], site: Site, *, a: Origin, b: Origin) -> Fact:
    """Prove of a product that the parts it is summed in cover K once, and that their sums are added, all of them.

    Raises:
        ProofFailed: a step of K is in no part or in several, a part has no slot of its own, or the slots are not added.
    """
    node = site.node
    assert isinstance(node, MicroKernel)
    slots = site.box(node.c)
    if not leaves_parts(kernel, node):
        raise refuse("reduction", site.label, f"no axis of {b.box.buffer} was found to be summed over")
    if a.packed or b.packed:
        raise refuse("reduction", site.label, "parts of K are shown for operands that are read in place")
    share = _share(kernel, site, b.box)
    _aligned(site, a.box, b.box, slots)
    added = prove_slots(kernel, sites, site, share)
    return Fact("reduction", site.label, f"parts {share.var} cover K once, each in a slot that {added} adds")


def leaves_parts(kernel: TileKernel, node: MicroKernel) -> bool:
    """Tell whether a tile leaves its sums, as they are, in scratch."""
    return kernel.buffer(node.c.buffer).role is BufferRole.SCRATCH and not node.epilogue and node.accumulate == FALSE


def prove_slots(kernel: TileKernel, sites: Sequence[Site], site: Site, share: Loop) -> str:
    """Prove that each iteration of ``share`` has a slot of its own and that all slots are added; return by whom.

    Raises:
        ProofFailed: a part has no slot of its own, or the slots are not added where they belong.
    """
    node = site.node
    assert isinstance(node, MicroKernel)
    slots = site.box(node.c)
    axis = _slot_axis(kernel, site, slots, share)
    still = [loop for loop in site.loops if not any(loop.var in offset.atoms() for offset in slots.offset)]
    if still:
        raise refuse("reduction", site.label, f"every iteration of {still[0].var} leaves its sum in the same slot")
    readers = list(_readers(sites, site, slots.buffer))
    for reader, box in readers:
        _added(reader, box, axis, share)
    if not readers:
        raise refuse("reduction", site.label, f"the partial sums in {slots.buffer} are never added")
    return ", ".join(reader.label for reader, _ in readers)


def _share(kernel: TileKernel, site: Site, b: Box) -> Loop:
    """Return the loop over parts of K."""
    depth = len(b.offset) - 2
    full = site.canonical(kernel.buffer(b.buffer).shape[depth])
    used = chain(b.offset[depth], b.extent[depth], full, site.loops, site.unguarded)
    if used is None or len(used.loops) != 1:
        raise refuse(
            "reduction",
            site.label,
            f"{b.buffer} axis {depth}: [{b.offset[depth].to_index()} : +{b.extent[depth].to_index()}] was not shown to "
            f"cover [0, {full.to_index()}) once, one part an iteration",
        )
    return used.loops[0]


def _slot_axis(kernel: TileKernel, site: Site, slots: Box, share: Loop) -> int:
    """Return the axis of the scratch that counts the parts; iteration q has slot q, and there are no others."""
    moved = [axis for axis, offset in enumerate(slots.offset) if share.var in offset.atoms()]
    if len(moved) == 1 and moved[0] < len(slots.offset) - 2:
        (axis,) = moved
        size = site.canonical(kernel.buffer(slots.buffer).shape[axis])
        own = site.facts.proves_equal(slots.offset[axis], share.atom)
        one = site.facts.proves_equal(slots.extent[axis], Polynomial.of(1))
        if own and one and share.outside.proves_equal(size, share.count):
            return axis
    raise refuse("reduction", site.label, f"part {share.var} was not shown to have slot {share.var} of {slots.buffer}")


def _aligned(site: Site, a: Box, b: Box, slots: Box) -> None:
    pairs = [
        ("first step of a and of b", a.offset[-1], b.offset[-2]),
        ("steps of a and of b", a.extent[-1], b.extent[-2]),
        ("rows of a and of the tile", a.offset[-2], slots.offset[-2]),
        ("columns of b and of the tile", b.offset[-1], slots.offset[-1]),
        ("number of rows of a and of the tile", a.extent[-2], slots.extent[-2]),
        ("number of columns of b and of the tile", b.extent[-1], slots.extent[-1]),
    ]
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse("reduction", site.label, f"{what} differ: {left.to_index()} and {right.to_index()}")


def _readers(sites: Sequence[Site], writer: Site, buffer: str) -> Iterator[tuple[Site, Box]]:
    for site in sites:
        for access, box in site.accesses():
            if box.buffer != buffer or site is writer:
                continue
            if access.writes:
                raise refuse("reduction", site.label, f"writes {buffer}, whose slots hold the sums of {writer.label}")
            yield site, box


def _added(site: Site, box: Box, axis: int, share: Loop) -> None:
    """Show that a node adds all slots of its columns, plainly, and stores the sums where they belong."""
    node = site.node
    plain = isinstance(node, ReduceTile) and (node.kind, node.prologue) == (ReduceKind.SUM, Input(0))
    if not isinstance(node, ReduceTile) or not plain or len(node.inputs) != 1 or node.axes != (axis,):
        raise refuse("reduction", site.label, f"reads {box.buffer}, and is not the sum over its axis {axis}")
    whole = site.facts.proves_equal(box.offset[axis], Polynomial({}))
    if not whole or not site.facts.proves_equal(box.extent[axis], share.count):
        raise refuse("reduction", site.label, f"does not add all {share.count.to_index()} slots of {box.buffer}")
    target = site.box(node.epilogue.target if node.epilogue and node.epilogue.target else node.target)
    inner = len(box.offset) - axis - 1  # axes of a slot: those of the result, of which a matrix has two
    if len(target.offset) < inner:
        raise refuse("reduction", site.label, f"{box.buffer} has {inner} axes in a slot, {target.buffer} fewer")
    for back in range(-inner, 0):
        ours, theirs = (box.offset[back], box.extent[back]), (target.offset[back], target.extent[back])
        if not all(site.facts.proves_equal(left, right) for left, right in zip(ours, theirs, strict=True)):
            what = {-1: "columns", -2: "rows"}.get(back, f"axes {back}")
            raise refuse("reduction", site.label, f"{what} of {box.buffer} and of {target.buffer} differ")
