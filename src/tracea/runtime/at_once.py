"""Several calls at once, as many as there are cores, of which none goes on when one has failed."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

__all__ = ["GivenUp", "at_once", "check_wanted"]

_Result = TypeVar("_Result")
_given_up: Final[contextvars.ContextVar[threading.Event | None]] = contextvars.ContextVar("given_up", default=None)


class GivenUp(Exception):
    """A call ended because nobody waits for it any longer: another failed, or the wait for all was interrupted."""


def check_wanted() -> None:
    """Go on where a call's result is still waited for; what waits long asks now and then.

    Raises: GivenUp.
    """
    event = _given_up.get()
    if event is not None and event.is_set():
        raise GivenUp


def at_once(calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Return what the calls return, in their order; each has a thread, to wait for a compiler or another process.

    Raises: what a call raised; the others end by :func:`check_wanted`, and are waited for.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    together = min(len(calls), cores)
    if together <= 1:
        return [call() for call in calls]
    given_up = threading.Event()

    def made(call: Callable[[], _Result]) -> _Result:
        _given_up.set(given_up)
        try:
            check_wanted()
            return call()
        except BaseException:
            given_up.set()
            raise

    pool = ThreadPoolExecutor(together, thread_name_prefix="tracea")
    try:
        futures = [pool.submit(contextvars.copy_context().run, made, call) for call in calls]
        wait(futures, return_when=FIRST_EXCEPTION)
        if given_up.is_set():
            wait(futures)
            raise next(
                error for each in futures if (error := each.exception()) is not None and not isinstance(error, GivenUp)
            )
        return [each.result() for each in futures]
    finally:
        given_up.set()
        pool.shutdown(cancel_futures=True)
