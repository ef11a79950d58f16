"""How tensor types become buffers: runtime sizes and strides as parameters, known strides of 0 and 1 as constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, Dim, TensorType
from tracea.errors import InvalidDType, InvalidShape, InvalidStride
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Param
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["bind", "params_of", "scratch", "tensor_buffer", "vector_lanes", "window"]


def tensor_buffer(
    name: str,
    type_: TensorType,
    shape: Sequence[Index],
    dims: Sequence[Dim],
    role: BufferRole,
    *,
    unit_axis: int | None = None,
    spread: Collection[int] = (),
) -> Buffer:
    """Return the buffer of a tensor that broadcasts to ``shape``, with an axis for each of the shape's.

    ``dims`` are the op's own extents of ``shape``; along the axes ``spread`` the tensor broadcasts whatever these are,
    also where they are 1. A broadcast axis has stride 0, and the contiguous one of the last two axes has stride 1
    (``unit_axis`` says which, counted from the end, where a kernel depends on it): these are promises that
    :func:`bind` checks. Every other stride is a parameter named ``<buffer>_stride<axis>``.
    """
    if isinstance(type_.layout, BlockedLayout):
        raise InvalidStride(field=name, got=str(type_), expected="a strided layout", remedy="unpack the tensor first")
    missing = len(shape) - type_.rank
    unit = _unit_axis(type_) if unit_axis is None else unit_axis + type_.rank
    sizes: list[Index] = []
    strides: list[Index] = []
    for axis, (size, dim) in enumerate(zip(shape, dims, strict=True)):
        own = axis - missing
        broadcast = own < 0 or axis in spread or (type_.shape[own] == 1 and dim != 1)
        sizes.append(Const(1) if broadcast else size)
        strides.append(Const(0) if broadcast else Const(1) if own == unit else Param(f"{name}_stride{axis}"))
    return Buffer(
        name=name, dtype=type_.dtype, space=MemorySpace.GLOBAL, shape=tuple(sizes), strides=tuple(strides), role=role
    )


def _unit_axis(type_: TensorType) -> int | None:
    # The contiguous axis: the last one if it can be, else the one before it (a transpose), else none. One element fits
    # any stride.
    for axis in (type_.rank - 1, type_.rank - 2):
        if axis >= 0 and (type_.shape[axis] == 1 or _stride(type_, axis) == 1):
            return axis
    return None


def _stride(type_: TensorType, axis: int) -> int | None:
    # A row-major type with symbolic extents has no numbers for its outer strides, and its last stride is 1.
    if type_.layout is None and not type_.is_static:
        return 1 if axis == type_.rank - 1 else None
    return type_.strides[axis]


def window(buffer: Buffer, offset: Sequence[Index], extent: Sequence[Index]) -> Region:
    """Return a rectangle of a buffer of :func:`tensor_buffer`; the one element of an axis of extent 1."""
    single = [size == Const(1) for size in buffer.shape]
    return buffer.region(
        tuple(Const(0) if one else first for one, first in zip(single, offset, strict=True)),
        tuple(Const(1) if one else size for one, size in zip(single, extent, strict=True)),
    )


def scratch(name: str, dtype: DType, space: MemorySpace, *shape: Index | int) -> Buffer:
    """Return a row-major scratch buffer."""
    return Buffer(name=name, dtype=dtype, space=space, shape=tuple(shape), role=BufferRole.SCRATCH)  # pyright: ignore[reportArgumentType]


def params_of(buffers: Sequence[Buffer]) -> tuple[Param, ...]:
    """Return the parameters that the sizes and strides of buffers are made of, each once, in order of appearance."""
    found: dict[str, Param] = {}
    for buffer in buffers:
        for index in (*buffer.shape, *(buffer.strides or ())):
            for param in _params(index):
                found.setdefault(param.name, param)
    return tuple(found.values())


def _params(index: Index) -> tuple[Param, ...]:
    if isinstance(index, Param):
        return (index,)
    return tuple(param for part in index.parts for param in _params(part))


_PLAIN_VECTOR_BYTES = 64  # vec_plain.h: arrays as long as the longest registers


def vector_lanes(target: Target, dtype: DType) -> int:
    """Return how many elements a vector of the headers holds on this target."""
    return (_PLAIN_VECTOR_BYTES if target.isa == "plain" else target.vector_bytes) // dtype.nbytes


@dataclass(slots=True)
class _Binding:
    values: dict[str, int]

    def unify(self, kernel: TileKernel, what: str, index: Index, value: int) -> None:
        match index:
            case Param(name=name, minimum=minimum, maximum=maximum):
                known = self.values.setdefault(name, value)
                if known != value or not minimum <= value <= maximum:
                    raise InvalidShape(
                        field=f"{kernel.name}: {what}",
                        got=value,
                        expected=known if known != value else f"{minimum} <= {name} <= {maximum}",
                        remedy="pass tensors of agreeing sizes"
                        if known != value
                        else "cut the tensor into parts of that size; copy one whose strides are beyond it",
                    )
            case Const(value=wanted) if wanted != value:
                raise InvalidStride(
                    field=f"{kernel.name}: {what}",
                    got=value,
                    expected=wanted,
                    remedy="build the kernel for this layout, or copy the tensor into the layout that it was built for",
                )
            case _:
                pass


def bind(kernel: TileKernel, types: Mapping[str, TensorType], given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the value of each parameter of ``kernel`` for tensors of these types, by buffer name.

    ``given`` are the parameters that no tensor says.

    Raises:
        InvalidShape: two tensors disagree about a size, or a stride is out of a parameter's range.
        InvalidStride: a tensor does not have the stride that the kernel was built for.
        InvalidDType: a tensor has other elements than the kernel was built for.
    """
    binding = _Binding(dict(given or {}))
    tensors = [
        (buffer, types[buffer.name])
        for buffer in kernel.buffers
        if buffer.role is not BufferRole.SCRATCH and buffer.name in types
    ]
    for buffer, type_ in tensors:
        _bind_tensor(binding, kernel, buffer, type_)
    unbound = [param.name for param in kernel.params if param.name not in binding.values]
    # A stride that no element uses (its axis has one element in every tensor) may be anything; a size may not.
    binding.values |= {name: 0 for name in unbound if "_stride" in name}
    missing = [name for name in unbound if "_stride" not in name]
    if missing:
        raise InvalidShape(
            field=kernel.name,
            got=sorted(types),
            expected=missing,
            remedy="pass the type of every buffer that has a size",
        )
    for buffer, type_ in tensors:
        _check_strides(binding, kernel, buffer, type_)
    return binding.values


