"""Images of one column: their convolutions as those of images of one row, between views that meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.core.test_join import assert_same, check_plan

from tracea.core.dtype import DType
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.passes.columns import LayColumns, as_row
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.tensor_type import StridedLayout, TensorType

F32 = DType.F32


def column(n: int, c: int, h: int, *, k: int, r: int, **numbers: object) -> Conv2dOp:
    return Conv2dOp(x=TensorType((n, c, h, 1), F32), w=TensorType((k, c, r, 1), F32), **numbers)  # type: ignore[arg-type]


def network() -> Graph:
    """Two convolutions of columns, the first with a bias and a residual, the second strided and padded."""
    graph = Graph()
    x, first, second = (
        graph.add_input(TensorType(shape, F32), name=name)
        for name, shape in (("x", (2, 3, 20, 1)), ("first", (4, 3, 5, 1)), ("second", (6, 4, 3, 1)))
    )
    bias, residual = (
        graph.add_input(TensorType(shape, F32), name=name)
        for name, shape in (("bias", (4, 1, 1)), ("residual", (2, 4, 16, 1)))
    )
    epilogue = Epilogue.of(bias=bias.type, activation="relu", residual=residual.type)
    inner = graph.add(replace(column(2, 3, 20, k=4, r=5), epilogue=epilogue), (x, first, bias, residual), name="inner")
    graph.add(column(2, 4, 16, k=6, r=3, stride=(2, 1), padding=(1, 0)), (inner, second), name="y")
    return Graph.of(graph, ("y",))


def test_columns_are_laid_down_between_views_that_meet(rng: np.random.Generator) -> None:
    before = network()
    laid = LayColumns().apply(before)
    assert_same(before, laid, rng)
    after = run_pipeline(before).graph
    assert_same(before, after, rng)
    check_plan(after)
    made = {node.id: node for node in after if isinstance(node.op, Conv2dOp)}
    assert [node.op.x.static_shape[2:] for node in made.values()] == [(1, 20), (1, 16)]
    inner, outer = made.values()
    assert outer.inputs[0] == inner.id  # the view of a view is none
    assert after.outputs[0].type == before.outputs[0].type


def test_each_number_turns_with_its_axis() -> None:
    op = column(2, 3, 20, k=4, r=5, stride=(2, 3), padding=(4, 0), dilation=(2, 1), size=(9, 1))
    row = as_row(op)
    assert row is not None
    assert (row.stride, row.padding, row.dilation, row.size) == ((3, 2), (0, 4), (1, 2), (1, 9))
    assert (row.x.static_shape, row.w.static_shape, row.shape) == ((2, 3, 1, 20), (4, 3, 1, 5), (2, 4, 1, 9))


@pytest.mark.parametrize(
    "op",
    [
        column(2, 3, 1, k=4, r=1),
        Conv2dOp(x=TensorType((2, 3, 9, 2), F32), w=TensorType((4, 3, 3, 1), F32)),
        Conv2dOp(x=TensorType((2, 3, 9, 1), F32), w=TensorType((4, 3, 3, 3), F32), padding=(0, 1)),
        column(2, 3, 9, k=4, r=3, padding=(0, 1)),
    ],
    ids=["one pixel", "two columns", "taps beside the column", "columns of zeros"],
)
def test_other_images_stay(op: Conv2dOp) -> None:
    assert as_row(op) is None


def test_strides_go_with_their_axes(rng: np.random.Generator) -> None:
    last = TensorType((2, 3, 20, 1), F32, StridedLayout((60, 1, 3, 3)))
    graph = Graph()
    x, w = graph.add_input(last, name="x"), graph.add_input(TensorType((4, 3, 5, 1), F32), name="w")
    graph.add(Conv2dOp(x=x.type, w=w.type), (x, w), name="y")
    assert_same(graph, run_pipeline(Graph.of(graph, ("y",))).graph, rng)
