"""What torch returns for an operator, told from the types of its operands alone: shape, element type and strides.

torch's own functions for this are Python that imports its compiler, a second and more (benchmarks/NOTES.md). Here are
the operators that models spend their lines on, where their operands are as torch takes them without a second thought.
Whatever is rarer has no rule and is left to torch, which also says what is wrong with operands that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload

from tracea.errors import InvalidShape
from tracea.interface.torch.export import arguments_in_order, operator_name
from tracea.interface.torch.result_basis import Rule, Type, Unknown, dense, need, need_floats, preserved
from tracea.interface.torch.result_layers import LAYER_TYPES

__all__ = ["GIVES_BACK", "RESULT_TYPES", "VIEWS_OF_TYPES", "has_rule", "result_type"]


def result_type(
    operator: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Type | Sequence[Type]:
    """Return the type of what an operator returns for such operands, with types for tensors.

    Raises:
        Unknown: there is no rule for the operator with these operands.
    """
    name = operator_name(operator)
    rule = RESULT_TYPES.get(name)
    if rule is None and name not in VIEWS_OF_TYPES:
        raise Unknown
    try:
        return operator(*args, **kwargs) if rule is None else rule(*arguments_in_order(operator, args, kwargs))
    except (InvalidShape, IndexError, RuntimeError, TypeError, ValueError) as error:  # operands that torch may refuse
        raise Unknown from error


def has_rule(operator: OpOverload[..., Any]) -> bool:
    """Tell whether there is a rule for an operator, whatever its operands."""
    return operator_name(operator) in RESULT_TYPES or operator_name(operator) in VIEWS_OF_TYPES


# Element by element.


def _of_float(x: Type, *_: Any) -> Type:
    return preserved(need_floats(x), x)


def _arithmetic(left: Any, right: Any, alpha: float = 1) -> Type:
    operands = [each for each in (left, right) if isinstance(each, torch.Tensor)]
    dtype = torch.result_type(left, right)
    need(dtype is not torch.complex32)  # which torch warns of
    need(dtype.is_floating_point or dtype.is_complex or (dtype is torch.int64 and isinstance(alpha, int)))
    return preserved(dtype, *operands)


def _float_arithmetic(left: Any, right: Any) -> Type:
    result = _arithmetic(left, right)
    need(result.dtype.is_floating_point)
    return result


def _quotient(left: Any, right: Any) -> Type:
    result = _arithmetic(left, right)
    need(result.dtype.is_floating_point or result.dtype.is_complex)
    return result


def _of_parts(real: Type, imag: Type) -> Type:
    need(real.dtype is imag.dtype and real.dtype in (torch.float32, torch.float64))
    return preserved(real.dtype.to_complex(), real, imag)


def _absolute(x: Type) -> Type:
    return preserved(x.dtype.to_real(), x) if x.dtype.is_complex else _of_float(x)


def _comparison(left: Type, right: Any) -> Type:
    return preserved(torch.bool, *[each for each in (left, right) if isinstance(each, torch.Tensor)])


def _is_nan(x: Type) -> Type:
    return preserved(torch.bool, x)


def _power_of_scalar(x: Type, exponent: Any) -> Type:
    need(isinstance(exponent, int | float))
    return _of_float(x)


def _clamp(x: Type, *bounds: Any) -> Type:
    need(all(bound is None or isinstance(bound, int | float) for bound in bounds))
    return _of_float(x)


def _logical(left: Type, right: Type) -> Type:
    need(left.dtype is right.dtype is torch.bool)
    return preserved(torch.bool, left, right)


def _negation(x: Type) -> Type:
    need(x.dtype is torch.bool)
    return preserved(torch.bool, x)


def _where(condition: Type, left: Type, right: Type) -> Type:
    need(condition.dtype is torch.bool and left.dtype is right.dtype)
    return preserved(left.dtype, condition, left, right)


def _masked_fill(x: Type, mask: Type, value: Any) -> Type:
    need(mask.dtype is torch.bool and x.dtype.is_floating_point and isinstance(value, int | float))
    result = preserved(x.dtype, x, mask)
    need(result.shape == x.shape)
    return result


def _dropout(x: Type, p: float, train: bool) -> Type:
    need(not train and 0.0 <= p <= 1.0)
    return _itself(x)


def _converted(x: Type, dtype: torch.dtype, non_blocking: bool, copy: bool, memory_format: Any) -> Type:
    need(not non_blocking and not copy and memory_format is None)
    return preserved(dtype, x)


def _copied(
    x: Type, dtype: Any, layout: Any, device: Any, pin_memory: Any, non_blocking: bool, memory_format: Any
) -> Type:
    need(layout in (None, torch.strided) and not pin_memory and not non_blocking and memory_format is None)
    need(device is None or torch.device(device) == torch.device("cpu"))
    return preserved(dtype or x.dtype, x)


def _itself(x: Type) -> Type:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def _reshaped(x: Type, shape: Sequence[int]) -> Type:
    wanted = dense(x.shape, x.dtype).view(*shape)
    try:
        return x.view(*shape)
    except RuntimeError:  # no view of these strides is of that shape: torch copies
        return wanted


def _reshaped_as(x: Type, other: Type) -> Type:
    return _reshaped(x, other.shape)


def _flattened(x: Type, first: int = 0, last: int = -1) -> Type:
    return _reshaped(x, dense(x.shape, x.dtype).flatten(first, last).shape)


def _cloned(x: Type, memory_format: Any) -> Type:
    need(memory_format in (None, torch.preserve_format, torch.contiguous_format))
    return dense(x.shape, x.dtype) if memory_format is torch.contiguous_format else preserved(x.dtype, x)


def _contiguous(x: Type, memory_format: Any) -> Type:
    need(memory_format in (0, torch.contiguous_format))  # 0 is what the schema has
    return dense(x.shape, x.dtype)


def _flipped(x: Type, axes: Sequence[int]) -> Type:
    need(len({axis % max(x.dim(), 1) for axis in axes}) == len(axes) and x.is_contiguous())
    return dense(x.shape, x.dtype)


_OF_FLOAT: Final = (
    *("relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "mish", "leaky_relu"),
    *("elu", "selu", "celu", "hardtanh", "softplus", "exp", "log", "sin", "cos", "sqrt", "rsqrt", "neg"),
    *("reciprocal", "erf", "floor", "ceil", "trunc", "log1p", "log2", "log10", "expm1", "square", "sign", "nan_to_num"),
)

RESULT_TYPES: Final[dict[str, Rule]] = {
    **LAYER_TYPES,
    **{f"aten.{name}.default": _of_float for name in _OF_FLOAT},
    "aten.abs.default": _absolute,
    **{f"aten.{name}.Tensor": _arithmetic for name in ("add", "sub", "mul")},
    **{
        f"aten.{name}.{kind}": _comparison
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
        for kind in ("Tensor", "Scalar")
    },
    "aten.isnan.default": _is_nan,
    "aten.rsub.Scalar": _arithmetic,
    "aten.div.Tensor": _quotient,
    "aten.complex.default": _of_parts,
    "aten.polar.default": _of_parts,
    "aten.floor_divide.default": _arithmetic,
    "aten.remainder.Scalar": _arithmetic,
    "aten.remainder.Tensor": _arithmetic,
    "aten.maximum.default": _float_arithmetic,
    "aten.minimum.default": _float_arithmetic,
    "aten.pow.Tensor_Scalar": _power_of_scalar,
    "aten.clamp.default": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": _clamp,
    "aten.logical_not.default": _negation,
    "aten.bitwise_not.default": _negation,
    "aten.logical_and.default": _logical,
    "aten.bitwise_and.Tensor": _logical,
    "aten.logical_or.default": _logical,
    "aten.bitwise_or.Tensor": _logical,
    "aten.where.self": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.dropout.default": _dropout,
    "aten.feature_dropout.default": _dropout,
    "aten.alpha_dropout.default": _dropout,
    "aten.to.dtype": _converted,
    "aten._to_copy.default": _copied,
    "aten.clone.default": _cloned,
    "aten.contiguous.default": _contiguous,
    "aten.flip.default": _flipped,
    "aten.detach.default": _itself,
    "aten.alias.default": _itself,
    "aten.reshape.default": _reshaped,
    "aten.reshape_as.default": _reshaped_as,
    "aten.flatten.using_ints": _flattened,
    "aten.ravel.default": _flattened,
}


def _is_off(x: torch.Tensor, p: float, train: bool) -> bool:
    return not train and 0.0 <= p <= 1.0


def _is_of_type(x: torch.Tensor, dtype: torch.dtype, non_blocking: bool, copy: bool, memory_format: Any) -> bool:
    return x.dtype is dtype and not copy and memory_format in (None, torch.preserve_format)


def _is_one_axis(x: torch.Tensor, first: int = 0, last: int = -1) -> bool:
    return x.dim() > 0 and first % x.dim() == last % x.dim()


# What returns its own input, the very object, and for which of its arguments.
GIVES_BACK: Final[dict[str, Callable[..., bool]]] = {
    **{f"aten.{name}.default": _is_off for name in ("dropout", "feature_dropout", "alpha_dropout")},
    "aten.to.dtype": _is_of_type,
    "aten.flatten.using_ints": _is_one_axis,
}

# What these return has no elements of its own: torch itself tells its type, without any Python.
VIEWS_OF_TYPES: Final = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "unflatten.int", "squeeze.default", "squeeze.dim", "squeeze.dims"),
        *("unsqueeze.default", "permute.default", "transpose.int", "swapaxes.default", "t.default", "numpy_T.default"),
        *("mT.default", "expand.default", "expand_as.default", "broadcast_to.default", "select.int", "slice.Tensor"),
        *(
            "narrow.default",
            "unfold.default",
            "chunk.default",
            "split.Tensor",
            "split_with_sizes.default",
            "split.sizes",
            "unbind.int",
        ),
        *("view_as_complex.default", "view_as_real.default", "real.default", "imag.default"),
    )
)
