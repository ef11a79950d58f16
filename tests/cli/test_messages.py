"""What a newcomer types wrong: the message says what was given, what is allowed, and a remedy that can be typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracea import targets
from tracea.bench.suites import problems
from tracea.cli import bench
from tracea.cli.console import called_as
from tracea.cli.main import BAD_USAGE, main

GEMM = ("gemm", "-m", "64", "-n", "64", "-k", "64")
HERE = ("emit", *GEMM, "--target", "avx512")


def message(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(list(words)) == BAD_USAGE
    (line,) = capsys.readouterr().err.strip().splitlines()
    statement, _, remedy = line.partition("Remedy: ")
    assert remedy
    assert "..." not in remedy, "a remedy is to be typed as it stands"
    assert "see the" not in statement + remedy
    return line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("gate", "gone.json", "--baseline", "gone.json"),
            "got gone.json: No such file or directory, expected a record",
        ),
        (("emit", "gemm", "-m", "-5", "-n", "64", "-k", "64"), "-m: got -5, expected 0 or more"),
        (("emit", *GEMM, "--rows", "5"), "flags of gemm: got --rows, expected -m -n -k"),
        (("emit", "softmax", "--rows", "5"), "softmax --rows 4096 --columns 4096"),
        (("emit", *GEMM, "--target", "avx1024"), "got avx1024, expected host amx avx2"),
        ((*HERE, "--threads", "0"), "--threads: got 0, expected a whole number from 1 to 1024"),
        (("explain", *HERE[1:], "--variant", "gemm.dirct"), "--variant: got gemm.dirct"),
        (("explain", "examples/mlp.py:build", "--variant", "gemm.direct"), "expected none for a model"),
        ((*HERE, "--schedule", "mr=999"), "mr*nv + nv + 1 <= 32"),
        ((*HERE, "--schedule", "kc=0"), "kc: got 0, expected 1 to 1099511627776"),
        ((*HERE, "--schedule", "split=up"), "split: got up, expected rows | columns"),
        ((*HERE, "--schedule", "stages=3"), "schedule of gemm.direct: got stages, expected"),
        (("optimize", "gone.py:build"), "got gone.py: no such file"),
        (("optimize", "gone.py"), "expected file.py:function"),
        (("explain", "examples/mlp.py"), "such as examples/mlp.py:build"),
        (("explain", "examples/mlp.py:biuld"), "use build, if that was meant"),
        (("optimize", "examples/mlp.py:biuld"), "use build, if that was meant"),
        (("tune", "gem", "-m", "64"), "use gemm, if that was meant"),
        (("bench", "--suite", "sparce", "--only", "x"), "use sparse, if that was meant"),
        (("bench", "--suite", "gemm", "--only", "zzz"), "InvalidOption: --only: got zzz, expected 2048x2048x2048 |"),
        (("bench", "--suite", "gemm", "--pairs=0"), "InvalidOption: --pairs: got 0, expected at least 1"),
        (("bench", "--suite", "sparse", "--against", "tourch"), "use torch, if that was meant"),
    ],
    ids=" ".join,
)
def test_message_says_what_was_given_and_what_is_allowed(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in message(words, capsys)


def test_emit_shows_the_kernel_of_as_many_threads(capsys: pytest.CaptureFixture[str]) -> None:
    def head(threads: int) -> str:
        words = ("gemm", "-m", "512", "-n", "512", "-k", "512", "--target", "avx2", "--threads", str(threads))
        assert main(["emit", *words]) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert "split=rows" in head(1)
    assert "split=columns" in head(4)


@pytest.mark.parametrize("form", ["", "--ir", "--certificate"])
@pytest.mark.parametrize("extents", ["--heads 8 --seq 0", "--heads 0 --seq 4", "--heads 8 --seq 4 --batch 0"])
def test_emit_shows_a_kernel_that_no_call_gets_to(form: str, extents: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"attention {extents} --dim 16 --target avx2 {form}"
    assert main(["emit", *words.split()]) == 0
    told = capsys.readouterr()
    assert "attention" in told.out
    assert told.err == "note: the result has no elements: a call returns it, and runs no kernel\n"


@pytest.mark.parametrize(
    ("extents", "limit"), [("--seq 0", "none: nothing is computed, read or written"), ("--seq 4 --kv-seq 0", "at the ")]
)
def test_explain_sets_no_limit_to_nothing(extents: str, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "attention", "--heads", "2", *extents.split(), "--dim", "16", "--target", "zen4"]) == 0
    lines = {line.split(" ", 1)[0]: line.split(" ", 1)[1].strip() for line in capsys.readouterr().out.splitlines()}
    assert lines["Limits"].startswith(limit)
    assert ("empty" in lines["Measured"]) is (extents == "--seq 0")


def test_an_unknown_target_lists_those_of_gpus_too(capsys: pytest.CaptureFixture[str]) -> None:
    line = message(("emit", *GEMM, "--target", "avx1024"), capsys)
    assert all(name in line for name in (*targets.names(), *targets.gpu_names()))


@pytest.mark.parametrize("verb", ["emit", "explain", "verify"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zen", "use zen3 or zen4 or zen5, if that was meant"),
        ("H10", "use h100, if that was meant"),
        ("avx51", "use avx512, if that was meant"),
        ("raspberry", "Remedy: tracea targets ls lists every name"),
        ("mi300x", "AMD Instinct MI300X is described, but there is no emitter for gfx942 yet"),
    ],
)
def test_an_unknown_target_is_told_what_is_near_and_the_list_is_not_cut(
    verb: str, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = message((verb, *GEMM, "--target", name), capsys)
    assert said in line
    assert "characters)" not in line


@pytest.mark.parametrize(("name", "said"), [("nope", "Remedy: tracea targets ls"), ("rtx", "use rtx_3070 or rtx_3090")])
def test_an_unknown_name_of_the_catalogue_is_told_what_is_near(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = message(("targets", "show", name), capsys)
    assert (
        f"expected one of the {len(targets.names()) + len(targets.gpu_names()) + len(targets.product_names())}" in line
    )
    assert said in line
    assert "characters)" not in line


@pytest.mark.parametrize("verb", ["emit", "explain", "tune", "verify"])
def test_an_element_type_without_kernels_is_refused_before_anything_begins(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = message((verb, *GEMM, "--dtype", "i8"), capsys)
    assert "--dtype: got i8, expected f32 f64 f16 bf16" in line


def test_a_tile_too_large_is_told_the_largest_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    line = message((*HERE, "--schedule", "mr=999"), capsys)
    largest = line.partition("Remedy: ")[2].split()[0]
    assert main([*HERE, "--schedule", f"{largest},tail=0"]) in (0, BAD_USAGE)
    assert "vector registers" not in capsys.readouterr().err


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "gone" / "trials.csv"
    line = message(("tune", *GEMM, "--trials", "1", "--log", str(log)), capsys)
    assert f"got {log}: No such file or directory, expected a file that can be written" in line


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("tune", *GEMM, "--trials", "1.5"), "--trials: 1.5 is no whole number"),
        (("tune", *GEMM, "--trials", "1.5e0"), "--trials: 1.5e0 is no whole number"),
        (("explain", "gemm", "-m", "32.7", "-n", "32", "-k", "32"), "-m: 32.7 is no whole number"),
    ],
)
def test_a_fraction_is_not_rounded(words: tuple[str, ...], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert given in message(words, capsys)


@pytest.mark.parametrize("verb", [("tune", *GEMM), ("optimize", "model.py:build")])
@pytest.mark.parametrize(
    ("option", "value"), [("--trials", "-1"), ("--trials", "1000001"), ("--seconds", "-1"), ("--seconds", "nan")]
)
def test_a_budget_is_refused_in_the_words_of_the_command_line(
    verb: tuple[str, ...], option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = message((*verb, option, value), capsys)
    assert f"{option}: got {value}" in line
    assert "budget" not in line


def test_no_trials_are_no_search_of_a_model_and_no_tuning_of_an_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--trials: got 0" in message(("tune", *GEMM, "--trials", "0"), capsys)
    line = message(("optimize", "model.py:build", "--trials", "0", "--seconds", "5"), capsys)
    assert "--seconds: got 5.0" in line
    assert "Remedy: leave it out" in line
    assert "no such file" in message(("optimize", "gone.py:build", "--trials", "0"), capsys)
    assert "at least 0" in message(("optimize", "gone.py:build", "--trials", "-1"), capsys)


@pytest.mark.parametrize("line", ["raise SystemExit(0)\ndef build(): pass", "def build(): raise SystemExit"])
def test_a_model_file_that_ends_the_process_is_no_success(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "leaving.py"
    path.write_text(line, encoding="utf-8")
    assert main(["explain", f"{path}:build"]) == BAD_USAGE
    assert "SystemExit" in capsys.readouterr().err


def test_a_hint_names_the_command_as_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "a venv" / "tracea"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(script)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert called_as() == f"'{script}'"  # nobody finds it by its name
    monkeypatch.setenv("PATH", str(script.parent))
    assert called_as() == "tracea"
    monkeypatch.setattr("sys.argv", ["/somewhere/tracea/__main__.py"])
    assert called_as().endswith(" -m tracea")
    monkeypatch.setattr("sys.argv", ["/somewhere/pytest"])
    assert called_as() == "tracea"


def test_what_cannot_be_timed_here_is_refused_before_anything_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--threads: got 999" in message(("verify", *GEMM, "--threads", "999", "--latency"), capsys)
    assert main(["explain", *GEMM, "--threads", "999", "--no-measure"]) == 0
    assert "not yet; nothing can be: 999 threads wait for each other" in capsys.readouterr().out
    assert main(["tune", *GEMM, "--variant", "library.gemm"]) == BAD_USAGE
    assert "a library takes part in the final of every search" in capsys.readouterr().err


def test_a_suites_place_and_counts_are_looked_at_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "record.json"
    file.touch()
    for place in (file, file / "below"):
        line = message(("bench", "--suite", "rows", "--only", "softmax", "--output", str(place)), capsys)
        assert f"{file} is no folder" in line
    assert not (tmp_path / "below").exists()
    line = message(("bench", "--suite", "rows", "--threads", "12345678901"), capsys)
    assert "--threads: got 12345678901, expected whole numbers" in line
    line = message(("bench", "--suite", "gpu", "--driver", "null", "--target", "sm_80", "--workers", "0"), capsys)
    assert "workers 0" in line


def test_a_number_of_threads_that_is_said_twice_is_measured_once() -> None:
    assert bench._numbers("2,1, 2") == (2, 1)


@pytest.mark.parametrize("only", ["softmax_512x768", "layer norm 512", "rms_norm 512x768"])
def test_a_problem_is_named_without_quotes(only: str) -> None:
    (found,) = problems("rows", only)
    assert found.name.replace("_", " ").endswith("512x768")
