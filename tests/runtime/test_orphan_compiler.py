"""A compiler that outlives the process that started it keeps no lock of the cache: the next one builds at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracea.runtime.cache import CacheStore

HOLDER = """
import sys
from pathlib import Path
from tracea.runtime.cache import CacheStore
from tracea.runtime.compiler_process import run_compiler

root, mark = Path(sys.argv[1]), sys.argv[2]
script = f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 60"
CacheStore(root).entry("0" * 64, lambda place: run_compiler(("sh", "-c", script), 60.0, place), {})
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by signal and reads /proc")
def test_a_compiler_without_its_parent_holds_no_lock(tmp_path: Path) -> None:
    root, mark = tmp_path / "cache", tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(root), str(mark)]) as parent:
        deadline = time.monotonic() + 60.0
        while not mark.exists():
            assert parent.poll() is None
            assert time.monotonic() < deadline, "the compiler did not start"
            time.sleep(0.02)
        compiler = int(mark.read_text(encoding="utf-8"))
        try:
            held = [os.readlink(path) for path in Path(f"/proc/{compiler}/fd").iterdir()]
            assert not [name for name in held if name.endswith(".lock")]
            parent.kill()
            parent.wait(10.0)
            os.kill(compiler, 0)  # it is alive, or this shows nothing
            begun = time.monotonic()

            def build(place: Path) -> None:
                (place / "made").write_text("x", encoding="utf-8")

            entry = CacheStore(root).entry("0" * 64, build, {})
            assert (entry / "made").exists()
            assert time.monotonic() - begun < 20.0
            os.kill(compiler, 0)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(compiler, signal.SIGKILL)
