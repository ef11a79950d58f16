"""Rows of an image as one row: which convolutions are folded so, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conv_cases import rows_apart

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import TensorType
from tracea.errors import TraceaError
from tracea.kernels.arguments import arguments, buffer_types
from tracea.kernels.conv.folding import fold_rows, folded_like
from tracea.kernels.registry import find
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

XEON = replace(load("avx512"), cores=2)


def pointwise(channels: int, size: tuple[int, int], filters: int, *, images: int = 1, last: bool = True) -> Conv2dOp:
    kernel = {"kernel": (1, 1), "padding": (0, 0), "batch": images, "channels_last": last}
    return Conv2dOp.of(channels=channels, size=size, filters=filters, bias=True, residual=True, **kernel)  # type: ignore[arg-type]


def built(op: Conv2dOp) -> TileKernel:
    variant = find("conv.prepacked")
    assert variant.build is not None
    assert variant.default_schedule is not None
    return variant.build(op, variant.default_schedule(op, XEON), XEON)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (pointwise(512, (7, 7), 2048), (1, 49)),  # four tiles of 14 pixels, not seven of 7
        (pointwise(512, (7, 7), 2048, last=False), (1, 49)),
        (pointwise(64, (56, 56), 256), (56, 56)),  # tiles fit
        (pointwise(512, (14, 14), 256), (14, 14)),
        (pointwise(512, (7, 7), 48), (7, 7)),  # rows are tasks: there are not filters enough for two
        (Conv2dOp.of(channels=64, size=(7, 7), filters=64, kernel=(3, 3), padding=(1, 1)), (7, 7)),
        (rows_apart(512, (7, 7), 2048), (7, 7)),
    ],
)
def test_rows_are_one_where_tiles_then_fit(op: Conv2dOp, shape: tuple[int, int]) -> None:
    kernel = built(op)
    assert isinstance(kernel.op, Conv2dOp)
    assert kernel.op.shape[2:] == shape


def test_what_is_the_same_for_a_row_or_a_column_is_not_folded() -> None:
    plain = Conv2dOp.of(channels=4, size=(6, 5), filters=8, kernel=(1, 1), channels_last=True)
    for shape, folds in (
        ((8, 1, 1), True),
        ((), True),
        ((6, 5), True),
        ((1, 8, 6, 5), True),
        ((6, 1), False),
        ((5,), False),
    ):
        op = replace(plain, epilogue=Epilogue(Input(0) + Input(1), (TensorType(shape, DType.F32),)))
        found = fold_rows(op, 3)
        assert (found is not None) == folds
        if found is not None:
            assert found.shape == (1, 8, 2, 15)
            assert found.epilogue.operands[0].elements == op.epilogue.operands[0].elements
    assert fold_rows(plain, 4) is None  # of 6 rows


def test_a_folded_kernel_serves_others_with_as_many_rows_as_one() -> None:
    kernel = built(pointwise(512, (7, 7), 2048))
    for images, channels in ((1, 512), (3, 80)):
        op = pointwise(channels, (7, 7), 2048, images=images)
        assert isinstance(kernel.op, Conv2dOp)
        assert folded_like(op, kernel.op).shape[2:] == (1, 49)
        found = arguments(kernel, op)
        assert (found["images"], found["c"], found["p"], found["q"]) == (images, channels, 1, 49)
        assert buffer_types(kernel, op)["y"].static_shape[2:4] == (1, 49)


@pytest.mark.parametrize("op", [rows_apart(512, (7, 7), 2048), pointwise(512, (14, 7), 2048)])
def test_a_folded_kernel_refuses_other_rows(op: Conv2dOp) -> None:
    with pytest.raises(TraceaError):
        arguments(built(pointwise(512, (7, 7), 2048)), op)


@pytest.mark.costly
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("size", [(7, 7), (3, 5), (8, 8), (2, 9), (13, 13), (19, 19)])
def test_folded_convolutions_compute_what_they_say(size: tuple[int, int], last: bool, rng: np.random.Generator) -> None:
    images, channels, filters = 2, 37, 70

    def image(depth: int) -> np.ndarray:
        made = rng.standard_normal((images, *size, depth)) if last else rng.standard_normal((images, depth, *size))
        made = made.astype(np.float32)
        return made.transpose(0, 3, 1, 2) if last else made

    x, w, bias, residual = image(channels), rng.standard_normal((filters, channels, 1, 1)), None, image(filters)
    w, bias = w.astype(np.float32), rng.standard_normal(filters).astype(np.float32)
    result = tracea.ops.conv2d(x, w, bias=bias, residual=residual, activation="relu")
    products = np.einsum("nchw,kc->nkhw", x.astype(np.float64), w[:, :, 0, 0].astype(np.float64))
    wanted = np.maximum(products + bias[:, None, None], 0.0) + residual
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-4)
