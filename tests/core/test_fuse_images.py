"""Pointwise work over pixels goes into the convolution that makes them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, PointwiseOp, SourceOp, ViewKind, ViewOp
from tracea.core.ops.images import image_type
from tracea.core.passes.fuse_images import TO_IMAGE, TO_PIXELS, FuseImages
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.reference import run


def network(*, shared: bool = False) -> Graph:
    """relu(conv(x) + bias) * other over pixels; ``shared`` returns the convolution as well."""
    graph = Graph()
    x = graph.add_input(image_type((2, 3, 6, 5), DType.F32, channels_last=True), name="x")
    w, bias = graph.add_constant((4, 3, 3, 3), name="w"), graph.add_constant((4,), name="bias")
    other = graph.add_input((2, 4, 3, 4), name="other")
    conv = graph.add_conv2d(x, w, out=image_type((2, 4, 4, 3), DType.F32, channels_last=True), name="conv")
    pixels = graph.add_view(ViewKind.PERMUTE, conv, axes=TO_PIXELS, name="pixels")
    expr = activation("relu").substitute({0: Input(0) + Input(1)}) * Input(2)
    done = graph.add_pointwise(expr, pixels, bias, other, name="done")
    image = graph.add_view(ViewKind.PERMUTE, done, axes=TO_IMAGE, name="image")
    graph.set_outputs(image, conv) if shared else graph.set_outputs(image)
    return graph


def kernels(graph: Graph) -> list[Node]:
    return [node for node in graph if not isinstance(node.op, SourceOp | ViewOp)]


def check_same(before: Graph, after: Graph, rng: np.random.Generator) -> None:
    sources = [node for node in before if isinstance(node.op, SourceOp)]
    values = {node.id: rng.standard_normal(node.type.static_shape) for node in sources}
    found, expected = run(after, values), run(before, values)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)


def test_the_convolution_takes_the_work_and_keeps_its_order(rng: np.random.Generator) -> None:
    graph = network()
    fused = FuseImages().apply(graph)
    (conv,) = kernels(fused)
    assert isinstance(conv.op, Conv2dOp)
    assert conv.type == image_type((2, 4, 4, 3), DType.F32, channels_last=True)
    assert conv.fused == ("conv",)
    assert [tensor.shape for tensor in conv.op.epilogue.operands] == [(4, 1, 1), (2, 4, 4, 3)]
    check_same(graph, fused, rng)


def test_a_result_that_others_read_keeps_its_work_apart(rng: np.random.Generator) -> None:
    graph = network(shared=True)
    fused = FuseImages().apply(graph)
    assert [type(node.op) for node in kernels(fused)] == [Conv2dOp, PointwiseOp]
    check_same(graph, fused, rng)


def test_the_pipeline_leaves_one_kernel_and_its_names(rng: np.random.Generator) -> None:
    graph = network()
    result = run_pipeline(graph)
    (conv,) = [node for node in kernels(result.graph) if isinstance(node.op, Conv2dOp)]
    assert result.graph["conv"] is conv
    check_same(graph, result.graph, rng)


@pytest.mark.parametrize("over_pixels", [False, True])
def test_of_two_whose_results_are_added_each_keeps_its_own_norm(over_pixels: bool, rng: np.random.Generator) -> None:
    graph = Graph()
    x = graph.add_input(image_type((2, 3, 6, 5), DType.F32, channels_last=over_pixels), name="x")

    def normalized(name: str) -> Node:
        made = image_type((2, 4, 4, 3), DType.F32, channels_last=over_pixels)
        conv = graph.add_conv2d(x, graph.add_constant((4, 3, 3, 3), name=f"{name}_w"), out=made, name=name)
        image = graph.add_view(ViewKind.PERMUTE, conv, axes=TO_PIXELS) if over_pixels else conv
        scale, shift = (graph.add_constant((4,) if over_pixels else (4, 1, 1), name=f"{name}_{i}") for i in range(2))
        return graph.add_pointwise(Input(0) * Input(1) + Input(2), image, scale, shift)

    body, shortcut = normalized("body"), normalized("shortcut")
    graph.set_outputs(graph.add_pointwise(activation("relu").substitute({0: Input(0) + Input(1)}), body, shortcut))
    result = run_pipeline(graph)
    first, last = (node.op for node in kernels(result.graph) if isinstance(node.op, Conv2dOp))
    assert [len(op.epilogue.operands) for op in (first, last) if isinstance(op, Conv2dOp)] == [2, 3]
    assert all(isinstance(node.op, Conv2dOp) for node in kernels(result.graph)[:2])
    check_same(graph, result.graph, rng)


def test_pixels_of_a_row_major_convolution_stay_as_their_readers_know_them(rng: np.random.Generator) -> None:
    graph = Graph()
    x, w = graph.add_input((2, 3, 6, 5), name="x"), graph.add_constant((4, 3, 1, 1), name="w")
    pixels = graph.add_view(ViewKind.PERMUTE, graph.add_conv2d(x, w), axes=TO_PIXELS)
    done = graph.add_pointwise(activation("relu"), pixels, name="done")
    graph.set_outputs(graph.add_view(ViewKind.PERMUTE, done, axes=TO_IMAGE))
    check_same(graph, FuseImages().apply(graph), rng)
