"""Products with a block-sparse factor as a function: the mask becomes tables, which one kernel reads for every mask."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from tracea.core.op import BlockSparseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import host
from tracea.errors import InvalidOp, InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.block_masks import read_block_mask
from tracea.interface.operands import FLOATS, Given, check_same_dtype, dispatched, inner_remedy, word
from tracea.interface.results import compile_as_views, filled
from tracea.interface.whole_numbers import whole_number
from tracea.kernels.gemm.block_sparse import chunk_of, run_tables
from tracea.runtime.buffers import view
from tracea.semantic.tile_builders import masked_factor_tiles

__all__ = ["block_sparse_matmul"]

_OPERANDS: Final = ("a", "b")
_TABLES: Final = ("first", "line", "step")
_LARGEST_BLOCK: Final = 2**20  # scratch has room for whole blocks
_KEPT_MASKS: Final = 64  # whose tables are remembered


def block_sparse_matmul(
    a: Any, b: Any, block_mask: Any, *, block_size: int | None = None, factor: str | None = None, out: Any = None
) -> Any:
    """Return ``a @ b`` where of one factor only the blocks count whose entry in ``block_mask`` is true.

    What that factor holds in other blocks is taken for zero and not read: a NaN there reaches nothing. ``factor`` says
    whose mask it is, "a" or "b"; None is the one that the mask's shape fits, b where both do. ``block_size`` has to be
    given: masks of one shape fit several.

    Shapes: a is (m, k), b (k, n); the mask is (⌈k/s⌉, ⌈n/s⌉) for b, (⌈m/s⌉, ⌈k/s⌉) for a, s being ``block_size``; the
    last block of an axis may be cut off.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp: no block size, one
    below 1 or above 2²⁰, or no such factor.
    """
    mask = read_block_mask(block_mask)
    rows, depth, columns = _extents(a, b)
    size = whole_number("block_size", block_size, 1, remedy="block_size=32, the rows and columns of a mask's block")
    if size > _LARGEST_BLOCK:
        remedy = "use tracea.ops.gemm where one block is the whole factor"
        raise InvalidOp(field="block_size", got=size, expected=f"1 to {_LARGEST_BLOCK}", remedy=remedy)
    if out is not None and (got := view(out, "out", FLOATS).shape) != (rows, columns):
        raise InvalidShape(field="out", got=got, expected=(rows, columns), remedy="give an out of the result's shape")
    is_turned = _factor(factor, mask.shape, (rows, depth, columns), size) == "a"
    if is_turned:  # (a @ b)ᵀ = bᵀ @ aᵀ, whose second factor has the blocks
        mask, columns = np.ascontiguousarray(mask.T), rows
    chunk = chunk_of(float(mask.mean()) if mask.size else 0.0, depth, size, host())
    tables = _tables(mask.tobytes(), depth, columns, size, chunk)
    return _dispatch()(a, b, *tables, out, size, chunk, is_turned)


def _extents(a: Any, b: Any) -> tuple[int, int, int]:
    shapes = {name: view(array, name, FLOATS).shape for name, array in (("a", a), ("b", b))}
    ranks = {len(shape) for shape in shapes.values()}
    if ranks != {2} or shapes["a"][1] != shapes["b"][0]:
        raise InvalidShape(
            field="block_sparse_matmul",
            got=shapes,
            expected="(m, k) @ (k, n)",
            remedy=_of_batches(shapes) if ranks != {2} else inner_remedy(shapes["a"], shapes["b"]),
        )
    return shapes["a"][0], shapes["a"][1], shapes["b"][1]


def _of_batches(shapes: dict[str, tuple[int, ...]]) -> str:
    if len(shapes["a"]) > 2 == len(shapes["b"]):
        return f"a.reshape(-1, {shapes['a'][-1]}), and the result back"
    return "multiply batches one by one"


def _factor(factor: str | None, shape: tuple[int, ...], extents: tuple[int, int, int], block: int) -> str:
    rows, depth, columns = (-(-extent // block) for extent in extents)
    wanted = {"b": (depth, columns), "a": (rows, depth)}
    if factor is not None:
        factor = word("factor", factor, tuple(wanted))
    fitting = [name for name in wanted if shape == wanted[name] and factor in (None, name)]
    if not fitting:
        raise InvalidShape(
            field="block_mask",
            got=shape,
            expected=wanted if factor is None else wanted[factor],
            remedy="give one entry for each block of the factor",
        )
    return fitting[0]


@lru_cache(maxsize=_KEPT_MASKS)
def _tables(mask: bytes, depth: int, columns: int, block: int, chunk: int) -> tuple[np.ndarray[Any, Any], ...]:
    shape = (-(-depth // block), -(-columns // block))
    listed = np.frombuffer(mask, dtype=bool).reshape(shape)
    return run_tables(
        masked_factor_tiles(rows=1, columns=columns, depth=depth, mask=listed, block=block, factor="b"), block, chunk
    )


@cache
def _dispatch() -> Any:
    return dispatched((*_OPERANDS, *_TABLES), _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
    given = Given.of(_OPERANDS, arrays[: len(_OPERANDS)], out)
    block, chunk, is_turned = attributes
    given.check_floats(one_arithmetic=True)
    check_same_dtype("block_sparse_matmul", given.type(0), given.type(1))
    stated = given.type(0) if given.result is None else given.result  # the result may be of other floats
    output = given.result_type(TensorType((given.type(0).shape[0], given.type(1).shape[1]), stated.dtype))
    if given.type(0).shape[1] == 0:
        return filled(arrays[0], output, out, 0.0)
    order = (1, 0) if is_turned else (0, 1)
    a, b, y = (
        type_.permuted((1, 0)) if is_turned else type_ for type_ in (*(given.type(index) for index in order), output)
    )
    (rows, depth), (_, columns) = a.static_shape, b.static_shape
    op = BlockSparseOp(m=rows, n=columns, k=depth, block=block, chunk=chunk, a=a, b=b, out=y)
    if not is_turned:
        return compile_op(op, threads=threads)
    inputs = (given.type(0), given.type(1), *op.operands[2:])
    return compile_as_views(op, inputs=inputs, output=output, threads=threads, order=(*order, *range(2, len(inputs))))
