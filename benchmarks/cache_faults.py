"""The same faults against two compilation caches: Tracea's and Inductor's (torch.compile on the CPU).

Each fault gets a fresh copy of a warm cache, or an empty directory, and a fresh process that computes one softmax
through it. What is recorded is what the process did: the right result or not, how it ended, how often it called the
compiler, and what it said about the cache. Both children run under the same counting compiler::

    python benchmarks/cache_faults.py --out benchmarks/results/cache-faults.json

Faults that need a mount (a full disk, a read-only file system) or another user are left out, and named, where this
process may not make them. Not a measurement of speed: seconds are there to show what a rebuild costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from injected_faults import FAULTS, Fault

SOURCE: Final = Path(__file__).resolve().parents[1] / "src"
LIMIT_SECONDS: Final = 240
_MAY_READ: Final = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")

_HEAD = """
import json, logging, os, time, warnings
heard, begun = [], time.monotonic()
class Listener(logging.Handler):
    def emit(self, record): heard.append(f"log: {record.name}: {record.getMessage()}"[:300])
logging.getLogger().addHandler(Listener(logging.WARNING))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
"""
_TAIL = """
heard += [f"{each.category.__name__}: {each.message}"[:300] for each in caught if "cache" in str(each.message).lower()]
print(json.dumps({"correct": bool(good), "heard": heard, "seconds": time.monotonic() - begun}))
"""
_TRACEA = """
    import numpy as np
    import tracea
    x = np.linspace(-1, 1, 8192, dtype=np.float32).reshape(64, 128)
    wanted = np.exp(x - x.max(-1, keepdims=True))
    good = np.allclose(tracea.ops.softmax(x), wanted / wanted.sum(-1, keepdims=True), atol=1e-6)
