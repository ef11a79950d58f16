"""tracea.ops: operations on torch tensors or NumPy arrays, zero copy, any strides; the result is of the inputs' kind.

A call whose shapes, strides and types were seen before goes straight to native code; a new one is lowered, proved,
compiled and remembered. ``out=`` writes in place and may not overlap an input.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tracea.core.expr import Expr, Input
from tracea.core.names import near
from tracea.core.op import Epilogue, GemmOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType, broadcast_shapes
from tracea.errors import InvalidDType, InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.attention import attention
from tracea.interface.attention_gradient import attention_backward
from tracea.interface.block_sparse import block_sparse_matmul
from tracea.interface.element_gradients import (
    activation_backward,
    cumsum_backward,
    embedding_backward,
    topk_backward,
)
from tracea.interface.fusion import elementwise_steps, fuse
from tracea.interface.gradients import (
    batch_norm_training_backward,
    group_norm_backward,
    layer_norm_backward,
    log_softmax_backward,
    rms_norm_backward,
    softmax_backward,
)
from tracea.interface.grouped_gemm import grouped_gemm
from tracea.interface.images import conv2d
from tracea.interface.indexing import argsort, copy, cumsum, embedding, sort, topk
from tracea.interface.indices import argmax, argmin
from tracea.interface.losses import cross_entropy, cross_entropy_backward
from tracea.interface.low_rank import low_rank_mlp
from tracea.interface.normalizations import (
    batch_norm,
    batch_norm_training,
    compiled_softmax,
    group_norm,
    log_softmax,
    norm_eps,
    refuse_eps_in_place,
)
from tracea.interface.operands import Given, check_same_dtype, dispatched, inner_remedy, number
from tracea.interface.policy import library, library_allowed
from tracea.interface.pooling import adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool2d, max_pool2d
from tracea.interface.prepacked import PrepackedWeight, prepack, scaled_bias
from tracea.interface.reduction_gradients import (
    amax_backward,
    amin_backward,
    mean_backward,
    prod_backward,
    std_backward,
    sum_backward,
    var_backward,
)
from tracea.interface.reductions import all, amax, amin, any, mean, prod, std, sum, var
from tracea.interface.rotary import rope, rope_backward
from tracea.interface.signal_pooling import adaptive_avg_pool1d, adaptive_max_pool1d, avg_pool1d, max_pool1d
from tracea.interface.signals import conv1d, conv1d_grad_input, conv1d_grad_weight, conv_transpose1d
from tracea.interface.transposed import conv2d_grad_input, conv2d_grad_weight, conv_transpose2d
from tracea.interface.volume_gradients import conv3d_grad_input, conv3d_grad_weight, conv_transpose3d
from tracea.interface.volumes import conv3d
from tracea.interface.whole_numbers import axis_number

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = [
    "activation_backward",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "all",
    "amax",
    "amax_backward",
    "amin",
    "amin_backward",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "attention",
    "attention_backward",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "batch_norm_training",
    "batch_norm_training_backward",
    "block_sparse_matmul",
    "conv1d",
    "conv1d_grad_input",
    "conv1d_grad_weight",
    "conv2d",
    "conv2d_grad_input",
    "conv2d_grad_weight",
    "conv3d",
    "conv3d_grad_input",
    "conv3d_grad_weight",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "copy",
    "cross_entropy",
    "cross_entropy_backward",
    "cumsum",
    "cumsum_backward",
    "embedding",
    "embedding_backward",
    "fuse",
    "gemm",
    "group_norm",
    "group_norm_backward",
    "grouped_gemm",
    "layer_norm",
    "layer_norm_backward",
    "library",
    "log_softmax",
    "log_softmax_backward",
    "low_rank_mlp",
    "max_pool1d",
    "max_pool2d",
    "mean",
    "mean_backward",
    "prepack",
    "prod",
    "prod_backward",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "rope_backward",
    "softmax",
    "softmax_backward",
    "sort",
    "std",
    "std_backward",
    "sum",
    "sum_backward",
    "topk",
    "topk_backward",
    "var",
    "var_backward",
]

_OF_GEMM: Final = ("a", "b", "bias", "residual")
_OF_SOFTMAX: Final = ("x",)
_OF_NORM: Final = ("x", "weight", "bias")


def __dir__() -> list[str]:
    """List the public names, and what every module has."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


# What torch and NumPy call some of them.
_ELSEWHERE: Final = {
    **dict.fromkeys(("matmul", "mm", "bmm", "baddbmm", "addmm", "dot", "einsum", "linear"), ("gemm",)),
    **dict.fromkeys(("scaled_dot_product_attention", "sdpa", "flash_attention"), ("attention",)),
    "max": ("amax",),
    "min": ("amin",),
}

if not TYPE_CHECKING:  # checkers would take every name for one that there is

    def __getattr__(name: str) -> Any:
        """Say which op may be meant by a name that there is not."""
        text = f"tracea.ops has no {name!r}"
        if name in elementwise_steps():
            text += f": it is a step, as in tracea.ops.fuse([{name!r}])"
        elif close := _ELSEWHERE.get(name) or near(name, __all__):
            text += f": did you mean {' or '.join(close)}?"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])


