"""The content-addressed cache: a directory per key, published atomically, checked on every read, private to its owner.

Layout::

    <root>/v1/objects/<key>/manifest.json + files     one entry; see runtime/manifest.py
    <root>/v1/locks/<key>.lock                        one builder at a time, across processes
    <root>/v1/building/held-<random>/                 entries that are not finished, each locked by its builder

An entry is native code that will be loaded into the process, so a directory that another user could have written is
refused. Where the directory cannot be used, a private temporary one takes its place for the life of the process, with
one warning (runtime/private_directory.py).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import platformdirs

from tracea.errors import CacheCorrupt, CacheError, CacheUnwritable, InvalidOption
from tracea.runtime.held_lock import held_lock
from tracea.runtime.manifest import MANIFEST, Manifest, ManifestFile, damage, read_manifest, seal, sha256_file, sync
from tracea.runtime.private_directory import hold_directory, make_private_directory, remove_abandoned
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.shortage import disk_message, disk_remedy, is_full, is_of_the_place, starved_remedy

__all__ = ["CacheEntry", "CacheStore", "cache_root", "content_key", "default_store", "private_root", "sha256_file"]

_FORMAT: Final = "v1"
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,127}")  # the name of a directory, and of nothing above it
_UNFINISHED: Final = re.compile(r"(held|removed)-[0-9a-f]{16}")  # with their builder's lock, or whose remover is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One published entry, as ``tracea cache ls`` lists it; ``problem`` is what a check found, or None.

    Units: ``created`` and ``used`` (when a process last checked and took it) seconds since 1970.
    """

    key: str
    path: Path
    bytes: int
    created: float
    used: float
    ingredients: Mapping[str, Any]
    problem: str | None = None

    @property
    def is_stray(self) -> bool:
        """Tell whether the name cannot be a key, so that something else put it there."""
        return _KEY.fullmatch(self.key) is None


