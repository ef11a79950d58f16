"""What cannot be built for a GPU: one line with the numbers, the nearest legal choice, and the right exit code."""

from __future__ import annotations

import json

import pytest

from tracea.cli.main import BAD_USAGE, main

OP = ["gemm", "-m", "1024", "-n", "1024", "-k", "1024", "--dtype", "f16"]


@pytest.mark.parametrize("verb", ["emit", "verify"])
@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--target", "sm_80", "--schedule", "stages=9"], BAD_USAGE, "use 8"),
        (["--target", "sm_80", "--schedule", "bm=17"], BAD_USAGE, "use 32, the nearest"),
        (["--target", "sm_80", "--schedule", "bk=7"], BAD_USAGE, "use 16, the nearest"),
        (["--target", "sm_91"], BAD_USAGE, "use sm_90a, the nearest"),
        (["--target", "SM80"], BAD_USAGE, "use sm_80, the nearest"),
        (["--target", "sm_80", "--schedule", "bm=512,bn=512"], BAD_USAGE, "use bm=128, bn=256:"),
        (["--target", "sm_80", "--schedule", "bk=64,stages=8"], BAD_USAGE, "limit 166_912 bytes. Remedy: stages=4"),
        (["--target", "sm_80", "--schedule", "chunk_a=32"], BAD_USAGE, "use 16"),
        (["--target", "sm_75", "--variant", "gemm.mma_cp_async"], BAD_USAGE, "sm_75 without cp_async"),
        (["--target", "sm_100a", "--variant", "gemm.tcgen05"], BAD_USAGE, "none in this version"),
        (["--target", "sm_80", "--schedule", "colour=3"], BAD_USAGE, "stages"),
    ],
)
def test_refusals_name_the_nearest_choice(
    verb: str, flags: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *OP, *flags]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    *steps, line = printed.err.strip().splitlines()
    assert all(step.startswith(("prove and print", "…")) for step in steps)  # said on a slow machine
    assert says in line
    assert "Remedy" in line


def test_a_refusal_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *OP, "--target", "sm_91", "--json"]) == BAD_USAGE
    assert json.loads(capsys.readouterr().out)["error"] == "InvalidOption"


def test_flags_of_the_gpu_suite_belong_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--suite", "gemm", "--driver", "null"]) == BAD_USAGE
    assert "--suite gpu" in capsys.readouterr().err
    assert main(["bench", "--suite", "gpu", "--driver", "null", "--stages", "conform"]) == BAD_USAGE
    assert "conformance" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--against", "torch"],
        ["--threads", "1"],
        ["--only", "2048"],
        ["--processes", "3"],
        ["--library"],
        ["--resume"],
    ],
    ids=lambda flags: flags[0],
)
def test_the_gpu_suite_refuses_a_flag_that_it_would_not_heed(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # A stage that there is not: without the refusal the suite must not begin.
    assert main(["bench", "--suite", "gpu", "--driver", "null", "--stages", "conform", *flags]) == BAD_USAGE
    assert f"{flags[0]}: got gpu, expected a suite of the CPU" in capsys.readouterr().err


def test_what_ranks_above_the_chosen_variant_says_why_it_was_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *OP, "--target", "sm_90a"]) == 0
    printed = capsys.readouterr()
    assert "gemm.mma_cp_async" in printed.out.splitlines()[0]
    notes = [line for line in printed.err.splitlines() if line.startswith("note: gemm.wgmma ranks above")]
    assert len(notes) == 1
    assert "contiguous along k" in notes[0]
    assert "b as (n, k)" in notes[0]
    assert main(["emit", *OP, "--transpose-b", "--target", "sm_90a"]) == 0
    printed = capsys.readouterr()
    assert "gemm.wgmma" in printed.out.splitlines()[0]
    assert "note: gemm.wgmma" not in printed.err


def test_the_rejected_are_in_the_json_and_a_named_variant_passes_none_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", *OP, "--target", "sm_90a", "--json"]) == 0
    assert any("gemm.wgmma ranks above" in line for line in json.loads(capsys.readouterr().out)["rejected"])
    assert main(["emit", *OP, "--target", "sm_90a", "--variant", "gemm.mma_sync", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rejected"] == []


def test_the_note_on_a_better_variant_names_the_flag_and_none_is_on_what_nothing_builds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = ["emit", "gemm", "-m", "128", "-n", "128", "-k", "64", "--dtype", "f16", "--target", "sm_90a"]
    assert main(problem) == 0
    notes = capsys.readouterr().err
    assert "gemm.wgmma ranks above" in notes
    assert all(line.endswith("; --transpose-b stores b so") for line in notes.splitlines())
    assert "tcgen05" not in notes
    assert main([*problem, "--transpose-b"]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [(["--transpose-b"], "gemm.mma_tma"), ([], "gemm.mma_cp_async"), (["--dtype", "f32"], "gemm.simt")],
    ids=["transposed", "row-major", "f32"],
)
@pytest.mark.parametrize("target", ["sm_100a", "b200"])
def test_tcgen05_is_named_beside_the_mma_sync_that_runs_in_its_place(
    target: str, flags: list[str], chosen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["emit", *(OP[:-2] if "--dtype" in flags else OP), *flags, "--target", target, "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"| {chosen} |" in found["text"].splitlines()[0]
    named = [line for line in found["rejected"] if line.startswith("gemm.tcgen05 ranks above")]
    assert len(named) == (chosen != "gemm.simt")
    assert all("found none in this version" in line and "by mma.sync" in line for line in named)
    assert not any("--transpose-b" in line for line in named)


def test_an_op_without_gpu_variants_is_refused_in_the_same_words_by_every_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = ["conv2d", "--channels", "8", "--size", "8", "--filters", "8", "--kernel", "3", "--target", "sm_80"]
    said = set()
    for verb in ("explain", "verify", "emit"):
        assert main([verb, *problem]) == BAD_USAGE
        said.add(capsys.readouterr().err.strip().splitlines()[-1])
    (line,) = said
    assert "variants of conv2d on sm_80: got 0, expected a variant for conv2d; those there are for gemm" in line
