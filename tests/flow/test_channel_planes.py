"""Gradients of group and batch norms of images in rows: which layouts are planes along memory, and their views."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.slab_cases import F32, tensor

import tracea
from tracea.core.tensor_type import TensorType
from tracea.flow.channel_planes import norm_of_planes


def planes(x: TensorType, grad: TensorType | None = None, groups: int = 2) -> tuple[tuple[int, ...], ...] | None:
    """Return the shape and strides of x as the op has it, None where it is none."""
    weight = tensor(x.static_shape[1])
    op = norm_of_planes(grad or x, x, weight, groups=groups, eps=1e-5, threads=1)
    return None if op is None else (op.x.static_shape, op.x.strides)


def test_images_in_rows_are_planes_whatever_lies_between_them() -> None:
    assert planes(tensor(3, 4, 6, 7)) == ((3, 2, 2, 42), (168, 84, 42, 1))
    assert planes(tensor(3, 4, 6, 7), groups=0) == ((3, 4, 42), (168, 42, 1))
    assert planes(tensor(3, 4, 50)) == ((3, 2, 2, 50), (200, 100, 50, 1))
    assert planes(tensor(2, 4, 5, 7, strides=(900, 100, 7, 1))) == ((2, 2, 2, 35), (900, 200, 100, 1))
    assert planes(tensor(2, 4, 1, 40, strides=(160, 40, 999, 1))) == ((2, 2, 2, 40), (160, 80, 40, 1))


@pytest.mark.parametrize("groups", [0, 2])
def test_other_layouts_are_left_to_slabs(groups: int) -> None:
    last = tensor(2, 4, 6, 7, strides=(168, 1, 28, 4))
    narrow = tensor(2, 4, 6, 7, strides=(320, 80, 10, 1))
    turned = tensor(2, 4, 6, 7, strides=(42, 84, 7, 1))
    repeated = tensor(2, 4, 6, 7, strides=(0, 0, 0, 0))
    for x in (last, narrow, turned, tensor(2, 4), tensor(2, 4, 5), tensor(2, 4, 5, 6)):
        assert planes(x, groups=groups) is None
    for grad in (last, narrow, repeated):
        assert planes(tensor(2, 4, 6, 7), grad, groups=groups) is None


def test_planes_apart_and_weights_apart_give_the_same(rng: np.random.Generator) -> None:
    x, grad, weight = (rng.standard_normal(shape).astype(F32.numpy) for shape in ((3, 12, 8, 9), (3, 12, 8, 9), (24,)))
    for taken in (slice(None, None, 2), slice(None, 6)):
        for call in (
            lambda *each: tracea.ops.group_norm_backward(each[0], each[1], 3, each[2]),
            tracea.ops.batch_norm_training_backward,
        ):
            given = (grad[:, taken], x[:, taken], weight[::2][:6])
            found, wanted = call(*given), call(*(np.ascontiguousarray(each) for each in given))
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.tobytes() == theirs.tobytes()
