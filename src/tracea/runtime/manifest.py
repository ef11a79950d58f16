"""A cache entry's manifest: what it was made from, each file's size and SHA-256, and a checksum over all of that.

Stored as ``{"sha256": "...", "manifest": {...}}``: the checksum is over the manifest's own bytes, so that a change of
any byte is found, whatever the byte meant. Manifests of the first release had no checksum of their own; they still
load, and no change of a single byte makes a sealed one look like them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.errors import CacheCorrupt

__all__ = ["MANIFEST", "Manifest", "ManifestFile", "damage", "read_manifest", "seal", "sha256_file", "sync", "unseal"]

MANIFEST: Final = "manifest.json"
_VERSION: Final = 2  # 1 had no seal
_MAX_BYTES: Final = 4 << 20  # a manifest has some kilobytes; more is no manifest


class ManifestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of an entry."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an entry holds. Units: ``created`` seconds since 1970."""

    key: str
    created: float
    ingredients: dict[str, Any]
    files: dict[str, ManifestFile]
    schema_version: int = _VERSION


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


def seal(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    inside = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(sha256=hashlib.sha256(inside).hexdigest(), manifest=msgspec.Raw(inside)))


def unseal(content: bytes, path: Path) -> Manifest:
    """Return the manifest of a file's bytes; ``path`` is for the error.

    Raises: CacheCorrupt: it does not decode, is of another release, or its checksum is another.
    """
    try:
        manifest = _sealed(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CacheCorrupt(path=path, detail=f"{path.name}: {error}") from error
    for name in manifest.files:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise CacheCorrupt(path=path, detail=f"{path.name} names {name!r}, which is no file of an entry")
    return manifest


def _sealed(content: bytes) -> Manifest:
    if content.startswith(b'{"schema_version":1,'):
        return msgspec.json.decode(content, type=Manifest)
    sealed = msgspec.json.decode(content, type=_Sealed)
    inside = bytes(sealed.manifest)
    if hashlib.sha256(inside).hexdigest() != sealed.sha256:
        raise ValueError("does not match its checksum")
    manifest = msgspec.json.decode(inside, type=Manifest)
    if manifest.schema_version != _VERSION:
        raise ValueError(f"schema version {manifest.schema_version}, this release reads 1 and {_VERSION}")
    return manifest


def read_manifest(entry: Path) -> Manifest:
    """Return the manifest of an entry's directory, following no symbolic link.

    Raises: CacheCorrupt. OSError: there is none.
    """
    path = entry / MANIFEST
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CacheCorrupt(path=path, detail=f"{path.name} is not a regular file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise CacheCorrupt(path=path, detail=f"{path.name} has more than {_MAX_BYTES} bytes")
    return unseal(content, path)


def damage(entry: Path, manifest: Manifest) -> str | None:
    """Say what is wrong with an entry's files, None where all are as the manifest says."""
    for name, expected in manifest.files.items():
        found = os.lstat(entry / name)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return f"{name} is not a regular file of this user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{name} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        if found.st_size != expected.bytes:
            return f"{name} has {found.st_size} bytes, expected {expected.bytes}"
        if sha256_file(entry / name) != expected.sha256:
            return f"{name} does not match its checksum"
    return None


def sha256_file(path: Path) -> str:
    """Return a regular file's SHA-256, following no symbolic link."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Bring a file or a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
