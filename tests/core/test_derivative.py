"""Derivatives of expressions against differences of their values, and what has none."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.derivative import derivative
from tracea.core.dtype import DType
from tracea.core.expr import (
    Binary,
    BinaryFunction,
    Cast,
    Constant,
    Expr,
    Input,
    Unary,
    UnaryFunction,
    activation,
    activation_names,
    exp,
    maximum,
    minimum,
    select,
    sigmoid,
    sin,
    tanh,
)
from tracea.errors import InvalidOp

X, Y = Input(0), Input(1)
SMOOTH: dict[str, Expr] = {
    "sum": X + Y * 2.0 - X * Y,
    "quotient": (X + 1.0) / (Y * Y + X * X + 1.0),
    "cap": tanh(X / 5.0) * 5.0 + Y,
    "chain": sin(exp(sigmoid(X * Y))),
    "choice": select(Binary(BinaryFunction.GT, Y, Constant(0.0)), X * X, X * 3.0),
    "nested": maximum(minimum(X * 2.0, Y + 40.0), Y - 40.0),
    "negated": -(X * X * X),
    **{
        function.value: Unary(function, X * X + 0.5)
        for function in UnaryFunction
        if function is not UnaryFunction.FLOOR
    },
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("index", [0, 1])
def test_a_derivative_is_the_limit_of_differences(name: str, index: int, rng: np.random.Generator) -> None:
    inputs = list(rng.uniform(0.2, 2.0, (2, 50)))
    step = 1e-6
    up, down = ([x + sign * step if i == index else x for i, x in enumerate(inputs)] for sign in (1.0, -1.0))
    wanted = (SMOOTH[name].evaluate(up) - SMOOTH[name].evaluate(down)) / (2 * step)
    got = derivative(SMOOTH[name], index)
    for found in (got, got.simplify()):
        np.testing.assert_allclose(np.broadcast_to(found.evaluate(inputs), 50), wanted, rtol=1e-5, atol=1e-6)


def test_corners_have_the_derivatives_of_torch() -> None:
    torch = pytest.importorskip("torch")
    values = np.array([-2.0, -0.0, 0.0, 3.0])
    for expr, function in (
        (maximum(X, 0.0), lambda x: torch.maximum(x, torch.zeros(()))),
        (minimum(X, 0.0), lambda x: torch.minimum(x, torch.zeros(()))),
        (Unary(UnaryFunction.ABS, X), torch.abs),
        (Unary(UnaryFunction.FLOOR, X), torch.floor),
    ):
        x = torch.tensor(values, requires_grad=True)
        function(x).sum().backward()
        got = np.broadcast_to(derivative(expr, 0).evaluate([values]), values.shape)
        np.testing.assert_array_equal(got, x.grad.numpy())


def test_every_activation_has_a_derivative_or_says_that_it_has_none(rng: np.random.Generator) -> None:
    x = rng.uniform(0.1, 2.0, 20)
    for name in activation_names():
        expr = activation(name)
        got = np.broadcast_to(derivative(expr, 0).evaluate([x]), x.shape)
        wanted = (expr.evaluate([x + 1e-6]) - expr.evaluate([x - 1e-6])) / 2e-6
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_comparisons_are_flat_and_what_does_not_depend_is_zero() -> None:
    assert derivative(Binary(BinaryFunction.LT, X, Y), 0) == Constant(0.0)
    assert derivative(Y * Y, 0) == Constant(0.0)
    assert derivative(X + Y, 0) == Constant(1.0)
    assert derivative(Cast(Y, DType.BF16) + X, 0) == Constant(1.0)


def test_powers_and_casts_are_refused() -> None:
    for expr in (Binary(BinaryFunction.POW, X, Y), Cast(X, DType.BF16)):
        with pytest.raises(InvalidOp, match="Remedy: "):
            derivative(expr, 0)
