from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidOption
from tracea.runtime import cache
from tracea.runtime.cache import CacheStore, content_key, default_store
from tracea.runtime.garbage import collect_garbage

KEY = content_key({"kind": "test"})
DATA = Path(__file__).parent / "data"
OLD = "cd9f5319e4236fb56121daef11ee83119a65efc4"  # the entry of the first release in DATA


def build(place: Path) -> None:
    (place / "content").write_bytes(b"x" * 1000)


def never(place: Path) -> None:
    pytest.fail("built again")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "deep" / "cache"


@pytest.fixture
def store(root):
    return CacheStore(root)


@pytest.fixture
def fallback(monkeypatch, tmp_path):
    """A process that has not degraded yet."""
    monkeypatch.setattr(cache, "_process", cache._Process())
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    return cache._process


def test_an_entry_is_built_once_and_is_private(store, root):
    path = store.entry(KEY, build, {"kind": "test"})
    assert (path / "content").read_bytes() == b"x" * 1000
    assert store.entry(KEY, never, {}) == path
    assert CacheStore(root).entry(KEY, never, {}) == path
    for folder in (root, path, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "content").stat().st_mode) == 0o600
    assert list((root / "v1" / "building").iterdir()) == []


def test_the_private_mode_does_not_depend_on_the_umask(root):
    before = os.umask(0)
    try:
        path = CacheStore(root).entry(KEY, build, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "content").write_bytes(b""),
        lambda path: (path / "content").write_bytes(b"x" * 500),
        lambda path: (path / "content").write_bytes(b"x" * 999 + b"y"),
        lambda path: (path / "content").unlink(),
        lambda path: (path / "manifest.json").unlink(),
        lambda path: (path / "manifest.json").write_bytes(b""),
        lambda path: (path / "manifest.json").write_bytes(b'{"schema_version": 1}'),
        lambda path: (path / "manifest.json").write_bytes(
            (path / "manifest.json").read_bytes().replace(KEY.encode(), b"0" * 40)
        ),
        lambda path: ((path / "content").rename(path / "other"), (path / "content").symlink_to(path / "other")),
    ],
    ids=[
        "empty",
        "halved",
        "flipped",
        "gone",
        "no-manifest",
        "empty-manifest",
        "short-manifest",
        "other-key",
        "symlink",
    ],
)
def test_a_damaged_entry_is_rebuilt_with_one_warning(store, root, damage):
    damage(store.entry(KEY, build, {}))
    fresh = CacheStore(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = fresh.entry(KEY, build, {})
        fresh.entry(KEY, never, {})
        CacheStore(root).entry(KEY, never, {})
    assert [type(one.message) for one in caught] == [CacheCorrupt]
    assert (path / "content").read_bytes() == b"x" * 1000


def test_a_build_that_fails_leaves_nothing(store, root):
    def fail(place):
        build(place)
        raise RuntimeError("compiler crashed")

    with pytest.raises(RuntimeError, match="crashed"):
        store.entry(KEY, fail, {})
    assert list((root / "v1" / "building").iterdir()) == []
    assert not store.contains(KEY)
    assert store.entry(KEY, build, {}).is_dir()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_refused(store, root, mode):
    store.entry(KEY, build, {})
    root.chmod(mode)
    with pytest.raises(CacheUnwritable, match=rf"written by others \(mode {mode:04o}\).*chmod go-w"):
        CacheStore(root).entry(KEY, never, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(store, root):
    path = store.entry(KEY, build, {})
    os.chown(root, 12345, 12345)
    with pytest.raises(CacheUnwritable, match="belongs to user 12345"):
        CacheStore(root).entry(KEY, never, {})
    os.chown(root, 0, 0)
    os.chown(path, 12345, 12345)
    with pytest.warns(CacheCorrupt, match="belongs to user 12345"):
        CacheStore(root).entry(KEY, build, {})


def test_links_below_the_root_are_refused(store, root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    store.entry(KEY, build, {})
    objects = root / "v1" / "objects"
    objects.rename(tmp_path / "moved")
    objects.symlink_to(elsewhere)
    with pytest.raises(CacheUnwritable, match="not a directory"):
        CacheStore(root).entry(KEY, build, {})
    assert list(elsewhere.iterdir()) == []


def test_the_root_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "disk").mkdir(mode=0o700)
    root.parent.mkdir()
    root.symlink_to(tmp_path / "disk")
    assert CacheStore(root).entry(KEY, build, {}).is_dir()


def degraded(fallback, monkeypatch, value: str | None) -> Path:
    if value is not None:
        monkeypatch.setenv("TRACEA_CACHE_DIR", value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = default_store().entry(KEY, build, {})
        assert default_store().entry(KEY, never, {}) == path
        other = default_store().entry(content_key({"other": 1}), build, {})
    assert [type(one.message) for one in caught] == [CacheUnwritable]
    assert other.parent == path.parent
    assert stat.S_IMODE(path.parents[2].stat().st_mode) == 0o700
    return path


def test_a_path_that_is_a_file_degrades_with_one_warning(fallback, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    degraded(fallback, monkeypatch, str(tmp_path / "file"))


def test_a_path_below_a_file_degrades(fallback, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    degraded(fallback, monkeypatch, str(tmp_path / "file" / "cache"))


def test_a_path_that_cannot_be_made_degrades(fallback, monkeypatch):
    degraded(fallback, monkeypatch, "/proc/no/such/place")


def test_a_read_only_directory_degrades(fallback, monkeypatch):
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own is closed to the user that root becomes below
    place.chmod(0o777)
    monkeypatch.setattr(cache.tempfile, "tempdir", str(place))
    root = place / "cache"
    CacheStore(root).entry(content_key({"baked": 1}), build, {})
    for path in (root, *root.rglob("*")):
        os.chmod(path, 0o500 if path.is_dir() else 0o400)
    privileged = os.geteuid() == 0
    if privileged:  # permissions do not bind root
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        path = degraded(fallback, monkeypatch, str(root))
        assert root not in path.parents
        assert default_store().entry(content_key({"baked": 1}), never, {}).parents[2] == root  # what is there is used
    finally:
        if privileged:
            os.seteuid(0)
        for path in (root, *root.rglob("*")):
            os.chmod(path, 0o700)
        shutil.rmtree(place)


def test_a_full_disk_degrades(fallback, monkeypatch, tmp_path):
    real = os.fsync
    root = tmp_path / "cache"

    def fsync(descriptor):
        if str(root) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = degraded(fallback, monkeypatch, str(root))
    assert root not in path.parents
    assert list((root / "v1" / "building").iterdir()) == []


def test_a_user_without_a_home_degrades(fallback, monkeypatch):
    monkeypatch.delenv("TRACEA_CACHE_DIR")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    degraded(fallback, monkeypatch, None)


def test_nowhere_to_write_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="TRACEA_CACHE_DIR"):
        CacheStore(tmp_path / "file").entry(KEY, build, {})


def test_the_temporary_directory_goes_with_the_process_that_made_it(in_child, tmp_path):
    (tmp_path / "file").write_text("")
    text = (
        "import os, pathlib\n"
        "from tracea.runtime.cache import default_store\n"
        "warnings.simplefilter('ignore')\n"
        "path = default_store().entry('k', lambda place: (place / 'a').write_text('a'), {})\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.exit(0)\n"  # runs the exit handlers
        "os.waitpid(pid, 0)\n"
        "assert path.is_dir()\n"
        "print(path)\n"
    )
    done = in_child(text, TRACEA_CACHE_DIR=str(tmp_path / "file"))
    assert not Path(done.stdout.strip()).exists()


def test_eight_processes_build_one_entry_once(root, tmp_path):
    text = (
        "import os, pathlib, sys, time\n"
        "from tracea.runtime.cache import CacheStore\n"
        "def build(place):\n"
        f"    pathlib.Path({str(tmp_path)!r}, f'built-{{os.getpid()}}').touch()\n"
        "    time.sleep(0.3)\n"
        "    (place / 'content').write_text('one')\n"
        f"path = CacheStore(pathlib.Path({str(root)!r})).entry({KEY!r}, build, {{}})\n"
        "assert (path / 'content').read_text() == 'one'\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    processes = [subprocess.Popen([sys.executable, "-W", "error", "-c", text], env=environment) for _ in range(8)]
    assert [process.wait(60) for process in processes] == [0] * 8
    assert len(list(tmp_path.glob("built-*"))) == 1


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_builds_without(store, monkeypatch, reason):
    def refuse(*_):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", refuse)
    assert (store.entry(KEY, build, {}) / "content").stat().st_size == 1000


def test_a_killed_builder_does_not_block_the_next(root):
    text = (
        "import pathlib, sys, time\n"
        "from tracea.runtime.cache import CacheStore\n"
        "def build(place):\n"
        "    print('in', flush=True)\n"
        "    time.sleep(60)\n"
        f"CacheStore(pathlib.Path({str(root)!r})).entry({KEY!r}, build, {{}})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    begin = time.monotonic()
    assert CacheStore(root).entry(KEY, build, {}).is_dir()
    assert time.monotonic() - begin < 5


def test_entries_are_listed_checked_and_removed(store):
    path = store.entry(KEY, build, {"kind": "test", "name": "one"})
    other = store.entry(content_key({"kind": "other"}), build, {"kind": "other"})
    (other / "content").write_bytes(b"y" * 1000)
    listed = {entry.key: entry for entry in store.entries(check=True)}
    assert listed[KEY].problem is None
    assert (listed[KEY].bytes, listed[KEY].ingredients["name"], listed[KEY].path) == (1000, "one", path)
    assert "checksum" in (listed[other.name].problem or "")
    store.remove(KEY)
    store.remove("no such key")
    assert not path.exists()
    assert [entry.key for entry in store.entries()] == [other.name]
    assert not store.contains(KEY)


def test_an_entry_of_the_first_release_is_still_sound(store, root):
    shutil.copytree(DATA / "entry-v1", root / "v1" / "objects" / OLD)
    for path in (root, *root.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert (store.entry(OLD, never, {}) / "identity.json").stat().st_size == 419
    (entry,) = store.entries(check=True)
    assert (entry.problem, entry.ingredients) == (None, {"kind": "compiler", "command": ["g++"]})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"schema_version":1', '"schema_version":2'),
        lambda text: text.replace('"identity.json"', '"../../identity.json"'),
        lambda text: text.replace('"bytes":419', '"bytes":420'),
        lambda text: text.replace('"ingredients"', '"ingredient"'),
        lambda text: text.replace('"ingredients":{', '"ingredients":{"deep":' + "[" * 100_000 + "," if text else ""),
    ],
)
def test_no_other_manifest_passes_for_one_of_the_first_release(store, root, change):
    place = root / "v1" / "objects" / OLD
    shutil.copytree(DATA / "entry-v1", place)
    for path in (root, *root.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    text = (place / "manifest.json").read_text()
    (place / "manifest.json").write_text(change(text))
    assert change(text) != text
    assert not store.contains(OLD)
    (entry,) = store.entries()
    assert entry.problem or not store.contains(OLD)


@pytest.mark.parametrize("key", ["..", ".", "", "a/b", "../../etc", "/etc", "a\0b", "-rf", "a\nb", "k" * 129, "é"])
def test_a_key_is_a_name_and_never_a_path(store, root, key):
    for ask in (lambda: store.entry(key, never, {}), lambda: store.remove(key), lambda: store.contains(key)):
        with pytest.raises(InvalidOption, match="cache key"):
            ask()
    assert not root.exists()


def test_garbage_is_what_is_damaged_abandoned_or_long_unused(store, root):
    keys = [content_key({"index": index}) for index in range(4)]
    for key in keys:
        store.entry(key, build, {})
    (root / "v1" / "objects" / keys[0] / "content").write_bytes(b"damaged")
    now = time.time()
    for age, key in enumerate(keys):
        os.utime(root / "v1" / "objects" / key / "manifest.json", (now, now - 1000 * age))
    for name, age in (("1-dead", 7200), ("2-alive", 10)):
        (root / "v1" / "building" / name).mkdir()
        (root / "v1" / "building" / name / "half.so").write_bytes(b"x" * 50)
        os.utime(root / "v1" / "building" / name, (now, now - age))
    found = collect_garbage(store)
    assert ([entry.key for entry in found.entries], found.leftovers, found.bytes) == ([keys[0]], 1, 1050)
    assert found.recent == 1
    assert [path.name for path in (root / "v1" / "building").iterdir()] == ["2-alive"]
    assert [entry.key for entry in collect_garbage(store, unused_seconds=2500).entries] == [keys[3]]
    assert [entry.key for entry in collect_garbage(store, limit_bytes=1500).entries] == [keys[2]]
    assert [entry.key for entry in store.entries(check=True)] == [keys[1]]
    assert collect_garbage(CacheStore(root.with_name("none"))).entries == ()
    root.chmod(0o777)
    with pytest.raises(CacheUnwritable):
        collect_garbage(CacheStore(root))


def test_using_an_entry_keeps_it_from_collection(store, root):
    store.entry(KEY, build, {})
    manifest = root / "v1" / "objects" / KEY / "manifest.json"
    os.utime(manifest, (0, 0))
    CacheStore(root).entry(KEY, never, {})
    assert collect_garbage(store, unused_seconds=3600).entries == ()
    os.utime(manifest, (0, 0))
    assert len(collect_garbage(store, unused_seconds=3600).entries) == 1
