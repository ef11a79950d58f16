"""Arrays as addresses: zero-copy views of torch tensors, NumPy arrays and anything that speaks DLPack, in any strides.

This is the slow, explaining path; the extension (launcher/extension.cpp) reads the same facts in nanoseconds. torch is
never imported: if no tensor exists there is nothing to look at, and if one does, torch is in ``sys.modules``.
"""

from __future__ import annotations

import enum
import math
import mmap
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, StridedLayout, TensorType
from tracea.errors import (
    InvalidDevice,
    InvalidDType,
    InvalidInput,
    InvalidShape,
    InvalidStride,
    OverlappingOutput,
    ReadOnlyOutput,
    TraceaError,
)
from tracea.runtime.huge_pages import HUGE_PAGE
from tracea.runtime.tensor_state import check_storage, refuse_tangent
from tracea.runtime.tracing import refuse_traced

__all__ = [
    "DTYPE_CODES",
    "ArrayKind",
    "ArrayView",
    "aligned_empty",
    "check_operand",
    "check_output",
    "empty",
    "empty_of",
    "expected_array",
    "view",
]

_OVERLAP_WORK: Final = 100_000  # steps that the exact overlap test may take before it gives up and says yes


class ArrayKind(enum.Enum):
    """Whose array it is, and so whose array a result should be."""

    TORCH = "torch"
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayView:
    """Where an array's elements are. ``owner`` keeps them alive.

    Units: address in bytes, strides in elements.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    kind: ArrayKind
    owner: Any
    writable: bool = True

    @property
    def byte_range(self) -> tuple[int, int]:
        """First byte, and one past the last byte, that the elements occupy."""
        if 0 in self.shape:
            return self.address, self.address
        reach = [(dim - 1) * stride for dim, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(min(part, 0) for part in reach)
        high = sum(max(part, 0) for part in reach) + 1
        return self.address + low * self.dtype.nbytes, self.address + high * self.dtype.nbytes

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the same memory as a NumPy array."""
        if self.kind is ArrayKind.NUMPY:
            return self.owner
        low, high = self.byte_range
        memory = (np.ctypeslib.as_array(_bytes_at(low, high - low)) if high > low else np.empty(0, np.uint8)).view(
            self.dtype.numpy
        )
        first = (self.address - low) // self.dtype.nbytes
        nbytes = self.dtype.nbytes
        return np.ndarray(
            self.shape, self.dtype.numpy, memory, first * nbytes, tuple(stride * nbytes for stride in self.strides)
        )


def view(array: Any, field: str = "array", taken: Sequence[str] = ()) -> ArrayView:
    """Return where an array's elements are, without copying any; an error says which element types are ``taken``.

    Raises: InvalidDType: not an array, or elements that Tracea has no type for. InvalidDevice: not in this process's
        memory. InvalidStride: strides that are no multiple of the element. InvalidInput: a gradient is asked for.
    """
    if isinstance(array, np.ndarray):
        return _view_numpy(cast("np.ndarray[Any, Any]", array), field, taken or _TAKEN)
    try:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(array, torch.Tensor):
            return _view_torch(array, torch, field, taken or _TAKEN)
        if not isinstance(array, type) and hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            return _view_dlpack(array, field, taken or _TAKEN)
    except TraceaError:
        raise
    except Exception as error:  # of the array's own code: a tensor's __torch_function__, a producer's __dlpack__
        raise InvalidDType(
            field=field,
            got=f"{type(array).__name__}, which raises {type(error).__name__}: {str(error)[:200]}",
            expected="an array that says where its elements are",
            remedy="mend its __dlpack__ or __torch_function__, or give a plain array: tensor.as_subclass(torch.Tensor)",
        ) from error
    raise InvalidDType(
        field=field,
        got=_named(cast("object", array)),
        expected="a torch tensor, a NumPy array or an object with __dlpack__",
        remedy=getattr(cast("Any", array), "instead_of_array", "convert it, for example with numpy.asarray"),
    )


def _named(found: object) -> str:
    """Return what was given in place of an array, in words; a NumPy scalar's class has an element type's name."""
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return f"a NumPy scalar, {found!r:.40}" if isinstance(found, np.generic) else type(found).__name__


def empty(shape: Sequence[int], dtype: DType, kind: ArrayKind) -> Any:
    """Return a new, uninitialised, contiguous array of a kind; a DLPack producer's results are NumPy arrays."""
    if kind is ArrayKind.TORCH:
        torch = sys.modules["torch"]
        return torch.empty(
            tuple(shape), dtype=getattr(torch, _TORCH_NAMES[dtype]), device="cpu"
        )  # whatever its default
    return np.empty(tuple(shape), dtype.numpy)


