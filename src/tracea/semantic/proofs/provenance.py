"""Provenance: from which place of which operand the data in a packed or copied tile came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.semantic.index import FloorDiv, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import CopyTile, Pack
from tracea.semantic.nodes_async import AsyncCopy, TmaCopy
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.proofs.tiling import hull, stride_of
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["Origin", "common_loops", "origin", "reaching"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A box of an operand as (lines, depth) intervals of its own last axes; ``packed`` where it came through panels."""

    box: Box
    packed: bool


def common_loops(first: Site, second: Site) -> tuple[Loop, ...]:
    """Return the loops around both nodes."""
    return tuple(loop for loop in first.loops if loop in second.loops)


def reaching(kernel: TileKernel, sites: Sequence[Site], reader: Site, buffer: str) -> Site | None:
    """Return the last node before the reader, in program order, that fills a scratch buffer by copying."""
    if kernel.buffer(buffer).role is not BufferRole.SCRATCH:
        return None
    before = [
        site
        for site in sites
        if site.place < reader.place
        and isinstance(site.node, Pack | CopyTile | Halo | AsyncCopy | TmaCopy)
        and site.node.target.buffer == buffer
    ]
    return before[-1] if before else None


def origin(kernel: TileKernel, sites: Sequence[Site], reader: Site, box: Box) -> Origin | None:
    """Return where the contents of a box came from; None where that was not understood.

    The writer's own loop variables are solved for: with a target offset of s·q + t, an element at e came from q = (e
    − t) div s.
    """
    writer = reaching(kernel, sites, reader, box.buffer)
    if writer is None:
        return Origin(box, packed=False) if kernel.buffer(box.buffer).role is not BufferRole.SCRATCH else None
    node = writer.node
    if isinstance(node, Halo):
        return None  # sums of terms, in blocks: proofs/windows.py traces them
    assert isinstance(node, Pack | CopyTile | AsyncCopy | TmaCopy)
    if isinstance(node, Pack) and node.merged > 1:
        return None  # proofs/windows.py traces merged taps
    source, target = writer.box(node.source), writer.box(node.target)
    inner = [loop for loop in writer.loops if loop not in reader.loops]
    solved: dict[Loop, Polynomial] = {}
    local: list[Polynomial] = []
    for read, written in zip(box.offset, target.offset, strict=True):
        moving = [loop for loop in inner if stride_of(written, loop).terms]
        if len(moving) > 1 or (moving and moving[0] in solved):
            return None
        if not moving:
            local.append(read - written)
            continue
        loop = moving[0]
        stride = stride_of(written, loop)
        distance = read - (written - stride * loop.atom)
        which = normalize(FloorDiv(distance.to_index(), stride.to_index())) if stride.constant != 1 else distance
        solved[loop] = which
        local.append(distance - stride * which)
    offsets = list(source.offset)
    for loop, value in solved.items():
        offsets = [offset.substitute(loop.var, value) for offset in offsets]
    extents = list(source.extent)
    if isinstance(node, Pack):
        lines, depth = (-2, -1) if node.axis == 0 else (-1, -2)
        offsets[lines] = offsets[lines] + local[-3] * node.panel + local[-1]
        offsets[depth] = offsets[depth] + local[-2]
        whole = box.extent[-1].constant == node.width
        if node.is_split and not whole:
            return None
        one_panel = box.extent[-3].constant == 1
        packed = source
        # Panels of several iterations: their lines have to follow each other in the source as the panels do here.
        for loop in inner if not one_panel else ():
            pitch = stride_of(target.offset[-3], loop)
            if pitch.terms and stride_of(source.offset[lines], loop) != pitch * node.panel:
                return None
            united = hull(packed, (loop,), writer.unguarded) if pitch.terms else None
            packed = packed if united is None else united[0]
        # Of the last panel only so many lines are the source's: zeros follow, which stand for none of it.
        held = packed.extent[lines] - local[-3] * node.panel - local[-1]
        which = {loop.var.name: value.to_index() for loop, value in solved.items()}
        held = normalize(held.to_index().substitute(which))
        reach = box.extent[-1] if one_panel and not node.is_split else box.extent[-3] * node.panel
        extents[lines] = normalize(minimum(reach.to_index(), held.to_index()))
        extents[depth] = box.extent[-2]
        return Origin(Box(source.buffer, tuple(offsets), tuple(extents)), packed=True)
    one = Polynomial.of(1)
    theirs = [axis for axis, extent in enumerate(source.extent) if extent != one]
    ours = [axis for axis, extent in enumerate(target.extent) if extent != one]
    if len(theirs) != len(ours):
        return None
    for there, here in zip(theirs, ours, strict=True):
        offsets[there] = offsets[there] + local[here]
        extents[there] = box.extent[here]
    if any(loop.var in offset.atoms() for loop in inner for offset in offsets):
        return None
    return Origin(Box(source.buffer, tuple(offsets), tuple(extents)), packed=False)
