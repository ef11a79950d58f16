"""Windows: a convolution's tile sums every tap and channel once, each with the pixel that the tap lies over."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.semantic.linear import Polynomial
from tracea.semantic.nodes import MicroKernel, Pack
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.coverage import exactly_at, first_and_last
from tracea.semantic.proofs.provenance import origin, reaching
from tracea.semantic.proofs.tiling import chain
from tracea.semantic.proofs.walk import Box, Loop, Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["is_window", "window_sum"]


def is_window(node: MicroKernel) -> bool:
    """Whether a tile's first operand is a window of an image instead of a matrix."""
    return any(name == "window" for name, _ in node.intrinsic.attributes)


def window_sum(kernel: TileKernel, sites: Sequence[Site], site: Site, node: MicroKernel) -> tuple[Fact, list[Loop]]:
    """Prove a tile's sum complete and its operands aligned; also return the loops that it is summed over.

    The operands are (…, rows, columns, channels) of an image and (…, panel, r, s, channels, width) of the filters, the
    result is (…, rows, columns, filters). The routine says its ``stride_rows``, ``dilation_rows`` and so on.

    Raises:
        ProofFailed: a tap or a channel was not shown to be summed once, or to lie over the result's pixel.
    """
    target = node.epilogue.target if node.epilogue else None
    result, b = site.box(node.c if target is None else target), site.box(node.b)
    found = origin(kernel, sites, site, site.box(node.a))
    if found is None or len(result.offset) < 3 or len(b.offset) < 5:
        raise refuse("reduction", site.label, f"what {node.a.buffer} holds was not traced to an image")
    a = found.box
    summed = _summed(kernel, site, b, result)
    _taps(kernel, site, node, a=a, b=b, result=result)
    _filters(kernel, sites, site, b, result)
    first, last = first_and_last(summed)
    if not exactly_at(site.unguarded, site.condition(node.accumulate), first, holds=False):
        raise refuse("reduction", site.label, f"the sum does not start exactly at its first block: {node.accumulate}")
    if node.epilogue and not exactly_at(site.unguarded, site.condition(node.finish), last, holds=True):
        raise refuse("reduction", site.label, f"the sum does not finish exactly at its last block: {node.finish}")
    blocks = ", ".join(str(loop.var) for loop in summed) or "one block"
    statement = f"taps and channels of {b.buffer} are covered once over {blocks}, each over its pixel of {a.buffer}"
    return Fact("reduction", site.label, statement), summed


def _summed(kernel: TileKernel, site: Site, b: Box, result: Box) -> list[Loop]:
    """Return the loops that sweep the taps and channels, each of which is swept once."""
    ours = {loop for loop in site.loops if any(loop.var in offset.atoms() for offset in result.offset)}
    shape = [site.canonical(size) for size in kernel.buffer(b.buffer).shape]
    summed: list[Loop] = []
    for axis in range(len(shape) - 4, len(shape) - 1):
        used = chain(b.offset[axis], b.extent[axis], shape[axis], site.loops, site.unguarded)
        if used is None or set(used.loops) & (ours | set(summed)):
            raise refuse(
                "reduction",
                site.label,
                f"{b.buffer} axis {axis}: [{b.offset[axis].to_index()} : +{b.extent[axis].to_index()}] was not shown "
                f"to cover [0, {shape[axis].to_index()}) once",
            )
        summed += used.loops
    return summed


def _taps(kernel: TileKernel, site: Site, node: MicroKernel, *, a: Box, b: Box, result: Box) -> None:
    """Show that the window of each result is where its stride puts it, and as large as the taps reach."""
    get = node.intrinsic.attribute
    pairs = [
        ("first channel of the image and of the filters", a.offset[-1], b.offset[-2]),
        ("channels of the image and of the filters", a.extent[-1], b.extent[-2]),
    ]
    for axis, (name, taps) in ((-3, ("rows", b.extent[-4])), (-2, ("columns", b.extent[-3]))):
        stride, dilation = int(get(f"stride_{name}")), int(get(f"dilation_{name}"))
        reach = (result.extent[axis] - 1) * stride + (taps - 1) * dilation + 1
        pairs.append((f"{name} of the window and of the taps", a.extent[axis], reach))
        distance = a.offset[axis] - result.offset[axis] * stride
        if distance.constant is None:  # the padding, the same everywhere
            raise refuse(
                "reduction",
                site.label,
                f"{name} {a.offset[axis].to_index()} of {a.buffer} do not keep a distance to "
                f"{stride} * ({result.offset[axis].to_index()})",
            )
    outer_a, outer_y = a.offset[:-3], result.offset[:-3]
    if kernel.buffer(result.buffer).rank == kernel.buffer(a.buffer).rank:
        pairs += [("image or group", left, right) for left, right in zip(outer_a, outer_y, strict=True)]
    _equal(site, pairs)


def _filters(kernel: TileKernel, sites: Sequence[Site], site: Site, b: Box, result: Box) -> None:
    """Show that the panel holds the tile's filters, and that each of its taps was packed from the filters' own."""
    width = site.canonical(kernel.buffer(b.buffer).shape[-1])
    pairs = [("filters of the panel and of the tile", b.offset[-5] * width, result.offset[-1])]
    if not site.facts.proves(b.extent[-1] - result.extent[-1]):
        raise refuse("reduction", site.label, f"a panel of {width.to_index()} filters, the tile needs more")
    _equal(site, pairs)
    writer = reaching(kernel, sites, site, b.buffer)
    if writer is None:
        return
    if not isinstance(writer.node, Pack):
        raise refuse("reduction", site.label, f"{b.buffer} was not packed")
    source, target = writer.box(writer.node.source), writer.box(writer.node.target)
    pairs = [
        ("packed filters", source.offset[-1], target.offset[-5] * width),
        *(("packed taps", source.offset[axis], target.offset[axis]) for axis in (-4, -3, -2)),
    ]
    _equal(writer, pairs)


def _equal(site: Site, pairs: Sequence[tuple[str, Polynomial, Polynomial]]) -> None:
    for what, left, right in pairs:
        if not site.facts.proves_equal(left, right):
            raise refuse("reduction", site.label, f"{what} differ: {left.to_index()} and {right.to_index()}")
