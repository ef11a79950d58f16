from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracea
from tracea.bench.suites import chain_problems
from tracea.cli.problem import parse_constants, parse_op, parse_schedule
from tracea.cli.problem_flags import KINDS, ProblemFlags
from tracea.core.dtype import DType
from tracea.core.expr import Input, activation, activation_names
from tracea.core.op import Conv2dOp, GemmOp, Op, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidInput, InvalidOption, InvalidShape, TraceaError
from tracea.flow.sections import Section


def gemm(**flags: object) -> GemmOp:
    op = parse_op("gemm", ProblemFlags(**({"m": 4, "n": 6, "k": 8} | flags)))  # type: ignore[arg-type]
    assert isinstance(op, GemmOp)
    return op


def test_gemm_is_the_op_that_the_library_makes() -> None:
    assert gemm() == GemmOp.of(m=4, n=6, k=8)
    assert gemm(dtype="bf16", batch="3,5", transpose_a=True) == GemmOp.of(
        m=4, n=6, k=8, dtype=DType.BF16, batch=(3, 5), transpose_a=True
    )
    assert gemm(transpose_b=True).key == GemmOp.of(m=4, n=6, k=8, transpose_b=True).key


def test_a_constant_b_is_the_same_op_with_operand_1_known_beforehand() -> None:
    assert gemm(constant_b=True) == gemm()
    assert parse_constants(ProblemFlags(constant_b=True)) == (1,)
    assert parse_constants(ProblemFlags()) == ()


def test_epilogue_terms_apply_in_order() -> None:
    assert gemm(epilogue="bias,gelu,residual").key == (
        GemmOp.of(m=4, n=6, k=8, bias=True, activation="gelu", residual=True).key
    )
    swapped = gemm(epilogue="residual, relu, weight").epilogue
    assert [operand.shape for operand in swapped.operands] == [(4, 6), (6,)]
    assert swapped.expr == activation("relu").substitute({0: Input(0) + Input(1)}) * Input(2)


@pytest.mark.parametrize("is_last", [False, True])
def test_conv1d_is_the_op_that_a_call_runs(monkeypatch: pytest.MonkeyPatch, is_last: bool) -> None:
    asked: list[Op] = []

    def keep(sections: tuple[Section, ...], **_: object) -> None:
        asked.append(sections[0].op)
        raise KeyError

    monkeypatch.setattr("tracea.interface.signals.compile_sections", keep)
    x = np.zeros((2, 40, 8), np.float32).transpose(0, 2, 1) if is_last else np.zeros((2, 8, 40), np.float32)
    with pytest.raises(KeyError):
        tracea.ops.conv1d(
            x,
            np.zeros((6, 4, 3), np.float32),
            np.zeros(6, np.float32),
            stride=2,
            padding=1,
            groups=2,
            activation="relu",
        )
    flags = {"batch": "2", "channels": 8, "filters": 6, "groups": 2, "epilogue": "bias,relu", "channels_last": is_last}
    short = parse_op("conv1d", ProblemFlags(**flags, size="40", kernel="3", stride="2", padding="1"))
    both = parse_op("conv1d", ProblemFlags(**flags, size="1,40", kernel="1,3", stride="1,2", padding="0,1"))
    assert short == both == asked[0]
    assert short.key == asked[0].key


@pytest.mark.parametrize(
    ("kind", "operands", "eps"),
    [("softmax", 0, 0.0), ("log_softmax", 0, 0.0), ("layer_norm", 2, 1e-5), ("rms_norm", 1, 1e-5)],
)
def test_rows_have_the_parameters_of_their_kind(kind: str, operands: int, eps: float) -> None:
    op = parse_op(kind, ProblemFlags(rows=3, columns=5, dtype="f16"))
    assert isinstance(op, RowOp)
    assert (op.kind, op.x, op.eps) == (RowKind(kind), (TensorType((3, 5), DType.F16),), eps)
    assert [operand.shape for operand in op.epilogue.operands] == [(5,)] * operands
    plain = parse_op(kind, ProblemFlags(rows=3, columns=5, epilogue=""))
    assert isinstance(plain, RowOp)
    assert plain.epilogue.is_identity


