"""The types of what torch's products, row operators and images return, told from their operands'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from tracea.interface.torch.result_basis import Rule, Type, broadcast, dense, image, need, need_floats, preserved
from tracea.interface.torch.result_places import PLACE_TYPES

__all__ = ["LAYER_TYPES"]

_I64: Final = torch.int64


# Products.


def _linear(x: Type, weight: Type, bias: Type | None) -> Type:
    dtype = need_floats(x, weight, bias)
    need(weight.dim() == 2 and x.dim() >= 1 and x.shape[-1] == weight.shape[1])
    need(bias is None or bias.shape == weight.shape[:1])
    return dense((*x.shape[:-1], weight.shape[0]), dtype)


def _matmul(a: Type, b: Type) -> Type:
    dtype = need_floats(a, b)
    need(a.dim() >= b.dim() >= 2 and a.shape[-1] == b.shape[-2])
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return dense((*batch, a.shape[-2], b.shape[-1]), dtype)


def _matrices(rank: int) -> Callable[..., Type]:
    def product(a: Type, b: Type) -> Type:
        need(a.dim() == b.dim() == rank and a.shape[:-2] == b.shape[:-2])
        return _matmul(a, b)

    return product


def _addmm(c: Type, a: Type, b: Type, beta: float = 1, alpha: float = 1) -> Type:
    del beta, alpha
    product = _matrices(2)(a, b)
    need(c.dtype is product.dtype and broadcast(c.shape, product.shape) == product.shape)
    return product


def _grouped(x: Type, weights: Type, offsets: Type | None, bias: Type | None, dtype: torch.dtype | None) -> Type:
    need(offsets is not None and bias is None and dtype in (None, x.dtype))
    need(x.dim() == 2 and weights.dim() == 3 and x.shape[1] == weights.shape[1])
    need(offsets is not None and offsets.dtype is torch.int32 and offsets.shape == weights.shape[:1])
    return dense((x.shape[0], weights.shape[2]), need_floats(x, weights))


def _recurrent(states: int) -> Rule:
    def layers(
        x: Type, given: Any, parameters: Sequence[Type], biases: bool, layers: int, *others: Any
    ) -> tuple[Type, ...]:
        dropout, train, both_ways, batch_first = others
        given = (given,) if states == 1 else tuple(given)
        dtype = need_floats(x, *given, *parameters)
        need(x.dim() == 3 and x.numel() > 0 and len(given) == states and not (train and dropout))
        ways = 2 if both_ways else 1
        need(len(parameters) % (layers * ways) == 0)
        batch, steps = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
        need(all(state.dim() == 3 and state.shape[:2] == (layers * ways, batch) for state in given))
        sequence = dense((steps, batch, ways * given[0].shape[2]), dtype)
        return (sequence.transpose(0, 1) if batch_first else sequence, *(dense(each.shape, dtype) for each in given))

    return layers


def _attention(
    q: Type, k: Type, v: Type, mask: Type | None, dropout: float, is_causal: bool, scale: Any, enable_gqa: bool
) -> Type:
    dtype = need_floats(q, k, v)
    need(q.dim() == k.dim() == v.dim() == 4 and dropout == 0.0)
    need(k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3])
    need(q.shape[1] % k.shape[1] == 0 if enable_gqa and k.shape[1] else q.shape[1] == k.shape[1])
    need(scale is None or isinstance(scale, int | float))
    if mask is not None:
        scores = (*q.shape[:3], k.shape[2])
        need(not is_causal and mask.dtype in (torch.bool, dtype))
        need(broadcast(mask.shape, scores) == scores)
    batch, heads, rows, width = *q.shape[:3], v.shape[3]
    is_fused = width == q.shape[3]  # as its kernel writes it; else it is written out
    return (
        dense((batch, rows, heads, width), dtype).transpose(1, 2)
        if is_fused
        else dense((batch, heads, rows, width), dtype)
    )


# Rows.


def _softmax(x: Type, axis: int, dtype: torch.dtype | None) -> Type:
    need(-x.dim() <= axis < x.dim())
    need_floats(x)
    return preserved(dtype or x.dtype, x)


def _row_norm(x: Type, shape: Sequence[int], *rest: Any) -> Type:
    parameters = [each for each in rest if isinstance(each, torch.Tensor)]
    need(len(shape) > 0 and list(x.shape[x.dim() - len(shape) :]) == list(shape))
    need(all(list(each.shape) == list(shape) for each in parameters))
    return dense(x.shape, need_floats(x, *parameters))


def _group_norm(x: Type, groups: int, weight: Type | None, bias: Type | None, *_: Any) -> Type:
    dtype = need_floats(x, weight, bias)
    need(x.dim() >= 2 and groups > 0 and x.shape[1] % groups == 0 and x.is_contiguous() and x.numel() > 0)
    need(all(each is None or each.shape == x.shape[1:2] for each in (weight, bias)))
    return dense(x.shape, dtype)


def _batch_norm(
    x: Type,
    weight: Type | None,
    bias: Type | None,
    mean: Type | None,
    variance: Type | None,
    training: bool,
    *_: Any,
) -> Type:
    need(not training and mean is not None and variance is not None and x.dim() >= 2)
    parameters = [each for each in (weight, bias, mean, variance) if each is not None]
    need(all(each.shape == x.shape[1:2] for each in parameters))
    return preserved(need_floats(x, *parameters), x)


def _reduction(x: Type, axes: Sequence[int] | None, keepdims: bool, dtype: torch.dtype | None = None) -> Type:
    need(x.dtype.is_floating_point and dtype in (None, x.dtype) and x.dim() > 0 and x.numel() > 0)
    given = axes or range(x.dim())
    chosen = {axis % x.dim() for axis in given}
    need(len(given) == len(chosen) and all(-x.dim() <= axis < x.dim() for axis in given))
    kept = [1 if axis in chosen else extent for axis, extent in enumerate(x.shape) if keepdims or axis not in chosen]
    return dense(kept, x.dtype)


def _reduction_to_one(x: Type, dtype: torch.dtype | None = None) -> Type:
    need(x.dtype.is_floating_point and dtype in (None, x.dtype) and x.numel() > 0)
    return dense((), x.dtype)


def _cumulative_sum(x: Type, axis: int, dtype: torch.dtype | None = None) -> Type:
    need(-x.dim() <= axis < x.dim())
    return dense(x.shape, dtype or (x.dtype if x.dtype.is_floating_point else _I64))


# Images.


def _extents(
    x: Type, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, *, ceil: bool = False
) -> list[int]:
    """Return how many windows the last axes have each; ``ceil``: with one that ends beyond the padding."""
    axes = len(kernel)
    steps, around, gaps = (
        [int(each) for each in numbers] * (axes if len(numbers) == 1 else 1) for numbers in (stride, padding, dilation)
    )
    need(len(steps) == len(around) == len(gaps) == axes)
    need(min(steps) > 0 and min(gaps) > 0 and min(around) >= 0 and min(kernel) > 0)
    counts: list[int] = []
    for extent, size, step, pad, gap in zip(x.shape[-axes:], kernel, steps, around, gaps, strict=True):
        count = (extent + 2 * pad - gap * (size - 1) - 1 + (step - 1) * ceil) // step + 1
        counts.append(count - (ceil and (count - 1) * step >= extent + pad))  # the last begins within
    need(min(counts) > 0)
    return counts


def _convolution(axes: int) -> Rule:
    def convolution(
        x: Type, weight: Type, bias: Type | None, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Type:
        dtype = need_floats(x, weight, bias)
        need(weight.dim() == axes + 2 and x.numel() > 0 and weight.numel() > 0)
        need(x.dim() in (axes + 1, axes + 2))  # one image, or a batch of them
        need(groups > 0 and weight.shape[0] % groups == 0 and x.shape[-axes - 1] == weight.shape[1] * groups)
        need(bias is None or bias.shape == weight.shape[:1])
        counts = _extents(x, weight.shape[2:], stride, padding, dilation)
        need(x.dtype is dtype)
        return image((*x.shape[: -axes - 1], weight.shape[0], *counts), x, weight)

    return convolution


def _pool(
    axes: int, x: Type, kernel: Sequence[int], stride: Sequence[int], padding: Any, dilation: Any, *, ceil: bool
) -> Type:
    need(x.dim() in (axes + 1, axes + 2) and x.numel() > 0)
    need(len(kernel) in (1, axes))
    sizes, around = (
        [int(each) for each in numbers] * (axes if len(numbers) == 1 else 1) for numbers in (kernel, padding)
    )
    need(all(2 * pad <= size for pad, size in zip(around, sizes, strict=True)))
    need(x.dtype.is_floating_point)
    return image((*x.shape[:-axes], *_extents(x, sizes, stride or sizes, around, dilation, ceil=ceil)), x)


def _max_pool(axes: int) -> Rule:
    def pool(x: Type, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Type:
        return _pool(axes, x, kernel, stride, padding, dilation, ceil=ceil)

    return pool


def _avg_pool(axes: int) -> Rule:
    def pool(
        x: Type, kernel: Any, stride: Any, padding: Any, ceil: bool, count_padding: bool, divisor: int | None
    ) -> Type:
        del count_padding
        need(divisor is None)
        return _pool(axes, x, kernel, stride, padding, (1,) * axes, ceil=ceil)

    return pool


def _adaptive_pool(axes: int) -> Rule:
    def pool(x: Type, size: Sequence[int]) -> Type:
        need(x.dim() in (axes + 1, axes + 2) and x.numel() > 0 and x.dtype.is_floating_point)
        need(len(size) == axes and min(size) > 0)
        return image((*x.shape[:-axes], *size), x)

    return pool


def _resized(axes: int, x: Type, size: Sequence[int] | None, factors: Sequence[float] | None) -> Type:
    need(x.dim() == axes + 2 and x.is_contiguous() and x.numel() > 0)
    need(axes == 1 or not x.is_contiguous(memory_format=torch.channels_last))  # else the result may be that
    need((size is None) != (factors is None))
    found = size or [int(extent * factor) for extent, factor in zip(x.shape[2:], factors or (), strict=True)]
    need(len(found) == axes and min(found) > 0)
    return dense((*x.shape[:2], *found), need_floats(x))


def _nearest(axes: int) -> Rule:
    def nearest(x: Type, size: Sequence[int] | None, factors: Sequence[float] | None) -> Type:
        return _resized(axes, x, size, factors)

    return nearest


def _between_pixels(axes: int) -> Rule:
    def between(x: Type, size: Sequence[int] | None, align: bool, factors: Sequence[float] | None) -> Type:
        del align
        return _resized(axes, x, size, factors)

    return between


def _concatenated(parts: Sequence[Type], axis: int = 0) -> Type:
    first = parts[0]
    need(all(part.dtype is first.dtype and part.dim() == first.dim() for part in parts))
    need(first.dim() > 0 and -first.dim() <= axis < first.dim())
    axis %= first.dim()
    rests = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    need(len(rests) == 1 and all(part.numel() > 0 for part in parts))
    total = sum(part.shape[axis] for part in parts)
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    types = [image(shape, part) if part.dim() == 4 else dense(shape, part.dtype) for part in parts]
    return types[0] if all(each.stride() == types[0].stride() for each in types) else dense(shape, first.dtype)


def _windows(x: Type, size: Sequence[int], dilation: Any, padding: Any, stride: Any) -> Type:
    need(x.dim() == 4 and len(size) == 2 and x.is_contiguous() and x.numel() > 0)
    places = _extents(x, size, stride, padding, dilation)
    return dense((x.shape[0], x.shape[1] * math.prod(size), math.prod(places)), need_floats(x))


def _vector_norm(x: Type, order: float, axes: Any, keepdim: bool, dtype: Any) -> Type:
    del order
    need(dtype is None)
    return _reduction(x, [axes] if isinstance(axes, int) else axes, keepdim)


def _padded(x: Type, amounts: Sequence[int], mode: str = "constant", value: float | None = None) -> Type:
    del value
    need(mode == "constant" and len(amounts) % 2 == 0 and len(amounts) <= 2 * x.dim())
    need(x.numel() > 0 and (x.dim() == 4 or x.is_contiguous()))
    if not any(amounts):  # a copy
        return preserved(x.dtype, x)
    need(max(amounts) > 0)
    shape = [*x.shape]
    for place in range(len(amounts) // 2):
        shape[-1 - place] += sum(amounts[2 * place : 2 * place + 2])
    return image(shape, x)


def _padded_by_value(x: Type, amounts: Sequence[int], value: Any) -> Type:
    del value
    return _padded(x, amounts)


def _stacked(parts: Sequence[Type], axis: int = 0) -> Type:
    first = parts[0]
    need(all(part.dtype is first.dtype and part.shape == first.shape for part in parts))
    need(-first.dim() - 1 <= axis <= first.dim() and math.prod(first.shape) > 0)
    axis %= first.dim() + 1
    return dense((*first.shape[:axis], len(parts), *first.shape[axis:]), first.dtype)


LAYER_TYPES: Final[dict[str, Rule]] = {
    **PLACE_TYPES,
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matrices(2),
    "aten.bmm.default": _matrices(3),
    "aten.addmm.default": _addmm,
    "aten._grouped_mm.default": _grouped,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.lstm.input": _recurrent(2),
    "aten.gru.input": _recurrent(1),
    "aten.rnn_tanh.input": _recurrent(1),
    "aten.rnn_relu.input": _recurrent(1),
    "aten.softmax.int": _softmax,
    "aten.log_softmax.int": _softmax,
    "aten.layer_norm.default": _row_norm,
    "aten.rms_norm.default": _row_norm,
    "aten.group_norm.default": _group_norm,
    "aten.batch_norm.default": _batch_norm,
    "aten.mean.dim": _reduction,
    "aten.sum.dim_IntList": _reduction,
    "aten.amax.default": _reduction,
    "aten.amin.default": _reduction,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.mean.default": _reduction_to_one,
    "aten.sum.default": _reduction_to_one,
    "aten.cumsum.default": _cumulative_sum,
    "aten.conv2d.default": _convolution(2),
    "aten.conv1d.default": _convolution(1),
    "aten.conv3d.default": _convolution(3),
    "aten.im2col.default": _windows,
    "aten.max_pool2d.default": _max_pool(2),
    "aten.max_pool3d.default": _max_pool(3),
    "aten.avg_pool2d.default": _avg_pool(2),
    "aten.avg_pool3d.default": _avg_pool(3),
    "aten.adaptive_avg_pool2d.default": _adaptive_pool(2),
    "aten.adaptive_avg_pool3d.default": _adaptive_pool(3),
    "aten.upsample_nearest2d.vec": _nearest(2),
    "aten.upsample_nearest1d.vec": _nearest(1),
    "aten._upsample_nearest_exact2d.vec": _nearest(2),
    "aten._upsample_nearest_exact1d.vec": _nearest(1),
    "aten.upsample_bilinear2d.vec": _between_pixels(2),
    "aten.upsample_linear1d.vec": _between_pixels(1),
    "aten.upsample_bicubic2d.vec": _between_pixels(2),
    "aten._upsample_bilinear2d_aa.vec": _between_pixels(2),
    "aten._upsample_bicubic2d_aa.vec": _between_pixels(2),
    "aten.pad.default": _padded,
    "aten.constant_pad_nd.default": _padded_by_value,
    "aten.cat.default": _concatenated,
    "aten.concat.default": _concatenated,
    "aten.stack.default": _stacked,
}
