"""Windows: a convolution's tile sums every tap and channel once, each with the pixel that the tap lies over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracea.semantic.index import Index
from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, Pack
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import exactly_at, first_and_last
from tracea.semantic.proofs.partial_sums import leaves_parts, prove_slots
from tracea.semantic.proofs.provenance import origin, reaching
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["is_window", "window_sum"]


@dataclass(frozen=True, slots=True)
class _Filters:
    """Where a panel's filters are: (…, panel, [blocks,] r, s, channels, width) as positions from the end."""

    panel: int
    taps: tuple[int, int]
    channels: int | None  # None: each filter is of one channel, the panel's own
    lanes: int  # channels in one element of the axis
    width: Polynomial  # filters of a panel


def is_window(node: MicroKernel) -> bool:
    """Whether a tile's first operand is a window of an image instead of a matrix."""
    return any(name == "window" for name, _ in node.intrinsic.attributes)


def window_sum(kernel: TileKernel, sites: Sequence[Site], site: Site, node: MicroKernel) -> tuple[Fact, list[Loop]]:
    """Prove a tile's sum complete and its operands aligned; also return the loops that it is summed over.

    The image is (…, rows, columns, channels), copied by a ``CopyTile`` or a ``Halo``; the filters are (…, panel, r, s,
    channels, width), (…, panel, blocks, r, s, lanes, terms · width) for sums of terms, or (…, panel, r, s, width) where
    each filter has one channel of its own; the result is (…, rows, columns, filters). The routine says its
    ``stride_rows``, ``dilation_rows`` and so on.

    Raises:
        ProofFailed: a tap or a channel was not shown to be summed once, or to lie over the result's pixel.
    """
    target = node.epilogue.target if node.epilogue else None
    result, b = site.box(node.c if target is None else target), site.box(node.b)
    a = _image(kernel, sites, site, node)
    shape = [site.canonical(size) for size in kernel.buffer(b.buffer).shape]
    filters = _filters(node, shape)
    panel = dict(node.intrinsic.attributes).get("nr")
    if panel is not None and filters.width.constant != panel:
        width = filters.width.to_index()
        raise refuse("reduction", site.label, f"panels of {width} filters, the routine takes them for {panel}")
    if a is None or len(result.offset) < 3 or len(b.offset) < -filters.panel:
        raise refuse("reduction", site.label, f"what {node.a.buffer} holds was not traced to an image")
    summed, shares = _summed(site, filters, b, shape, result, parts=leaves_parts(kernel, node))
    added = "".join(f", {loop.var} in slots that {prove_slots(kernel, sites, site, loop)} adds" for loop in shares)
    _aligned(kernel, site, node, filters, a=a, b=b, result=result)
    _left_out(kernel, site, node, a)
    _spared(site, node, kernel.buffer(node.a.buffer).shape)
    _packed(kernel, sites, site, filters, b)
    first, last = first_and_last(summed)
    if not exactly_at(site.unguarded, site.condition(node.accumulate), first, holds=False):
        raise refuse("reduction", site.label, f"the sum does not start exactly at its first block: {node.accumulate}")
    if node.epilogue and not exactly_at(site.unguarded, site.condition(node.finish), last, holds=True):
        raise refuse("reduction", site.label, f"the sum does not finish exactly at its last block: {node.finish}")
    blocks = ", ".join(str(loop.var) for loop in summed) or "one block"
    covered = f"taps and channels of {b.buffer} are covered once over {blocks}, each over its pixel of {a.buffer}"
    return Fact("reduction", site.label, f"{covered}{added}"), summed


def _filters(node: MicroKernel, shape: Sequence[Polynomial]) -> _Filters:
    names = dict(node.intrinsic.attributes)
    if "channelwise" in names:
        return _Filters(panel=-4, taps=(-3, -2), channels=None, lanes=1, width=shape[-1])
    if "terms" not in names:
        return _Filters(panel=-5, taps=(-4, -3), channels=-2, lanes=1, width=shape[-1])
    return _Filters(
        panel=-6, taps=(-4, -3), channels=-5, lanes=int(names["lanes"]), width=Polynomial.of(int(names["tile"]))
    )


