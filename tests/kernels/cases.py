"""The kernels that the tests compile: every variant, its schedule's structural choices, element types and layouts.

Blocks are small, so that small problems have several of each, with tails.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from tests.kernels.attention_cases import (
    attention_cases,
    attention_tile_cases,
    gradient_cases,
    gradient_tile_cases,
)
from tests.kernels.conformance import Case
from tests.kernels.conv_cases import amx_conv_cases, conv_cases
from tests.kernels.dot_cases import dot_cases
from tests.kernels.few_columns_cases import FUSED, matrix, narrow_cases, turned_cases
from tests.kernels.grouped_cases import grouped_cases, grouped_tile_cases
from tests.kernels.low_rank_cases import low_rank_cases, low_rank_tile_cases
from tests.kernels.moments_cases import moments_cases
from tests.kernels.norm_gradient_cases import norm_gradient_cases, plane_gradient_cases
from tests.kernels.pixel_cases import pixel_cases
from tests.kernels.pool_cases import pool_cases
from tests.kernels.row_cases import row_cases
from tests.kernels.slab_cases import slab_cases
from tests.kernels.sparse_cases import sparse_cases, sparse_tile_cases
from tests.kernels.winograd_cases import winograd_cases

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Input, activation, exp, maximum, select, sigmoid
from tracea.core.op import Epilogue, GemmOp, PointwiseOp, ReduceKind, ReduceOp
from tracea.core.tensor_type import StridedLayout, TensorType

F32, F64, F16, BF16, I32, I8, BOOL = DType.F32, DType.F64, DType.F16, DType.BF16, DType.I32, DType.I8, DType.BOOL
SMALL_BLOCKS = {"kc": 16, "unroll": 2, "sweep": 2, "upcoming": 1}


def strided_gemm(m: int, n: int, k: int, dtype: DType = F32) -> GemmOp:
    """A, B and C with both strides above 1, and an operand that is one column."""
    return GemmOp(
        m=m,
        n=n,
        k=k,
        a=matrix(m, k, dtype, 2 * k + 3, 2),
        b=matrix(k, n, dtype, 3, 3 * k + 1),
        epilogue=Epilogue(Input(0) * Input(1) + Input(2), (TensorType((m, 1), dtype), TensorType((), dtype))),
        out=matrix(m, n, dtype, 2, 2 * m + 1),
    )


def resized(op: GemmOp, m: int, n: int, k: int) -> GemmOp:
    """Return an op of the same structure with other extents."""
    if op.infer().layout is not None:
        return strided_gemm(m, n, k, op.a.dtype)
    transposed = {
        "transpose_a": op.a.layout is not None,
        "transpose_b": op.b.layout is not None,
    }
    fused = FUSED if op.epilogue.operands else {}
    out = op.infer().dtype
    found = GemmOp.of(m=m, n=n, k=k, dtype=op.a.dtype, batch=op.batch, out_dtype=out, **transposed, **fused)
    if op.batch and op.b.rank == 2:
        steps = (1, k) if op.b.layout is not None else (n, 1)
        return replace(found, b=matrix(k, n, op.b.dtype, *steps))
    if op.batch and op.a.rank == 2:
        return replace(found, a=matrix(m, k, op.a.dtype, 1, m))
    return found


def gemm_cases() -> tuple[Case, ...]:
    """GEMM kernels of every variant; ``tile`` is small where compile time matters, the default's at least once."""
    tile = {"mr": 4, "nv": 2}
    blocks = {**SMALL_BLOCKS, **tile, "mc": 8, "nc": 64, "tail": 1}
    no_rows = {**blocks, "upcoming": 0}  # of B that tiles could ask for
    fused = GemmOp.of(m=33, n=70, k=40, **FUSED)
    batched = GemmOp.of(m=9, n=40, k=20, batch=(3,), **FUSED)
    shared_b = replace(batched, b=TensorType((20, 40), F32))
    shared_weight = replace(batched, b=matrix(20, 40, F32, 1, 20))
    linear = GemmOp.of(m=3, n=40, k=70, transpose_b=True, **FUSED)
    column = GemmOp.of(m=40, n=1, k=70)
    direct = {"mr": 4, "nv": 2, "kc": 16, "mc": 8, "nc": 64, "tail": 1}
    return (
        Case.of("packed_default_tile", "gemm.packed", GemmOp.of(m=64, n=64, k=64)),
        Case.of("packed_rows", "gemm.packed", fused, split="rows", **blocks),
        Case.of("packed_columns", "gemm.packed", fused, split="columns", **blocks),
        Case.of("packed_f64", "gemm.packed", GemmOp.of(m=33, n=70, k=40, dtype=F64, **FUSED), split="rows", **blocks),
        Case.of("packed_bf16", "gemm.packed", GemmOp.of(m=33, n=70, k=40, dtype=BF16, **FUSED), split="rows", **blocks),
        Case.of(
            "packed_f16", "gemm.packed", GemmOp.of(m=33, n=70, k=40, dtype=F16, **FUSED), split="columns", **no_rows
        ),
        Case.of(
            "packed_f16_to_f32",
            "gemm.packed",
            GemmOp.of(m=33, n=70, k=40, dtype=F16, out_dtype=F32, transpose_a=True),
            split="rows",
            **blocks,
        ),
        Case.of(
            "packed_transposed",
            "gemm.packed",
            GemmOp.of(m=33, n=70, k=40, transpose_a=True, transpose_b=True),
            split="columns",
            **no_rows,
        ),
        Case.of("packed_strided", "gemm.packed", strided_gemm(33, 70, 40), split="rows", **blocks),
        Case.of("packed_batch", "gemm.packed", batched, split="rows", **blocks),
        Case.of("packed_batch_columns", "gemm.packed", shared_b, split="columns", **blocks),
        Case.of("prepacked_rows", "gemm.prepacked", fused, split="rows", **blocks),
        Case.of("prepacked_columns", "gemm.prepacked", fused, split="columns", **blocks),
        Case.of(
            "prepacked_bf16", "gemm.prepacked", GemmOp.of(m=33, n=70, k=40, dtype=BF16, **FUSED), split="rows", **blocks
        ),
        Case.of("prepacked_batch_rows", "gemm.prepacked", shared_b, split="rows", **blocks),
        Case.of("prepacked_batch_columns", "gemm.prepacked", shared_weight, split="columns", **blocks),
        Case.of("direct_columns", "gemm.direct", fused, split="columns", **direct),
        Case.of(
            "direct_rows", "gemm.direct", GemmOp.of(m=33, n=70, k=40, out_dtype=BF16, **FUSED), split="rows", **direct
        ),
        Case.of("direct_batch", "gemm.direct", batched, split="columns", **direct),
        Case.of("direct_a_t", "gemm.direct", GemmOp.of(m=33, n=70, k=40, transpose_a=True), split="columns", **direct),
        Case.of("stream", "gemm.stream", GemmOp.of(m=3, n=70, k=41, **FUSED), nc=32),
        Case.of("stream_bf16", "gemm.stream", GemmOp.of(m=1, n=70, k=41, dtype=BF16, **FUSED), nc=32),
        Case.of("stream_split", "gemm.stream_split", GemmOp.of(m=3, n=70, k=41, **FUSED), kc=16, nc=32, fold=32),
        Case.of(
            "stream_split_bf16",
            "gemm.stream_split",
            GemmOp.of(m=1, n=70, k=41, dtype=BF16, **FUSED),
            kc=16,
            nc=32,
            fold=32,
        ),
        Case.of("stream_split_f64", "gemm.stream_split", GemmOp.of(m=2, n=70, k=41, dtype=F64), kc=10, fold=16),
        *turned_cases(),
        *narrow_cases(),
        Case.of("dot_columns", "gemm.dot", linear, rows=2, columns=4, nc=8, split="columns"),
        Case.of("dot_rows", "gemm.dot", column, rows=8, columns=1, mc=16, split="rows"),
        Case.of(
            "dot_f16", "gemm.dot", GemmOp.of(m=3, n=40, k=70, dtype=F16, transpose_b=True), rows=2, columns=4, nc=8
        ),
        Case.of("dot_streams", "gemm.dot", GemmOp.of(m=5, n=43, k=70, transpose_b=True), rows=4, columns=6, nc=26),
        Case.of("empty", "gemm.empty", GemmOp.of(m=33, n=70, k=0, **FUSED), mc=8),
    )


