"""CPU convolution (NHWC) with a halo buffer: a task copies padded input rows once, then all taps read them in place."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from objects.declare import argument, scratch, variables
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.semantic.index import Param, ceil_div, minimum
from tracea.semantic.nodes import CopyTile, EpilogueCall, For, Intrinsic, Let, Level, MicroKernel, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel

__all__ = ["arguments", "build", "expected"]

IMAGES = Param("images", 1)
H, W, OH, OW = (Param(name, 1, 2**16) for name in ("h", "w", "oh", "ow"))
C, CO = Param("c", 1, 2**20), Param("co", 1, 2**20)
R, S = Param("r", 1, 2**10), Param("s", 1, 2**10)


def build(*, rows: int = 3, pixels: int = 4, panel: int = 4, stride: int = 2, pad: int = 1) -> TileKernel:
    """Return the kernel: ``rows`` of output a task, tiles of ``pixels`` by ``panel`` channels."""
    f32 = DType.F32
    x = argument("x", f32, (IMAGES, H, W, C), BufferRole.INPUT)
    weights = argument("weights", f32, (ceil_div(CO, panel), R, S, C, panel), BufferRole.CONSTANT)
    bias = argument("bias", f32, (CO,), BufferRole.INPUT)
    y = argument("y", f32, (IMAGES, OH, OW, CO), BufferRole.OUTPUT)
    halo = scratch("halo", f32, MemorySpace.THREAD, (rows - 1) * stride + R, (OW - 1) * stride + S, C)
    task, image, top, height = variables("task image top height")
    line, pixel, width, channel, channels = variables("line pixel width channel channels")
    bands = ceil_div(OH, rows)
    taps = MicroKernel(
        intrinsic=Intrinsic(
            name="conv_tile",
            meaning=partial(window_product, stride=stride),
            source="definition",
            attributes=(
                ("window", 1),
                ("stride_rows", stride),
                ("stride_columns", stride),
                ("dilation_rows", 1),
                ("dilation_columns", 1),
                ("mr", pixels),
                ("nv", 1),
                ("nr", panel),
                ("unroll", 1),
            ),
        ),
        a=halo.region((line * stride, pixel * stride, 0), (R, (width - 1) * stride + S, C)),
        b=weights.region((channel // panel, 0, 0, 0, 0), (1, R, S, C, panel)),
        c=y.region((image, top + line, pixel, channel), (1, 1, width, channels)),
        epilogue=EpilogueCall(
            expr=activation("relu").substitute({0: Input(0) + Input(1)}),
            operands=(bias.region((channel,), (channels,)),),
        ),
    )
    tiles = For(
        var=channel,
        extent=CO,
        step=panel,
        length=channels,
        body=block(
            For(
                var=line,
                extent=height,
                body=block(For(var=pixel, extent=OW, step=pixels, length=width, body=block(taps))),
            )
        ),
    )
    body = Parallel(
        level=Level.TASK,
        var=task,
        extent=IMAGES * bands,
        body=block(
            Let(var=image, value=task // bands),
            Let(var=top, value=task % bands * rows),
            Let(var=height, value=minimum(rows, OH - top)),
            CopyTile(
                source=x.region(
                    (image, top * stride - pad, -pad, 0), (1, (height - 1) * stride + R, (OW - 1) * stride + S, C)
                ),
                target=halo.region((0, 0, 0), ((height - 1) * stride + R, (OW - 1) * stride + S, C)),
                masked=True,
            ),
            tiles,
        ),
    )
    return TileKernel(
        name="halo_conv",
        op=None,
        variant="conv2d.halo",
        schedule=Schedule(rows=rows, pixels=pixels, panel=panel, stride=stride, pad=pad),
        target="cpu",
        params=(IMAGES, H, W, C, R, S, CO, OH, OW),
        buffers=(x, weights, bias, y, halo),
        body=block(body),
    )


def window_product(a: Any, b: Any, *, stride: int) -> Any:
    """Return the tile of one output row: a is (R, columns, C), b is (R, S, C, channels)."""
    a = a.reshape((1,) * (3 - a.ndim) + a.shape)
    b = b.reshape((1,) * (4 - b.ndim) + b.shape)
    taps = b.shape[1]
    pixels = (a.shape[1] - taps) // stride + 1
    windows = np.stack([a[:, p * stride : p * stride + taps, :] for p in range(pixels)])
    return np.einsum("prsc,rscn->pn", windows, b)


def arguments(
    *,
    images: int = 2,
    size: tuple[int, int] = (9, 11),
    c: int = 3,
    taps: tuple[int, int] = (3, 3),
    co: int = 6,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays for stride 2 and padding 1, with the weights packed, and the parameters."""
    rng = np.random.default_rng(seed)
    (h, w), (r, s), panel, stride, pad = size, taps, 4, 2, 1
    oh, ow = (h + 2 * pad - r) // stride + 1, (w + 2 * pad - s) // stride + 1
    padded = np.zeros((r, s, c, -(-co // panel) * panel), dtype=np.float32)
    padded[..., :co] = rng.standard_normal((r, s, c, co), dtype=np.float32)
    arrays = {
        "x": rng.standard_normal((images, h, w, c), dtype=np.float32),
        "weights": np.ascontiguousarray(padded.reshape(r, s, c, -1, panel).transpose(3, 0, 1, 2, 4)),
        "bias": rng.standard_normal(co, dtype=np.float32),
        "y": np.zeros((images, oh, ow, co), dtype=np.float32),
    }
    return arrays, {"images": images, "h": h, "w": w, "c": c, "r": r, "s": s, "co": co, "oh": oh, "ow": ow}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    x, y, stride, pad = arrays["x"].astype(np.float64), arrays["y"], 2, 1
    packed = arrays["weights"].astype(np.float64)
    _, r, s, _, _ = packed.shape
    weights = packed.transpose(1, 2, 3, 0, 4).reshape(r, s, x.shape[3], -1)[..., : y.shape[3]]
    wide = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    result = np.zeros(y.shape)
    for i in range(y.shape[1]):
        for j in range(y.shape[2]):
            result[:, i, j] = np.einsum(
                "nrsc,rsco->no", wide[:, i * stride : i * stride + r, j * stride : j * stride + s], weights
            )
    return {"y": np.maximum(result + arrays["bias"], 0.0)}