def _image(kernel: TileKernel, sites: Sequence[Site], site: Site, node: MicroKernel) -> Box | None:
    """Return the window in the image's own coordinates; the channels of a halo of terms are all that were copied."""
    box = site.box(node.a)
    writer = reaching(kernel, sites, site, box.buffer)
    if writer is None or not isinstance(writer.node, Halo):
        found = origin(kernel, sites, site, box)
        return None if found is None else found.box
    source, target = writer.box(writer.node.source), writer.box(writer.node.target)
    if any(loop not in site.loops for loop in writer.loops):
        return None
    merged = writer.node.merged
    if merged is not None:
        found = origin(kernel, sites, writer, source)
        if found is None or merged != _merged(node):
            return None
        source = found.box
    whole = zip((box.offset[0], box.extent[0]), (target.offset[0], target.extent[0]), strict=True)
    if not all(site.facts.proves_equal(ours, theirs) for ours, theirs in whole):
        raise refuse("reduction", site.label, f"{box.buffer} is read in other blocks of channels than were written")
    moved = [box.offset[axis] - target.offset[axis] for axis in (1, 2)]
    extents = (box.extent[1], box.extent[2])
    if merged is not None:  # whole rows: what a column of them is in the image follows from the shapes
        if moved[1].constant != 0 or not site.facts.proves_equal(box.extent[2], target.extent[2]):
            return None
        extents = (box.extent[1] + (merged[0] - 1), source.extent[-2])
    offset = (*source.offset[:-3], source.offset[-3] + moved[0], source.offset[-2] + moved[1], source.offset[-1])
    extent = (*source.extent[:-3], *extents, source.extent[-1])
    return Box(source.buffer, offset, extent)


def _merged(node: MicroKernel) -> tuple[int, int] | None:
    """Return the taps, (rows, columns), that are lanes of a granule; None where lanes are channels."""
    names = dict(node.intrinsic.attributes)
    return (int(names["merged_rows"]), int(names["merged_columns"])) if "merged_rows" in names else None


def _summed(
    site: Site, filters: _Filters, b: Box, shape: Sequence[Polynomial], result: Box, *, parts: bool
) -> tuple[list[Loop], list[Loop]]:
    """Return the loops that sweep the taps and channels, each of which is swept once, and those whose sums are parts.

    With ``parts`` one loop may move the result too: its iterations leave sums of their own, for others to add.
    """
    ours = {loop for loop in site.loops if any(loop.var in offset.atoms() for offset in result.offset)}
    summed: list[Loop] = []
    shares: list[Loop] = []
    for axis in range(filters.panel + 1, -1):
        used = chain(b.offset[axis], b.extent[axis], shape[axis], site.loops, site.unguarded)
        if parts and not shares and used is not None and len(used.loops) == 1 and used.loops[0] in ours:
            shares += used.loops
            continue
        if used is None or set(used.loops) & (ours | set(summed)):
            raise refuse(
                "reduction",
                site.label,
                f"{b.buffer} axis {axis}: [{b.offset[axis].to_index()} : +{b.extent[axis].to_index()}] was not shown "
                f"to cover [0, {shape[axis].to_index()}) once",
            )
        summed += used.loops
    return summed, shares


def _aligned(
    kernel: TileKernel, site: Site, node: MicroKernel, filters: _Filters, *, a: Box, b: Box, result: Box
) -> None:
    """Show that each result's window is where its stride puts it and as large as the taps reach, for its filters."""
    get = node.intrinsic.attribute
    pairs = [("filters of the panel and of the tile", b.offset[filters.panel] * filters.width, result.offset[-1])]
    if filters.channels is None:
        pairs.append(("first channel of the image and of the tile", a.offset[-1], result.offset[-1]))
        pairs.append(("channels of the image and of the tile", a.extent[-1], result.extent[-1]))
    else:
        steps, first = b.extent[filters.channels], b.offset[filters.channels] * filters.lanes
        pairs.append(("first channel of the image and of the filters", a.offset[-1], first))
        if filters.lanes == 1:
            pairs.append(("channels of the image and of the filters", a.extent[-1], steps))
        else:
            pairs.append(("blocks of channels", site.box(node.a).extent[0], steps))
            image = site.canonical(kernel.buffer(a.buffer).shape[-1])
            pairs.append(("channels that were copied and those of the image", a.extent[-1], image))
    merged, padding = _merged(node) or (1, 1), getattr(kernel.op, "padding", None)
    for axis, (name, tap) in ((-3, ("rows", filters.taps[0])), (-2, ("columns", filters.taps[1]))):
        stride, dilation = int(get(f"stride_{name}")), int(get(f"dilation_{name}"))
        if axis == -2 and _merged(node) is not None:  # the halo has a pixel for each result
            stride = int(get("columns_apart"))
        reach = (result.extent[axis] - 1) * stride + (b.extent[tap] - 1) * dilation + merged[axis + 3]
        pairs.append((f"{name} of the window and of the taps", a.extent[axis], reach))
        distance = a.offset[axis] - result.offset[axis] * stride
        wanted = distance.constant if padding is None else -padding[axis + 3]
        if distance.constant is None or distance.constant != wanted:
            raise refuse(
                "reduction",
                site.label,
                f"{name} {a.offset[axis].to_index()} of {a.buffer} do not keep the distance "
                f"{'of the padding' if wanted is None else wanted} to {stride} * ({result.offset[axis].to_index()})",
            )
    if kernel.buffer(result.buffer).rank >= kernel.buffer(a.buffer).rank:  # slots of parts come before images
        outer = zip(a.offset[:-3], result.offset[-len(a.offset) : -3], strict=True)
        pairs += [("image or group", left, right) for left, right in outer]
    if not site.facts.proves(b.extent[filters.panel] * filters.width - result.extent[-1]):
        raise refuse("reduction", site.label, f"panels of {filters.width.to_index()} filters, the tile needs more")
    _equal(site, pairs)


