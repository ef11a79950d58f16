"""What each leaf node does to memory, in NumPy: the meanings that the interpreter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from tracea.core.dtype import DType
from tracea.core.ops.rows import ReduceKind, RowKind
from tracea.core.statistics_meaning import reduced
from tracea.errors import RunError
from tracea.semantic.intrinsics import split_terms
from tracea.semantic.machine import Array, Executor, Flight, Phase, clear_outside, poison, resolve, window
from tracea.semantic.nodes import (
    CopyTile,
    EpilogueCall,
    MicroKernel,
    Node,
    Pack,
    PointwiseTile,
    ReduceTile,
    Region,
    RowTile,
    Scalar,
)
from tracea.semantic.nodes_async import (
    AsyncCopy,
    Clear,
    CommitGroup,
    FragmentOp,
    Gather,
    LoadMatrix,
    Mma,
    StoreFragment,
    TmaCopy,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
)
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["leaf", "read", "region", "tma"]

Scalars = Mapping[str, float]


def leaf(  # noqa: PLR0912 - one case a node
    node: Node, executor: Executor, kernel: TileKernel, scalars: Scalars
) -> None:
    """Execute one node that has an interior.

    Raises:
        RunError: an access out of bounds, an extent that does not fit, or a node without a meaning.
    """
    match node:
        case Pack():
            _pack(node, executor)
        case CopyTile():
            target = region(node.target, executor, node)
            target[...] = read(node.source, executor, node, masked=node.masked, fill=node.fill).reshape(target.shape)
        case Halo():
            _halo(node, executor)
        case MicroKernel():
            _micro_kernel(node, executor, scalars)
        case RowTile():
            _row_tile(node, executor, scalars)
        case PointwiseTile():
            target = region(node.target, executor, node)
            values = [_within(_operand(operand, executor, node, scalars), target.ndim) for operand in node.inputs]
            _assign(target, np.broadcast_to(node.expr.evaluate(values), target.shape))
        case ReduceTile():
            _reduce_tile(node, executor, scalars)
        case AsyncCopy():
            _async_copy(node, executor)
        case Gather():
            _gather(node, executor)
        case CommitGroup():
            executor.groups.append(executor.open_copies)
            executor.open_copies = []
        case WgmmaCommit():
            executor.product_groups.append(executor.open_products)
            executor.open_products = []
        case WgmmaFence():
            pass  # the interpreter's executors have no registers that run ahead
        case LoadMatrix():
            target = region(node.target, executor, node)
            matrix = np.asarray(node.intrinsic.meaning(_squeezed(region(node.source, executor, node))))
            _assign(target, matrix.reshape(target.shape))
        case Clear():
            region(node.target, executor, node)[...] = 0
        case Mma():
            _product(node, executor)
        case Wgmma():
            executor.open_products.append(_late_product(node, executor))
        case FragmentOp():
            _fragment_op(node, executor, scalars)
        case StoreFragment():
            target = region(node.target, executor, node)
            tile = np.asarray(node.intrinsic.meaning(_squeezed(region(node.source, executor, node))))
            _assign(target, _finished(_cropped(tile, target.shape, node), node.epilogue, executor, node, scalars))
        case _:
            raise RunError(kernel=kernel.name, detail=f"the interpreter has no meaning for {type(node).__name__}")


def region(operand: Region, executor: Executor, node: Node) -> Array:
    """Return a view of a region as the executor sees it."""
    array = executor.memory.find(operand.buffer)
    offset, extent = resolve(operand.offset, executor.env), resolve(operand.extent, executor.env)
    return window(array, operand.buffer, offset, extent, type(node).__name__)


def tma(node: TmaCopy, executor: Executor, phase: Phase) -> Callable[[], None]:
    """Poison the target of a copy and return what completes it."""
    target = region(node.target, executor, node)
    target[...] = poison(target.dtype)
    env = dict(executor.env)

    def finish() -> None:
        target[...] = read(node.source, executor, node, masked=True, env=env).reshape(target.shape)
        phase.bytes_pending -= target.nbytes
        phase.settle()

    return finish


def read(
    operand: Region,
    executor: Executor,
    node: Node,
    *,
    masked: bool,
    fill: float = 0.0,
    env: Mapping[str, Any] | None = None,
) -> Array:
    """Return a copy of a region, ``fill`` standing for what is outside of its buffer if ``masked``."""
    env = executor.env if env is None else env
    array = executor.memory.find(operand.buffer)
    offset, extent = resolve(operand.offset, env), resolve(operand.extent, env)
    if not masked:
        return window(array, operand.buffer, offset, extent, type(node).__name__)
    result = np.full(extent, fill, dtype=array.dtype)
    inside = [
        slice(max(0, -start), max(0, min(size, bound - start)))
        for start, size, bound in zip(offset, extent, array.shape, strict=True)
    ]
    outside = [
        slice(max(0, start), max(0, min(bound, start + size)))
        for start, size, bound in zip(offset, extent, array.shape, strict=True)
    ]
    if all(s.stop > s.start for s in inside):
        result[tuple(inside)] = array[tuple(outside)]
    return result


def _asynchronous(target: Array, executor: Executor, value: Callable[[], Array]) -> None:
    target[...] = poison(target.dtype)

    def finish() -> None:
        target[...] = value()

    executor.open_copies.append(finish)


def _async_copy(node: AsyncCopy, executor: Executor) -> None:
    target, env = region(node.target, executor, node), dict(executor.env)
    _asynchronous(
        target, executor, lambda: read(node.source, executor, node, masked=node.masked, env=env).reshape(target.shape)
    )


def _pack(node: Pack, executor: Executor) -> None:
    source, target = region(node.source, executor, node), region(node.target, executor, node)
    source = _squeezed(source) if node.merged == 1 else source.reshape(-1, source.shape[-1])
    rows_by_depth = source if node.axis == 0 else source.T
    rows, depth = rows_by_depth.shape
    panels = -(-rows // node.panel)
    steps = -(-depth // node.granule) * node.granule if target.shape[-2] != depth else depth
    if target.size != panels * steps * node.width or target.shape[-2:] != (steps, node.width):
        raise RunError(
            kernel="Pack",
            detail=f"target {target.shape}, needed ({panels}, {depth}, {node.width}) for source {source.shape}",
        )
    padded = np.zeros((panels * node.panel, steps), dtype=source.dtype if node.is_split else target.dtype)
    padded[:rows, :depth] = rows_by_depth.astype(padded.dtype)
    values = padded.reshape(panels, node.panel, steps).transpose(0, 2, 1)
    if node.is_split:
        terms = split_terms(values, node.terms, target.dtype).reshape(panels, steps, -1)
        values = np.concatenate([terms, np.zeros((panels, steps, node.marks), dtype=terms.dtype)], axis=-1)
    target[...] = values.reshape(target.shape)


def _halo(node: Halo, executor: Executor) -> None:
    target = region(node.target, executor, node)
    image = read(node.source, executor, node, masked=node.merged is None)
    if node.merged is not None:
        image = _merged(image.reshape(image.shape[-3:]), node.merged, node.steps[1])
    rows, columns, channels = image.shape[-3:]
    blocks = -(-channels // node.lanes)
    if target.shape != (blocks, rows, columns, node.terms * node.lanes + 1):
        raise RunError(kernel="Halo", detail=f"target {target.shape} for an image of {image.shape}")
    padded = np.zeros((rows, columns, blocks * node.lanes), image.dtype)
    padded[..., :channels] = image.reshape(rows, columns, channels)
    values = padded.reshape(rows, columns, blocks, node.lanes).transpose(2, 0, 1, 3)
    terms = split_terms(values, node.terms, target.dtype)
    written = np.concatenate([terms.reshape(*target.shape[:-1], -1), np.zeros((*target.shape[:-1], 1))], axis=-1)
    counts = resolve(node.taps, executor.env)
    for axis, (count, gap, step) in enumerate(zip(counts, node.gaps, node.phases, strict=True), start=1):
        taken = {tap * gap % step for tap in range(count)}
        unread = [place for place in range(target.shape[axis]) if place % step not in taken]
        written[(slice(None),) * axis + (unread,)] = np.nan
    target[...] = written.astype(target.dtype)


def _merged(image: Array, taps: tuple[int, int], step: int) -> Array:
    """Return each window of ``taps`` as one pixel, columns ``step`` apart."""
    high, wide = image.shape[0] - taps[0] + 1, (image.shape[1] - taps[1]) // step + 1
    pixels = [image[r : r + high, s::step][:, :wide] for r in range(taps[0]) for s in range(taps[1])]
    return np.concatenate(pixels, axis=-1)


def _micro_kernel(node: MicroKernel, executor: Executor, scalars: Scalars) -> None:
    c = region(node.c, executor, node)
    dtype = np.float64 if c.dtype == DType.F64.numpy else np.float32
    window_of_a = read(node.a, executor, node, masked=node.masked)
    if node.image is not None:
        clear_outside(window_of_a, *(resolve(each, executor.env) for each in (node.image.first, node.image.extent)))
    a = _squeezed(window_of_a).astype(dtype)
    b = _squeezed(region(node.b, executor, node)).astype(dtype)
    value = _cropped(np.asarray(node.intrinsic.meaning(a, b)), c.shape, node)
    if node.accumulate.evaluate(executor.env):
        value = value + c.astype(dtype)
    if not node.finish.evaluate(executor.env):
        _assign(c, value)
        return
    target = (
        c if node.epilogue is None or node.epilogue.target is None else region(node.epilogue.target, executor, node)
    )
    _assign(target, _finished(value.reshape(target.shape), node.epilogue, executor, node, scalars))


def _row_tile(node: RowTile, executor: Executor, scalars: Scalars) -> None:
    target = region(node.target, executor, node)
    x = np.broadcast_to(
        node.prologue.evaluate([_operand(r, executor, node, scalars) for r in node.inputs]), target.shape
    )
    if node.scratch is not None:
        region(node.scratch, executor, node)[...] = np.nan  # whatever the routine leaves there
    match node.kind:
        case RowKind.SOFTMAX | RowKind.LOG_SOFTMAX:
            with np.errstate(invalid="ignore", divide="ignore"):
                shifted = x - x.max(axis=-1, keepdims=True)
                sums = np.exp(shifted).sum(axis=-1, keepdims=True)
                value = np.exp(shifted) / sums if node.kind is RowKind.SOFTMAX else shifted - np.log(sums)
        case RowKind.LAYER_NORM:
            centred = x - x.mean(axis=-1, keepdims=True)
            value = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + node.eps)
        case RowKind.RMS_NORM:
            value = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + node.eps)
    _assign(target, _finished(value, node.epilogue, executor, node, scalars))


def _reduce_tile(node: ReduceTile, executor: Executor, scalars: Scalars) -> None:
    target = region(node.target, executor, node)
    shape = resolve(node.shape, executor.env)
    values = [_operand(operand, executor, node, scalars) for operand in node.inputs]
    x = np.broadcast_to(node.prologue.evaluate(values), shape)
    summed = ReduceKind.SUM if node.kind is ReduceKind.MEAN else node.kind
    value = reduced(summed, x, node.axes, keepdims=False).reshape(target.shape)
    if node.accumulate.evaluate(executor.env):
        before = target.astype(np.float64)
        match node.kind:
            case ReduceKind.SUM | ReduceKind.MEAN:
                value = before + value
            case ReduceKind.PRODUCT:
                value = before * value
            case ReduceKind.MAX:
                value = np.maximum(before, value)
            case ReduceKind.MIN:
                value = np.minimum(before, value)
    if not node.finish.evaluate(executor.env):
        _assign(target, value)
        return
    if node.kind is ReduceKind.MEAN:
        value = value / int(node.count.evaluate(executor.env))
    out = (
        target
        if node.epilogue is None or node.epilogue.target is None
        else region(node.epilogue.target, executor, node)
    )
    _assign(out, _finished(value.reshape(out.shape), node.epilogue, executor, node, scalars))


def _product(node: Mma, executor: Executor) -> None:
    a, b, c = (region(operand, executor, node) for operand in (node.a, node.b, node.c))
    start = c if node.accumulate.evaluate(executor.env) else np.zeros_like(c)
    _assign(c, np.asarray(node.intrinsic.meaning(_squeezed(a), _squeezed(b), _squeezed(start))).reshape(c.shape))


def _late_product(node: Wgmma, executor: Executor) -> Callable[[], None]:
    """Take the accumulator away, and return what puts it back: an executor's products complete in order."""
    a, b, c = (region(operand, executor, node) for operand in (node.a, node.b, node.c))
    accumulate = node.accumulate.evaluate(executor.env)
    key = (node.c.buffer, resolve(node.c.offset, executor.env))
    flight = executor.in_flight.setdefault(key, Flight(c.copy()))
    flight.pending += 1
    c[...] = poison(c.dtype)

    def finish() -> None:
        start = flight.value if accumulate else np.zeros_like(flight.value)
        flight.value = np.asarray(node.intrinsic.meaning(_squeezed(a), _squeezed(b), _squeezed(start))).reshape(c.shape)
        flight.pending -= 1
        if not flight.pending:
            c[...] = executor.in_flight.pop(key).value

    return finish


