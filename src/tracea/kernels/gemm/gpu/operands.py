"""The global buffers of a GEMM on a GPU, in the order in which their tiles lie in shared memory.

A tile's rows in shared memory run along one axis of the operand: along k (*k-major*), or along m or n. The buffer is
declared with that axis last: ``a`` (m, k) or ``a_t`` (k, m), ``b`` (k, n) or ``b_t`` (n, k). Pieces of a row are copied
whole where that axis is contiguous and rows begin at multiples of the piece; else element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.operands import gemm_types, merged_batch
from tracea.kernels.operands import tensor_buffer
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Lookup, Param, Predicate, Var, ceil_div, equal, minimum, product
from tracea.semantic.nodes import Let, Node
from tracea.semantic.tile_kernel import Buffer, BufferRole, Table
from tracea.semantic.tile_order import TileOrder

__all__ = [
    "MOST_BLOCKS",
    "MOST_EXTENT",
    "MULTIPROCESSORS",
    "ORDER_TABLE",
    "GpuOperands",
    "K",
    "M",
    "N",
    "chunk_bytes_of",
    "is_contiguous",
]

MOST_EXTENT: Final = 2**31 - 2**12  # a tile beyond the last row still has a 32-bit coordinate
M, N = Param("m", 1, MOST_EXTENT), Param("n", 1, MOST_EXTENT)
K = Param("k", 0, MOST_EXTENT)
MULTIPROCESSORS: Final = Param("multiprocessors", 1, 2**16)  # that a persistent grid has blocks for
ORDER_TABLE: Final = "tile_order"
_PLACE: Final = Var("place")
MOST_BLOCKS: Final = 2**31 - 1  # blocks of a grid's only axis
_CHUNKS: Final = (16, 8, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOperands:
    """Buffers and regions of one GEMM; ``a_k_major`` and ``b_k_major`` say how the tiles lie in shared memory."""

    op: GemmOp
    a_k_major: bool
    b_k_major: bool
    a: Buffer
    b: Buffer
    c: Buffer
    extras: tuple[Buffer, ...]
    batch: tuple[Var, ...]
    a_chunk_bytes: int
    b_chunk_bytes: int
    order: TileOrder = TileOrder.ROW
    tile_place: Var = _PLACE

    @classmethod
    def of(
        cls,
        op: GemmOp,
        *,
        a_k_major: bool,
        b_k_major: bool,
        a_chunk_bytes: int,
        b_chunk_bytes: int,
        order: TileOrder = TileOrder.ROW,
    ) -> GpuOperands:
        """Return the buffers of an op whose pieces are so many bytes.

        Raises:
            InvalidSchedule: a piece is wider than the op's strides allow, or no element nor 4, 8 or 16 bytes of them.
        """
        types, dims = gemm_types(op), merged_batch(op)
        axes = tuple(Param(f"batch{axis}", 1) for axis in range(len(dims)))
        c_shape, c_dims = (*axes, M, N), (*dims, op.m, op.n)

        def factor(name: str, *, along_k: bool, chunk: int) -> Buffer:
            rows, columns, row_dim, column_dim = (M, K, op.m, op.k) if name == "a" else (K, N, op.k, op.n)
            swapped = along_k != (name == "a")
            if swapped:
                rows, columns, row_dim, column_dim = columns, rows, column_dim, row_dim
            named = f"{name}_t" if swapped else name
            type_ = types[named]
            widest = chunk_bytes_of(type_)
            if chunk > widest:
                raise InvalidSchedule(
                    field=f"chunk_{name}",
                    got=chunk,
                    expected=f"at most {widest} bytes for strides {type_.strides}",
                    remedy=f"use {widest}",
                )
            legal = [piece for piece in (*_CHUNKS, type_.dtype.nbytes) if type_.dtype.nbytes <= piece <= widest]
            if chunk not in legal:
                raise InvalidSchedule(
                    field=f"chunk_{name}",
                    got=chunk,
                    expected=f"one of {sorted(set(legal))}: an element of {type_.dtype.value} is "
                    f"{type_.dtype.nbytes} bytes",
                    remedy=f"use chunk_{name}={min(legal, key=lambda piece: abs(piece - chunk))}",
                )
            unit = -1 if chunk > type_.dtype.nbytes else None
            buffer = tensor_buffer(
                named, type_, (*axes, rows, columns), (*dims, row_dim, column_dim), BufferRole.INPUT, unit_axis=unit
            )
            return replace(buffer, aligned_bytes=chunk)

        return cls(
            op=op,
            a_k_major=a_k_major,
            b_k_major=b_k_major,
            a=factor("a", along_k=a_k_major, chunk=a_chunk_bytes),
            b=factor("b", along_k=b_k_major, chunk=b_chunk_bytes),
            c=_of_whole_elements(tensor_buffer("c", types["c"], c_shape, c_dims, BufferRole.OUTPUT)),
            extras=tuple(
                _of_whole_elements(tensor_buffer(name, types[name], c_shape, c_dims, BufferRole.INPUT))
                for name in (f"x{position}" for position in range(1, len(op.epilogue.operands) + 1))
            ),
            batch=tuple(Var(f"i_batch{axis}") for axis in range(len(dims))),
            a_chunk_bytes=a_chunk_bytes,
            b_chunk_bytes=b_chunk_bytes,
            order=order,
        )

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All global buffers in the op's order, the result last."""
        return (self.a, self.b, *self.extras, self.c)

    @property
    def batches(self) -> tuple[Index, ...]:
        """Extents of the batch axes."""
        return self.c.shape[: len(self.batch)]

    def assumptions(self, blocks: Index) -> Predicate:
        """Return the guards of the launch: strides that pieces allow, and a grid that fits its axis."""
        found: Predicate = blocks <= MOST_BLOCKS
        for buffer, chunk in ((self.a, self.a_chunk_bytes), (self.b, self.b_chunk_bytes)):
            elements = chunk // buffer.dtype.nbytes
            for stride in buffer.element_strides[:-1]:
                if elements > 1 and isinstance(stride, Param):
                    found = found & equal(stride % elements, 0)
        return found

    def blocks(self, bm: int, bn: int) -> Index:
        """Return the number of tiles of all batches."""
        return product(*self.batches, ceil_div(M, bm), ceil_div(N, bn))

    def tables(self, bm: int, bn: int) -> tuple[Table, ...]:
        """Return the table of the tiles' order, batch by batch; none where it is row by row."""
        if self.order is TileOrder.ROW:
            return ()
        tiles = self.blocks(bm, bn)
        return (Table(name=ORDER_TABLE, length=tiles, minimum=Const(0), maximum=tiles - 1, permutation=True),)

    def renamed(self, suffix: str) -> GpuOperands:
        """Return these operands with other names for places of tiles: for a second program that walks tiles."""
        batch = tuple(Var(f"{axis.name}{suffix}") for axis in self.batch)
        return replace(self, batch=batch, tile_place=Var(f"{self.tile_place.name}{suffix}"))

    def place(self, tile: Index, row: Var, column: Var, *, bm: int, bn: int) -> tuple[Node, ...]:
        """Return the names of a tile's batch indices, first row and first column, in the order of tiles."""
        rows, columns = ceil_div(M, bm), ceil_div(N, bn)
        nodes: list[Node] = []
        if self.order is not TileOrder.ROW:
            nodes.append(Let(var=self.tile_place, value=Lookup(ORDER_TABLE, tile), bits=32))
            tile = self.tile_place
        line = tile // columns
        nodes.append(Let(var=column, value=tile % columns * bn, bits=32))
        nodes.append(Let(var=row, value=(line % rows if self.batch else line) * bm, bits=32))
        rest = line // rows
        for axis in reversed(range(len(self.batch))):
            nodes.append(Let(var=self.batch[axis], value=rest % self.batches[axis] if axis else rest, bits=32))
            rest = rest // self.batches[axis]
        return tuple(nodes)

    def at(
        self, buffer: Buffer, row: Index | int, column: Index | int, rows: Index | int, columns: Index | int
    ) -> Region:
        """Return a rectangle of the last two axes at the current batch index; all of an axis of extent 1."""
        offset = (*self.batch, row, column)
        extent = (*(1 for _ in self.batch), rows, columns)
        single = [size == Const(1) for size in buffer.shape]
        return buffer.region(
            tuple(0 if one else start for one, start in zip(single, offset, strict=True)),
            tuple(1 if one else size for one, size in zip(single, extent, strict=True)),
        )

    def clipped(self, buffer: Buffer, row: Index, column: Index, rows: int, columns: int) -> Region:
        """Return a tile of a result or of an operand of its shape, cut at the last row and column."""
        return self.at(buffer, row, column, minimum(rows, M - row), minimum(columns, N - column))


def _of_whole_elements(buffer: Buffer) -> Buffer:
    """Return a buffer whose address is a multiple of its element: a GPU traps where an access is not."""
    return replace(buffer, aligned_bytes=buffer.dtype.nbytes)


def is_contiguous(type_: TensorType, axis: int) -> bool:
    """Whether an axis has stride 1, or one element."""
    if type_.layout is None and not type_.is_static:
        return axis == -1
    return type_.shape[axis] == 1 or type_.strides[axis] == 1


def chunk_bytes_of(type_: TensorType) -> int:
    """Return the widest piece of a row that all rows allow: 16, 8 or 4 bytes, or one element."""
    size = type_.dtype.nbytes
    if not is_contiguous(type_, -1) or (type_.layout is None and not type_.is_static):
        return size
    steps = [stride for dim, stride in zip(type_.shape[:-1], type_.strides[:-1], strict=True) if dim != 1]
    return next((chunk for chunk in _CHUNKS if chunk >= size and all(s * size % chunk == 0 for s in steps)), size)
