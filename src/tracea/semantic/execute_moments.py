"""What the nodes of columns' moments do to memory, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tracea.semantic.execute import region, resolve
from tracea.semantic.machine import Executor
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile

__all__ = ["MOMENTS"]


def _add_up(node: MomentsTile, executor: Executor) -> None:
    """Execute the node.

    Raises:
        RunError: an access out of bounds.
    """
    x, target = region(node.source, executor, node)[0], region(node.target, executor, node)[0, 0]
    with np.errstate(all="ignore"):
        target[0] = x.mean(axis=0)
        away = x.astype(np.float64) - target[0]
        target[1], target[2] = away.sum(axis=0), (away * away).sum(axis=0)
        if node.grads is not None:
            grads = region(node.grads, executor, node)[0].astype(np.float64)
            target[3], target[4] = grads.sum(axis=0), (grads * away).sum(axis=0)


def _fold(node: MomentsFold, executor: Executor) -> None:
    """Execute the node.

    Raises:
        RunError: an access out of bounds.
    """
    states = region(node.states, executor, node)[0].astype(np.float64)
    about, target = region(node.about, executor, node)[0, 0], region(node.target, executor, node)[0]
    rows = region(node.source, executor, node).shape[1]
    (step,) = resolve((node.step,), executor.env)
    counts = np.minimum(step, rows - step * np.arange(len(states)))[:, None]
    with np.errstate(all="ignore"):
        pivots, away, squares = states[:, 0], states[:, 1], states[:, 2]
        means = pivots + away / counts
        mean = (means * counts).sum(axis=0) / rows
        beyond = pivots - mean
        target[0] = mean - about
        target[1] = (squares + beyond * (2.0 * away + counts * beyond)).sum(axis=0) / rows
        if node.grads is not None:
            target[2] = states[:, 3].sum(axis=0)
            target[3] = (states[:, 4] + beyond * states[:, 3]).sum(axis=0)


MOMENTS: Final[Mapping[type[Any], Callable[[Any, Executor], None]]] = {MomentsTile: _add_up, MomentsFold: _fold}