def pointwise_part() -> PointwiseOp:
    """A result whose rows lie 53 elements apart, as those of a slice of a joined tensor do."""
    x, w = TensorType((3, 4, 37), F32), TensorType((37,), F32)
    out = TensorType(x.shape, F32, StridedLayout((4 * 53, 53, 1)))
    return PointwiseOp(expr=Input(0) * Input(1), inputs=(x, w), out_dtype=F32, out=out)


def moved(dtype: DType, pitch: int) -> PointwiseOp:
    """A copy of nine rows that lie ``pitch`` elements apart."""
    x = TensorType((9, 100), dtype, StridedLayout((pitch, 1)))
    return PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=dtype)


def chain_cases() -> tuple[Case, ...]:
    """Pointwise kernels: broadcasts, mixed element types, casts, every scalar function."""
    x, w = TensorType((9, 100), F32), TensorType((100,), F32)
    a, b = Input(0), Input(1)
    gate = activation("silu").substitute({0: a}) * b
    functions = exp(-abs(a)) + sigmoid(b) + activation("mish") + activation("elu") + select(a > b, a, maximum(b, 0.25))
    return (
        Case.of(
            "gelu_bias_residual",
            "pointwise.chain",
            PointwiseOp(expr=activation("gelu").substitute({0: a + b}) + Input(2), inputs=(x, w, x), out_dtype=F32),
            rows=4,
        ),
        Case.of(
            "gate_f16",
            "pointwise.chain",
            PointwiseOp(expr=gate, inputs=(TensorType((900,), F16), TensorType((900,), F16)), out_dtype=F16),
            columns=256,
        ),
        Case.of(
            "gelu_bias_residual_fixed",
            "pointwise.chain",
            PointwiseOp(expr=activation("gelu").substitute({0: a + b}) + Input(2), inputs=(x, w, x), out_dtype=F32),
            rows=2,
            fixed=1,
            streaming=1,
            prefetch=64,
        ),
        *(
            Case.of(f"part_of_a_join_{streaming}", "pointwise.chain", pointwise_part(), rows=2, streaming=streaming)
            for streaming in (0, 1)
        ),
        *(
            Case.of(
                f"rows_in_pairs_{rows}", "pointwise.chain", pointwise_part(), rows=rows, together=2, prefetch=prefetch
            )
            for rows, prefetch in ((3, 8), (1, 0))
        ),
        *(
            Case.of(f"moved_{dtype.value}_{pitch}", "pointwise.chain", moved(dtype, pitch), rows=4, columns=256)
            for dtype, pitch in ((BF16, 100), (F16, 117))
        ),
        Case.of("functions", "pointwise.chain", PointwiseOp(expr=functions, inputs=(x, w), out_dtype=F32), rows=4),
        Case.of(
            "mixed",
            "pointwise.chain",
            PointwiseOp(
                expr=select(b, a, -a) + Cast(a * 3.0, I32),
                inputs=(TensorType((9, 100), F32), TensorType((9, 1), BOOL)),
                out_dtype=F32,
            ),
            rows=4,
        ),
        Case.of(
            "integers",
            "pointwise.chain",
            PointwiseOp(expr=a * b + 1.0, inputs=(TensorType((9, 100), I32), TensorType((9, 100), I8)), out_dtype=I32),
            rows=4,
        ),
        Case.of(
            "transpose",
            "pointwise.chain",
            PointwiseOp(expr=a, inputs=(matrix(9, 100, F32, 1, 9),), out_dtype=BF16),
            rows=4,
        ),
        Case.of(
            "crossed_rows",
            "pointwise.chain",
            PointwiseOp(expr=a, inputs=(matrix(103, 3, F32, 1, 103),), out_dtype=F32),
            split="columns",
            columns=32,
        ),
        Case.of(
            "permuted_result",
            "pointwise.chain",
            PointwiseOp(
                expr=a + b,
                inputs=(matrix(9, 100, F32, 1, 9), TensorType((100,), F32)),
                out_dtype=F32,
                out=matrix(9, 100, F32, 1, 9),
            ),
            rows=4,
        ),
        Case.of(
            "columns",
            "pointwise.chain",
            PointwiseOp(expr=a + b, inputs=(x, w), out_dtype=F64),
            split="columns",
            columns=32,
        ),
        Case.of(
            "scalar",
            "pointwise.chain",
            PointwiseOp(expr=a * b, inputs=(TensorType((), F32), TensorType((1,), F32)), out_dtype=F32),
        ),
    )


