"""What the peers' convolutions have in common: images row-major unless a peer chooses otherwise, the op's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracea.core.expr import Input, activation
from tracea.core.op import Conv2dOp
from tracea.runtime.buffers import aligned_empty, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["conv_numbers", "has_relu", "image", "is_conv"]


def is_conv(problem: Problem) -> bool:
    """Whether a problem is a convolution with nothing behind it but a bias and a ReLU."""
    op = problem.op
    if not isinstance(op, Conv2dOp) or len(op.epilogue.operands) > 1:
        return False
    value = Input(0) + Input(1) if op.epilogue.operands else Input(0)
    return op.epilogue.expr in (value, activation("relu").substitute({0: value}))


def has_relu(op: Conv2dOp) -> bool:
    """Whether a ReLU follows; of a problem that :func:`is_conv` accepts."""
    return op.epilogue.expr not in (Input(0), Input(0) + Input(1))


def image(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an operand row-major, on a cache line and in huge pages as ours is."""
    if array.flags.c_contiguous:
        return array
    made: NDArray[Any] = aligned_empty(array.shape, view(array).dtype)
    made[...] = array
    return made


def conv_numbers(op: Conv2dOp) -> tuple[list[int], list[int], list[int], int]:
    """Return stride, padding, dilation and groups as torch takes them."""
    return list(op.stride), list(op.padding), list(op.dilation), op.groups
