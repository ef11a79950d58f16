"""A prepacked weight multiplies as the weight did when it was packed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import assert_meaning, poisoned, strided, type_of

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import Epilogue, GemmOp
from tracea.errors import InvalidDType, InvalidShape

FLOATS = (DType.F32, DType.F64, DType.BF16, DType.F16)
PACKED = "give the array that it was packed from"


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", drawn(2, FLOATS, of="heights"), ids=lambda dtype: dtype.value)
def test_products_of_several_heights(rng, kind, dtype):
    w = strided(rng, kind, dtype, (40, 50), ("rows", "columns", "gaps")[rng.integers(3)])
    weight = tracea.ops.prepack(w)
    assert weight.shape == (40, 50)
    for rows in (1, 3, 17):
        a = strided(rng, kind, dtype, (rows, 40), "rows")
        bias, residual = strided(rng, kind, dtype, (50,), "rows"), strided(rng, kind, dtype, (rows, 50), "rows")
        out = poisoned(kind, dtype, (rows, 50))
        found = tracea.ops.gemm(a, weight, bias=bias, activation="gelu", residual=residual, alpha=0.5, out=out)
        assert found is out
        epilogue = Epilogue.of(alpha=0.5, bias=type_of(bias), activation="gelu", residual=type_of(residual))
        op = GemmOp(m=rows, n=50, k=40, a=type_of(a), b=type_of(w), epilogue=epilogue)
        assert_meaning(found, op, a, w, bias, residual)


def test_leading_axes_of_the_left_operand(rng):
    a, w = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((2, 3, 5, 8), (8, 9)))
    torch.testing.assert_close(tracea.ops.gemm(a, tracea.ops.prepack(w)), a @ w)


@pytest.mark.parametrize(("shape", "n"), [((2, 16, 16), 64), ((2, 32, 7), 100), ((2, 2, 129, 32), 100)])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_a_batch_of_any_weight(rng, shape, n, order):
    a, w = (strided(rng, "torch", DType.F32, size, o) for size, o in ((shape, "rows"), ((shape[-1], n), order)))
    torch.testing.assert_close(tracea.ops.gemm(a, tracea.ops.prepack(w)), a @ w)


def test_the_values_are_frozen(rng):
    a, w = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((4, 8), (8, 9)))
    expected = a @ w
    weight = tracea.ops.prepack(w)
    w.zero_()
    torch.testing.assert_close(tracea.ops.gemm(a, weight), expected)
    torch.testing.assert_close(tracea.ops.gemm(a[:2], weight), expected[:2])


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("dtype", drawn(2, FLOATS, of="chains"), ids=lambda dtype: dtype.value)
def test_a_fused_chain_multiplies_by_it(rng, kind, dtype):
    w = strided(rng, kind, dtype, (40, 50), "columns")
    weight, block = tracea.ops.prepack(w), tracea.ops.fuse(["gemm", "add", "gelu", "mul"])
    expr = activation("gelu").substitute({0: Input(0) + Input(1)}) * Input(2)
    for shape in ((1, 40), (17, 40), (17, 40), (2, 3, 40)):
        a = strided(rng, kind, dtype, shape, "rows")
        bias, factor = strided(rng, kind, dtype, (50,), "rows"), strided(rng, kind, dtype, (shape[-2], 50), "rows")
        out = poisoned(kind, dtype, (*shape[:-1], 50))
        assert block(a, weight, bias, factor, out=out) is out
        epilogue = Epilogue(expr, (type_of(bias), type_of(factor)))
        op = GemmOp(
            m=shape[-2], n=50, k=40, batch=shape[:-2], a=type_of(a), b=type_of(w), epilogue=epilogue, out=type_of(out)
        )
        assert_meaning(out, op, a, w, bias, factor)
    (dispatch,) = weight.dispatchers.values()
    assert dispatch.statistics() == {"entries": 3, "hits": 1, "misses": 3}


def test_a_fused_chain_keeps_the_values_and_is_another_for_each_weight(rng):
    a, w = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((4, 8), (8, 9)))
    block, expected = tracea.ops.fuse(["gemm", "relu"]), (a @ w).relu()
    weight, other = tracea.ops.prepack(w), tracea.ops.prepack(-w)
    torch.testing.assert_close(block(a, other), (a @ -w).relu())
    w.zero_()
    torch.testing.assert_close(block(a, weight), expected)


@pytest.mark.parametrize(
    ("call", "error", "remedy"),
    [
        (lambda w: tracea.ops.gemm(torch.ones(8), w), InvalidShape, r"a\[None, :\]$"),
        (lambda w: tracea.ops.fuse(["gemm", "relu"])(torch.ones(8), w), InvalidShape, r"\(…, m, k\)"),
        (lambda w: tracea.ops.fuse(["gemm"])(torch.ones(2, 8).double(), w), InvalidDType, "cast one of them"),
        (lambda w: tracea.ops.fuse(["gemm"])(torch.ones(2, 7), w), InvalidShape, "a is batch"),
        (lambda w: tracea.ops.fuse(["gemm", "add"])(torch.ones(2, 8), w, np.ones(9)), InvalidDType, "from_numpy"),
        (lambda w: tracea.ops.fuse(["gemm", "add"])(torch.ones(2, 8), torch.ones(8, 9), w), InvalidDType, PACKED),
        (tracea.ops.fuse(["relu"]), InvalidDType, PACKED),
        (tracea.ops.prepack, InvalidDType, PACKED),
        (lambda w: tracea.ops.gemm(torch.ones(8, 8), w, bias=w), InvalidDType, PACKED),
        (lambda w: tracea.ops.gemm(torch.ones(8, 8), torch.ones(8, 9), residual=w), InvalidDType, PACKED),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(call, error, remedy):
    with pytest.raises(error, match=remedy):
        call(tracea.ops.prepack(torch.ones(8, 9)))


def test_the_weight_of_a_linear_layer(rng):
    layer = torch.nn.Linear(16, 24)
    x = strided(rng, "torch", DType.F32, (4, 16), "rows")
    with torch.no_grad():
        weight = tracea.ops.prepack(layer.weight.t())
        torch.testing.assert_close(tracea.ops.gemm(x, weight, bias=layer.bias), layer(x))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_a_weight_without_elements(shape):
    weight = tracea.ops.prepack(torch.ones(shape))
    found = tracea.ops.gemm(torch.ones(3, shape[0]), weight)
    assert found.shape == (3, shape[1])
    assert found.eq(0).all()


def test_a_weight_is_freed(rng):
    weight = tracea.ops.prepack(strided(rng, "numpy", DType.F32, (16, 16), "rows"))
    tracea.ops.gemm(np.ones((2, 16), np.float32), weight)
    memory = weakref.ref(weight.values)
    del weight
    gc.collect()
    assert memory() is None
