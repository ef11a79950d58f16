"""One call for each overload that capture lowers, as a user's line may make it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[..., Any]
aten = torch.ops.aten
F64 = torch.float64


def rows(*shape: int) -> torch.Tensor:
    """Return values of both signs, some beyond the bends of the activations."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return 3.0 * torch.randn(shape, generator=generator, dtype=F64)


def positive(*shape: int) -> torch.Tensor:
    return rows(*shape).abs() + 0.25


def mask(*shape: int) -> torch.Tensor:
    return rows(*shape) > 0


X, Y, Z = rows(4, 6), rows(4, 6) + 1.0, rows(2, 4, 6)
V = rows(6)
P, Q = positive(4, 6), positive(4, 6) * 0.5
SPECIAL = torch.tensor([[math.nan, math.inf, -math.inf], [-0.0, 0.0, 2.0], [-3.0, 1e-310, 1e300]], dtype=F64)
M, N = mask(4, 6), mask(4, 6) ^ mask(6)
TENTHS = torch.arange(-12.0, 12.0, dtype=F64).reshape(4, 6) * 0.5  # by tenths, their quotients round to whole numbers

VIEWS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.view.default": (lambda x: aten.view.default(x, [2, -1]), (X,)),
    "aten.reshape.default": (lambda x: aten.reshape.default(x.transpose(1, 2), [-1]), (Z,)),
    "aten._unsafe_view.default": (lambda x: aten._unsafe_view.default(x, [3, 8]), (X,)),
    "aten.view_as.default": (lambda x, y: aten.view_as.default(x, y) + y, (X, rows(3, 8))),
    "aten.reshape_as.default": (lambda x, y: aten.reshape_as.default(x, y) + y, (X, rows(3, 8))),
    "aten.flatten.using_ints": (lambda x: aten.flatten.using_ints(x, 1), (Z,)),
    "aten.unflatten.int": (lambda x: aten.unflatten.int(x, 1, [2, 3]), (X,)),
    "aten.squeeze.default": (aten.squeeze.default, (rows(1, 4, 1),)),
    "aten.squeeze.dim": (lambda x: aten.squeeze.dim(x, 0), (rows(1, 4, 1),)),
    "aten.squeeze.dims": (lambda x: aten.squeeze.dims(x, [0, 2]), (rows(1, 4, 1),)),
    "aten.unsqueeze.default": (lambda x: aten.unsqueeze.default(x, -2), (X,)),
    "aten.ravel.default": (aten.ravel.default, (X,)),
    "aten.permute.default": (lambda x: aten.permute.default(x, [2, 0, -2]), (Z,)),
    "aten.transpose.int": (lambda x: aten.transpose.int(x, 0, -1), (Z,)),
    "aten.swapaxes.default": (lambda x: aten.swapaxes.default(x, 1, 2), (Z,)),
    "aten.t.default": (aten.t.default, (X,)),
    "aten.numpy_T.default": (aten.numpy_T.default, (Z,)),
    "aten.mT.default": (aten.mT.default, (Z,)),
    "aten.movedim.int": (lambda x: aten.movedim.int(x, 0, -1), (Z,)),
    "aten.movedim.intlist": (lambda x: aten.movedim.intlist(x, [2, 0], [0, 1]), (Z,)),
    "aten.expand.default": (lambda x: aten.expand.default(x, [5, -1, 6]), (rows(4, 1),)),
    "aten.expand_as.default": (lambda x, y: aten.expand_as.default(x, y) * y, (V, X)),
    "aten.broadcast_to.default": (lambda x: aten.broadcast_to.default(x, [4, 6]), (V,)),
    "aten.select.int": (lambda x: aten.select.int(x, 1, -2), (Z,)),
    "aten.slice.Tensor": (lambda x: aten.slice.Tensor(x, -1, 1, 9223372036854775807, 2), (Z,)),
    "aten.narrow.default": (lambda x: aten.narrow.default(x, 1, -3, 2), (X,)),
    "aten.chunk.default": (lambda x: aten.chunk.default(x, 4, -1), (X,)),
    "aten.split.Tensor": (lambda x: aten.split.Tensor(x, 4, 1), (X,)),
    "aten.split_with_sizes.default": (lambda x: aten.split_with_sizes.default(x, [1, 0, 5], -1), (X,)),
    "aten.split.sizes": (lambda x: aten.split.sizes(x, [2, 4], -1), (X,)),
    "aten.unbind.int": (lambda x: aten.unbind.int(x, -1), (rows(3, 2),)),
    "aten.contiguous.default": (lambda x: aten.contiguous.default(x.t()), (X,)),
    "aten.clone.default": (lambda x: aten.clone.default(x, memory_format=torch.contiguous_format) + 1, (X,)),
    "aten.detach.default": (lambda x: aten.detach.default(x) + 1, (X,)),
    "aten.alias.default": (lambda x: aten.alias.default(x) + 1, (X,)),
    "aten.lift_fresh_copy.default": (lambda x: aten.lift_fresh_copy.default(x) + 1, (X,)),
    "aten.dropout.default": (lambda x: aten.dropout.default(x, 0.5, False) + 1, (X,)),
    "aten.feature_dropout.default": (lambda x: aten.feature_dropout.default(x, 0.5, False) + 1, (X,)),
    "aten.alpha_dropout.default": (lambda x: aten.alpha_dropout.default(x, 0.0, True) + 1, (X,)),
}