def _fragment_op(node: FragmentOp, executor: Executor, scalars: Scalars) -> None:
    values = [_raw(operand, executor, node, scalars) for operand in (*node.inputs, *node.updates)]
    result = node.intrinsic.meaning(*values, *resolve(node.indices, executor.env))
    targets = (*node.outputs, *node.updates)
    several = isinstance(result, tuple)
    results: tuple[Any, ...] = cast("tuple[Any, ...]", result) if several else (result,)
    for target, value in zip(targets, results, strict=True):
        view = region(target, executor, node)
        _assign(view, np.asarray(value).reshape(view.shape))


def _gather(node: Gather, executor: Executor) -> None:
    target = region(node.target, executor, node)
    source = executor.memory.find(node.source)
    axes: list[Array] = []
    for axis, size in enumerate(target.shape):
        shape = tuple(-1 if axis == other else 1 for other in range(target.ndim))
        axes.append(cast("Array", np.arange(size)).reshape(shape))
    env: dict[str, Any] = {**executor.env, **{point.name: axis for point, axis in zip(node.points, axes, strict=True)}}

    def value() -> Array:
        chosen = np.broadcast_to(np.asarray(node.predicate.evaluate(env)), target.shape)
        places = [np.broadcast_to(np.asarray(index.evaluate(env)), target.shape)[chosen] for index in node.coordinates]
        for axis, place in enumerate(places):
            if place.size and (place.min() < 0 or place.max() >= source.shape[axis]):
                raise RunError(
                    kernel="Gather",
                    detail=f"{node.source} axis {axis}: {place.min()} .. {place.max()} outside of {source.shape}",
                )
        result = np.full(target.shape, node.fill, dtype=target.dtype)
        result[chosen] = source[tuple(places)]
        return result

    if node.asynchronous:
        _asynchronous(target, executor, value)
    else:
        target[...] = value()


