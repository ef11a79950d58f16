"""The pooling kernels that the tests compile: layouts, windows cut off on each side, means, element types, tails."""

from __future__ import annotations

from tests.kernels.conformance import Case

from tracea.core.dtype import DType
from tracea.core.op import AdaptivePool2dOp, Pool2dOp, PoolKind
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import StridedLayout, TensorType

THREE = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}


def pool(shape: tuple[int, int, int, int], *, kind: str = "max", last: bool = True, dtype: DType = DType.F32, **more):
    """Return a pooling of an image whose result has its order."""
    fields = {"kind": PoolKind(kind), "x": image_type(shape, dtype, channels_last=last), **THREE, **more}
    out = image_type(Pool2dOp(**fields).infer().static_shape, dtype, channels_last=last)
    return Pool2dOp(**fields, out=out)


def grid(
    shape: tuple[int, int, int, int],
    size: tuple[int, int],
    *,
    kind: str = "average",
    last: bool = True,
    dtype: DType = DType.F32,
) -> AdaptivePool2dOp:
    """Return an adaptive pooling of an image whose result has its order."""
    x, out = (image_type(each, dtype, channels_last=last) for each in (shape, (*shape[:2], *size)))
    return AdaptivePool2dOp(kind=PoolKind(kind), x=x, size=size, out=out)


def strided_pool() -> Pool2dOp:
    """x and the result with every stride above 1."""
    x = TensorType((2, 5, 7, 6), DType.F32, StridedLayout((3, 1000, 18, 130)))
    plain = Pool2dOp(kind=PoolKind.AVERAGE, x=x, kernel=(2, 3), stride=(1, 2), padding=(1, 0))
    out = TensorType(plain.infer().shape, DType.F32, StridedLayout((500, 2, 12, 100)))
    return Pool2dOp(kind=PoolKind.AVERAGE, x=x, kernel=(2, 3), stride=(1, 2), padding=(1, 0), out=out)


def strided_grid() -> AdaptivePool2dOp:
    """x and the result with every stride above 1."""
    x = TensorType((2, 5, 7, 6), DType.F32, StridedLayout((3, 1000, 18, 130)))
    out = TensorType((2, 5, 3, 4), DType.F32, StridedLayout((500, 2, 12, 100)))
    return AdaptivePool2dOp(kind=PoolKind.MAX, x=x, size=(3, 4), out=out)


def pool_cases() -> tuple[Case, ...]:
    """Kernels of every structure, for all instruction sets."""
    blocks = {"rows": 2, "channels": 40}
    wide = {
        "kernel": (8, 21),
        "stride": (3, 4),
        "padding": (2, 1),
    }  # more than a vector, and not a whole number of them
    global_window = {"kernel": (7, 6), "stride": (7, 6), "padding": (0, 0), "kind": "average"}
    return (
        Case.of("pool_default", "pool.window", pool((1, 64, 14, 14))),
        Case.of("pool_max", "pool.window", pool((2, 70, 7, 8)), **blocks),
        Case.of("pool_max_planar", "pool.window", pool((2, 21, 7, 8), last=False), **blocks),
        Case.of("pool_mean_ceil", "pool.window", pool((2, 70, 8, 9), kind="average", ceil=True), **blocks),
        Case.of(
            "pool_mean_inside", "pool.window", pool((1, 37, 8, 9), kind="average", count_padding=False, last=False)
        ),
        Case.of("pool_global", "pool.window", pool((3, 130, 7, 6), **global_window), **blocks),
        Case.of("pool_strided", "pool.window", strided_pool(), **blocks),
        Case.of("pool_f64", "pool.window", pool((1, 19, 7, 8), dtype=DType.F64), **blocks),
        Case.of("pool_bf16", "pool.window", pool((1, 37, 7, 8), dtype=DType.BF16, kind="average"), **blocks),
        Case.of("pool_f16", "pool.window", pool((1, 37, 7, 8), dtype=DType.F16, last=False), **blocks),
        Case.of("pool_planes", "pool.window", pool((2, 21, 12, 25), last=False, **wide), **blocks),
        Case.of("pool_planes_mean", "pool.window", pool((1, 7, 12, 25), last=False, kind="average", **wide), **blocks),
        Case.of("grid_planes_f64", "pool.grid", grid((1, 21, 20, 47), (2, 3), dtype=DType.F64, last=False), **blocks),
        Case.of("grid_planes_bf16", "pool.grid", grid((1, 9, 9, 50), (2, 3), dtype=DType.BF16, last=False), **blocks),
        Case.of("grid_planes_f16", "pool.grid", grid((2, 6, 9, 11), (2, 2), kind="max", dtype=DType.F16, last=False)),
        Case.of("grid_default", "pool.grid", grid((1, 64, 14, 14), (3, 5))),
        Case.of("grid_mean", "pool.grid", grid((2, 70, 7, 8), (3, 5)), **blocks),
        Case.of("grid_mean_planar", "pool.grid", grid((2, 21, 7, 8), (3, 5), last=False), **blocks),
        Case.of("grid_max", "pool.grid", grid((2, 70, 7, 8), (4, 3), kind="max"), **blocks),
        Case.of("grid_enlarged", "pool.grid", grid((1, 37, 3, 4), (7, 9)), **blocks),
        Case.of("grid_strided", "pool.grid", strided_grid(), **blocks),
        Case.of("grid_f64", "pool.grid", grid((1, 19, 7, 8), (3, 3), dtype=DType.F64, kind="max"), **blocks),
        Case.of("grid_bf16", "pool.grid", grid((1, 37, 7, 8), (3, 3), dtype=DType.BF16), **blocks),
        Case.of("grid_f16", "pool.grid", grid((1, 37, 7, 8), (3, 3), dtype=DType.F16, last=False), **blocks),
    )