HEADS = (rows(2, 3, 5, 8), rows(2, 3, 7, 8), rows(2, 3, 7, 4))
MATRICES: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.scaled_dot_product_attention.default": (aten.scaled_dot_product_attention.default, HEADS),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (
        lambda q, k: aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, k, 0.0, True)[0],
        (rows(2, 3, 7, 8), rows(2, 3, 7, 8)),
    ),
    "aten.linear.default": (aten.linear.default, (Z, rows(5, 6), rows(5))),
    "aten.matmul.default": (aten.matmul.default, (rows(3, 1, 4, 6), rows(2, 6, 5))),
    "aten.mm.default": (aten.mm.default, (X, rows(6, 5))),
    "aten.bmm.default": (aten.bmm.default, (Z, rows(2, 6, 5))),
    "aten.mv.default": (aten.mv.default, (X, V)),
    "aten.dot.default": (aten.dot.default, (V, rows(6) + 1)),
    "aten.addmm.default": (
        lambda c, a, b: aten.addmm.default(c, a, b, beta=0.5, alpha=2.0),
        (rows(5), X, rows(6, 5)),
    ),
    "aten.baddbmm.default": (
        lambda c, a, b: aten.baddbmm.default(c, a, b, beta=2),
        (rows(2, 4, 5), Z, rows(2, 6, 5)),
    ),
}