def _check_strides(binding: _Binding, kernel: TileKernel, buffer: Buffer, type_: TensorType) -> None:
    """Check the strides that follow from others, which all have their values now."""
    if buffer.strides is None:
        return
    extra = buffer.rank - type_.rank
    for axis, (dim, stride) in enumerate(zip(type_.static_shape, type_.strides, strict=True)):
        index = buffer.strides[axis + extra]
        if dim > 1 and not isinstance(index, Param) and index.evaluate(binding.values) != stride:
            raise InvalidStride(
                field=f"{kernel.name}: {buffer.name}.stride[{axis}]",
                got=stride,
                expected=f"{index} = {index.evaluate(binding.values)}",
                remedy="build the kernel for this layout, or copy the tensor into the layout that it was built for",
            )


def _bind_tensor(binding: _Binding, kernel: TileKernel, buffer: Buffer, type_: TensorType) -> None:
    if type_.dtype is not buffer.dtype:
        raise InvalidDType(
            field=f"{kernel.name}: {buffer.name}",
            got=type_.dtype.value,
            expected=buffer.dtype.value,
            remedy="build the kernel for this element type, or cast the tensor",
        )
    extra = buffer.rank - type_.rank
    if extra < 0:
        raise InvalidShape(
            field=f"{kernel.name}: {buffer.name}",
            got=type_.rank,
            expected=f"rank {buffer.rank}",
            remedy="pass its tensor",
        )
    strides = buffer.element_strides
    for axis, (dim, stride) in enumerate(zip(type_.static_shape, type_.strides, strict=True)):
        size, step = buffer.shape[axis + extra], strides[axis + extra]
        binding.unify(kernel, f"{buffer.name}.shape[{axis}]", size, dim)
        if dim > 1 and buffer.strides is not None:
            binding.unify(kernel, f"{buffer.name}.stride[{axis}]", step, stride)
