"""The float64 reference: what every op, and every graph of them, means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracea.core.accuracy import claim, error_bound
from tracea.core.function import Array
from tracea.core.graph import Graph
from tracea.core.meaning import bind_op, epilogue_of, main_value, sources
from tracea.core.op import Op, SourceOp
from tracea.core.tensor_type import SymbolicDim
from tracea.errors import InvalidInput, InvalidShape

__all__ = ["claim", "error_bound", "evaluate", "run"]


def evaluate(op: Op, inputs: Sequence[Any], *, rounded: bool = False) -> Array:
    """Return an op's result in float64; ``rounded`` rounds it once to the result's storage type.

    Inputs are arrays of the operands' shapes, in any memory layout; symbolic extents are taken from them. Integers
    beyond 2^53 are not exact.

    Raises:
        InvalidShape: the inputs do not fit the operands.
    """
    op = bind_op(op, inputs)
    arrays = sources(op, inputs)
    epilogue = epilogue_of(op)
    value = main_value(op, arrays)
    if not epilogue.is_identity:
        extras = arrays[len(arrays) - len(epilogue.operands) :]
        value = np.broadcast_to(epilogue.expr.evaluate([value, *extras]), value.shape)
    return op.infer().dtype.round(value) if rounded else value


def run(graph: Graph, bindings: Mapping[str, Any], *, rounded: bool = False) -> dict[str, Array]:
    """Return the value of each output, by id; ``bindings`` gives the data of each input and constant, by id.

    Symbolic extents are taken from the data. ``rounded`` rounds every node's value to its storage type, sources
    included, which is what a kernel per node would do.

    Raises:
        InvalidInput: a source has no data.
        InvalidShape: the data do not fit a source's type.
    """
    sources = [node for node in graph if isinstance(node.op, SourceOp)]
    missing = [node.id for node in sources if node.id not in bindings]
    if missing:
        raise InvalidInput(
            field="bindings", got=sorted(bindings), expected=missing, remedy="bind every input and constant by its id"
        )
    values = {node.id: np.asarray(bindings[node.id]).astype(np.float64) for node in sources}
    graph = graph.bind(_extents(graph, values)) if graph.symbolic_dims else graph
    for node in graph:
        if isinstance(node.op, SourceOp):
            value = values[node.id]
            if value.shape != node.type.static_shape:
                raise InvalidShape(
                    field=node.id, got=value.shape, expected=node.type.shape, remedy="bind data of the source's shape"
                )
        else:
            value = evaluate(node.op, [values[name] for name in node.inputs])
        values[node.id] = node.type.dtype.round(value) if rounded else value
    return {node.id: values[node.id] for node in graph.outputs}


def _extents(graph: Graph, values: Mapping[str, Array]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in values.items():
        for dim, extent in zip(graph[name].type.shape, value.shape, strict=False):
            if isinstance(dim, SymbolicDim) and found.setdefault(dim.name, extent) != extent:
                raise InvalidShape(
                    field=dim.name, got=(found[dim.name], extent), expected="one extent", remedy="bind data that agree"
                )
    return found
