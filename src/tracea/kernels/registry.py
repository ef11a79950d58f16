"""All variants, listed. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tracea.errors import InvalidOption
from tracea.kernels.attention.amx import AMX as ATTENTION_AMX
from tracea.kernels.attention.decode import DECODE
from tracea.kernels.attention.flash import FLASH
from tracea.kernels.attention.gradient import GRADIENT
from tracea.kernels.attention.gradient_amx import GRADIENT_AMX
from tracea.kernels.conv.amx import AMX as CONV_AMX
from tracea.kernels.conv.amx import AMX_PREPACKED as CONV_AMX_PREPACKED
from tracea.kernels.conv.depthwise import DEPTHWISE, DEPTHWISE_PREPACKED
from tracea.kernels.conv.dot import CONV_DOT, CONV_DOT_PREPACKED
from tracea.kernels.conv.packed import PACKED as CONV_PACKED
from tracea.kernels.conv.packed import PREPACKED as CONV_PREPACKED
from tracea.kernels.conv.pixels import PIXELS, PIXELS_PREPACKED
from tracea.kernels.conv.split import SPLIT as CONV_SPLIT
from tracea.kernels.conv.split import SPLIT_PREPACKED as CONV_SPLIT_PREPACKED
from tracea.kernels.conv.stem import STEM, STEM_PREPACKED
from tracea.kernels.conv.winograd import WINOGRAD, WINOGRAD_PREPACKED
from tracea.kernels.gemm.amx import AMX, AMX_PREPACKED
from tracea.kernels.gemm.block_sparse import BLOCK_SPARSE, BLOCK_SPARSE_AMX
from tracea.kernels.gemm.direct import DIRECT
from tracea.kernels.gemm.empty import EMPTY
from tracea.kernels.gemm.gemv import DOT, STREAM
from tracea.kernels.gemm.gemv_split import STREAM_SPLIT
from tracea.kernels.gemm.gpu.cp_async import MMA_CP_ASYNC
from tracea.kernels.gemm.gpu.register_stages import MMA_SYNC, SIMT
from tracea.kernels.gemm.gpu.tma_variants import MMA_TMA, TCGEN05, WGMMA
from tracea.kernels.gemm.grouped import GROUPED, GROUPED_AMX
from tracea.kernels.gemm.low_rank import LOW_RANK
from tracea.kernels.gemm.low_rank_amx import LOW_RANK_AMX
from tracea.kernels.gemm.narrow import NARROW, NARROW_PREPACKED
from tracea.kernels.gemm.packed import PACKED
from tracea.kernels.gemm.prepacked import PREPACKED
from tracea.kernels.gemm.turned import DIRECT_TURNED, DOT_TURNED, STREAM_SPLIT_TURNED, STREAM_TURNED
from tracea.kernels.library import LIBRARY_CUBLAS, LIBRARY_GEMM
from tracea.kernels.pointwise.chain import CHAIN
from tracea.kernels.pointwise.pairs import PAIRS
from tracea.kernels.pointwise.transpose import TRANSPOSE
from tracea.kernels.pool.grid import GRID
from tracea.kernels.pool.window import WINDOW
from tracea.kernels.rows.indexed import GATHER, SCAN
from tracea.kernels.rows.largest import LARGEST
from tracea.kernels.rows.moments import MOMENTS
from tracea.kernels.rows.norm_gradient import NORM_GRADIENT
from tracea.kernels.rows.normalize import NORMALIZE
from tracea.kernels.rows.plane_gradient import PLANE_GRADIENT
from tracea.kernels.rows.reduce import REDUCE
from tracea.kernels.rows.row_sums import SUM_ROWS
from tracea.kernels.rows.sorted import SORTED
from tracea.kernels.rows.statistics import REDUCE_SLABS, STATISTICS
from tracea.kernels.rows.weighted_rows import WEIGHTED_ROWS
from tracea.kernels.variant import Variant
from tracea.targets.gpu import GpuTarget
from tracea.targets.target import Target
from tracea.targets.unknown import meant, near

__all__ = ["CUDA_VARIANTS", "VARIANTS", "candidates", "check_unique", "find", "variants_of"]

VARIANTS: Final[tuple[Variant, ...]] = (
    PACKED,
    PREPACKED,
    DIRECT,
    NARROW,
    NARROW_PREPACKED,
    STREAM,
    STREAM_SPLIT,
    STREAM_TURNED,
    DIRECT_TURNED,
    DOT_TURNED,
    STREAM_SPLIT_TURNED,
    DOT,
    EMPTY,
    LOW_RANK,
    LOW_RANK_AMX,
    BLOCK_SPARSE,
    BLOCK_SPARSE_AMX,
    GROUPED,
    GROUPED_AMX,
    AMX,
    AMX_PREPACKED,
    CONV_PACKED,
    CONV_PREPACKED,
    CONV_SPLIT,
    CONV_SPLIT_PREPACKED,
    CONV_DOT,
    CONV_DOT_PREPACKED,
    DEPTHWISE,
    DEPTHWISE_PREPACKED,
    CONV_AMX,
    CONV_AMX_PREPACKED,
    STEM,
    STEM_PREPACKED,
    WINOGRAD,
    WINOGRAD_PREPACKED,
    PIXELS,
    PIXELS_PREPACKED,
    LIBRARY_GEMM,
    NORMALIZE,
    REDUCE,
    REDUCE_SLABS,
    STATISTICS,
    NORM_GRADIENT,
    PLANE_GRADIENT,
    MOMENTS,
    SCAN,
    GATHER,
    SUM_ROWS,
    WEIGHTED_ROWS,
    LARGEST,
    SORTED,
    CHAIN,
    TRANSPOSE,
    PAIRS,
    WINDOW,
    GRID,
    FLASH,
    ATTENTION_AMX,
    DECODE,
    GRADIENT_AMX,
    GRADIENT,
)

CUDA_VARIANTS: Final[tuple[Variant, ...]] = (
    WGMMA,
    TCGEN05,
    MMA_TMA,
    MMA_CP_ASYNC,
    MMA_SYNC,
    SIMT,
    LIBRARY_CUBLAS,
)


def check_unique(variants: Sequence[Variant]) -> None:
    """Check that no two variants have one id.

    Raises:
        InvalidOption: two have.
    """
    ids = [variant.id for variant in variants]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise InvalidOption(field="registry", got=twice, expected="each variant id once", remedy="rename one of them")


def variants_of(backend: str) -> tuple[Variant, ...]:
    """Return the variants of a backend: ``cpu`` or ``cuda``.

    Raises:
        InvalidOption: there is no such backend.
    """
    known = {"cpu": VARIANTS, "cuda": CUDA_VARIANTS}
    if backend not in known:
        raise InvalidOption(field="backend", got=backend, expected=sorted(known), remedy="name one of these")
    return known[backend]


def find(
    name: str, variants: Sequence[Variant] = (*VARIANTS, *CUDA_VARIANTS), *, of: type[Any] | None = None
) -> Variant:
    """Return the variant of that id.

    Raises:
        InvalidOption: there is none; the error lists those that there are, ``of`` the kind of op where one is given.
    """
    for variant in variants:
        if variant.id == name:
            return variant
    known = [variant.id for variant in variants if of is None or variant.op_type is of]
    raise InvalidOption(
        field="variant", got=name, expected=known, remedy=f"{meant(near(name, known))}name one of these"
    )


def candidates(op: Any, target: Target | GpuTarget, variants: Sequence[Variant] | None = None) -> tuple[Variant, ...]:
    """Return the variants whose requirements hold, the most promising first: the order where nothing was measured."""
    chosen = variants_of(target.backend) if variants is None else variants
    fitting = [variant for variant in chosen if isinstance(op, variant.op_type) and not variant.unmet(op, target)]
    return tuple(sorted(fitting, key=lambda variant: -variant.score(op, target)))


check_unique((*VARIANTS, *CUDA_VARIANTS))
