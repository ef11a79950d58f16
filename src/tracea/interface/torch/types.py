"""torch's element types, extents and strides as core ones."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import Dim, StridedLayout, SymbolicDim, TensorType
from tracea.errors import InvalidDevice, InvalidDType, InvalidInput, InvalidShape, InvalidStride
from tracea.runtime.buffers import view
from tracea.runtime.index_range import EXACT_INTEGERS, too_large
from tracea.runtime.tensor_state import check_storage, refuse_tangent
from tracea.runtime.tracing import refuse_traced

__all__ = [
    "Dims",
    "are_below",
    "as_pairs",
    "check_exact",
    "check_small",
    "check_tensor",
    "dtype_of",
    "dtype_of_parts",
    "extremes",
    "tensor_type_of",
    "torch_dtype_of",
]

_DTYPES: Final[dict[torch.dtype, DType]] = {
    torch.float64: DType.F64,
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
}
_COUNTED: Final = re.compile(r"\bu\d+\b")  # torch's names of extents that it knows from values alone
_TORCH_DTYPES: Final = {dtype: torch_dtype for torch_dtype, dtype in _DTYPES.items()}


def dtype_of(dtype: torch.dtype, field: str) -> DType:
    """Return torch's element type as ours.

    Raises:
        InvalidDType: Tracea has none for it.
    """
    known = _DTYPES.get(dtype)
    if known is None:
        raise InvalidDType(
            field=field,
            got=str(dtype),
            expected=[str(torch_dtype) for torch_dtype in _DTYPES],
            remedy="convert the module and its inputs with .to(dtype)",
        )
    return known


def as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as pairs of its parts, in a last axis of 2; any other as it is."""
    is_complex = tensor.is_complex() and tensor.layout is torch.strided
    return torch.view_as_real(tensor.resolve_conj()) if is_complex else tensor


def dtype_of_parts(dtype: torch.dtype, field: str) -> DType:
    """Return torch's element type as ours, of complex numbers that of their parts.

    Raises:
        InvalidDType: Tracea has none for it.
    """
    return dtype_of(dtype.to_real(), field)


def torch_dtype_of(dtype: DType) -> torch.dtype:
    """Return an element type that :func:`dtype_of` gave as torch's own."""
    return _TORCH_DTYPES[dtype]


def check_tensor(tensor: torch.Tensor, field: str, *, owned: bool = False) -> None:
    """Check that a tensor, which may be ``owned`` by a module, is dense memory of this machine.

    Raises:
        InvalidDevice: it is elsewhere, has no data or only a part, or torch records what is done with it.
        InvalidDType: its element type is not one of ours.
        InvalidInput: it is nested, sparse or quantized, or not initialized. InvalidStride: it is a lazy view.
    """
    if tensor.device.type != "cpu":
        remedy = 'move the module and its inputs with .to("cpu")'
        if tensor.is_meta:
            weights = 'module.to_empty(device="cpu"), then load the weights'
            remedy = f"give it values: {weights if owned else 'a tensor of that shape on the CPU'}"
        raise InvalidDevice(field=field, got=str(tensor.device), expected="cpu", remedy=remedy)
    if tensor.is_nested or tensor.layout is not torch.strided:
        raise InvalidInput(
            field=field,
            got="a nested tensor" if tensor.is_nested else str(tensor.layout),
            expected="torch.strided",
            remedy="pad it: torch.nested.to_padded_tensor" if tensor.is_nested else "convert it with .to_dense()",
        )
    if torch.nn.parameter.is_lazy(tensor):
        raise InvalidInput(
            field=field,
            got="a parameter of a lazy module that has not run",
            expected="initialized parameters",
            remedy="call module(*example_inputs) once before",
        )
    dtype_of(tensor.dtype, field)
    refuse_tangent(tensor, torch, field)
    refuse_traced(field)
    if tensor.is_neg():
        raise InvalidStride(
            field=field,
            got="a lazily negated tensor",
            expected="elements as they are in memory",
            remedy="tensor.resolve_neg()",
        )
    check_storage(tensor, field)


