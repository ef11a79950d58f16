"""Element types of tensor cores on the command line: each is printed, and refused where nothing multiplies it."""

from __future__ import annotations

import pytest

from tracea.cli.element_types import DTYPES, GPU_ELEMENTS
from tracea.cli.main import BAD_USAGE, main
from tracea.cli.problem import parse_op
from tracea.cli.problem_flags import ProblemFlags
from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.flow.kernel import choose_for_gpu
from tracea.targets import load_gpu
from tracea.testing.gpu_problems import ELEMENTS, Problem

GEMM = ("gemm", "-m", "256", "-n", "256", "-k", "256")


def refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(list(words)) == BAD_USAGE
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize("element", ELEMENTS)
def test_an_element_type_is_the_op_that_the_matrix_of_kernels_judges(element: str) -> None:
    flags = ProblemFlags(m=96, n=64, k=48, dtype=element, transpose_b=True)
    assert parse_op("gemm", flags) == Problem(m=96, n=64, k=48, transpose_b=True).op(element)


@pytest.mark.parametrize(
    ("element", "target", "variant"),
    [
        ("tf32", "sm_80", "gemm.mma_cp_async"),
        ("tf32", "sm_90a", "gemm.mma_tma"),
        ("s8", "sm_75", "gemm.mma_sync"),
        ("s8", "sm_90a", "gemm.wgmma"),
        ("e4m3", "sm_90a", "gemm.wgmma"),
        ("e5m2", "sm_120a", "gemm.mma_tma"),
        ("e4m3", "sm_75", "gemm.simt"),
    ],
)
def test_it_is_printed_by_name(element: str, target: str, variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *GEMM, "--dtype", element, "--transpose-b", "--target", target]) == 0
    assert f"| {variant} | {target} |" in capsys.readouterr().out.splitlines()[0]


def test_the_result_is_stored_as_asked() -> None:
    op = parse_op("gemm", ProblemFlags(m=8, n=8, k=8, dtype="s8", out="f16", epilogue="bias,gelu"))
    assert isinstance(op, GemmOp)
    assert (op.a.dtype, op.infer().dtype, op.epilogue.operands[0].dtype) == (DType.I8, DType.F16, DType.F16)
    assert op.math is MatrixMath.IEEE
    assert choose_for_gpu(op, load_gpu("sm_80"))[0] == "gemm.mma_cp_async"


@pytest.mark.parametrize("element", sorted(GPU_ELEMENTS))
@pytest.mark.parametrize("verb", ["emit", "verify", "explain"])
def test_a_processor_refuses_it_and_the_remedy_is_taken(
    verb: str, element: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused((verb, *GEMM, "--dtype", element, "--target", "avx512"), capsys)
    assert f"--dtype: got {element} on avx512, expected f32 f64 f16 bf16 on a processor" in line
    advised = line.partition("Remedy: --dtype ")[2].partition(",")[0]
    assert advised in DTYPES
    assert main(["emit", *GEMM, "--dtype", advised, "--target", "avx512"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("emit", "softmax", "--rows", "4", "--columns", "4", "--dtype", "s8"), "expected f32 f64 f16 bf16. Remedy"),
        (("tune", *GEMM, "--dtype", "tf32"), "got tf32 on host"),
        (("emit", *GEMM, "--dtype", "int8"), "use s8, if that was meant"),
        (("emit", *GEMM, "--out", "s8"), "--out: got s8, expected f32 f64 f16 bf16 i32"),
        (("emit", *GEMM, "--dtype", "tf32", "--target", "sm_75"), "targets with tf32: sm_80"),
        (("emit", *GEMM, "--dtype", "s8", "--epilogue", "bias", "--target", "sm_80"), "such as out f16"),
        (("emit", "softmax", "--rows", "4", "--columns", "4", "--out", "f16"), "--out"),
    ],
    ids=" ".join,
)
def test_what_has_no_kernel_is_refused_by_name(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(words, capsys)


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
@pytest.mark.parametrize(
    ("flags", "said", "taken"),
    [
        (("--dtype", "f16", "--out", "i32"), "got i32, expected a result of f32, f16 or bf16 for", ("--out", "f32")),
        (("--dtype", "f32", "--out", "i32"), "got i32, expected a result of f32, f16 or bf16 for", ("--out", "f32")),
        (("--dtype", "e4m3", "--out", "i32"), "got i32, expected a result of f32, f16 or bf16 for", ("--out", "f32")),
        (("--dtype", "f16", "--out", "f64"), "got f64, expected a result of f32, f16 or bf16 for", ("--out", "f32")),
        (("--dtype", "s8", "--out", "f64"), "got f64, expected a result of f32, f16, bf16 or i32", ("--out", "f32")),
        (("--dtype", "f64", "--out", "f32"), "got f32, expected f64 without an epilogue", ("--out", "f64")),
    ],
    ids=" ".join,
)
def test_a_result_that_sums_are_not_stored_as_is_refused_with_those_that_are(
    flags: tuple[str, ...], said: str, taken: tuple[str, ...], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("emit", *GEMM, "--transpose-b", "--target", target)
    line = refused((*words, *flags), capsys)
    assert said in line
    assert f"({' '.join(taken)})" in line.partition("Remedy: ")[2]
    assert main([*words, *flags[:2], *taken]) == 0


@pytest.mark.parametrize("out", ["f32", "f64"])
def test_sums_in_f64_are_told_to_leave_the_epilogue_out(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("emit", *GEMM, "--dtype", "f64", "--target", "sm_80")
    line = refused((*words, "--epilogue", "bias", "--out", out), capsys)
    statement, _, remedy = line.partition("Remedy: ")
    assert f"got {out} with an epilogue, expected f64 without an epilogue for sums in f64" in statement
    assert "epilogue apart" in remedy
    assert ("--out f64" in remedy) == (out != "f64")
    assert main([*words, "--out", "f64"]) == 0
    assert main(["emit", *GEMM, "--dtype", "f32", "--epilogue", "bias", "--target", "sm_80"]) == 0


@pytest.mark.parametrize(
    ("element", "target"), [("s8", "sm_75"), ("s8", "sm_86"), ("e4m3", "sm_89"), ("e5m2", "sm_90a")]
)
def test_operands_that_are_copied_byte_by_byte_are_noted(
    element: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["emit", *GEMM, "--dtype", element, "--target", target]
    assert main(words) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "byte by byte" in line]
    assert [note.partition(" copies ")[2].partition(" ")[0] for note in notes] == ["b"]
    assert "store b as (n, k), transpose_b" in notes[0]
    assert main([*words, "--transpose-b", "--transpose-a"]) == 0
    assert " copies a byte by byte" in capsys.readouterr().err
    assert main([*words, "--transpose-b"]) == 0
    assert "byte by byte" not in capsys.readouterr().err


def test_a_type_that_tensor_cores_lack_is_refused_by_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(("emit", *GEMM, "--dtype", "tf32", "--target", "sm_75"), capsys)
    assert "got the tensor cores of sm_75, expected tensor cores that take tf32" in line


def test_what_is_said_of_wgmma_and_f32_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *GEMM, "--transpose-b", "--target", "sm_90a"]) == 0
    notes = capsys.readouterr().err.splitlines()
    (wgmma,) = [line for line in notes if line.startswith("note: gemm.wgmma")]
    assert "needs f16, bf16, s8, e4m3 or e5m2, for both, found f32" in wgmma
    assert "tf32" not in wgmma.partition("found")[0]
    assert "--dtype tf32" in wgmma
