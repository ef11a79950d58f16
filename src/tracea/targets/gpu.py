"""GpuTarget: the static facts of one GPU architecture and of the product that stands for it where numbers need one.

Worked example: ``load_gpu("sm_80")`` has ``cp_async`` among its features and 166 912 bytes of shared memory for a
block, so that a 128×256×64 tile of f16 fits in three stages of 49 152 bytes, and four do not.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from tracea.errors import InvalidOption
from tracea.targets.entry import SCHEMA_VERSION
from tracea.targets.fact import Fact, Number, fact_of, facts_of
from tracea.targets.product import Product, Source, product_names, read_product, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FEATURES",
    "GpuEntry",
    "GpuTarget",
    "gpu_names",
    "gpu_product_names",
    "load_gpu",
    "names_gpu",
    "parse_architecture",
    "read_gpu",
]

FEATURES: Final = frozenset(
    {
        "ldmatrix",
        "mma_f16",
        "mma_s8",
        "cp_async",
        "bf16",
        "tf32",
        "fp8",
        "mma_fp8",
        "mbarrier",
        "tma",
        "stmatrix",
        "wgmma",
        "setmaxnreg",
        "clusters",
        "tcgen05",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """What a kernel may rely on: instructions, registers, shared memory; and a product's counts for estimates.

    ``name`` is the architecture as the compiler calls it (``sm_90a``), ``product`` the title of the one whose counts,
    clock and bandwidth these are: the one that was asked for, else the one that stands for the architecture.
    ``shared_bytes_per_block`` is what one block may ask for; ``shared_bytes_per_sm`` what all blocks of one
    multiprocessor share, where each takes ``shared_bytes_reserved`` beside its own.

    Units: sizes are bytes, the clock is MHz, ``memory_gb_per_s`` is 10^9 bytes a second. ``f16_fma_per_cycle`` counts
    multiply-adds of f16 factors by matrix instructions of one multiprocessor in a cycle.
    """

    backend: ClassVar[str] = "cuda"

    name: str
    product: str
    compute_capability: int  # 10 · major + minor, as in sm_90
    warp_lanes: int
    registers_per_sm: int
    registers_per_thread: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    shared_bytes_reserved: int
    sm_count: int
    clock_mhz: int
    memory_gb_per_s: int
    l2_bytes: int
    f16_fma_per_cycle: int
    features: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = sorted(self.features - FEATURES)
        if unknown:
            raise InvalidOption(
                field=f"target {self.name}: features",
                got=unknown,
                expected=sorted(FEATURES),
                remedy="name known features",
            )
        for field in self.__dataclass_fields__:
            value = getattr(self, field)
            if isinstance(value, int) and value < (0 if field == "shared_bytes_reserved" else 1):
                raise InvalidOption(
                    field=f"target {self.name}: {field}",
                    got=value,
                    expected="at least 1",
                    remedy="give the true number",
                )
        if self.shared_bytes_per_block + self.shared_bytes_reserved > self.shared_bytes_per_sm:
            raise InvalidOption(
                field=f"target {self.name}: shared_bytes_per_block",
                got=self.shared_bytes_per_block,
                expected=f"at most {self.shared_bytes_per_sm - self.shared_bytes_reserved}",
                remedy="a block and what is reserved fit a multiprocessor",
            )

    @property
    def isa(self) -> str:
        """The architecture as the compiler calls it."""
        return self.name

    @property
    def arch_specific(self) -> bool:
        """Whether code for this target runs on this architecture only (the ``a`` forms)."""
        return self.name.endswith("a")

    @property
    def cores(self) -> int:
        """The multiprocessors of the product."""
        return self.sm_count

    def has(self, *features: str) -> bool:
        """Whether all of these features are there."""
        return self.features.issuperset(features)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEntry:
    """A catalogue entry: the target, and for each of its numbers the fact that states where it comes from."""

    target: GpuTarget
    facts: Mapping[str, Fact]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: int
    name: str
    product: str
    features: tuple[str, ...]
    facts: dict[str, Number]
    sources: dict[str, Source] = {}  # msgspec copies an empty default


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A GPU architecture: its features and limits, and the name of the product that stands for it."""

    name: str
    product: str
    features: frozenset[str]
    facts: Mapping[str, Fact]


def _folder() -> Any:
    return files("tracea.targets") / "catalog" / "cuda"


