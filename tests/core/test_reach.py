"""Long steps: a convolution of the taps that meet the image, and of the pixels that they read, has the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.core.test_join import assert_same

from tracea.core.dtype import DType
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.passes.reach import reach_of
from tracea.core.reference import evaluate
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp, InvalidShape

F32 = DType.F32


def conv(image: tuple[int, int], taps: tuple[int, int], **numbers: Any) -> Conv2dOp:
    return Conv2dOp(x=TensorType((1, 2, *image), F32), w=TensorType((3, 2, *taps), F32), **numbers)


def reached(op: Conv2dOp) -> Conv2dOp:
    reach = reach_of(op)
    assert reach is not None
    return reach.op(TensorType(reach.x[2], F32), TensorType(reach.w[2], F32))


def test_taps_that_never_meet_the_image_are_left_out() -> None:
    op = reached(conv((9, 11), (3, 3), dilation=(1000, 30000), padding=(1000, 30000)))
    assert (op.w.shape, op.padding, op.dilation, op.shape) == ((3, 2, 1, 1), (0, 0), (1, 1), (1, 3, 9, 11))
    reach = reach_of(conv((9, 11), (3, 1), dilation=(20, 1), padding=(21, 0), size=(9, 11), turned=True))
    assert reach is not None
    assert (reach.rows.tap, reach.rows.taps) == (1, 1)  # the middle one; the outer two lie above and below


def test_pixels_that_no_tap_reads_are_stepped_over() -> None:
    reach = reach_of(conv((1, 20000), (1, 1), stride=(1, 4000)))
    assert reach is not None
    assert (reach.columns.step, reach.columns.pixels, reach.columns.stride) == (4000, 5, 1)
    both = reached(conv((300, 300), (3, 3), stride=(128, 256), dilation=(128, 128), padding=(128, 0)))
    assert (both.x.shape[2:], both.stride, both.dilation, both.padding) == ((3, 3), (1, 1), (1, 1), (1, 0))


def test_windows_that_meet_no_pixel_are_of_zeros(rng: np.random.Generator) -> None:
    op = conv((9, 9), (2, 2), dilation=(2000, 1), padding=(1000, 0))
    found = reached(op)
    assert (found.x.shape, found.w.shape) == ((1, 2, 1, 1), (3, 2, 1, 1))
    pixels, taps = rng.standard_normal((1, 2, 1, 1)), rng.standard_normal((3, 2, 1, 1))
    assert not evaluate(found, [pixels, taps]).any()
    assert found.shape == op.shape


def test_random_long_steps_keep_the_result(rng: np.random.Generator) -> None:
    changed = 0
    for _ in range(400):
        steps = [tuple(int(n) for n in rng.choice([1, 2, 3, 16, 17, 20, 24, 36, 40, 51], 2)) for _ in range(2)]
        size, taps = (tuple(int(n) for n in rng.integers(1, most, 2)) for most in (60, 5))
        padding = tuple(int(n) for n in rng.choice([0, 1, 17, 20, 34, 80], 2))
        stated = {"size": (int(rng.integers(1, 5)), int(rng.integers(1, 5)))} if rng.integers(3) == 0 else {}
        numbers = {"stride": steps[0], "dilation": steps[1], "padding": padding, "turned": bool(rng.integers(2))}
        try:
            op = conv(size, taps, **numbers, **stated)  # type: ignore[arg-type]
        except (InvalidOp, InvalidShape):
            continue  # no result
        reach = reach_of(op)
        if reach is None:
            continue
        changed += 1
        operands = [rng.integers(-5, 5, type_.static_shape).astype(np.float32) for type_ in (op.x, op.w)]
        views = [_view(array, *part) for array, part in zip(operands, (reach.x, reach.w), strict=True)]
        found = reached(op)
        assert np.array_equal(evaluate(op, operands), evaluate(found, views)), op
        assert reach_of(found) is None
    assert changed > 100


def _view(
    array: np.ndarray[Any, Any], starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    axes = zip(starts, steps, shape, strict=True)
    return array[tuple(slice(start, start + step * (size - 1) + 1, step) for start, step, size in axes)]


@pytest.mark.parametrize(
    "op",
    [
        conv((224, 224), (7, 7), stride=(2, 2), padding=(3, 3)),
        conv((56, 56), (1, 1), stride=(2, 2)),
        conv((1, 1), (3, 3), padding=(1, 1)),
        conv((224, 224), (16, 16), stride=(16, 16)),
        conv((224, 224), (32, 32), stride=(32, 32)),
        conv((64, 64), (3, 3), dilation=(24, 24), padding=(24, 24)),
    ],
    ids=["stem", "every second pixel", "one pixel", "patches", "longer patches", "dilated"],
)
def test_ordinary_layers_stay(op: Conv2dOp) -> None:
    assert reach_of(op) is None


def test_a_graph_reads_views(rng: np.random.Generator) -> None:
    graph = Graph()
    last = TensorType((2, 3, 9, 11), F32, StridedLayout((297, 1, 33, 3)))
    shapes = ((4, 3, 3, 3), (5, 4, 1, 2))
    x, first, second = graph.add_input(last, name="x"), *(graph.add_input(TensorType(each, F32)) for each in shapes)
    far = graph.add(Conv2dOp(x=last, w=first.type, dilation=(50, 40), padding=(50, 39)), (x, first), name="far")
    graph.add(Conv2dOp(x=far.type, w=second.type, stride=(17, 1), padding=(17, 1)), (far, second), name="y")
    before = Graph.of(graph, ("y",))
    after = run_pipeline(before)
    assert_same(before, after.graph, rng)
    convolutions = [node.op for node in after.graph if isinstance(node.op, Conv2dOp)]
    assert [op.w.static_shape[2:] for op in convolutions] == [(1, 1), (1, 2)]
    assert [op.stride for op in convolutions] == [(1, 1), (1, 1)]
