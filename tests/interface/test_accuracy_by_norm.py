"""Accuracy by norm through the public faces: what is asked for, what it runs, how far it errs, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import tracea
from tracea.core.accuracy import claim
from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp, from_dict
from tracea.core.tensor_type import TensorType
from tracea.doctor.select import decide
from tracea.errors import InvalidOp, InvalidOption
from tracea.targets import load


def image(rng: np.random.Generator, *shape: int) -> np.ndarray:
    n, c, h, w = shape
    return rng.standard_normal((n, h, w, c)).astype(np.float32).transpose(0, 3, 1, 2)


def op_of(accuracy: Accuracy) -> Conv2dOp:
    return Conv2dOp.of(
        batch=2,
        channels=40,
        size=(15, 18),
        filters=24,
        kernel=(3, 3),
        padding=(1, 1),
        channels_last=True,
        accuracy=accuracy,
    )


@pytest.mark.parametrize("accuracy", ["elementwise", "normwise", Accuracy.NORMWISE])
def test_function_keeps_the_contract_that_was_asked_for(accuracy: str, rng: np.random.Generator) -> None:
    x, w = image(rng, 2, 40, 15, 18), rng.standard_normal((24, 40, 3, 3)).astype(np.float32)
    got = tracea.ops.conv2d(x, w, padding=1, accuracy=accuracy)
    expected, bound = claim(op_of(Accuracy.of(accuracy)), [x, w])
    assert np.all(np.abs(got - expected) <= bound)
    other = tracea.ops.conv2d(x, w, padding=1)
    assert (got.tobytes() == other.tobytes()) == (accuracy == "elementwise")


def test_bound_by_norm_is_what_it_says(rng: np.random.Generator) -> None:
    """Zeros under a window allow an error by norm and none by element; an image's largest pixel counts for it alone."""
    x, w = np.zeros((2, 40, 15, 18), np.float32), rng.standard_normal((24, 40, 3, 3)).astype(np.float32)
    x[1, 3, 0, 0] = 2.0
    _, by_element = claim(op_of(Accuracy.ELEMENTWISE), [x, w])
    _, by_norm = claim(op_of(Accuracy.NORMWISE), [x, w])
    assert np.count_nonzero(by_element) <= 4 * 24
    assert not by_norm[0].any()
    eps, constant = float(np.finfo(np.float32).eps), 4 + np.sqrt(360)
    weight = 2.0 * np.abs(w[:, 3].astype(np.float64)).sum(axis=(1, 2))  # of the one channel that is not zero
    wanted = (constant + (88 / 3) ** 2 / 2) * eps * weight
    assert np.all(np.abs(by_norm[1].min(axis=(1, 2)) / wanted - 1) < 0.01)


def test_image_that_is_not_finite_claims_nothing_and_harms_no_other(rng: np.random.Generator) -> None:
    x, w = image(rng, 2, 40, 15, 18), rng.standard_normal((24, 40, 3, 3)).astype(np.float32)
    x[0, 5, 6, 7] = np.nan
    op = op_of(Accuracy.NORMWISE)
    expected, bound = claim(op, [x, w])
    assert np.isinf(bound[0]).all()
    assert np.isfinite(bound[1]).all()
    got = tracea.ops.conv2d(x, w, padding=1, accuracy="normwise")
    assert np.all(np.abs(got[1] - expected[1]) <= bound[1])


def test_contract_is_part_of_the_op_and_of_its_text() -> None:
    by_element, by_norm = op_of(Accuracy.ELEMENTWISE), op_of(Accuracy.NORMWISE)
    assert by_element.key != by_norm.key
    assert "accuracy" not in json.dumps(by_element.to_dict())
    assert from_dict(json.loads(json.dumps(by_norm.to_dict()))) == by_norm
    with pytest.raises(InvalidOp):
        replace(by_norm, accuracy="normwise")  # type: ignore[arg-type]


def test_builder_takes_it_by_name() -> None:
    graph = Graph()
    x = graph.add_input(TensorType((1, 16, 8, 8), DType.F32), name="x")
    w = graph.add_input(TensorType((16, 16, 3, 3), DType.F32), name="w")
    node = graph.add_conv2d(x, w, padding=(1, 1), accuracy="normwise")
    assert isinstance(node.op, Conv2dOp)
    assert node.op.accuracy is Accuracy.NORMWISE


def test_signals_take_it_and_run_the_kernels_they_have(rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 8, 40), (6, 8, 3)))
    by_element, by_norm = (tracea.ops.conv1d(x, w, padding=1, accuracy=each) for each in ("elementwise", "normwise"))
    assert by_norm.tobytes() == by_element.tobytes() == tracea.ops.conv1d(x, w, padding=1).tobytes()


def test_volumes_take_it_by_plane_of_their_filters(rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 40, 4, 15, 18), (24, 40, 3, 3, 3)))
    got = tracea.ops.conv3d(x, w, padding=1, accuracy="normwise")
    other = tracea.ops.conv3d(x, w, padding=1)
    assert got.tobytes() != other.tobytes()
    exact = np.zeros(got.shape)
    bound = np.zeros(got.shape)
    for plane, tap in product(range(4), range(3)):
        if 0 <= (source := plane + tap - 1) < 4:
            operands = (np.ascontiguousarray(x[:, :, source]), np.ascontiguousarray(w[:, :, tap]))
            op = Conv2dOp.of(
                batch=1,
                channels=40,
                size=(15, 18),
                filters=24,
                kernel=(3, 3),
                padding=(1, 1),
                accuracy=Accuracy.NORMWISE,
            )
            expected, allowed = claim(op, list(operands))
            exact[:, :, plane] += expected
            bound[:, :, plane] += allowed
    assert np.all(np.abs(got - exact) <= bound)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
def test_every_convolution_refuses_an_unknown_contract(name: str) -> None:
    axes = {"conv1d": 1, "conv2d": 2, "conv3d": 3}[name]
    x, w = np.zeros((1, 4, *[6] * axes), np.float32), np.zeros((4, 4, *[3] * axes), np.float32)
    with pytest.raises(InvalidOption, match="normwise") as raised:
        getattr(tracea.ops, name)(x, w, accuracy="norm")
    assert raised.value.field == "accuracy"


@pytest.mark.parametrize("given", ["norm", "", 3, None, "Normwise"])
def test_unknown_contract_is_refused_with_those_that_there_are(given: object, rng: np.random.Generator) -> None:
    x, w = image(rng, 1, 4, 6, 6), np.zeros((4, 4, 3, 3), np.float32)
    with pytest.raises(InvalidOption, match="normwise") as raised:
        tracea.ops.conv2d(x, w, accuracy=given)  # type: ignore[arg-type]
    assert raised.value.field == "accuracy"


def test_fewer_products_come_before_matrix_tiles_where_many_pixels_share_the_filters() -> None:
    def first(size: int, *, target: str = "amx", accuracy: Accuracy = Accuracy.NORMWISE) -> str:
        op = Conv2dOp.of(
            batch=1, channels=64, size=(size, size), filters=64, kernel=(3, 3), padding=(1, 1), accuracy=accuracy
        )
        return decide(op, load(target), constants=(1,)).variant

    assert (first(56), first(14)) == ("conv.winograd_prepacked", "conv.amx_prepacked")
    assert first(56, accuracy=Accuracy.ELEMENTWISE) == "conv.amx_prepacked"
    assert (first(56, target="avx512"), first(14, target="avx512")) == ("conv.winograd_prepacked",) * 2