def reduce_cases() -> tuple[Case, ...]:
    """Reductions: kinds, along rows, along columns, in the middle, of everything."""
    x = TensorType((9, 100), F32)
    y = TensorType((4, 30, 20), F32)
    scale = Epilogue(Input(0) * Input(1), (TensorType((9,), F32),))
    return (
        Case.of(
            "sum_rows",
            "rows.reduce",
            ReduceOp(kind=ReduceKind.SUM, x=(x,), axes=(1,), prologue=Input(0) * Input(0), epilogue=scale),
            rows=4,
        ),
        Case.of("max_rows", "rows.reduce", ReduceOp(kind=ReduceKind.MAX, x=(x,), axes=(-1,), keepdims=True), rows=4),
        Case.of("mean_columns", "rows.reduce", ReduceOp(kind=ReduceKind.MEAN, x=(x,), axes=(0,)), columns=64),
        Case.of("min_middle", "rows.reduce", ReduceOp(kind=ReduceKind.MIN, x=(y,), axes=(1,)), columns=64),
        Case.of(
            "sum_all_bf16",
            "rows.reduce",
            ReduceOp(kind=ReduceKind.SUM, x=(TensorType((9, 100), BF16),), axes=(0, 1), out=TensorType((), F32)),
        ),
        Case.of("mean_f64", "rows.reduce", ReduceOp(kind=ReduceKind.MEAN, x=(TensorType((9, 100), F64),), axes=(1,))),
        *(
            Case.of(f"{kind.value}_together_{together}_{dtype.value}", "rows.reduce", _blocks(kind, together, dtype))
            for kind, together, dtype in (
                (ReduceKind.SUM, 3, F32),
                (ReduceKind.MEAN, 2, F64),
                (ReduceKind.MAX, 4, BF16),
            )
        ),
    )


