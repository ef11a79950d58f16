"""Refusals of the functional face name what was given, what is taken, and a remedy that fits the case at hand."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.core.expr import Input, maximum
from tracea.errors import InvalidDType, InvalidOp, InvalidOption, InvalidShape, InvalidStride, ReadOnlyOutput
from tracea.ops import (
    attention,
    attention_backward,
    block_sparse_matmul,
    fuse,
    gemm,
    layer_norm,
    prepack,
    rms_norm,
    softmax,
)

X = np.ones((3, 4), np.float32)
Y = np.ones((5, 4), np.float32)
ONE_BLOCK = np.ones((1, 1), bool)
Q = np.ones((1, 1, 100, 8), np.float32)


@pytest.mark.parametrize("dtype", [np.complex64, object, ">f4", np.uint16])
def test_lists_of_element_types_name_those_that_an_op_takes(dtype: Any) -> None:
    with pytest.raises(InvalidDType, match="x: got ") as caught:
        softmax(X.astype(dtype))
    assert caught.value.expected == ("f64", "f32", "f16", "bf16")
    with pytest.raises(InvalidDType, match="x: got ") as caught:
        tracea.ops.sum(X.astype(dtype))
    assert caught.value.expected == ("f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool")


def test_a_numpy_scalar_is_not_called_by_its_element_type() -> None:
    with pytest.raises(InvalidDType, match=r"got a NumPy scalar, .*3\.0.*, expected .*with numpy.asarray$"):
        softmax(np.float32(3))
    with pytest.raises(InvalidDType, match="got the class float32, expected"):
        softmax(np.float32)


def test_an_output_that_cannot_be_written_is_not_a_matter_of_its_strides() -> None:
    out = np.zeros((3, 3), np.float32)
    out.flags.writeable = False
    with pytest.raises(ReadOnlyOutput, match="out: got read-only memory") as caught:
        gemm(X, np.ones((4, 3), np.float32), out=out)
    assert isinstance(caught.value, InvalidStride)  # what caught it before still does


def test_a_chain_of_elementwise_steps_writes_to_an_output_of_any_strides() -> None:
    x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    out = np.full((4, 3), 7, np.float32)
    assert fuse(["relu"])(x, out=out.T).base is out
    np.testing.assert_array_equal(out, np.maximum(x, 0).T)
    with pytest.raises(InvalidShape, match=r"^out: got"):
        fuse(["relu"])(x, out=out)
    with pytest.raises(InvalidDType, match=r"^out: got"):
        fuse(["relu"])(x, out=out.T.astype(np.float64))


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: gemm(X, Y), "give b.T in place of b: so the inner extents agree"),
        (lambda: gemm(X, Y[None]), "give b.swapaxes(-1, -2) in place of b: so the inner extents agree"),
        (lambda: gemm(X, np.ones((3, 9), np.float32)), "give a.T in place of a: so the inner extents agree"),
        (
            lambda: gemm(X, np.ones((7, 3), np.float32)),
            "exchange a and b, or give a.T and b.T: so the inner extents agree",
        ),
        (lambda: gemm(X, np.ones((7, 9), np.float32)), "make the inner extents agree"),
        (lambda: gemm(X, X[0]), "give each a row and a column axis: a[None, :] or b[:, None]"),
        (lambda: gemm(X, prepack(Y)), "pack it turned: prepack(weight.T)"),
        (
            lambda: block_sparse_matmul(X, Y, ONE_BLOCK, block_size=32),
            "give b.T in place of b: so the inner extents agree",
        ),
        (lambda: block_sparse_matmul(X[None], Y, ONE_BLOCK, block_size=32), "a.reshape(-1, 4), and the result back"),
    ],
)
def test_a_factor_that_fits_when_turned_is_named(call: Any, remedy: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        call()
    assert caught.value.remedy == remedy


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
@pytest.mark.parametrize("given", [4, (4,), [4], torch.Size([4])])
def test_a_normalized_shape_in_place_of_the_weight_is_told_to_be_left_out(norm: Any, given: Any) -> None:
    with pytest.raises(InvalidDType, match=r"^weight: got .*leave out the normalized shape"):
        norm(X, given)


def test_a_block_size_that_was_not_given_is_asked_for_or_named() -> None:
    with pytest.raises(InvalidOp, match=r"block_size: got None, expected whole numbers from 1 on.*block_size=32"):
        block_sparse_matmul(X, X.T, ONE_BLOCK)
    with pytest.raises(InvalidShape, match=r"expected \(2, 2\) for block_size 64, with axes.*by default 64"):
        attention(Q, Q, Q, block_mask=np.ones((4, 4), bool))
    with pytest.raises(InvalidShape, match=r"expected \(4, 2\) for block_size \(32, 64\), with"):
        attention(Q, Q, Q, block_mask=np.ones((4, 4), bool), block_size=(32, 64))
    for given in ({}, {"window": 2, "global_tokens": 1}, {"lengths": [Q.shape[2]]}):
        with pytest.raises(
            InvalidOp, match=r"block_size: got 64, expected a block_mask beside it.*leave block_size out"
        ):
            attention(Q, Q, Q, block_size=64, **given)


@pytest.mark.parametrize("other", ["a", "3", object(), None, X, 10**400])
def test_an_expression_takes_numbers_and_expressions(other: Any) -> None:
    for call in (lambda: Input(0) * other, lambda: Input(0) < other, lambda: maximum(Input(0), other)):
        with pytest.raises(InvalidOp, match=r"expected an expression, or a number that a double holds.*Input"):
            call()
    assert (Input(0) * np.float32(2)).evaluate([3.0]) == 6.0


def test_operands_of_a_score_are_asked_for_as_they_are_taken() -> None:
    with pytest.raises(InvalidOp, match=r"expected Input\(0\), the scaled product, alone"):
        attention(Q, Q, Q, score=Input(0) + Input(1))
    with pytest.raises(InvalidOp, match=r"got ndarray, .*operands=\(x,\) for one of them"):
        attention(Q, Q, Q, score=Input(0) + Input(1), operands=Q)


def test_a_programs_element_types_are_said_in_one_spelling() -> None:
    graph = tracea.Graph()
    graph.set_outputs(graph.add_row("softmax", graph.add_input((3, 4))))
    program = tracea.Context(threads=1).optimize_graph(graph)
    with pytest.raises(InvalidDType, match="input 0: got f64, expected f32"):
        program.run(X.astype(np.float64))


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: attention(Q, Q, Q, is_causal=True), "use causal=True, if that was meant"),
        (lambda: attention(Q, Q, Q, attn_mask=ONE_BLOCK), "use mask=, if that was meant"),
        (
            lambda: attention_backward(Q, Q, Q, Q, Q, block_mask=ONE_BLOCK),
            r"repeat its blocks to a mask= of \(\.\.\., s, t\)",
        ),
        (lambda: attention(Q, Q, Q, dropout_p=0.1), "leave dropout_p out"),
        (lambda: tracea.ops.conv2d(Q, Q, strides=2, activatoin="relu"), "use stride=2, .*; use activation='relu', if"),
        (lambda: tracea.ops.conv3d_grad_weight(Q, Q, (1,), pading=1), "use padding=1, if that was meant"),
        (lambda: tracea.ops.conv2d(input=Q, weight=Q), "use x=, if that was meant"),
        (lambda: tracea.ops.conv2d(Q, Q, padding_mode="reflect"), "pad x first, .* and leave padding_mode out"),
    ],
)
def test_an_unknown_keyword_is_told_those_that_there_are(call: Any, remedy: str) -> None:
    with pytest.raises(InvalidOption, match=f"Remedy: {remedy}") as caught:
        call()
    assert isinstance(caught.value, TypeError)  # what Python raises for it
    name = caught.value.field.removesuffix("()")
    assert caught.value.expected == tuple(inspect.signature(getattr(tracea.ops, name)).parameters)
    assert pickle.loads(pickle.dumps(caught.value)).to_dict() == caught.value.to_dict()


def test_a_padding_of_each_side_is_done_before() -> None:
    with pytest.raises(InvalidOp, match=r"padding: got .*Remedy: pad each side of x first"):
        tracea.ops.conv2d(Q, Q, padding=(1, 0, 1, 0))


def test_other_type_errors_of_a_call_are_left_as_they_are() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'v'"):
        attention(Q, Q)  # type: ignore[call-arg]
    with pytest.raises(InvalidDType):
        tracea.ops.conv2d("x", Q, stride=1)


def _zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: tracea.ops.conv2d(_zeros(1, 3, 8, 8), _zeros(4, 3, 3)), "give weight as (k, c/groups, r, s)"),
        (lambda: tracea.ops.conv2d(_zeros(3, 8, 8), _zeros(4, 3, 3, 3)), "x[None] is a batch of one image"),
        (
            lambda: tracea.ops.conv2d(_zeros(1, 1, 3, 8, 8), _zeros(4, 3, 3, 3)),
            "join the first 2 axes: x.flatten(0, 1)",
        ),
        (
            lambda: tracea.ops.conv3d(_zeros(1, 3, 8, 8), _zeros(4, 3, 3, 3)),
            "conv2d takes four axes each; x[None] is a batch of one volume; give weight as (k, c/groups, t, r, s)",
        ),
        (
            lambda: tracea.ops.conv_transpose2d(_zeros(1, 3, 8, 8), _zeros(3, 3)),
            "give weight as (c, k/groups, r, s)",
        ),
        (lambda: tracea.ops.max_pool2d(_zeros(8, 8), 2), "add the 2 axes that x lacks"),
        (lambda: attention(Q[0], Q, Q), "q[None] is a batch of one"),
        (lambda: attention(Q.astype(np.int32), Q, Q), "convert integers to floats"),
    ],
)
def test_an_operand_of_too_few_axes_or_too_many_is_the_one_that_is_mended(call: Any, remedy: str) -> None:
    with pytest.raises((InvalidShape, InvalidDType)) as caught:
        call()
    assert caught.value.remedy == remedy
