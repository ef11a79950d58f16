"""What the GPU GEMM builders share: shared tiles, fragments, the products of one stage, and the epilogue of a warp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.operands import GpuOperands, M, N
from tracea.kernels.gemm.gpu.products import FmaProduct, WarpProduct
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import TRUE, Const, Index, Predicate, Var
from tracea.semantic.nodes import (
    Barrier,
    Block,
    CopyTile,
    EpilogueCall,
    For,
    If,
    Let,
    Level,
    Node,
    Parallel,
    PointwiseTile,
    Region,
    block,
)
from tracea.semantic.nodes_async import AsyncCopy, LoadMatrix, Mma, StoreFragment
from tracea.semantic.schedule import Schedule
from tracea.semantic.swizzle import COLUMN_BYTES as STORE_BYTES
from tracea.semantic.swizzle import Swizzle, choose, staged
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = [
    "COLUMN",
    "ROW",
    "STORE_ROWS",
    "WARP",
    "WARP_COLUMN",
    "WARP_ROW",
    "GpuProgram",
    "flag",
    "staging_swizzle",
    "swept",
    "tile_swizzle",
]

ROW, COLUMN, WARP = Var("row"), Var("column"), Var("warp")
WARP_ROW, WARP_COLUMN = Var("warp_row"), Var("warp_column")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProgram:
    """One GEMM under one tiling: its buffers, and the nodes that every variant puts together in its own way."""

    operands: GpuOperands
    tiling: GpuTiling
    a_tiles: Buffer
    b_tiles: Buffer
    a_fragment: Buffer
    b_fragment: Buffer
    sums: Buffer
    staging: Buffer | None

    @classmethod
    def of(cls, operands: GpuOperands, tiling: GpuTiling, *, swizzled: bool) -> GpuProgram:
        """Return the buffers of a program; ``swizzled``: shared tiles are free of bank conflicts."""
        product = tiling.product
        a_shape = (tiling.bm, tiling.bk) if operands.a_k_major else (tiling.bk, tiling.bm)
        b_shape = (tiling.bn, tiling.bk) if operands.b_k_major else (tiling.bk, tiling.bn)

        def tiles(name: str, shape: tuple[int, int], dtype: DType, *, k_major: bool) -> Buffer:
            return Buffer(
                name=name,
                dtype=dtype,
                space=MemorySpace.TEAM,
                shape=(Const(tiling.stages), Const(shape[0]), Const(shape[1])),
                role=BufferRole.SCRATCH,
                swizzle=tile_swizzle(product, shape[1] * dtype.nbytes, k_major=k_major) if swizzled else None,
            )

        def registers(name: str, dtype: DType, *shape: int) -> Buffer:
            return scratch(name, dtype, MemorySpace.REGISTER, *shape)

        slots = (tiling.fragments,) if tiling.fragments > 1 else ()

        held = product.storage if isinstance(product, WarpProduct) else product.accumulator
        staging = None
        if isinstance(product, WarpProduct):
            strip = tiling.strip_columns
            staging = Buffer(
                name="staging",
                dtype=product.accumulator,
                space=MemorySpace.TEAM,
                shape=(Const(tiling.warps), Const(product.rows), Const(strip)),
                role=BufferRole.SCRATCH,
                swizzle=staging_swizzle(operands.op, strip),
            )
        return cls(
            operands=operands,
            tiling=tiling,
            a_tiles=tiles("a_tiles", a_shape, operands.a.dtype, k_major=operands.a_k_major),
            b_tiles=tiles("b_tiles", b_shape, operands.b.dtype, k_major=operands.b_k_major),
            a_fragment=registers("a_fragment", held, *slots, tiling.row_fragments, *product.a_shape),
            b_fragment=registers("b_fragment", held, *slots, tiling.column_fragments, *product.b_shape),
            sums=registers(
                "sums", product.accumulator, tiling.row_fragments, tiling.column_fragments, *product.c_shape
            ),
            staging=staging,
        )

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Shared memory and registers."""
        shared = (self.a_tiles, self.b_tiles, *(() if self.staging is None else (self.staging,)))
        return (*shared, self.a_fragment, self.b_fragment, self.sums)

    def copies(self, step: Index, slot: Index) -> tuple[Node, ...]:
        """Return one warp's share of the copies of step ``step`` of A and B to a slot of their rings."""
        return tuple(
            AsyncCopy(source=source, target=target, masked=True, chunk_bytes=chunk)
            for source, target, chunk in self._shares(step, slot)
        )

    def _shares(self, step: Index, slot: Index) -> tuple[tuple[Region, Region, int], ...]:
        operands, along_k = self.operands, step * self.tiling.bk
        found: list[tuple[Region, Region, int]] = []
        for buffer, tiles, k_major, first, chunk in (
            (operands.a, self.a_tiles, operands.a_k_major, ROW, operands.a_chunk_bytes),
            (operands.b, self.b_tiles, operands.b_k_major, COLUMN, operands.b_chunk_bytes),
        ):
            share, columns = self._share(tiles)
            row, column = (first, along_k) if k_major else (along_k, first)
            mine = WARP * share
            source = operands.at(buffer, row + mine, column, share, columns)
            found.append((source, tiles.region((slot, mine, 0), (1, share, columns)), chunk))
        return tuple(found)

    def _share(self, tiles: Buffer) -> tuple[int, int]:
        rows, columns = (int(size.constant or 0) for size in tiles.shape[1:])
        if rows % self.tiling.warps:
            raise InvalidSchedule(
                field="warps_m * warps_n",
                got=self.tiling.warps,
                expected=f"a divisor of {rows}, since warps copy whole rows of {tiles.name}, {rows} of {columns}",
                remedy=f"use {gcd(rows, self.tiling.warps)} or another divisor of {rows} warps",
            )
        return rows // self.tiling.warps, columns

    @property
    def held(self) -> tuple[Buffer, Buffer]:
        """A warp's share of one stage of A and of B in registers, on its way to shared memory."""
        shares = [(tiles, self._share(tiles)) for tiles in (self.a_tiles, self.b_tiles)]
        a, b = (
            scratch(name, tiles.dtype, MemorySpace.REGISTER, *share)
            for name, (tiles, share) in zip(("a_held", "b_held"), shares, strict=True)
        )
        return a, b

    def hold(self, step: Index) -> tuple[Node, ...]:
        """Return the loads of one warp's share of step ``step`` to registers, zeros beyond the last row and column."""
        return tuple(
            CopyTile(source=source, target=held.whole(), masked=True, chunk_bytes=chunk)
            for (source, _, chunk), held in zip(self._shares(step, Const(0)), self.held, strict=True)
        )

    def land(self, slot: Index) -> tuple[Node, ...]:
        """Return the stores of what registers hold to a slot."""
        return tuple(
            CopyTile(source=held.whole(), target=target)
            for (_, target, _), held in zip(self._shares(Const(0), slot), self.held, strict=True)
        )

    def multiply(self, slot: Index) -> tuple[Node, ...]:
        """Return the products of one stage: fragments of each step of k, and all pairs of them.

        With two slots of fragments those of the next step of k are loaded before this step's products.
        """
        kk, steps = Var("kk"), self.tiling.bk // self.tiling.product.k
        count = self.tiling.fragments
        if count == 1:
            loads = self._loads(slot, kk, (), "load")
            return (For(var=kk, extent=Const(steps), body=block(*loads, self._pairs(()))),)
        following = kk + 1
        ahead = If(predicate=following < steps, then=block(*self._loads(slot, following, (following % count,), "load")))
        main = For(var=kk, extent=Const(steps), body=block(ahead, self._pairs((kk % count,))))
        return (*self._loads(slot, Const(0), (Const(0),), "first"), main)

    def _loads(self, slot: Index, kk: Index, to: tuple[Index, ...], suffix: str) -> tuple[Node, ...]:
        """Return the loads of one step of k of a stage to a slot of the fragments; loops end in ``suffix``."""
        tiling, product = self.tiling, self.tiling.product
        group, i, j = product.column_group, Var(f"i_{suffix}"), Var(f"j_{suffix}")
        a_row, b_column = WARP_ROW * tiling.wm + i * product.rows, WARP_COLUMN * tiling.wn
        b_column = b_column + j * (product.columns * group)
        along_k = (kk * product.k, product.k)
        one = tuple(1 for _ in to)
        load_a = LoadMatrix(
            intrinsic=product.load_a(k_major=self.operands.a_k_major),
            source=_rectangle(self.a_tiles, slot, (a_row, product.rows), along_k, k_major=self.operands.a_k_major),
            target=self.a_fragment.region((*to, i, 0, 0), (*one, 1, *product.a_shape)),
        )
        load_b = LoadMatrix(
            intrinsic=product.load_b(k_major=self.operands.b_k_major),
            source=_rectangle(
                self.b_tiles, slot, (b_column, product.columns * group), along_k, k_major=self.operands.b_k_major
            ),
            target=self.b_fragment.region((*to, j * group, 0, 0), (*one, group, *product.b_shape)),
        )
        loads_a = For(var=i, extent=Const(tiling.row_fragments), body=block(load_a))
        loads_b = For(var=j, extent=Const(tiling.column_fragments // group), body=block(load_b))
        return loads_a, loads_b

    def _pairs(self, at: tuple[Index, ...]) -> Node:
        """Return the products of all pairs of fragments of a slot."""
        tiling, product = self.tiling, self.tiling.product
        i, j, one = Var("i"), Var("j"), tuple(1 for _ in at)
        multiply = Mma(
            intrinsic=product.multiply,
            a=self.a_fragment.region((*at, i, 0, 0), (*one, 1, *product.a_shape)),
            b=self.b_fragment.region((*at, j, 0, 0), (*one, 1, *product.b_shape)),
            c=self.sums.region((i, j, 0, 0), (1, 1, *product.c_shape)),
            accumulate=TRUE,
        )
        inner = For(var=j, extent=Const(tiling.column_fragments), body=block(multiply))
        return For(var=i, extent=Const(tiling.row_fragments), body=block(inner))

    def store(self) -> Node:
        """Return a warp's epilogue: sums to the result, a strip of rows at a time, cut at the last row and column."""
        tiling, product = self.tiling, self.tiling.product
        row, column = ROW + WARP_ROW * tiling.wm, COLUMN + WARP_COLUMN * tiling.wn

        def strip(i_out: Index, here: Index) -> Node:
            if isinstance(product, FmaProduct):
                return self._direct(product, i_out, here, column)
            return self._staged(product, i_out, here, column)

        rows = swept(Var("i_out"), tiling.row_fragments, strip, first=row, step=product.rows, limit=M)
        return If(predicate=(row < M) & (column < N), then=block(rows))

    def _direct(self, product: FmaProduct, i_out: Index, row: Index, column: Index) -> Node:
        def store(j_out: Index, here: Index) -> Node:
            return StoreFragment(
                intrinsic=product.store,
                source=self.sums.region((i_out, j_out, 0, 0), (1, 1, *product.c_shape)),
                target=self.operands.clipped(self.operands.c, row, here, product.rows, product.columns),
                epilogue=EpilogueCall(
                    expr=self.operands.op.epilogue.expr,
                    operands=self._extras(row, here, product.rows, product.columns),
                ),
            )

        return swept(Var("j_out"), self.tiling.column_fragments, store, first=column, step=product.columns, limit=N)

    def _staged(self, product: WarpProduct, i_out: Index, row: Index, column: Index) -> Node:
        width, staging = self.tiling.strip_columns, self.staging
        assert staging is not None

        def store(strip: Index, here: Index) -> Node:
            j_out = Var("j_out")
            fragment = strip * (width // product.columns) + j_out
            stage = StoreFragment(
                intrinsic=product.store,
                source=self.sums.region((i_out, fragment, 0, 0), (1, 1, *product.c_shape)),
                target=staging.region((WARP, 0, j_out * product.columns), (1, product.rows, product.columns)),
            )
            target = self.operands.clipped(self.operands.c, row, here, product.rows, width)
            finish = PointwiseTile(
                intrinsic=STORE_ROWS,
                expr=self.operands.op.epilogue.expr,
                inputs=(
                    staging.region((WARP, 0, 0), (1, *target.extent[-2:])),
                    *self._extras(row, here, product.rows, width),
                ),
                target=target,
            )
            return block(
                For(var=j_out, extent=Const(width // product.columns), body=block(stage)),
                Barrier(level=Level.SUBGROUP),
                finish,
                Barrier(level=Level.SUBGROUP),
            )

        return swept(Var("strip"), self.tiling.wn // width, store, first=column, step=width, limit=N)

    def _extras(self, row: Index, column: Index, rows: int, columns: int) -> tuple[Region, ...]:
        return tuple(self.operands.clipped(buffer, row, column, rows, columns) for buffer in self.operands.extras)

    def grid(self, *body: Node) -> Node:
        """Return the grid of tiles around what each warp does."""
        tiling = self.tiling
        tile = Var("tile")
        place = self.operands.place(tile, ROW, COLUMN, bm=tiling.bm, bn=tiling.bn)
        warps = (
            Let(var=WARP_ROW, value=WARP // tiling.warps_n, bits=32),
            Let(var=WARP_COLUMN, value=WARP % tiling.warps_n, bits=32),
        )
        program = Parallel(level=Level.SUBGROUP, var=WARP, extent=Const(tiling.warps), body=block(*warps, *body))
        return Parallel(
            level=Level.BLOCK,
            var=tile,
            extent=self.operands.blocks(tiling.bm, tiling.bn),
            body=block(*place, program),
        )

    def kernel(
        self,
        variant: str,
        op: GemmOp,
        schedule: Schedule,
        target: GpuTarget,
        body: Sequence[Node],
        *,
        more: Sequence[Buffer] = (),
        assumptions: Predicate | None = None,
    ) -> TileKernel:
        """Return the kernel of these buffers, ``more`` scratch, and that body."""
        buffers = (*self.operands.buffers, *self.scratch, *more)
        blocks = self.operands.blocks(self.tiling.bm, self.tiling.bn)
        return TileKernel(
            name=kernel_name(op.key, variant, schedule, target),
            op=op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=Block(nodes=tuple(body)),
            tables=self.operands.tables(self.tiling.bm, self.tiling.bn),
            assumptions=self.operands.assumptions(blocks) if assumptions is None else assumptions,
        )


def _rectangle(
    tiles: Buffer, slot: Index, lines: tuple[Index, int], along_k: tuple[Index, int], *, k_major: bool
) -> Region:
    """Return some lines (rows of A, columns of B) and steps of k of a stage; each pair is a first one and a count."""
    rows, columns = (lines, along_k) if k_major else (along_k, lines)
    return tiles.region((slot, rows[0], columns[0]), (1, rows[1], columns[1]))


def swept(var: Var, count: int, body: Callable[[Index, Index], Node], *, first: Index, step: int, limit: Index) -> Node:
    """Return ``body`` at each of ``count`` steps from ``first`` that begins before the limit; the first one does."""
    if count == 1:
        return body(Const(0), first)
    here = first + var * step
    return For(var=var, extent=Const(count), body=block(If(predicate=here < limit, then=block(body(var, here)))))


def flag(schedule: Schedule, name: str) -> bool:
    """Return a schedule's choice of yes (1) or no (0)."""
    value = schedule.integer(name)
    if value not in (0, 1):
        raise InvalidSchedule(field=name, got=value, expected="0 or 1", remedy=f"use {name}=1: free of bank conflicts")
    return value == 1


def _no_meaning(*_: object) -> object:
    raise NotImplementedError  # a PointwiseTile means its expression


STORE_ROWS = Intrinsic(
    name="store_rows", meaning=_no_meaning, source="emitters/cuda/include/tracea/tiles/store.h: store_rows"
)


def staging_swizzle(op: GemmOp, columns: int) -> Swizzle | None:
    """Return the swizzle of staged strips of sums, by what a lane reads of them to make 16 bytes of the result."""
    nbytes = op.accumulator.nbytes
    return staged(columns * nbytes, STORE_BYTES // op.infer().dtype.nbytes * nbytes)


def tile_swizzle(product: WarpProduct | FmaProduct, row_bytes: int, *, k_major: bool) -> Swizzle | None:
    """Return the swizzle that keeps the loads of fragments from a tile with such rows free of bank conflicts."""
    if isinstance(product, FmaProduct):
        return None
    if product.storage.nbytes == 4 and not k_major:  # words, which ldmatrix does not transpose
        # Lanes read eight neighbours of four rows: two row bits choose among four columns of 32 bytes.
        bits = row_bytes.bit_length() - 1
        return Swizzle(2, 5, max(2, bits - 5))
    return choose(row_bytes)
