"""tracea cache verify, gc, export, import; ls and rm are in test_verbs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.test_verbs import entry_of

from tracea.cli import main as cli
from tracea.optimizer import Outcome, OutcomeKind
from tracea.optimizer.storage import StudyKey, TrialRecord, TrialStore
from tracea.runtime.cache import CacheStore


def a_trial(
    root: Path,
    op_key: str = "gemm",
    *,
    variant: str = "",
    latency_ms: float = 1.0,
    retimed_ms: float | None = None,
    toolchain: str = "",
) -> None:
    key = StudyKey(op_key=op_key, variant=variant, toolchain={"gcc": toolchain} if toolchain else {})
    with TrialStore(root / "trials.sqlite") as store:
        number = store.add(
            TrialRecord(
                key=key,
                schedule={"mc": 8},
                outcome=Outcome(kind=OutcomeKind.OK, latency_ms=latency_ms),
                seconds=0.1,
                sampler="random",
                seed=0,
                recorded_at=0.0,
            )
        )
        if retimed_ms is not None:
            store.retime(number, retimed_ms)


def test_cache_ls_names_the_winner_of_the_final_of_the_latest_toolchain(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty_cache.mkdir(mode=0o700)
    a_trial(empty_cache, variant="old", latency_ms=0.5, toolchain="12")
    a_trial(empty_cache, variant="out", latency_ms=1.0, toolchain="13")
    a_trial(empty_cache, variant="lost", latency_ms=1.2, retimed_ms=2.0, toolchain="13")
    a_trial(empty_cache, variant="won", latency_ms=1.3, retimed_ms=1.8, toolchain="13")
    assert cli.main(["cache", "ls"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gemm", "here", "4", "4", "1.8", "ms", "won"] in rows


def test_cache_verify_names_what_is_damaged_and_gc_removes_it(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = entry_of(empty_cache) / "kernel.so"
    a_trial(empty_cache)
    assert cli.main(["cache", "verify"]) == 0
    assert "1 of 1 entry sound; 1 trial can be read" in capsys.readouterr().out
    path.write_bytes(b"x" * 2047 + b"y")
    assert cli.main(["cache", "verify"]) == cli.FAILED
    assert "kernel.so does not match its checksum" in capsys.readouterr().out
    assert cli.main(["cache", "gc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": ["ab" * 32], "leftovers": 0, "recent": 0, "bytes": 2048}
    (empty_cache / "trials.sqlite").write_bytes(b"no database" * 500)
    assert cli.main(["cache", "verify", "--json"]) == cli.FAILED
    assert "not a database" in json.loads(capsys.readouterr().out)["trials_problem"]


def test_cache_export_and_import_carry_trials_as_advice(
    empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_cache.mkdir(mode=0o700)
    a_trial(empty_cache)
    file = tmp_path / "trials.jsonl"
    assert cli.main(["cache", "export", str(file)]) == 0
    assert "1 trial written" in capsys.readouterr().out
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "other"))
    for expected in ("1 trial imported, 0 known before", "0 trials imported, 1 known before"):
        assert cli.main(["cache", "import", str(file)]) == 0
        assert expected in capsys.readouterr().out
    assert cli.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert "0 trials of earlier searches, 1 imported" in out
    assert "elsewhere, imported" in out
    file.write_bytes(file.read_bytes()[:-9])
    assert cli.main(["cache", "import", str(file)]) == cli.BAD_USAGE
    assert cli.main(["cache", "gc", "--unused-days", "-1"]) == cli.BAD_USAGE


def test_ls_sums_up_by_kind_and_lists_the_newest(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = CacheStore(empty_cache)
    for number in range(25):
        what = "certificate" if number % 5 else "search"
        made = store.entry(
            f"{number:040x}",
            lambda folder: (folder / "text").write_bytes(b"x" * 100),
            {"what": what, "op": f"op{number:02}"},
        )
        if number == 1:
            (made / "text").write_bytes(b"y" * 100)

    def listed(*flags: str) -> tuple[str, list[int]]:
        assert cli.main(["cache", "ls", *flags]) == (cli.FAILED if "--check" in flags else 0)
        out = capsys.readouterr().out
        return out, [number for number in range(25) if f"op{number:02}" in out]

    out, shown = listed()
    assert "25 entries" in out
    assert "kernel's proofs: 20 of 2.0 KiB, finished search: 5 of 500 B" in out
    assert "the newest 20 of 25 entries; --all lists all" in out
    assert shown == list(range(5, 25))
    out, shown = listed("--check")
    assert "the newest 20 of 25 entries, and 1 older with a problem; --all lists all" in out
    assert shown == [1, *range(5, 25)]
    out, shown = listed("--all")
    assert "newest" not in out
    assert shown == list(range(25))
    assert len(json.loads(listed("--json")[0])["entries"]) == 25


def test_ls_lists_the_ops_that_were_searched_last(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty_cache.mkdir(mode=0o700)
    for number in range(23):
        a_trial(empty_cache, f"gemm{number:02}")
    assert cli.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert "the last 20 of 23 ops that were searched; --all lists all" in out
    assert [f"gemm{number:02}" in out for number in range(23)] == [False] * 3 + [True] * 20
    assert cli.main(["cache", "ls", "--all"]) == 0
    assert "gemm00" in capsys.readouterr().out


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_database_that_is_no_trial_store_is_refused_and_left_alone(
    version: int, empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "alien.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"CREATE TABLE x(a); PRAGMA user_version = {version}")
    before = file.read_bytes()
    assert cli.main(["cache", "import", str(file)]) == cli.BAD_USAGE
    shown = capsys.readouterr()
    assert "expected a file of tracea cache export, or a trial store" in shown.err
    assert not shown.out
    assert file.read_bytes() == before


def test_the_trials_of_another_cache_are_imported_from_its_store(
    empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_trial(tmp_path)
    for expected in ("1 trial imported, 0 known before", "0 trials imported, 1 known before"):
        assert cli.main(["cache", "import", str(tmp_path / "trials.sqlite")]) == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["ls", "verify"])
def test_a_line_end_in_the_directorys_name_is_escaped(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "two\nlines\x1b[31m"))
    assert cli.main(["cache", verb]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "two\\nlines\\x1b[31m" in line


@pytest.mark.parametrize("option", ["--limit-mib", "--unused-days"])
@pytest.mark.parametrize("value", ["inf", "1e308"])
def test_gc_refuses_limits_that_are_not_finite(
    option: str, value: str, empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = entry_of(empty_cache)
    assert cli.main(["cache", "gc", option, value]) == cli.BAD_USAGE
    assert f"{option}: got {float(value)}, expected a finite number" in capsys.readouterr().err
    assert path.is_dir()


@pytest.mark.parametrize("verb", ["ls", "verify", "gc", "rm --all", "export x.jsonl"])
def test_a_cache_directory_that_is_a_file_is_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "file"))
    assert cli.main(["cache", *verb.split()]) == cli.BAD_USAGE
    assert f"TRACEA_CACHE_DIR: got {tmp_path / 'file'}, expected a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["trials.sqlite", "new.jsonl", "v1/objects/new.jsonl"])
@pytest.mark.parametrize("is_linked", [False, True])
def test_an_export_into_the_cache_is_refused_and_the_store_is_kept(
    name: str, is_linked: bool, empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_cache / "v1" / "objects").mkdir(parents=True, mode=0o700)
    a_trial(empty_cache)
    before = (empty_cache / "trials.sqlite").read_bytes()
    (tmp_path / "link").symlink_to(empty_cache)
    target = (tmp_path / "link" if is_linked else empty_cache) / name
    assert cli.main(["cache", "export", str(target)]) == cli.BAD_USAGE
    assert "expected a file outside the cache directory" in capsys.readouterr().err
    assert (empty_cache / "trials.sqlite").read_bytes() == before
    assert name == "trials.sqlite" or not target.exists()


@pytest.mark.parametrize("command", [["gc"], ["rm", "--all"], ["rm", "$("]])
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_entry_is_removed_and_named_and_blocks_nothing(
    command: list[str], kind: str, empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_of(empty_cache)
    stray = entry.parent / "$(id)"
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    match kind:
        case "folder":
            stray.mkdir()
            (stray / "file").touch()
        case "file":
            stray.touch()
        case _:
            stray.symlink_to(kept)
    assert cli.main(["cache", "verify"]) == cli.FAILED
    assert "$(id): is no entry: its name is no key" in capsys.readouterr().out
    assert cli.main(["cache", *command]) == 0
    assert "removed, though it was no entry: $(id)" in capsys.readouterr().out
    assert [path.name for path in entry.parent.iterdir()] == ([] if "--all" in command else [entry.name])
    assert not list((empty_cache / "v1" / "building").iterdir())
    assert (kept / "file").exists()  # a link is removed, not what it leads to


@pytest.mark.parametrize("kind", ["folder", "dangling"])
def test_a_trial_store_that_is_no_file_is_not_called_sound(
    kind: str, empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry_of(empty_cache)
    store = empty_cache / "trials.sqlite"
    if kind == "folder":
        store.mkdir()
    else:
        store.symlink_to(tmp_path / "nowhere")
    assert cli.main(["cache", "verify"]) == cli.FAILED
    assert "damaged: trials.sqlite: is no regular file" in capsys.readouterr().out


def kept(root: Path, number: int, ingredients: dict[str, object], text: str = "") -> None:
    def build(folder: Path) -> None:
        (folder / "library.so").write_bytes(b"x")
        if text:
            (folder / "source.cpp").write_text(text, encoding="utf-8")

    CacheStore(root).entry(f"{number:040x}", build, ingredients)


def test_ls_names_the_op_that_an_entry_and_a_trial_belong_to(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    op = "gemm_64x64x64_f32_0123456789abcdef"
    two = f'#include "tracea/abi.h"\n\n// {op} | gemm.direct | host | mr=6\n// softmax_1 | rows.normalize | host\n'
    kept(empty_cache, 1, {"kind": "library", "name": "tracea_gemm_direct_0"}, two)
    kept(empty_cache, 2, {"kind": "certificate", "op": op, "variant": "gemm.packed"})
    kept(empty_cache, 3, {"kind": "compiler", "command": ["python", "-m", "ziglang"]})
    kept(empty_cache, 4, {"kind": "library", "name": "features"}, "// What the processor lets a program use\n")
    kept(empty_cache, 5, {"kind": "search", "op": "hostile\x1b[31m\nop"})
    assert cli.main(["cache", "ls", "--json"]) == 0
    found = {entry["key"][-1]: entry["of"] for entry in json.loads(capsys.readouterr().out)["entries"]}
    assert found["1"] == f"{op} by gemm.direct and 1 more"
    assert found["2"] == f"{op} by gemm.packed"
    assert (found["3"], found["4"]) == ("python -m ziglang", "features")
    a_trial(empty_cache)
    assert cli.main(["cache", "ls"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert "\x1b" not in text
    assert [line for line in lines if "compiled kernel" in line and f"{op} by gemm.direct" in line]
    assert [line for line in lines if "compiler's identity" in line and "python -m ziglang" in line]
    (searched,) = (line.split() for line in lines if line.strip().startswith("gemm "))
    assert searched == ["gemm", "here", "1", "1", "1", "ms"]  # one trial, verified; of a variant that it does not say


def test_hostile_schedules_are_refused_by_import_with_the_reason(
    empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TrialStore(tmp_path / "trials.sqlite") as store:
        for variant, value in (("gemm.packed", 8), ("gemm.packed", -8), ("gemm.evil", 8)):
            store.add(
                TrialRecord(
                    key=StudyKey(op_key="gemm_8x8x8_f32_0123456789abcdef", variant=variant),
                    schedule={"mc": value},
                    outcome=Outcome(kind=OutcomeKind.OK, latency_ms=1e-9),
                    seconds=0.1,
                    sampler="random",
                    seed=0,
                    recorded_at=0.0,
                )
            )
    assert cli.main(["cache", "import", str(tmp_path / "trials.sqlite")]) == cli.FAILED
    out = capsys.readouterr().out
    assert "1 trial imported, 0 known before" in out
    assert "1 trial refused: schedule value 'mc': got -8, expected a word or a whole number" in out
    assert "1 trial refused: this release has no variant 'gemm.evil'" in out
    assert cli.main(["cache", "import", "--json", str(tmp_path / "trials.sqlite")]) == cli.FAILED
    assert len(json.loads(capsys.readouterr().out)["refused"]) == 2


def test_an_export_over_another_caches_store_is_refused(
    empty_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for root in (empty_cache, other):
        root.mkdir(exist_ok=True, mode=0o700)
        a_trial(root)
    before = (other / "trials.sqlite").read_bytes()
    assert cli.main(["cache", "export", str(other / "trials.sqlite")]) == cli.BAD_USAGE
    assert "no export of trials" in capsys.readouterr().err
    assert (other / "trials.sqlite").read_bytes() == before


def test_ls_says_that_a_directory_that_others_could_write_is_refused(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry_of(empty_cache)
    assert cli.main(["cache", "ls"]) == 0
    assert "Refused" not in capsys.readouterr().out
    empty_cache.chmod(0o770)
    assert cli.main(["cache", "ls"]) == 1
    said = capsys.readouterr().out
    assert f"Refused: {empty_cache} can be written by others (mode 0770). Nothing here is used" in said
    assert f"chmod go-w {empty_cache}" in said
    assert cli.main(["cache", "ls", "--json"]) == 1
    assert "written by others" in json.loads(capsys.readouterr().out)["refused"]