@pytest.mark.parametrize(
    ("kind", "flags", "said"),
    [
        ("conv9d", {}, "conv9d"),
        ("conv1d", {"channels": 4, "size": "2,40", "filters": 4, "kernel": "3"}, "--size 40, or conv2d for images"),
        ("conv1d", {"channels": 4, "size": "40", "filters": 4, "kernel": "3", "padding": "1,1"}, "or 0 and it"),
        ("conv1d", {"channels": 4, "size": "40", "filters": 4, "kernel": "3", "stride": "x"}, "Remedy: --stride 1"),
        ("conv1d", {"channels": 4, "size": "40", "filters": 4}, "--kernel: got nothing"),
        ("gemm", {"m": 4, "n": 6}, "-k: got nothing"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "rows": 3}, "--rows"),
        ("softmax", {"rows": 3}, "--columns: got nothing"),
        ("softmax", {"rows": 3, "columns": 4, "transpose_a": True}, "--transpose-a"),
        ("softmax", {"rows": 3, "columns": 4, "constant_b": True}, "--constant-b"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "batch": "2,x"}, "--batch"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "batch": "9" * 5000}, "--batch"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "epilogue": "bias,__import__('os')"}, "--epilogue"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "epilogue": "bias,,relu"}, "--epilogue"),
        ("gemm", {"m": 4, "n": 6, "k": 8, "dtype": "f33"}, "f33"),
        ("gemm", {"m": -4, "n": 6, "k": 8}, "-4"),
        ("pointwise", {"rows": 4, "columns": 6}, "--epilogue"),
        ("pointwise", {"rows": 4, "columns": 6, "epilogue": " "}, "--epilogue"),
        ("pointwise", {"rows": 4, "columns": 6, "k": 8, "epilogue": "relu"}, "-k"),
    ],
)
def test_what_means_nothing_is_refused(kind: str, flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_op(kind, ProblemFlags(**flags))  # type: ignore[arg-type]


def test_sizes_beyond_memory_are_refused_with_numbers() -> None:
    with pytest.raises(InvalidShape, match="9223372036854775807 bytes"):
        gemm(m=2**40, n=2**40)


@pytest.mark.parametrize(
    ("name", "epilogue"),
    [("gelu(x+b)+r", "bias,gelu,residual"), ("silu(x)*y+r", "silu,gate,residual"), ("relu(x*s+b)", "weight,bias,relu")],
)
def test_pointwise_is_the_chain_that_the_benchmark_times(name: str, epilogue: str) -> None:
    op = parse_op("pointwise", ProblemFlags(rows=512, columns=768, epilogue=epilogue))
    timed = next(problem.op for problem in chain_problems(512, 768) if problem.name.startswith(name))
    assert op == timed
    assert op.key == timed.key


@given(kind=st.sampled_from(KINDS), text=st.text(), batch=st.text(), dtype=st.text())
def test_hostile_text_is_an_op_or_a_typed_error(kind: str, text: str, batch: str, dtype: str) -> None:
    with suppress(TraceaError):
        parse_op(kind, ProblemFlags(m=2, n=3, k=4, epilogue=text, batch=batch, dtype=dtype))


def test_schedules_are_keys_and_values() -> None:
    assert parse_schedule(None) is None
    assert parse_schedule("mc=280, layout=packed,shift=-1") == {"mc": 280, "layout": "packed", "shift": -1}


@pytest.mark.parametrize("text", ["", "mc", "mc=", "=3", "mc=1,mc=2", "mc=1,,kc=2"])
def test_schedules_that_do_not_parse_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--schedule"):
        parse_schedule(text)


@given(st.text())
def test_any_schedule_parses_or_is_refused(text: str) -> None:
    with suppress(InvalidOption):
        parse_schedule(text)


def test_a_convolution_is_the_op_that_the_library_makes() -> None:
    flags = ProblemFlags(channels=6, size="9,8", filters=10, kernel="3", padding="1,0", stride="2", groups=2, batch="4")
    expected = {"channels": 6, "size": (9, 8), "filters": 10, "kernel": (3, 3), "padding": (1, 0), "stride": (2, 2)}
    assert parse_op("conv2d", flags) == Conv2dOp.of(batch=4, groups=2, **expected)  # type: ignore[arg-type]
    fused = replace(flags, groups=1, channels_last=True, epilogue="bias,relu,residual", constant_w=True)
    assert parse_op("conv2d", fused).key == (
        Conv2dOp.of(batch=4, channels_last=True, bias=True, activation="relu", residual=True, **expected).key  # type: ignore[arg-type]
    )
    assert parse_constants(fused) == (1,)


@pytest.mark.parametrize(
    "flags",
    [{"size": None}, {"size": "9,8,7"}, {"kernel": "x"}, {"stride": "-1"}, {"batch": "2,3"}, {"m": 3}, {"rows": 3}],
)
def test_a_convolution_refuses_what_it_cannot_mean(flags: dict[str, object]) -> None:
    whole = {"channels": 6, "size": "9", "filters": 10, "kernel": "3"}
    with pytest.raises(InvalidOption, match="Remedy: "):
        parse_op("conv2d", ProblemFlags(**(whole | flags)))  # type: ignore[arg-type]


def test_the_documented_activations_are_those_there_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`{' '.join(activation_names())}`" in text


def test_no_key_heads_are_not_as_many_as_there_are_heads() -> None:
    flags = ProblemFlags(heads=4, seq=64, dim=32)
    assert parse_op("attention", flags) == parse_op("attention", replace(flags, kv_heads=4))
    with pytest.raises(InvalidShape, match="0 does not divide 4"):
        parse_op("attention", replace(flags, kv_heads=0))


@pytest.mark.parametrize("kind", ["attention", "attention_gradient"])
def test_attention_refuses_an_epilogue_and_several_batches_each_by_its_own_words(kind: str) -> None:
    flags = ProblemFlags(heads=2, seq=64, dim=32)
    with pytest.raises(InvalidOption, match=f"--epilogue: got relu, expected none: {kind} takes none"):
        parse_op(kind, replace(flags, epilogue="relu"))
    with pytest.raises(InvalidOption, match=rf"--batch: got 2,3, .* of sequences\. Remedy: {kind} --heads"):
        parse_op(kind, replace(flags, batch="2,3"))


@pytest.mark.parametrize(
    ("flags", "meant"),
    [
        ({"epilogue": "bias,gleu"}, "use gelu"),
        ({"epilogue": "residuall"}, "use residual"),
        ({"dtype": "fp16"}, "use f16, if that was meant"),
        ({"dtype": "float32"}, "use f32, if that was meant"),
        ({"dtype": "int8"}, "use s8, if that was meant"),
        ({"dtype": "int4"}, "Remedy: name one of these"),
    ],
)
def test_a_misspelt_term_or_element_type_names_what_may_have_been_meant(flags: dict[str, str], meant: str) -> None:
    with pytest.raises(InvalidOption, match=meant):
        parse_op("gemm", ProblemFlags(m=64, n=64, k=64, **flags))
