"""What docs/reliability.md promises of the cache and the trial store: under kills, full and failing disks, crowds.

The shim (faults/shim.c) is preloaded and counts every file-system call below the cache's directory, SQLite's too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracea.errors import CacheError, CacheUnwritable, ToolchainMissing, TraceaWarning
from tracea.runtime import cache
from tracea.runtime.cache import CacheStore, content_key, default_store
from tracea.runtime.toolchain import find_compiler

FAULTS = Path(__file__).parent / "faults"
SOURCE = str(Path(cache.__file__).parents[2])
KEY = content_key({"kind": "faults"})


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        compiler = find_compiler()
    except ToolchainMissing:
        pytest.skip("no compiler for the shim")
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    language = ("-x", "c") if sys.platform == "linux" else pytest.skip("the shim is written for Linux's C libraries")
    command = (*compiler.command, *language, "-shared", "-fPIC", "-O1", "-o", path, FAULTS / "shim.c", "-ldl")
    subprocess.run(command, check=True, capture_output=True)
    return path


def swept(shim: Path, place: Path, *words: str, seconds: int = 200) -> dict[str, Any]:
    temporary = place / "temporary"  # where the children go on, which the next of them clears
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, FAULTS / "sweep.py", *words, place],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": SOURCE, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(temporary.iterdir())) <= 1, "what killed processes left was not removed by the next"
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("publish", "kill"),
        ("trials", "half"),
        ("trials", "fail"),
        ("use", "full"),
        pytest.param("publish", "half", marks=pytest.mark.slow),
        pytest.param("trials", "kill", marks=pytest.mark.slow),
        pytest.param("trials", "full", marks=pytest.mark.slow),
        pytest.param("use", "fail", marks=pytest.mark.slow),
        pytest.param("publish", "full", marks=pytest.mark.slow),
        pytest.param("publish", "fail", marks=pytest.mark.slow),
        pytest.param("replace", "kill", marks=pytest.mark.slow),
        pytest.param("replace", "half", marks=pytest.mark.slow),
        pytest.param("replace", "full", marks=pytest.mark.slow),
        pytest.param("replace", "fail", marks=pytest.mark.slow),
        pytest.param("use", "kill", marks=pytest.mark.slow),
    ],
)
def test_a_fault_at_any_file_system_call_loses_nothing_finished_and_corrupts_nothing(
    shim: Path, tmp_path: Path, action: str, kind: str
) -> None:
    found = swept(shim, tmp_path, action, kind)
    assert found["calls"] > 100  # every one of them had the fault once
    assert sum(found["ends"].values()) == found["calls"]
    if action == "use":
        assert set(found["ends"]) <= {"unharmed", "SIGKILL"}  # a kernel is made whatever the disk does
    if kind == "half":
        assert found["ends"]["SIGKILL"] >= 4  # writes that were torn


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_nothing_finished(shim: Path, tmp_path: Path, kills: int) -> None:
    found = swept(shim, tmp_path, "random", str(kills), seconds=800)
    assert found["kills"] == kills
    assert min(found["finished"].values()) >= kills // 4  # half of them are killed after the first that they finish
    assert found["killed_while_building"] > 0


COMPILES_ONE_KERNEL = """
import ctypes
from tracea.runtime.compiler import compile_text
library = compile_text('extern "C" __attribute__((visibility("default"))) int answer() { return 42; }', isa="plain",
                       name="answer")