def _finished(value: Array, epilogue: EpilogueCall | None, executor: Executor, node: Node, scalars: Scalars) -> Array:
    if epilogue is None:
        return value
    operands = [_operand(operand, executor, node, scalars) for operand in epilogue.operands]
    found = np.asarray(epilogue.expr.evaluate([value, *operands]))
    own = found.shape[max(0, found.ndim - value.ndim) :]  # an operand may have more axes, of one element each
    return np.broadcast_to(found.reshape(own), value.shape)


def _operand(operand: Region | Scalar, executor: Executor, node: Node, scalars: Scalars) -> Any:
    return _raw(operand, executor, node, scalars).astype(np.float64)


def _raw(operand: Region | Scalar, executor: Executor, node: Node, scalars: Scalars) -> Any:
    return np.float64(scalars[operand.name]) if isinstance(operand, Scalar) else region(operand, executor, node)


def _assign(target: Array, value: Array) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        target[...] = np.asarray(value).astype(target.dtype)


def _cropped(value: Array, shape: tuple[int, ...], node: Node) -> Array:
    rows, columns = int(np.prod(shape[:-1])), (1, *shape)[-1]
    if value.ndim != 2 or value.shape[0] < rows or value.shape[1] < columns or rows * columns != int(np.prod(shape)):
        raise RunError(kernel=type(node).__name__, detail=f"the intrinsic gave {value.shape} for a tile of {shape}")
    return value[:rows, :columns].reshape(shape)


def _within(value: Any, rank: int) -> Any:
    """Drop leading axes of extent 1 that the target does not have."""
    while np.ndim(value) > rank and value.shape[0] == 1:
        value = value[0]
    return value


def _squeezed(array: Array) -> Array:
    """Drop leading axes of extent 1 down to a matrix."""
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array
