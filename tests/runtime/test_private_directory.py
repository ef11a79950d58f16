"""The temporary directory of a process that cannot use its cache: whose it is, and that it does not stay."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tracea.runtime import cache, private_directory
from tracea.runtime.private_directory import make_private_directory

WORK = """
import multiprocessing, os, signal, sys, time, warnings
from tracea.runtime.cache import default_store

def work(wait=False):
    warnings.simplefilter("ignore")
    path = default_store().entry("k", lambda place: (place / "a").write_text("a"), {})
    print(path.parents[2], flush=True)
    return time.sleep(60) if wait else str(path.parents[2])

def left():
    return [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("tracea")]
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Start a script in a process whose cache directory is a file."""
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    source = str(Path(cache.__file__).parents[2])
    environment = {
        **os.environ,
        "TRACEA_CACHE_DIR": str(tmp_path / "file"),
        "TMPDIR": str(tmp_path / "temporary"),
        "PYTHONPATH": source,
    }

    def started(text: str) -> subprocess.Popen[str]:
        script = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
        main = "".join(f"    {line}\n" for line in text.splitlines())
        script.write_text(f"{WORK}\nif __name__ == '__main__':\n{main}")
        return subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True)

    return started


def said(process: subprocess.Popen[str]) -> str:
    """Return a process's first line: the directory that it works in."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def left(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "temporary").glob("tracea*"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    "text",
    [
        "p = multiprocessing.get_context('{}').Process(target=work); p.start(); p.join(); assert not p.exitcode",
        "p = multiprocessing.get_context('{}').Pool(2); p.apply(work); p.close(); p.join()",
    ],
    ids=["process", "pool"],
)
def test_a_child_of_multiprocessing_leaves_nothing(run, tmp_path: Path, method: str, text: str) -> None:
    with run(text.format(method)) as process:
        assert "tracea-private-" in said(process)
        assert process.wait(60) == 0
    assert left(tmp_path) == []


@pytest.mark.parametrize("end", [f"os.kill(os.getpid(), signal.{name})" for name in ("SIGTERM", "SIGKILL")])
def test_the_directory_of_a_killed_process_is_removed_by_the_next_that_needs_one(run, tmp_path: Path, end: str) -> None:
    with run(f"work(); {end}") as process:
        there = said(process)
        assert process.wait(60) < 0
    assert left(tmp_path) == [Path(there)]
    with run("work(); print(left(), flush=True)") as process:
        other = said(process)
        assert said(process) == str([Path(other).name])
        assert process.wait(60) == 0
    assert left(tmp_path) == []


def test_the_directory_of_a_living_process_stays(run, tmp_path: Path) -> None:
    with run("work(wait=True)") as process:
        there = Path(said(process))
        make_private_directory(tmp_path / "temporary")
        assert (there / "v1" / "objects" / "k" / "a").read_text() == "a"
        process.kill()


def test_a_forked_child_works_in_its_parents_and_keeps_it_when_the_parent_is_killed(run, tmp_path: Path) -> None:
    with run("work()\nif os.fork() == 0: print(os.getpid()); work(wait=True)\ntime.sleep(60)") as parent:
        there, child, same = Path(said(parent)), int(said(parent)), said(parent)
        assert str(there) == same
        assert left(tmp_path) == [there]
        parent.kill()
        parent.wait(60)
        make_private_directory(tmp_path / "temporary")
        assert (there / "v1").is_dir()
        os.kill(child, signal.SIGKILL)
        assert said(parent) == ""  # the end of its output: the child is gone
    make_private_directory(tmp_path / "temporary")
    assert not there.exists()


def test_only_abandoned_directories_of_this_name_and_user_are_removed(tmp_path: Path) -> None:
    kept = {name: tmp_path / name for name in ("tracea-private-abc", "tracea-private-abcdefghi", "tracea-abcdefgh")}
    kept |= {name: tmp_path / f"tracea-private-{name}" for name in ("open_dir", "stranger", "a_file00", "link0000")}
    elsewhere = tmp_path / "elsewhere"
    for path in (*kept.values(), elsewhere):
        path.mkdir(mode=0o700)
    kept["open_dir"].chmod(0o770)
    kept["a_file00"].rmdir()
    kept["a_file00"].write_text("")
    kept["link0000"].rmdir()
    kept["link0000"].symlink_to(elsewhere)
    (elsewhere / "content").write_text("")
    if os.geteuid() == 0:
        os.chown(kept["stranger"], 12345, 12345)
    else:
        kept.pop("stranger").rmdir()
    (tmp_path / "tracea-private-abandone").mkdir(mode=0o700)
    (tmp_path / "tracea-private-abandone" / "inner").symlink_to(elsewhere)
    made = make_private_directory(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((*kept.values(), elsewhere, made))
    assert (elsewhere / "content").exists()


def test_a_directory_that_another_process_took_for_abandoned_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: list[Path] = []
    real = private_directory.tempfile.mkdtemp

    def made(**arguments: object) -> str:
        path = Path(real(**arguments))
        taken.append(path)
        if len(taken) == 1:
            path.rmdir()  # before it is opened
        if len(taken) == 2:
            taken_by_another.append(os.open(path, os.O_RDONLY))
            real_flock(taken_by_another[0], fcntl.LOCK_EX)
        return str(path)

    def flock(descriptor: int, how: int) -> None:
        if len(taken) == 3:
            taken[2].rmdir()  # after it was opened
        real_flock(descriptor, how)

    real_flock, taken_by_another = fcntl.flock, list[int]()
    monkeypatch.setattr(private_directory.tempfile, "mkdtemp", made)
    monkeypatch.setattr(private_directory.fcntl, "flock", flock)
    assert make_private_directory(tmp_path) == taken[3]
    assert [path for path in tmp_path.iterdir() if path != taken[1]] == [taken[3]]
    os.close(taken_by_another[0])
