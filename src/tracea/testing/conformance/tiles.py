"""TMA: boxes of 1 to 5 axes in every swizzle mode, inside, across and outside of the tensor's borders; stores."""

from __future__ import annotations

from itertools import product
from typing import Any, Final, Literal

import numpy as np

from tracea.core.dtype import DType
from tracea.emitters.cuda.primitives import sm_of
from tracea.emitters.kernel_source import TensorMapSpec
from tracea.semantic.index import Const
from tracea.semantic.swizzle import Swizzle
from tracea.testing.conformance.case import ConformanceCase
from tracea.testing.conformance.source import IN, OUT, kernel

__all__ = ["swizzled", "tile_cases"]

Array = np.ndarray[Any, Any]
Mode = Literal[0, 32, 64, 128]

# Shapes slowest first, boxes, and where the boxes are taken: inside, over the far border, before the first element.
_SHAPES: Final = {
    1: ((200,), (32,), ((64,), (184,), (-8,))),
    2: ((40, 72), (16, 16), ((8, 16), (32, 64), (-3, -5))),
    3: ((5, 12, 40), (2, 4, 16), ((1, 4, 8), (4, 10, 32), (-1, -2, -8))),
    4: ((3, 4, 6, 32), (2, 2, 3, 16), ((1, 1, 2, 16), (2, 3, 4, 24), (-1, -1, -1, -1))),
    5: ((2, 3, 2, 4, 32), (1, 2, 2, 2, 16), ((1, 1, 0, 2, 8), (1, 2, 1, 3, 24), (0, -1, -1, -1, -2))),
}
_MODES: Final[tuple[Mode, ...]] = (0, 32, 64, 128)


def tile_cases(architecture: str) -> tuple[ConformanceCase, ...]:
    """Return the cases of the copy engine; none before sm_90."""
    if sm_of(architecture)[0] < 90:
        return ()
    loads = [_load(rank, mode, architecture) for rank, mode in product(_SHAPES, _MODES)]
    return (*loads, *(_store(mode, architecture) for mode in _MODES))


def swizzled(offsets: Array, mode: Mode) -> Array:
    """Return where a swizzle mode puts the bytes at these offsets from an aligned address."""
    bits = {32: 1, 64: 2, 128: 3}.get(mode)
    return offsets if bits is None else Swizzle(bits, 4, 3).apply(offsets)


def _elements(rank: int, mode: Mode) -> tuple[DType, Any]:
    """Return an element type with which a row of the box has at most the swizzle's bytes."""
    row = _SHAPES[rank][1][-1]
    return (
        (DType.F32, np.uint32)
        if mode == 0 or 4 * row <= mode
        else (DType.F16, np.uint16)
        if 2 * row <= mode
        else (DType.U8, np.uint8)
    )


def _strides(shape: tuple[int, ...]) -> tuple[Const, ...]:
    return tuple(Const(int(np.prod(shape[axis + 1 :], dtype=np.int64))) for axis in range(len(shape)))


def _box(tensor: Array, box: tuple[int, ...], corner: tuple[int, ...]) -> Array:
    """Return the box at a corner, zeros outside of the tensor."""
    padded = np.pad(tensor, [(64, 64)] * tensor.ndim) if tensor.ndim < 3 else np.pad(tensor, [(s, s) for s in box])
    origin = [64] * tensor.ndim if tensor.ndim < 3 else list(box)
    return padded[tuple(slice(o + c, o + c + b) for o, c, b in zip(origin, corner, box, strict=True))]


