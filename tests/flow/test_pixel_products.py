"""Tests for tracea.flow.pixel_products: convolutions of one tap over images in rows as products, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.interface.accuracy import assert_meaning, strided, type_of, values

import tracea
from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.pixel_products import product_of

F32 = DType.F32
AVX512, AVX2 = (targets.load(name) for name in ("avx512", "avx2"))


def op_of(n: int, c: int, k: int, h: int, w: int, **numbers: object) -> Conv2dOp:
    return Conv2dOp(x=TensorType((n, c, h, w), F32), w=TensorType((k, c, 1, 1), F32), **numbers)  # type: ignore[arg-type]


def test_the_operands_are_the_filters_the_pixels_and_what_the_epilogue_takes() -> None:
    bias, residual = TensorType((6, 1, 1), F32), TensorType((6, 5, 7), F32)
    op = replace(op_of(1, 9, 6, 5, 7), epilogue=Epilogue.of(bias=bias, activation="relu", residual=residual))
    product = product_of(op, AVX512)
    assert product is not None
    assert (product.m, product.n, product.k, product.batch) == (6, 35, 9, ())
    assert [type_.static_shape for type_ in product.operands] == [(6, 9), (9, 35), (6, 1), (6, 35)]
    several = product_of(replace(op, x=TensorType((3, 9, 5, 7), F32)), AVX512)
    assert several is not None
    assert (several.batch, several.a.static_shape, several.b.static_shape) == ((3,), (6, 9), (3, 9, 35))


def test_what_is_no_product_stays_a_convolution() -> None:
    plain = op_of(2, 9, 6, 5, 7)
    last = StridedLayout((315, 1, 63, 9))
    gaps = StridedLayout((360, 40, 8, 1))  # a row ends before the next one begins
    across = Epilogue.of(bias=TensorType((6, 1, 7), F32))  # each column its own, in all rows
    others = (
        replace(plain, stride=(1, 2)),
        replace(plain, padding=(1, 0)),
        replace(plain, w=TensorType((6, 9, 3, 1), F32)),
        replace(plain, w=TensorType((6, 3, 1, 1), F32), groups=3),
        replace(plain, x=TensorType((2, 9, 5, 7), F32, last)),
        replace(plain, x=TensorType((2, 9, 5, 7), F32, gaps)),
        replace(plain, out=TensorType((2, 6, 5, 7), F32, StridedLayout((210, 1, 42, 6)))),
        replace(plain, epilogue=across),
        replace(plain, x=TensorType((0, 9, 5, 7), F32)),
    )
    assert product_of(plain, AVX512) is not None
    assert [product_of(op, AVX512) for op in others] == [None] * len(others)


def test_a_target_takes_it_where_it_was_measured() -> None:
    few, more = op_of(1, 3, 64, 20, 20), op_of(1, 8, 64, 20, 20)
    tiles = replace(AVX512, features=AVX512.features | {"amx_tile", "amx_bf16"})
    assert [product_of(op, AVX512) is None for op in (few, more)] == [False, False]
    assert [product_of(op, AVX2) is None for op in (few, more)] == [True, False]
    assert [product_of(more, target) for target in (tiles, targets.load("neon"))] == [None, None]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
@pytest.mark.parametrize("images", [1, 3])
def test_results_are_those_of_float64(dtype: DType, images: int, rng: np.random.Generator) -> None:
    x, w = strided(rng, "torch", dtype, (images, 19, 5, 7), "rows"), strided(rng, "torch", dtype, (6, 19, 1, 1), "rows")
    bias, residual = (strided(rng, "torch", dtype, shape, "rows") for shape in ((6,), (images, 6, 5, 7)))
    found = tracea.ops.conv2d(x, w, bias, activation="silu", residual=residual)
    epilogue = Epilogue.of(bias=TensorType((6, 1, 1), dtype), activation="silu", residual=type_of(residual))
    op = Conv2dOp(x=type_of(x), w=type_of(w), epilogue=epilogue, out=type_of(found))
    assert_meaning(found, op, x, w, values(bias).reshape(-1, 1, 1), residual)
    with tracea.ops.library(False):
        ours = tracea.ops.conv2d(x, w, bias, activation="silu", residual=residual)
    assert_meaning(ours, op, x, w, values(bias).reshape(-1, 1, 1), residual)


def test_what_is_not_finite_reaches_its_own_pixel_only(rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 9, 5, 7), (20, 9, 1, 1)))
    x[1, 3, 2, 4] = np.inf
    y = tracea.ops.conv2d(x, w)
    infinite = ~np.isfinite(y)
    assert infinite[1, :, 2, 4].all()
    assert infinite.sum() == 20


@pytest.mark.parametrize("shape", [(2, 5, 3, 4, 6), (1, 5, 3, 1, 6)])
def test_planes_of_a_volume_are_one_axis_too(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x, w = rng.standard_normal(shape), rng.standard_normal((4, 5, 1, 1, 1))
    residual = rng.standard_normal((shape[0], 4, *shape[2:]))
    for image in (x, x[:, :, ::1, :, ::2][..., :2], np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)):
        extra = residual[..., : image.shape[-1]]
        expected = np.einsum("ncdhw,kc->nkdhw", image, w[:, :, 0, 0, 0]) + extra
        found = tracea.ops.conv3d(image, w, residual=extra)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("taps", [1, 5])
def test_an_image_of_one_column_is_convolved_as_a_row(taps: int, rng: np.random.Generator) -> None:
    x, w = strided(rng, "torch", F32, (2, 9, 23, 1), "rows"), strided(rng, "torch", F32, (6, 9, taps, 1), "rows")
    bias, residual = (strided(rng, "torch", F32, shape, "rows") for shape in ((6,), (2, 6, 24 - taps, 1)))
    found = tracea.ops.conv2d(x, w, bias, activation="relu", residual=residual)
    epilogue = Epilogue.of(bias=TensorType((6, 1, 1), F32), activation="relu", residual=type_of(residual))
    op = Conv2dOp(x=type_of(x), w=type_of(w), epilogue=epilogue, out=type_of(found))
    assert_meaning(found, op, x, w, values(bias).reshape(-1, 1, 1), residual)
    laid = tracea.ops.conv2d(x.mT, w.mT, bias, activation="relu", residual=residual.mT)
    assert bool((laid.mT == found).all())
