"""A store in the child of a fork, in whose parent another thread was using it."""

from __future__ import annotations

import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tracea.flow import history
from tracea.optimizer import TrialStore
from tracea.runtime.process_lock import ProcessLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@contextmanager
def held(lock: ProcessLock) -> Generator[threading.Event]:
    """Have another thread hold a lock, as one does that asks the store something, until the event is set."""
    is_held, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield is_done
    finally:
        is_done.set()
        thread.join()


def ends_well_in_a_child(action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # one that waits for ever is killed
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_a_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "trials.db") as store, held(store._lock):
        assert ends_well_in_a_child(store.find)
        assert ends_well_in_a_child(store.check)


def test_nor_where_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.db"
    TrialStore(path).close()
    with monkeypatch.context() as patched:

        def refuse(_: object) -> None:
            raise history.CacheUnwritable(path=path, detail="read-only")

        patched.setattr(TrialStore, "_connected", refuse)
        store = TrialStore(path)
    assert store.unwritable is not None
    with store, held(store._lock):
        assert ends_well_in_a_child(store.find)


def test_nor_for_one_that_copies_a_store(empty_cache: Path) -> None:
    reason = history.CacheUnwritable(path=empty_cache, detail="read-only")

    def ask() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which says where it goes on
            history._private(str(empty_cache / "trials.sqlite"), reason)

    with held(history._copying):
        assert ends_well_in_a_child(ask)


def test_a_lock_goes_with_what_it_guards() -> None:
    lock = ProcessLock()
    seen = weakref.ref(lock)
    del lock
    gc.collect()
    assert seen() is None


def test_a_fork_waits_for_a_thread_in_foreign_code_and_not_for_ever() -> None:
    for seconds, is_waited_for in ((20.0, True), (0.05, False)):
        lock, is_over = ProcessLock(fork_waits_s=seconds), threading.Event()
        with held(lock) as release:
            timer = threading.Timer(0.3, lambda is_over=is_over, release=release: (is_over.set(), release.set()))
            timer.start()
            assert ends_well_in_a_child(lambda is_over=is_over: is_over.is_set() or os._exit(1)) == is_waited_for
            timer.join()
        with lock:  # whoever waited has given it back
            pass