def _left_out(kernel: TileKernel, site: Site, node: MicroKernel, a: Box) -> None:
    """Show that what the routine leaves out of its sums are rows and columns that the image has not."""
    if node.image is None:
        return
    shape = [site.canonical(size) for size in kernel.buffer(a.buffer).shape]
    axes = zip(("rows", "columns"), (-3, -2), node.image.first, node.image.extent, strict=False)
    for name, axis, first, extent in axes:
        pairs = [
            (f"first {name} of the window, and those which {name} are left out by,", a.offset[axis], first),
            (f"{name} of the image, and those which {name} are left out by,", shape[axis], extent),
        ]
        _equal(site, [(what, ours, site.canonical(theirs)) for what, ours, theirs in pairs])


def _spared(site: Site, node: MicroKernel, halo: Sequence[Index]) -> None:
    """Show that a halo has the ``spare_rows`` of each of its phases that a tile reads and drops, and they a tile.

    The tiles of a band run over the ends of rows; the last one begins in the window and may end behind it.
    """
    said = dict(node.intrinsic.attributes)
    if "spare_rows" not in said:
        return
    spare, tile, down, right = (int(said[name]) for name in ("spare_rows", "tile", "stride_rows", "stride_columns"))
    box, (rows, columns) = site.box(node.a), map(site.canonical, halo[-3:-1])
    left = rows - box.offset[-3] - box.extent[-3] - spare * down
    if not site.facts.proves(left) or not site.facts.proves(columns * spare - tile * right):
        held = f"{spare} rows of {columns.to_index()} pixels behind those of the window"
        raise refuse("reduction", site.label, f"{held} were not shown to hold a tile of {tile} in each phase")


def _packed(kernel: TileKernel, sites: Sequence[Site], site: Site, filters: _Filters, b: Box) -> None:
    """Show that panels which this kernel fills hold, tap by tap, the filters of the same taps, or turned."""
    writer = reaching(kernel, sites, site, b.buffer)
    if writer is None:
        return
    if not isinstance(writer.node, Pack):
        raise refuse("reduction", site.label, f"{b.buffer} was not packed")
    assert isinstance(site.node, MicroKernel)
    merged = _merged(site.node)
    source, target = writer.box(writer.node.source), writer.box(writer.node.target)
    turned = bool(getattr(kernel.op, "turned", False))

    def tap(axis: int, step: int) -> Polynomial:
        size = writer.canonical(kernel.buffer(b.buffer).shape[axis])
        return (size - 1 - target.offset[axis] if turned else target.offset[axis]) * step

    pairs = [
        ("packed filters", source.offset[-1], target.offset[filters.panel] * filters.width),
        *(
            ("packed taps", source.offset[axis], tap(axis, step))
            for axis, step in zip(filters.taps, merged or (1, 1), strict=True)
        ),
    ]
    if filters.channels is not None:
        first = target.offset[filters.channels] * filters.lanes
        pairs.append(("packed channels", source.offset[-2], first))
    if merged is not None:
        every = writer.canonical(kernel.buffer(source.buffer).shape[-2])
        whole = (*map(Polynomial.of, merged), every)
        pairs += [("merged taps and channels", *pair) for pair in zip(source.extent[-4:-1], whole, strict=True)]
    if writer.node.merged != (1 if merged is None else 3):
        raise refuse("reduction", writer.label, f"{writer.node.merged} axes of the filters are merged")
    _equal(writer, pairs)


def _equal(site: Site, pairs: Sequence[tuple[str, Polynomial, Polynomial]]) -> None:
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse("reduction", site.label, f"{what} differ: {left.to_index()} and {right.to_index()}")