def _load(rank: int, mode: Mode, architecture: str) -> ConformanceCase:
    shape, box, corners = _SHAPES[rank]
    if rank == 1 and mode:
        box = (16,)
    dtype, bits = _elements(rank, mode)
    size = dtype.nbytes
    tensor = (np.arange(np.prod(shape), dtype=np.uint64) * 2654435761 + 1).astype(bits).reshape(shape)
    # Strides are multiples of 16 bytes for every size of element that _elements chooses.
    tile = int(np.prod(box)) * size
    slot = -(-tile // 1024) * 1024
    loads = "\n".join(
        f"        tma_load<{rank}>(base + {1024 + i * slot}, args.map, base, {', '.join(map(str, corner[::-1]))});"
        for i, corner in enumerate(corners)
    )
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    if (t == 0) {{
        prefetch_tensor_map(args.map);
        mbarrier_init(base, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(base, {tile * len(corners)});
{loads}
    }}
    sync_block();
    mbarrier_wait(base, 0);
    for (uint32_t i = t; i < {tile // 4}; i += 32) {{
        for (uint32_t j = 0; j < {len(corners)}; ++j) {{
            st_global<uint32_t>(args.c + j * {tile // 4} + i, ld_shared<uint32_t>(base + 1024 + j * {slot} + 4 * i));
        }}
    }}
"""
    images: list[Array] = []
    for corner in corners:
        image = np.zeros(tile, np.uint8)
        image[swizzled(np.arange(tile), mode)] = (
            np.ascontiguousarray(_box(tensor, box, corner)).view(np.uint8).reshape(-1)
        )
        images.append(image)
    spec = TensorMapSpec(
        name="map",
        buffer="a",
        dtype=dtype,
        shape=tuple(Const(extent) for extent in shape),
        strides=_strides(shape),
        box=box,
        swizzle_bytes=mode,
    )
    return ConformanceCase(
        name=f"tma_load<{rank}> swizzle {mode}",
        source=kernel(
            body,
            pointers={"c": (DType.I32, OUT)},
            mapped={"a": (dtype, IN)},
            maps=(spec,),
            shared_bytes=1024 + len(corners) * slot,
            isa=architecture,
            name=f"tile_load_{rank}_{mode}",
        ),
        inputs={"a": tensor.view(dtype.numpy)},
        expected={"c": np.concatenate(images).view(np.int32)},
    )


def _store(mode: Mode, architecture: str) -> ConformanceCase:
    box = (8, 16)
    dtype, bits = (DType.F32, np.uint32) if mode in {0, 64, 128} else (DType.F16, np.uint16)
    rows, columns = 20, 40
    tile = box[0] * box[1] * dtype.nbytes
    # Disjoint: nothing orders the writes of two stores under way.
    corners = ((4, 8), (16, 32), (-4, -5), (12, 16))
    body = f"""
    const uint32_t t = thread_index();
    const uint32_t base = shared_base();
    for (uint32_t i = t; i < {4 * 1024 // 4}; i += 64) {{
        st_shared<uint32_t>(base + 4 * i, ld_global<uint32_t>(args.a + i));
    }}
    fence_proxy_async();
    sync_block();
    if (t == 0) {{
        tma_store_2d(args.map, base, {corners[0][1]}, {corners[0][0]});
        tma_store_2d(args.map, base + 1024, {corners[1][1]}, {corners[1][0]});
        tma_store_commit();
        tma_store_2d(args.map, base + 2048, {corners[2][1]}, {corners[2][0]});
        tma_store_commit();
        tma_store_wait_read<1>();
        tma_store_2d(args.map, base + 3072, {corners[3][1]}, {corners[3][0]});
        tma_store_commit();
        tma_store_wait<0>();
    }}
"""
    image = (np.arange(1024, dtype=np.uint32) * np.uint32(2654435761)).view(np.uint8)
    result = np.zeros((rows + 16, columns + 32), bits)
    for i, (row, column) in enumerate(corners):
        part = image[1024 * i + swizzled(np.arange(tile), mode)].view(bits).reshape(box)
        result[8 + row : 8 + row + box[0], 16 + column : 16 + column + box[1]] = part
    spec = TensorMapSpec(
        name="map",
        buffer="c",
        dtype=dtype,
        shape=(Const(rows), Const(columns)),
        strides=(Const(columns), Const(1)),
        box=box,
        swizzle_bytes=mode,
    )
    return ConformanceCase(
        name=f"tma_store_2d swizzle {mode}",
        source=kernel(
            body,
            pointers={"a": (DType.I32, IN)},
            mapped={"c": (dtype, OUT)},
            maps=(spec,),
            threads=64,
            shared_bytes=4096,
            isa=architecture,
            name=f"tile_store_{mode}",
        ),
        inputs={"a": image.view(np.int32)},
        expected={"c": np.ascontiguousarray(result[8 : 8 + rows, 16 : 16 + columns]).view(dtype.numpy)},
        zeroed=("c",),
    )
