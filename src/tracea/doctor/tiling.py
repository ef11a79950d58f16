"""Tiling: which tiles of an op are computed at all, and in which order blocks take them, each with the numbers.

Worked example: attention over 4096 queries and keys with a window of 128 computes 6 % of the pairs. Only tiles near
the diagonal are active, so the tiling is windowed and its work grows with the window, not with the square.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, Final

from tracea.core.ops.attention import AttentionOp
from tracea.core.ops.attention_gradient import AttentionGradientOp
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import SymbolicDim
from tracea.errors import InvalidOption
from tracea.semantic.tile_builders import (
    TileGrid,
    block_sparse_tiles,
    causal_tiles,
    dense_tiles,
    local_global_tiles,
    windowed_tiles,
)
from tracea.semantic.tile_order import TileOrder, order_table, panels_touched
from tracea.semantic.tile_table import TileTable, TilingKind
from tracea.targets.gpu import GpuTarget

if TYPE_CHECKING:
    from tracea.core.op import Op
    from tracea.core.tensor_type import Dim

__all__ = ["Structure", "Tiling", "TilingKind", "choose_tiling", "is_tiled", "tiles_of"]

_TILE: Final = 128  # rows and columns of the tile that orders are compared with: what large products use
_WORTH: Final = 0.9  # skipping less than a tenth of the work does not repay a table of active tiles
_BETTER: Final = 0.95  # an order that needs a table must touch this much less than one that the device computes
_MOST_TILES: Final = 1 << 16  # orders of larger grids are compared on a part of this many tiles: the waves repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What is known of an op's operands beyond their types.

    ``density`` is the share of blocks that hold anything but zeros, ``global_tokens`` how many positions see and are
    seen by all others, ``rank`` the inner extent of a factor that is itself a product of two.
    """

    density: float | None = None
    global_tokens: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        for field, value, fits in (
            ("density", self.density, self.density is None or 0.0 <= self.density <= 1.0),
            ("global_tokens", self.global_tokens, self.global_tokens is None or self.global_tokens >= 0),
            ("rank", self.rank, self.rank is None or self.rank >= 1),
        ):
            if not fits:
                raise InvalidOption(
                    field=f"structure.{field}",
                    got=value,
                    expected="a share from 0 to 1" if field == "density" else "a whole number that counts something",
                    remedy="leave it out where it is not known",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """The kind and the order, each with its reason; ``share`` is the part of the dense work that is left."""

    kind: TilingKind
    share: float
    because: str
    order: TileOrder
    order_because: str


def is_tiled(op: Op) -> bool:
    """Tell whether an op's result is made of tiles of which some may be left out, or taken in another order."""
    return isinstance(_tiled(op), AttentionOp | GemmOp)


def choose_tiling(op: Op, target: Any, structure: Structure | None = None) -> Tiling:
    """Return the kind that does the least work, dense where no structure saves a tenth, and the order of its tiles."""
    options = _options(op, structure or Structure())
    kind, (share, because) = min(options.items(), key=lambda item: (item[1][0], list(TilingKind).index(item[0])))
    if kind is not TilingKind.DENSE and share > _WORTH:
        because = f"{because}, which saves less than a tenth: every tile is computed"
        kind, share = TilingKind.DENSE, 1.0
    order, order_because = _order(op, target, kind)
    return Tiling(kind=kind, share=share, because=because, order=order, order_because=order_because)


def tiles_of(
    op: Op, tiling: Tiling, *, tile_rows: int, tile_columns: int, structure: Structure | None = None, mask: Any = None
) -> TileTable:
    """Return the tile table of an op under a tiling: scores of an attention or its gradients, or a product's result.

    Shapes: mask is (rows of tiles, columns of tiles), for a block-sparse tiling.

    Raises:
        InvalidOption: the tiling has no table of the op: a low-rank one has two products, each dense, and a
        block-sparse one needs the mask.
    """
    global_tokens = (structure or Structure()).global_tokens or 0
    match _tiled(op):
        case AttentionOp() as attention:
            extents, window, causal = (
                (attention.q.static_shape[2], attention.k.static_shape[2], attention.q.static_shape[3]),
                attention.window,
                attention.causal,
            )
        case GemmOp() as product:
            extents, window, causal = (_number(product.m), _number(product.n), _number(product.k)), None, False
        case _:
            raise _no_table(op, tiling)
    rows, columns, depth = extents
    grid = TileGrid(rows=rows, columns=columns, depth=depth, tile_rows=tile_rows, tile_columns=tile_columns)
    match tiling.kind:
        case TilingKind.DENSE if not causal and window is None:
            return dense_tiles(grid, order=tiling.order)
        case TilingKind.DENSE | TilingKind.CAUSAL if window is None and causal:
            return causal_tiles(grid, order=tiling.order)
        case TilingKind.DENSE | TilingKind.WINDOWED if window is not None and not global_tokens:
            return windowed_tiles(grid, window, causal=causal, order=tiling.order)
        case TilingKind.DENSE | TilingKind.LOCAL_GLOBAL if window is not None:
            return local_global_tiles(grid, window, global_tokens, causal=causal, order=tiling.order)
        case TilingKind.BLOCK_SPARSE if mask is not None and not causal and window is None:
            return block_sparse_tiles(grid, mask, order=tiling.order)
        case _:
            raise _no_table(op, tiling)


def _tiled(op: Op) -> Op:
    """The op that says which tiles there are: gradients make the scores of their attention once more."""
    return op.forward if isinstance(op, AttentionGradientOp) else op


def _no_table(op: Op, tiling: Tiling) -> InvalidOption:
    return InvalidOption(
        field="tiling",
        got=f"{tiling.kind.value} of {op.key}",
        expected="a tiling of the op's own structure, with a mask where it is block-sparse",
        remedy="take the tiling that choose_tiling returns",
    )


def _options(op: Op, structure: Structure) -> dict[TilingKind, tuple[float, str]]:
    options = {TilingKind.DENSE: (1.0, "no operand is known to have structure: every tile is computed")}
    match _tiled(op):
        case AttentionOp() as attention if not _is_symbolic(attention):
            _attention(attention, structure, options)
        case GemmOp() as product if not any(isinstance(dim, SymbolicDim) for dim in product.shape):
            _product(product, structure, options)
        case _:
            pass
    return options


def _attention(op: AttentionOp, structure: Structure, options: dict[TilingKind, tuple[float, str]]) -> None:
    queries, keys = op.q.static_shape[2], op.k.static_shape[2]
    pairs = max(1, queries * keys)
    window = "" if op.window is None else f"a window of {op.window}"
    seen = op.visible_pairs / pairs
    if op.causal and op.window is None:
        options[TilingKind.CAUSAL] = (seen, f"no query sees a later key: {seen:.1%} of {queries}x{keys} pairs are left")
    if op.window is not None:
        options[TilingKind.WINDOWED] = (seen, f"{window} leaves {seen:.1%} of {queries}x{keys} pairs")
    if structure.global_tokens and op.window is not None:
        everywhere = structure.global_tokens * (queries + keys) / pairs
        share = min(1.0, seen + everywhere)
        # Global positions are part of the meaning: a window alone would leave their pairs out.
        options.pop(TilingKind.WINDOWED)
        options[TilingKind.LOCAL_GLOBAL] = (
            share,
            f"{window} and {structure.global_tokens} global positions leave {share:.1%} of {queries}x{keys} pairs",
        )
    if structure.density is not None:
        share = min(seen, structure.density)
        options[TilingKind.BLOCK_SPARSE] = (share, f"{structure.density:.1%} of the blocks of scores are not masked")


def _product(op: GemmOp, structure: Structure, options: dict[TilingKind, tuple[float, str]]) -> None:
    m, n, k = (_number(dim) for dim in (op.m, op.n, op.k))
    if structure.density is not None:
        options[TilingKind.BLOCK_SPARSE] = (structure.density, f"{structure.density:.1%} of the blocks hold non-zeros")
    if structure.rank is not None and m and n and k:
        share = structure.rank * (k + n) / (k * n)
        options[TilingKind.LOW_RANK] = (
            share,
            f"b is a product over {structure.rank}: 2·{m}·{structure.rank}·({k} + {n}) operations, "
            f"{share:.1%} of those with b whole",
        )


def _order(op: Op, target: Any, kind: TilingKind) -> tuple[TileOrder, str]:
    if not isinstance(target, GpuTarget):
        return TileOrder.ROW, "a core walks its own block of rows or columns: the schedule's split says which"
    if not isinstance(op, GemmOp) or kind is not TilingKind.DENSE or any(isinstance(d, SymbolicDim) for d in op.shape):
        return TileOrder.ROW, "active tiles are listed row by row"
    both = op.a.nbytes + op.b.nbytes
    if both <= target.l2_bytes:
        return TileOrder.ROW, f"a and b, {both} bytes, stay in the second-level cache of {target.l2_bytes} whole"
    rows, columns = (-(-_number(dim) // _TILE) for dim in (op.m, op.n))
    wave = target.sm_count
    if rows * columns < 2 * wave:
        return TileOrder.ROW, f"{rows * columns} tiles of {_TILE}x{_TILE} are fewer than two waves of {wave}"
    rows, columns = _part(rows, columns)
    touched = {order: panels_touched(order_table(order, rows, columns), columns, wave) for order in TileOrder}
    near = min((order for order in TileOrder if order.on_device), key=lambda order: touched[order])
    best = min(TileOrder, key=lambda order: touched[order])
    chosen = best if touched[best] < _BETTER * touched[near] else near
    figures = ", ".join(f"{order.value} {count:.1f}" for order, count in touched.items())
    because = f"panels that a wave of {wave} tiles of {_TILE}x{_TILE} reads, on average: {figures}"
    if chosen is not best:
        because += (
            f"; {best.value} order is a table that the host makes, and must read {1 - _BETTER:.0%} fewer than "
            f"{near.value} order, which the device computes"
        )
    return chosen, because


def _part(rows: int, columns: int) -> tuple[int, int]:
    """Return the grid, or a corner of it that is small enough to enumerate."""
    if rows * columns <= _MOST_TILES:
        return rows, columns
    side = isqrt(_MOST_TILES)
    return (min(rows, max(side, _MOST_TILES // columns)), min(columns, max(side, _MOST_TILES // rows)))


def _is_symbolic(op: AttentionOp) -> bool:
    return any(isinstance(dim, SymbolicDim) for each in op.operands for dim in each.shape)


def _number(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024
