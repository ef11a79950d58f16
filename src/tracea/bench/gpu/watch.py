"""Watch the process of a stage: a kernel that hangs or faults costs its own item, and the stage goes on after it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tracea.bench.gpu.settings import ItemOutcome, StageRequest, Status

__all__ = ["watch_stage"]

_CHILD: Final = "tracea.bench.gpu.child"
_RETRIES: Final = 3
_BEGIN_SECONDS: Final = 60.0  # imports, torch among them, and the device's context
_MOST_PROCESSES: Final = 12
_GRACE: Final = 5.0  # beyond the budget, for the item that is under way
_SPENT: Final = "its seconds are spent"

Told = Callable[[str, ItemOutcome], None]


def watch_stage(request: StageRequest, told: Told, *, module: str = _CHILD) -> str:
    """Run a stage in processes until it is done or its seconds are spent; tell each item's outcome as it ends.

    An item that the stage's end interrupts is skipped: it did nothing wrong.

    Returns why the stage ended early, or nothing.
    """
    unsettled: dict[str, ItemOutcome] = {}  # of items that are tried again: what is said if they do not get to an end

    def ended(name: str, outcome: ItemOutcome) -> None:
        earlier = unsettled.pop(name, None)
        if earlier is not None and outcome.status is Status.SKIPPED:
            outcome = msgspec.structs.replace(earlier, detail=f"{earlier.detail}; {outcome.detail}")
        told(name, outcome)

    reason = _run_processes(request, ended, unsettled, module)
    for name, outcome in unsettled.items():
        told(name, outcome)
    return reason


def _run_processes(request: StageRequest, ended: Told, unsettled: dict[str, ItemOutcome], module: str) -> str:
    end = time.monotonic() + request.seconds
    skip, avoid = list(request.skip), dict(request.avoid)
    tries: dict[str, int] = {}
    for _ in range(_MOST_PROCESSES):
        seconds = end - time.monotonic()
        if seconds <= 0:
            return _SPENT
        asked = msgspec.structs.replace(request, seconds=seconds, until=end, skip=tuple(skip), avoid=avoid)
        one = _Process(asked, module)
        finished = one.run(end, lambda name, outcome: (skip.append(name), ended(name, outcome)))
        if finished or one.refused:
            return one.refused
        if not one.item:
            if one.status is Status.SKIPPED:
                return _SPENT
            return f"its process ended with code {one.code} before an item: {one.tail}"
        outcome = ItemOutcome(status=one.status, detail=one.reason, seconds=one.item_seconds)
        tries[one.item] = tries.get(one.item, 0) + 1
        may_retry = one.status is not Status.SKIPPED and tries[one.item] < _RETRIES
        if may_retry and one.noted and one.noted not in avoid:
            avoid[one.noted] = one.reason  # the item goes on without what it was trying
            unsettled[one.item] = outcome
            continue
        skip.append(one.item)
        ended(one.item, outcome)
    return f"{_MOST_PROCESSES} of its processes died"


class _Process:
    """One process of a stage: what it told, and how it ended."""

    def __init__(self, request: StageRequest, module: str) -> None:
        self._request = request
        self._module = module
        self.item = ""
        self.noted = ""
        self.refused = ""
        self.status = Status.CRASHED
        self.reason = ""
        self.code: int | None = None
        self.tail = ""
        self._begin = 0.0

    @property
    def item_seconds(self) -> float:
        """How long the item under way has been."""
        return time.monotonic() - self._begin if self.item else 0.0

    def run(self, end: float, told: Callable[[str, ItemOutcome], object]) -> bool:
        """Read what the process tells until it is done, dead or hung; return whether it was done."""
        child = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None
        lines: queue.Queue[bytes | None] = queue.Queue()
        errors: list[bytes] = []
        readers = [
            threading.Thread(target=_read, args=(child.stdout, lines.put), daemon=True),
            threading.Thread(target=_read, args=(child.stderr, errors.append), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            child.stdin.write(msgspec.json.encode(self._request))
            child.stdin.close()
        except BrokenPipeError:  # it died at once: its output says why
            pass
        patience = _BEGIN_SECONDS
        done = False
        try:
            while True:
                left = end + _GRACE - time.monotonic()
                try:
                    line = lines.get(timeout=max(0.05, min(patience, left)))
                except queue.Empty:
                    self._give_up(patience, left)
                    break
                if line is None:
                    break
                message: dict[str, Any] = msgspec.json.decode(line)
                patience = self._take(message, told)
                if "done" in message:
                    done = True
                    break
        finally:
            _end(child)
        for reader in readers:
            reader.join(timeout=2.0)
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        self.code = child.returncode
        self.tail = b"".join(each for each in errors[-6:] if each).decode(errors="replace").strip()[-600:]
        if not self.reason:
            self.reason = f"exit code {self.code}: {self.tail}"
        return done

    def _give_up(self, patience: float, left: float) -> None:
        """Say why the process is not waited for: it was silent for too long, or the stage's time was up before."""
        trying = f" while trying {self.noted}" * bool(self.noted)
        if patience <= left:
            self.status, self.reason = Status.HUNG, f"no sign of life for {patience:.0f} s{trying}"
        else:
            self.status, self.reason = Status.SKIPPED, f"the stage's time was up{trying}"

    def _take(self, message: dict[str, Any], told: Callable[[str, ItemOutcome], object]) -> float:
        """Take one message; return how long the next one may be waited for."""
        patience = self._request.settings.item_seconds
        match message:
            case {"begin": str(name)}:
                self.item, self.noted, self._begin = name, "", time.monotonic()
            case {"note": str(text)} if text.startswith("patience "):
                self.noted = ""
                return patience + float(text.removeprefix("patience "))
            case {"note": str(text)}:
                self.noted = text
            case {"end": str(name), "outcome": outcome}:
                self.item = self.noted = ""
                told(name, msgspec.convert(outcome, ItemOutcome))
            case {"failed": str(text)}:
                self.refused = text
            case {"lost": str(text)}:
                self.reason = text
            case _:
                pass
        return patience


def _read(stream: Any, put: Callable[[Any], None]) -> None:
    for line in stream:
        put(line)
    put(None)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process, and those that it started; the driver takes its kernels off the device."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # its own session: nobody else's processes are in it
    child.wait()
