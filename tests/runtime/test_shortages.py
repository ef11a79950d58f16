"""What a machine, a limit or a disk is out of is told by what to do, and passes for nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import tracea.runtime.compiler as compiler_module
from tracea.cli import main as cli
from tracea.errors import CacheError, CacheUnwritable, CompileError
from tracea.optimizer import (
    Budget,
    IsolatedEvaluation,
    Limits,
    Outcome,
    OutcomeKind,
    SearchSpace,
    Study,
    StudyKey,
    TrialStore,
    sampler,
)
from tracea.runtime import cache, compiler_process, shortage
from tracea.runtime.cache import CacheStore, default_store
from tracea.runtime.compiler import compile
from tracea.runtime.compiler_process import run_compiler

STARVED = [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM]
KEY = "key"


@pytest.fixture
def fresh(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiler_module, "_registry", compiler_module._Registry())
    monkeypatch.setattr(cache, "_process", cache._Process())
    return empty_cache


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, where this user may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", place], check=False)
    if done.returncode:
        pytest.skip("no mounts here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def starved_of(code: int):
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("code", STARVED)
def test_a_compiler_that_cannot_be_started_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(compiler_process.subprocess, "Popen", starved_of(code))
    with pytest.raises(CompileError, match="could not be started") as caught:
        run_compiler(["g++"], 1.0, tmp_path)
    assert caught.value.remedy == shortage.starved_remedy(OSError(code, ""))
    assert list(tmp_path.iterdir()) == []
    outcome = Outcome.of_error(caught.value)
    assert (outcome.kind, outcome.was_killed) == (OutcomeKind.KILLED, True)  # and so it is not kept
    assert Outcome.of_error(CompileError(command=["g++"], log="no", exit_code=1)).kind is OutcomeKind.INVALID


@pytest.mark.parametrize("code", STARVED)
def test_a_cache_for_want_of_files_or_memory_says_what_to_do_and_stays(fresh: Path, code: int) -> None:
    def build(place: Path) -> None:
        (place / "content").write_text("x")

    with pytest.raises(CacheError) as caught:
        default_store().entry(KEY, starved_of(code), {})
    assert caught.value.remedy == shortage.starved_remedy(OSError(code, ""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no other place was taken
        assert fresh in default_store().entry(KEY, build, {}).parents


def test_a_full_disk_is_told_by_the_bytes_that_are_free(fresh: Path) -> None:
    with pytest.raises(CacheUnwritable, match=r"No space left on device; [\d_]+ bytes are free there") as caught:
        CacheStore(fresh).entry(KEY, starved_of(errno.ENOSPC), {})
    assert "100 MiB" in caught.value.remedy


def test_a_file_that_may_not_grow_is_told_by_its_limit(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage.resource, "getrlimit", lambda _: (102_400, 102_400))
    with pytest.raises(CacheUnwritable, match="a file of this process may have 102_400 bytes") as caught:
        CacheStore(fresh).entry(KEY, starved_of(errno.EFBIG), {})
    assert "ulimit -f" in caught.value.remedy


def test_a_compiler_whose_file_may_not_grow_is_not_at_fault(fresh: Path) -> None:
    def build(place: Path) -> None:
        said = "echo 'g++: internal compiler error: File size limit exceeded signal terminated program cc1plus'; exit 4"
        run_compiler(["sh", "-c", said], 10.0, place)

    with pytest.raises(CacheUnwritable, match="File size limit exceeded: ") as caught:
        CacheStore(fresh).entry(KEY, build, {})
    assert "ulimit -f" in caught.value.remedy


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded"])
def test_a_compiler_on_a_full_disk_is_told_by_the_place_that_is_full(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho \"as: can't write 123 bytes to section .text of k.o: '{said}'\"\nexit 1\n")
    compiler.chmod(0o700)

    def build(place: Path) -> None:
        run_compiler([str(compiler), "-c", "kernel.cpp"], 10.0, place)

    with pytest.raises(CacheUnwritable, match=rf"{said}: '{fresh}/.*'; [\d_]+ bytes are free there") as caught:
        CacheStore(fresh).entry(KEY, build, {})
    assert str(caught.value).startswith(f"{fresh}: ")
    assert str(compiler) not in str(caught.value)
    assert "free space there" in caught.value.remedy


def test_temporary_files_of_a_compiler_are_where_its_result_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setenv("DEPENDENCIES_OUTPUT", str(tmp_path / "dependencies"))
    said = 'echo "$TMPDIR $TMP $TEMP $DEPENDENCIES_OUTPUT" > "$1"; echo x > "$TMPDIR/cc.s"'
    run_compiler(["sh", "-c", said, "sh", str(tmp_path / "said")], 10.0, tmp_path)
    assert (tmp_path / "said").read_text().split() == [str(tmp_path / "temporary")] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["said"]
    with pytest.raises(CompileError, match="stopped after"):  # killed, and what it was at is gone as well
        run_compiler(["sh", "-c", 'echo x > "$TMPDIR/cc.s"; exec sleep 60'], 0.5, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_a_full_temporary_directory_is_not_in_the_way(
    fresh: Path, small: Path, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="No space"), open(small / "filler", "wb") as file:
        file.write(bytes(9 << 20))
    monkeypatch.setenv("TMPDIR", str(small))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (kernel,) = compile([kit.scale_source("beside_a_full_disk")])
    assert fresh in kernel.library.path.parents


def test_a_disk_without_room_for_the_precompiled_headers_serves_kernels(
    fresh: Path, small: Path, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(small))
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernels = [compile([kit.scale_source(f"small_{index}")])[0] for index in range(2)]
    assert all(small in kernel.library.path.parents for kernel in kernels)
    assert [type(each.message) for each in caught] == [CacheUnwritable]
    assert "precompiled take up to" in str(caught[0].message)
    assert not list((small / "v1" / "building").iterdir())


def test_precompiled_headers_that_are_there_are_used_on_a_full_disk(
    fresh: Path, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile([kit.scale_source("first")])
    monkeypatch.setattr(compiler_module, "free_bytes", lambda _: 1000)
    seen: list[list[str]] = []
    real = compiler_module.run_compiler
    monkeypatch.setattr(
        compiler_module, "run_compiler", lambda command, *rest: (seen.append(list(command)), real(command, *rest))[1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile([kit.scale_source("second")])
    assert any("prelude" in word for word in seen[0])


BUILDER = """
import sys, time
from pathlib import Path
from tracea.runtime.cache import CacheStore

