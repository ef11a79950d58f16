"""Scalar expressions as CUDA: every function and activation compiles on a GPU, and means what its NumPy meaning says.

NVRTC declares ``::tanh(float)`` and its like, the emulator's compiler does not: a name that is left to a using
directive compiles here and nowhere else.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import (
    Binary,
    BinaryFunction,
    Cast,
    Constant,
    Expr,
    Input,
    Select,
    Unary,
    UnaryFunction,
    activation,
    activation_names,
)
from tracea.core.op import Epilogue
from tracea.core.ops.gemm import GemmOp
from tracea.emitters.cuda.expression import print_expression
from tracea.emitters.cuda.types import STORAGE
from tracea.emitters.kernel_source import KernelSource
from tracea.emitters.writer import Writer
from tracea.emulator import emulate
from tracea.flow.kernel import build, choose_for_gpu
from tracea.runtime.nvrtc import compile_cuda, missing
from tracea.targets.gpu import load_gpu
from tracea.testing.conformance.source import IN, OUT, kernel

compiles = pytest.mark.skipif(missing() is not None, reason=f"not checked: {missing()}")

X, Y = Input(0), Input(1)
POSITIVE = abs(X) + 0.25
_OF_POSITIVE = tuple(UnaryFunction(name) for name in ("log", "log2", "log10", "sqrt", "rsqrt"))
EXPRESSIONS: dict[str, Expr] = {
    **{f.value: Unary(f, POSITIVE if f in _OF_POSITIVE else X) for f in UnaryFunction},
    **{f.value: Binary(f, POSITIVE if f is BinaryFunction.POW else X, Y) for f in BinaryFunction},
    **{f"round to {dtype.value}": Cast(X * 100.0, dtype) for dtype in STORAGE if dtype in (DType.F16, DType.BF16)},
    **{f"activation {name}": activation(name) for name in activation_names()},
    "constants": Select(Binary(BinaryFunction.LT, X, Y), Constant(float("inf")), Constant(float("-inf"))),
    "no number": Select(Binary(BinaryFunction.LT, X, Y), Constant(float("nan")), Constant(0.5)),
}
LANES = 32


def of_all(isa: str) -> KernelSource:
    """Return a kernel whose lanes have a pair of numbers each, and leave the value of every expression."""
    body = Writer()
    body.line("const int32_t lane = static_cast<int32_t>(thread_index());")
    body.line("const float x = ld_global<float>(args.x + lane);")
    body.line("const float y = ld_global<float>(args.y + lane);")
    for place, expr in enumerate(EXPRESSIONS.values()):
        with body.block(""):
            name = print_expression(body, expr, {0: "x", 1: "y"})
            body.line(f"st_global<float>(args.values + {place * LANES} + lane, {name});")
    pointers = {"x": (DType.F32, IN), "y": (DType.F32, IN), "values": (DType.F32, OUT)}
    return kernel(body.text(), pointers=pointers, isa=isa, head='#include "tracea/gpu.h"')


@compiles
@pytest.mark.parametrize("isa", ["sm_75", "sm_90a"])
def test_every_expression_compiles_on_a_gpu(isa: str) -> None:
    assert compile_cuda(of_all(isa)).cubin


@compiles
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_a_product_with_every_activation_at_once_compiles_on_a_gpu(target: str) -> None:
    every = reduce(add, (activation(name) for name in activation_names()))
    plain = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16, transpose_b=True)
    op = GemmOp(m=plain.m, n=plain.n, k=plain.k, a=plain.a, b=plain.b, epilogue=Epilogue(every))
    gpu = load_gpu(target)
    source = build(op, *choose_for_gpu(op, gpu), gpu).source
    assert "tracea::tanh(" in source.text
    assert compile_cuda(source).cubin


@pytest.mark.parametrize("seed", range(2))
def test_every_expression_means_what_its_numpy_meaning_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-4, 4, LANES).astype(np.float32) for _ in range(2))
    values = np.zeros((len(EXPRESSIONS), LANES), np.float32)
    report = emulate(of_all("sm_80"), {"x": x, "y": y, "values": values}, {}, schedules=(0,))
    # Numbers that are none are what one expression is about: the comparison below says where they belong.
    assert report.kinds <= {"NaN from finite inputs"}, "\n".join(map(str, report.findings))
    for (name, expr), found in zip(EXPRESSIONS.items(), values, strict=True):
        expected = np.broadcast_to(expr.evaluate([x, y]), found.shape)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6, err_msg=name)
