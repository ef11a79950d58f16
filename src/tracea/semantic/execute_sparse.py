"""What the nodes of block-sparse kernels do to memory, in NumPy."""

from __future__ import annotations

import numpy as np

from tracea.core.dtype import DType
from tracea.errors import RunError
from tracea.semantic.execute import region
from tracea.semantic.machine import Array, Executor
from tracea.semantic.nodes_sparse import RunProduct

__all__ = ["sum_runs"]


def sum_runs(node: RunProduct, executor: Executor) -> None:
    """Execute a product over the blocks of a line.

    Raises:
        RunError: an access out of bounds, or a block that begins behind the depth.
    """
    env = executor.env
    c = region(node.c, executor, node)
    dtype = np.float64 if c.dtype == DType.F64.numpy else np.float32
    a = region(node.a, executor, node)
    b = region(node.b, executor, node)
    rows, columns = c.shape[-2:]
    value: Array = np.zeros((rows, columns), dtype)
    begin, count = int(node.runs.begin(node.run).evaluate(env)), int(node.runs.length(node.run).evaluate(env))
    depth, base = int(node.depth.evaluate(env)), int(node.base.evaluate(env))
    for block in range(begin, begin + count):
        first = int(env[node.runs.step][block]) * node.size
        steps = min(node.size, depth - first)
        if steps < 1 or first < base:
            raise RunError(kernel="RunProduct", detail=f"block {block} begins at step {first} of {base} .. {depth}")
        ours = a[..., first - base : first - base + steps, :].astype(dtype)
        theirs = b[block, :, :steps, :].astype(dtype)
        part = np.asarray(node.intrinsic.meaning(_panel(ours), _panel(theirs)))
        value += part[:rows, :columns]
    if node.accumulate.evaluate(env):
        value = value + c.astype(dtype).reshape(value.shape)
    target = c
    if node.finish.evaluate(env) and node.epilogue is not None:
        value = np.asarray(node.epilogue.expr.evaluate([value]))
        target = c if node.epilogue.target is None else region(node.epilogue.target, executor, node)
    with np.errstate(over="ignore", invalid="ignore"):
        target[...] = value.reshape(target.shape).astype(target.dtype)


def _panel(panels: Array) -> Array:
    return panels.reshape(panels.shape[-2:]) if panels.size == panels.shape[-1] * panels.shape[-2] else panels