def content_key(ingredients: Mapping[str, Any]) -> str:
    """Return the key of an entry: SHA-256 over the canonical JSON of everything that its content depends on."""
    text = json.dumps(ingredients, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def cache_root() -> Path:
    """Return where the cache belongs: TRACEA_CACHE_DIR, else the user's cache directory.

    Raises: CacheUnwritable: there is no home directory to put it in.
    """
    given = os.environ.get("TRACEA_CACHE_DIR")
    if given:
        return Path(given).absolute()
    try:
        root = Path(platformdirs.user_cache_path("tracea"))
    except RuntimeError:
        root = Path("~/.cache/tracea")
    if not root.is_absolute():  # no HOME and no entry in the password file: some versions raise, some keep the "~"
        raise CacheUnwritable(path=root, detail="this user has no home directory")
    return root


class CacheStore:
    """One cache directory. Safe for any number of threads and processes at once."""

    def __init__(self, root: Path, *, fallback: Callable[[CacheError], CacheStore] | None = None) -> None:
        self.root = root
        self._base = root / _FORMAT
        self._fallback = fallback
        self._prepared = False
        self._problem: CacheError | None = None
        self._sound: set[str] = set()  # keys whose content this process has checked and keeps using

    def entry(
        self, key: str, build: Callable[[Path], None], ingredients: Mapping[str, Any], *, anew: bool = False
    ) -> Path:
        """Return the directory of ``key``, calling ``build(directory)`` where there is no sound one.

        Of several processes that ask at once, one builds. A damaged entry is replaced with one CacheCorrupt warning.
        With ``anew`` it is built in any case; what is there stays until the new one is whole.

        Raises: CacheError: neither this directory nor the fallback can be used. Whatever ``build`` raises.
        """
        try:
            found = None if anew else self._sound_entry(key, repair=False)
            if found is not None:
                return found
            if self._problem is not None:
                raise self._problem
            self.prepare()
            with held_lock(self._base / "locks" / f"{key}.lock"):
                found = self._sound_entry(key, repair=True)
                return found if found and not anew else self._publish(key, build, ingredients, anew=anew)
        except CacheCorrupt:  # the warning of a repair, which the user has made an error: the next call finds all well
            raise
        except OSError as error:
            if isinstance(error, CacheError):
                problem = error
            elif is_of_the_place(error):
                problem = CacheUnwritable(path=self.root, detail=str(error))
            elif remedy := starved_remedy(error):  # no other place would do
                raise CacheError(path=self.root, detail=str(error), remedy=remedy) from error
            else:
                raise
            if self._fallback is None:
                raise problem from error
            self._problem = problem  # what is here is still used; nothing more is built here
            return self._fallback(problem).entry(key, build, ingredients, anew=anew)

    def contains(self, key: str) -> bool:
        """Tell whether a sound entry of this key is here, or where this process goes on if not here."""
        with contextlib.suppress(OSError):
            if self._sound_entry(key, repair=False) is not None:
                return True
        return self._problem is not None and self._fallback is not None and self._fallback(self._problem).contains(key)

    def entries(self, *, check: bool = False) -> Iterator[CacheEntry]:
        """Yield every entry, oldest first; with ``check`` every byte is read and compared with its checksum."""
        objects = self._base / "objects"
        names: list[str] = []
        with contextlib.suppress(OSError):  # there is none yet, or it is another's: :meth:`refusal` says so
            names = os.listdir(objects)
        listed: list[CacheEntry] = []
        for path in map(objects.joinpath, names):
            try:
                if not _KEY.fullmatch(path.name):
                    raise CacheCorrupt(path=path, detail="is no entry: its name is no key")
                manifest = read_manifest(path)
                problem = damage(path, manifest) if check else None
                size = sum(file.bytes for file in manifest.files.values())
                listed.append(
                    CacheEntry(
                        key=path.name,
                        path=path,
                        bytes=size,
                        created=manifest.created,
                        used=os.lstat(path / MANIFEST).st_mtime,
                        ingredients=manifest.ingredients,
                        problem=problem,
                    )
                )
            except OSError as error:
                problem = _detail(error)
                listed.append(
                    CacheEntry(
                        key=path.name, path=path, bytes=0, created=0.0, used=0.0, ingredients={}, problem=problem
                    )
                )
        yield from sorted(listed, key=lambda entry: (entry.created, entry.key))

    def remove(self, key: str) -> None:
        """Remove one entry; a process that has it loaded keeps running."""
        self._bury(self._object(key))

    def holds(self, path: Path) -> bool:
        """Tell whether a path is that of a file in an entry of this directory, there or not."""
        return path.parent.parent == self._base / "objects"

    def discard(self, entry: CacheEntry) -> None:
        """Remove what :meth:`entries` listed, also what is no entry and has a name that is no key."""
        self._bury(self._base / "objects" / entry.path.name)

    def _bury(self, path: Path) -> None:
        self._sound.discard(path.name)
        grave = self._base / "building" / f"removed-{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, grave)  # first out of the way in one step, so that nobody sees half an entry
            if grave.is_dir() and not grave.is_symlink():
                shutil.rmtree(grave, ignore_errors=True)
            else:
                grave.unlink()

    @property
    def building(self) -> Path:
        """Where entries lie that are not finished, or no longer needed."""
        return self._base / "building"

    def _object(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InvalidOption(
                field="cache key", got=key, expected="letters, digits and -_. ", remedy="make it with content_key"
            )
        return self._base / "objects" / key

    def refusal(self) -> CacheError | None:
        """Return why nothing that is here is used, None where it is, whether or not more can be written."""
        try:
            for path in (self.root, self._base, self._base / "objects"):
                if os.path.lexists(path):
                    _require_private(path, follow=path == self.root)
        except OSError as error:
            return error if isinstance(error, CacheError) else CacheUnwritable(path=self.root, detail=str(error))
        return None

    def prepare(self) -> None:
        """Create the directories, private, and refuse those that others could write."""
        if self._prepared and self._base.is_dir():
            return
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.root, self._base, *(self._base / name for name in ("objects", "locks", "building"))):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            # Only the root may be a link (caches are moved to other disks); what it leads to is what must be ours.
            _require_private(path, follow=path == self.root)
        if not os.access(self._base / "building", os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CacheUnwritable(path=self.root, detail="no permission to write")
        remove_abandoned(self.building, _UNFINISHED)  # of builders that were killed
        self._prepared = True

    def _sound_entry(self, key: str, *, repair: bool) -> Path | None:
        """Return the entry's path if it is there and sound; ``repair`` removes a damaged one, with one warning."""
        path = self._object(key)
        if key in self._sound and path.is_dir():
            return path
        if not path.is_symlink() and not path.exists():
            return None
        _require_private(self.root, follow=True)
        try:
            for part in (self._base, path.parent, path):
                _require_private(part, follow=False)
            manifest = read_manifest(path)
            problem = damage(path, manifest) if manifest.key == key else f"its manifest names {manifest.key}"
        except OSError as error:
            problem = _detail(error)
        if problem is None:
            self._sound.add(key)
            with contextlib.suppress(OSError):  # when it was last used, for gc; a read-only cache does not say
                os.utime(path / MANIFEST, follow_symlinks=False)
            return path
        if repair:
            self.remove(key)  # first: a warning may be an error, and what it tells of is to be mended all the same
            warnings.warn(CacheCorrupt(path=path, detail=problem), stacklevel=2)
        return None

    def _publish(
        self, key: str, build: Callable[[Path], None], ingredients: Mapping[str, Any], *, anew: bool = False
    ) -> Path:
        place, lock = self._new_place()
        try:
            build(place)
            files = {path.name: _sealed_file(path) for path in sorted(place.iterdir())}
            manifest = Manifest(key=key, created=time.time(), ingredients=dict(ingredients), files=files)
            (place / MANIFEST).write_bytes(seal(manifest))
            (place / MANIFEST).chmod(0o600)
            sync(place / MANIFEST)
            sync(place)
            path = self._object(key)
            if anew:
                self._bury(path)
            try:
                os.rename(place, path)
            except OSError as error:
                # Without a working lock another process may have been first; its entry is as good.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                return self._sound_entry(key, repair=True) or self._publish(key, build, ingredients)
            sync(path.parent)
            self._sound.add(key)
            return path
        except OSError as error:
            if not is_full(error):
                raise
            detail = disk_message(error, place)  # now, while what was written is still there
            raise CacheUnwritable(path=self.root, detail=detail, remedy=disk_remedy(error)) from error
        finally:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)

    def _new_place(self) -> tuple[Path, int]:
        """Return a new directory to build in, and the descriptor whose lock says that its builder lives."""
        while True:
            place = self.building / f"held-{secrets.token_hex(8)}"
            place.mkdir(mode=0o700)
            try:
                lock = hold_directory(place)
            except OSError:
                place.rmdir()
                raise
            if lock is not None:
                return place, lock


def _sealed_file(path: Path) -> ManifestFile:
    path.chmod(0o600)
    sync(path)
    return ManifestFile(bytes=path.stat().st_size, sha256=sha256_file(path))


def _detail(error: OSError) -> str:
    return error.detail if isinstance(error, CacheError) else str(error)


def _require_private(path: Path, *, follow: bool) -> None:
    found = os.stat(path) if follow else os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise CacheUnwritable(path=path, detail="is not a directory")
    if found.st_uid != os.geteuid():
        raise CacheUnwritable(path=path, detail=f"belongs to user {found.st_uid}, this process runs as {os.geteuid()}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        raise CacheUnwritable(
            path=path, detail=f"can be written by others (mode {mode:04o})", remedy=f"chmod go-w {path}"
        )


class _Process:
    """The stores of this process."""

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.stores: dict[str, CacheStore] = {}
        self.private: CacheStore | None = None


_process = _Process()


def default_store() -> CacheStore:
    """Return the store of TRACEA_CACHE_DIR or of the user; one object per directory and process."""
    try:
        root = cache_root()
    except CacheUnwritable as error:
        return _private_store(error)
    with _process.lock:
        return _process.stores.setdefault(str(root), CacheStore(root, fallback=_private_store))


def private_root(reason: CacheError) -> Path:
    """Return this process's temporary directory, for what cannot be kept in the cache; ``reason`` is told once."""
    return _private_store(reason).root


def _private_store(reason: CacheError) -> CacheStore:
    """Return this process's temporary store, made and announced once."""
    with _process.lock:
        store = _process.private
        if store is None or not store.root.is_dir():
            try:
                place = make_private_directory(Path(tempfile.gettempdir()))
            except OSError as error:
                raise replace(reason, detail=f"{reason.detail}; and there is no temporary one: {error}") from error
            store = _process.private = CacheStore(place)
            went_on = (
                f"{reason.detail}; this process goes on in a temporary directory, which is removed when it ends or, "
                "if it is killed, by the next process that needs one"
            )
            warnings.warn(replace(reason, detail=went_on), stacklevel=4)
        return store
