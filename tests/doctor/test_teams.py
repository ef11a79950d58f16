"""Teams: a thread that fails is told of, and no other one waits for it."""

from __future__ import annotations

import threading

import pytest

from tracea.doctor.teams import together
from tracea.errors import RunError
from tracea.profiler.machine import cores_allowed


def test_a_thread_that_cannot_have_its_core_is_an_error_and_no_hang() -> None:
    ran: list[int] = []
    found: list[BaseException] = []

    def ask() -> None:
        try:
            together((cores_allowed()[0], 1_000_000), ran.append)
        except RunError as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(30.0)
    assert not asking.is_alive()
    assert "core 1000000 cannot be had" in str(found[0])
    assert ran == []


def test_what_a_task_raises_is_raised_and_no_time_of_it_is_returned() -> None:
    with pytest.raises(ZeroDivisionError):
        together(cores_allowed()[:1], lambda rank: 1 // rank)
