"""The command line of an op is read back as that op, and where no flags say one that is told."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tracea.cli import main as cli
from tracea.cli.command import command_of
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GemmOp, Op, PointwiseOp, ReduceKind, Statistic, StatisticsOp
from tracea.core.tensor_type import TensorType

IMAGE, CHANNEL = TensorType((2, 3, 8, 8), DType.F32), TensorType((3, 1, 1), DType.F32)


@pytest.mark.parametrize(
    "words",
    [
        "gemm -m 8 -n 16 -k 32",
        "gemm -m 8 -n 16 -k 32 --batch 2,3 --transpose-b --dtype bf16 --out f32",
        "gemm -m 8 -n 16 -k 32 --transpose-a --constant-b --epilogue bias,gelu,residual",
        "conv2d --batch 2 --channels 8 --size 16 --filters 8 --kernel 3 --padding 1 --epilogue bias,relu",
        "conv2d --channels 8 --size 16,12 --filters 8 --kernel 3,1 --stride 2 --groups 4 --channels-last --constant-w",
        "conv2d --channels 8 --size 16 --filters 8 --kernel 3 --accuracy normwise",
        "conv1d --batch 3 --channels 8 --size 100 --filters 4 --kernel 5 --dilation 2",
        "attention --batch 2 --heads 8 --kv-heads 2 --seq 16 --kv-seq 32 --dim 64 --causal --window 4",
        "attention_gradient --batch 2 --heads 8 --kv-heads 2 --seq 16 --kv-seq 32 --dim 64 --causal --window 4",
        "softmax --rows 8 --columns 16 --epilogue ''",
        "rms_norm --rows 8 --columns 16 --epilogue weight,silu",
        "pointwise --rows 8 --columns 16 --epilogue bias,gelu,gate",
    ],
)
def test_an_op_is_said_by_the_flags_that_it_was_read_from(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[Op, tuple[int, ...]]] = []

    def heard(op: Op, *, constants: tuple[int, ...], **_: object) -> str:
        read.append((op, constants))
        return ""

    monkeypatch.setattr("tracea.flow.text.emit_text", heard)
    monkeypatch.setattr("tracea.flow.text.rejected_above", lambda *_, **__: ())
    monkeypatch.setattr("tracea.flow.text.slow_operands", lambda *_, **__: ())
    cli.main(["emit", *shlex.split(words)])
    op, constants = read.pop()
    said = command_of(op, constants)
    cli.main(["emit", *shlex.split(said)])
    assert read == [(op, constants)]
    assert len(said) <= len(words) + 20


@pytest.mark.parametrize(
    "op",
    [
        GemmOp(m=8, n=16, k=4, batch=(2,), a=TensorType((8, 4), DType.F32), b=TensorType((2, 4, 16), DType.F32)),
        PointwiseOp(expr=Input(0) * Input(1), inputs=(IMAGE, CHANNEL), out_dtype=IMAGE.dtype),
        StatisticsOp(
            x=(IMAGE,), axes=(0, 2, 3), statistics=(Statistic(ReduceKind.SUM, Input(0)),), expr=Input(1), reduced=True
        ),
    ],
    ids=["a batch of one factor", "batch norm", "sums of channels"],
)
def test_an_op_that_no_flags_say_has_no_command(op: Op) -> None:
    assert command_of(op) == ""


def test_an_operand_that_is_known_and_that_no_flag_names_is_no_command() -> None:
    op = GemmOp.of(m=8, n=16, k=4)
    assert command_of(op, (1,)) == "gemm -m 8 -n 16 -k 4 --constant-b"


def test_what_runs_in_a_convolutions_place_is_told_its_command_or_that_it_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    column = "conv2d --channels 16 --size 101,1 --filters 16 --kernel 23,1 --target zen4 --no-measure"
    assert cli.main(["explain", *column.split()]) == 0
    said = capsys.readouterr().out
    assert (
        "\nCommand          tracea tune conv2d --channels 16 --size 1,101 --filters 16 --kernel 1,23; explain" in said
    )
    batch = "conv2d --batch 2 --channels 8 --size 16 --filters 8 --kernel 1 --target zen4 --no-measure"
    assert cli.main(["explain", *batch.split()]) == 0
    assert "\nCommand          none: no flags say this op as it is; tracea.tune in" in capsys.readouterr().out


def test_each_kernel_of_a_model_is_told_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model_with_a_norm.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n"
        "    module = nn.Sequential(nn.BatchNorm2d(3), nn.Sigmoid(), nn.Flatten(), nn.Linear(12, 5)).eval()\n"
        "    return module, (torch.ones(4, 3, 2, 2),)\n",
        encoding="utf-8",
    )
    assert cli.main(["explain", f"{path}:build", "--no-measure"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Command")]
    assert said == [
        "Command          none: no flags say this op as it is; tracea optimize of its model searches it",
        "Command          tracea tune gemm -m 4 -n 5 -k 12 --transpose-b --constant-b --epilogue bias; explain, emit "
        "and verify take the same",
    ]