@cache
def gpu_names() -> tuple[str, ...]:
    """Return the names that ``load_gpu`` knows, the oldest architecture first."""
    found = [item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml")]
    return tuple(sorted(found, key=lambda name: int("".join(filter(str.isdigit, name)))))


@cache
def gpu_product_names() -> tuple[str, ...]:
    """Return the names of the products that one of these architectures runs on, sorted."""
    return tuple(filter(_is_cuda_product, product_names()))


def names_gpu(name: str) -> bool:
    """Tell whether a name is meant for a CUDA GPU: a product, or what begins as all architectures do, known or not."""
    return name.lower().startswith("sm") or _is_cuda_product(name)


def load_gpu(name: str) -> GpuTarget:
    """Return the GPU target of an architecture (``sm_90a``) or of a product (``h200``).

    Raises:
        InvalidOption: there is none; the message lists those there are.
    """
    return read_gpu(name).target


@cache
def read_gpu(name: str) -> GpuEntry:
    """Return a GPU target with the source of each number.

    Raises:
        InvalidOption: there is none, or the file is not one.
    """
    if _is_cuda_product(name):
        product = read_product(name)
        return _entry(_architecture(_architecture_of(product)), product)
    if name not in gpu_names():
        raise InvalidOption(field="target", got=name, expected=gpu_names(), remedy=_remedy(name))
    architecture = _architecture(name)
    return _entry(architecture, read_product(architecture.product))


def parse_architecture(text: str, *, name: str) -> Architecture:
    """Parse the file of one architecture.

    Raises:
        InvalidOption: not TOML, an unknown field, a number without a figure or its source's address, or the file of
            another architecture or schema.
    """
    origin = f"catalogue file {name}.toml"
    try:
        file = msgspec.convert(tomllib.loads(text), _File, strict=True)
        facts = facts_of(file.facts, file.sources)
    except (tomllib.TOMLDecodeError, ValueError) as error:  # msgspec.ValidationError is a ValueError
        raise InvalidOption(
            field=origin,
            got=str(error),
            expected=f"schema version {SCHEMA_VERSION}: numbers with value, source and figure",
            remedy="mend the file",
        ) from error
    if file.schema_version != SCHEMA_VERSION or file.name != name:
        raise InvalidOption(
            field=origin,
            got=(file.schema_version, file.name),
            expected=(SCHEMA_VERSION, name),
            remedy="use the version of Tracea that wrote the file",
        )
    return Architecture(
        name=file.name, product=file.product, features=frozenset(file.features), facts=MappingProxyType(facts)
    )


def _architecture(name: str) -> Architecture:
    return parse_architecture(read_text(_folder() / f"{name}.toml"), name=name)


def _entry(architecture: Architecture, product: Product) -> GpuEntry:
    """Join an architecture's limits with a product's counts."""
    facts = {**architecture.facts, **_product_facts(product)}
    numbers: dict[str, Any] = {field: fact.value for field, fact in facts.items()}
    try:
        target = GpuTarget(name=architecture.name, product=product.title, features=architecture.features, **numbers)
    except TypeError as error:
        raise InvalidOption(
            field=f"catalogue file {architecture.name}.toml: facts",
            got=tuple(numbers),
            expected=str(error),
            remedy="name each number of a GpuTarget once",
        ) from error
    return GpuEntry(target=target, facts=MappingProxyType(facts))


def _product_facts(product: Product) -> dict[str, Fact]:
    bandwidth = product.value("memory.mb_per_s")
    products = product.value("gpu.f16_matrix.ops_per_cycle")
    return {
        "sm_count": fact_of(product, "gpu.compute_units"),
        "clock_mhz": fact_of(product, "gpu.clock_mhz"),
        "l2_bytes": fact_of(product, "gpu.l2_bytes"),
        "memory_gb_per_s": fact_of(product, "memory.mb_per_s", round(bandwidth / 1000)),
        "f16_fma_per_cycle": fact_of(product, "gpu.f16_matrix.ops_per_cycle", products // 2),
    }


def _is_cuda_product(name: str) -> bool:
    return name in product_names() and _architecture_of(read_product(name)) in gpu_names()


def _architecture_of(product: Product) -> str:
    return "" if product.gpu is None else product.gpu.architecture


def _remedy(name: str) -> str:
    """Return the target whose number is nearest, the earlier one of two, and where its machine code does not load."""
    wanted, known = _number(name), {target: _number(target) for target in gpu_names()}
    near = min(known, key=lambda target: (abs(known[target] - wanted), known[target]))
    if known[near] == wanted or not load_gpu(near).arch_specific:
        return f"use {near}, the nearest"
    portable = max((each for each in known if not load_gpu(each).arch_specific), key=lambda each: known[each])
    return (
        f"use {near}, the nearest, if that was meant: its machine code loads on sm_{known[near]} alone. For another "
        f"GPU compile the text for {portable}, which needs no feature of one alone: --target {portable} prints it"
    )


def _number(name: str) -> int:
    return int("".join(filter(str.isdecimal, name[:16])) or 0)
