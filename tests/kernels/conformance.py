"""Runs a kernel as its callers will, on arrays of any strides between canaries, and compares it with float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tests.kernels.native import Unit
from tests.kernels.routing import grouped_inputs, random_routing

from tracea.core.accuracy import error_bound
from tracea.core.op import AttentionOp, BlockSparseOp, GroupedGemmOp, Op
from tracea.core.ops.attention import SPAN_FIELDS
from tracea.core.reference import evaluate
from tracea.core.tensor_type import TensorType
from tracea.emitters.cpu.emitter import emit
from tracea.emitters.kernel_source import KernelSource
from tracea.kernels.arguments import arguments, buffer_types, result_offsets
from tracea.kernels.attention.spans import Band, span_tables
from tracea.kernels.gemm.block_sparse import run_tables
from tracea.kernels.registry import find
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_builders import TileGrid, block_sparse_tiles, masked_factor_tiles
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets import load

CANARY_BYTES = 256
CANARY = 0xA5


@dataclass(frozen=True)
class Case:
    """One variant for one op under one schedule: values given here replace the default schedule's."""

    name: str
    variant: str
    op: Op
    schedule: tuple[tuple[str, int | str], ...] = ()

    @classmethod
    def of(cls, name: str, variant: str, op: Op, **schedule: int | str) -> Case:
        return cls(name, variant, op, tuple(sorted(schedule.items())))


@dataclass(frozen=True)
class Built:
    """A case built for one instruction set, with the kernel that packs its constant operand where it has one."""

    case: Case
    kernel: TileKernel
    source: KernelSource
    pack: TileKernel | None = None
    pack_source: KernelSource | None = None

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        return (self.source,) if self.pack_source is None else (self.source, self.pack_source)


@cache
def build(case: Case, isa: str) -> Built:
    """Build and emit a case."""
    target, variant = load(isa), find(case.variant)
    assert variant.unmet(case.op, target) == ()
    assert variant.build is not None
    assert variant.default_schedule is not None
    schedule = variant.default_schedule(case.op, target).with_values(**dict(case.schedule))
    kernel = variant.build(case.op, schedule, target)
    if variant.build_pack is None:
        return Built(case, kernel, emit(kernel, target.isa))
    pack = variant.build_pack(case.op, schedule, target)
    return Built(case, kernel, emit(kernel, target.isa), pack, emit(pack, target.isa))


@cache
def unit_of(cases: tuple[Case, ...], isa: str) -> Unit:
    """Compile all cases of an instruction set in one unit."""
    # The plain vectors are arrays: -O1 spends its time on splitting them up, -Og takes a third of it.
    flags = ("-Og" if isa == "plain" else "-O1", "-shared")
    sources: dict[str, KernelSource] = {}
    for case in cases:
        sources |= {source.name: source for source in build(case, isa).sources}
    return Unit(tuple(sources.values()), isa, extra=flags)


class Tensor:
    """An array of a type's own layout between canaries; what lies between its elements is NaN (integers: a pattern)."""

    def __init__(self, type_: TensorType, values: Any | None) -> None:
        low, high = type_.extent
        assert low >= 0, "kernels take strides that are not negative"
        itemsize = type_.dtype.nbytes
        self._bytes = high * itemsize
        self._memory = np.full(self._bytes + 2 * CANARY_BYTES + 64, CANARY, np.uint8)
        skew = -self._memory.ctypes.data % 64 + CANARY_BYTES
        inside = self._memory[skew : skew + self._bytes]
        inside[...] = 0xFF  # NaN in every float type
        elements = inside.view(type_.dtype.numpy)
        strides = tuple(stride * itemsize for stride in type_.strides)
        self.array = np.lib.stride_tricks.as_strided(elements, type_.static_shape, strides)
        if values is not None:
            self.array[...] = values
        self.memory, self._before = inside, self._memory.copy()
        self._start = skew
        self.address = self._memory.ctypes.data + skew

    def check_surroundings(self) -> None:
        """Assert that nothing but the array's own elements changed."""
        now = self._memory.copy()
        copy = Tensor.__new__(Tensor)
        copy.__dict__.update(self.__dict__)
        # Put the old elements back into a copy of the memory: what then differs was not an element.
        inside = now[self._start : self._start + self._bytes].view(self.array.dtype)
        view = np.lib.stride_tricks.as_strided(inside, self.array.shape, self.array.strides)
        old = self._before[self._start : self._start + self._bytes].view(self.array.dtype)
        view[...] = np.lib.stride_tricks.as_strided(old, self.array.shape, self.array.strides)
        different = np.flatnonzero(now != self._before)
        assert different.size == 0, f"bytes {different[:8] - self._start} of {self._bytes} changed that are no element"


