"""What the nodes of a convolution by Winograd's F(m, r) do to memory, in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracea.errors import RunError
from tracea.semantic.execute import read, region
from tracea.semantic.machine import Executor, resolve
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage

__all__ = ["TRANSFORMS"]

Node = TransformImage | TransformFilters | TransformBack


def _transform(node: Node, executor: Executor) -> None:
    """Execute a transform.

    Raises:
        RunError: an access out of bounds, or an extent that does not fit.
    """
    match node:
        case TransformImage():
            _image(node, executor)
        case TransformFilters():
            _filters(node, executor)
        case TransformBack():
            _back(node, executor)


def _image(node: TransformImage, executor: Executor) -> None:
    image = read(node.source, executor, node, masked=True).astype(np.float64)
    image = image.reshape(image.shape[-3:])
    target = region(node.target, executor, node)
    (rows, columns), m, n = resolve(node.tiles, executor.env), node.m, node.algorithm.n
    _fits(node, image.shape, (m * rows + node.taps - 1, m * columns + node.taps - 1, target.shape[-1]))
    _fits(node, target.shape, (n * n, rows * columns, target.shape[-1]))
    with np.errstate(all="ignore"):
        tiles = np.array(
            [image[m * i : m * i + n, m * j : m * j + n] for i in range(rows) for j in range(columns)]
        ).reshape(-1, n, n, image.shape[-1])
        places = node.algorithm.transformed_image(tiles.transpose(0, 3, 1, 2))  # tiles, channels, n, n
        target[...] = places.transpose(2, 3, 0, 1).reshape(target.shape)


def _filters(node: TransformFilters, executor: Executor) -> None:
    taps = region(node.source, executor, node).astype(np.float64)
    taps = taps.reshape(taps.shape[-4:])
    target, n = region(node.target, executor, node), node.algorithm.n
    _fits(node, taps.shape[:2], (node.taps, node.taps))
    _fits(node, target.shape[-3:-1], (n * n, taps.shape[2]))
    with np.errstate(all="ignore"):
        places = node.algorithm.transformed_filters(taps.transpose(2, 3, 0, 1))  # channels, filters, n, n
        panel = np.zeros((n * n, taps.shape[2], target.shape[-1]))
        panel[..., : taps.shape[3]] = places.transpose(2, 3, 0, 1).reshape(n * n, *taps.shape[2:])
    target[...] = panel.reshape(target.shape)


def _back(node: TransformBack, executor: Executor) -> None:
    products = region(node.source, executor, node).astype(np.float64)
    target = region(node.target, executor, node)
    (rows, columns), m, n = resolve(node.tiles, executor.env), node.m, node.algorithm.n
    p, q, filters = target.shape[-3:]
    _fits(node, products.shape, (n * n, rows * columns, filters))
    if p > m * rows or q > m * columns:
        raise RunError(kernel=type(node).__name__, detail=f"{p} x {q} results of {rows} x {columns} tiles of {m} x {m}")
    with np.errstate(all="ignore"):
        tiles = products.reshape(n, n, rows, columns, filters).transpose(2, 3, 4, 0, 1)
        results = node.algorithm.results(tiles)  # rows, columns, filters, m, m
        whole = results.transpose(0, 3, 1, 4, 2).reshape(rows * m, columns * m, filters)[:p, :q]
        values: list[Any] = [whole.reshape(target.shape)]
        values += [region(operand, executor, node).astype(np.float64) for operand in node.operands]
        target[...] = np.broadcast_to(node.expr.evaluate(values), target.shape)


def _fits(node: Node, found: Any, wanted: tuple[int, ...]) -> None:
    if tuple(found) != wanted:
        raise RunError(kernel=type(node).__name__, detail=f"a region of {tuple(found)}, needed {wanted}")


TRANSFORMS: Final = dict.fromkeys((TransformImage, TransformFilters, TransformBack), _transform)
