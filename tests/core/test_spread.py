"""Pixels of images inside of a graph lie apart where they would share sets of the caches, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.graph import Graph, Node
from tracea.core.op import SourceOp
from tracea.core.ops.images import image_type
from tracea.core.passes.memory import plan_memory
from tracea.core.passes.spread import SpreadPixels
from tracea.core.reference import run


def conv(
    graph: Graph, x: Node, filters: int, name: str, *, kernel: int = 1, residual: Node | None = None, out: bool = True
) -> Node:
    w = graph.add_constant((filters, x.type.static_shape[1], kernel, kernel), name=f"{name}_w")
    made = image_type((2, filters, 5, 5), DType.F32, channels_last=True)
    return graph.add_conv2d(
        x, w, padding=kernel // 2, residual=residual, out=made if out else None, activation="relu", name=name
    )


def block(filters: int = 256, *, kernel: int = 1, returned: bool = False, in_rows: bool = False) -> Graph:
    """A wide image that a residual of the next wide one is, and a reader behind it; ``sum`` may be returned too."""
    graph = Graph()
    x = graph.add_input(image_type((2, 8, 5, 5), DType.F32, channels_last=True), name="x")
    first = conv(graph, x, filters, "first", kernel=kernel, out=not in_rows)
    inner = conv(graph, first, 8, "inner")
    summed = conv(graph, inner, filters, "sum", kernel=kernel, residual=first, out=not in_rows)
    last = conv(graph, summed, 8, "last")
    graph.set_outputs(last, summed) if returned else graph.set_outputs(last)
    return graph


def strides(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {node.id: node.type.strides for node in graph if not isinstance(node.op, SourceOp)}


def test_what_only_convolutions_read_has_a_gap_between_its_pixels(rng: np.random.Generator) -> None:
    graph = block()
    apart = SpreadPixels().apply(graph)
    assert strides(apart)["first"] == strides(apart)["sum"] == (25 * 272, 1, 5 * 272, 272)
    assert strides(apart)["inner"] == strides(apart)["last"] == (25 * 8, 1, 5 * 8, 8)
    assert plan_memory(apart).placements["first"].nbytes >= (2 * 25 * 272 - 16) * 4
    values = {node.id: rng.standard_normal(node.type.static_shape) for node in graph if isinstance(node.op, SourceOp)}
    found, expected = run(apart, values), run(graph, values)
    np.testing.assert_allclose(found["last"], expected["last"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("graph", [block(255), block(64), block(kernel=3), block(in_rows=True)])
def test_other_channels_filters_of_several_taps_and_images_in_rows_stay_as_they_are(graph: Graph) -> None:
    assert strides(SpreadPixels().apply(graph)) == strides(graph)


def test_what_is_returned_stays_dense() -> None:
    apart = strides(SpreadPixels().apply(block(returned=True)))
    assert apart["sum"] == (25 * 256, 1, 5 * 256, 256)
    assert apart["first"] == (25 * 272, 1, 5 * 272, 272)