def random_inputs(op: Op, rng: np.random.Generator) -> list[np.ndarray]:
    """Return values of each operand, as the operand's type rounds them; tables are those of a random mask."""
    if isinstance(op, BlockSparseOp):
        return sparse_inputs(op, rng.random((op.steps, op.lines)) < 0.5, rng)
    if isinstance(op, GroupedGemmOp):
        return grouped_inputs(op, *random_routing(op, rng), rng)
    spans = random_spans(op, rng) if isinstance(op, AttentionOp) and op.spans is not None else []
    inputs = []
    for type_ in op.operands[: len(op.operands) - len(spans)]:
        shape = type_.static_shape
        if type_.dtype.is_float:
            values = rng.standard_normal(shape)
        else:
            values = rng.integers(0, 2 if type_.dtype.value == "bool" else 100, shape)
        inputs.append(np.asarray(values).astype(type_.dtype.numpy))
    return [*inputs, *spans]


def random_spans(op: AttentionOp, rng: np.random.Generator) -> list[np.ndarray]:
    """Return tables of a random mask of blocks of 16 pairs, within a random band."""
    assert op.spans is not None
    batch, heads, s, _ = op.q.static_shape
    grid = TileGrid(rows=s, columns=op.k.static_shape[2], depth=1, tile_rows=16, tile_columns=16)
    count = batch * heads if op.spans.each else 1
    masks = [block_sparse_tiles(grid, rng.random(grid.shape) < 0.6) for _ in range(count)]
    band = Band(causal=bool(rng.integers(2)), window=(None, 30)[int(rng.integers(2))])
    spans, first, fields = span_tables(masks, rows=op.spans.rows, band=band, each=op.spans.each)
    assert spans.room <= op.spans.room
    return [first, np.concatenate([fields, np.zeros((op.spans.room - spans.room) * SPAN_FIELDS, np.int32)])]


def sparse_inputs(op: BlockSparseOp, mask: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return factors and the tables of a mask of blocks; where b has no block it is NaN, which nothing may read."""
    a, b = (rng.standard_normal(type_.static_shape) for type_ in (op.a, op.b))
    listed = np.kron(mask, np.ones((op.block, op.block), dtype=bool))[: op.k, : op.n]
    b[~listed] = np.nan
    table = masked_factor_tiles(rows=max(1, op.m), columns=op.n, depth=op.k, mask=mask, block=op.block, factor="b")
    tables = run_tables(table, op.block, op.chunk)
    return [a.astype(op.a.dtype.numpy), b.astype(op.b.dtype.numpy), *tables]


def run(
    unit: Unit, built: Built, op: Op, inputs: Sequence[np.ndarray], *, threads: int = 1, backward: bool = False
) -> np.ndarray:
    """Return the kernel's result for an op of the structure that it was built for, and check the memory around it."""
    types = [*op.operands, op.infer()]
    tensors = [Tensor(type_, value) for type_, value in zip(types, [*inputs, None], strict=True)]
    operands, result = tensors[:-1], tensors[-1]
    values = arguments(built.kernel, op)
    addresses = [tensor.address for tensor in operands]
    keep: list[Any] = []
    if built.pack is not None and built.pack_source is not None:
        position = find(built.case.variant).constant_operand
        assert position is not None
        panels = _packed(unit, built, op, operands[position], values, threads=threads)
        keep.append(panels)
        addresses[position] = panels.address
    firsts = result_offsets(built.kernel, op).values()
    results = [result.address + first * result.array.itemsize for first in firsts]
    unit.call(built.kernel.name, [*addresses, *results], values, threads=threads, backward=backward)
    for tensor in tensors:
        tensor.check_surroundings()
    return result.array.copy()


def _packed(unit: Unit, built: Built, op: Op, b: Tensor, values: Mapping[str, int], *, threads: int) -> Tensor:
    assert built.pack is not None
    panels = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.OUTPUT)
    shape = tuple(int(size.evaluate(values)) for size in panels.shape)
    tensor = Tensor(TensorType(shape, panels.dtype), None)
    pack_values = arguments(built.pack, op) if "panels" not in buffer_types(built.pack, op) else values
    unit.call(built.pack.name, [b.address, tensor.address], pack_values, threads=threads)
    tensor.check_surroundings()
    return tensor


def check(unit: Unit, built: Built, op: Op, inputs: Sequence[np.ndarray], *, threads: int = 1) -> None:
    """Assert that the kernel's result is within the accuracy contract of the float64 reference."""
    got = run(unit, built, op, inputs, threads=threads).astype(np.float64)
    expected = evaluate(op, inputs)
    bound = error_bound(op, inputs, worst_case=True)
    rounded = op.infer().dtype.round(expected)
    same = (np.isnan(expected) & np.isnan(got)) | (rounded == got)
    with np.errstate(invalid="ignore"):
        wrong = ~(same | np.isinf(bound) | (np.abs(got - expected) <= bound))  # an infinite bound allows NaN too
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{built.case.name} {op.key} with {threads} threads, {built.kernel.schedule.key}: "
            f"{int(wrong.sum())} of {wrong.size} wrong, "
            f"first at {where}: got {got[where]!r}, expected {expected[where]!r} +- {bound[where]!r}"
        )


def schedule_of(case: Case, isa: str) -> Schedule:
    """Return the schedule that a case is built with."""
    return build(case, isa).kernel.schedule
