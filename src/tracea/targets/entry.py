"""The catalogue: one TOML file a target, where every number states its source or that it is an assumption."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.targets.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCHEMA_VERSION", "Entry", "Fact", "load", "names", "parse", "read"]

SCHEMA_VERSION: Final = 1


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number of the catalogue: where it was read, or ``assumption``: why a generic target takes it."""

    value: int
    source: str | None = None
    assumption: str | None = None

    def __post_init__(self) -> None:
        if (self.source is None) == (self.assumption is None):
            # A ValueError here becomes a msgspec.ValidationError that names the field's path.
            raise ValueError("give exactly one of source and assumption")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layout of a catalogue file."""

    schema_version: int
    name: str
    isa: str
    facts: dict[str, Fact]
    backend: str = "cpu"
    microarchitecture: str = "generic"
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A catalogue entry: the target, and for each of its numbers the fact that states where it comes from."""

    target: Target
    facts: Mapping[str, Fact]


@cache
def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows, sorted."""
    folder = files("tracea.targets") / "catalog"
    return tuple(sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")))


def load(name: str) -> Target:
    """Return the target of the catalogue entry ``name``.

    Raises:
        InvalidOption: there is no such entry; the message lists those there are.
    """
    return read(name).target


@cache
def read(name: str) -> Entry:
    """Return the catalogue entry ``name`` with the source of each number.

    Raises:
        InvalidOption: there is no such entry; the message lists those there are.
    """
    if name not in names():
        raise InvalidOption(
            field="target", got=name, expected=names(), remedy="choose a listed name, or 'host' where it is accepted"
        )
    text = (files("tracea.targets") / "catalog" / f"{name}.toml").read_text(encoding="utf-8")
    return parse(text, origin=f"{name}.toml")


def parse(text: str, *, origin: str) -> Entry:
    """Parse one catalogue file; ``origin`` names it in errors.

    Raises:
        InvalidOption: not TOML, an unknown or missing field, a number without a source, or a target that cannot be.
    """
    try:
        file = msgspec.convert(tomllib.loads(text), _File, strict=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidOption(
            field=f"catalogue file {origin}",
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}",
            remedy="mend the file",
        ) from error
    if file.schema_version != SCHEMA_VERSION:
        raise InvalidOption(
            field=f"catalogue file {origin}: schema_version",
            got=file.schema_version,
            expected=SCHEMA_VERSION,
            remedy="use the version of Tracea that wrote the file",
        )
    numbers: dict[str, Any] = {field: fact.value for field, fact in file.facts.items()}
    try:
        target = Target(
            name=file.name,
            backend=file.backend,
            isa=file.isa,  # pyright: ignore[reportArgumentType] - Target refuses an unknown name
            microarchitecture=file.microarchitecture,
            features=frozenset(file.features),
            **numbers,
        )
    except TypeError as error:
        raise InvalidOption(
            field=f"catalogue file {origin}: facts",
            got=tuple(numbers),
            expected=str(error),
            remedy="name each number of a Target once",
        ) from error
    return Entry(target=target, facts=MappingProxyType(file.facts))
