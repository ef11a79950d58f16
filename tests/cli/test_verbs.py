from __future__ import annotations

import errno
import importlib.util
import json
import platform
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracea.cli import main as cli
from tracea.doctor import probe_machine
from tracea.optimizer.budget import Budget
from tracea.optimizer.storage import StudyKey, TrialRecord, TrialStore
from tracea.optimizer.trial import Outcome, OutcomeKind
from tracea.profiler.measurement import Ratio
from tracea.runtime.cache import CacheStore


@dataclass(frozen=True)
class Report:
    """What an optimized model tells, as the verb expects it."""

    passed: bool = True
    machine: str = "one core\nof silicon"
    graph: str = "x = source()\nreturn x"
    judged: tuple[str, ...] = ("up (gemm), 1 thread",)
    threads: int = 1
    share: float = 0.875
    kernels_us: float | None = 123.4
    call_us: float | None = 246.8
    from_cache: bool = False
    seconds: float = 12.25
    problems: tuple[str, ...] = ("Other programs use 1.3 of the 2 cores",)
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> tuple[Any, ...]:
        class Verdict(SimpleNamespace):
            def __str__(self) -> str:
                return f"gemm: {'passed' if self.passed else 'FAILED'}\n  detail of the check"

        return (Verdict(passed=self.passed),)

    @property
    def table(self) -> list[Any]:
        ratio = Ratio(median=1.5, low=1.25, high=1.75, pairs=30, processes=3)
        return [
            SimpleNamespace(name="tracea", threads=1, median_ms=1.0, ratio=None, measured="2026-05-04", doubt=""),
            SimpleNamespace(
                name="eager [red]",
                threads=2,
                median_ms=1.5,
                ratio=ratio,
                measured="2026-05-05",
                doubt="others used 1.3 of 2 cores",
            ),
        ]

    def to_json(self) -> str:
        return json.dumps({"share": self.share})


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    """Stand in for the session that the verb calls; returns what it was asked."""
    asked: dict[str, Any] = {}

    def install(report: Report) -> dict[str, Any]:
        def optimize_file(builder: str, **options: Any) -> Report:
            asked.update(options, builder=builder)
            options["progress"].note("working")
            return report

        monkeypatch.setitem(sys.modules, "tracea.bench.session", SimpleNamespace(optimize_file=optimize_file))
        return asked

    return install


def test_optimize_prints_every_part(session, capsys: pytest.CaptureFixture[str]) -> None:
    asked = session(Report(from_cache=True))
    assert cli.main(["optimize", "model.py:build", "--trials", "7", "--no-peers"]) == 0
    assert (asked["builder"], asked["budget"], asked["peers"]) == ("model.py:build", Budget(trials=7), False)
    captured = capsys.readouterr()
    assert captured.err == "working\n"
    for part in (
        "of silicon",
        "return x",
        "up (gemm), 1 thread: gemm: passed",
        "median of the quotients of rounds in turns",
        "1.500 [1.250, 1.750]",
        "eager [red]",
        "87.5%",
        "2026-05-04",
        "nothing was searched",
        "warning: Other programs use 1.3",
        "1 thread: 87.5% of the time in kernels is in our kernels: all were measured, each by itself, 123.4 µs added",
        "that is 50% of the 246.8 µs of a call in the table: the rest is the call itself",
        "12.2 s in all",
    ):
        assert part in captured.out
    assert "detail of the check" not in captured.out


@pytest.mark.parametrize(
    ("call_us", "said"),
    [
        (None, "each by itself, 123.4 µs added up\n"),
        (101.5, "that is 122% of the 101.5 µs of a call in the table: kernels by"),
    ],
)
def test_the_kernels_part_of_a_call_is_said_as_it_was_measured(
    session, capsys: pytest.CaptureFixture[str], call_us: float | None, said: str
) -> None:
    session(Report(call_us=call_us))
    assert cli.main(["optimize", "model.py:build"]) == 0
    assert said in capsys.readouterr().out