def extremes(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the least and the largest of integers, at least one; no operator of torch runs, which each call pays."""
    values = _flat(tensor) if tensor.is_contiguous() else view(tensor).numpy()
    # The functions' own reductions: np.min and np.max take as long again before they are there.
    return int(np.minimum.reduce(values, axis=None)), int(np.maximum.reduce(values, axis=None))


def are_below(tensor: torch.Tensor, count: int) -> bool:
    """Tell whether integers, at least one, are from 0 to below ``count``, in one walk.

    As unsigned numbers negative ones are those from half of all on.
    """
    values = _flat(tensor) if tensor.is_contiguous() else view(tensor).numpy()
    largest = int(np.maximum.reduce(values.view(f"u{values.itemsize}"), axis=None))
    return largest < count and (tensor.dtype is torch.uint8 or largest >> (8 * values.itemsize - 1) == 0)


def _flat(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    check_storage(tensor, "indices")
    memory: Any = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(memory, dtype_of(tensor.dtype, "indices").numpy)


def check_exact(tensor: torch.Tensor, field: str) -> None:
    """Check that kernels see every value of an i64 tensor as it is.

    Raises:
        InvalidInput: a value is beyond ±2^53.
    """
    if tensor.dtype is torch.int64:
        check_small(tensor, EXACT_INTEGERS, field)


def check_small(tensor: torch.Tensor, limit: int, field: str) -> None:
    """Check that integers are so small, a power of two, that what a program computes of them is exact.

    Raises:
        InvalidInput: a value is beyond the limit.
    """
    if tensor.numel() == 0:
        return
    low, high = extremes(tensor)
    if low < -limit or high > limit:
        raise too_large(field, high if high > limit else low, limit)


class Dims:
    """Translates extents; a torch symbol becomes a SymbolicDim under the name that it was given."""

    def __init__(self) -> None:
        self._by_symbol: dict[str, SymbolicDim] = {}

    def name(self, symbol: str, name: str, minimum: int, maximum: int | None) -> None:
        """Give a symbol a name and bounds; the first call counts."""
        clean = re.sub(r"\W", "_", name)
        taken = {dim.name for dim in self._by_symbol.values()}
        if symbol not in self._by_symbol:
            unique = clean if clean not in taken else f"{clean}_{symbol}"
            self._by_symbol[symbol] = SymbolicDim(unique, minimum, maximum)

    def of(self, extent: Any, field: str = "shape") -> Dim:
        """Return an extent.

        Raises:
            InvalidShape: it is computed from symbols.
        """
        if isinstance(extent, int):
            return extent
        text = str(extent)
        if text.lstrip("-").isdigit():
            return int(text)
        if text in self._by_symbol:
            return self._by_symbol[text]
        if _COUNTED.search(text):
            raise InvalidShape(
                field=field,
                got=f"{text}, an extent that values decide, as of x[x > 0] or nonzero",
                expected="shapes that follow from the shapes of the inputs",
                remedy="keep the shape, torch.where(x > 0, x, 0.0), or do this step outside of the model",
            )
        raise InvalidShape(
            field=field,
            got=text,
            expected=f"a number or one of {sorted(self._by_symbol)}",
            remedy="an extent may be symbolic, but not computed from symbols: make this axis static",
        )

    def shape(self, shape: Sequence[Any], field: str = "shape") -> tuple[Dim, ...]:
        """Return the extents of a shape."""
        return tuple(self.of(extent, field) for extent in shape)


def tensor_type_of(tensor: torch.Tensor, dims: Dims, field: str) -> TensorType:
    """Return the type of a tensor, with its strides where they are not row-major.

    Raises:
        InvalidDType, InvalidShape: as :func:`dtype_of` and :meth:`Dims.of` say.
    """
    shape, dtype = dims.shape(tensor.shape, field), dtype_of(tensor.dtype, field)
    if tensor.is_contiguous():
        return TensorType(shape, dtype)
    try:
        strides = tuple(int(str(stride)) for stride in tensor.stride())
    except ValueError as error:
        raise InvalidShape(
            field=field,
            got=[str(stride) for stride in tensor.stride()],
            expected="strides that are numbers",
            remedy="give a contiguous example input where an axis is dynamic",
        ) from error
    return TensorType(shape, dtype, StridedLayout(strides))
