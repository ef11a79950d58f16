from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import (
    AttentionGradientOp,
    AttentionOp,
    Conv2dOp,
    CumulativeSumOp,
    Epilogue,
    GatherRowsOp,
    GemmOp,
    LargestOp,
    Op,
    PairsOp,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    SourceKind,
    SourceOp,
    Statistic,
    StatisticsOp,
    ViewKind,
    ViewOp,
    WeightedRowsOp,
    from_dict,
)
from tracea.core.tensor_type import StridedLayout, SymbolicDim, TensorType
from tracea.errors import InvalidDType, InvalidGraph, InvalidOp, InvalidShape, InvalidStride

F32 = DType.F32


def t(*shape: int | SymbolicDim, dtype: DType = F32) -> TensorType:
    return TensorType(shape, dtype)


OPS: list[Op] = [
    GemmOp.of(m=128, n=3072, k=768, transpose_b=True, bias=True, activation="gelu", residual=True, alpha=0.5),
    GemmOp.of(m=SymbolicDim("rows", 1), n=8, k=4, batch=(2, 3), dtype=DType.BF16, out_dtype=F32),
    GemmOp(m=2, n=3, k=0, batch=(5,), a=t(2, 0), b=t(1, 0, 3)),
    RowOp(kind=RowKind.LAYER_NORM, x=(t(4, 8), t(8)), prologue=Input(0) + Input(1), eps=1e-5),
    ReduceOp(kind=ReduceKind.MEAN, x=(t(2, 3, 4),), axes=(-1, 0), keepdims=True),
    ReduceOp(kind=ReduceKind.PRODUCT, x=(t(2, 3, 4),), axes=(1,)),
    StatisticsOp(
        x=(t(4, 8), t(8)),
        axes=(1,),
        statistics=(Statistic(ReduceKind.MEAN, Input(0)), Statistic(ReduceKind.SUM, Input(0) * Input(1) - Input(2))),
        expr=Input(3) / Input(2),
        reduced=True,
        keepdims=True,
    ),
    CumulativeSumOp(x=t(4, 8), axis=-2),
    GatherRowsOp(table=t(4, 8), indices=t(5, dtype=DType.I64)),
    WeightedRowsOp(table=t(2, 4, 8), indices=t(5, 3, dtype=DType.I64), weights=t(5, 3)),
    LargestOp(x=t(4, 8), k=3, smallest=True),
    PointwiseOp(expr=activation("mish"), inputs=(t(2, 3),), out_dtype=DType.F16),
    PairsOp(first=-Input(0), second=Input(0) * Input(1), inputs=(t(2, 3), t(3)), out_dtype=F32, halves=True),
    ViewOp(kind=ViewKind.SLICE, x=t(4, 6), starts=(1, 5), shape=(2, 6), steps=(2, -1)),
    ViewOp(kind=ViewKind.WINDOWS, x=t(4, 9), axes=(1,), shape=(3,), steps=(2,)),
    Conv2dOp(x=t(1, 8, 9, 9), w=t(12, 4, 3, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
    Conv2dOp.of(
        channels=6,
        size=(9, 8),
        filters=9,
        kernel=(5, 2),
        stride=(2, 3),
        padding=(1, 0),
        groups=3,
        dtype=DType.BF16,
        channels_last=True,
        bias=True,
        activation="silu",
        residual=True,
        out_dtype=F32,
    ),
    AttentionOp(q=t(1, 8, 5, 16), k=t(1, 2, 7, 16), v=t(1, 2, 7, 4), causal=True, window=3, scale=0.1),
    SourceOp(kind=SourceKind.CONSTANT, type=t(2)),
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_ops_round_trip_through_json_and_pickle_with_the_same_key(op: Op) -> None:
    for copy in (from_dict(json.loads(json.dumps(op.to_dict()))), pickle.loads(pickle.dumps(op))):
        assert copy == op
        assert copy.key == op.key
        assert hash(copy) == hash(op)
    assert op.key.isidentifier()
    assert len({other.key for other in OPS}) == len(OPS)


def test_keys_are_stable_across_processes() -> None:
    code = "from tracea.core.op import GemmOp; print(GemmOp.of(m=2, n=3, k=4, bias=True).key)"
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**_env(), "PYTHONHASHSEED": s},
        ).stdout
        for s in ("1", "2")
    }
    assert keys == {f"{GemmOp.of(m=2, n=3, k=4, bias=True).key}\n"}


def _env() -> dict[str, str]:
    import os
    from pathlib import Path

    import tracea

    return {**os.environ, "PYTHONPATH": str(Path(tracea.__file__).parents[1])}


