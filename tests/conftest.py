"""What every test gets: a seed that is printed and replayable, a cache of its own, golden text."""

from __future__ import annotations

import difflib
import os
import secrets
import shutil
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.drawn import leave_to_nightly

if TYPE_CHECKING:
    import numpy as np

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = pytest.StashKey[Path]()
# Where tests compile, a run draws one in ten (tests/drawn.py): of the kinds of each test of many, and of the other
# tests of a file; and so of all tests that are marked ``costly``. What guards the kernels themselves, their text,
# proofs, fences and gates, is run whole, and so is what is marked ``whole``: refusals cost nothing.
COMPILING = ("bench", "flow", "interface")
MANY = 4

# Generated examples are checked for what they compute; how long one takes belongs to the machine.
settings.register_profile("tracea", deadline=None, print_blob=True)
settings.load_profile("tracea")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the emitted text to tests/golden")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the controller; its workers inherit the environment
        os.environ.setdefault("TRACEA_SEED", str(secrets.randbelow(2**32)))
        # One directory for the session, never the user's: the workers share it as several users of one machine would.
        config.stash[SETTINGS] = Path(tempfile.mkdtemp(prefix="tracea-tests-"))
        os.environ["TRACEA_CACHE_DIR"] = str(config.stash[SETTINGS] / "cache")
        if config.getoption("numprocesses", None):
            # Workers times threads exceeds the cores: a team that spins at its barrier would stall the other worker's.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = os.environ["TRACEA_SEED"]


def pytest_unconfigure(config: pytest.Config) -> None:
    if SETTINGS in config.stash:
        shutil.rmtree(config.stash[SETTINGS], ignore_errors=True)


def pytest_report_header() -> list[str]:
    import tracea

    where = Path(tracea.__file__).parent
    return [
        f"tracea: {tracea.__version__} from {where}",
        f"seed: TRACEA_SEED={os.environ['TRACEA_SEED']} replays this run",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"replay with TRACEA_SEED={os.environ['TRACEA_SEED']}")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker("golden")
    if len({item.path for item in items}) == 1:
        return  # whoever names one file wants all of it
    for alike in _tests_that_compile(items):
        leave_to_nightly(alike)
    costly = [item for item in items if item.get_closest_marker("costly") and not item.get_closest_marker("slow")]
    if len(costly) >= MANY:
        leave_to_nightly(costly)


def _tests_that_compile(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return, in the folders whose tests compile, the items of each test of many kinds, and the others of each file."""
    tests: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        marked = any(item.get_closest_marker(mark) for mark in ("slow", "whole", "costly"))
        if folder in COMPILING and not marked:
            tests[item.path, getattr(item, "originalname", item.name)].append(item)
    many = [kinds for kinds in tests.values() if len(kinds) >= MANY]
    others: dict[Path, list[pytest.Item]] = defaultdict(list)
    for (path, _), kinds in tests.items():
        if len(kinds) < MANY:
            others[path] += kinds
    return many + [each for each in others.values() if len(each) >= MANY]


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed: fresh inputs each run, the same ones under TRACEA_SEED."""
    return int(os.environ["TRACEA_SEED"])


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator that depends on the run's seed and the test's name only, not on what ran before."""
    import numpy as np

    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


class Golden:
    """Compares text with a file under tests/golden, or writes it with --update-golden."""

    def __init__(self, folder: Path, *, update: bool) -> None:
        self._folder = folder
        self._update = update

    def check(self, name: str, text: str) -> None:
        """Fail with a diff where ``text`` is not what ``name`` holds."""
        path = self._folder / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"tests/golden/{name} does not exist; `make golden` writes it", pytrace=False)
        stored = path.read_text(encoding="utf-8")
        if stored != text:
            lines = difflib.unified_diff(
                stored.splitlines(), text.splitlines(), f"golden/{name}", "emitted", lineterm=""
            )
            pytest.fail("\n".join([*lines, "`make golden` accepts the new text"]), pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(GOLDEN, update=request.config.getoption("--update-golden"))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of this test's own, for tests of the cache itself."""
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
