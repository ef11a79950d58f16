"""Which pairs an attention takes, as a call says it: masks of blocks, sequences side by side, global tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from tracea.core.op import PairSpans
from tracea.core.plain_shape import axes_remedy
from tracea.errors import InvalidOp, InvalidShape
from tracea.interface.block_masks import read_block_mask
from tracea.interface.operands import FLOATS
from tracea.interface.whole_numbers import read_whole, read_wholes
from tracea.kernels.attention.spans import Band, span_tables
from tracea.runtime.buffers import view
from tracea.semantic.tile_builders import TileGrid, block_sparse_tiles, dense_tiles, ragged_tiles
from tracea.semantic.tile_table import TileTable

__all__ = ["Listed", "listed_pairs"]

_KEPT: Final = 64  # masks and lengths whose tables are remembered
_ROWS: Final = 96  # queries of a list, where no block says otherwise
_MOST_ROWS: Final = 192
_PANEL: Final = 32  # queries of the narrowest panel
_BLOCK: Final = 64  # queries and keys of a block, where the caller says none
_LARGEST_BLOCK: Final = 2**24

Listed = tuple[PairSpans, Any, Any]


def listed_pairs(
    q: Any, k: Any, *, band: Band, block_mask: Any, block_size: Any, lengths: Any, key_lengths: Any
) -> Listed | None:
    """Return the tables of a call's pairs; None where a mask by position says all.

    Raises: InvalidShape, InvalidDType, InvalidOp: what was given does not fit q and k, or each other.
    """
    if key_lengths is not None and lengths is None:
        raise InvalidOp(
            field="key_lengths",
            got="no lengths",
            expected="lengths too",
            remedy="give lengths=, the number of queries of each sequence",
        )
    if block_mask is None and block_size is not None:
        raise InvalidOp(
            field="block_size",
            got=block_size,
            expected="a block_mask beside it, of whose blocks it is the size",
            remedy="give block_mask= too, or leave block_size out",
        )
    if block_mask is None and lengths is None and not band.global_tokens:
        return None
    queries, keys = _shape("q", q), _shape("k", k)
    if band.global_tokens and band.window is None:
        raise InvalidOp(
            field="global_tokens", got=band.global_tokens, expected="a window", remedy="without a window all is global"
        )
    if lengths is not None:
        if block_mask is not None or band.global_tokens:
            raise InvalidOp(
                field="lengths",
                got="block_mask" if block_mask is not None else "global_tokens",
                expected="lengths without blocks and global tokens; causal, window, mask and score go with them",
                remedy="call once for each sequence",
            )
        if queries[0] != 1:
            raise InvalidShape(
                field="q",
                got=queries,
                expected="(1, heads, all tokens, size)",
                remedy="lay the sequences side by side: a batch of 1",
            )
        own = _lengths("lengths", lengths, queries[2])
        others = own if key_lengths is None else _lengths("key_lengths", key_lengths, keys[2])
        if len(own) != len(others) or sum(others) != keys[2]:
            raise InvalidShape(
                field="lengths" if key_lengths is None else "key_lengths",
                got=f"{len(others)} sequences, {sum(others)} keys",
                expected=f"{len(own)} sequences, {keys[2]} keys",
                remedy="give key_lengths=, one number of keys for each sequence, which come to all of them",
            )
        spans, first, fields = _ragged(own, others, band)
    elif block_mask is None:
        spans, first, fields = _local_global(queries[2], keys[2], band)
    else:
        mask = read_block_mask(block_mask)
        blocks = _blocks(_BLOCK if block_size is None else block_size)
        _check_mask(mask, blocks, queries, keys)
        if 0 in queries[:2]:  # there is nobody to hide keys from
            mask = np.zeros_like(mask, shape=mask.shape[-2:])
        each = mask.size != mask.shape[-2] * mask.shape[-1]
        if each:
            mask = np.ascontiguousarray(np.broadcast_to(mask, (*queries[:2], *mask.shape[-2:])))
        spans, first, fields = _block_sparse(mask.tobytes(), queries[2], keys[2], blocks, band, each)
    return spans, first, fields


def _shape(name: str, array: Any) -> tuple[int, ...]:
    shape = view(array, name, FLOATS).shape
    if len(shape) != 4:
        raise InvalidShape(
            field=name,
            got=shape,
            expected="(batch, heads, tokens, size)",
            remedy=axes_remedy(name, len(shape), 4),
        )
    return shape


def _lengths(name: str, given: Any, total: int) -> tuple[int, ...]:
    found = read_wholes(given)
    if found is None:
        got = cast("Any", given) if isinstance(given, list | tuple) else type(given).__name__
        raise InvalidOp(field=name, got=got, expected="a sequence of whole numbers", remedy=f"{name}=[5, 3]")
    if min(found, default=0) < 0 or sum(found) != total:
        raise InvalidShape(
            field=name,
            got=f"{len(found)} lengths, {sum(found)} in all, the least {min(found, default=0)}",
            expected=f"lengths of at least 0 that sum up to {total}",
            remedy="give the number of tokens of each sequence, in their order",
        )
    return found


def _blocks(given: Any) -> tuple[int, int]:
    is_pair = isinstance(given, tuple | list)
    pair: tuple[Any, ...] = tuple(cast("Sequence[Any]", given)) if is_pair else (given, given)
    sizes = [read_whole(size) for size in pair]
    first, last = sizes if len(sizes) == 2 else (None, None)
    if first is None or last is None or not (1 <= first <= _LARGEST_BLOCK and 1 <= last <= _LARGEST_BLOCK):
        raise InvalidOp(
            field="block_size",
            got=given,
            expected=f"a whole number from 1 to {_LARGEST_BLOCK}, or one for queries and one for keys",
            remedy=f"block_size={_BLOCK}",
        )
    return first, last


def _check_mask(
    mask: np.ndarray[Any, Any], blocks: tuple[int, int], queries: tuple[int, ...], keys: tuple[int, ...]
) -> None:
    wanted = (-(-queries[2] // blocks[0]), -(-keys[2] // blocks[1]))
    lead = mask.shape[:-2]
    fits = 2 <= mask.ndim <= 4 and mask.shape[-2:] == wanted
    if not fits or any(
        own not in (1, other) for own, other in zip(reversed(lead), reversed(queries[:2]), strict=False)
    ):
        raise InvalidShape(
            field="block_mask",
            got=mask.shape,
            expected=f"{wanted} for block_size {blocks[0] if blocks[0] == blocks[1] else blocks}, "
            f"with axes (batch, heads) before it that broadcast to {queries[:2]}",
            remedy="give an entry for each block of queries and of keys, or block_size= their size "
            f"(by default {_BLOCK})",
        )


@lru_cache(maxsize=_KEPT)
def _block_sparse(  # noqa: PLR0917 - one key of the cache
    mask: bytes, queries: int, keys: int, blocks: tuple[int, int], band: Band, each: bool
) -> tuple[PairSpans, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    grid = TileGrid(rows=queries, columns=keys, depth=1, tile_rows=blocks[0], tile_columns=blocks[1])
    shape = (-(-queries // blocks[0]), -(-keys // blocks[1]))
    listed = np.frombuffer(mask, dtype=bool)
    masks = listed.reshape(-1, *shape) if listed.size else np.zeros((1, *shape), dtype=bool)
    tables: list[TileTable] = [block_sparse_tiles(grid, one if min(grid.extents) else one[:0, :0]) for one in masks]
    parts = -(-blocks[0] // _MOST_ROWS)  # of a block that is too large for one list
    # Lists of several small blocks waste less than panels that one of them does not fill (benchmarks/NOTES.md).
    rows = blocks[0] * max(1, _PANEL // blocks[0]) if parts == 1 else -(-blocks[0] // parts)
    return span_tables(tables, rows=rows, band=band, each=each)


@lru_cache(maxsize=_KEPT)
def _local_global(queries: int, keys: int, band: Band) -> tuple[PairSpans, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    # One tile of all pairs, of which spans keep what the band lets through: smaller ones were a square of them.
    grid = TileGrid(rows=queries, columns=keys, depth=1, tile_rows=max(1, queries), tile_columns=max(1, keys))
    return span_tables([dense_tiles(grid)], rows=_ROWS, band=band)


@lru_cache(maxsize=_KEPT)
def _ragged(
    lengths: tuple[int, ...], key_lengths: tuple[int, ...], band: Band
) -> tuple[PairSpans, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    tiles = ragged_tiles(lengths, key_lengths, depth=1, tile_rows=_ROWS, tile_columns=_LARGEST_BLOCK)
    return span_tables([tiles], rows=_ROWS, band=band)
