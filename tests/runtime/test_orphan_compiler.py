"""A compiler ends with the process that started it, however that ends, and keeps no lock of the cache meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tracea.runtime import compiler_process
from tracea.runtime.cache import CacheStore
from tracea.runtime.compiler_process import run_compiler

HOLDER = """
import sys
from pathlib import Path
from tracea.runtime.cache import CacheStore
from tracea.runtime.compiler_process import run_compiler

root, mark, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CacheStore(root).entry("0" * 64, lambda place: run_compiler(("sh", "-c", script), 60.0, place), {})
"""
# As a compiler's driver does: the compiler proper is a child of its own, which is the one that is told.
DRIVER = "sleep 60 & echo $! > {mark}.new; mv {mark}.new {mark}; wait"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by signal and reads /proc")


@contextmanager
def compiling(root: Path, mark: Path) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """Have a process of its own compile; yield it and the number of what compiles."""
    argv = [sys.executable, "-c", HOLDER, str(root), str(mark), DRIVER.format(mark=mark)]
    with subprocess.Popen(argv) as parent:
        deadline = time.monotonic() + 60.0
        while not mark.exists():
            assert parent.poll() is None
            assert time.monotonic() < deadline, "the compiler did not start"
            time.sleep(0.02)
        compiler = int(mark.read_text(encoding="utf-8"))
        try:
            yield parent, compiler
        finally:
            parent.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(compiler, signal.SIGKILL)


def ends(process: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_a_compiler_holds_no_lock_and_another_process_builds_at_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    with compiling(root, tmp_path / "pid") as (parent, compiler):
        held = [os.readlink(path) for path in Path(f"/proc/{compiler}/fd").iterdir()]
        assert not [name for name in held if name.endswith(".lock")]
        parent.kill()
        parent.wait(10.0)
        begun = time.monotonic()

        def build(place: Path) -> None:
            (place / "made").write_text("x", encoding="utf-8")

        entry = CacheStore(root).entry("0" * 64, build, {})
        assert (entry / "made").exists()
        assert time.monotonic() - begun < 20.0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_compiler_and_what_it_started_end_with_the_process_that_asked(tmp_path: Path, how: signal.Signals) -> None:
    with compiling(tmp_path / "cache", tmp_path / "pid") as (parent, compiler):
        parent.send_signal(how)
        parent.wait(10.0)
        assert ends(compiler)


def test_a_thread_that_ends_does_not_end_the_compiler_of_another(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("short", "long")]
    for place in places:
        place.mkdir()
    scripts = ("true", f"sleep 0.5; echo made > {places[1]}/made")
    threads = [
        threading.Thread(target=run_compiler, args=(("sh", "-c", script), 30.0, place))
        for script, place in zip(scripts, places, strict=True)
    ]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert (places[1] / "made").exists()


def test_where_no_guard_can_be_started_a_compiler_runs_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_process, "_GUARD", (str(tmp_path / "no_shell"),))
    run_compiler(("sh", "-c", f"echo made > {tmp_path}/made"), 30.0, tmp_path)
    assert (tmp_path / "made").exists()
