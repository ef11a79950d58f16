"""Volumes in memory: (batch, channels, planes, rows, columns) with the channels outermost, or next to each other."""

from __future__ import annotations

from math import prod

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType

__all__ = ["is_volume_channels_last", "like_volume"]


def is_volume_channels_last(x: TensorType) -> bool:
    """Whether a voxel's channels are next to each other, and the type is not row-major as well."""
    channels, (_, step, *inner) = x.static_shape[1], x.strides
    voxels = [stride for stride, dim in zip(inner, x.static_shape[2:], strict=True) if dim != 1]
    return x.layout is not None and channels > 1 and step == 1 and all(stride >= channels for stride in voxels)


def like_volume(x: TensorType, shape: tuple[int, ...], dtype: DType) -> TensorType:
    """Return the dense type of a result of ``shape`` that keeps the order of the axes of ``x``."""
    if not is_volume_channels_last(x):
        return TensorType(shape, dtype)
    _, k, e, p, q = shape
    return TensorType(shape, dtype, StridedLayout((prod((k, e, p, q)), 1, p * q * k, q * k, k)))