ROWS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.softmax.int": (lambda x: aten.softmax.int(x, 1), (Z,)),
    "aten._softmax.default": (lambda x: aten._softmax.default(x, -1, False), (X,)),
    "aten.log_softmax.int": (lambda x: aten.log_softmax.int(x, -1), (Z,)),
    "aten._log_softmax.default": (lambda x: aten._log_softmax.default(x, 0, False), (X,)),
    "aten.layer_norm.default": (
        lambda x, w, b: aten.layer_norm.default(x, [4, 6], w, b, 1e-3),
        (Z, rows(4, 6), rows(4, 6) - 1),
    ),
    "aten.native_layer_norm.default": (
        lambda x, w: aten.native_layer_norm.default(x, [6], w, None, 1e-3)[0],
        (Z, V),
    ),
    "aten.rms_norm.default": (lambda x, w: aten.rms_norm.default(x, [6], w), (Z, V)),
    "aten._fused_rms_norm.default": (lambda x, w: aten._fused_rms_norm.default(x, [6], w, 0.01)[0], (Z, V)),
    "aten.mean.default": (aten.mean.default, (Z,)),
    "aten.mean.dim": (lambda x: aten.mean.dim(x, [-1, 0], True), (Z,)),
    "aten.sum.default": (aten.sum.default, (Z,)),
    "aten.sum.dim_IntList": (lambda x: aten.sum.dim_IntList(x, [1]), (Z,)),
    "aten.amax.default": (lambda x: aten.amax.default(x, [0, -1]), (Z,)),
    "aten.any.default": (aten.any.default, (M,)),
    "aten.any.dim": (lambda m: aten.any.dim(m, 1), (M,)),
    "aten.any.dims": (lambda x: aten.any.dims(x > 1.0, [0, -1], True), (Z,)),
    "aten.all.default": (aten.all.default, (M,)),
    "aten.all.dim": (lambda x: aten.all.dim(x, 0), (X,)),
    "aten.all.dims": (lambda x: aten.all.dims(x > -1.0, [0, 2]), (Z,)),
    "aten.max.default": (aten.max.default, (Z,)),
    "aten.amin.default": (lambda x: aten.amin.default(x, [1], True), (Z,)),
    "aten.min.default": (aten.min.default, (Z,)),
    "aten.group_norm.default": (
        lambda x, w, b: aten.group_norm.default(x, 3, w, b, 1e-3),
        (rows(2, 6, 3, 5), rows(6) + 1, rows(6) - 1),
    ),
    "aten.instance_norm.default": (
        lambda x, w, b: aten.instance_norm.default(x, w, b, None, None, True, 0.1, 1e-3, False),
        (rows(2, 6, 3, 5), rows(6) + 1, rows(6) - 1),
    ),
    "aten.embedding.default": (aten.embedding.default, (X, torch.tensor([[0, 3, 2], [1, 1, 3]]))),
    "aten.cumsum.default": (
        lambda x, m: (
            aten.cumsum.default(x, 1),
            aten.cumsum.default(x.mT, -1),
            aten.cumsum.default(m, 0),
            aten.cumsum.default(m, 1, dtype=F64) + 1.0,
            aten.cumsum.default(m.to(torch.int64), -1) * m,
        ),
        (Z, M),
    ),
    "aten.embedding_bag.padding_idx": (
        lambda x, i: aten.embedding_bag.padding_idx(x, i, torch.arange(0, 6, 3), False, 1, False, None, False, None)[0],
        (X, torch.tensor([0, 3, 2, 1, 1, 3])),
    ),
    "aten.index_add.default": (
        lambda x, i, y: aten.index_add.default(x, 1, i, y, alpha=0.5) + 1.0,
        (Z, torch.tensor([0, 3, 0, 1, 0]), rows(2, 5, 6)),
    ),
    "aten.embedding_bag.default": (
        lambda x, i, w: aten.embedding_bag.default(x, i, torch.arange(0, 6, 2), per_sample_weights=w)[0] * 2.0,
        (X, torch.tensor([0, 3, 2, 1, 1, 3]), rows(6)),
    ),
    "aten.prod.default": (aten.prod.default, (X,)),
    "aten.prod.dim_int": (lambda x: aten.prod.dim_int(x, 1, True), (Z,)),
    "aten.sin.default": (lambda x: aten.sin.default(x * 3), (Z,)),
    "aten.cos.default": (aten.cos.default, (Z,)),
    "aten.var.correction": (lambda x: aten.var.correction(x, [-1], correction=2, keepdim=True), (Z,)),
    "aten.std.correction": (lambda x: aten.std.correction(x, [0, 1]), (Z,)),
    "aten.var.dim": (lambda x: aten.var.dim(x, [-1], False), (Z,)),
    "aten.linalg_vector_norm.default": (
        lambda x: [
            aten.linalg_vector_norm.default(x, order, axes, axes != [0])
            for order, axes in (
                (2, None),
                (2, [-1]),
                (1, [0]),
                (math.inf, [1, 2]),
                (-math.inf, [1]),
                (0, [2]),
                (3, [0]),
            )
        ],
        (torch.stack([X, 0.0 * X]),),
    ),
    "aten.var_mean.correction": (lambda x: aten.var_mean.correction(x, [-1], correction=0, keepdim=True), (Z,)),
    "aten.std_mean.correction": (lambda x: aten.std_mean.correction(x)[::-1], (Z,)),
    "aten.var_mean.dim": (lambda x: aten.var_mean.dim(x, [0], False)[0], (Z,)),
    "aten.std_mean.dim": (lambda x: aten.std_mean.dim(x, [-1])[1], (Z,)),
    "aten.std.dim": (lambda x: aten.std.dim(x, [-1]), (Z,)),
    "aten.batch_norm.default": (
        lambda x, m, v, w, b: aten.batch_norm.default(x, w, b, m, v, False, 0.1, 1e-5, False),
        (rows(2, 6, 3), rows(6), positive(6), rows(6) + 1, rows(6) - 1),
    ),
    "aten._native_batch_norm_legit_no_training.default": (
        lambda x, m, v, b: aten._native_batch_norm_legit_no_training.default(x, None, b, m, v, 0.1, 1e-5)[0],
        (X, rows(6), positive(6), rows(6) + 1),
    ),
}

