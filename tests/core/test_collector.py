"""The collector at rest: nothing is collected meanwhile, what was made is old at the end, garbage still goes."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from tracea.core.collector import collector_paused


class Loop:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_walked_through_during_the_pause_or_at_its_end() -> None:
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        with collector_paused():
            made = [[index] for index in range(100_000)]
        young = gc.get_count()[0]
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert collected == []
    assert young < 100, "the objects of the pause still count as young: the next allocation walks through them"
    assert len(made) == 100_000


def test_garbage_of_the_pause_goes_with_the_next_full_collection() -> None:
    with collector_paused():
        loop = Loop()
        gone = weakref.ref(loop)
        del loop
    assert gone() is not None
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_also_after_an_exception(enabled: bool) -> None:
    def failing() -> None:
        with collector_paused():
            raise KeyError(gc.isenabled())

    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError, match="False"):
            failing()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_what_the_process_has_frozen_stays_frozen() -> None:
    text = (
        "import gc\n"
        "from tracea.core.collector import collector_paused\n"
        "gc.freeze()\n"
        "frozen = gc.get_freeze_count()\n"
        "with collector_paused():\n"
        "    made = [[index] for index in range(1000)]\n"
        "assert frozen and abs(gc.get_freeze_count() - frozen) < 100, (frozen, gc.get_freeze_count())\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
