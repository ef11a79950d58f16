"""What the nodes of norms' gradients and of moments do to memory, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tracea.core.ops.rows import RowKind
from tracea.semantic.execute import region
from tracea.semantic.execute_moments import MOMENTS
from tracea.semantic.execute_pairs import PAIRS
from tracea.semantic.machine import Executor
from tracea.semantic.nodes_norm_gradient import NormGradientTile, PlaneGradientTile

__all__ = ["NORMS"]


def _operands(node: NormGradientTile | PlaneGradientTile, executor: Executor) -> tuple[Any, Any, Any, Any, Any]:
    """Return the gradient of the result, the source and the weight in float64, then what is written."""
    grads, x = (region(part, executor, node).astype(np.float64) for part in (node.grads, node.source))
    weight = 1.0 if node.weight is None else region(node.weight, executor, node).astype(np.float64)
    return grads, x, weight, region(node.target, executor, node), region(node.sums, executor, node)


def _differentiate_rows(node: NormGradientTile, executor: Executor) -> None:
    """Execute the node.

    Raises:
        RunError: an access out of bounds.
    """
    grads, x, weight, target, sums = _operands(node, executor)
    is_centred = node.kind is RowKind.LAYER_NORM

    def mean(v: np.ndarray) -> np.ndarray:
        return v.mean(axis=-1, keepdims=True) if v.size else np.zeros((len(v), 1))

    with np.errstate(all="ignore"):
        away = x - mean(x) if is_centred else x
        scale = 1.0 / np.sqrt(mean(away * away) + node.eps)
        normal, g = away * scale, grads * weight
        slope = g - normal * mean(g * normal) - (mean(g) if is_centred else 0.0)
        target[...] = slope * scale
        for index, term in enumerate((grads * normal, grads)[: sums.shape[-2]]):
            sums[..., index, :] = term.sum(axis=0)


def _differentiate_planes(node: PlaneGradientTile, executor: Executor) -> None:
    """Execute the node.

    Raises:
        RunError: an access out of bounds.
    """
    grads, x, weight, target, sums = _operands(node, executor)
    with np.errstate(all="ignore"):
        away = x - x.mean()
        scale = 1.0 / np.sqrt((away * away).mean() + node.eps)
        normal, g = away * scale, grads * weight
        target[...] = (g - normal * (g * normal).mean() - g.mean()) * scale
        for index, term in enumerate((grads * normal, grads)):
            each = term.sum(axis=(0, 1, 3))
            sums[0, index, :] = each if sums.shape[-1] == len(each) else each.sum()


NORMS: Final[Mapping[type[Any], Callable[[Any, Executor], None]]] = {
    NormGradientTile: _differentiate_rows,
    PlaneGradientTile: _differentiate_planes,
    **MOMENTS,
    **PAIRS,
}
