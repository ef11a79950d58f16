"""Sums of rows by index: a block's lists are of its own rows, of all indices, and what is summed are whole lists.

That the blocks of rows and columns cover the result once is its coverage, that a list is made before it is walked its
initialization. Here: the lists made are the lists walked, they begin with the result's first row, and columns agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracea.core.ops.indexed import SumRowsOp
from tracea.semantic.access import Region
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_row_sums"]

_NAME = "row sums"
_LISTS, _SUMS = "chain_rows", "sum_chained_rows"
_ZERO = Polynomial({})


def prove_row_sums(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove that a kernel of sums by index adds each row of x to the row that its index names, and to no other.

    Raises:
        ProofFailed: it was not shown.
    """
    found = [(site, site.node) for site in sites if isinstance(site.node, FragmentOp)]
    lists = [(site, node) for site, node in found if node.intrinsic.name == _LISTS]
    sums = [(site, node) for site, node in found if node.intrinsic.name == _SUMS]
    if not lists and not sums:
        return
    if len(lists) != 1 or len(sums) != 1:
        raise refuse(_NAME, kernel.name, f"{len(lists)} nodes list rows and {len(sums)} sum them, not one each")
    ((made, listing),), ((site, node),) = lists, sums
    if made.loops != site.loops or made.guards != site.guards or made.place >= site.place:
        raise refuse(_NAME, site.label, f"the lists are made at {made.label}, not before their sums in the same loops")
    regions = [region for region in (*listing.inputs, *node.inputs) if isinstance(region, Region)]
    if len(regions) != len(listing.inputs) + len(node.inputs) or len(regions) != 4 or len(listing.indices) != 2:
        raise refuse(_NAME, site.label, "takes other operands than indices, two lists and rows")
    indices, heads, links, rows = regions
    _same_op(kernel, made, listing, (rows.buffer, indices.buffer))
    for other in sites:
        if other is not made and any(
            a.writes and box.buffer in (heads.buffer, links.buffer) for a, box in other.accesses()
        ):
            raise refuse(_NAME, other.label, f"writes {heads.buffer} or {links.buffer}, the lists of {made.label}")
    first, length = (made.canonical(index) for index in listing.indices)
    target, x = site.box(node.outputs[0]), site.box(rows)
    pairs = [
        ("the first row of the lists", first, target.offset[0]),
        ("rows with lists", length, target.extent[0]),
        ("first column", x.offset[1], target.offset[1]),
        ("columns", x.extent[1], target.extent[1]),
        *_all_rows(kernel, made, indices),
        *_all_rows(kernel, site, rows),
        ("indices and rows", made.box(indices).extent[0], x.extent[0]),
    ]
    for ours, theirs in zip(listing.outputs, (heads, links), strict=True):
        box, other = made.box(ours), site.box(theirs)
        if box.buffer != other.buffer:
            raise refuse(_NAME, site.label, f"walks {other.buffer} where the lists are in {box.buffer}")
        pairs += [(f"where {box.buffer} begins", *both) for both in zip(box.offset, other.offset, strict=True)]
        pairs += [(f"how long {box.buffer} is", *both) for both in zip(box.extent, other.extent, strict=True)]
    pairs += [
        ("heads of lists", site.box(heads).extent[-1], length),
        ("links", site.box(links).extent[-1], x.extent[0]),
    ]
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse(_NAME, site.label, f"{what}: {left.to_index()} and {right.to_index()}")
    yield Fact(
        _NAME, site.label, f"each row of {x.buffer} goes into the row of {target.buffer} that {indices.buffer} says"
    )


def _same_op(kernel: TileKernel, site: Site, listing: FragmentOp, read: tuple[str, str]) -> None:
    given = tuple(buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.INPUT)
    if read != given:
        raise refuse(_NAME, site.label, f"rows and indices are {read}, the op's operands {given}")
    if isinstance(kernel.op, SumRowsOp):
        skipped = -1 if kernel.op.skipped is None else kernel.op.skipped
        if listing.intrinsic.attribute("skipped") != skipped:
            raise refuse(
                _NAME, site.label, f"row {listing.intrinsic.attribute('skipped')} is skipped, the op's is {skipped}"
            )


def _all_rows(kernel: TileKernel, site: Site, region: Region) -> list[tuple[str, Polynomial, Polynomial]]:
    """Return what has to be equal for a region to have all rows of its buffer."""
    box = site.box(region)
    size = site.canonical(kernel.buffer(region.buffer).shape[0])
    return [(f"the first of {box.buffer}", box.offset[0], _ZERO), (f"all of {box.buffer}", box.extent[0], size)]
