"""Products with few columns and A stored by columns: which kernel takes them, and what it has in common with theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import build, random_inputs, run, unit_of
from tests.kernels.few_columns_cases import matrix, turned_cases
from tests.kernels.native import one_of_the_isas

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Epilogue, GemmOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.arguments import operand_buffers
from tracea.kernels.gemm.turned import turned
from tracea.kernels.registry import candidates, find
from tracea.targets import load


def test_a_by_columns_and_few_columns_are_streamed() -> None:
    one, two = replace(load("avx512"), cores=1), replace(load("avx512"), cores=2)
    product = GemmOp.of(m=2048, n=1, k=2048, transpose_a=True)
    assert candidates(product, one)[0].id == "gemm.stream_turned"
    assert candidates(product, two)[0].id == "gemm.stream_split_turned"
    assert candidates(GemmOp.of(m=64, n=4, k=64, batch=(8,), transpose_a=True), two)[0].id == "gemm.stream_turned"


def test_a_by_columns_and_some_columns_are_turned_but_where_columns_of_b_fill_vectors() -> None:
    one = replace(load("avx512"), cores=1)

    def first(m: int, n: int, k: int) -> str:
        return candidates(GemmOp.of(m=m, n=n, k=k, transpose_a=True), one)[0].id

    assert {first(900, n, 500) for n in (5, 8, 16, 37, 64)} == {"gemm.direct_turned"}
    assert first(200, 64, 256) == "gemm.direct"
    both = GemmOp.of(m=200, n=64, k=256, transpose_a=True, transpose_b=True)
    assert candidates(both, one)[0].id == "gemm.direct_turned"
    assert first(2000, 256, 500) != "gemm.direct_turned"
    assert first(2000, 64, 16) != "gemm.direct_turned"


def test_turning_twice_is_the_product_itself_and_moves_no_element() -> None:
    op = GemmOp(
        m=7,
        n=3,
        k=5,
        a=matrix(7, 5, DType.F32, 1, 9),
        b=matrix(5, 3, DType.F32, 4, 1),
        epilogue=Epilogue(Input(0) * Input(1) + Input(2), (TensorType((7, 3), DType.F32), TensorType((), DType.F32))),
        out=matrix(7, 3, DType.F32, 3, 1),
    )
    other = turned(op)
    assert (other.m, other.n, other.a.strides, other.b.strides) == (3, 7, (1, 4), (9, 1))
    assert other.infer().strides == (1, 3)
    assert other.epilogue.operands[0].strides == (1, 3)
    assert turned(other) == op


def test_a_bias_along_the_columns_becomes_one_along_the_rows() -> None:
    other = turned(GemmOp.of(m=9, n=2, k=4, transpose_a=True, bias=True))
    assert other.epilogue.operands[0].shape == (2, 1)


def test_the_kernel_takes_the_operands_in_the_ops_order() -> None:
    op = GemmOp.of(m=9, n=2, k=4, transpose_a=True, bias=True)
    variant, target = find("gemm.stream_turned"), load("avx512")
    assert variant.build is not None
    assert variant.default_schedule is not None
    kernel = variant.build(op, variant.default_schedule(op, target), target)
    assert [buffer.name for buffer in operand_buffers(kernel)] == ["b", "a", "x1"]
    assert kernel.op is op
    assert kernel.name.startswith("tracea_gemm_stream_turned_")


@pytest.mark.costly
@pytest.mark.parametrize("isa", one_of_the_isas("turned products"))
@pytest.mark.parametrize("name", ["stream_turned", "stream_split_turned", "direct_turned"])
def test_bits_do_not_depend_on_the_threads(name: str, isa: str, rng: np.random.Generator) -> None:
    cases = turned_cases()
    case = next(case for case in cases if case.name == name)
    unit, inputs = unit_of(cases, isa), random_inputs(case.op, rng)
    first = run(unit, build(case, isa), case.op, inputs, threads=1)
    for threads in (2, 3, 5, 2):
        np.testing.assert_array_equal(run(unit, build(case, isa), case.op, inputs, threads=threads), first)
