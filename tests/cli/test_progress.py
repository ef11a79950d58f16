from __future__ import annotations

import io
import os
import pty
import time
from contextlib import suppress
from types import SimpleNamespace

from tracea.cli.progress import LineProgress, TerminalProgress, shown_progress


def trial(latency_ms: float | None) -> SimpleNamespace | None:
    return None if latency_ms is None else SimpleNamespace(latency_ms=latency_ms)


def test_elsewhere_each_better_trial_and_the_last_are_lines() -> None:
    stream = io.StringIO()
    with shown_progress(stream) as progress:
        assert isinstance(progress, LineProgress)
        for done, best in enumerate((None, 0.5, 0.5, 0.25, 0.25), start=1):
            progress("gemm.packed", SimpleNamespace(total=5, done=done, best=trial(best)))
        progress("gemm.small", SimpleNamespace(total=2, done=2, best=trial(1.0)))
        progress("gemm.small", SimpleNamespace(total=3, done=3, best=trial(1.0)))
        progress.note("done\x1b[31m")
    assert stream.getvalue().splitlines() == [
        "gemm.packed: 2/5, best 0.5 ms",
        "gemm.packed: 4/5, best 0.25 ms",
        "gemm.packed: 5/5, best 0.25 ms",
        "gemm.small: 2/2, best 1 ms",
        "gemm.small: 3/3, best 1 ms",
        "done\\x1b[31m",
    ]


def test_a_long_phase_is_never_silent() -> None:
    stream = io.StringIO()
    lines = LineProgress(stream, silence_s=0.05)
    watch = lines.breaking_silence()
    lines.phase("compile 3 kernels")
    time.sleep(0.4)
    lines.close()
    watch.join(5)
    said = stream.getvalue().splitlines()
    assert said[0] == "compile 3 kernels"
    assert len(said) >= 3
    assert set(said[1:]) == {"… compile 3 kernels: 0 s"}
    assert not watch.is_alive()


def read_to_end(leader: int) -> str:
    parts: list[bytes] = []
    with suppress(OSError):  # how Linux says that the other side is closed
        while part := os.read(leader, 65536):
            parts.append(part)
    os.close(leader)
    return b"".join(parts).decode()


def test_on_a_terminal_there_is_a_bar_with_the_best() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, shown_progress(terminal) as progress:
        assert isinstance(progress, TerminalProgress)
        progress.phase("export the model")
        progress.start("gemm", 2)
        progress.update(1, best_ms=0.125)
        progress.update(2, best_ms=0.125)
        progress.finish("gemm is done")
    text = read_to_end(leader)
    assert "2/2" in text
    assert "best 0.125 ms" in text
    assert "gemm is done" in text


def test_progress_ends_where_the_work_fails() -> None:
    stream = io.StringIO()
    try:
        with shown_progress(stream) as progress:
            progress.start("gemm", 2)
            raise KeyError
    except KeyError:
        pass
    assert stream.getvalue() == ""
