"""The parts of a product as typed facts: processor cores, a GPU, memory. A number that nobody stated is None.

Worked example: an MI300X has 304 compute units at 2100 MHz that do 2048 f16 matrix operations a cycle each; its stated
peak of 1307.4 TFLOP/s is their product, and ``GpuPart`` refuses a peak that is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.targets.target import Isa

__all__ = ["RATES", "TOLERANCE", "CpuPart", "GpuPart", "MemoryPart", "Rate"]

TOLERANCE: Final = 0.02  # a stated figure is rounded; one that is further off is of another product or clock

# Element type and unit; a matrix rate of floats accumulates in float32 (float64 for f64), of integers in int32.
RATES: Final = (
    "f64_vector",
    "f64_matrix",
    "f32_vector",
    "f32_matrix",
    "tf32_matrix",
    "f16_matrix",
    "bf16_matrix",
    "f8_matrix",
    "i8_matrix",
)

# The smallest and largest value of a field that ends so: beyond them a unit was mistaken for another.
_SANE: Final = {
    "_mhz": (100, 10_000),
    "_bytes": (16, 2 * 1024**3),
    "_lanes": (4, 128),
    "_ways": (1, 32),
    "_gb": (1, 10_000),
    "_bits": (16, 32_768),
    "mt_per_s": (400, 100_000),
    "mb_per_s": (1_000, 100_000_000),
    "gops": (10, 100_000_000),
    "ops_per_cycle": (1, 1_000_000),
    "cores": (1, 1_024),
    "units": (1, 4_096),
    "registers": (8, 512),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Operations of one kind; a multiply-add is two. No figure counts sparsity.

    Units: ``gops`` is 10^9 operations a second of the whole part, ``ops_per_cycle`` operations of one unit in a cycle.
    """

    gops: int | None = None
    ops_per_cycle: int | None = None

    def __post_init__(self) -> None:
        _check_range("rate", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """The main memory. ``size_gb`` is the vendor's label, which does not say whether it means 10^9 or 2^30 bytes.

    Units: ``mt_per_s`` is 10^6 transfers a second of one pin, ``mb_per_s`` 10^6 bytes a second.
    """

    size_gb: int | None = None
    bus_bits: int | None = None
    mt_per_s: int | None = None
    mb_per_s: int | None = None

    def __post_init__(self) -> None:
        _check_range("memory", self)
        computed = self._by_the_pins
        if computed is not None and self.mb_per_s is not None:
            _check_close("memory: mb_per_s", self.mb_per_s, computed, "bus_bits / 8 · mt_per_s")

    @property
    def _by_the_pins(self) -> int | None:
        if self.bus_bits is None or self.mt_per_s is None:
            return None
        return self.bus_bits * self.mt_per_s // 8

    @property
    def bandwidth_mb_per_s(self) -> int | None:
        """The stated bandwidth, else the one that width and transfer rate give; None where neither is known."""
        return self.mb_per_s if self.mb_per_s is not None else self._by_the_pins


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPart:
    """The cores of a processor, as one instruction set sees them.

    ``performance_cores`` are those that the other fields describe, where a processor has two kinds of cores.
    ``l2_bytes`` is one second cache, which ``l2_cores`` cores share (1 if None); ``l3_bytes`` all of the last cache.
    ``fma_per_cycle`` counts vector multiply-adds of ``vector_bytes`` that one core starts in a cycle, the rates of
    tiles operations of one core in a cycle, a multiply-add being two.
    """

    isa: Isa
    features: frozenset[str] = frozenset()
    cores: int | None = None
    performance_cores: int | None = None
    base_clock_mhz: int | None = None
    boost_clock_mhz: int | None = None
    vector_bytes: int | None = None
    vector_registers: int | None = None
    fma_per_cycle: int | None = None
    fma_latency_cycles: int | None = None
    l1d_bytes: int | None = None
    l1d_ways: int | None = None
    l2_bytes: int | None = None
    l2_cores: int | None = None
    l3_bytes: int | None = None
    cache_line_bytes: int | None = None
    page_bytes: int | None = None
    tile_registers: int | None = None
    tile_rows: int | None = None
    tile_row_bytes: int | None = None
    bf16_tile_ops_per_cycle: int | None = None
    i8_tile_ops_per_cycle: int | None = None

    def __post_init__(self) -> None:
        _check_range("cpu", self)
        _check_order("cpu", self, "base_clock_mhz", "boost_clock_mhz")
        _check_order("cpu", self, "performance_cores", "cores")
        _check_order("cpu", self, "l2_cores", "cores")
        _check_order("cpu", self, "l1d_bytes", "l2_bytes")
        _check_powers_of_two("cpu", self, "vector_bytes", "cache_line_bytes", "page_bytes")
        if self.l1d_bytes and self.l1d_ways and self.l1d_bytes % (64 * self.l1d_ways):
            raise InvalidOption(
                field="cpu: l1d_ways",
                got=self.l1d_ways,
                expected=f"ways of whole 64-byte lines in {self.l1d_bytes} bytes",
                remedy="give the true numbers",
            )

    @property
    def l2_bytes_per_core(self) -> int | None:
        """One core's even share of its second cache."""
        return None if self.l2_bytes is None else self.l2_bytes // (self.l2_cores or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """A GPU: its units (multiprocessors, compute units, cores) and what one unit has.

    ``devices`` is how many devices a runtime sees in one package, where it is more than one; the other numbers are the
    package's. ``clock_mhz`` is the clock at which the stated peaks hold. For CUDA the limits of a multiprocessor are
    those of the architecture's own entry.
    """

    architecture: str
    compute_units: int | None = None
    devices: int | None = None
    clock_mhz: int | None = None
    subgroup_lanes: int | None = None
    registers_per_thread: int | None = None
    register_bytes_per_unit: int | None = None
    threads_per_block: int | None = None
    threads_per_unit: int | None = None
    shared_bytes_per_block: int | None = None
    shared_bytes_per_unit: int | None = None
    l1_bytes_per_unit: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])

    def __post_init__(self) -> None:
        _check_range("gpu", self)
        _check_order("gpu", self, "shared_bytes_per_block", "shared_bytes_per_unit")
        _check_order("gpu", self, "threads_per_block", "threads_per_unit")
        _check_powers_of_two("gpu", self, "subgroup_lanes", "threads_per_block")
        unknown = sorted(set(self.rates) - set(RATES))
        if unknown:
            raise InvalidOption(field="gpu: rates", got=unknown, expected=RATES, remedy="name a known rate")
        for name, rate in self.rates.items():
            computed = self._by_the_cycle(rate)
            if computed is not None and rate.gops is not None:
                _check_close(
                    f"gpu: {name}.gops", rate.gops, computed, "compute_units · ops_per_cycle · clock_mhz / 1000"
                )

    def _by_the_cycle(self, rate: Rate) -> int | None:
        if rate.ops_per_cycle is None or self.compute_units is None or self.clock_mhz is None:
            return None
        return self.compute_units * rate.ops_per_cycle * self.clock_mhz // 1000

    def gops(self, rate: str) -> int | None:
        """Return the stated peak of a rate, else the one that units and clock give; None where neither is known."""
        known = self.rates.get(rate)
        if known is None:
            return None
        return known.gops if known.gops is not None else self._by_the_cycle(known)


def _check_range(part: str, value: CpuPart | GpuPart | MemoryPart | Rate) -> None:
    for name in value.__dataclass_fields__:
        number = getattr(value, name)
        if not isinstance(number, int):
            continue
        least, most = next((span for end, span in _SANE.items() if name.endswith(end)), (1, 2**40))
        if not least <= number <= most:
            raise InvalidOption(
                field=f"{part}: {name}",
                got=number,
                expected=f"from {least} to {most}",
                remedy="convert it to the unit that the name states",
            )


def _check_order(part: str, value: CpuPart | GpuPart, smaller: str, larger: str) -> None:
    low, high = getattr(value, smaller), getattr(value, larger)
    if low is not None and high is not None and low > high:
        raise InvalidOption(
            field=f"{part}: {smaller}", got=low, expected=f"at most {larger}, {high}", remedy="give the true numbers"
        )


def _check_powers_of_two(part: str, value: CpuPart | GpuPart, *names: str) -> None:
    for name in names:
        number = getattr(value, name)
        if number is not None and number & (number - 1):
            raise InvalidOption(
                field=f"{part}: {name}", got=number, expected="a power of two", remedy="give the true number"
            )


def _check_close(what: str, stated: int, computed: int, formula: str) -> None:
    if abs(stated - computed) > TOLERANCE * computed:
        raise InvalidOption(
            field=what,
            got=stated,
            expected=f"{computed} ({formula}) within {TOLERANCE:.0%}",
            remedy="one of these numbers is of another product, clock or unit, or counts sparsity",
        )
