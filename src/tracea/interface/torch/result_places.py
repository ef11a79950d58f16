"""The types of what torch's operators return that find places or read and write by them, told from their operands'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from tracea.interface.torch.result_basis import Rule, Type, dense, need, preserved

__all__ = ["PLACE_TYPES"]

_I64: Final = torch.int64


def _place(x: Type, axis: int | None = None, keepdims: bool = False) -> Type:
    need(x.dtype is not torch.bool and x.numel() > 0 and x.dim() > 0)
    need(axis is None or -x.dim() <= axis < x.dim())
    chosen = range(x.dim()) if axis is None else (axis % x.dim(),)
    return dense([1 if at in chosen else size for at, size in enumerate(x.shape) if keepdims or at not in chosen], _I64)


def _histogram(x: Type, bins: int, least: float, most: float) -> Type:
    need(x.dtype in (torch.float32, torch.float64) and least < most and bins > 0)
    return dense((bins,), x.dtype)


def _with_place(x: Type, axis: int, keepdims: bool = False) -> tuple[Type, Type]:
    place = _place(x, axis, keepdims)
    return dense(place.shape, x.dtype), place


def _largest(x: Type, k: int, axis: int = -1, *_: Any) -> tuple[Type, Type]:
    need(x.dtype is not torch.bool and x.dim() > 0 and -x.dim() <= axis < x.dim())
    need(0 < k <= x.shape[axis] and x.numel() > 0)
    shape = [k if at == axis % x.dim() else size for at, size in enumerate(x.shape)]
    return dense(shape, x.dtype), dense(shape, _I64)


def _sorted(x: Type, axis: int = -1, descending: bool = False) -> tuple[Type, Type]:
    del descending
    need(x.dtype is not torch.bool and (x.dim() == 0 or -x.dim() <= axis < x.dim()))
    return preserved(x.dtype, x), preserved(_I64, x)


def _sorted_stably(x: Type, stable: bool | None = None, axis: int = -1, descending: bool = False) -> tuple[Type, Type]:
    del stable
    return _sorted(x, axis, descending)


def _places_in_order(x: Type, axis: int = -1, descending: bool = False) -> Type:
    return _sorted(x, axis, descending)[1]


def _places_in_stable_order(x: Type, stable: bool, axis: int = -1, descending: bool = False) -> Type:
    return _sorted_stably(x, stable, axis, descending)[1]


def _in_order(x: Type) -> Type:
    return _sorted(x, 0)[0]


def _gathered(x: Type, axis: int, index: Type, *_: Any) -> Type:
    need(index.dtype is _I64 and x.dim() == index.dim() > 0 and -x.dim() <= axis < x.dim() and index.numel() > 0)
    need(
        all(
            at == axis % x.dim() or some <= size
            for at, (some, size) in enumerate(zip(index.shape, x.shape, strict=True))
        )
    )
    return dense(index.shape, x.dtype)


def _rows_at(x: Type, indices: Sequence[Type | None]) -> Type:
    first, *others = indices
    need(
        first is not None and first.dtype is _I64 and first.numel() > 0 and not any(each is not None for each in others)
    )
    need(x.dim() > 0 and x.numel() > 0 and x.is_contiguous())
    return dense((*(() if first is None else first.shape), *x.shape[1:]), x.dtype)


def _scattered(x: Type, axis: int, index: Type, source: Type | float) -> Type:
    need(index.dtype is _I64 and x.dim() == index.dim() > 0 and -x.dim() <= axis < x.dim())
    shape = [*x.shape]
    shape[axis] = index.shape[axis]
    need([*index.shape] == shape)
    if isinstance(source, torch.Tensor):
        need(source.dtype is x.dtype and source.dim() == index.dim())
        need(all(some <= size for some, size in zip(index.shape, source.shape, strict=True)))
    return dense(x.shape, x.dtype)


def _embedding(weight: Type, indices: Type, *_: Any) -> Type:
    need(weight.dim() == 2 and weight.dtype.is_floating_point and indices.dtype in (torch.int64, torch.int32))
    return dense((*indices.shape, weight.shape[1]), weight.dtype)


PLACE_TYPES: Final[dict[str, Rule]] = {
    "aten.argmax.default": _place,
    "aten.argmin.default": _place,
    "aten.max.dim": _with_place,
    "aten.min.dim": _with_place,
    "aten.topk.default": _largest,
    "aten.histc.default": _histogram,
    "aten.sort.default": _sorted,
    "aten.sort.stable": _sorted_stably,
    "aten.argsort.default": _places_in_order,
    "aten.argsort.stable": _places_in_stable_order,
    "aten.msort.default": _in_order,
    "aten.gather.default": _gathered,
    "aten.index.Tensor": _rows_at,
    "aten.scatter.src": _scattered,
    "aten.scatter.value": _scattered,
    "aten.embedding.default": _embedding,
}
