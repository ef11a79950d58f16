"""Intermediates: scratch that holds a finished product, read as an operand of the next, in coordinates of the whole.

Example: a task's scratch holds rows ``ic + i`` of ``T = x·a`` at rows ``i``. What the second product reads there is
``T[ic + i, j]``: the row is that of x, the column that of a. So ``(x·a)·b`` is proved as ``T·b`` is: the tile's rows
are those of x, the steps those of b. The reader must stand behind the whole sum, not inside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracea.semantic.index import TRUE
from tracea.semantic.nodes import MicroKernel
from tracea.semantic.proofs.provenance import Origin, origin
from tracea.semantic.proofs.walk import Box, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["traced"]


def traced(kernel: TileKernel, sites: Sequence[Site], reader: Site, box: Box) -> Origin | None:
    """Return where the contents of a box came from, of a product's the rows and columns of the whole product.

    None: it was not understood, or the product may not be finished where it is read.
    """
    found = origin(kernel, sites, reader, box)
    held = box if found is None else found.box
    if kernel.buffer(held.buffer).role is not BufferRole.SCRATCH:
        return found
    whole = _whole(kernel, sites, reader, held)
    if whole is None:
        return None
    return Origin(whole, packed=found is not None and found.packed)


def _whole(kernel: TileKernel, sites: Sequence[Site], reader: Site, box: Box) -> Box | None:
    writers = [site for site in sites for a, b in site.accesses() if a.writes and b.buffer == box.buffer]
    if len(writers) != 1 or writers[0].place > reader.place:
        return None
    writer = writers[0]
    node = writer.node
    if not isinstance(node, MicroKernel) or node.epilogue is not None or node.finish != TRUE or len(box.offset) != 2:
        return None
    held = writer.box(node.c)
    a, b = (origin(kernel, sites, writer, writer.box(region)) for region in (node.a, node.b))
    if a is None or b is None or len(a.box.offset) != 2 or len(b.box.offset) != 2:
        return None
    steps = {*a.box.offset[-1].atoms(), *b.box.offset[-2].atoms()}
    inner = [loop for loop in writer.loops if loop not in reader.loops]
    # A loop over steps around both would let the reader see a sum that others still add to.
    if any(loop.var in steps for loop in writer.loops if loop not in inner):
        return None
    shifts = (a.box.offset[-2] - held.offset[0], b.box.offset[-1] - held.offset[1])
    if any(loop.var in shift.atoms() for loop in inner for shift in shifts):
        return None
    offset = tuple(place + shift for place, shift in zip(box.offset, shifts, strict=True))
    return Box(box.buffer, offset, box.extent)
