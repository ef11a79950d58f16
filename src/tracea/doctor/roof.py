"""Roof: what bounds an op on a machine - measured ceilings of this one, stated peaks of another - and where from.

Worked example: 512x768x768 in float32 is 604 million operations over 5.5 MB. At 121 GFLOP/s the arithmetic takes
4990 µs, at 19 GB/s moving the bytes takes 290 µs: arithmetic is the roof, and a time of 5500 µs is 91 % of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.doctor.doubt import doubts, why_under_load
from tracea.kernels.gemm.amx import MATRIX_TILES
from tracea.kernels.gemm.gpu.requirements import on_tensor_cores
from tracea.kernels.registry import find
from tracea.profiler.roofline import Distance, Roofline
from tracea.semantic.intrinsics import terms_of
from tracea.targets.entry import cpu_product_names
from tracea.targets.gpu import GpuTarget
from tracea.targets.product import product_names, read_product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracea.core.op import Op
    from tracea.doctor.ceilings import Ceilings
    from tracea.doctor.plan import Candidate
    from tracea.kernels.variant import Variant
    from tracea.targets import Target
    from tracea.targets.product import Product

__all__ = ["NoRoof", "Roof", "measured_roof", "stated_roof"]

_MATRIX_RATES: Final = {
    DType.F16: "f16_matrix",
    DType.BF16: "bf16_matrix",
    DType.F32: "tf32_matrix",
    DType.E4M3: "f8_matrix",
    DType.E5M2: "f8_matrix",
    DType.I8: "i8_matrix",
}
_TERM_PRODUCTS: Final = {1: 1, 2: 4, 3: 6}  # by the bf16 terms of a factor (emitters/cpu/include/tracea/amx_granule.h)
# The instruction that a data sheet's peak of matrices is reached by, where mma.sync is not it.
_FULL_RATE: Final = ("tcgen05", "wgmma")
_VECTOR_RATES: Final = {DType.F64: "f64_vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoof:
    """Why a roof is not known, and what would make it known."""

    because: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Two ceilings and where each was found; ``note`` says what they leave out for this choice, if anything.

    ``holder`` is the cache that holds all operands, whose bandwidth is then the ceiling; empty: the memory's is.
    ``threads``: with how many the ceilings were measured; None where they are stated. ``doubt`` says why what was
    measured may be too low, empty where nothing speaks against it. ``of_tiles``: the peak is that of matrix tiles.
    """

    ceilings: Roofline
    peak_from: str
    bandwidth_from: str
    flops: int
    nbytes: int
    note: str = ""
    holder: str = ""
    threads: int | None = None
    doubt: str = ""
    of_tiles: bool = False

    @property
    def arithmetic_us(self) -> float:
        """The least time of the operations alone."""
        return self.flops / self.ceilings.peak_gflops / 1_000

    @property
    def moving_us(self) -> float:
        """The least time of the bytes alone."""
        return self.nbytes / self.ceilings.bandwidth_gbytes / 1_000

    @property
    def least_us(self) -> float:
        """The shortest time that both ceilings allow."""
        return self.ceilings.least_us(flops=self.flops, nbytes=self.nbytes)

    @property
    def is_arithmetic(self) -> bool:
        """Whether the operations are the roof; else the bytes are."""
        return self.arithmetic_us >= self.moving_us

    def distance(self, latency_us: float) -> Distance:
        """Compare a measured time with the shortest one."""
        return self.ceilings.distance(flops=self.flops, nbytes=self.nbytes, latency_us=latency_us)

    def beaten_by(self, candidates: Iterable[Candidate]) -> Candidate | None:
        """Return the fastest candidate that was measured below the limit: then a measured ceiling is doubtful.

        The peak of vectors is no ceiling to matrix tiles, and none is one to a library, which may use them and multiply
        fewer terms. Beside stated ceilings nothing was measured.
        """
        if self.threads is None:
            return None
        faster = [
            (each.latency_us, each.variant, each)
            for each in candidates
            if each.latency_us is not None
            and each.latency_us < (self.moving_us if self._is_no_ceiling_to(each.variant) else self.least_us)
        ]
        return min(faster, key=lambda item: item[:2])[2] if faster else None

    def _is_no_ceiling_to(self, variant: str) -> bool:
        known = find(variant)
        return known.is_library or (MATRIX_TILES in known.requirements and not self.of_tiles)

    def to_dict(self) -> dict[str, Any]:
        """Return the roof as plain JSON values."""
        return {
            "peak_gflops": self.ceilings.peak_gflops,
            "peak_from": self.peak_from,
            "bandwidth_gbytes": self.ceilings.bandwidth_gbytes,
            "bandwidth_from": self.bandwidth_from,
            "arithmetic_us": self.arithmetic_us,
            "moving_us": self.moving_us,
            "least_us": self.least_us,
            "bound": "compute" if self.is_arithmetic else "memory",
            "note": self.note,
            "holder": self.holder,
            "threads": self.threads,
            "doubt": self.doubt,
            "of_tiles": self.of_tiles,
        }