def _blocks(kind: ReduceKind, together: int, dtype: DType) -> ReduceOp:
    """Blocks times what they have in common: more rows than one sum goes over, and a tail of columns."""
    blocks = TensorType((2, together, 140, 107), dtype, StridedLayout((70_000, 17_000, 110, 1)))
    common = TensorType((2, 1, 140, 107), dtype)
    return ReduceOp(kind=kind, x=(blocks, common), axes=(2,), prologue=Input(0) * Input(1))


def amx_cases() -> tuple[Case, ...]:
    """GEMM kernels on matrix tiles: several blocks of K, rows and columns, with tails in a granule and in a tile."""
    blocks = {"kc": 32, "mc": 64, "nc": 96, "sweep": 2}
    fused = GemmOp.of(m=70, n=101, k=77, **FUSED)
    batched = GemmOp.of(m=9, n=40, k=50, batch=(3,), **FUSED)
    shared_weight = replace(batched, b=matrix(50, 40, F32, 1, 50))
    return (
        Case.of("amx_default", "gemm.amx", GemmOp.of(m=128, n=96, k=160)),
        Case.of("amx_rows", "gemm.amx", fused, split="rows", **blocks),
        Case.of("amx_columns", "gemm.amx", fused, split="columns", **blocks),
        Case.of("amx_to_bf16", "gemm.amx", GemmOp.of(m=70, n=101, k=77, out_dtype=BF16), split="rows", **blocks),
        Case.of(
            "amx_transposed",
            "gemm.amx",
            GemmOp.of(m=70, n=101, k=77, transpose_a=True, transpose_b=True),
            split="columns",
            **blocks,
        ),
        *(
            Case.of(f"amx_{dtype.value}_{name}", variant, op, split=split, **blocks)
            for dtype in (BF16, F16)
            for name, variant, split, op in (
                ("rows", "gemm.amx", "rows", GemmOp.of(m=70, n=101, k=77, dtype=dtype, **FUSED)),
                ("prepacked", "gemm.amx_prepacked", "rows", GemmOp.of(m=70, n=101, k=77, dtype=dtype, **FUSED)),
                (
                    "transposed",
                    "gemm.amx",
                    "columns",
                    GemmOp.of(m=70, n=101, k=77, dtype=dtype, out_dtype=F32, transpose_a=True, transpose_b=True),
                ),
            )
        ),
        Case.of("amx_strided", "gemm.amx", strided_gemm(70, 101, 77), split="rows", **blocks),
        Case.of("amx_batch", "gemm.amx", batched, split="rows", **blocks),
        Case.of("amx_prepacked_rows", "gemm.amx_prepacked", fused, split="rows", **blocks),
        Case.of("amx_prepacked_columns", "gemm.amx_prepacked", fused, split="columns", **blocks),
        Case.of("amx_prepacked_batch_rows", "gemm.amx_prepacked", shared_weight, split="rows", **blocks),
        Case.of("amx_prepacked_batch_columns", "gemm.amx_prepacked", shared_weight, split="columns", **blocks),
    )