def empty_of(type_: TensorType, kind: ArrayKind) -> Any:
    """Return a new, uninitialised array of a type, in its strides where they are not row-major."""
    shape, strides = expected_array(type_)
    if type_.is_contiguous or isinstance(type_.layout, BlockedLayout) or type_.elements == 0:
        return empty(shape, type_.dtype, kind)
    low, high = type_.extent
    memory = empty((high - low,), type_.dtype, kind)
    if kind is ArrayKind.TORCH:
        return memory.as_strided(shape, strides, -low)
    steps = tuple(stride * type_.dtype.nbytes for stride in strides)
    return np.lib.stride_tricks.as_strided(memory[-low:], shape, steps)


def aligned_empty(shape: Sequence[int], dtype: DType) -> np.ndarray[Any, Any]:
    """Return a new, uninitialised array for constants: on a cache line, from 2 MiB on in huge pages."""
    nbytes = math.prod(shape) * dtype.nbytes
    if nbytes < HUGE_PAGE:
        memory = np.empty(nbytes + 64, np.uint8)
        start = -int(memory.__array_interface__["data"][0]) % 64
    else:
        # Python's default is memory shared with forked children, which Linux backs by small pages whatever is advised.
        pages = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        memory = np.frombuffer(pages, np.uint8)
        start = -int(memory.__array_interface__["data"][0]) % HUGE_PAGE
    return memory[start : start + nbytes].view(dtype.numpy).reshape(tuple(shape))


