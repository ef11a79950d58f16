"""The process of one stage: it reads a request from standard input, and tells each item's begin and end as it works.

Messages are lines of JSON on the file descriptor that the request came with: ``begin``, ``note``, ``end``, ``done``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from tracea.bench.gpu.session import DeviceLost, Item, Session, open_session
from tracea.bench.gpu.settings import ItemOutcome, StageRequest, Status
from tracea.errors import TraceaError

__all__ = ["Tell", "main", "run_stage"]

Tell = Callable[[Mapping[str, Any]], None]

# Stage -> (module, its items), and whether torch takes part.
_STAGES: Final = {
    "compile": ("compile_ahead", "items", False),
    "conformance": ("conformance", "items", False),
    "correctness": ("correctness", "items", False),
    "sanitizer": ("vendor_tools", "sanitizer_items", False),
    "banks": ("vendor_tools", "bank_items", False),
    "tuning": ("tuning", "items", True),
    "contest": ("contest", "items", True),
}


def run_stage(request: StageRequest, tell: Tell) -> None:
    """Run the items of a stage that are not done yet, and tell of each."""
    module, function, with_torch = _STAGES[request.stage]
    items: Callable[[Session], Iterator[Item]] = getattr(import_module(f"tracea.bench.gpu.{module}"), function)
    session = open_session(
        request.settings,
        seconds=request.seconds if request.until is None else request.until - time.monotonic(),
        with_torch=with_torch,
        note=lambda text: tell({"note": text}),
        avoid=request.avoid,
    )
    skipped = frozenset(request.skip)
    for item in items(session):
        if item.name in skipped:
            continue
        if session.seconds_left <= 0:
            tell({"end": item.name, "outcome": ItemOutcome(status=Status.SKIPPED, detail="the stage's time is up")})
            continue
        tell({"begin": item.name})
        begin = time.monotonic()
        outcome = _outcome(item)
        if outcome.status in (Status.FAILED, Status.CRASHED):
            session.require_sound(outcome.detail)
        tell({"end": item.name, "outcome": msgspec.structs.replace(outcome, seconds=time.monotonic() - begin)})
    tell({"done": request.stage})


def _outcome(item: Item) -> ItemOutcome:
    try:
        return item.run()
    except TraceaError as error:
        return ItemOutcome(status=Status.FAILED, detail=str(error))
    except Exception as error:  # one item must not end the others, and what it raised is in the record
        return ItemOutcome(status=Status.CRASHED, detail=f"{type(error).__name__}: {error}")


def main() -> int:
    """Serve the one request of standard input; what a library prints goes to standard error."""
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=StageRequest)
    try:
        run_stage(request, lambda message: _send(channel, message))
    except TraceaError as error:
        _send(channel, {"failed": str(error)})
        return 1
    except DeviceLost as error:
        _send(channel, {"lost": str(error)})
        os._exit(1)  # without the good-byes of libraries to a device that no longer answers
    return 0


def _send(channel: Any, message: Mapping[str, Any]) -> None:
    channel.write(msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
