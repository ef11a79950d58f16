"""How torch lays out a result whose operands' types are known, and the exception for what no rule tells.

A type is a tensor on torch's device ``meta``: it has a shape, an element type and strides, and no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias, cast

import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType, broadcast_shapes
from tracea.interface.layouts import kept_layout
from tracea.runtime.buffers import ArrayKind

__all__ = ["Rule", "Type", "Unknown", "broadcast", "dense", "image", "need", "need_floats", "preserved", "type_like"]

Type: TypeAlias = torch.Tensor
Rule: TypeAlias = Callable[..., Type | Sequence[Type]]


class Unknown(Exception):
    """No rule says what torch returns for these operands, or whether it takes them at all."""


def type_like(tensor: torch.Tensor) -> Type:
    """Return the type of a tensor."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def need(condition: bool) -> None:
    """Go on where the condition holds.

    Raises:
        Unknown: it does not.
    """
    if not condition:
        raise Unknown


def dense(shape: Sequence[int], dtype: torch.dtype) -> Type:
    """Return the row-major type."""
    need(all(extent >= 0 for extent in shape))
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def need_floats(*operands: Type | None) -> torch.dtype:
    """Return the one floating type of all operands."""
    (dtype,) = {operand.dtype for operand in operands if operand is not None}
    need(dtype.is_floating_point)
    return dtype


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that all broadcast to.

    Raises:
        InvalidShape: they do not.
    """
    return cast("tuple[int, ...]", broadcast_shapes(tuple(shape) for shape in shapes))


def preserved(dtype: torch.dtype, *operands: Type) -> Type:
    """Return the type of what is computed element by element: in the operands' strides, or at least their order."""
    shape = broadcast(*[operand.shape for operand in operands])
    first = operands[0]
    if all(each.is_contiguous() for each in operands):
        return dense(shape, dtype)
    if all((tuple(each.shape), each.stride()) == (shape, first.stride()) for each in operands) and _is_dense(first):
        return torch.empty_strided(first.shape, first.stride(), dtype=dtype, device="meta")
    types = [TensorType(tuple(each.shape), DType.F32, StridedLayout(each.stride())) for each in operands]
    strides = kept_layout(types, DType.F32, ArrayKind.TORCH).strides  # whatever the element type
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def image(shape: Sequence[int], x: Type, *others: Type) -> Type:
    """Return the type of an image that torch makes: row-major, or channels last where an operand is so.

    That is known of f32 alone, and of batches of images.
    """
    operands = (x, *others)
    if len(shape) != 4 or x.dim() != 4:
        need(all(each.is_contiguous() for each in operands))
        return dense(shape, x.dtype)
    if not any(_is_channels_last(each) for each in operands):
        return dense(shape, x.dtype)
    need(x.dtype is torch.float32 and all(extent > 0 for extent in shape))
    return torch.empty(tuple(shape), dtype=x.dtype, device="meta", memory_format=torch.channels_last)


def _is_channels_last(type_: Type) -> bool:
    """Tell whether torch takes a tensor for channels last (c10/core/MemoryFormat.h, is_channels_last_strides_2d)."""
    strides, least = type_.stride(), 0
    if type_.dim() != 4 or strides[1] == 0 or type_.numel() == 0:
        return False
    for axis in (1, 3, 2, 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(type_.shape[axis], 1)
    return True


def _is_dense(type_: Type) -> bool:
    """Tell whether every element between the first and the last in memory belongs to the tensor, once."""
    axes = sorted((stride, extent) for stride, extent in zip(type_.stride(), type_.shape, strict=True) if extent != 1)
    return type_.numel() == 0 or all(
        before * extent == after for (before, extent), (after, _) in pairwise([*axes, (type_.numel(), 1)])
    )
