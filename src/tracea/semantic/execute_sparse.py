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
    """Execute a product over the blocks of a line, or of each of several.

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
    lines = int(node.lines.evaluate(env))
    for line in range(lines):
        place = slice(None) if lines == 1 else slice(line * node.size, (line + 1) * node.size)
        _add_line(node, executor, line, (a, b), value[:, place])
    if node.accumulate.evaluate(env):
        value = value + c.astype(dtype).reshape(value.shape)
    target = c
    if node.finish.evaluate(env) and node.epilogue is not None:
        value = np.asarray(node.epilogue.expr.evaluate([value]))
        target = c if node.epilogue.target is None else region(node.epilogue.target, executor, node)
    with np.errstate(over="ignore", invalid="ignore"):
        target[...] = value.reshape(target.shape).astype(target.dtype)


def _add_line(node: RunProduct, executor: Executor, line: int, operands: tuple[Array, Array], value: Array) -> None:
    (a, b), env, run = operands, executor.env, node.run + line
    begin, count = int(node.runs.begin(run).evaluate(env)), int(node.runs.length(run).evaluate(env))
    depth, base = int(node.depth.evaluate(env)), int(node.base.evaluate(env))
    rows, columns = value.shape
    for block in range(begin, begin + count):
        first = int(env[node.runs.step][block]) * node.size
        steps = min(node.size, depth - first)
        if steps < 1 or first < base:
            raise RunError(kernel="RunProduct", detail=f"block {block} begins at step {first} of {base} .. {depth}")
        ours = a[..., first - base : first - base + steps, :].astype(value.dtype)
        theirs = b[block, :, :steps, :].astype(value.dtype)
        part = np.asarray(node.intrinsic.meaning(_panel(ours), _panel(theirs)))
        value += part[:rows, :columns]


def _panel(panels: Array) -> Array:
    return panels.reshape(panels.shape[-2:]) if panels.size == panels.shape[-1] * panels.shape[-2] else panels
