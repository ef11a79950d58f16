"""From an op to the numbers of a call: the value of each parameter of a kernel, and which buffer each operand is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np

from tracea.core.ops.adaptive_pool2d import AdaptivePool2dOp
from tracea.core.ops.attention import AttentionOp
from tracea.core.ops.attention_gradient import AttentionGradientOp
from tracea.core.ops.base import Op
from tracea.core.ops.block_sparse import BlockSparseOp
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.ops.gemm import GemmOp
from tracea.core.ops.grouped_gemm import GroupedGemmOp
from tracea.core.ops.indexed import CumulativeSumOp, GatherRowsOp, LargestOp, SumRowsOp
from tracea.core.ops.low_rank import LowRankOp
from tracea.core.ops.moments import MomentsOp
from tracea.core.ops.norm_gradient import NormGradientOp
from tracea.core.ops.pairs import PairsOp
from tracea.core.ops.pointwise import PointwiseOp
from tracea.core.ops.pool2d import Pool2dOp
from tracea.core.ops.rows import ReduceOp, RowOp
from tracea.core.ops.statistics import StatisticsOp
from tracea.core.ops.weighted_rows import WeightedRowsOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape
from tracea.kernels.attention.gradient_block import attention_gradient_types
from tracea.kernels.attention.operands import attention_types
from tracea.kernels.attention.spans import SPAN_ROOM
from tracea.kernels.conv.folding import folded_like
from tracea.kernels.conv.operands import conv_types, sizes_of
from tracea.kernels.gemm.block_sparse import block_sparse_types
from tracea.kernels.gemm.gpu.operands import MULTIPROCESSORS, ORDER_TABLE
from tracea.kernels.gemm.gpu.spaces import order_of
from tracea.kernels.gemm.grouped import PARTS, grouped_types
from tracea.kernels.gemm.low_rank import low_rank_types
from tracea.kernels.gemm.operands import gemm_types
from tracea.kernels.gemm.turned import TURNED_IDS, turned_types
from tracea.kernels.operands import bind
from tracea.kernels.pointwise.chain import chain_types
from tracea.kernels.pointwise.pairs import pairs_types
from tracea.kernels.pointwise.transpose import TRANSPOSE_ID, transpose_types
from tracea.kernels.pool.grid import grid_types
from tracea.kernels.pool.window import pool_types
from tracea.kernels.rows.indexed import gather_types, scan_types
from tracea.kernels.rows.largest import largest_types
from tracea.kernels.rows.moments import moments_types
from tracea.kernels.rows.norm_gradient import norm_gradient_types
from tracea.kernels.rows.normalize import normalize_types
from tracea.kernels.rows.plane_gradient import PLANE_GRADIENT_ID, plane_gradient_types
from tracea.kernels.rows.reduce import reduce_types
from tracea.kernels.rows.row_sums import sum_rows_types
from tracea.kernels.rows.statistics import REDUCE_SLABS_ID, reduce_slab_types, statistics_types
from tracea.kernels.rows.weighted_rows import weighted_rows_types
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.semantic.tile_order import order_table
from tracea.targets.gpu import load_gpu

__all__ = ["arguments", "buffer_types", "operand_buffers", "result_buffer", "result_offsets", "tables"]

_TYPES: Final[Mapping[type[Any], Callable[[Any, Any], Mapping[str, TensorType]]]] = {
    GemmOp: gemm_types,
    LowRankOp: low_rank_types,
    BlockSparseOp: block_sparse_types,
    GroupedGemmOp: grouped_types,
    Conv2dOp: conv_types,
    Pool2dOp: pool_types,
    AdaptivePool2dOp: grid_types,
    RowOp: normalize_types,
    PointwiseOp: chain_types,
    PairsOp: pairs_types,
    ReduceOp: reduce_types,
    AttentionOp: attention_types,
    AttentionGradientOp: attention_gradient_types,
    StatisticsOp: statistics_types,
    MomentsOp: moments_types,
    NormGradientOp: norm_gradient_types,
    CumulativeSumOp: scan_types,
    GatherRowsOp: gather_types,
    SumRowsOp: sum_rows_types,
    WeightedRowsOp: weighted_rows_types,
    LargestOp: largest_types,
}
# Of variants whose buffers are others than those of their op's other variants.
_TYPES_BY_VARIANT: Final[Mapping[str, Callable[[Any, Any], Mapping[str, TensorType]]]] = {
    REDUCE_SLABS_ID: reduce_slab_types,
    TRANSPOSE_ID: transpose_types,
    PLANE_GRADIENT_ID: plane_gradient_types,
    **dict.fromkeys(TURNED_IDS, turned_types),
}


def buffer_types(kernel: TileKernel, op: Op | None = None) -> Mapping[str, TensorType]:
    """Return the type of each operand and of the result by buffer name, in the kernel's merged axes.

    ``op`` is an op of the same structure as the kernel's own with other extents or strides; None means the kernel's
    own.
    """
    described: Any = kernel.op if op is None else op
    types = _TYPES_BY_VARIANT.get(kernel.variant, _TYPES.get(cast("type[Any]", type(described))))
    if types is None or type(described) is not type(kernel.op):
        raise InvalidOp(
            field="op",
            got=type(described).__name__,
            expected=type(kernel.op).__name__,
            remedy="pass the op of the kernel",
        )
    return types(described, kernel.op)


def arguments(kernel: TileKernel, op: Op | None = None) -> dict[str, int]:
    """Return the value of each integer parameter of ``kernel`` for ``op`` (None: the op that it was built for).

    Raises:
        InvalidShape: two operands disagree, an extent or a stride is out of range, or a guard of the kernel does not
        hold.
        InvalidStride: a layout is not the one that the kernel was built for.
    """
    names = {buffer.name for buffer in kernel.buffers if buffer.role in (BufferRole.INPUT, BufferRole.OUTPUT)}
    types = {name: type_ for name, type_ in buffer_types(kernel, op).items() if name in names}
    described = kernel.op if op is None else op
    # Filters in panels do not say how many taps they have.
    sizes = sizes_of(folded_like(described, kernel.op)) if isinstance(described, Conv2dOp) else {}
    names = {param.name for param in kernel.params}
    given = {size.name: value for size, value in sizes.items() if size.name in names}
    if isinstance(described, AttentionOp) and described.spans is not None:
        given[SPAN_ROOM.name] = described.spans.room
    if isinstance(described, GroupedGemmOp):
        given[PARTS.name] = described.parts
    # A persistent grid has a block for each multiprocessor of the target: with another number it is as right.
    machine = {MULTIPROCESSORS.name: load_gpu(kernel.target).sm_count} if MULTIPROCESSORS in kernel.params else {}
    values = bind(kernel, types, given | machine)
    if not kernel.assumptions.evaluate(values):
        raise InvalidShape(
            field=kernel.name,
            got=values,
            expected=str(kernel.assumptions),
            remedy="build the kernel for this op: its schedule is for another",
        )
    return values


def tables(kernel: TileKernel, op: Op | None = None) -> dict[str, Any]:
    """Return the int32 tables that a kernel reads for ``op``, by name: the order in which blocks take tiles."""
    found: dict[str, Any] = {}
    for table in kernel.tables:
        if table.name != ORDER_TABLE:
            raise InvalidOp(field="table", got=table.name, expected=ORDER_TABLE, remedy="compute it beside the kernel")
        values = arguments(kernel, op)
        rows, columns = (-(-values[d] // kernel.schedule.integer(b)) for d, b in (("m", "bm"), ("n", "bn")))
        places = order_table(order_of(kernel.schedule), rows, columns)
        batches = int(table.length.evaluate(values)) // places.size
        firsts = np.arange(batches, dtype=places.dtype)[:, None] * places.size
        found[table.name] = (firsts + places).reshape(-1)
    return found


def operand_buffers(kernel: TileKernel) -> tuple[Buffer, ...]:
    """Return the buffers that the op's operands are passed as, in the op's order."""
    return tuple(buffer for buffer in kernel.buffers if buffer.role in (BufferRole.INPUT, BufferRole.CONSTANT))


def result_offsets(kernel: TileKernel, op: Op | None = None) -> dict[str, int]:
    """Return the buffers that the result is written to, each with the element of the result that it begins with.

    ``op`` is the one that is run, None the kernel's own.
    """
    described: Any = kernel.op if op is None else op
    names = [buffer.name for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT]
    offsets = described.offsets if isinstance(described, AttentionGradientOp | NormGradientOp) else (0,)
    return dict(zip(names, offsets, strict=True))


def result_buffer(kernel: TileKernel) -> Buffer:
    """Return the buffer that the result is written to."""
    return next(buffer for buffer in kernel.buffers if buffer.role is BufferRole.OUTPUT)