def gemm(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    out: Any = None,
) -> Any:
    """Return ``activation(alpha · a @ b + beta · bias) + residual``; of a beta of 0 the bias is not looked at.

    Shapes: a is (…, m, k); b is (…, k, n) or a weight that :func:`prepack` made; leading axes broadcast; bias
    broadcasts to the result from the right, as does residual.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for an unknown
    activation.
    """
    if type(b) is PrepackedWeight:
        return b.multiply(a, bias=bias, residual=residual, activation=activation, alpha=alpha, beta=beta, out=out)
    beta, bias = scaled_bias(beta, bias)
    if type(alpha) is not float:
        alpha = number("alpha", alpha)
    return _dispatch_gemm()(a, b, bias, residual, out, activation, alpha, beta, library_allowed())


def softmax(x: Any, dim: int = -1, *, out: Any = None) -> Any:
    """Return ``exp(x - max x) / sum`` along ``dim``; a row of -inf alone, or with a NaN, gives NaN as in torch.

    Raises: InvalidShape: there is no such axis. InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput.
    """
    return _dispatch_softmax()(x, out, axis_number("dim", dim))


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Any = None) -> Any:
    """Return ``(x - mean) / sqrt(variance + eps) · weight + bias`` along the last axis.

    Shapes: weight and bias are (columns,).

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: eps is negative or
    not finite.
    """
    return _dispatch_norm(RowKind.LAYER_NORM)(x, weight, bias, out, number("eps", eps, example=1e-5))


def rms_norm(x: Any, weight: Any = None, eps: float | None = 1e-6, *, out: Any = None) -> Any:
    """Return ``x / sqrt(mean of x² + eps) · weight`` along the last axis.

    ``eps`` None is torch's: the distance from 1 to the next number of what is computed in, f32 for 16 bits.

    Shapes: weight is (columns,).

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: eps is negative or
    not finite.
    """
    return _dispatch_norm(RowKind.RMS_NORM)(
        x, weight, None, out, None if eps is None else number("eps", eps, example=1e-6)
    )


@cache
def _dispatch_gemm() -> Any:
    return dispatched(_OF_GEMM, _missed_gemm)


def _missed_gemm(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    given = Given.of(_OF_GEMM, arrays, out)
    activation, alpha, beta, allowed = attributes
    given.check_floats(one_arithmetic=True)
    a, b, bias, residual = given.type(0), given.type(1), given.optional(2), given.optional(3)
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise InvalidShape(
            field="gemm",
            got={"a": a.shape, "b": b.shape},
            expected="(…, m, k) @ (…, k, n)",
            remedy="give each a row and a column axis: a[None, :] or b[:, None]"
            if min(a.rank, b.rank) < 2
            else inner_remedy(a.shape, b.shape),
        )
    check_same_dtype("gemm", a, b)
    batch = broadcast_shapes((a.shape[:-2], b.shape[:-2]), field="gemm.batch")
    given.check_broadcasts((*batch, a.shape[-2], b.shape[-1]), 2, 3)
    op = GemmOp(
        m=a.shape[-2],
        n=b.shape[-1],
        k=a.shape[-1],
        batch=batch,
        a=a,
        b=b,
        epilogue=Epilogue.of(alpha=alpha, beta=beta, bias=bias, activation=activation, residual=residual),
        out=given.result,
    )
    given.check_result(op)
    return compile_op(op, threads=threads, library=allowed)


@cache
def _dispatch_softmax() -> Any:
    return dispatched(_OF_SOFTMAX, _missed_softmax)


def _missed_softmax(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    return compiled_softmax(RowKind.SOFTMAX, arrays[0], out, attributes[0], threads)


@cache
def _dispatch_norm(kind: RowKind) -> Any:
    def missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
        if isinstance(arrays[1], (int, tuple, list)):
            raise InvalidDType(
                field="weight",
                got=arrays[1],
                expected="a tensor or an array of one value for each column, or None",
                remedy="leave out the normalized shape: the last axis of x is normalized",
            )
        refuse_eps_in_place(_OF_NORM, arrays)
        given = Given.of(_OF_NORM, arrays, out)
        given.check_floats()
        x, weight, bias = given.type(0), given.optional(1), given.optional(2)
        if x.rank == 0:
            raise InvalidShape(field="x", got=(), expected="(..., columns)", remedy="give rows: x[None] is one of one")
        expr: Expr = Input(0)
        operands: list[TensorType] = []
        for name, operand in (("weight", weight), ("bias", bias)):
            if operand is None:
                continue
            if operand.shape != x.shape[-1:]:
                raise InvalidShape(
                    field=name, got=operand.shape, expected=x.shape[-1:], remedy="give one value for each column"
                )
            operands.append(operand)
            expr = expr * Input(len(operands)) if name == "weight" else expr + Input(len(operands))
        epilogue = Epilogue(expr, tuple(operands))
        op = RowOp(kind=kind, x=(x,), epilogue=epilogue, eps=norm_eps(attributes[0], x), out=given.result)
        given.check_result(op)
        return compile_op(op, threads=threads)

    return dispatched(_OF_NORM, missed)