def expected_array(type_: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and strides of the array that holds a tensor; a blocked tensor is its storage, contiguous."""
    if isinstance(type_.layout, BlockedLayout):
        storage = TensorType(type_.storage_shape, type_.dtype)
        return storage.static_shape, storage.strides
    return type_.static_shape, type_.strides


def check_operand(found: ArrayView, type_: TensorType, field: str) -> None:
    """Refuse an array that is not of a type, down to its strides.

    Raises: InvalidDType, InvalidShape, InvalidStride.
    """
    shape, strides = expected_array(type_)
    if found.dtype is not type_.dtype:
        raise InvalidDType(
            field=field,
            got=found.dtype,
            expected=type_.dtype,
            remedy="convert the array, or build the program for its type",
        )
    if found.shape != shape:
        raise InvalidShape(
            field=field, got=found.shape, expected=shape, remedy="a program is built for its shapes: build one for this"
        )
    differs = any(dim > 1 and have != want for dim, have, want in zip(shape, found.strides, strides, strict=True))
    if differs and 0 not in shape:
        raise InvalidStride(
            field=field,
            got=found.strides,
            expected=strides,
            remedy="copy it into that layout, or build a program for its own",
        )
    if found.address % found.dtype.nbytes != 0:
        raise InvalidStride(
            field=field,
            got=f"address {found.address:#x}",
            expected=f"a multiple of {found.dtype.nbytes} bytes",
            remedy="copy the array into aligned memory",
        )


def check_output(out: ArrayView, others: Mapping[str, ArrayView], field: str = "out") -> None:
    """Refuse an output that is read-only, overlaps itself, or shares memory with another array, each given by name.

    Raises: OverlappingOutput, ReadOnlyOutput.
    """
    if not out.writable:
        raise ReadOnlyOutput(
            field=field, got="read-only memory", expected="writable memory", remedy="give another array"
        )
    if TensorType(out.shape, out.dtype, StridedLayout(out.strides)).overlaps_itself:
        raise OverlappingOutput(
            field=field,
            got=f"shape {out.shape} with strides {out.strides}",
            expected="one place for each element",
            remedy="give an array that was not expanded or broadcast",
        )
    low, high = out.byte_range
    for name, other in others.items():
        start, stop = other.byte_range
        if start < high and low < stop and _shares_memory(out, other):
            raise OverlappingOutput(
                field=field,
                got=f"{min(high, stop) - max(low, start)} bytes in which {name} lies too",
                expected="memory of its own",
                remedy=f"write to another array, or copy {name}",
            )


def _shares_memory(first: ArrayView, second: ArrayView) -> bool:
    # Two column ranges of one matrix interleave in memory without sharing an element: only the exact test can tell.
    try:
        return bool(np.shares_memory(first.numpy(), second.numpy(), max_work=cast("Any", _OVERLAP_WORK)))
    except np.exceptions.TooHardError:
        return True


def _view_numpy(array: np.ndarray[Any, Any], field: str, taken: Sequence[str]) -> ArrayView:
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidDType(
            field=field,
            got="a masked array",
            expected="an array whose every element has a value",
            remedy="array.filled(value)",
        )
    dtype = next((known for known in DTYPE_CODES if array.dtype == known.numpy), None)
    if dtype is None:
        raise _unknown_type(field, array.dtype, taken)
    return ArrayView(
        address=int(array.__array_interface__["data"][0]),
        shape=array.shape,
        strides=_element_strides(array.shape, array.strides, dtype, field),
        dtype=dtype,
        kind=ArrayKind.NUMPY,
        owner=array,
        writable=bool(array.flags.writeable),
    )


def _unknown_type(field: str, dtype: Any, taken: Sequence[str]) -> InvalidDType:
    remedy = "give another out, or leave it out" if field == "out" else "convert it to one of these first"
    return InvalidDType(field=field, got=str(dtype), expected=taken, remedy=remedy)


def _element_strides(
    shape: tuple[int, ...], byte_strides: tuple[int, ...], dtype: DType, field: str
) -> tuple[int, ...]:
    for dim, stride in zip(shape, byte_strides, strict=True):
        if dim > 1 and stride % dtype.nbytes != 0:
            raise InvalidStride(
                field=field,
                got=f"a stride of {stride} bytes",
                expected=f"a multiple of the element's {dtype.nbytes}",
                remedy="copy the array: numpy.ascontiguousarray",
            )
    return tuple(stride // dtype.nbytes for stride in byte_strides)


def _view_torch(tensor: Any, torch: Any, field: str, taken: Sequence[str]) -> ArrayView:
    if tensor.device.type != "cpu":
        remedy = "give a tensor that has values: this one has a shape alone" if tensor.is_meta else "tensor.cpu()"
        raise InvalidDevice(field=field, got=str(tensor.device), expected="cpu", remedy=remedy)
    if tensor.is_nested or tensor.layout is not torch.strided:
        raise InvalidStride(
            field=field,
            got="nested" if tensor.is_nested else str(tensor.layout),
            expected="torch.strided",
            remedy="tensor.to_dense()",
        )
    if tensor.is_neg() or tensor.is_conj():
        raise InvalidStride(
            field=field,
            got="a lazily negated or conjugated tensor",
            expected="elements as they are in memory",
            remedy="tensor.resolve_neg().resolve_conj()",
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise InvalidInput(
            field=field,
            got="requires_grad=True",
            expected="inference",
            remedy="call under torch.no_grad() or torch.inference_mode(), or give tensor.detach()",
        )
    refuse_tangent(tensor, torch, field)
    refuse_traced(field)
    dtype = _torch_dtypes(torch).get(tensor.dtype)
    if dtype is None:
        raise _unknown_type(field, tensor.dtype, taken)
    # Fake, distributed and other tensors with a dispatch of their own claim the CPU and have no memory there.
    own_meaning = getattr(tensor.__class__, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__
    try:
        address = 0 if own_meaning else tensor.data_ptr()
    except RuntimeError:  # functional and vmapped tensors
        address = 0
    if address == 0 and (own_meaning or tensor.numel() > 0):
        raise InvalidDevice(
            field=field,
            got=f"{type(tensor).__name__} without memory",
            expected="a tensor with memory in this process",
            remedy="call with real tensors; while torch traces, call through a registered torch op",
        )
    check_storage(tensor, field)
    return ArrayView(
        address=address,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=dtype,
        kind=ArrayKind.TORCH,
        owner=tensor,
    )


def _view_dlpack(array: Any, field: str, taken: Sequence[str]) -> ArrayView:
    place: Any = array.__dlpack_device__()
    if not hasattr(place, "__len__") or len(place) != 2:
        raise InvalidDevice(
            field=field,
            got=f"{place!r:.80} of {type(array).__name__}.__dlpack_device__()",
            expected="two numbers: (1, 0) for the CPU",
            remedy="convert it, for example with numpy.asarray",
        )
    device = place[0]
    if int(device) != 1:
        raise InvalidDevice(
            field=field, got=f"DLPack device {int(device)}", expected="1 (CPU)", remedy="copy it to the CPU"
        )
    try:
        found = _view_numpy(np.from_dlpack(array), field, taken)
    except (BufferError, TypeError, RuntimeError) as error:
        raise InvalidDType(
            field=field, got=type(array).__name__, expected="elements that NumPy can view", remedy=str(error)[:200]
        ) from error
    return found


def _bytes_at(address: int, count: int) -> Any:
    import ctypes

    return (ctypes.c_uint8 * count).from_address(address)


_TORCH_NAMES: Final = {
    DType.F64: "float64",
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.I64: "int64",
    DType.I32: "int32",
    DType.I8: "int8",
    DType.U8: "uint8",
    DType.BOOL: "bool",
}
# What programs move, in the order of `tracea_dtype` in launcher.h; the element types of device kernels are more.
DTYPE_CODES: Final = {dtype: code for code, dtype in enumerate(_TORCH_NAMES)}
_TAKEN: Final = tuple(known.value for known in DTYPE_CODES)
_by_torch_dtype: dict[Any, DType] = {}


def _torch_dtypes(torch: Any) -> dict[Any, DType]:
    if not _by_torch_dtype:
        _by_torch_dtype.update({getattr(torch, name): dtype for dtype, name in _TORCH_NAMES.items()})
    return _by_torch_dtype