def vector_groups() -> tuple[tuple[Case, ...], ...]:
    """Every kernel that is compiled for each instruction set, those of a unit together."""
    return (
        attention_cases(),
        gradient_cases(),
        gemm_cases(),
        low_rank_cases(),
        sparse_cases(),
        grouped_cases(),
        conv_cases(),
        pixel_cases(),
        dot_cases(),
        winograd_cases(),
        row_cases(),
        chain_cases(),
        reduce_cases(),
        pool_cases(),
        slab_cases(),
        moments_cases(),
        norm_gradient_cases(),
        plane_gradient_cases(),
    )


def tile_groups() -> tuple[tuple[Case, ...], ...]:
    """Every kernel on matrix tiles, those of a unit together."""
    return (
        amx_cases(),
        amx_conv_cases(),
        sparse_tile_cases(),
        low_rank_tile_cases(),
        grouped_tile_cases(),
        attention_tile_cases(),
        gradient_tile_cases(),
    )


def tile_cases() -> tuple[Case, ...]:
    """Every kernel on matrix tiles."""
    return tuple(chain.from_iterable(tile_groups()))


def cases_for(isa: str) -> tuple[Case, ...]:
    """Every kernel that runs on an instruction set; "amx" are the matrix tiles, which the plain headers have too."""
    return tile_cases() if isa == "amx" else (*all_cases(), *(tile_cases() if isa == "plain" else ()))


def all_cases() -> tuple[Case, ...]:
    """Every kernel that is compiled for each instruction set."""
    return tuple(chain.from_iterable(vector_groups()))
