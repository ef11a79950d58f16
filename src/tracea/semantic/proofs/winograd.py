"""Winograd's F(m, r): what the products of a place are taken of, and that the transforms around them give the results.

That the matrices are right is an identity of fractions (``Algorithm.is_exact``). Here it is shown that each result's
tile goes through them whole: its n by n pixels are those that its m by m windows read, at one distance from it; the
products of every place, over all channels, have the tile and the place in common with the transformed image, the place
and the filters with the transformed filters; and what is transformed back are all of these, tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tracea.core.ops.conv2d import Conv2dOp
from tracea.semantic.index import FALSE, TRUE, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import MicroKernel, Node
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage, is_place_product
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.provenance import origin
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["prove_winograd"]

_NAME = "winograd"
_ZERO, _ONE = Polynomial({}), Polynomial.of(1)
_Pair = tuple[str, Polynomial, Polynomial]
_Kind = TypeVar("_Kind", bound=Node)


def prove_winograd(kernel: TileKernel, sites: Sequence[Site]) -> Iterator[Fact]:
    """Prove of each transform back that it gives the convolution of its tiles; no place's product stands outside.

    Raises:
        ProofFailed: it was not shown.
    """
    nodes = [(site, site.node) for site in sites]
    backs = [(site, node) for site, node in nodes if isinstance(node, TransformBack)]
    used: list[Site] = []
    for site, node in nodes:
        if isinstance(node, TransformFilters):
            yield _filters(kernel, site, node)
    for site, node in backs:
        fact, through = _result(kernel, sites, site, node)
        used += through
        yield fact
    for site, node in nodes:
        alone = isinstance(node, TransformImage) or (isinstance(node, MicroKernel) and is_place_product(node))
        if alone and site not in used:
            raise refuse(_NAME, site.label, "nothing transforms back what it gives")


def _filters(kernel: TileKernel, site: Site, node: TransformFilters) -> Fact:
    """Show that a panel has its own filters, all channels of them, and every tap once."""
    source, target = site.box(node.source), site.box(node.target)
    taps, panels = (_shape(kernel, site, box) for box in (source, target))
    if bool(getattr(kernel.op, "turned", False)):
        raise refuse(_NAME, site.label, "the op applies its taps in reverse")
    count, width = Polynomial.of(node.taps), panels[-1]
    pairs = [
        *_whole(source, taps, (-4, -3, -2), "taps and channels of the filters"),
        *_whole(target, panels, (-3, -2, -1), "places, channels and columns of the panel"),
        *(("taps", taps[axis], count) for axis in (-4, -3)),
        ("places", panels[-3], Polynomial.of(node.algorithm.n**2)),
        ("channels", taps[-2], panels[-2]),
        ("filters of the panel", source.offset[-1], target.offset[-4] * width),
        ("panels", target.extent[-4], _ONE),
        *(("group", source.offset[axis], target.offset[axis]) for axis in range(len(source.offset) - 4)),
        *(("group", source.extent[axis], _ONE) for axis in range(len(source.offset) - 4)),
    ]
    _equal(site, pairs)
    left = taps[-1] - target.offset[-4] * width
    least = normalize(minimum(width.to_index(), left.to_index()))
    if not site.facts.proves_equal(source.extent[-1], least):
        raise refuse(_NAME, site.label, f"{source.extent[-1].to_index()} filters are not all that the panel has")
    statement = f"{target.buffer} holds each filter of {source.buffer} transformed by {node.title}"
    return Fact(_NAME, site.label, statement)


def _result(
    kernel: TileKernel, sites: Sequence[Site], site: Site, node: TransformBack
) -> tuple[Fact, tuple[Site, Site]]:
    if not node.algorithm.is_exact():
        raise refuse(_NAME, site.label, f"the matrices of {node.title} do not give a filter of its taps")
    if isinstance(kernel.op, Conv2dOp) and not _is_of(kernel.op, node.taps):
        raise refuse(_NAME, site.label, f"{node.title} is of square taps in order, stride and dilation 1")
    source, target = site.box(node.source), site.box(node.target)
    product_site, product = _writer(kernel, sites, site, source.buffer, MicroKernel)
    sums = product_site.box(product.c)
    image_site, image = _writer(kernel, sites, product_site, product_site.box(product.a).buffer, TransformImage)
    held, places = image_site.box(image.source), image_site.box(image.target)
    found = origin(kernel, sites, image_site, held)
    if found is None or found.packed:
        raise refuse(_NAME, image_site.label, f"what {held.buffer} holds was not traced to an image")
    pixels = found.box
    if not is_place_product(product) or product.epilogue is not None or image.title != node.title:
        raise refuse(_NAME, site.label, "what it transforms back are not the plain products of the same transform")
    if product.accumulate != FALSE or product.finish != TRUE:
        raise refuse(_NAME, product_site.label, "the products of a place are summed over all channels at once")
    rows, columns = (site.canonical(count) for count in node.tiles)
    n_places, m = Polynomial.of(node.algorithm.n**2), node.m
    pairs = [
        ("places", source.extent[0], n_places),
        ("tiles", source.extent[1], rows * columns),
        ("filters", source.extent[2], target.extent[-1]),
        *(("first place, tile and filter", offset, _ZERO) for offset in source.offset),
        *(("extent of one image and group", extent, _ONE) for extent in target.extent[:-3]),
    ]
    _equal(site, pairs)
    for reach, extent in ((rows * m, target.extent[-3]), (columns * m, target.extent[-2])):
        if not site.facts.proves(reach - extent):
            raise refuse(_NAME, site.label, f"{extent.to_index()} results of tiles that reach {reach.to_index()}")
    _swept(product_site, product, source, shared=site.loops)
    _operands(kernel, product_site, product, sums=sums, places=places, result=target)
    if kernel.buffer(product.b.buffer).role is BufferRole.SCRATCH:
        _, filters = _writer(kernel, sites, product_site, product.b.buffer, TransformFilters)
        if filters.title != node.title:
            raise refuse(_NAME, product_site.label, f"filters of {filters.title}, the image's is {node.title}")
    _same_tiles(image_site, site, image, node)
    shape = _shape(kernel, image_site, pixels)
    image_pairs = [
        *(("first place, tile and channel", offset, _ZERO) for offset in places.offset),
        ("places of the image", places.extent[0], n_places),
        ("tiles of the image", places.extent[1], rows * columns),
        ("channels of the image", places.extent[2], shape[-1]),
        ("first channel", pixels.offset[-1], _ZERO),
        ("channels", pixels.extent[-1], shape[-1]),
        ("rows of pixels", pixels.extent[-3], rows * m + (node.taps - 1)),
        ("columns of pixels", pixels.extent[-2], columns * m + (node.taps - 1)),
        *(("image or group", *both) for both in zip(pixels.offset[:-3], target.offset[:-3], strict=True)),
        *(("extent of one image and group", extent, _ONE) for extent in pixels.extent[:-3]),
    ]
    _equal(image_site, image_pairs)
    op_padding = getattr(kernel.op, "padding", None)
    for axis, name in ((-3, "rows"), (-2, "columns")):
        distance = (target.offset[axis] - pixels.offset[axis]).constant
        wanted = distance if op_padding is None else op_padding[axis + 3]
        if distance is None or distance != wanted:
            raise refuse(_NAME, image_site.label, f"{name} of pixels are {distance} before the results, not {wanted}")
    statement = f"{target.buffer} is the convolution of {pixels.buffer}, all channels at once, by {node.title}"
    return Fact(_NAME, site.label, statement), (product_site, image_site)


def _is_of(op: Conv2dOp, taps: int) -> bool:
    return op.takes_fewer_products and tuple(op.w.shape[2:]) == (taps, taps)


def _swept(site: Site, product: MicroKernel, read: Box, *, shared: Sequence[Loop]) -> None:
    """Show that the products of one transform back are all its places and tiles, each once."""
    sums = site.box(product.c)
    inner = [loop for loop in site.loops if loop not in shared]
    used: list[Loop] = []
    for axis, what in ((0, "places"), (1, "tiles")):
        sweep = chain(sums.offset[axis], sums.extent[axis], read.extent[axis], inner, site.unguarded)
        if sweep is None or set(sweep.loops) & set(used):
            raise refuse(_NAME, site.label, f"{what} {sums.offset[axis].to_index()} were not shown to be each once")
        used += sweep.loops
    _equal(
        site, [("first filter of a sum", sums.offset[2], _ZERO), ("filters of a sum", sums.extent[2], read.extent[2])]
    )
    _equal(site, [("one place at a time", sums.extent[0], _ONE)])


def _operands(kernel: TileKernel, site: Site, product: MicroKernel, *, sums: Box, places: Box, result: Box) -> None:
    """Show that a product is of one place of the image and of the filters, over all channels, for its own filters."""
    a, b = site.box(product.a), site.box(product.b)
    panels = _shape(kernel, site, b)
    width = panels[-1]
    pairs = [
        ("place of the image", a.offset[0], sums.offset[0]),
        ("tiles of the image", a.offset[1], sums.offset[1]),
        ("how many tiles", a.extent[1], sums.extent[1]),
        ("place of the filters", b.offset[-3], sums.offset[0]),
        ("one place of the image", a.extent[0], _ONE),
        ("one place of the filters", b.extent[-3], _ONE),
        ("one panel", b.extent[-4], _ONE),
        ("first channel of the image", a.offset[2], _ZERO),
        ("channels of the image", a.extent[2], places.extent[2]),
        *_whole(b, panels, (-2, -1), "channels and columns of the filters"),
        ("channels", a.extent[2], b.extent[-2]),
        ("places of the image and of the filters", places.extent[0], panels[-3]),
        ("filters of the panel and of the result", b.offset[-4] * width, result.offset[-1]),
        *(("group", b.offset[axis], result.offset[axis + 1]) for axis in range(len(b.offset) - 4)),
        *(("one group", b.extent[axis], _ONE) for axis in range(len(b.offset) - 4)),
    ]
    _equal(site, pairs)
    if not site.facts.proves(width - sums.extent[2]):
        raise refuse(_NAME, site.label, f"panels of {width.to_index()} filters, a sum has {sums.extent[2].to_index()}")


def _same_tiles(image_site: Site, site: Site, image: TransformImage, node: TransformBack) -> None:
    pairs = zip(image.tiles, node.tiles, strict=True)
    for one, other in pairs:
        if not site.facts.proves_equal(image_site.canonical(one), site.canonical(other)):
            raise refuse(_NAME, site.label, f"the image has {one} rows or columns of tiles, the result {other}")


def _writer(
    kernel: TileKernel, sites: Sequence[Site], reader: Site, buffer: str, kind: type[_Kind]
) -> tuple[Site, _Kind]:
    """Return the one node that writes a thread's scratch before the reader, in each iteration around both."""
    writers = [site for site in sites for access, box in site.accesses() if access.writes and box.buffer == buffer]
    if kernel.buffer(buffer).role is not BufferRole.SCRATCH or len(writers) != 1:
        raise refuse(_NAME, reader.label, f"{buffer} is not the scratch of one node")
    (writer,) = writers
    if not isinstance(writer.node, kind) or writer.place > reader.place or writer.guards:
        raise refuse(_NAME, reader.label, f"{buffer} does not hold what a {kind.__name__} made of it before")
    return writer, writer.node


def _shape(kernel: TileKernel, site: Site, box: Box) -> list[Polynomial]:
    return [site.canonical(size) for size in kernel.buffer(box.buffer).shape]


def _whole(box: Box, shape: Sequence[Polynomial], axes: Sequence[int], what: str) -> Iterator[_Pair]:
    for axis in axes:
        yield f"first of the {what}", box.offset[axis], _ZERO
        yield what, box.extent[axis], shape[axis]


def _equal(site: Site, pairs: Sequence[_Pair]) -> None:
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse(_NAME, site.label, f"{what} differ: {left.to_index()} and {right.to_index()}")