@pytest.mark.parametrize(
    ("kv_heads", "keys", "said"),
    [
        (8, 16, ""),
        (2, 16, " over 2 key heads"),
        (1, 300, " over 1 key head of 300 keys"),
        (8, 1, " over 1 key"),
        (8, SymbolicDim("t"), " over t keys"),
    ],
)
def test_an_attention_is_described_by_the_key_heads_and_keys_that_its_result_does_not_tell(
    kv_heads: int, keys: int | SymbolicDim, said: str
) -> None:
    q, k = TensorType((1, 8, 16, 64), DType.F32), TensorType((1, kv_heads, keys, 64), DType.F32)
    op = AttentionOp(q=q, k=k, v=k)
    assert op.described == f"attention 1x8x16x64_f32{said}"
    assert op.key.startswith("attention_1x8x16x64_f32_")  # by which records are found, as ever
    if isinstance(keys, int):
        gradient = AttentionGradientOp(forward=op, grad=q, y=q)
        assert gradient.described == f"attention_gradient {gradient.summary} of {op.described}"


def test_keys_tell_every_field_apart() -> None:
    base = {"m": 2, "n": 3, "k": 4}
    variants = [
        GemmOp.of(**base),
        GemmOp.of(**base, transpose_b=True),
        GemmOp.of(**base, transpose_a=True),
        GemmOp.of(**base, bias=True),
        GemmOp.of(**base, alpha=2.0),
        GemmOp.of(**base, out_dtype=DType.BF16),
        GemmOp.of(**base, batch=(1,)),
    ]
    assert len({op.key for op in variants}) == len(variants)


def test_gemm_counts_its_work() -> None:
    op = GemmOp.of(m=4, n=5, k=6, bias=True)
    assert op.flops == 4 * 5 * (2 * 6 + 1)
    assert op.bytes == 4 * (4 * 6 + 6 * 5 + 5 + 4 * 5)
    assert op.infer() == t(4, 5)


def test_gemm_accumulates_in_the_type_that_holds_the_sum() -> None:
    assert GemmOp.of(m=1, n=1, k=1, dtype=DType.F64).accumulator is DType.F64
    assert GemmOp.of(m=1, n=1, k=1, dtype=DType.BF16).accumulator is F32
    assert GemmOp.of(m=1, n=1, k=1, dtype=DType.I8).accumulator is DType.I32
    with pytest.raises(InvalidDType):
        GemmOp(m=1, n=1, k=1, a=t(1, 1), b=t(1, 1, dtype=DType.I8))
    with pytest.raises(InvalidOp, match="f32 or f64"):
        GemmOp(m=1, n=1, k=1, a=t(1, 1), b=t(1, 1), accumulator=DType.F16)


def test_an_out_that_says_the_default_is_the_default() -> None:
    assert GemmOp.of(m=2, n=3, k=4, out_dtype=F32).out is None
    assert GemmOp.of(m=2, n=3, k=4, out_dtype=DType.F16).infer().dtype is DType.F16


@pytest.mark.parametrize(
    "fields",
    [
        {"m": -1},
        {"m": 2.0},
        {"m": True},
        {"n": 4},
        {"a": t(4, 2)},
        {"a": t(2)},
        {"b": t(7, 4, 3)},
        {"out": t(3, 2)},
        {"out": TensorType((2, 3), F32, StridedLayout((0, 1)))},
        {"epilogue": Epilogue(Input(0) + Input(1), (t(2),))},
        {"epilogue": Epilogue(Input(0) + Input(1), (t(1, 2, 3),))},
    ],
)
def test_gemm_refuses_what_does_not_fit(fields: dict[str, object]) -> None:
    with pytest.raises((InvalidOp, InvalidShape, InvalidStride)) as caught:
        GemmOp(**{"m": 2, "n": 3, "k": 4, "a": t(2, 4), "b": t(4, 3), **fields})  # type: ignore[arg-type]
    assert caught.value.remedy


def test_an_epilogue_needs_an_operand_for_each_input() -> None:
    with pytest.raises(InvalidOp, match=r"Input\(2\)"):
        Epilogue(Input(0) + Input(2), (t(3),))


def test_epilogues_chain() -> None:
    chained = Epilogue.of(bias=t(3)).then(Input(0) * Input(1), (t(2, 3),))
    assert chained.operands == (t(3), t(2, 3))
    assert chained.expr == (Input(0) + Input(1)) * Input(2)
    assert Epilogue.identity().is_identity


def test_symbolic_ops_bind() -> None:
    op = GemmOp.of(m=SymbolicDim("rows"), n=8, k=4, residual=True)
    bound = op.bind({"rows": 3})
    assert bound == GemmOp.of(m=3, n=8, k=4, residual=True)
    with pytest.raises(InvalidShape, match="bind"):
        _ = op.flops


