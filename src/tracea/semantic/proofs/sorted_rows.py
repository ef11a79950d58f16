"""Sorted rows: the routine has room for its two lists of keys with places, which nothing else reads or writes.

That the result is written once is its coverage. Here: whole rows are sorted, no more is asked of a row than it has, and
the room of a thread holds two pairs an element, of 8 bytes each, or of 16 where an element has 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.ops.indexed import LargestOp
from tracea.semantic.access import Region
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["prove_sorted_rows"]

_NAME = "sorted rows"
_ROUTINE = "sort_rows"
_PAIRS, _PAIR_BYTES, _WIDE_PAIR_BYTES = 2, 8, 16


def prove_sorted_rows(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that a kernel that sorts rows has room for what it sorts, and sorts whole rows as its op says.

    Raises:
        ProofFailed: it was not shown.
    """
    for site in sites:
        node = site.node
        if isinstance(node, FragmentOp) and node.intrinsic.name == _ROUTINE:
            yield _sorted(kernel, sites, site, node)


def _sorted(kernel: TileKernel, sites: Sequence[Site], site: Site, node: FragmentOp) -> Fact:
    if len(node.inputs) != 1 or len(node.outputs) != 2 or not isinstance(node.inputs[0], Region):
        raise refuse(_NAME, site.label, "takes other operands than rows, places and room")
    x, y, room = (site.box(region) for region in (node.inputs[0], *node.outputs))
    memory, read = kernel.buffer(room.buffer), kernel.buffer(x.buffer)
    if memory.role is not BufferRole.SCRATCH or memory.space is not MemorySpace.THREAD:
        raise refuse(_NAME, site.label, f"{room.buffer} is no memory of one thread")
    for other in sites:
        if other is not site and any(box.buffer == room.buffer for _, box in other.accesses()):
            raise refuse(_NAME, other.label, f"uses {room.buffer}, the room of {site.label}")
    said = tuple(node.intrinsic.attribute(name) for name in ("k", "smallest"))
    if isinstance(kernel.op, LargestOp) and said != (kernel.op.k, int(kernel.op.smallest)):
        raise refuse(_NAME, site.label, f"says {said}, the op {(kernel.op.k, int(kernel.op.smallest))}")
    columns, count = x.extent[-1], y.extent[-1]
    whole = site.canonical(read.shape[-1])
    for what, left, right in (
        ("the first column", x.offset[-1], Polynomial({})),
        ("columns", columns, whole),
        ("the first place", y.offset[-1], Polynomial({})),
        ("places", count, site.canonical(kernel.buffer(y.buffer).shape[-1])),
        *(("where the room begins", offset, Polynomial({})) for offset in room.offset),
        *(("rows", *both) for both in zip(x.extent[:-1], y.extent[:-1], strict=True)),
        *(("the first row", *both) for both in zip(x.offset[:-1], y.offset[:-1], strict=True)),
    ):
        if not site.facts.proves_equal(left, right):
            raise refuse(_NAME, site.label, f"{what}: {left.to_index()} and {right.to_index()}")
    if not site.facts.proves(columns - count):
        raise refuse(_NAME, site.label, f"{count.to_index()} places of {columns.to_index()} columns")
    pair_bytes = _WIDE_PAIR_BYTES if read.dtype.nbytes == _PAIR_BYTES else _PAIR_BYTES
    needed = columns * (_PAIRS * pair_bytes)
    if len(room.extent) != 1 or not site.facts.proves(room.extent[0] * memory.dtype.nbytes - needed):
        found = " x ".join(str(extent.to_index()) for extent in room.extent)
        raise refuse(
            _NAME, site.label, f"{room.buffer} has {found} of {memory.dtype.value}, {needed.to_index()} bytes are used"
        )
    return Fact(_NAME, site.label, f"{room.buffer} has {_PAIRS} pairs of {pair_bytes} bytes for each column")
