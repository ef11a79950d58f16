from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tracea.errors import InvalidOption, RunError
from tracea.optimizer import Budget, IsolatedEvaluation, Limits, OutcomeKind, SearchSpace, Study, child_process, sampler
from tracea.optimizer.isolation import Answer, IsolatedFunction, children_kept

HERE = Path(__file__).parent
TARGET, ANSWER = "isolated_candidates:misbehave", {"act": "answer"}
LIMITS = Limits(seconds=20.0, memory_bytes=512 * 1024**2, startup_seconds=60.0)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="resource limits and parent death are asserted for Linux"
)


@pytest.fixture(autouse=True)
def candidates_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture
def function() -> Iterator[IsolatedFunction]:
    with IsolatedFunction("isolated_candidates:misbehave", LIMITS) as isolated:
        yield isolated


def value_of(answer: Answer) -> Any:
    assert answer.kind is OutcomeKind.OK, answer.detail
    return msgspec.json.decode(answer.value)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split(maxsplit=1)[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until(condition: Any, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def test_one_child_serves_many_calls(function: IsolatedFunction) -> None:
    answers = [value_of(function.call({"echo": index})) for index in range(5)]
    assert len({answer["pid"] for answer in answers}) == 1
    assert [answer["calls"] for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer["echo"] for answer in answers] == [0, 1, 2, 3, 4]
    assert answers[0]["pid"] != os.getpid()


def test_a_request_larger_than_the_pipe_comes_back_whole(function: IsolatedFunction) -> None:
    text = "x" * 3_000_000
    assert value_of(function.call({"echo": text}))["echo"] == text


@pytest.mark.parametrize(
    ("act", "kind", "said"),
    [
        ("segfault", OutcomeKind.CRASHED, "SIGSEGV"),
        ("abort", OutcomeKind.CRASHED, "SIGABRT"),
        ("exit", OutcomeKind.CRASHED, "exited with code 7"),
        ("raise", OutcomeKind.CRASHED, "ValueError: not this one"),
        ("eat_memory", OutcomeKind.OUT_OF_MEMORY, "MemoryError"),
        ("eat_mapped_memory", OutcomeKind.OUT_OF_MEMORY, "resident"),
        ("refuse_proof", OutcomeKind.INVALID, "row 64 of 64"),
        ("refuse_result", OutcomeKind.WRONG, "correctness"),
        ("scribble_on_reply_pipe", OutcomeKind.CRASHED, "damaged"),
    ],
)
def test_a_failure_is_named_and_the_next_call_works(
    function: IsolatedFunction, act: str, kind: OutcomeKind, said: str
) -> None:
    answer = function.call({"act": act})
    assert (answer.kind, said in answer.detail) == (kind, True), answer.detail
    assert value_of(function.call({}))["calls"] == 1  # a fresh child


@pytest.mark.parametrize("act", ["hang", "hang_in_native_code"])
def test_a_hang_is_ended_at_its_limit(function: IsolatedFunction, act: str) -> None:
    function.start()
    started = time.monotonic()
    answer = function.call({"act": act}, seconds=0.5)
    assert answer.kind is OutcomeKind.TIMED_OUT
    assert "0.5 s" in answer.detail
    assert time.monotonic() - started < 5.0
    assert value_of(function.call({}))["calls"] == 1


def test_what_a_candidate_started_ends_with_it(function: IsolatedFunction, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    answer = function.call({"act": "hang_with_grandchild", "note": str(note)}, seconds=3.0)
    assert answer.kind is OutcomeKind.TIMED_OUT
    grandchild = int(note.read_text())
    assert wait_until(lambda: not is_running(grandchild))


def test_output_neither_blocks_nor_passes_for_a_reply(function: IsolatedFunction) -> None:
    assert value_of(function.call({"act": "print_much"}))["calls"] == 1


def test_a_crash_in_a_used_child_is_tried_again_in_a_fresh_one(function: IsolatedFunction) -> None:
    first = value_of(function.call({}))
    answer = value_of(function.call({"act": "segfault_unless_fresh"}))
    assert answer["calls"] == 1
    assert answer["pid"] != first["pid"]


def test_a_child_that_was_killed_between_calls_is_replaced(function: IsolatedFunction) -> None:
    pid = value_of(function.call({}))["pid"]
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(pid))
    assert value_of(function.call({}))["pid"] != pid


def test_closing_leaves_neither_process_nor_zombie_nor_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    function = IsolatedFunction("isolated_candidates:misbehave", LIMITS)
    pids = [value_of(function.call({}))["pid"]]
    function.call({"act": "segfault"})
    pids.append(value_of(function.call({}))["pid"])
    function.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_function_that_is_dropped_ends_its_child() -> None:
    function = IsolatedFunction("isolated_candidates:misbehave", LIMITS)
    pid = value_of(function.call({}))["pid"]
    del function
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("act", ["answer", "hang_in_native_code"])
def test_the_child_dies_with_a_parent_that_is_killed(act: str) -> None:
    script = (
        "import sys; sys.path[:] = __import__('json').loads(sys.argv[1])\n"
        "from tracea.optimizer.isolation import IsolatedFunction\n"
        "isolated = IsolatedFunction('isolated_candidates:misbehave')\n"
        "isolated.start(); print(isolated.pid, flush=True)\n"
        f"isolated.call({{'act': '{act}'}})\n"
        "import time; time.sleep(1000)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, json.dumps(sys.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        time.sleep(0.3)  # the call is under way
        parent.kill()
        parent.wait()
        assert wait_until(lambda: not is_running(child))
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()


@pytest.mark.parametrize(
    "target", ["no_such_module:run", "isolated_candidates:absent", "isolated_candidates:NOT_CALLABLE"]
)
def test_a_function_that_cannot_be_loaded_is_an_error_not_an_outcome(target: str) -> None:
    with IsolatedFunction(target, LIMITS) as function, pytest.raises(RunError) as caught:
        function.call({})
    assert target.split(":", maxsplit=1)[0] in str(caught.value)


@pytest.mark.parametrize("target", ["isolated_candidates", ":run", "isolated_candidates:", ""])
def test_a_target_without_module_or_function_is_refused(target: str) -> None:
    with pytest.raises(InvalidOption):
        IsolatedFunction(target)


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"memory_bytes": -1}, {"startup_seconds": float("nan")}])
def test_limits_must_be_positive(limits: dict[str, float]) -> None:
    with pytest.raises(InvalidOption):
        Limits(**limits)  # type: ignore[arg-type]


