"""Products: one file each in ``catalog/products``, where every number carries its source and the figure read there.

Worked example: ``read_product("h100").readings["gpu.compute_units"]`` is 132, read as «132 SMs per GPU» at an address
that ``read_product("h100").sources`` states.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from tracea.errors import InvalidOption
from tracea.targets.part import CpuPart, GpuPart, MemoryPart, Rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "Product",
    "Reading",
    "Source",
    "check_sources",
    "parse_product",
    "product_names",
    "product_of_core",
    "product_of_device",
    "read_product",
]

_SCHEMA_VERSION: Final = 1
_NUMBER: Final = re.compile(r"\d+(?:,\d{3})+|\d+(?:\.\d+)?")
# How a figure of a document becomes a value of the catalogue without a calculation that would need a note.
_SCALES: Final = (1, 10**3, 10**6, 1024, 1024**2, 1024**3)
_EXACT: Final = 1e-3

_Part = TypeVar("_Part")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where numbers were read. ``via`` says through what, where it was not the document itself."""

    title: str
    url: str
    via: str = ""

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme != "https" or "." not in address.netloc or not self.title.strip():
            raise ValueError(f"a source has a title and an https address, not {self.title!r} and {self.url!r}")


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One number: the key of its source, the figure as it stands there, and the calculation where it took one.

    A cell of a table is given as ``row: column value`` or as the cells of its row.
    """

    value: int
    source: str
    figure: str
    note: str = ""

    def __post_init__(self) -> None:
        if not self.note and not _says(self.figure, self.value):
            raise ValueError(f"the figure {self.figure!r} does not say {self.value}: give a note with the calculation")
        if not any(char.isdigit() for char in self.figure):
            raise ValueError(f"the figure {self.figure!r} has no number")


class _Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    isa: str
    facts: dict[str, Reading]
    features: tuple[str, ...] = ()


class _Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    architecture: str
    facts: dict[str, Reading]
    rates: dict[str, dict[str, Reading]] = {}  # msgspec copies an empty default


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: int
    name: str
    title: str
    vendor: str
    sources: dict[str, Source]
    device_names: tuple[str, ...] = ()
    microarchitecture: str = ""
    memory: dict[str, Reading] = {}  # msgspec copies an empty default
    cpu: _Cpu | None = None
    gpu: _Gpu | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product: what it has, and for each number where it was read.

    ``device_names`` are the names that a driver gives the device. ``microarchitecture`` is archspec's name of the core.
    ``readings`` are by path, such as ``gpu.f16_matrix.gops``.
    """

    name: str
    title: str
    vendor: str
    device_names: tuple[str, ...]
    microarchitecture: str
    memory: MemoryPart
    cpu: CpuPart | None
    gpu: GpuPart | None
    sources: Mapping[str, Source]
    readings: Mapping[str, Reading]

    def value(self, path: str) -> int:
        """Return the number at a path.

        Raises:
            InvalidOption: nobody stated it; the message lists what is known.
        """
        if path not in self.readings:
            raise InvalidOption(
                field=f"{self.name}: {path}",
                got="not stated",
                expected=sorted(self.readings),
                remedy="use a number that is known, or add this one with its source",
            )
        return self.readings[path].value


