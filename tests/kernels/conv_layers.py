"""Layers of networks, channels last, and cores that choose tiles for them."""

from __future__ import annotations

from dataclasses import replace

from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import TensorType
from tracea.targets.target import Target

__all__ = ["core", "op_of"]


def op_of(channels: int, filters: int, size: int, *, kernel: int = 1, stride: int = 1) -> Conv2dOp:
    x = image_type((1, channels, size, size), DType.F32, channels_last=True)
    w = TensorType((filters, channels, kernel, kernel), DType.F32)
    padding = (kernel // 2, kernel // 2)
    shape = (1, filters, -(-size // stride), -(-size // stride))
    out = image_type(shape, DType.F32, channels_last=True)
    return Conv2dOp(x=x, w=w, stride=(stride, stride), padding=padding, out=out)


def core(multiply_adds: int, kilobytes: int, ways: int) -> Target:
    return replace(
        targets.load("avx512"), fma_per_cycle=multiply_adds, l1d_bytes=kilobytes * 1024, l1d_ways=ways, cores=1
    )
