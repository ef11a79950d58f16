"""What befalls a compilation cache: each fault is done to its directory before a process uses it."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STRANGER: Final = 12345  # owns nothing else on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is done to a cache before it is used; ``times`` repeats it with other random numbers."""

    name: str
    inject: Callable[[Path, random.Random], None]
    warm: bool = True
    times: int = 1
    user: int | None = None


def libraries(root: Path) -> list[Path]:
    """Return the shared libraries of a cache, which are what a flipped bit makes dangerous."""
    return sorted(path for path in root.rglob("*.so") if path.is_file())


def cut(share: float) -> Callable[[Path, random.Random], None]:
    """Return a fault that keeps this share of every shared library."""

    def inject(root: Path, rng: random.Random) -> None:
        for path in libraries(root):
            path.chmod(0o700)
            os.truncate(path, int(path.stat().st_size * share))

    return inject


def flip(choose: Callable[[Path], list[Path]], bits: int) -> Callable[[Path, random.Random], None]:
    """Return a fault that flips some bits in each of the chosen files."""

    def inject(root: Path, rng: random.Random) -> None:
        for path in choose(root):
            content = bytearray(path.read_bytes())
            for _ in range(bits if content else 0):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            path.write_bytes(content)

    return inject


def records(root: Path) -> list[Path]:
    """Return what a cache keeps beside native code and text: manifests, pickled graphs."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and path.suffix not in {".so", ".cpp", ".h", ".gch", ".lock", ".py"} and path.stat().st_size
    )


def empty_all(root: Path, rng: random.Random) -> None:
    """Truncate every file, as a crash of the system without fsync may leave them."""
    for path in (path for path in root.rglob("*") if path.is_file()):
        os.truncate(path, 0)


def given_away(mode: int) -> Callable[[Path, random.Random], None]:
    """Return a fault that makes another user own the whole cache, under this mode."""

    def inject(root: Path, rng: random.Random) -> None:
        root.chmod(mode)
        for path in (root, *root.rglob("*")):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)

    return inject


def group_writable(root: Path, rng: random.Random) -> None:
    """Let the group write every directory."""
    for path in (root, *(path for path in root.rglob("*") if path.is_dir())):
        path.chmod(0o775)


def a_file(root: Path, rng: random.Random) -> None:
    """Put a file where the directory belongs."""
    root.rmdir()
    root.write_text("")


def a_link(root: Path, rng: random.Random) -> None:
    """Put a link to a directory that another user owns and everybody can write where the directory belongs."""
    elsewhere = root.with_name("elsewhere")
    root.rename(elsewhere)
    given_away(0o777)(elsewhere, rng)
    root.symlink_to(elsewhere)


def mounted(options: str, then: str = "") -> Callable[[Path, random.Random], None]:
    """Return a fault that mounts a small or a read-only file system there."""

    def inject(root: Path, rng: random.Random) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "tmpfs", root], check=True)
        if then:
            subprocess.run(["mount", "-o", f"remount,{then}", root], check=True)

    return inject


def nothing(root: Path, rng: random.Random) -> None:
    """Leave the cache as it is."""


FAULTS: Final = (
    Fault(name="none (warm)", inject=nothing),
    Fault(name="every library emptied", inject=cut(0.0)),
    Fault(name="every library halved", inject=cut(0.5)),
    Fault(name="every file emptied", inject=empty_all),
    Fault(name="one bit flipped in every library", inject=flip(libraries, 1), times=4),
    Fault(name="64 bits flipped in every library", inject=flip(libraries, 64), times=2),
    Fault(name="one bit flipped in every record", inject=flip(records, 1), times=3),
    Fault(name="path is a file", inject=a_file, warm=False),
    Fault(name="disk full (64 KiB)", inject=mounted("size=64k"), warm=False),
    Fault(name="read-only file system", inject=mounted("size=64k", "ro"), warm=False),
    Fault(name="another user's, readable", inject=given_away(0o755)),
    Fault(name="another user's, world-writable", inject=given_away(0o777)),
    Fault(name="group-writable", inject=group_writable),
    Fault(name="link to another user's directory", inject=a_link),
    Fault(name="no HOME, no entry in passwd", inject=nothing, warm=False, user=54321),
)