def measured_roof(op: Op, target: Target, ceilings: Ceilings | None, variant: str, *, threads: int) -> Roof | NoRoof:
    """Return the roof on this machine by its measured ceilings."""
    if ceilings is None:
        return NoRoof(because="the ceilings of this machine were not measured", remedy="tracea doctor measures them")
    known = sorted({row.threads for row in ceilings.peaks if row.isa == target.isa})
    if threads not in known:
        counted = " and ".join(map(str, known))
        return NoRoof(
            because=f"the ceilings were measured with {counted} threads, not {threads}",
            remedy=f"tracea explain with --threads {known[-1]}" if known else "tracea doctor --again",
        )
    note = ""
    peak, peak_from, of_tiles = _measured_peak(op, target, ceilings, variant, threads)
    if MATRIX_TILES in find(variant).requirements and not of_tiles:
        note = "this peak is that of vectors; matrix tiles multiply faster, and the time may be below the limit"
    bandwidth, holder = _bandwidth(op, ceilings, threads)
    place = "copying memory" if not holder else f"reading the {holder}"
    return Roof(
        ceilings=Roofline(peak_gflops=peak, bandwidth_gbytes=bandwidth),
        peak_from=f"measured here: {peak_from}, {_threads(threads)}",
        bandwidth_from=f"measured here: {place}, {_threads(threads)}",
        flops=op.fewest_flops,
        nbytes=op.bytes,
        note=note,
        holder=holder,
        threads=threads,
        doubt=_doubt(ceilings, threads),
        of_tiles=of_tiles,
    )


def _measured_peak(op: Op, target: Target, ceilings: Ceilings, variant: str, threads: int) -> tuple[float, str, bool]:
    """Return the peak of the units that a variant multiplies on, what it is of, and whether those are matrix tiles."""
    dtype = _computed(op)
    on_tiles = ceilings.tile_peak(threads=threads) if MATRIX_TILES in find(variant).requirements else None
    if on_tiles is not None:
        widest = max((operand.dtype for operand in op.operands[:2]), key=terms_of)
        products = _TERM_PRODUCTS[terms_of(widest)]
        several = f", {products} products for one of {widest.value}" if products > 1 else ""
        return on_tiles / products, f"{on_tiles:.0f} GFLOP/s of bf16 on matrix tiles{several}", True
    return ceilings.peak(target.isa, dtype, threads=threads), f"{target.isa} {dtype.compute.value}", False


def _doubt(ceilings: Ceilings, threads: int) -> str:
    """Return what the doctor says of the ceilings of these threads: the load, or figures that cannot all be true."""
    busy = why_under_load(ceilings)
    strange = [why for (kind, count), why in doubts(ceilings).items() if kind != "fork_join" and count in (1, threads)]
    return "; ".join([*([f"they were measured {busy}"] if busy else []), *strange])


def _bandwidth(op: Op, ceilings: Ceilings, threads: int) -> tuple[float, str]:
    """Return how fast operands can come: from the smallest cache that holds them, where that is faster than memory."""
    memory = ceilings.bandwidth("copy", threads=threads)
    for cache in sorted(ceilings.caches, key=lambda cache: cache.level):
        # It was measured over half of the cache; each thread has its own, or reads from a shared one at best as fast.
        if op.bytes <= 2 * cache.working_set_bytes and threads * cache.gbytes > memory:
            return threads * cache.gbytes, f"L{cache.level} cache"
    return memory, ""


