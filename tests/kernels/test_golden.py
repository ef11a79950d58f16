"""The emitted text of every variant and instruction set, kept in tests/golden; `make golden` accepts a change."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import pytest
from tests.kernels.attention_cases import attention, gradient
from tests.kernels.conformance import Case, build
from tests.kernels.grouped_cases import grouped_golden
from tests.kernels.low_rank_cases import low_rank_golden
from tests.kernels.moments_cases import moments_golden
from tests.kernels.native import ISA_FLAGS, Unit, one_of_the_isas
from tests.kernels.norm_gradient_cases import norm_gradient_golden
from tests.kernels.slab_cases import slab_golden
from tests.kernels.sparse_cases import sparse_golden

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import (
    AdaptivePool2dOp,
    Conv2dOp,
    Epilogue,
    GemmOp,
    PairSpans,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
)
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.registry import VARIANTS, find

X, W = TensorType((128, 768), DType.F32), TensorType((768,), DType.F32)
COMMON = TensorType((54, 1, 54, 48), DType.F32)
LINEAR = GemmOp.of(m=128, n=3072, k=768, bias=True, activation="gelu", residual=True)
CONVOLUTION = Conv2dOp.of(
    channels=256,
    size=(14, 14),
    filters=256,
    kernel=(3, 3),
    padding=(1, 1),
    channels_last=True,
    bias=True,
    activation="relu",
    residual=True,
)
ONE_ROW = Conv2dOp.of(
    channels=64,
    size=(1, 4000),
    filters=16,
    kernel=(1, 7),
    padding=(0, 3),
    channels_last=True,
    bias=True,
    activation="relu",
)
DEPTHWISE = Conv2dOp.of(
    channels=144, size=(56, 56), filters=144, kernel=(3, 3), padding=(1, 1), groups=144, bias=True, activation="relu"
)
DEPTHWISE_IMAGE = Conv2dOp.of(
    channels=144,
    size=(56, 56),
    filters=144,
    kernel=(3, 3),
    padding=(1, 1),
    groups=144,
    channels_last=True,
    bias=True,
    activation="relu",
)
STEM = Conv2dOp.of(
    channels=3, size=(224, 224), filters=64, kernel=(7, 7), padding=(3, 3), stride=(2, 2), bias=True, activation="relu"
)
FEW = Conv2dOp.of(channels=64, size=(112, 112), filters=3, kernel=(3, 3), padding=(1, 1), channels_last=True, bias=True)
ODD = Conv2dOp.of(channels=31, size=(56, 56), filters=37, kernel=(3, 3), padding=(1, 1), bias=True, activation="relu")
# One op a variant, with its default schedule: what a user's kernel looks like.
GOLDEN = (
    Case.of("attention.flash", "attention.flash", attention(1, 12, 12, 1024, 1024, 64, causal=True)),
    Case.of(
        "attention.flash.spans",
        "attention.flash",
        attention(1, 12, 12, 1024, 1024, 64, spans=PairSpans(rows=64, room=256)),
    ),
    Case.of("attention.amx", "attention.amx", attention(1, 12, 12, 1024, 1024, 64, causal=True)),
    Case.of("attention.gradient", "attention.gradient", gradient(attention(1, 12, 12, 1024, 1024, 64, causal=True))),
    Case.of(
        "attention.gradient_amx", "attention.gradient_amx", gradient(attention(1, 12, 12, 1024, 1024, 64, causal=True))
    ),
    Case.of("attention.decode", "attention.decode", attention(1, 12, 2, 1, 32_768, 64)),
    Case.of("gemm.packed", "gemm.packed", GemmOp.of(m=512, n=3072, k=768, bias=True, activation="gelu", residual=True)),
    Case.of("gemm.packed.columns", "gemm.packed", LINEAR),
    Case.of("gemm.prepacked", "gemm.prepacked", LINEAR),
    Case.of("gemm.amx", "gemm.amx", GemmOp.of(m=1024, n=3072, k=768, bias=True, activation="gelu", residual=True)),
    Case.of("gemm.amx_prepacked", "gemm.amx_prepacked", LINEAR),
    Case.of("gemm.direct", "gemm.direct", GemmOp.of(m=16, n=4096, k=4096)),
    Case.of("gemm.narrow", "gemm.narrow", GemmOp.of(m=512, n=64, k=768, transpose_b=True, bias=True)),
    Case.of("gemm.narrow_prepacked", "gemm.narrow_prepacked", GemmOp.of(m=512, n=64, k=768, transpose_b=True)),
    Case.of("gemm.stream", "gemm.stream", GemmOp.of(m=1, n=4096, k=4096, bias=True)),
    Case.of("gemm.stream_split", "gemm.stream_split", GemmOp.of(m=1, n=1000, k=2048, bias=True), kc=1024, fold=512),
    Case.of("gemm.direct_turned", "gemm.direct_turned", GemmOp.of(m=900, n=37, k=500, transpose_a=True, bias=True)),
    Case.of("gemm.stream_turned", "gemm.stream_turned", GemmOp.of(m=4096, n=1, k=4096, transpose_a=True, bias=True)),
    Case.of(
        "gemm.stream_split_turned",
        "gemm.stream_split_turned",
        GemmOp.of(m=1000, n=2, k=2048, transpose_a=True, bias=True),
        kc=1024,
        fold=512,
    ),
    Case.of("gemm.dot_turned", "gemm.dot_turned", GemmOp.of(m=2000, n=10, k=512, transpose_b=True, bias=True)),
    Case.of("gemm.dot", "gemm.dot", GemmOp.of(m=1, n=4096, k=4096, dtype=DType.BF16, transpose_b=True, bias=True)),
    Case.of(
        "conv.packed",
        "conv.packed",
        Conv2dOp.of(
            channels=64, size=(56, 56), filters=64, kernel=(3, 3), padding=(1, 1), bias=True, activation="relu"
        ),
    ),
    Case.of("conv.prepacked", "conv.prepacked", CONVOLUTION),
    Case.of("conv.split", "conv.split", ONE_ROW),
    Case.of("conv.split_prepacked", "conv.split_prepacked", ONE_ROW),
    Case.of("conv.dot", "conv.dot", FEW),
    Case.of("conv.dot_prepacked", "conv.dot_prepacked", FEW),
    Case.of("conv.winograd", "conv.winograd", replace(CONVOLUTION, accuracy=Accuracy.NORMWISE)),
    Case.of("conv.winograd_prepacked", "conv.winograd_prepacked", replace(CONVOLUTION, accuracy=Accuracy.NORMWISE)),
    Case.of("conv.pixels", "conv.pixels", ODD),
    Case.of("conv.pixels_prepacked", "conv.pixels_prepacked", ODD),
    Case.of("conv.depthwise", "conv.depthwise", DEPTHWISE),
    Case.of("conv.depthwise_prepacked", "conv.depthwise_prepacked", DEPTHWISE),
    Case.of("conv.depthwise_prepacked.image", "conv.depthwise_prepacked", DEPTHWISE_IMAGE),
    Case.of(
        "conv.amx",
        "conv.amx",
        Conv2dOp.of(channels=256, size=(28, 28), filters=512, kernel=(1, 1), stride=(2, 2), bias=True, residual=True),
    ),
    Case.of("conv.amx_prepacked", "conv.amx_prepacked", CONVOLUTION),
    Case.of("conv.amx_stem", "conv.amx_stem", STEM),
    Case.of("conv.amx_stem_prepacked", "conv.amx_stem_prepacked", STEM),
    Case.of("gemm.empty", "gemm.empty", GemmOp.of(m=128, n=768, k=0, bias=True)),
    Case.of(
        "rows.normalize",
        "rows.normalize",
        RowOp(kind=RowKind.LAYER_NORM, x=(X,), epilogue=Epilogue(Input(0) * Input(1) + Input(2), (W, W)), eps=1e-5),
    ),
    Case.of(
        "pool.window",
        "pool.window",
        Pool2dOp(
            kind=PoolKind.MAX,
            x=image_type((1, 64, 112, 112), DType.F32, channels_last=True),
            kernel=(3, 3),
            stride=(2, 2),
            padding=(1, 1),
            out=image_type((1, 64, 56, 56), DType.F32, channels_last=True),
        ),
    ),
    Case.of(
        "pool.grid",
        "pool.grid",
        AdaptivePool2dOp(
            kind=PoolKind.AVERAGE,
            x=image_type((1, 64, 56, 56), DType.F32, channels_last=True),
            size=(5, 6),
            out=image_type((1, 64, 5, 6), DType.F32, channels_last=True),
        ),
    ),
    Case.of("rows.reduce", "rows.reduce", ReduceOp(kind=ReduceKind.MEAN, x=(X,), axes=(0,))),
    Case.of(
        "rows.reduce_together",
        "rows.reduce",
        ReduceOp(
            kind=ReduceKind.SUM,
            x=(TensorType((54, 3, 54, 48), DType.F32, StridedLayout((8064, 144, 144, 1))), COMMON),
            axes=(2,),
            prologue=Input(0) * Input(1),
        ),
    ),
    Case.of(
        "pointwise.chain",
        "pointwise.chain",
        PointwiseOp(
            expr=activation("gelu").substitute({0: Input(0) + Input(1)}) + Input(2),
            inputs=(X, W, X),
            out_dtype=DType.F32,
        ),
    ),
    *low_rank_golden(),
    *slab_golden(),
    *moments_golden(),
    *norm_gradient_golden(),
    *sparse_golden(),
    *grouped_golden(),
)


def on_tiles(case: Case) -> bool:
    return MATRIX_TILES in find(case.variant).requirements


PRINTED = [
    pytest.param(case, isa, id=f"{case.name}-{isa}")
    for case in GOLDEN
    for isa in ISA_FLAGS
    if (isa in ("amx", "plain") if on_tiles(case) else isa != "amx")
]


@pytest.mark.parametrize(("case", "isa"), PRINTED)
def test_emitted_text_is_the_golden_one(case: Case, isa: str, golden: Any) -> None:
    built = build(case, isa)
    golden.check(f"{case.name}.{isa}.cpp", built.source.text)
    if built.pack_source is not None:
        golden.check(f"{case.name}.pack.{isa}.cpp", built.pack_source.text)


@pytest.mark.parametrize("isa", one_of_the_isas("golden texts"))
def test_golden_texts_compile_together_without_a_warning(isa: str) -> None:
    flags = ("-Og" if isa == "plain" else "-O1", "-shared")
    cases = [case for case in GOLDEN if isa == "plain" or not on_tiles(case)]
    Unit([source for case in cases for source in build(case, isa).sources], isa, extra=flags)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembler knows the tiles of its own architecture")
def test_golden_texts_on_matrix_tiles_compile_on_any_machine() -> None:
    built = [build(case, "amx") for case in GOLDEN if on_tiles(case)]
    assert {each.source.isa for each in built} == {"amx"}
    sources = [source for each in built for source in each.sources]
    Unit(sources, "amx", extra=("-O1", "-shared"))


def test_every_variant_has_golden_text() -> None:
    assert {case.variant for case in GOLDEN} == {variant.id for variant in VARIANTS if not variant.is_library}


@pytest.mark.parametrize("case", [case for case in GOLDEN if not on_tiles(case)], ids=lambda case: case.name)
def test_emission_is_deterministic_and_one_line_a_statement(case: Case) -> None:
    build.cache_clear()
    first = build(case, "avx512").source
    build.cache_clear()
    assert build(case, "avx512").source == first
    statements = [line for line in first.text.splitlines() if line.strip().endswith(";") and "for (" not in line]
    assert all(line.count(";") == 1 for line in statements)
