"""Kill, starve and fail the file-system calls of a cache or of a trial store, each in its own forked child.

Run with the shim preloaded: ``python sweep.py ACTION KIND PLACE`` does ACTION in a child for each of its file-system
calls, with the fault KIND at that call; ``python sweep.py random COUNT PLACE`` kills COUNT children at random moments.
After each, another process looks at what is left. Prints one JSON object. Exits with an error at the first promise that
is broken.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tracea.errors import CacheCorrupt, CacheError
from tracea.optimizer import Outcome, OutcomeKind, StudyKey, TrialRecord, TrialStore
from tracea.runtime.cache import CacheStore, content_key, default_store

KINDS = ("kill", "half", "fail", "full")
STUDY = StudyKey(op_key="gemm", variant="packed", hardware={"core": "zen"}, toolchain={"gcc": "12"})


def content(index: int) -> dict[str, bytes]:
    return {"library.so": f"library {index} ".encode() * 700, "source.cpp": f"// {index}\n".encode() * 9}


def key_of(index: int) -> str:
    return content_key({"index": index})


def build(index: int) -> Callable[[Path], None]:
    def into(place: Path) -> None:
        for name, data in content(index).items():
            (place / name).write_bytes(data)

    return into


def record(index: int) -> TrialRecord:
    return TrialRecord(
        key=STUDY,
        schedule={"index": index},
        outcome=Outcome(kind=OutcomeKind.OK, latency_ms=1.0 + index),
        seconds=0.1,
        sampler="grid",
        seed=0,
        recorded_at=1.75e9,
    )


# Each action tells what it finished, one number at a time, as a caller would learn it.


def publish(root: Path, tell: Callable[[int], None]) -> None:
    for index in range(2):
        path = CacheStore(root).entry(key_of(index), build(index), {"index": index})
        assert_content(path, index)
        tell(index)


def replace(root: Path, tell: Callable[[int], None]) -> None:
    """Publish over an entry that is damaged."""
    warnings.simplefilter("ignore", CacheCorrupt)
    publish(root, tell)


def trials(root: Path, tell: Callable[[int], None]) -> None:
    with TrialStore(root / "trials.sqlite") as store:
        for index in range(3):
            store.add(record(index))
            tell(index)


def use(root: Path, tell: Callable[[int], None]) -> None:
    """Ask as kernels do: whatever the disk does, the entry is there, and one warning says that the cache is not."""
    os.environ["TRACEA_CACHE_DIR"] = str(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(2):
            path = default_store().entry(key_of(index), build(index), {"index": index})
            if root not in path.parents:  # what lies below the root may not be readable: that is the fault
                assert_content(path, index)
    assert len(caught) <= 1, [str(each.message) for each in caught]
    assert all(isinstance(each.message, CacheError) for each in caught)
    if not caught:
        tell(0)


ACTIONS = {"publish": publish, "replace": replace, "use": use, "trials": trials}


def assert_content(path: Path, index: int) -> None:
    found = {name: (path / name).read_bytes() for name in content(index)}
    assert found == content(index), f"entry {index} has another content"


def prepare(action: str, root: Path) -> None:
    if action == "replace":
        path = CacheStore(root).entry(key_of(0), build(0), {"index": 0})
        (path / "library.so").write_bytes(b"damaged")


def examine(action: str, root: Path, finished: list[int]) -> str:
    """Use what the fault left, as the next process would; return what was left of it."""
    if action == "trials":
        if not (root / "trials.sqlite").exists():
            assert not finished, "finished trials are gone"
            return "nothing"
        with TrialStore(root / "trials.sqlite") as store:
            store.check()
            there = [trial.record.schedule["index"] for trial in store.find()]
            assert there == list(range(len(there))), there
            assert len(there) >= len(finished), f"{len(finished)} trials were finished, {len(there)} are there"
            store.add(record(len(there)))
        return f"{len(there)} trials"
    entries = [entry for entry in CacheStore(root).entries(check=True) if entry.problem]
    expected = {key_of(0)} if action == "replace" else set()
    assert {entry.key for entry in entries} <= expected, f"a corrupt entry was published: {entries}"
    there = sum(CacheStore(root).contains(key_of(index)) for index in range(2))
    for index in finished:
        assert CacheStore(root).contains(key_of(index)), f"entry {index} was finished and is gone"
    publish(root, lambda index: None)
    return f"{there} entries"


def child(action: str, root: Path, arm: Callable[[], None]) -> tuple[int, list[int]]:
    """Run an action in a forked child; return its wait status and what it told before it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        code = 3
        try:
            warnings.simplefilter("error")
            arm()
            ACTIONS[action](root, lambda index: os.write(write, bytes([index])))
            code = 0
        except CacheError:
            code = 1  # a typed refusal: what the caller works around
        except OSError as error:
            code = 2 if error.errno == 5 else 3  # EIO while the caller's own build writes: the caller's to see
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    with open(read, "rb") as pipe:
        return status, list(pipe.read())


