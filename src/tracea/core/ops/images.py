"""Images in memory: (batch, channels, rows, columns) with the channels outermost, or next to each other."""

from __future__ import annotations

from collections.abc import Sequence

from tracea.core.dtype import DType
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, static

__all__ = ["image_type", "is_channels_last", "like_image", "like_signal", "no_rows", "one_row", "over_filters"]


def image_type(shape: Sequence[Dim], dtype: DType, *, channels_last: bool) -> TensorType:
    """Return the dense type of an image batch, row-major or channels last.

    Raises:
        InvalidShape: channels last, and an extent is symbolic.
    """
    if not channels_last:
        return TensorType(tuple(shape), dtype)
    _, channels, height, width = (static(dim) for dim in shape)
    return TensorType(tuple(shape), dtype, StridedLayout((height * width * channels, 1, width * channels, channels)))


def is_channels_last(type_: TensorType) -> bool:
    """Whether a pixel's channels are next to each other, and the type is not row-major as well."""
    if type_.rank != 4 or not type_.is_static or not isinstance(type_.layout, StridedLayout):
        return False
    channels, (_, step, row, column) = type_.static_shape[1], type_.strides
    pixels = [stride for stride, dim in ((row, type_.shape[2]), (column, type_.shape[3])) if dim != 1]
    return channels > 1 and step == 1 and all(stride >= channels for stride in pixels)


def like_image(x: TensorType, shape: Sequence[Dim], dtype: DType) -> TensorType:
    """Return the dense type of a result of ``shape`` that keeps the order of the axes of ``x``."""
    return image_type(shape, dtype, channels_last=is_channels_last(x))


def one_row(type_: TensorType) -> TensorType:
    """Return the type with an axis of one row before its last; a number's is itself."""
    if type_.rank == 0:
        return type_
    *shape, last = type_.shape
    *strides, step = type_.strides
    return TensorType((*shape, 1, last), type_.dtype, StridedLayout((*strides, 0, step)))


def no_rows(type_: TensorType) -> TensorType:
    """Return the type of an image of one row without that axis."""
    *shape, _, last = type_.shape
    *strides, _, step = type_.strides
    return TensorType((*shape, last), type_.dtype, StridedLayout((*strides, step)))


def like_signal(x: TensorType, shape: Sequence[Dim]) -> TensorType:
    """Return the dense type of a result (n, c, l) that keeps the signal's order of axes and its element type."""
    *leading, length = shape
    return no_rows(like_image(one_row(x), (*leading, 1, length), x.dtype))


def over_filters(bias: TensorType) -> TensorType:
    """Return the type of a bias (k,) over the axes (filters, rows, columns) of a result."""
    return TensorType((*bias.shape, 1, 1), bias.dtype, StridedLayout((*bias.strides, 0, 0)))
