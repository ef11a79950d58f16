"""The catalogue: one TOML file a target, where every number states its source or that it is an assumption."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.targets.fact import Fact, Number, fact_of, facts_of
from tracea.targets.product import Source, product_names, product_of_core, read_product, read_text
from tracea.targets.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracea.targets.product import Product
    from tracea.targets.target import Isa

__all__ = [
    "SCHEMA_VERSION",
    "Entry",
    "cpu_product_names",
    "load",
    "names",
    "of_core",
    "parse",
    "read",
]

SCHEMA_VERSION: Final = 2  # 2: sources with addresses, and the figure of each number

# Fields of a Target by the number of a product that gives it; what a product does not state is the instruction set's.
_OF_PRODUCT: Final = MappingProxyType(
    {
        "vector_bytes": "cpu.vector_bytes",
        "vector_registers": "cpu.vector_registers",
        "fma_per_cycle": "cpu.fma_per_cycle",
        "fma_latency_cycles": "cpu.fma_latency_cycles",
        "l1d_bytes": "cpu.l1d_bytes",
        "l1d_ways": "cpu.l1d_ways",
        "l3_bytes": "cpu.l3_bytes",
        "cache_line_bytes": "cpu.cache_line_bytes",
        "page_bytes": "cpu.page_bytes",
    }
)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layout of a catalogue file."""

    schema_version: int
    name: str
    isa: str
    facts: dict[str, Number]
    sources: dict[str, Source] = {}  # msgspec copies an empty default
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
    """Return the names of the generic targets, one or more for each instruction set, sorted."""
    folder = files("tracea.targets") / "catalog"
    return tuple(sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")))


@cache
def cpu_product_names() -> tuple[str, ...]:
    """Return the names of the products whose processor ``load`` knows, sorted."""
    return tuple(name for name in product_names() if read_product(name).cpu is not None)


def load(name: str) -> Target:
    """Return the target of a generic entry (``avx512``) or of a product's processor (``zen4``).

    Raises:
        InvalidOption: there is no such entry; the message lists those there are.
    """
    return read(name).target


def of_core(microarchitecture: str, isa: Isa) -> Target:
    """Return the generic target of an instruction set, with the multiply-adds of a core that the catalogue knows.

    A Zen 4 core, for one, starts one 512-bit multiply-add in a cycle where the generic AVX-512 target has two.
    """
    base = load(isa)
    known = product_of_core(microarchitecture)
    if known is None or known.cpu is None or known.cpu.isa != isa:
        return base
    return replace(
        base,
        fma_per_cycle=known.cpu.fma_per_cycle or base.fma_per_cycle,
        fma_latency_cycles=known.cpu.fma_latency_cycles or base.fma_latency_cycles,
    )


@cache
def read(name: str) -> Entry:
    """Return the catalogue entry ``name`` with the source of each number.

    Raises:
        InvalidOption: there is no such entry; the message lists those there are.
    """
    if name not in names():
        described = name in product_names()
        if described and read_product(name).cpu is not None:
            return _of_product(read_product(name))
        raise InvalidOption(
            field="target",
            got=name,
            expected=(*names(), *cpu_product_names()),
            remedy=f"it is described, but there are no kernels for it: tracea targets show {name}"
            if described
            else "choose a listed name, or 'host' where it is accepted",
        )
    text = read_text(files("tracea.targets") / "catalog" / f"{name}.toml")
    return parse(text, origin=f"{name}.toml")


def parse(text: str, *, origin: str) -> Entry:
    """Parse one catalogue file; ``origin`` names it in errors.

    Raises:
        InvalidOption: not TOML, an unknown or missing field, a number without a figure or its source's address, or a
            target that cannot be.
    """
    try:
        file = msgspec.convert(tomllib.loads(text), _File, strict=True)
        facts = facts_of(file.facts, file.sources)
    except (tomllib.TOMLDecodeError, ValueError) as error:  # msgspec.ValidationError is a ValueError
        raise InvalidOption(
            field=f"catalogue file {origin}",
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}: numbers with value, source and figure, or an assumption",
            remedy="mend the file",
        ) from error
    if file.schema_version != SCHEMA_VERSION:
        raise InvalidOption(
            field=f"catalogue file {origin}: schema_version",
            got=file.schema_version,
            expected=SCHEMA_VERSION,
            remedy="use the version of Tracea that wrote the file",
        )
    numbers: dict[str, Any] = {field: fact.value for field, fact in facts.items()}
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
    return Entry(target=target, facts=MappingProxyType(facts))


def _of_product(product: Product) -> Entry:
    cpu = product.cpu
    assert cpu is not None  # the caller chose among those that have one
    base = read(cpu.isa)
    facts = dict(base.facts)
    facts |= {field: fact_of(product, path) for field, path in _OF_PRODUCT.items() if path in product.readings}
    facts["cores"] = fact_of(product, "cpu.cores" if cpu.performance_cores is None else "cpu.performance_cores")
    if cpu.l2_bytes_per_core is not None:
        facts["l2_bytes"] = fact_of(product, "cpu.l2_bytes", cpu.l2_bytes_per_core)
    numbers: dict[str, Any] = {field: fact.value for field, fact in facts.items()}
    target = Target(
        name=product.name,
        isa=cpu.isa,
        microarchitecture=product.microarchitecture or product.name,
        features=cpu.features,
        **numbers,
    )
    return Entry(target=target, facts=MappingProxyType(facts))
