"""Lowerings of normalisations and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.op import ReduceKind, ReduceOp, RowKind
from tracea.core.tensor_type import static
from tracea.flow.places import EXACT_IN_F32
from tracea.interface.torch import lower_images as images
from tracea.interface.torch.integers import LARGEST

if TYPE_CHECKING:
    import torch

    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "as_exact_floats",
    "fused_rms_norm",
    "layer_norm",
    "native_layer_norm",
    "reduction",
    "rms_norm",
    "row",
    "whether",
]


def row(kind: RowKind) -> Callable[..., Node]:
    """Return the lowering of a softmax along any axis."""

    def lower(low: Lowering, x: Node, axis: int, *_: Any) -> Node:
        if x.type.rank == 0:
            return low.reshape(low.row(kind, low.reshape(x, (1,))), ())
        axis %= x.type.rank
        if axis == x.type.rank - 1:
            return low.row(kind, x)
        return low.transpose(low.row(kind, low.transpose(x, axis, -1)), axis, -1)

    return lower


def layer_norm(
    low: Lowering,
    x: Node,
    normalized_shape: Sequence[int],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Node:
    """Lower the layer norm over the last axes."""
    return _normalised(low, RowKind.LAYER_NORM, x, normalized_shape, weight, bias, eps)


def native_layer_norm(low: Lowering, *arguments: Any) -> tuple[Node, None, None]:
    """Lower the layer norm that also returns its statistics, which nothing may use."""
    return layer_norm(low, *arguments), None, None


def rms_norm(
    low: Lowering, x: Node, normalized_shape: Sequence[int], weight: Node | None = None, eps: float | None = None
) -> Node:
    """Lower the RMS norm over the last axes; without ``eps`` it is the rounding unit that torch computes in."""
    return _normalised(
        low, RowKind.RMS_NORM, x, normalized_shape, weight, None, x.type.dtype.compute.eps if eps is None else eps
    )


def fused_rms_norm(low: Lowering, *arguments: Any) -> tuple[Node, None]:
    """Lower the RMS norm that also returns its statistics, which nothing may use."""
    return rms_norm(low, *arguments), None


def _normalised(
    low: Lowering,
    kind: RowKind,
    x: Node,
    normalized_shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> Node:
    kept = x.type.rank - len(normalized_shape)
    columns = math.prod(static(extent) for extent in x.type.shape[kept:])
    source = x if len(normalized_shape) == 1 else low.reshape(x, (*x.type.shape[:kept], columns))
    expr: Expr = Input(0)
    extras: list[Node] = []
    for parameter, is_factor in ((weight, True), (bias, False)):
        if parameter is not None:
            extras.append(low.reshape(parameter, (columns,)))
            term = Input(len(extras))
            expr = expr * term if is_factor else expr + term
    return low.reshape(low.row(kind, source, epilogue=expr, extras=extras, eps=float(eps)), x.type.shape)


def reduction(kind: ReduceKind) -> Callable[..., Node]:
    """Return the lowering of a reduction over some axes or all."""

    def lower(
        low: Lowering,
        x: Node,
        axes: int | Sequence[int] | torch.dtype | None = None,
        keepdims: bool = False,
        *_: Any,
    ) -> Node:
        # `sum(x, *, dtype)` has a dtype where `sum(x, axes)` has axes; the result's type is known either way.
        chosen = [axes] if isinstance(axes, int) else list(axes) if isinstance(axes, Sequence) else []
        if x.type.rank == 0:
            return low.cast(x, low.dtype)
        if not low.dtype.is_float:
            return _of_whole_numbers(low, kind, x, chosen or range(x.type.rank), keepdims=keepdims)
        if not x.type.dtype.is_float:
            x = low.cast(x, low.dtype)  # as torch converts them
        image = images.mean_of_image(low, kind, x, chosen, keepdims=keepdims)
        return image or low.reduce(kind, x, chosen or range(x.type.rank), keepdims=keepdims)

    return lower


def whether(kind: ReduceKind) -> Callable[..., Node]:
    """Return the lowering of whether any element is not zero, the largest of a mask, or none is, the smallest."""

    def lower(low: Lowering, x: Node, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Node:
        if x.type.is_static and x.type.elements == 0:
            return low.filled(float(kind is ReduceKind.MIN), low.shape)
        mask, chosen = low.cast(x, DType.BOOL), [axes] if isinstance(axes, int) else list(axes or ())
        if x.type.rank == 0:
            return low.cast(mask, low.dtype)
        return _of_whole_numbers(low, kind, mask, chosen or range(x.type.rank), keepdims=keepdims)

    return lower


def _of_whole_numbers(low: Lowering, kind: ReduceKind, x: Node, axes: Sequence[int], *, keepdims: bool) -> Node:
    """Append a sum or an extreme of integers or of a mask, in floats that hold each that there may be."""
    extreme = kind in (ReduceKind.MAX, ReduceKind.MIN)
    if extreme and low.dtype in (DType.BOOL, DType.U8, DType.I8):
        wide = low.cast(x, DType.F32)
        found = low.add(ReduceOp(kind=kind, x=(wide.type,), axes=tuple(axes), keepdims=keepdims), [wide], part="wide")
        return low.cast(found, low.dtype)
    if not (extreme or kind is ReduceKind.SUM) or low.dtype not in LARGEST:
        low.refuse(f"a reduction of {x.type.dtype.value} to {low.dtype.value}", "convert them first: x.float()")
    count = math.prod(static(x.type.shape[axis]) for axis in axes) if kind is ReduceKind.SUM else 1
    read = as_exact_floats(low, x, count, "sums")
    found = low.add(ReduceOp(kind=kind, x=(read.type,), axes=tuple(axes), keepdims=keepdims), [read], part="wide")
    return low.integers.state_sums(low.cast(found, low.dtype), x, count)


def as_exact_floats(low: Lowering, x: Node, count: int, what: str) -> Node:
    """Return whole numbers or a mask as floats that hold each sum of up to ``count`` of them."""
    limit = LARGEST.get(low.dtype, 0.0)
    terms = low.integers.bounded(x, limit / max(count, 1))
    if terms is None:
        low.refuse(
            f"{what} of {x.type} to {low.dtype.value}, which may pass what is counted exactly ({limit:.0f})",
            "sum masks or smaller integers, to int64, or convert them first: x.float()",
        )
    return low.cast(x, DType.F32 if terms.most * count <= EXACT_IN_F32 else DType.F64)
