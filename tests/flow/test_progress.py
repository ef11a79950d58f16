from __future__ import annotations

import io
import os
import pty
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.flow import progress as progress_module
from tracea.flow.compile import decision_for
from tracea.flow.phases import phase, telling
from tracea.flow.progress import LineProgress, TerminalProgress, shown_progress, shown_unless_heard, silent
from tracea.flow.verdicts import recorded_verdict
from tracea.optimizer.study import Progress
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial
from tracea.targets.target import for_threads

OK = Outcome(kind=OutcomeKind.OK, latency_ms=1.0)


def report(done: int, total: int, best_ms: float | None, outcome: Outcome = OK) -> Progress:
    best = None if best_ms is None else trial(Outcome(kind=OutcomeKind.OK, latency_ms=best_ms))
    return Progress(trial=trial(outcome), best=best, done=done, total=total, seconds=1.0)


def trial(outcome: Outcome) -> Trial:
    return Trial(number=0, row=(0,), schedule={"mr": 14}, outcome=outcome, seconds=0.1)


def test_elsewhere_each_faster_trial_and_the_last_are_lines() -> None:
    stream = io.StringIO()
    with shown_progress(stream) as progress:
        assert isinstance(progress, LineProgress)
        for done, best in enumerate((None, 0.5, 0.5, 0.25, 0.25), start=1):
            progress("gemm.packed" if done < 4 else "gemm.direct", report(done, 5, best))
        progress("gemm.small", report(2, 2, 1.0))
        progress.note("done\x1b[31m")
    assert stream.getvalue().splitlines() == [
        "gemm.packed: 2/5 trials, fastest so far 500 µs a call",
        "gemm.direct: 4/5 trials, fastest so far 250 µs a call",
        "gemm.direct: 5/5 trials, fastest so far 250 µs a call",
        "gemm.small: 2/2 trials, fastest so far 1 ms a call",
        "done\\x1b[31m",
    ]


def test_a_refused_trial_says_why_and_the_figure_never_rises() -> None:
    stream = io.StringIO()
    late = Outcome(kind=OutcomeKind.TIMED_OUT, detail="more than 120 s\nand more")
    with shown_progress(stream) as progress:
        progress("gemm.packed", report(1, 3, None, late))
        progress("gemm.packed", report(2, 3, 0.5))
        progress("gemm.packed", report(3, 3, 0.75))
    assert stream.getvalue().splitlines() == [
        "gemm.packed: trial 1 refused: timed_out: more than 120 s",
        "gemm.packed: 2/3 trials, fastest so far 500 µs a call",
        "gemm.packed: 3/3 trials, fastest so far 500 µs a call",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_without_a_listener_a_terminal_shows_progress(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        lines = io.StringIO()
        monkeypatch.setattr(progress_module, "_QUICK_S", 0.0)
        monkeypatch.setattr(sys, "stderr", terminal if is_terminal else lines)
        with shown_unless_heard(None) as listener:
            phase("fuse 5 nodes")
            listener("gelu gemm.packed", report(1, 2, 0.125))
        with shown_unless_heard(silent) as given:
            assert given is silent
        with telling(lambda _: None), shown_unless_heard(None) as inner:
            assert inner is silent
    text = read_to_end(leader)
    assert ("1/2" in text) is is_terminal
    assert ("fuse 5 nodes" in text) is is_terminal
    said = [] if is_terminal else ["fuse 5 nodes", "gelu gemm.packed: 1/2 trials, fastest so far 125 µs a call"]
    assert lines.getvalue().splitlines() == said


def test_without_a_terminal_what_is_over_at_once_says_nothing_and_what_lasts_says_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for quick_s, said in ((60.0, ""), (0.05, "export Sequential\nfuse 5 nodes\ncompile 3 kernels\n")):
        lines = io.StringIO()
        monkeypatch.setattr(progress_module, "_QUICK_S", quick_s)
        monkeypatch.setattr(sys, "stderr", lines)
        with shown_unless_heard(None):
            phase("export Sequential")
            phase("fuse 5 nodes")
            time.sleep(0.1)
            phase("compile 3 kernels")
        assert lines.getvalue() == said


def test_a_single_long_step_says_what_it_is_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(progress_module, "_QUICK_S", 0.05)
    monkeypatch.setattr(sys, "stderr", lines)
    with shown_unless_heard(None):
        phase("export Sequential")
        deadline = time.monotonic() + 4.0  # less than the silence that is broken in any case
        while not lines.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lines.getvalue() == "export Sequential\n"
    assert lines.getvalue() == "export Sequential\n"


def test_a_standard_error_that_is_not_there_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with shown_unless_heard(None) as listener:
            assert listener is silent
            phase("fuse 5 nodes")
    lost = io.StringIO()
    monkeypatch.setattr(progress_module, "_QUICK_S", 0.0)
    monkeypatch.setattr(sys, "stderr", lost)
    with shown_unless_heard(None):
        lost.close()  # while the work goes on
        phase("fuse 5 nodes")


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
    assert "fastest so far 125 µs" in text
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


def test_judging_is_one_step_however_many_programs_its_inputs_take(empty_cache: Path) -> None:
    op = GemmOp.of(m=6, n=8, k=12)
    decision = decision_for(op, for_threads(host(), 1), threads=1, constants=(1,), variant="gemm.prepacked")
    said: list[str] = []
    with telling(said.append):
        for label in ("kernel 1/1", "kernel 1/2", ""):
            assert recorded_verdict(op, decision, constants=(1,), threads=1, label=label).passed
        phase("next")
    assert said == ["verify kernel 1/1", "verified before: kernel 1/2", "next"]  # a stored verdict is no step