@pytest.mark.parametrize(
    ("shape", "strides", "wanted", "expected"),
    [
        ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
        ((2, 3, 4), (24, 4, 1), (2, 12), (24, 1)),
        ((4, 6), (1, 4), (4, 2, 3), (1, 12, 4)),
        ((4, 6), (1, 4), (24,), None),
        ((2, 3), (0, 1), (2, 3, 1), (0, 1, 1)),
        ((2, 3), (0, 0), (6,), (0,)),
    ],
)
def test_reshape_keeps_strides_where_they_can_say_it(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    x = TensorType(shape, F32, StridedLayout(strides))
    if expected is None:
        with pytest.raises(InvalidStride, match="copy"):
            ViewOp(kind=ViewKind.RESHAPE, x=x, shape=wanted)
    else:
        result = ViewOp(kind=ViewKind.RESHAPE, x=x, shape=wanted).infer()
        assert result == TensorType(wanted, F32, StridedLayout(expected))


def test_views_say_offset_and_strides() -> None:
    flipped = ViewOp(kind=ViewKind.SLICE, x=t(4, 6), starts=(1, 5), shape=(2, 6), steps=(2, -1))
    assert flipped.offset_elements == 11
    assert flipped.infer().strides == (12, -1)
    assert flipped.bytes == flipped.flops == 0
    windows = ViewOp(kind=ViewKind.WINDOWS, x=t(8, 6), axes=(0,), shape=(3,), steps=(2,)).infer()
    assert (windows.shape, windows.strides) == ((3, 6, 3), (12, 1, 6))


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ViewKind.SLICE, "starts": (0, 0), "shape": (4, 7), "steps": (1, 1)},
        {"kind": ViewKind.SLICE, "starts": (0, 0), "shape": (4, 4), "steps": (1, -1)},
        {"kind": ViewKind.SLICE, "starts": (0, 0), "shape": (4, 6), "steps": (1, 0)},
        {"kind": ViewKind.SLICE, "starts": (0,), "shape": (4,), "steps": (1,)},
        {"kind": ViewKind.RESHAPE, "shape": (5, 5)},
        {"kind": ViewKind.PERMUTE, "axes": (0, 0)},
        {"kind": ViewKind.EXPAND, "shape": (3, 6)},
        {"kind": ViewKind.WINDOWS, "axes": (1,), "shape": (7,), "steps": (1,)},
        {"kind": ViewKind.WINDOWS, "axes": (2,), "shape": (1,), "steps": (1,)},
        {"kind": ViewKind.WINDOWS, "axes": (-1,), "shape": (1,), "steps": (1,)},
        {"kind": ViewKind.WINDOWS, "axes": (0,), "shape": (2,), "steps": (0,)},
        {"kind": ViewKind.WINDOWS, "axes": (0,), "shape": (0,), "steps": (1,)},
        {"kind": ViewKind.WINDOWS, "axes": (0, 1), "shape": (1, 1), "steps": (1, 1)},
    ],
)
def test_a_view_never_leaves_its_tensor(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidShape):
        ViewOp(x=t(4, 6), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RowOp(kind=RowKind.SOFTMAX, x=(t(2, 3),), axis=0),
        lambda: RowOp(kind=RowKind.SOFTMAX, x=(t(),)),
        lambda: RowOp(kind=RowKind.SOFTMAX, x=()),
        lambda: RowOp(kind=RowKind.RMS_NORM, x=(t(2, 3),), eps=float("nan")),
        lambda: RowOp(kind=RowKind.RMS_NORM, x=(t(2, 3),), prologue=Input(1)),
        lambda: ReduceOp(kind=ReduceKind.MAX, x=(t(0, 3),), axes=(0,)),
        lambda: ReduceOp(kind=ReduceKind.SUM, x=(t(2, 3),), axes=(2,)),
        lambda: ReduceOp(kind=ReduceKind.SUM, x=(t(2, 3),), axes=(1, -1)),
        lambda: ReduceOp(kind=ReduceKind.SUM, x=(t(2, 3),), axes=()),
        lambda: PointwiseOp(expr=Input(0), inputs=(t(2), t(3)), out_dtype=F32),
        lambda: Conv2dOp(x=t(1, 3, 2, 2), w=t(4, 3, 3, 3)),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 2, 3, 3)),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), stride=(0, 1)),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), dilation=(1,)),  # type: ignore[arg-type]
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), padding=(1.0, 0)),  # type: ignore[arg-type]
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), padding=1),  # type: ignore[arg-type]
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), groups=0),
        lambda: Conv2dOp(x=t(1, 0, 5, 5), w=t(4, 0, 3, 3)),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 0, 3)),
        lambda: Conv2dOp(x=t(3, 5, 5), w=t(4, 3, 3, 3)),
        lambda: Conv2dOp(x=t(1, 4, 5, 5), w=t(3, 2, 3, 3), groups=2),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), out=t(1, 4, 5, 5)),
        lambda: Conv2dOp(x=t(1, 3, 5, 5), w=t(4, 3, 3, 3), epilogue=Epilogue.of(bias=t(4))),
        lambda: Conv2dOp.of(channels=3, size=(5, 5), filters=4, kernel=(6, 6)),
        lambda: AttentionOp(q=t(3, 4, 8), k=t(1, 2, 4, 8), v=t(1, 2, 4, 8)),
        lambda: AttentionOp(q=t(1, 3, 4, 8), k=t(1, 2, 4, 8), v=t(1, 2, 4, 8)),
        lambda: AttentionOp(q=t(1, 2, 4, 8), k=t(1, 2, 4, 8), v=t(1, 2, 4, 8), window=0),
    ],
)
def test_ops_refuse_what_has_no_meaning(make) -> None:
    with pytest.raises((InvalidOp, InvalidShape)) as caught:
        make()
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("x", "w", "groups", "remedy"),
    [
        ((1, 4, 8, 8), (4, 4, 3, 3), 3, "groups=1 fits this x and w"),
        ((1, 8, 8, 8), (16, 2, 3, 3), 1, "groups=4 fits this x and w"),
        ((1, 8, 8, 8), (16, 3, 3, 3), 2, "groups=2 needs w of 4 channels"),
        ((1, 56, 56, 3), (16, 3, 3, 3), 1, "the last axis of x has the 3 channels that w takes"),
        ((1, 9, 8, 8), (6, 4, 3, 3), 2, "groups must divide the 9 channels of x and the 6 filters: 1, 3"),
        ((2, 8, 9, 9), (5, 2, 3, 3), 4, "groups=4 must divide the 5 filters"),
        ((8, 8), (3, 3), 1, "give x and w four axes each"),
    ],
)
def test_channels_that_disagree_are_told_which_would_agree(
    x: tuple[int, ...], w: tuple[int, ...], groups: int, remedy: str
) -> None:
    with pytest.raises(InvalidShape, match=f"Remedy: {remedy}"):
        Conv2dOp(x=TensorType(x, DType.F32), w=TensorType(w, DType.F32), groups=groups)


