"""The slopes of the activations by name, over ``Input(0)``: derivatives, and at kinks what torch takes."""

from __future__ import annotations

from tracea.core.activation import ACTIVATIONS
from tracea.core.derivative import derivative
from tracea.core.expr import Constant, Expr, Input, Select, activation, exp, maximum, select, sigmoid, tanh

__all__ = ["backward_of", "slope_of"]

_X = Input(0)


def _between(low: float, high: float, inside: Expr) -> Expr:
    """Return a slope that is zero up to ``low`` and from ``high`` on; a NaN counts as inside."""
    x = _X
    return select(x <= low, 0.0, select(x >= high, 0.0, inside))


def _mish() -> Expr:
    t = tanh(ACTIVATIONS["softplus"])
    return t + _X * ((1.0 - t * t) * sigmoid(_X))


# Those with kinks, and those whose derivative by the rules would lose digits or be long.
_SLOPES: dict[str, Expr] = {
    "relu": select(_X <= 0.0, 0.0, 1.0),
    "relu6": _between(0.0, 6.0, Constant(1.0)),
    "leaky_relu": select(_X > 0.0, 1.0, 0.01),
    "hardsigmoid": select(_X > -3.0, select(_X < 3.0, 1.0 / 6.0, 0.0), 0.0),
    "hardswish": select(_X <= -3.0, 0.0, select(_X < 3.0, _X / 3.0 + 0.5, 1.0)),
    "hardtanh": _between(-1.0, 1.0, Constant(1.0)),
    "softplus": sigmoid(_X),
    "logsigmoid": sigmoid(-_X),
    "softsign": 1.0 / ((1.0 + abs(_X)) * (1.0 + abs(_X))),
    "mish": _mish(),
    "elu": select(_X > 0.0, 1.0, exp(_X)),
    "squared_relu": maximum(_X, 0.0) * 2.0,
}


def backward_of(name: str) -> Expr:
    """Return the gradient of an activation's operand, ``Input(1)``, given that of its result, ``Input(0)``.

    Where the slope is a constant 0 the gradient is 0, whatever that of the result is: infinite or NaN.

    Raises:
        InvalidOp: the name is not known; the error lists those that are.
    """
    return _times(slope_of(name).substitute({0: Input(1)}))


def slope_of(name: str) -> Expr:
    """Return the slope of an activation over ``Input(0)``.

    Raises:
        InvalidOp: the name is not known; the error lists those that are.
    """
    value = activation(name)
    slope = _SLOPES.get(name)
    return derivative(value, 0).simplify() if slope is None else slope


def _times(slope: Expr) -> Expr:
    match slope:
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            return select(condition, _times(if_true), _times(if_false))
        case Constant(value=0.0):
            return slope
        case Constant(value=1.0):
            return Input(0)
        case _:
            return Input(0) * slope