def sweep(action: str, kind: str, place: Path) -> dict[str, object]:
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.fault_count.restype = ctypes.c_long
    root, ends, left = place / "cache", Counter[str](), Counter[str]()

    def arm(at: int) -> Callable[[], None]:
        return lambda: shim.fault_arm(str(root).encode(), KINDS.index(kind), ctypes.c_long(at))

    prepare(action, root)
    status, finished = child(action, root, arm(0))
    calls = shim.fault_count()
    assert status == 0, f"without a fault it ended with {status}"
    assert finished, "nothing was finished"
    for at in range(1, calls + 1):
        shutil.rmtree(root, ignore_errors=True)  # a child that was killed at once made none
        prepare(action, root)
        status, finished = child(action, root, arm(at))
        assert shim.fault_count() >= at, f"call {at} was not reached"
        end = (
            signal.Signals(os.WTERMSIG(status)).name
            if os.WIFSIGNALED(status)
            else {0: "unharmed", 1: "refused", 2: "raised OSError"}.get(os.waitstatus_to_exitcode(status), "FAILED")
        )
        assert end != "FAILED", f"call {at} of {calls}"
        assert kind != "kill" or end == "SIGKILL", f"call {at} survived the kill: {end}"
        ends[end] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if action == "replace" else "error")
            left[examine(action, root, finished)] += 1
    return {"action": action, "kind": kind, "calls": calls, "ends": dict(ends), "left": dict(left)}


def at_random(count: int, place: Path, seed: int) -> dict[str, object]:
    """Kill children that publish and record without end; all of them work in one cache."""
    rng, root = random.Random(seed), place / "cache"
    finished: dict[str, set[int]] = {"entries": set(), "trials": set()}
    killed_while_building = 0
    for round_number in range(count):
        (read, write), (ready, started) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                with TrialStore(root / "trials.sqlite") as store:
                    for index in range(round_number * 100, round_number * 100 + 100):
                        CacheStore(root).entry(key_of(index), build(index), {"index": index})
                        os.write(write, f"e{index}\n".encode())
                        store.add(record(index))
                        os.write(write, f"t{index}\n".encode())
                        os.write(started, b".")
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        os.close(write)
        os.close(started)
        if rng.random() < 0.5:  # from the first thing that it finished on, however slow the machine is
            os.read(ready, 1)
        time.sleep(rng.uniform(0.0, 0.04))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(ready)
        assert os.WIFSIGNALED(status), status
        with open(read, encoding="ascii") as pipe:
            told = [line for line in pipe.read().split("\n") if line]
        building = root / "v1" / "building"  # which the first one may not have come to
        killed_while_building += building.is_dir() and any(building.iterdir())
        finished["entries"] |= {int(line[1:]) for line in told if line[0] == "e"}
        finished["trials"] |= {int(line[1:]) for line in told if line[0] == "t"}
        if round_number % 25 == 0 or round_number == count - 1:
            warnings.simplefilter("error")
            store = CacheStore(root)
            store.prepare()
            assert not list(store.building.iterdir())  # the next to open it removes what the killed one left
            damaged = [entry for entry in store.entries(check=True) if entry.problem]
            assert not damaged, damaged
            for index in finished["entries"]:
                assert_content(store.entry(key_of(index), never, {}), index)
            if (root / "trials.sqlite").exists():
                with TrialStore(root / "trials.sqlite") as trial_store:
                    trial_store.check()
                    there = {trial.record.schedule["index"] for trial in trial_store.find()}
                assert finished["trials"] <= there, f"lost: {sorted(finished['trials'] - there)[:5]}"
    counts = {name: len(indices) for name, indices in finished.items()}
    return {
        "kills": count,
        "finished": counts,
        "killed_while_building": killed_while_building,
    }


def never(place: Path) -> None:
    raise AssertionError("a finished entry was built again")


def main() -> None:
    first, second, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    place.mkdir(parents=True, exist_ok=True)
    if first == "random":
        print(json.dumps(at_random(int(second), place, int(os.environ.get("TRACEA_SEED", "0")))))
    else:
        print(json.dumps(sweep(first, second, place)))


if __name__ == "__main__":
    main()