def build(place):
    (place / "half").write_text("x" * 1000)
    print(place.name, flush=True)
    time.sleep(60)

CacheStore(Path(sys.argv[1])).entry(sys.argv[2], build, {})
"""


def started(root: Path, key: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", BUILDER, str(root), key], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_builder_left_goes_with_the_next_that_opens_the_cache(tmp_path: Path, sent: int) -> None:
    root = tmp_path / "cache"
    dead, left = started(root, "dead")
    alive, working = started(root, "alive")
    try:
        dead.send_signal(sent)
        dead.wait(10.0)
        assert {path.name for path in (root / "v1" / "building").iterdir()} == {left, working}
        CacheStore(root).prepare()
        assert [path.name for path in (root / "v1" / "building").iterdir()] == [working]
    finally:
        for process in (dead, alive):
            process.kill()
            process.communicate()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Path]:
    """A cache that is closed to this user, who is another than root meanwhile."""
    if os.geteuid():
        pytest.skip("needs to become another user")
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own is closed to the user that root becomes below
    place.chmod(0o755)
    root = place / "cache"
    CacheStore(root).entry(KEY, lambda at: (at / "content").write_text("x"), {})
    TrialStore(root / "trials.sqlite").close()
    os.seteuid(65534)
    yield root
    os.seteuid(0)
    shutil.rmtree(place)


def test_a_trial_store_in_anothers_closed_directory_is_unwritable(others: Path) -> None:
    with pytest.raises(CacheUnwritable):
        TrialStore(others / "trials.sqlite")


@pytest.mark.parametrize("command", ["ls", "verify", "export", "gc"])
def test_the_commands_say_whose_a_closed_directory_is(
    others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(others))
    code = cli.main(["cache", command, *([str(others.parent / "trials.jsonl")] if command == "export" else [])])
    said = "".join(capsys.readouterr())
    assert code != 0
    assert "belongs to user 0" in said or "Permission denied" in said
    assert "Traceback" not in said


def test_a_full_disk_ends_a_search_and_is_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "optimizer"))
    key = StudyKey(op_key="gemm 64x64x64 f32", variant="packed")
    space = SearchSpace.constrained({"tile": (8, 16, 32)})
    target = "isolated_candidates:find_no_place"
    with (
        TrialStore(tmp_path / "trials.sqlite") as store,
        IsolatedEvaluation(target, Limits(seconds=30.0)) as evaluate,
    ):
        with pytest.raises(CacheUnwritable, match="0 bytes are free") as caught:
            Study(sampler("grid", space), evaluate, Budget(trials=3), store=store, key=key).run()
        assert caught.value.remedy == "free space"
        assert store.find(imported=None) == []
