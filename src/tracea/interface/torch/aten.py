"""The aten operators that capture understands, each with its lowering to core ops: one explicit line an overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracea.core.expr import BinaryFunction, UnaryFunction
from tracea.core.op import PoolKind, ReduceKind, RowKind
from tracea.interface.torch import functions
from tracea.interface.torch import lower_attention as attention
from tracea.interface.torch import lower_bags as bags
from tracea.interface.torch import lower_complex as complexes
from tracea.interface.torch import lower_experts as experts
from tracea.interface.torch import lower_images as images
from tracea.interface.torch import lower_indexed as indexed
from tracea.interface.torch import lower_matrix as matrix
from tracea.interface.torch import lower_places as places
from tracea.interface.torch import lower_pointwise as pointwise
from tracea.interface.torch import lower_pools as pools
from tracea.interface.torch import lower_quotients as quotients
from tracea.interface.torch import lower_recurrent as recurrent
from tracea.interface.torch import lower_resampling as resampling
from tracea.interface.torch import lower_resizing as resizing
from tracea.interface.torch import lower_rows as rows
from tracea.interface.torch import lower_statistics as statistics
from tracea.interface.torch import lower_views as views
from tracea.interface.torch import lower_volume_pools as volume_pools
from tracea.interface.torch import lower_volumes as volumes
from tracea.interface.torch import lower_windows as windows
from tracea.interface.torch import lower_writes as writes
from tracea.interface.torch.lower_images import batched

__all__ = ["LOWERINGS", "VIEWS", "WITHOUT_VALUE"]

_VIEWS: Final[dict[str, Callable[..., Any]]] = {
    "aten.view.default": views.reshape,
    "aten.reshape.default": views.reshape,
    "aten._unsafe_view.default": views.reshape,
    "aten.view_as.default": views.reshape,
    "aten.reshape_as.default": views.reshape,
    "aten.flatten.using_ints": views.reshape,
    "aten.unflatten.int": views.reshape,
    "aten.squeeze.default": views.reshape,
    "aten.squeeze.dim": views.reshape,
    "aten.squeeze.dims": views.reshape,
    "aten.unsqueeze.default": views.reshape,
    "aten.ravel.default": views.reshape,
    "aten.permute.default": views.permute,
    "aten.transpose.int": views.transpose,
    "aten.swapaxes.default": views.transpose,
    "aten.t.default": views.transpose,
    "aten.numpy_T.default": views.reverse_axes,
    "aten.mT.default": views.swap_last_axes,
    "aten.mH.default": views.swap_last_axes,
    "aten.adjoint.default": views.swap_last_axes,
    "aten.movedim.int": views.movedim,
    "aten.movedim.intlist": views.movedim,
    "aten.expand.default": views.expand,
    "aten.expand_as.default": views.expand,
    "aten.broadcast_to.default": views.expand,
    "aten.select.int": views.select,
    "aten.slice.Tensor": views.slice_,
    "aten.narrow.default": views.narrow,
    "aten.unfold.default": views.windows,
    "aten.chunk.default": views.chunk,
    "aten.split.Tensor": views.split,
    "aten.split_with_sizes.default": views.split_with_sizes,
    "aten.split.sizes": views.split_with_sizes,
    "aten.unbind.int": views.unbind,
    "aten.contiguous.default": views.contiguous,
    "aten.clone.default": views.identity,
    "aten.detach.default": views.identity,
    "aten.alias.default": views.identity,
    "aten.lift_fresh_copy.default": views.identity,
    "aten.dropout.default": views.dropout,
    "aten.feature_dropout.default": views.dropout,
    "aten.alpha_dropout.default": views.dropout,
}

_COMPLEX: Final[dict[str, Callable[..., Any]]] = {
    "aten.view_as_complex.default": complexes.of_pairs,
    "aten.complex.default": complexes.of_parts,
    "aten.polar.default": complexes.of_polar,
    "aten.view_as_real.default": complexes.pairs_of,
    "aten.real.default": complexes.real_part,
    "aten.imag.default": complexes.imaginary_part,
    "aten._conj.default": complexes.conjugate,
    "aten.conj_physical.default": complexes.conjugate,
    "aten.resolve_conj.default": views.identity,
    "aten.resolve_neg.default": views.identity,
}

_MATRICES: Final[dict[str, Callable[..., Any]]] = {
    "aten.linear.default": matrix.linear,
    "aten.matmul.default": matrix.matmul,
    "aten.mm.default": matrix.matmul,
    "aten.bmm.default": matrix.matmul,
    "aten.mv.default": matrix.matmul,
    "aten.dot.default": matrix.dot,
    "aten.addmm.default": matrix.addmm,
    "aten.baddbmm.default": matrix.addmm,
    "aten.scaled_dot_product_attention.default": attention.scaled_dot_product_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": attention.flash_for_cpu,
}

_IMAGES: Final[dict[str, Callable[..., Any]]] = {
    "aten.conv2d.default": batched(images.conv2d, 4),
    "aten.conv2d.padding": batched(images.conv2d_padded, 4),
    "aten.conv1d.default": batched(images.conv1d, 3),
    "aten.conv1d.padding": batched(images.conv1d_padded, 3),
    "aten.conv3d.default": batched(volumes.conv3d, 5),
    "aten.conv3d.padding": batched(volumes.conv3d_padded, 5),
    "aten.conv_transpose2d.input": batched(images.conv_transpose2d, 4),
    "aten.conv_transpose1d.default": batched(images.conv_transpose1d, 3),
    "aten.max_pool2d.default": batched(pools.max_pool2d, 4),
    "aten.max_pool2d_with_indices.default": pools.value_alone(batched(pools.max_pool2d, 4)),
    "aten.max_pool1d.default": batched(pools.max_pool1d, 3),
    "aten.avg_pool2d.default": batched(pools.avg_pool2d, 4),
    "aten.avg_pool1d.default": batched(pools.avg_pool1d, 3),
    "aten.adaptive_avg_pool2d.default": batched(pools.adaptive_pool(PoolKind.AVERAGE), 4),
    "aten.adaptive_avg_pool1d.default": batched(pools.adaptive_pool(PoolKind.AVERAGE), 3),
    "aten.adaptive_max_pool2d.default": pools.value_alone(batched(pools.adaptive_pool(PoolKind.MAX), 4)),
    "aten.adaptive_max_pool1d.default": pools.value_alone(batched(pools.adaptive_pool(PoolKind.MAX), 3)),
    "aten.max_pool3d.default": batched(volume_pools.max_pool3d, 5),
    "aten.max_pool3d_with_indices.default": pools.value_alone(batched(volume_pools.max_pool3d, 5)),
    "aten.avg_pool3d.default": batched(volume_pools.avg_pool3d, 5),
    "aten.adaptive_avg_pool3d.default": batched(volume_pools.adaptive_pool3d(PoolKind.AVERAGE), 5),
    "aten.adaptive_max_pool3d.default": pools.value_alone(batched(volume_pools.adaptive_pool3d(PoolKind.MAX), 5)),
    "aten.upsample_nearest2d.vec": resampling.upsample_nearest(exact=False),
    "aten.upsample_nearest1d.vec": resampling.upsample_nearest(exact=False),
    "aten._upsample_nearest_exact2d.vec": resampling.upsample_nearest(exact=True),
    "aten._upsample_nearest_exact1d.vec": resampling.upsample_nearest(exact=True),
    "aten.upsample_bilinear2d.vec": resampling.upsample_between(),
    "aten.upsample_linear1d.vec": resampling.upsample_between(),
    "aten.upsample_bicubic2d.vec": resampling.upsample_between(is_cubic=True),
    "aten._upsample_bilinear2d_aa.vec": resampling.upsample_between(is_smoothed=True),
    "aten._upsample_bicubic2d_aa.vec": resampling.upsample_between(is_cubic=True, is_smoothed=True),
    "aten.constant_pad_nd.default": resizing.pad,
    "aten.pad.default": resizing.pad_as,
    "aten.im2col.default": batched(windows.windows_of_image, 4),
    "aten.col2im.default": batched(windows.image_of_windows, 3),
    "aten.cat.default": pools.concatenate,
    "aten.concat.default": pools.concatenate,
    "aten.stack.default": pools.stack,
    "aten.repeat.default": views.repeat,
    "aten.flip.default": indexed.flip,
}

_ROWS: Final[dict[str, Callable[..., Any]]] = {
    "aten.lstm.input": recurrent.lstm,
    "aten.gru.input": recurrent.gru,
    "aten.rnn_tanh.input": recurrent.rnn("tanh"),
    "aten.rnn_relu.input": recurrent.rnn("relu"),
    "aten.softmax.int": rows.row(RowKind.SOFTMAX),
    "aten._softmax.default": rows.row(RowKind.SOFTMAX),
    "aten.log_softmax.int": rows.row(RowKind.LOG_SOFTMAX),
    "aten._log_softmax.default": rows.row(RowKind.LOG_SOFTMAX),
    "aten.layer_norm.default": rows.layer_norm,
    "aten.native_layer_norm.default": rows.native_layer_norm,
    "aten.rms_norm.default": rows.rms_norm,
    "aten._fused_rms_norm.default": rows.fused_rms_norm,
    "aten.mean.default": rows.reduction(ReduceKind.MEAN),
    "aten.mean.dim": rows.reduction(ReduceKind.MEAN),
    "aten.sum.default": rows.reduction(ReduceKind.SUM),
    "aten.sum.dim_IntList": rows.reduction(ReduceKind.SUM),
    **{f"aten.any.{kind}": rows.whether(ReduceKind.MAX) for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": rows.whether(ReduceKind.MIN) for kind in ("default", "dim", "dims")},
    "aten.amax.default": rows.reduction(ReduceKind.MAX),
    "aten.max.default": rows.reduction(ReduceKind.MAX),
    "aten.max.dim": places.extreme_with_place(ReduceKind.MAX),
    "aten.min.dim": places.extreme_with_place(ReduceKind.MIN),
    "aten.argmax.default": places.place_of_extreme(largest=True),
    "aten.argmin.default": places.place_of_extreme(largest=False),
    "aten.topk.default": places.topk,
    "aten.sort.default": places.sort,
    "aten.sort.stable": places.sort_stably,
    "aten.argsort.default": places.argsort,
    "aten.argsort.stable": places.argsort_stably,
    "aten.msort.default": places.sorted_along_the_first,
    "aten.gather.default": places.gather,
    "aten.take_along_dim.default": places.take_along,
    "aten.amin.default": rows.reduction(ReduceKind.MIN),
    "aten.min.default": rows.reduction(ReduceKind.MIN),
    "aten.group_norm.default": statistics.group_norm,
    "aten.instance_norm.default": statistics.instance_norm,
    "aten.histc.default": experts.histogram,
    "aten._grouped_mm.default": experts.grouped_mm,
    "transformers.grouped_mm_fallback.default": experts.grouped_mm,
    "aten.embedding.default": indexed.embedding,
    "aten.embedding_bag.padding_idx": bags.embedding_bag,
    "aten.embedding_bag.default": bags.embedding_bag,
    "aten.index_add.default": bags.index_add,
    "aten.index.Tensor": indexed.index,
    "aten.index_select.default": indexed.index_select,
    "aten.cumsum.default": statistics.cumulative_sum,
    "aten.prod.default": rows.reduction(ReduceKind.PRODUCT),
    "aten.prod.dim_int": rows.reduction(ReduceKind.PRODUCT),
    "aten.var.correction": statistics.variance(root=False),
    "aten.std.correction": statistics.variance(root=True),
    "aten.var.dim": statistics.variance(root=False),
    "aten.std.dim": statistics.variance(root=True),
    "aten.var_mean.correction": statistics.variance_and_mean(root=False),
    "aten.std_mean.correction": statistics.variance_and_mean(root=True),
    "aten.var_mean.dim": statistics.variance_and_mean(root=False),
    "aten.std_mean.dim": statistics.variance_and_mean(root=True),
    "aten.linalg_vector_norm.default": statistics.vector_norm,
    "aten.batch_norm.default": pointwise.batch_norm,
    "aten._native_batch_norm_legit_no_training.default": pointwise.batch_norm_of_inference,
    "aten._native_batch_norm_legit_functional.default": pointwise.batch_norm_of_training,
    "aten._native_batch_norm_legit.default": pointwise.batch_norm_of_training,
}

_POINTWISE: Final[dict[str, Callable[..., Any]]] = {
    "aten.relu.default": pointwise.named("relu"),
    "aten.relu6.default": pointwise.named("relu6"),
    "aten.gelu.default": pointwise.gelu,
    "aten.silu.default": pointwise.named("silu"),
    "aten.sigmoid.default": pointwise.named("sigmoid"),
    "aten.tanh.default": pointwise.named("tanh"),
    "aten.hardswish.default": pointwise.named("hardswish"),
    "aten.hardsigmoid.default": pointwise.named("hardsigmoid"),
    "aten.mish.default": pointwise.named("mish"),
    "aten.log_sigmoid.default": pointwise.named("logsigmoid"),
    "aten.leaky_relu.default": pointwise.leaky_relu,
    "aten.elu.default": pointwise.elu,
    "aten.celu.default": pointwise.celu,
    "aten.selu.default": pointwise.selu,
    "aten.hardtanh.default": pointwise.hardtanh,
    "aten.softplus.default": pointwise.softplus,
    "aten.glu.default": pointwise.glu,
    "aten.exp.default": pointwise.unary(UnaryFunction.EXP),
    "aten.exp2.default": pointwise.exp2,
    "aten.log.default": pointwise.unary(UnaryFunction.LOG),
    "aten.sin.default": pointwise.unary(UnaryFunction.SIN),
    "aten.cos.default": pointwise.unary(UnaryFunction.COS),
    "aten.sqrt.default": pointwise.unary(UnaryFunction.SQRT),
    "aten.rsqrt.default": pointwise.unary(UnaryFunction.RSQRT),
    "aten.abs.default": pointwise.unary(UnaryFunction.ABS),
    "aten.neg.default": pointwise.unary(UnaryFunction.NEG),
    "aten.reciprocal.default": pointwise.unary(UnaryFunction.RECIPROCAL),
    "aten.erf.default": pointwise.unary(UnaryFunction.ERF),
    "aten.floor.default": pointwise.stepping(functions.FLOOR),
    "aten.sign.default": pointwise.sign,
    "aten.isnan.default": pointwise.isnan,
    "aten.nan_to_num.default": pointwise.nan_to_num,
    "aten.ceil.default": pointwise.stepping(functions.CEIL),
    "aten.trunc.default": pointwise.stepping(functions.TRUNC),
    "aten.round.default": pointwise.stepping(functions.ROUND),
    "aten.log1p.default": pointwise.of_one(functions.LOG1P),
    "aten.log2.default": pointwise.unary(UnaryFunction.LOG2),
    "aten.log10.default": pointwise.unary(UnaryFunction.LOG10),
    "aten.expm1.default": pointwise.of_one(functions.EXPM1),
    "aten.square.default": pointwise.of_one(pointwise.X * pointwise.X),
    "aten.pow.Tensor_Scalar": pointwise.power,
    "aten.pow.Tensor_Tensor": pointwise.power,
    "aten.pow.Scalar": pointwise.power,
    "aten.add.Tensor": pointwise.add,
    "aten.add.Scalar": pointwise.add,
    "aten.sub.Tensor": pointwise.sub,
    "aten.sub.Scalar": pointwise.sub,
    "aten.rsub.Tensor": pointwise.rsub,
    "aten.rsub.Scalar": pointwise.rsub,
    "aten.mul.Tensor": pointwise.binary(BinaryFunction.MUL),
    "aten.mul.Scalar": pointwise.binary(BinaryFunction.MUL),
    "aten.div.Tensor": quotients.div,
    "aten.div.Scalar": quotients.div,
    "aten.div.Tensor_mode": quotients.div,
    "aten.div.Scalar_mode": quotients.div,
    "aten.floor_divide.default": quotients.floor_divide,
    "aten.floor_divide.Scalar": quotients.floor_divide,
    "aten.remainder.Tensor": quotients.remainder,
    "aten.remainder.Scalar": quotients.remainder,
    "aten.remainder.Scalar_Tensor": quotients.remainder,
    "aten.fmod.Tensor": quotients.fmod,
    "aten.fmod.Scalar": quotients.fmod,
    "aten.maximum.default": pointwise.chosen(BinaryFunction.MAX),
    "aten.max.other": pointwise.chosen(BinaryFunction.MAX),
    "aten.minimum.default": pointwise.chosen(BinaryFunction.MIN),
    "aten.min.other": pointwise.chosen(BinaryFunction.MIN),
    "aten.clamp.default": pointwise.clamp,
    "aten.clamp.Tensor": pointwise.clamp,
    "aten.clamp_min.default": pointwise.clamp,
    "aten.clamp_min.Tensor": pointwise.clamp,
    "aten.clamp_max.default": pointwise.clamp_max,
    "aten.clamp_max.Tensor": pointwise.clamp_max,
    "aten.where.self": pointwise.where,
    "aten.where.ScalarOther": pointwise.where,
    "aten.where.ScalarSelf": pointwise.where,
    "aten.masked_fill.Scalar": pointwise.masked_fill,
    "aten.masked_fill.Tensor": pointwise.masked_fill,
    "aten.fill.Scalar": pointwise.fill,
    "aten.fill.Tensor": pointwise.fill,
    "aten.zeros_like.default": pointwise.filled(0.0),
    "aten.ones_like.default": pointwise.filled(1.0),
    "aten.full_like.default": pointwise.fill,
    "aten.to.dtype": pointwise.convert,
    "aten.to.dtype_layout": pointwise.convert,
    "aten.to.device": pointwise.convert,
    "aten.to.other": pointwise.convert,
    "aten._to_copy.default": pointwise.convert,
    "aten.type_as.default": pointwise.convert,
    "aten.logical_not.default": pointwise.logical_not,
    "aten.bitwise_not.default": pointwise.logical_not,
    "aten.logical_and.default": pointwise.logical(BinaryFunction.MUL),
    "aten.bitwise_and.Tensor": pointwise.logical(BinaryFunction.MUL),
    "aten.logical_or.default": pointwise.logical(BinaryFunction.MAX),
    "aten.bitwise_or.Tensor": pointwise.logical(BinaryFunction.MAX),
}

_WRITES: Final[dict[str, Callable[..., Any]]] = {
    "aten.copy.default": writes.copy,
    "aten.slice_scatter.default": writes.slice_scatter,
    "aten.select_scatter.default": writes.select_scatter,
    "aten.index_copy.default": writes.index_copy,
    "aten.index_put.default": writes.index_put,
    "aten.scatter.src": writes.scatter,
    "aten.scatter.value": writes.scatter,
    "aten.one_hot.default": writes.one_hot,
}

_COMPARISONS: Final[dict[str, Callable[..., Any]]] = {
    f"aten.{function.value}.{overload}": pointwise.comparison(function)
    for function in BinaryFunction
    if function.is_comparison
    for overload in ("Tensor", "Scalar")
}

LOWERINGS: Final[dict[str, Callable[..., Any]]] = (
    _VIEWS | _COMPLEX | _MATRICES | _IMAGES | _ROWS | _POINTWISE | _WRITES | _COMPARISONS
)

# Of constants these stay views, so that a stored weight is not copied; other ops of constants are computed once.
VIEWS: Final = frozenset(_VIEWS)

# Checks of the example inputs that export leaves behind; the program checks its inputs itself.
WITHOUT_VALUE: Final = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_scalar.default",
        "aten._assert_async.msg",
        "aten.sym_constrain_range_for_size.default",
        "aten.sym_constrain_range.default",
    }
)