@cache
def product_names() -> tuple[str, ...]:
    """Return the names that ``read_product`` knows, sorted."""
    return tuple(sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml")))


@cache
def read_product(name: str) -> Product:
    """Return a product of the catalogue.

    Raises:
        InvalidOption: there is none of that name, or its file is not one.
    """
    if name not in product_names():
        raise InvalidOption(field="product", got=name, expected=product_names(), remedy="choose a listed name")
    product = parse_product(_text(name), origin=f"{name}.toml")
    if product.name != name:
        raise InvalidOption(
            field=f"catalogue file {name}.toml: name", got=product.name, expected=name, remedy="mend the file"
        )
    return product


def product_of_device(device: str) -> Product | None:
    """Return the product whose driver calls the device so, or None."""
    return next((found for found in _mentioning(device) if device in found.device_names), None)


def product_of_core(microarchitecture: str) -> Product | None:
    """Return the product that stands for cores of this name (archspec's), or None."""
    return next((p for p in _mentioning(microarchitecture) if p.microarchitecture == microarchitecture), None)


def parse_product(text: str, *, origin: str) -> Product:
    """Parse the file of one product; ``origin`` names it in errors.

    Raises:
        InvalidOption: not TOML, an unknown field, a number without source or figure, or numbers that contradict.
    """
    try:
        file = msgspec.convert(tomllib.loads(text), _File, strict=True)
        if file.schema_version != _SCHEMA_VERSION:
            raise ValueError(f"schema version {file.schema_version}")
        readings = dict(_readings(file))
        check_sources({reading.source for reading in readings.values()}, file.sources)
        return Product(
            name=file.name,
            title=file.title,
            vendor=file.vendor,
            device_names=file.device_names,
            microarchitecture=file.microarchitecture,
            memory=_part(MemoryPart, file.memory),
            cpu=None if file.cpu is None else _cpu(file.cpu),
            gpu=None if file.gpu is None else _gpu(file.gpu),
            sources=MappingProxyType(file.sources),
            readings=MappingProxyType(readings),
        )
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, TypeError, ValueError) as error:
        raise InvalidOption(
            field=f"catalogue file {origin}",
            got=str(error),
            expected=f"schema version {_SCHEMA_VERSION}: numbers with value, source and figure",
            remedy="mend the file",
        ) from error


def read_text(file: Any) -> str:
    """Return the text of a file of the catalogue.

    Raises:
        InvalidOption: it is not UTF-8.
    """
    try:
        text: str = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOption(
            field=f"catalogue file {file.name}",
            got=f"byte {error.object[error.start]:#04x} at {error.start}: {error.reason}",
            expected="UTF-8",
            remedy="mend the file",
        ) from error
    return text


def check_sources(used: set[str], described: Mapping[str, Source]) -> None:
    """Check that the sources of a file's numbers are those that it describes.

    Raises:
        ValueError: a source is not described, or has no number.
    """
    missing, idle = sorted(used - set(described)), sorted(set(described) - used)
    if missing or idle:
        raise ValueError(f"sources not described: {missing}; sources without a number: {idle}")


def _folder() -> Any:
    return files("tracea.targets") / "catalog" / "products"


@cache
def _text(name: str) -> str:
    return read_text(_folder() / f"{name}.toml")


def _mentioning(word: str) -> Iterator[Product]:
    """Yield the products whose file has the word: looking for it is a hundred times faster than reading the numbers."""
    return (read_product(name) for name in product_names() if word in _text(name))


def _readings(file: _File) -> Iterator[tuple[str, Reading]]:
    for name, reading in file.memory.items():
        yield f"memory.{name}", reading
    for part, facts in (("cpu", file.cpu), ("gpu", file.gpu)):
        if facts is not None:
            yield from ((f"{part}.{name}", reading) for name, reading in facts.facts.items())
    if file.gpu is not None:
        for rate, figures in file.gpu.rates.items():
            yield from ((f"gpu.{rate}.{name}", reading) for name, reading in figures.items())


def _part(kind: type[_Part], facts: Mapping[str, Reading], **more: Any) -> _Part:
    return kind(**{name: reading.value for name, reading in facts.items()}, **more)


def _cpu(found: _Cpu) -> CpuPart:
    return _part(CpuPart, found.facts, isa=found.isa, features=frozenset(found.features))


def _gpu(found: _Gpu) -> GpuPart:
    rates = {name: _part(Rate, figures) for name, figures in found.rates.items()}
    return _part(GpuPart, found.facts, architecture=found.architecture, rates=MappingProxyType(rates))


def _says(figure: str, value: int) -> bool:
    """Whether a number of the text is the value, in itself or in thousands, KiB, millions, MiB or GiB."""
    for match in _NUMBER.findall(figure):
        number = float(match.replace(",", ""))
        if any(abs(number * scale - value) <= _EXACT * value for scale in _SCALES):
            return True
    return False
