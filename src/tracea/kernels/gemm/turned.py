"""Products with few columns as the transposed product: Cᵀ = Bᵀ Aᵀ has few rows, and fills vectors along K or rows.

Where A is stored by columns, ``Aᵀ``'s rows are contiguous and read once, as ``gemm.stream``, ``gemm.stream_split`` and,
for more columns, ``gemm.direct`` read B: packing would gather columns of A, the larger operand, for few uses. Where
A's rows and B's columns are contiguous, as in ``x @ W.T`` of a layer with few features, ``gemm.dot`` reads both as they
lie: few columns would leave most of a vector empty. Turning is a matter of types: no element moves, and C is written
through its own strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.gemm.direct import DIRECT, MOST_TURNED_COLUMNS, is_better_turned
from tracea.kernels.gemm.gemv import COLUMNS_OF_B, DOT, MOST_DOTTED_ROWS, MOST_STREAMED_ROWS, STREAM
from tracea.kernels.gemm.gemv_split import NO_BATCH, STREAM_SPLIT
from tracea.kernels.gemm.operands import gemm_types, kernel_name
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, STORED_AS_SUMMED, contiguous, most, unit_stride
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Requirement, Variant
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = [
    "DIRECT_TURNED",
    "DOT_TURNED",
    "STREAM_SPLIT_TURNED",
    "STREAM_TURNED",
    "TURNED_IDS",
    "turned",
    "turned_types",
]


def turned(op: GemmOp) -> GemmOp:
    """Return the op whose result is the transpose of this one's in the same memory: ``(a b)ᵀ = bᵀ aᵀ``."""
    epilogue = replace(op.epilogue, operands=tuple(_transpose(type_) for type_ in op.epilogue.operands))
    a, b, out = _transpose(op.b), _transpose(op.a), _transpose(op.infer())
    return replace(op, m=op.n, n=op.m, a=a, b=b, epilogue=epilogue, out=out)


def turned_types(op: GemmOp, like: GemmOp) -> Mapping[str, TensorType]:
    """Return the type of each buffer of a turned product: ``a`` is the transpose of the op's b, ``b`` that of its a."""
    return gemm_types(turned(op), turned(like))


def _transpose(type_: TensorType) -> TensorType:
    if type_.rank == 0:
        return type_
    if type_.rank == 1:  # along the columns, which become rows
        return TensorType((*type_.shape, 1), type_.dtype, StridedLayout((*type_.strides, 1)))
    *outer, rows, columns = range(type_.rank)
    return type_.permuted((*outer, columns, rows))


def _is_static(op: GemmOp) -> bool:
    return all(type_.is_static for type_ in (*op.operands, op.infer()))


_STATIC = condition(
    "extents known",
    lambda op, _: _is_static(op),
    needed="numbers for all extents",
    found=lambda op: op.summary,
    remedy="use gemm.packed, which takes dynamic extents",
)
_MORE_ROWS = condition(
    "more rows than columns",
    lambda op, _: not isinstance(op.m, int) or op.m > op.n,
    needed="m > n",
    found=lambda op: f"m = {op.m}, n = {op.n}",
    remedy="use gemm.stream",
)
_COLUMNS_OF_A = condition(
    "columns of A contiguous",
    lambda op, _: unit_stride(op, "a", -2),
    needed="stride 1 along M in a",
    found=lambda op: str(op.a),
    remedy="use gemm.dot for contiguous rows of A, else gemm.packed",
)
_COLUMNS = condition(
    "columns",
    lambda op, _: not isinstance(op.n, int) or op.n > 1,
    needed="n > 1",
    found=lambda op: f"n = {op.n}",
    remedy="use gemm.dot",
)
_BY_COLUMNS = condition(
    "rows or columns of B contiguous",
    lambda op, _: unit_stride(op, "b", -1) or unit_stride(op, "b", -2),
    needed="stride 1 along one of the last two axes of b",
    found=lambda op: str(op.b),
    remedy="use gemm.packed, which takes any strides",
)
_REQUIREMENTS = (*GEMM_REQUIREMENTS, _STATIC, _MORE_ROWS)
_STREAMED = (*_REQUIREMENTS, most("n", MOST_STREAMED_ROWS), _COLUMNS_OF_A)
_DOTTED = (*_REQUIREMENTS, most("n", MOST_DOTTED_ROWS), _COLUMNS, contiguous("a", "rows of A"), COLUMNS_OF_B)


def _turned(variant: Variant, *requirements: Requirement, preferences: Sequence[Preference] = ()) -> Variant:
    """Return the variant that runs another one's kernel of the transposed product, preferred as that one is there."""
    name = f"{variant.id}_turned"
    inner: Any = variant  # a kernel of ours: its three functions are there

    def build(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
        kernel: TileKernel = inner.build(turned(op), schedule, target)
        a, b, *others = kernel.buffers  # the op gives its own a first, which is the kernel's b
        symbol = kernel_name(op.key, name, schedule, target)
        return replace(kernel, name=symbol, op=op, variant=name, buffers=(b, a, *others))

    def space(op: GemmOp, target: Target) -> ScheduleSpace:
        return inner.space(turned(op), target)

    def default(op: GemmOp, target: Target) -> Schedule:
        return inner.default_schedule(turned(op), target)

    def preference(of: Preference) -> Preference:
        def score(op: GemmOp, target: Target) -> float:
            return of.score(turned(op), target)

        return replace(of, score=score)

    return replace(
        variant,
        id=name,
        requirements=requirements,
        preferences=tuple(preferences or map(preference, variant.preferences)),
        build=build,
        space=space,
        default_schedule=default,
    )


def _few_columns(op: GemmOp, target: Target) -> float:
    # Above panels that are there, and below matrix tiles, beside which nobody measured it (NOTES, 2026-11-28).
    return 30.0 if is_better_turned(op, target) else -90.0


STREAM_TURNED = _turned(STREAM, *_STREAMED)
STREAM_SPLIT_TURNED = _turned(STREAM_SPLIT, *_STREAMED, NO_BATCH)
DOT_TURNED = _turned(DOT, *_DOTTED)
DIRECT_TURNED = _turned(
    DIRECT,
    *_REQUIREMENTS,
    most("n", MOST_TURNED_COLUMNS),
    STORED_AS_SUMMED,
    _COLUMNS_OF_A,
    _BY_COLUMNS,
    preferences=(Preference(name="few columns", score=_few_columns),),
)
TURNED_IDS: Final = (DIRECT_TURNED.id, STREAM_TURNED.id, STREAM_SPLIT_TURNED.id, DOT_TURNED.id)
