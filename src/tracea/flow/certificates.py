"""Certificates that are kept: what this release proved about a kernel need not be proved again on this machine.

An entry's key is made of everything that the proofs depend on: the op, the variant, the schedule, the target, the text
that the kernel is printed as, and the code that builds, proves and prints it. Another byte of any of them is another
key, and the kernel is proved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

import tracea
from tracea.core.op import Op
from tracea.runtime.cache import content_key, default_store
from tracea.semantic.proofs import Certificate
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["code_digest", "kept_certificate"]

_FILE: Final = "certificate.json"
_PACKAGES: Final = ("core", "emitters", "kernels", "semantic", "targets")
_SUFFIXES: Final = frozenset({".py", ".toml", ".h", ".cpp"})


def kept_certificate(
    op: Op, chosen: tuple[str, Schedule, Target], text: str, prove: Callable[[], Certificate]
) -> Certificate:
    """Return what was proved about the kernel of ``op`` that is printed as ``text``, by ``prove`` if it is not known.

    ``chosen`` are the variant, with what is built of it (the kernel, or the one that packs), its schedule and target.

    Raises:
        ProofFailed: nothing is kept then.
    """
    variant, schedule, target = chosen
    ingredients = {
        "kind": "certificate",
        "code": code_digest(),
        "op": op.to_dict(),
        "variant": variant,
        "schedule": schedule.key,
        "target": {part.name: _plain(getattr(target, part.name)) for part in fields(target)},
        "text": hashlib.sha256(text.encode()).hexdigest(),
    }
    made: list[Certificate] = []

    def prove_now(place: Path) -> None:
        made.append(prove())
        (place / _FILE).write_bytes(msgspec.json.encode(made[0]))

    entry = default_store().entry(content_key(ingredients), prove_now, {**ingredients, "op": op.key})
    return made[0] if made else msgspec.json.decode((entry / _FILE).read_bytes(), type=Certificate)


@cache
def code_digest(packages: tuple[str, ...] = _PACKAGES) -> str:
    """Return a digest of code and data, by default what builds, proves and prints kernels: every byte of every file."""
    root = Path(tracea.__file__).parent
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else value