POINTWISE: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "aten.gelu.default": (lambda x: aten.gelu.default(x, approximate="tanh"), (X,)),
    "aten.leaky_relu.default": (lambda x: aten.leaky_relu.default(x, 0.2), (X,)),
    "aten.elu.default": (lambda x: aten.elu.default(x, 0.5, 2.0, 1.5), (X,)),
    "aten.celu.default": (lambda x: aten.celu.default(x, 0.7), (X,)),
    "aten.hardtanh.default": (lambda x: aten.hardtanh.default(x, -0.5, 2.5), (X,)),
    "aten.softplus.default": (lambda x: aten.softplus.default(8.0 * x, 2.0, 3.0), (X,)),
    "aten.glu.default": (lambda x: aten.glu.default(x, 1), (Z,)),
    "aten.log.default": (aten.log.default, (P,)),
    "aten.log1p.default": (aten.log1p.default, (P,)),
    "aten.log2.default": (aten.log2.default, (P,)),
    "aten.log10.default": (aten.log10.default, (P,)),
    "aten.expm1.default": (aten.expm1.default, (X,)),
    "aten.ceil.default": (lambda x: aten.ceil.default(x * 3.0), (X,)),
    "aten.trunc.default": (lambda x: aten.trunc.default(x * 3.0), (X,)),
    "aten.round.default": (lambda x, y: (aten.round.default(x * 3.0), aten.round.default(y)), (X, TENTHS)),
    "aten.exp2.default": (lambda x: aten.exp2.default(x * 5.0), (X,)),
    "aten.sign.default": (aten.sign.default, (SPECIAL,)),
    "aten.isnan.default": (aten.isnan.default, (SPECIAL,)),
    "aten.nan_to_num.default": (
        lambda x: aten.nan_to_num.default(x, 2.0) + aten.nan_to_num.default(x, None, 7.0, -7.0),
        (SPECIAL,),
    ),
    "aten.sqrt.default": (aten.sqrt.default, (P,)),
    "aten.rsqrt.default": (aten.rsqrt.default, (P,)),
    "aten.pow.Tensor_Scalar": (lambda x: aten.pow.Tensor_Scalar(x, 3), (X,)),
    "aten.pow.Tensor_Tensor": (aten.pow.Tensor_Tensor, (P, X)),
    "aten.pow.Scalar": (lambda x: aten.pow.Scalar(2.5, x), (X,)),
    "aten.add.Tensor": (lambda x, y: aten.add.Tensor(x, y, alpha=2), (X, V)),
    "aten.add.Scalar": (lambda x: aten.add.Scalar(x, 2, 3), (X,)),
    "aten.sub.Tensor": (lambda x, y: aten.sub.Tensor(x, y, alpha=0.5), (X, Y)),
    "aten.sub.Scalar": (lambda x: aten.sub.Scalar(x, 2.5), (X,)),
    "aten.rsub.Tensor": (lambda x, y: aten.rsub.Tensor(x, y, alpha=2), (X, Y)),
    "aten.rsub.Scalar": (lambda x: aten.rsub.Scalar(x, 1.0), (X,)),
    "aten.mul.Tensor": (aten.mul.Tensor, (X, rows(4, 1))),
    "aten.mul.Scalar": (lambda x: aten.mul.Scalar(x, -2), (X,)),
    "aten.div.Tensor": (aten.div.Tensor, (X, P)),
    "aten.div.Scalar": (lambda x: aten.div.Scalar(x, 3), (X,)),
    "aten.div.Tensor_mode": (lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="trunc"), (X, P)),
    "aten.div.Scalar_mode": (lambda x: aten.div.Scalar_mode(x, 0.1, rounding_mode="floor"), (TENTHS,)),
    "aten.floor_divide.default": (aten.floor_divide.default, (TENTHS, TENTHS.flip(0) * 0.1)),
    "aten.floor_divide.Scalar": (lambda x: aten.floor_divide.Scalar(x, 0.1), (TENTHS,)),
    "aten.remainder.Tensor": (aten.remainder.Tensor, (TENTHS, TENTHS.flip(0) * 0.1)),
    "aten.remainder.Scalar": (lambda x: aten.remainder.Scalar(x, -0.1), (TENTHS,)),
    "aten.remainder.Scalar_Tensor": (lambda x: aten.remainder.Scalar_Tensor(2.5, x), (TENTHS,)),
    "aten.fmod.Tensor": (aten.fmod.Tensor, (TENTHS, TENTHS.flip(0) * 0.1)),
    "aten.fmod.Scalar": (lambda x: aten.fmod.Scalar(x, -0.1), (TENTHS,)),
    "aten.maximum.default": (aten.maximum.default, (X, Y)),
    "aten.max.other": (aten.max.other, (X, Y)),
    "aten.minimum.default": (aten.minimum.default, (X, Y)),
    "aten.min.other": (aten.min.other, (X, Y)),
    "aten.clamp.default": (lambda x: aten.clamp.default(x, -1, 2.5), (X,)),
    "aten.clamp.Tensor": (lambda x, a: aten.clamp.Tensor(x, a, a + 1), (X, V)),
    "aten.clamp_min.default": (lambda x: aten.clamp_min.default(x, 0.5), (X,)),
    "aten.clamp_min.Tensor": (aten.clamp_min.Tensor, (X, V)),
    "aten.clamp_max.default": (lambda x: aten.clamp_max.default(x, 0.5), (X,)),
    "aten.clamp_max.Tensor": (aten.clamp_max.Tensor, (X, V)),
    "aten.where.self": (aten.where.self, (M, X, Y)),
    "aten.where.ScalarOther": (lambda m, x: aten.where.ScalarOther(m, x, -1.5), (M, X)),
    "aten.where.ScalarSelf": (lambda m, x: aten.where.ScalarSelf(m, 2.5, x), (M, X)),
    "aten.masked_fill.Scalar": (lambda x, m: aten.masked_fill.Scalar(x, m, float("-inf")), (X, M)),
    "aten.masked_fill.Tensor": (aten.masked_fill.Tensor, (X, M, rows(1)[0])),
    "aten.fill.Scalar": (lambda x: aten.fill.Scalar(x, 2.5), (X,)),
    "aten.fill.Tensor": (aten.fill.Tensor, (X, rows(1)[0])),
    "aten.zeros_like.default": (lambda x: aten.zeros_like.default(x) + x, (X,)),
    "aten.ones_like.default": (lambda x: aten.ones_like.default(x) + x, (X,)),
    "aten.full_like.default": (lambda x: aten.full_like.default(x, 0.3) + x, (X,)),
    "aten.to.dtype": (lambda x: aten.to.dtype(x, torch.float16), (X,)),
    "aten.to.dtype_layout": (lambda x: aten.to.dtype_layout(x, dtype=torch.int32), (X,)),
    "aten.to.device": (lambda x: aten.to.device(x, "cpu", torch.bfloat16), (X,)),
    "aten.to.other": (aten.to.other, (X, rows(2).float())),
    "aten._to_copy.default": (lambda x: aten._to_copy.default(x, dtype=torch.float32), (X,)),
    "aten.type_as.default": (aten.type_as.default, (X, rows(2).bfloat16())),
    "aten.logical_not.default": (aten.logical_not.default, (torch.tensor([0.0, -1.0]),)),
    "aten.bitwise_not.default": (aten.bitwise_not.default, (M,)),
    "aten.logical_and.default": (aten.logical_and.default, (M, N)),
    "aten.bitwise_and.Tensor": (aten.bitwise_and.Tensor, (M, N)),
    "aten.logical_or.default": (aten.logical_or.default, (M, N)),
    "aten.bitwise_or.Tensor": (aten.bitwise_or.Tensor, (M, N)),
}