def test_a_study_records_every_kind_of_outcome_and_goes_on() -> None:
    tiles = (16, 8, 32, 4, 64, 2, 128, 1, 256, 512, 1024)
    space = SearchSpace.constrained({"tile": tiles})
    limits = Limits(seconds=3.0, memory_bytes=512 * 1024**2)
    with IsolatedEvaluation("isolated_candidates:time_schedule", limits) as evaluate:
        study = Study(sampler("grid", space), evaluate, Budget(trials=len(tiles)))
        best = study.run()
    kinds = {trial.schedule["tile"]: trial.outcome.kind for trial in study.trials if trial.outcome is not None}
    expected_failures = {
        16: OutcomeKind.CRASHED,
        32: OutcomeKind.TIMED_OUT,
        64: OutcomeKind.OUT_OF_MEMORY,
        128: OutcomeKind.WRONG,
        256: OutcomeKind.INVALID,
        512: OutcomeKind.INVALID,
    }
    assert kinds == {tile: expected_failures.get(tile, OutcomeKind.OK) for tile in tiles}
    assert best is not None
    assert best.schedule == {"tile": 1024}
    assert best.outcome is not None
    assert best.outcome.samples_ms == (1.0, 2.0)


def test_a_child_that_is_left_serves_the_next_function_alike() -> None:
    with children_kept():
        with IsolatedFunction(TARGET, LIMITS) as first:
            pid = value_of(first.call(ANSWER))["pid"]
        assert is_running(pid)
        with IsolatedFunction(TARGET, LIMITS) as second, IsolatedFunction(TARGET, LIMITS) as beside:
            assert value_of(second.call(ANSWER))["pid"] == pid
            other_pid = value_of(beside.call(ANSWER))["pid"]
            assert other_pid != pid  # which is taken
        with IsolatedFunction(TARGET, LIMITS, environment={"OTHER": "1"}) as other:
            assert value_of(other.call(ANSWER))["pid"] != pid
        with children_kept(), IsolatedFunction(TARGET, LIMITS) as inner:
            assert value_of(inner.call(ANSWER))["pid"] in (pid, other_pid)
            kept = inner.pid
        assert kept is not None
        assert is_running(kept)
    assert not is_running(kept)


@pytest.mark.parametrize("why", ["it failed", "it is large", "the block failed", "it was killed"])
def test_a_child_that_may_be_harmed_serves_no_other(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with children_kept():
        try:
            with IsolatedFunction(TARGET, LIMITS) as first:
                pid = value_of(first.call(ANSWER))["pid"]
                if why == "it failed":
                    assert first.call({"act": "raise"}).kind is not OutcomeKind.OK
                elif why == "it is large":
                    monkeypatch.setattr(child_process, "_SMALL_BYTES", 0)
                elif why == "the block failed":
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert why == "the block failed"
        if why == "it was killed":
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not is_running(pid))
        with IsolatedFunction(TARGET, LIMITS) as second:
            assert value_of(second.call(ANSWER))["pid"] != pid