def test_each_row_has_its_own_date_and_only_a_doubtful_one_is_marked(
    session, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = session(Report())
    assert cli.main(["optimize", "model.py:build", "--again"]) == 0
    assert asked["again"] is True
    lines = capsys.readouterr().out.splitlines()
    (quiet,) = (line for line in lines if "2026-05-04" in line)
    (doubtful,) = (line for line in lines if "2026-05-05" in line)
    assert "tracea" in quiet
    assert "doubtful" not in quiet
    assert "eager [red]" in doubtful
    assert "doubtful: others used 1.3 of 2 cores" in doubtful
    assert any(line.endswith("measures them again: tracea optimize model.py:build --again") for line in lines)


def test_the_command_that_measures_again_is_the_one_that_was_given(session, capsys: pytest.CaptureFixture[str]) -> None:
    session(Report())
    assert cli.main(["optimize", "my model.py:build", "--threads", "4", "--accuracy", "normwise"]) == 0
    said = "tracea optimize 'my model.py:build' --threads 4 --accuracy normwise --again"
    assert any(line.endswith(said) for line in capsys.readouterr().out.splitlines())


def test_optimize_without_trials_searches_nothing_and_says_so(session, capsys: pytest.CaptureFixture[str]) -> None:
    asked = session(Report(from_cache=True))
    assert cli.main(["optimize", "model.py:build", "--trials", "0"]) == 0
    assert asked["budget"] is None
    out = capsys.readouterr().out
    assert "nothing was searched: schedules are those that earlier searches found, else the defaults" in out
    assert "every schedule was known" not in out
    assert "model.py:build --trials 0 --again" in out


def test_optimize_fails_with_a_failed_verdict_and_says_why(session, capsys: pytest.CaptureFixture[str]) -> None:
    session(Report(passed=False))
    assert cli.main(["optimize", "model.py:build"]) == cli.FAILED
    assert "detail of the check" in capsys.readouterr().out


def test_optimize_as_json_is_nothing_but_json(session, capsys: pytest.CaptureFixture[str]) -> None:
    session(Report())
    assert cli.main(["optimize", "model.py:build", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"share": 0.875}


def test_cache_ls_of_no_cache(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "ls"]) == 0
    assert "0 entries" in capsys.readouterr().out
    assert not empty_cache.exists()


def entry_of(root: Path) -> Path:
    return CacheStore(root).entry(
        "ab" * 32, lambda folder: (folder / "kernel.so").write_bytes(b"x" * 2048), {"what": "library"}
    )


def test_cache_ls_lists_entries_and_trials(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry_of(empty_cache)
    with TrialStore(empty_cache / "trials.sqlite") as store:
        store.add(
            TrialRecord(
                key=StudyKey(op_key="gemm"),
                schedule={"mc": 8},
                outcome=Outcome(kind=OutcomeKind.OK, latency_ms=1.0),
                seconds=0.1,
                sampler="random",
                seed=0,
                recorded_at=0.0,
            )
        )
    assert cli.main(["cache", "ls", "--check"]) == 0
    text = capsys.readouterr().out
    for part in ("1 entry, 2.0 KiB", "1 trial ", "library", "sound"):
        assert part in text
    assert cli.main(["cache", "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["trials"], listed["bytes"], listed["entries"][0]["key"]) == (1, 2048, "ab" * 32)


def test_cache_rm_takes_a_key_by_its_beginning_or_all(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry_of(empty_cache)
    store = CacheStore(empty_cache)
    for key in ("abcd" * 16, "ef" * 32):
        store.entry(key, lambda folder: (folder / "kernel.so").write_bytes(b"y" * 1024), {"what": "library"})
    for words in (["ab"], ["no such key"], [], ["ef", "--all"], ["../.."]):
        assert cli.main(["cache", "rm", *words]) == cli.BAD_USAGE
    assert len(list(store.entries())) == 3
    capsys.readouterr()
    assert cli.main(["cache", "rm", "abcd"]) == 0
    assert "1 entry removed, 1.0 KiB" in capsys.readouterr().out
    assert [entry.key for entry in store.entries()] == ["ab" * 32, "ef" * 32]
    assert cli.main(["cache", "rm", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": ["ab" * 32, "ef" * 32], "bytes": 3072}
    assert not list(store.entries())


def test_cache_ls_check_finds_a_flipped_bit(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = entry_of(empty_cache) / "kernel.so"
    path.chmod(0o600)
    path.write_bytes(b"x" * 2047 + b"y")
    assert cli.main(["cache", "ls"]) == 0
    assert cli.main(["cache", "ls", "--check"]) == cli.FAILED
    assert "sound" not in capsys.readouterr().out


@pytest.mark.parametrize("threads", ["", "0", "1,x", "-1", "1;2"])
def test_bench_refuses_threads_that_are_none(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", f"--threads={threads}"]) == cli.BAD_USAGE
    assert "--threads" in capsys.readouterr().err


@pytest.mark.parametrize("against", ["", ",", " "])
def test_bench_refuses_to_race_against_nobody(
    against: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tracea.bench.run.run_suite", lambda *_, **given: pytest.fail(f"ran {given}"))
    assert cli.main(["bench", f"--against={against}"]) == cli.BAD_USAGE
    assert "--against torch,onnxruntime" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "folder"), [((), "benchmarks/results/zen3"), (("--only", "64x64x64"), None)])
def test_a_part_of_a_suite_leaves_the_whole_record(
    words: tuple[str, ...], folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("tracea.bench.run.run_suite", lambda suite, **given: asked.update(given) or [])
    found = probe_machine()
    hardware = replace(found.hardware, microarchitecture="zen3", masked=(), withheld=frozenset())
    found = replace(found, hardware=hardware)
    monkeypatch.setattr("tracea.bench.results.probe_machine", lambda: found)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--threads", "1", *words]) == 0
    assert asked["output"] == (None if folder is None else Path(folder))


def test_emit_takes_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["emit", "gemm", "-m", "4", "-n", "4", "-k", "4", "--ir", "--asm"]) == cli.BAD_USAGE
    assert "give --ir alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "part"), [((), "tracea_call"), (("--ir",), "gemm_tile"), (("--certificate",), "coverage")]
)
def test_emit_prints_the_kernel_in_a_form(form: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["emit", "gemm", "-m", "64", "-n", "64", "-k", "64", "--target", "plain", *form]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert part in text
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == text.removesuffix("\n")


def test_emit_refuses_a_schedule_that_the_variant_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["emit", "gemm", "-m", "64", "-n", "64", "-k", "64", "--target", "plain", "--schedule", "zz=3"]
    assert cli.main(words) == cli.BAD_USAGE
    assert "zz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--variant", "library.gemm"), "got library.gemm, a library's own call, expected a variant with a kernel"),
        (("--variant", "gemm.direct", "--schedule", "mr=6,tail=0"), r"InvalidSchedule: .*expected m % 6 == 0\."),
        (("--variant", "gemm.direct", "--schedule", "split=1"), r"got 1, expected rows \| columns"),
    ],
)
def test_emit_says_why_what_is_stated_has_no_kernel(
    words: tuple[str, ...], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["emit", "gemm", "-m", "64", "-n", "64", "-k", "64", *words]) == cli.BAD_USAGE
    assert re.search(found, capsys.readouterr().err)


def test_tune_searches_and_resumes(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "softmax", "--rows", "16", "--columns", "32", "--trials", "2", "--json"]
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    first = json.loads(captured.out)
    assert "fastest so far" in captured.err
    assert first["fresh"] >= 1
    assert first["best"]["outcome"] == "ok"
    assert first["decision"]["variant"] in first["trials"]
    assert first["decision"]["variant"] == first["final"][0]["variant"]
    assert first["final"][0]["latency_ms"] > 0
    assert cli.main(words[:-1]) == 0
    captured = capsys.readouterr()
    assert "trials, 0 of them now" in captured.out
    assert "best" not in captured.err  # no trial was made; a busy machine may say more than nothing


@pytest.mark.skipif(platform.machine() == "aarch64", reason="its own assembly is not another processor's")
def test_assembly_for_another_processor_takes_a_compiler_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["emit", "softmax", "--rows", "4", "--columns", "64", "--target", "neon", "--asm"]
    monkeypatch.setattr("tracea.flow.text.compilers", lambda: ())
    assert cli.main(words) == cli.FAILED
    said = capsys.readouterr().err
    assert "C++ compiler for aarch64" in said
    assert "pip install ziglang" in said
    monkeypatch.undo()
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no ziglang wheel")
    assert cli.main(words) == 0
    assert re.search(r"\bv\d+\.4s\b", capsys.readouterr().out)


def test_assembly_on_a_full_disk_is_told_by_the_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(command: Any, seconds: float, place: Path, product: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(place))

    monkeypatch.setattr("tracea.flow.text.run_compiler", full)
    assert cli.main(["emit", "softmax", "--rows", "4", "--columns", "64", "--asm"]) == cli.FAILED
    said = capsys.readouterr().err
    assert re.search(r"CacheUnwritable: .*tracea-asm-.*No space left on device: .*bytes are free there", said)
    assert "Remedy: free space there, or set TMPDIR" in said
