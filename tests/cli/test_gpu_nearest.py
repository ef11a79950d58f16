"""The choice that a refusal names is one that is taken: each remedy is typed as it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.cli.main import BAD_USAGE, main
from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.errors import InvalidSchedule, InvalidShape
from tracea.flow.kernel import build, choose_for_gpu
from tracea.kernels.gemm.gpu.remedies import changes_of
from tracea.kernels.registry import CUDA_VARIANTS
from tracea.runtime.nvrtc import compile_cuda, missing
from tracea.targets import load_gpu

SQUARE = ("gemm", "-m", "4096", "-n", "4096", "-k", "4096", "--dtype", "f16")
SMALL = ("gemm", "-m", "64", "-n", "64", "-k", "64", "--dtype", "f16")


def refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["emit", *words]) == BAD_USAGE
    printed = capsys.readouterr()
    assert not printed.out
    (line,) = printed.err.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("flags", "value", "says", "remedy"),
    [
        (("--transpose-b",), "stages=9", "expected 1 to 6", "stages=6"),
        (("--transpose-b",), "stages=8", "limit 166_912 bytes", "stages=6"),
        (("--transpose-b",), "stages=7", "limit 166_912 bytes", "stages=6"),
        (("--transpose-b",), "stages=0", "expected", "stages=1"),
        ((), "split_k=65", "expected 1 to 64", "split_k=64"),
        ((), "split_k=128", "expected 1 to 64", "split_k=64"),
        ((), "split_k=0", "expected 1 to 64", "split_k=1"),
    ],
)
def test_the_nearest_value_is_named_and_taken(
    flags: tuple[str, ...], value: str, says: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused((*SQUARE, *flags, "--target", "sm_80", "--schedule", value), capsys)
    assert says in line
    name, _, number = remedy.partition("=")
    assert line.partition("Remedy: ")[2].removeprefix("use ").removesuffix(" or more") in (remedy, number)
    rest = [part for part in value.split(",") if not part.startswith(f"{name}=")]
    assert main(["emit", *SQUARE, *flags, "--target", "sm_80", "--schedule", ",".join((*rest, remedy))]) == 0


@pytest.mark.parametrize(
    ("asked", "near"), [("sm_99", "sm_100a"), ("sm_91", "sm_90a"), ("sm_60", "sm_75"), ("sm_95", "sm_90a")]
)
def test_the_nearest_architecture_is_nearest_by_number(
    asked: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"use {near}, the nearest" in refused((*SMALL, "--target", asked), capsys)


@pytest.mark.parametrize(("asked", "loads_on"), [("sm_103a", "sm_100"), ("sm_121a", "sm_120"), ("sm_110", "sm_100")])
def test_machine_code_of_one_architecture_is_not_advised_for_another(
    asked: str, loads_on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = refused((*SMALL, "--target", asked), capsys).partition("Remedy: ")[2]
    assert f"loads on {loads_on} alone" in remedy
    portable = remedy.partition("compile the text for ")[2].partition(",")[0]
    assert f"--target {portable} prints it" in remedy
    gpu = load_gpu(portable)
    assert not gpu.arch_specific
    if missing() is None:
        op = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16)
        source = build(op, *choose_for_gpu(op, gpu), gpu).source
        assert compile_cuda(replace(source, isa=asked)).cubin


@pytest.mark.parametrize("asked", ["sm_90", "sm_100", "sm_120f", "SM_86", "sm_60"])
def test_the_same_number_and_code_for_later_ones_need_no_more_words(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = refused((*SMALL, "--target", asked), capsys).partition("Remedy: ")[2]
    assert remedy.endswith(", the nearest")


@pytest.mark.parametrize("name", ["tcgen05", "gemm.tcgen05", "gemm.packed", "gemm.wgmma", "library.cublas"])
def test_a_variant_that_does_not_fit_is_answered_by_one_that_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*SMALL, "--transpose-b", "--target", "sm_100a")
    line = refused((*words, "--variant", name), capsys)
    ours = {each.id for each in CUDA_VARIANTS}
    assert not {"gemm.direct", "conv.packed"} & set(line.replace("'", " ").split())
    advised = line.partition("Remedy: use ")[2].split(",")[0].split()[0]
    assert advised in ours - {name}
    assert main(["emit", *words, "--variant", advised]) == 0


def test_a_remedy_does_not_repeat_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused((*SMALL, "--target", "sm_80", "--variant", "gemm.wgmma"), capsys)
    statement, _, remedy = line.partition("Remedy: ")
    assert "sm_80 without tma, mbarrier" in statement
    assert "without" not in remedy
    assert "use gemm.mma_cp_async" in remedy


def test_nothing_to_compute_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("sm_75", "sm_80", "sm_90a"):
        line = refused(("gemm", "-m", "0", "-n", "64", "-k", "64", "--dtype", "f16", "--target", target), capsys)
        assert "got m = 0" in line
        assert "Remedy: use m=1" in line
        assert len(line) < 160
        assert "wgmma" not in line
        assert "cublas" not in line


def test_a_rejected_layout_shows_the_operand_and_its_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *SMALL, "--target", "sm_90a"]) == 0
    assert "found b has stride 64 along k (store b as (n, k)" in capsys.readouterr().err
    odd = ("gemm", "-m", "37", "-n", "53", "--dtype", "f16", "--transpose-b", "--target", "sm_90a")
    assert main(["emit", *odd, "-k", "100"]) == 0
    notes = capsys.readouterr().err
    assert "rows of a 200 bytes apart and rows of b 200 bytes apart" in notes
    assert "every 104 elements (208 bytes)" in notes
    assert "store a" not in notes
    assert main(["emit", *odd, "-k", "104"]) == 0
    printed = capsys.readouterr()
    assert "gemm.wgmma" in printed.out.splitlines()[0]
    assert not printed.err


@pytest.mark.parametrize("target", ["sm_75", "sm_80"])
def test_no_note_is_on_what_the_architecture_can_never_have(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *SMALL, "--transpose-b", "--target", target]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_number_of_stages_that_there_is_no_room_for_is_bad_usage(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused((*SQUARE, "--transpose-b", "--target", target, "--schedule", "stages=9"), capsys)


def test_a_number_beyond_64_bits_is_refused_as_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused((*SMALL, "--target", "sm_80", "--schedule", "bm=100000000000000000000"), capsys)
    assert "18 digits at most" in line
    assert "an integer" not in line


@pytest.mark.parametrize("m", [2**31, 2**31 - 2**12 + 1])
def test_the_largest_extent_is_named_and_taken(m: int, capsys: pytest.CaptureFixture[str]) -> None:
    rest = ("-n", "64", "-k", "64", "--dtype", "f16", "--target", "sm_80")
    assert "Remedy: use m=2147479552 at most" in refused(("gemm", "-m", str(m), *rest), capsys)
    assert main(["emit", "gemm", "-m", "2147479552", *rest]) == 0


@pytest.mark.parametrize(
    ("sizes", "fitting"),
    [
        ({"m": 64, "n": 64, "batch": (9999999999999,)}, {"batch": (2**31 - 1,)}),
        ({"m": 2_000_000_000, "n": 2_000_000_000}, {"m": 35_072}),
    ],
)
def test_more_tiles_than_a_grid_has_blocks_are_refused_by_the_extent_that_fits(
    sizes: dict[str, object], fitting: dict[str, object]
) -> None:
    def built(**dims: object) -> None:
        op = GemmOp.of(k=64, dtype=DType.F16, **dims)  # type: ignore[arg-type]
        gpu = load_gpu("sm_80")
        build(op, *choose_for_gpu(op, gpu), gpu)

    with pytest.raises(InvalidShape, match="blocks of a grid") as caught:
        built(**sizes)
    (advised,) = [value[0] if isinstance(value, tuple) else value for value in fitting.values()]
    assert str(advised) in caught.value.remedy
    built(**(sizes | fitting))


def test_what_is_advised_was_proved_before() -> None:
    op = GemmOp.of(m=63, n=2, k=1024, transpose_a=True, transpose_b=True, math=MatrixMath.TF32)
    gpu = load_gpu("sm_80")
    numbers = {"bk": 16, "bm": 80, "bn": 64, "chunk_a": 4, "chunk_b": 16, "fragments": 2, "split_k": 4, "stages": 3}
    stated: dict[str, int | str] = {**numbers, "order": "wavefront", "warps_m": 1, "warps_n": 3}
    variant, schedule = choose_for_gpu(op, gpu, variant="gemm.mma_cp_async", schedule=stated)
    with pytest.raises(InvalidSchedule, match="bn: got 64, expected a multiple of 48") as caught:
        build(op, variant, schedule, gpu)
    build(op, variant, schedule.with_values(**changes_of(caught.value, schedule)), gpu)
