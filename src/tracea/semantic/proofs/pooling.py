"""Pooling: a tile reduces the window that belongs to its pixel, all of it that lies in the image, and nothing else."""

from __future__ import annotations

from tracea.core.expr import Input
from tracea.core.op import AdaptivePool2dOp, Pool2dOp, PoolKind, ReduceKind
from tracea.semantic.index import Index, ceil_div, maximum, minimum
from tracea.semantic.linear import Polynomial, normalize
from tracea.semantic.nodes import ReduceTile
from tracea.semantic.predicate import FALSE, TRUE
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.walk import Site
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["is_pool", "prove_pool"]

_AXES = ((-3, "rows"), (-2, "columns"))
_GRID = "pool_grid"
_NUMBERS = ("kernel", "stride", "padding")


def is_pool(node: ReduceTile) -> bool:
    """Whether a reduction is of a window of an image instead of whole axes."""
    return node.intrinsic.name in ("pool_window", _GRID)


def prove_pool(kernel: TileKernel, site: Site, node: ReduceTile) -> Fact:
    """Prove that the window of (…, rows, columns, channels) is the one that the routine's numbers give its pixel.

    Raises:
        ProofFailed: another window is read than the routine's numbers or the op say, an empty one, or channels that are
        not the pixel's; or it is reduced otherwise than the op says.
    """
    _same_op(kernel, site, node)
    if len(node.inputs) != 1 or node.accumulate != FALSE or node.finish != TRUE or node.epilogue is not None:
        raise refuse("reduction", site.label, "a window is pooled at once, from one image, without an epilogue")
    rank = len(node.shape)
    if node.axes != (rank - 3, rank - 2):
        raise refuse("reduction", site.label, f"a window has rows and columns, not axes {node.axes} of {rank}")
    source, target = site.box(node.inputs[0]), site.box(node.target)
    count = Polynomial.of(1)
    for axis, name in _AXES:
        place = target.offset[axis].to_index()
        extent, parts = (site.canonical(kernel.buffer(box.buffer).shape[axis]) for box in (source, target))
        if node.intrinsic.name == _GRID:
            first, end, counted = _of_grid(place, extent.to_index(), parts.to_index())
        else:
            first, end, counted = _of_numbers(kernel, node, name, place, extent.to_index())
        read, stop = source.offset[axis], source.offset[axis] + source.extent[axis]
        for what, found, wanted in (("begins", read, first), ("ends", stop, end)):
            if not site.facts.proves_equal(found, normalize(wanted)):
                raise refuse(
                    "reduction",
                    site.label,
                    f"the window's {name}: it {what} at {found.to_index()}, the pixel's at {wanted}",
                )
        if not site.facts.proves(source.extent[axis] - 1):
            raise refuse("reduction", site.label, f"{source.extent[axis].to_index()} {name} may be none")
        count = count * site.canonical(counted)
    if node.kind is ReduceKind.MEAN and not site.facts.proves_equal(site.canonical(node.count), count):
        raise refuse("reduction", site.label, f"a mean of {count.to_index()} elements is divided by {node.count}")
    for what, found, wanted in (
        ("channels", source.offset[-1], target.offset[-1]),
        ("number of channels", source.extent[-1], target.extent[-1]),
        ("image", source.offset[-4], target.offset[-4]),
    ):
        if not site.facts.proves_equal(found, wanted):
            raise refuse("reduction", site.label, f"the {what}: {found.to_index()} and {wanted.to_index()}")
    return Fact("reduction", site.label, f"the window of {source.buffer} that belongs to the pixel is reduced once")


def _same_op(kernel: TileKernel, site: Site, node: ReduceTile) -> None:
    """Show that the pixels of a window are reduced as they are, in the way and over the windows that the op says."""
    if node.prologue != Input(0):
        raise refuse(
            "reduction", site.label, f"a window of {node.prologue} is reduced, must be of the pixels themselves"
        )
    op = kernel.op
    if not isinstance(op, Pool2dOp | AdaptivePool2dOp):
        return
    kind = ReduceKind.MAX if op.kind is PoolKind.MAX else ReduceKind.MEAN
    if node.kind is not kind:
        raise refuse("reduction", site.label, f"a window's {node.kind.value} is stored, the op's is {kind.value}")
    if (node.intrinsic.name == _GRID) is not isinstance(op, AdaptivePool2dOp):
        raise refuse("reduction", site.label, f"{node.intrinsic.name} is no routine of {op.name}")
    for of in _NUMBERS if isinstance(op, Pool2dOp) else ():
        for (_, axis), wanted in zip(_AXES, getattr(op, of), strict=True):
            said = node.intrinsic.attribute(f"{of}_{axis}")
            if said != wanted:
                raise refuse("reduction", site.label, f"{of}_{axis} is {said}, the op's is {wanted}")


def _of_numbers(
    kernel: TileKernel, node: ReduceTile, axis: str, place: Index, extent: Index
) -> tuple[Index, Index, Index]:
    """Return the ends of the window that the routine's numbers give a place, and the length that a mean counts."""
    size, stride, padding = (int(node.intrinsic.attribute(f"{of}_{axis}")) for of in _NUMBERS)
    begin = place * stride - padding
    first, end = maximum(begin, 0), minimum(begin + size, extent)
    if isinstance(kernel.op, Pool2dOp) and kernel.op.count_padding:
        return first, end, minimum(begin + size, extent + padding) - begin
    return first, end, end - first


def _of_grid(place: Index, extent: Index, parts: Index) -> tuple[Index, Index, Index]:
    """Return the ends of the window of a grid that covers the axis, and its length."""
    first, end = place * extent // parts, ceil_div((place + 1) * extent, parts)
    return first, end, end - first