"""
_INDUCTOR = """
    import torch
    x = torch.linspace(-1, 1, 8192).reshape(64, 128)
    good = torch.allclose(torch.compile(lambda x: torch.softmax(x, -1))(x), torch.softmax(x, -1), atol=1e-6)
    logging.getLogger("torch").addHandler(Listener(logging.WARNING))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A cache under test: the variable that says where it lies, and a program that computes through it."""

    name: str
    variable: str
    program: str


SUBJECTS: Final = (
    Subject(name="tracea", variable="TRACEA_CACHE_DIR", program=_HEAD + _TRACEA + _TAIL),
    Subject(name="inductor", variable="TORCHINDUCTOR_CACHE_DIR", program=_HEAD + _INDUCTOR + _TAIL),
)


class Harness:
    """The place of all runs: warm caches, the counting compiler, its log."""

    def __init__(self, place: Path, rng: random.Random) -> None:
        self.place, self.rng = place, rng
        self.warm_compilations = 0
        self.log = place / "compiler.log"
        self.log.touch()
        self.log.chmod(0o666)
        compiler = place / "bin" / "g++"
        compiler.parent.mkdir()
        compiler.write_text(f'#!/bin/sh\necho "$*" >> {self.log}\nexec {shutil.which("g++")} "$@"\n')
        compiler.chmod(0o755)
        place.chmod(0o755)

    def environment(self, subject: Subject, root: Path | None, user: int | None) -> dict[str, str]:
        """Return a child's environment; another user's has neither a home nor a cache of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRACEA_", "TORCH", "XDG_"))}
        kept |= {"PATH": f"{self.place / 'bin'}:{kept['PATH']}", "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "default"}
        if root is not None and user is None:
            kept[subject.variable] = str(root)
        if user is not None:
            for name in ("HOME", "USER", "LOGNAME"):
                kept.pop(name, None)
            kept["TMPDIR"] = str(self.place / "strangers")
            (self.place / "strangers").mkdir(exist_ok=True)
            (self.place / "strangers").chmod(0o1777)
        return kept

    def start(self, subject: Subject, root: Path | None, user: int | None = None) -> subprocess.Popen[str]:
        """Start the child that computes through this cache."""
        # The stranger may read everything, as where an interpreter is installed for all, and write nothing.
        as_user = (
            () if user is None else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *_MAY_READ)
        )
        return subprocess.Popen(
            [*as_user, sys.executable, "-c", subject.program],
            env=self.environment(subject, root, user),
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        """Return what a child did."""
        try:
            out, err = child.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return {"end": f"hung for {LIMIT_SECONDS} s", "said": child.communicate()[1][-300:]}
        lines = out.strip().splitlines()
        if child.returncode == 0 and lines:
            return {"end": "ok", **json.loads(lines[-1])}
        if child.returncode < 0:
            return {"end": f"killed by {signal.Signals(-child.returncode).name}", "said": err[-300:]}
        return {"end": "raised", "said": err.strip().splitlines()[-1][:300] if err.strip() else ""}

    def compilations(self) -> int:
        """Return how many shared libraries or objects were compiled since the last call."""
        lines = self.log.read_text(errors="replace").splitlines()
        self.log.write_text("")
        return sum(" -o " in f" {line} " for line in lines)

    def run(self, subject: Subject, root: Path | None, user: int | None = None) -> dict[str, Any]:
        """Run one child to its end."""
        self.compilations()
        done = self.finish(self.start(subject, root, user))
        return {**done, "compilations": self.compilations()}

    @contextlib.contextmanager
    def cache(self, warm: Path | None) -> Generator[Path]:
        """Give a copy of a warm cache, or an empty private directory, and remove it with whatever became of it.

        It is always at the same path, since a cache may keep its own path in what it stores.
        """
        folder = self.place / "run"
        folder.mkdir(mode=0o755)
        root = folder / "cache"
        if warm is None:
            root.mkdir(mode=0o700)
        else:
            subprocess.run(["cp", "-a", warm, root], check=True)
        try:
            yield root
        finally:
            if os.path.ismount(root):
                subprocess.run(["umount", root], check=True)
            shutil.rmtree(folder, ignore_errors=True)


def outcome(done: Mapping[str, Any], warm_compilations: int) -> str:
    """Say what a run did in a few words; the report's table counts these."""
    if done["end"] != "ok":
        return f"crashed: {done['end']}"
    if not done["correct"]:
        return "WRONG RESULT"
    said = f"{len(done['heard'])} warning{'s' * (len(done['heard']) != 1)}" if done["heard"] else "no warning"
    return f"right, {said}, {'rebuilt' if done['compilations'] > warm_compilations else 'used as it was'}"


def faulty(harness: Harness, subject: Subject, warm: Path, fault: Fault) -> dict[str, Any]:
    """Run one fault as often as it says, and once more each time: is the cache sound afterwards?"""
    runs: list[dict[str, Any]] = []
    for _ in range(fault.times):
        with harness.cache(warm if fault.warm else None) as root:
            try:
                fault.inject(root, harness.rng)
            except (OSError, subprocess.CalledProcessError) as error:
                return {"fault": fault.name, "subject": subject.name, "not_run": str(error)}
            first = harness.run(subject, root, fault.user)
            runs.append({**first, "outcome": outcome(first, harness.warm_compilations)})
            if first["end"] != "ok":  # does it heal?
                runs[-1]["again"] = outcome(harness.run(subject, root, fault.user), harness.warm_compilations)
    return {"fault": fault.name, "subject": subject.name, "runs": runs}


def killed(harness: Harness, subject: Subject, times: int) -> dict[str, Any]:
    """Kill a process and its compilers while it fills an empty cache, then use what it left."""
    runs: list[dict[str, Any]] = []
    for _ in range(times):
        with harness.cache(None) as root:
            harness.compilations()
            child = harness.start(subject, root)
            deadline = time.monotonic() + LIMIT_SECONDS
            while not harness.log.read_text() and time.monotonic() < deadline and child.poll() is None:
                time.sleep(0.01)
            time.sleep(harness.rng.uniform(0.0, 4.0))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            harness.finish(child)
            done = harness.run(subject, root)
            runs.append({**done, "outcome": outcome(done, harness.warm_compilations)})
    return {"fault": "killed while it compiles, then used", "subject": subject.name, "runs": runs}


def crowd(harness: Harness, subject: Subject, warm_compilations: int, count: int) -> dict[str, Any]:
    """Start several processes at once on one empty cache; ideally they compile what one alone would."""
    with harness.cache(None) as root:
        harness.compilations()
        children = [harness.start(subject, root) for _ in range(count)]
        done = [harness.finish(child) for child in children]
        total = harness.compilations()
    ends = Counter("right" if each["end"] == "ok" and each["correct"] else each["end"] for each in done)
    return {
        "fault": f"{count} processes at once, one empty cache",
        "subject": subject.name,
        "runs": [{"outcome": f"{dict(ends)}; compiled {total} times, one process alone {warm_compilations}"}],
    }


def measure(harness: Harness, subject: Subject, *, kills: int, processes: int) -> Generator[dict[str, Any]]:
    """Yield what each fault did to one cache, and print it."""
    warm = harness.place / f"warm-{subject.name}"
    with harness.cache(None) as root:
        cold = harness.run(subject, root)
        subprocess.run(["cp", "-a", root, warm], check=True)
    if not outcome(cold, 0).startswith("right"):
        raise SystemExit(f"{subject.name} does not run here: {cold}")
    with harness.cache(warm) as root:  # some call the compiler even then, to ask what it can do
        harness.warm_compilations = harness.run(subject, root)["compilations"]
    yield told({"fault": "none (cold)", "subject": subject.name, "runs": [{**cold, "outcome": outcome(cold, 0)}]})
    for fault in FAULTS:
        yield told(faulty(harness, subject, warm, fault))
    yield told(killed(harness, subject, kills))
    yield told(crowd(harness, subject, cold["compilations"], processes))


def told(found: dict[str, Any]) -> dict[str, Any]:
    """Print one finding and return it."""
    counts = Counter(run["outcome"] for run in found.get("runs", []))
    print(found["subject"], "|", found["fault"], "|", dict(counts) or found["not_run"], flush=True)
    return found


def main() -> None:
    """Run every fault against both caches and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--only", default="", help="names of subjects, with commas")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="cache-faults-"))
    found: list[dict[str, Any]] = []
    try:
        harness = Harness(place, random.Random(arguments.seed))
        for subject in SUBJECTS:
            if not arguments.only or subject.name in arguments.only.split(","):
                found += measure(harness, subject, kills=arguments.kills, processes=arguments.processes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    report = {
        "schema_version": 1,
        "seed": arguments.seed,
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "found": found,
    }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