assert library.handle.answer() == 42
"""


def test_thirty_two_processes_that_need_one_kernel_compile_it_once(tmp_path: Path) -> None:
    real = shutil.which(find_compiler().command[0])
    log = tmp_path / "compilations"
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) echo $$ >> {log};; esac\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "TRACEA_CACHE_DIR": str(tmp_path / "cache"),
        "TRACEA_CXX": str(compiler),
        "PYTHONPATH": SOURCE,
    }
    command = [sys.executable, "-W", "error", "-c", COMPILES_ONE_KERNEL]
    children = [subprocess.Popen(command, env=environment) for _ in range(32)]
    assert [child.wait(300) for child in children] == [0] * 32
    assert len(log.read_text().split()) == 1


def test_every_flipped_bit_of_a_small_entry_is_found(tmp_path: Path) -> None:
    ingredients = {"kind": "library", "name": "softmax", "flags": ["-O3"]}
    path = CacheStore(tmp_path).entry(
        KEY, lambda place: (place / "kernel.so").write_bytes(bytes(range(256))), ingredients
    )
    flips = 0
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in range(len(content)):
            for mask in (*(1 << bit for bit in range(8)), 0xFF):
                with file.open("r+b") as opened:
                    opened.seek(place)
                    opened.write(bytes([content[place] ^ mask]))
                assert not CacheStore(tmp_path).contains(KEY), (file.name, place, mask)
                flips += 1
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(content[place : place + 1])
    assert CacheStore(tmp_path).contains(KEY)
    assert flips > 4000


def test_every_shorter_or_longer_file_of_an_entry_is_found(tmp_path: Path) -> None:
    path = CacheStore(tmp_path).entry(KEY, lambda place: (place / "kernel.so").write_bytes(bytes(range(256))), {})
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for size in range(len(content)):
            file.write_bytes(content[:size])
            assert not CacheStore(tmp_path).contains(KEY), (file.name, size)
        for more in (b"\0", b"{}", content):
            file.write_bytes(content + more)
            assert not CacheStore(tmp_path).contains(KEY), (file.name, more)
        file.write_bytes(content)
    assert CacheStore(tmp_path).contains(KEY)


# A directory that cannot be used: one warning, and a private temporary one serves this process.


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that has not degraded yet, and the root it will be given."""
    monkeypatch.setattr(cache, "_process", cache._Process())
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "temporary"))
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(root))
    return root


@pytest.fixture
def mounted(undisturbed: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "mode=0700,size=64k", "tmpfs", undisturbed]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("this process may not mount; the full disk at every call is simulated above")
    yield undisturbed
    subprocess.run(["umount", "-l", undisturbed], check=True)


def asked(index: int, size: int) -> Path:
    return default_store().entry(
        content_key({"index": index}), lambda place: (place / "kernel.so").write_bytes(b"x" * size), {}
    )


def test_a_small_file_system_that_runs_full_degrades_with_one_warning(mounted: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        places = [asked(index, 8192) for index in range(12)]
    assert all((place / "kernel.so").read_bytes() == b"x" * 8192 for place in places)
    assert [type(each.message) for each in caught] == [CacheUnwritable]
    inside = [place for place in places if mounted in place.parents]
    assert 0 < len(inside) < 12
    assert places[: len(inside)] == inside  # as long as it fits; what fitted stays in use
    assert not [entry for entry in CacheStore(mounted).entries(check=True) if entry.problem]
    assert list((mounted / "v1" / "building").iterdir()) == []


def test_a_read_only_file_system_degrades_with_one_warning_and_is_read(mounted: Path) -> None:
    first = asked(0, 100)
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    cache._process.stores.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert asked(0, 100) == first
        assert not caught
        assert mounted not in asked(1, 100).parents
        asked(2, 100)
    assert [type(each.message) for each in caught] == [CacheUnwritable]


STRANGER = 12345


def give_away(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    for path in (root, *root.rglob("*")):
        os.chown(path, STRANGER, STRANGER)


def link_to_a_stranger(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))
    give_away(root.with_name("elsewhere"))
    root.symlink_to(root.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (give_away, f"belongs to user {STRANGER}"),
        (lambda root: (give_away(root), root.chmod(0o777)), f"belongs to user {STRANGER}"),
        (lambda root: root.chmod(0o770), "chmod go-w"),
        (lambda root: root.chmod(0o702), "chmod go-w"),
        (link_to_a_stranger, f"belongs to user {STRANGER}"),
        (lambda root: (shutil.rmtree(root), root.write_text("")), "not a directory"),
        (lambda root: (shutil.rmtree(root), root.symlink_to(root)), "symbolic links"),
        (lambda root: (shutil.rmtree(root / "v1"), (root / "v1").symlink_to("/tmp")), "not a directory"),
    ],
    ids=["stranger", "world", "group", "others", "link", "file", "loop", "inner-link"],
)
def test_a_directory_that_others_could_write_is_never_loaded_from(undisturbed: Path, spoil: Any, said: str) -> None:
    asked(0, 100)
    spoil(undisturbed)
    cache._process.stores.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        place = asked(0, 100)
        assert asked(1, 100).parent == place.parent
    assert undisturbed not in place.parents
    assert [type(each.message) for each in caught] == [CacheUnwritable]
    assert said in str(caught[0].message)


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_file_that_others_can_write_is_built_again(undisturbed: Path, mode: int) -> None:
    (asked(0, 100) / "kernel.so").chmod(mode)
    cache._process.stores.clear()
    with pytest.warns(CacheError, match="can be written by others") as caught:
        asked(0, 100)
    assert len([each for each in caught if issubclass(each.category, TraceaWarning)]) == 1
