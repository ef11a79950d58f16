"""BoundLaunch: one launch of a kernel in numbers - the grid, the argument struct, the tensor maps.

Worked example: ``gemm.wgmma`` of 4096×4096×4096 takes two tensor maps, the pointer of C and the integers m, n, k and
ldc. ``bind`` evaluates the maps' shapes and strides, checks every address, and packs all of it into the one struct
that the kernel has for a parameter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.emitters.kernel_source import ArgumentField, GpuLaunch, KernelSource, TensorMapSpec
from tracea.errors import InvalidInput, InvalidOp, InvalidShape, InvalidStride

if TYPE_CHECKING:
    from tracea.core.dtype import DType

__all__ = ["TENSOR_MAP_BYTES", "BoundLaunch", "BoundTensorMap", "Encode", "bind", "blocks_of", "launch_of"]

TENSOR_MAP_BYTES: Final = 128
_INT64_END: Final = 1 << 63
_GRID_LIMIT: Final = (1 << 31) - 1  # CUDA C Programming Guide, table "Technical Specifications": grid x-dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTensorMap:
    """A tensor map in numbers, axes slowest first.

    Units: ``strides_bytes`` has one entry per axis but the last, whose elements are neighbours; ``box`` is elements.
    """

    name: str
    dtype: DType
    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


Encode: TypeAlias = Callable[[BoundTensorMap], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLaunch:
    """What the driver is given for one launch; ``zeroed`` are (address, bytes) that hold zeros when it begins."""

    blocks: int
    threads: int
    shared_bytes: int
    clusters: int
    arguments: bytes
    zeroed: tuple[tuple[int, int], ...]


def launch_of(source: KernelSource) -> GpuLaunch:
    """Return how a kernel is launched.

    Raises:
        InvalidOp: the text is not a GPU kernel.
    """
    if source.launch is None:
        raise InvalidOp(
            field=source.name, got=source.language, expected="a GPU kernel", remedy="emit it for a target such as sm_80"
        )
    return source.launch


def blocks_of(source: KernelSource, integers: Mapping[str, int]) -> int:
    """Return the number of blocks of a launch.

    Raises:
        InvalidShape: it is larger than the hardware's grid.
    """
    blocks = int(launch_of(source).blocks.evaluate(dict(integers)))
    if not 0 <= blocks <= _GRID_LIMIT:
        raise InvalidShape(
            field=f"blocks of {source.name}",
            got=blocks,
            expected=f"0 to {_GRID_LIMIT}",
            remedy="split the problem, or choose larger tiles",
        )
    return blocks


def bind(
    source: KernelSource,
    *,
    pointers: Mapping[str, int],
    integers: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    tables: Mapping[str, int] | None = None,
    workspace: Mapping[str, int] | None = None,
    encode: Encode,
) -> BoundLaunch:
    """Return one launch of ``source``.

    ``pointers``, ``tables`` and ``workspace`` are device addresses by name; ``encode`` turns a tensor map into the 128
    bytes that the copy engine reads.

    Raises:
        InvalidInput: an argument is missing; or is out of range.
        InvalidStride: an address or a stride is not a multiple of what the kernel needs.
        InvalidShape: the grid is larger than the hardware's.
    """
    launch = launch_of(source)
    _check_pointers(source, pointers)
    block_count = blocks_of(source, integers)
    grid = {"threads": launch.threads, "shared_bytes": launch.shared_bytes, "clusters": launch.clusters}
    if block_count == 0:  # an empty result may have extents that no tensor map can have
        return BoundLaunch(blocks=0, **grid, arguments=b"", zeroed=())
    addresses = {**pointers, **(workspace or {})}
    values: dict[str, dict[str, Any]] = {
        "pointer": addresses,
        "integer": dict(integers),
        "scalar": dict(scalars or {}),
        "table": dict(tables or {}),
        "tensor_map": {spec.name: encode(bind_map(spec, addresses, integers)) for spec in launch.tensor_maps},
    }
    arguments = bytearray(launch.argument_bytes)
    for field in launch.arguments:
        _pack(arguments, field, _value(source, values[field.kind], field))
    sizes = {name: int(nbytes.evaluate(dict(integers))) for name, nbytes in launch.workspace}
    return BoundLaunch(
        blocks=block_count,
        **grid,
        arguments=bytes(arguments),
        zeroed=tuple((addresses[name], sizes[name]) for name in launch.zeroed if sizes[name]),
    )


def bind_map(spec: TensorMapSpec, addresses: Mapping[str, int], integers: Mapping[str, int]) -> BoundTensorMap:
    """Return a tensor map in numbers.

    Raises:
        InvalidInput: its buffer has no address.
        InvalidStride: the address or a stride is not a multiple of 16 bytes, which the copy engine needs.
        InvalidShape: an extent or a stride is out of the engine's range.

    Source: CUDA Driver API, cuTensorMapEncodeTiled.
    """
    if spec.buffer not in addresses:
        raise InvalidInput(
            field=spec.name, got=None, expected=f"the address of {spec.buffer}", remedy="bind every buffer"
        )
    env = dict(integers)
    shape = tuple(int(extent.evaluate(env)) for extent in spec.shape)
    strides = tuple(int(stride.evaluate(env)) * spec.dtype.nbytes for stride in spec.strides[:-1])
    for what, value in (("address", addresses[spec.buffer]), *((f"stride {i}", s) for i, s in enumerate(strides))):
        if value % 16:
            raise InvalidStride(
                field=f"{what} of {spec.buffer}",
                got=f"{value} bytes",
                expected="a multiple of 16 bytes",
                remedy="align the rows, or use a variant without tensor maps",
            )
    if any(not 1 <= extent <= 1 << 32 for extent in shape) or any(not 0 <= stride < 1 << 40 for stride in strides):
        raise InvalidShape(
            field=f"tensor map of {spec.buffer}",
            got=f"shape {shape}, strides {strides} bytes",
            expected="extents of 1 to 2^32, strides below 2^40 bytes",
            remedy="use a variant without tensor maps",
        )
    return BoundTensorMap(
        name=spec.name,
        dtype=spec.dtype,
        address=addresses[spec.buffer],
        shape=shape,
        strides_bytes=strides,
        box=spec.box,
        swizzle_bytes=spec.swizzle_bytes,
    )


def _check_pointers(source: KernelSource, pointers: Mapping[str, int]) -> None:
    for parameter in source.pointers:
        address = pointers.get(parameter.name)
        if address is None:
            raise InvalidInput(
                field=f"{source.name}: {parameter.name}",
                got=None,
                expected="a device address",
                remedy=f"bind {', '.join(p.name for p in source.pointers)}",
            )
        if address % parameter.alignment_bytes:
            raise InvalidStride(
                field=f"address of {parameter.name}",
                got=f"{address:#x}",
                expected=f"a multiple of {parameter.alignment_bytes} bytes",
                remedy="pass an aligned tensor, or build the kernel for this alignment",
            )


def _value(source: KernelSource, values: Mapping[str, Any], field: ArgumentField) -> Any:
    if field.name not in values:
        raise InvalidInput(
            field=f"{source.name}: {field.name}",
            got=None,
            expected=f"a {field.kind.replace('_', ' ')}",
            remedy="bind every argument that the kernel names",
        )
    return values[field.name]


def _pack(target: bytearray, field: ArgumentField, value: Any) -> None:
    match field.kind:
        case "tensor_map":
            data = bytes(value)
        case "pointer" | "table":
            data = struct.pack("<Q", value)
        case "integer":
            if not -_INT64_END <= value < _INT64_END:
                raise InvalidInput(field=field.name, got=value, expected="an int64", remedy="give a smaller number")
            data = struct.pack("<q", value)
        case "scalar":
            data = struct.pack("<f", value)
    if len(data) != field.size_bytes:
        raise InvalidInput(
            field=field.name,
            got=f"{len(data)} bytes",
            expected=f"{field.size_bytes} bytes",
            remedy="emit and bind with one version of Tracea",
        )
    target[field.offset_bytes : field.offset_bytes + len(data)] = data
