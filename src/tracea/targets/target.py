"""Target: the static facts of one hardware, as kernels, proofs and scores read them.

Worked example: ``load("avx512")`` has 64-byte vectors, so ``target.lanes(DType.F32)`` is 16 and a 14×32 accumulator
tile takes 14 × 2 of its 32 vector registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.core.dtype import DType

__all__ = ["ISAS", "Isa", "Target", "for_threads"]

Isa: TypeAlias = Literal["avx512", "avx2", "neon", "plain"]
ISAS: Final[tuple[Isa, ...]] = get_args(Isa)

_POSITIVE: Final = (
    "vector_bytes",
    "vector_registers",
    "fma_per_cycle",
    "fma_latency_cycles",
    "cores",
    "l1d_bytes",
    "l1d_ways",
    "l2_bytes",
    "cache_line_bytes",
    "page_bytes",
    "huge_page_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a kernel may rely on: instruction set, registers, caches and the number of cores it may use.

    Units: sizes are bytes. ``l1d_bytes`` and ``l2_bytes`` are those of one core, ``l3_bytes`` is the whole shared
    cache (0: none or unknown).
    ``fma_per_cycle`` counts vector FMA instructions that one core starts in a cycle.
    """

    name: str
    backend: str = "cpu"
    isa: Isa
    microarchitecture: str = "generic"
    vector_bytes: int
    vector_registers: int
    fma_per_cycle: int
    fma_latency_cycles: int
    cores: int
    l1d_bytes: int
    l1d_ways: int
    l2_bytes: int
    l3_bytes: int
    cache_line_bytes: int = 64
    page_bytes: int = 4096
    huge_page_bytes: int = 2_097_152
    features: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.isa not in ISAS:
            raise InvalidOption(
                field=f"target {self.name}: isa", got=self.isa, expected=ISAS, remedy="name a known instruction set"
            )
        for field in _POSITIVE:
            if getattr(self, field) < 1:
                raise InvalidOption(
                    field=f"target {self.name}: {field}",
                    got=getattr(self, field),
                    expected="at least 1",
                    remedy="give the true number",
                )
        if self.l3_bytes < 0:
            raise InvalidOption(
                field=f"target {self.name}: l3_bytes",
                got=self.l3_bytes,
                expected="at least 0",
                remedy="write 0 where there is none",
            )
        for field in ("vector_bytes", "cache_line_bytes", "page_bytes", "huge_page_bytes"):
            value: int = getattr(self, field)
            if value & (value - 1):
                raise InvalidOption(
                    field=f"target {self.name}: {field}",
                    got=value,
                    expected="a power of two",
                    remedy="give the true number",
                )

    @property
    def vector_bits(self) -> int:
        """The width of a vector register in bits."""
        return 8 * self.vector_bytes

    @property
    def l1d_sets(self) -> int:
        """The sets of the first data cache: addresses ``l1d_sets * cache_line_bytes`` apart compete for one set."""
        return max(1, self.l1d_bytes // (self.l1d_ways * self.cache_line_bytes))

    def lanes(self, dtype: DType) -> int:
        """Return how many elements of ``dtype`` one vector register holds."""
        return self.vector_bytes // dtype.nbytes

    def flops_per_cycle(self, dtype: DType) -> int:
        """Return the peak of one core: two operations a lane for each FMA that it starts."""
        return 2 * self.lanes(dtype) * self.fma_per_cycle


def for_threads(target: Target, threads: int) -> Target:
    """Return the target with as many cores as there will be threads: what schedules divide work by."""
    return replace(target, cores=max(1, threads))