def stated_roof(op: Op, target: Target | GpuTarget, variant: str, *, threads: int = 1) -> Roof | NoRoof:
    """Return the roof on another machine by what its catalogue entry states."""
    product = _product_of(target)
    if product is None:
        return NoRoof(
            because=f"{target.name} stands for many machines, whose clocks and memories differ",
            remedy=f"name a product as the target: {', '.join(cpu_product_names())}",
        )
    moved = product.memory.bandwidth_mb_per_s
    if moved is None:
        return NoRoof(because=f"nobody states the memory bandwidth of {product.title}", remedy="measure on one")
    found = (
        _gpu_peak(op, target, variant, product)
        if isinstance(target, GpuTarget)
        else _cpu_peak(op, target, product, threads)
    )
    if isinstance(found, NoRoof):
        return found
    peak, said = found
    return Roof(
        ceilings=Roofline(peak_gflops=peak, bandwidth_gbytes=moved / 1_000),
        peak_from=f"stated for {product.title}: {said}",
        bandwidth_from=f"stated for {product.title}{'' if isinstance(target, GpuTarget) else ', all cores together'}",
        flops=op.fewest_flops,
        nbytes=op.bytes,
    )


def _product_of(target: Target | GpuTarget) -> Product | None:
    if isinstance(target, GpuTarget):
        return next(
            (read_product(name) for name in product_names() if read_product(name).title == target.product), None
        )
    return read_product(target.name) if target.name in cpu_product_names() else None


def _gpu_peak(op: Op, target: GpuTarget, variant: str, product: Product) -> tuple[float, str] | NoRoof:
    dtype, known = op.operands[0].dtype, find(variant)
    on_matrices = on_tensor_cores(known) or known.is_library
    rate = _VECTOR_RATES.get(dtype, "f32_vector")
    if on_matrices and (dtype is not DType.F32 or _is_tf32(op)):
        rate = _MATRIX_RATES.get(dtype, rate)
    peak = None if product.gpu is None else product.gpu.gops(rate)
    if peak is None:
        return NoRoof(because=f"nobody states the {rate} peak of {product.title}", remedy="measure on one")
    kind, unit = rate.split("_")
    if unit != "matrix":
        return float(peak), f"{kind} on its vector units"
    return float(peak), f"{kind} on its matrix units{_of_another_instruction(op, target, known)}"


def _of_another_instruction(op: Op, target: GpuTarget, variant: Variant) -> str:
    """Return what to say where a kernel multiplies by mma.sync on a chip whose peak is another instruction's."""
    fastest = next((name for name in _FULL_RATE if target.has(name)), None)
    if fastest is None or variant.is_library:
        return ""
    if variant.unmet(op, replace(target, features=target.features - {fastest})):
        return ""  # it needs the instruction
    return f" by {fastest}; mma.sync, which this kernel multiplies by, may reach less, and nobody states how much"


def _cpu_peak(op: Op, target: Target, product: Product, threads: int) -> tuple[float, str] | NoRoof:
    # The higher clock: a limit that a core with thermal headroom could pass would be none.
    clock = product.cpu.boost_clock_mhz or product.cpu.base_clock_mhz if product.cpu is not None else None
    if clock is None:
        return NoRoof(because=f"nobody states the clock of {product.title}", remedy="measure on one")
    dtype = _computed(op).compute
    a_cycle = target.flops_per_cycle(dtype)
    return (
        threads * a_cycle * clock / 1_000,
        f"{a_cycle} operations of {dtype.value} a cycle and core at {clock} MHz at most, {_threads(threads)}",
    )


def _computed(op: Op) -> DType:
    return op.accumulator if isinstance(op, GemmOp) else op.operands[0].dtype


def _is_tf32(op: Op) -> bool:
    return isinstance(op, GemmOp) and op.math is MatrixMath.TF32


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