def of_one(name: str) -> Call:
    packet, overload = name.removeprefix("aten.").split(".")
    operator = getattr(getattr(aten, packet), overload)
    return operator


POINTWISE |= {
    f"aten.{name}.default": (of_one(f"aten.{name}.default"), (X,))
    for name in (
        "relu",
        "relu6",
        "silu",
        "sigmoid",
        "tanh",
        "hardswish",
        "hardsigmoid",
        "mish",
        "log_sigmoid",
        "selu",
        "exp",
        "abs",
        "neg",
        "reciprocal",
        "erf",
        "floor",
        "square",
    )
}


def comparing(name: str) -> Call:
    packet, overload = name.removeprefix("aten.").split(".")
    operator = getattr(getattr(aten, packet), overload)
    return (operator) if overload == "Tensor" else (lambda x: operator(x, 0.5))


HALVES = (2.0 * rows(4, 6)).round() / 2.0  # equal to one another, and to 0.5, here and there
COMPARISONS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    name: (comparing(name), (HALVES, HALVES.flip(0)) if name.endswith("Tensor") else (HALVES,))
    for function in ("lt", "le", "gt", "ge", "eq", "ne")
    for name in (f"aten.{function}.Tensor", f"aten.{function}.Scalar")
}

CASES = VIEWS | MATRICES | ROWS | POINTWISE | COMPARISONS
# Refused always: what they compute is for training.
REFUSED = {"aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.default"}
