"""All ops, and how to read one from JSON."""

from __future__ import annotations

from typing import Any

from tracea.core.codec import Codec
from tracea.core.ops.adaptive_pool2d import AdaptivePool2dOp, pool_to_grid
from tracea.core.ops.attention import AttentionOp, PairSpans
from tracea.core.ops.attention_gradient import AttentionGradientOp
from tracea.core.ops.base import BASE_CLASSES, Epilogue, Op
from tracea.core.ops.block_sparse import BlockSparseOp
from tracea.core.ops.conv2d import Conv2dOp
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.ops.grouped_gemm import GroupedGemmOp
from tracea.core.ops.indexed import CumulativeSumOp, GatherRowsOp, LargestOp, SumRowsOp
from tracea.core.ops.join import JoinOp
from tracea.core.ops.low_rank import LowRankOp
from tracea.core.ops.moments import MomentsOp
from tracea.core.ops.norm_gradient import NormGradientOp
from tracea.core.ops.pairs import PairsOp
from tracea.core.ops.pointwise import PointwiseOp, SourceKind, SourceOp, ViewKind, ViewOp
from tracea.core.ops.pool2d import Pool2dOp, PoolKind
from tracea.core.ops.rows import ReduceKind, ReduceOp, RowKind, RowOp
from tracea.core.ops.statistics import Statistic, StatisticsOp
from tracea.core.ops.weighted_rows import WeightedRowsOp

__all__ = [
    "CODEC_CLASSES",
    "OP_CLASSES",
    "WITHOUT_KERNEL",
    "AdaptivePool2dOp",
    "AttentionGradientOp",
    "AttentionOp",
    "BlockSparseOp",
    "Conv2dOp",
    "CumulativeSumOp",
    "Epilogue",
    "GatherRowsOp",
    "GemmOp",
    "GroupedGemmOp",
    "JoinOp",
    "LargestOp",
    "LowRankOp",
    "MatrixMath",
    "MomentsOp",
    "NormGradientOp",
    "Op",
    "PairSpans",
    "PairsOp",
    "PointwiseOp",
    "Pool2dOp",
    "PoolKind",
    "ReduceKind",
    "ReduceOp",
    "RowKind",
    "RowOp",
    "SourceKind",
    "SourceOp",
    "Statistic",
    "StatisticsOp",
    "SumRowsOp",
    "ViewKind",
    "ViewOp",
    "WeightedRowsOp",
    "from_dict",
    "pool_to_grid",
]

OP_CLASSES: tuple[type[Op], ...] = (
    GemmOp,
    LowRankOp,
    BlockSparseOp,
    GroupedGemmOp,
    RowOp,
    ReduceOp,
    StatisticsOp,
    MomentsOp,
    NormGradientOp,
    CumulativeSumOp,
    GatherRowsOp,
    SumRowsOp,
    WeightedRowsOp,
    LargestOp,
    PointwiseOp,
    PairsOp,
    ViewOp,
    JoinOp,
    Conv2dOp,
    Pool2dOp,
    AdaptivePool2dOp,
    AttentionOp,
    AttentionGradientOp,
    SourceOp,
)
# What is there already, is another way to read it, or is written by others: nothing runs for these.
WITHOUT_KERNEL: tuple[type[Op], ...] = (SourceOp, ViewOp, JoinOp)
CODEC_CLASSES: tuple[type, ...] = (*OP_CLASSES, *BASE_CLASSES, PairSpans, Statistic)
OP_CODEC = Codec(CODEC_CLASSES)


def from_dict(data: Any) -> Op:
    """Return the op that ``op.to_dict()`` wrote.

    Raises:
        InvalidGraph: the data do not say an op; ``field`` is the path of what does not fit.
        InvalidInput: the op refuses its values.
    """
    return OP_CODEC.decode(data, Op)