def test_a_convolution_says_its_layouts_and_counts() -> None:
    op = Conv2dOp.of(
        batch=2, channels=8, size=(9, 7), filters=6, kernel=(3, 2), stride=(2, 1), padding=(1, 0), groups=2,
        channels_last=True, bias=True, activation="relu", residual=True,
    )  # fmt: skip
    assert op.infer().static_shape == (2, 6, 5, 6)
    assert op.infer().strides == (5 * 6 * 6, 1, 6 * 6, 6)
    assert op.x.strides == (9 * 7 * 8, 1, 7 * 8, 8)
    assert op.w.static_shape == (6, 4, 3, 2)
    assert op.taps == 4 * 3 * 2
    assert [operand.static_shape for operand in op.operands[2:]] == [(6, 1, 1), (2, 6, 5, 6)]
    assert op.flops == 2 * 6 * 5 * 6 * (2 * 24 + op.epilogue.expr.arithmetic)
    assert "2x8x9x7_by_6x4x3x2_f32" in op.key


def test_json_of_an_op_is_read_strictly() -> None:
    good = GemmOp.of(m=2, n=3, k=4).to_dict()
    for bad in ({**good, "m": "2"}, {**good, "extra": 1}, {**good, "class": "Node"}, {"class": "GemmOp"}, 7, None):
        with pytest.raises(InvalidGraph):
            from_dict(bad)
    with pytest.raises(InvalidShape):
        from_dict({**good, "m": 3})


def test_attention_counts_visible_pairs() -> None:
    causal = AttentionOp(q=t(1, 1, 4, 8), k=t(1, 1, 4, 8), v=t(1, 1, 4, 8), causal=True)
    assert causal.visible_pairs == 10
    assert AttentionOp(q=t(1, 1, 4, 8), k=t(1, 1, 4, 8), v=t(1, 1, 4, 8), window=2).visible_pairs == 10
    assert AttentionOp(q=t(1, 1, 4, 8), k=t(1, 1, 6, 8), v=t(1, 1, 6, 8)).visible_pairs == 24
