"""Lowerings of images of another size: each row of the result is a weighted sum of rows of the image, and columns so.

Which rows these are, and their weights, follows from the sizes alone: they are constants, computed as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import torch

from tracea.core.dtype import DType
from tracea.core.op import WeightedRowsOp
from tracea.core.tensor_type import TensorType, static
from tracea.flow.reduction import wide_type
from tracea.interface.torch.lower_images import as_image
from tracea.interface.torch.samples import Places, between, cubic, nearest_of, smoothed

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["upsample_between", "upsample_nearest"]

_SMALL: Final = 128  # rows and columns together; ATen, native/cpu/UpSampleKernel.cpp, _use_vectorized_kernel_cond_2d
_VECTOR: Final = 8  # floats of a vector of AVX2
_FEW_TIMES: Final = 4


def upsample_between(*, is_cubic: bool = False, is_smoothed: bool = False) -> Callable[..., Node]:
    """Return the lowering of an image of any other size whose pixels lie between those of x, or a sequence so.

    A pixel is a sum of two of x along each axis, of four by ``is_cubic``; ``is_smoothed`` takes as many as a smaller
    image has for each of its own (torch's ``antialias=True``).
    """

    def lower(
        low: Lowering, x: Node, size: Sequence[int] | None, align_corners: bool, factors: Sequence[float] | None
    ) -> Node:
        del size  # the result's shape has it
        kind, align = _kind(low), bool(align_corners)

        def places(old: int, new: int, factor: float | None) -> Places:
            if is_smoothed:
                return smoothed(old, new, align, factor, kind, is_cubic=is_cubic)
            return (cubic if is_cubic else between)(old, new, align, factor, kind)

        return _resampled(low, x, factors, places)

    return lower


def upsample_nearest(*, exact: bool) -> Callable[..., Node]:
    """Return the lowering of an image of any other size each pixel of which is one of x, or of such a sequence.

    ``exact`` takes the pixel whose centre is nearest, else the one at the index over the factor, rounded down.
    """

    def lower(low: Lowering, x: Node, size: Sequence[int] | None, factors: Sequence[float] | None) -> Node:
        del size
        kind = _kind(low)
        small = x.type.rank == 4 and sum(static(dim) for dim in low.shape[2:]) <= _SMALL

        def nearest(old: int, new: int, factor: float | None) -> Places:
            return nearest_of(old, new, exact, factor, kind, small=small)

        return _resampled(low, x, factors, nearest, repeats=True)

    return lower


def _kind(low: Lowering) -> torch.dtype:
    return torch.float64 if low.dtype is DType.F64 else torch.float32


def _resampled(
    low: Lowering,
    x: Node,
    factors: Sequence[float] | None,
    places: Callable[[int, int, float | None], Places],
    *,
    repeats: bool = False,
) -> Node:
    if low.makes_nothing_of(x):
        return low.nothing(x)
    image = as_image(low, x)
    shape = low.shape if x.type.rank == 4 else (*low.shape[:2], 1, low.shape[2])
    c, h, width = image.type.static_shape[1:]
    p, q = (static(dim) for dim in shape[2:])
    if 0 in (*image.type.static_shape, p, q):
        low.refuse(f"an image of {image.type} as {p}×{q}", "leave out what has no pixels")
    given = [None] * (2 - len(factors or ())) + list(factors or ())
    pixels = low.images.pixels(x) or low.permute(image, (0, 2, 3, 1))
    found = [places(*each) for each in ((h, p, given[0]), (width, q, given[1]))]
    if (
        repeats
        and _fills_vectors(c, max(p // h, q // width))
        and all(_repeats(each, old) for (each, _), old in zip(found, (h, width), strict=True))
    ):
        return low.images.of_pixels(_repeated(low, pixels, p, q), low.shape)
    both = zip((_rows, _columns), found, (h, width), strict=True)
    steps = [
        step for step, each, old in both if not _stays(*each, old)
    ]  # sizes alike may differ by a factor's fraction
    if h < p:  # of few channels a vector of columns is short: they come while there are fewer rows
        steps.reverse()
    made = pixels if steps else low.copy(pixels)
    for step in steps:
        dtype = low.dtype if step is steps[-1] else wide_type(low.dtype)
        made = step(low, made, found[0 if step is _rows else 1], dtype)
    return low.images.of_pixels(made, low.shape)


def _stays(places: torch.Tensor, weights: torch.Tensor, old: int) -> bool:
    """Tell whether each of so many rows is itself."""
    alone = [[1.0] + [0.0] * (places.shape[1] - 1)]
    own = torch.tensor(alone, dtype=weights.dtype, device="cpu").expand_as(weights)
    return len(places) == old and places[:, 0].equal(torch.arange(old, device="cpu")) and weights.equal(own)


def _repeats(places: torch.Tensor, old: int) -> bool:
    """Tell whether each of so many rows is there as often as every other, in their order."""
    times, rest = divmod(len(places), old)
    return rest == 0 and places[:, 0].equal(torch.arange(old, device="cpu").repeat_interleave(times))


def _fills_vectors(channels: int, times: int) -> bool:
    """Tell whether one copy of all pixels, each so many times, is faster than rows and columns by themselves.

    Measured on a Zen 3, of the time of rows and columns: 64 channels to twice the size 0.7, 3 channels 0.7, 21
    channels to eight times the size 4.1, 4 channels to forty times 5.
    """
    return channels % _VECTOR == 0 or (channels < _VECTOR and times <= _FEW_TIMES)


def _repeated(low: Lowering, pixels: Node, p: int, q: int) -> Node:
    """Return pixels (n, h, width, c) several times each, (n, p, q, c), in one copy."""
    n, h, width, c = pixels.type.static_shape
    apart = low.reshape(pixels, (n, h, 1, width, 1, c))
    wide = low.expand(apart, (n, h, p // h, width, q // width, c))
    return low.reshape(low.copy(wide), (n, p, q, c))


def _rows(low: Lowering, pixels: Node, places: Places, dtype: DType) -> Node:
    """Return pixels (n, h, width, c) as other rows."""
    n, h, width, c = pixels.type.static_shape
    sums = _sums(low, low.reshape(pixels, (n, h, width * c)), places, dtype, "rows")
    return low.reshape(sums, (n, len(places[0]), width, c))


def _columns(low: Lowering, pixels: Node, places: Places, dtype: DType) -> Node:
    """Return pixels (n, h, width, c) as other columns."""
    n, h, width, c = pixels.type.static_shape
    sums = _sums(low, low.reshape(pixels, (n * h, width, c)), places, dtype, "columns")
    return low.reshape(sums, (n, h, len(places[0]), c))


def _sums(low: Lowering, table: Node, places: Places, dtype: DType, part: str) -> Node:
    indices, weights = (
        low.constant(each, f"{part}.{name}") for each, name in zip(places, ("places", "weights"), strict=True)
    )
    shape = (table.type.shape[0], indices.type.shape[0], table.type.shape[2])
    op = WeightedRowsOp(table=table.type, indices=indices.type, weights=weights.type, out=TensorType(shape, dtype))
    return low.graph.add(op, [table, indices, weights], name=low.label(part))
