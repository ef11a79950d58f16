"""Calls in threads, for what they wait for (a compiler): several at once, or one beside other work.

None goes on where nobody waits for it any longer.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, Self, TypeVar

__all__ = ["GivenUp", "at_once", "beside", "check_wanted"]

_Result = TypeVar("_Result")
_given_up: Final[contextvars.ContextVar[tuple[threading.Event, ...]]] = contextvars.ContextVar("given_up", default=())


class GivenUp(Exception):
    """A call ended because nobody waits for it any longer: another failed, or the wait for all was interrupted."""


def check_wanted() -> None:
    """Go on where a call's result is still waited for; what waits long asks now and then.

    Raises: GivenUp.
    """
    if any(event.is_set() for event in _given_up.get()):
        raise GivenUp


def at_once(calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Return what the calls return, in their order; as many are made at once as there are cores.

    Raises: what a call raised; the others end by :func:`check_wanted`, and are waited for.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    together = min(len(calls), cores)
    if together <= 1:
        return [call() for call in calls]
    with _Threads(together) as threads:
        futures = [threads.start(call) for call in calls]
        wait(futures, return_when=FIRST_EXCEPTION)
        if threads.given_up.is_set():
            wait(futures)
            failed = [error for each in futures if (error := each.exception()) is not None]
            raise next((error for error in failed if not isinstance(error, GivenUp)), failed[0])
        return [each.result() for each in futures]


@contextlib.contextmanager
def beside(call: Callable[[], _Result]) -> Generator[Callable[[], _Result]]:
    """Make a call while the block runs, which is given what waits for its result, and raises what it raised.

    A block that fails gives the call up, and waits for its end.
    """
    with _Threads(1) as threads:
        yield threads.start(call).result


class _Threads:
    """Threads of one wait: what one of them fails at, or a block that is left, ends the calls of all."""

    def __init__(self, count: int) -> None:
        self.given_up = threading.Event()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="tracea")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.given_up.set()
        self._pool.shutdown(cancel_futures=True)

    def start(self, call: Callable[[], _Result]) -> Future[_Result]:
        """Begin a call where a thread is free."""

        def made() -> _Result:
            _given_up.set((*_given_up.get(), self.given_up))
            try:
                check_wanted()
                return call()
            except BaseException:
                self.given_up.set()
                raise

        return self._pool.submit(contextvars.copy_context().run, made)
