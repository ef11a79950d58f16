"""The activations by name, each an expression over ``Input(0)`` that hands a NaN on."""

from __future__ import annotations

import math

from tracea.core.expr import (
    Expr,
    Input,
    Unary,
    UnaryFunction,
    cos,
    exp,
    maximum,
    minimum,
    select,
    sigmoid,
    sin,
    tanh,
)

__all__ = ["ACTIVATIONS"]


def _softplus(x: Expr) -> Expr:
    # log(1 + u) for u in (0, 1]: what the sum w loses of u, u - (w - 1), comes back through the slope 1/w of the
    # logarithm.
    u = exp(-abs(x))
    w = 1.0 + u
    return maximum(x, 0.0) + (Unary(UnaryFunction.LOG, w) + (u - (w - 1.0)) / w)


def _elu(x: Expr) -> Expr:
    # exp(z) - 1 = tanh(z / 2) * (exp(z) + 1) keeps small z exact.
    z = minimum(x, 0.0)
    return select(x > 0.0, x, tanh(z * 0.5) * (exp(z) + 1.0))


_X = Input(0)
ACTIVATIONS: dict[str, Expr] = {
    "identity": _X,
    "relu": maximum(_X, 0.0),
    "relu6": minimum(maximum(_X, 0.0), 6.0),
    "leaky_relu": select(_X > 0.0, _X, _X * 0.01),
    "gelu": _X * (0.5 * (1.0 + Unary(UnaryFunction.ERF, _X * math.sqrt(0.5)))),
    "gelu_tanh": _X * (0.5 * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (_X + 0.044715 * (_X * _X * _X))))),
    "quick_gelu": _X * sigmoid(_X * 1.702),
    "silu": _X * sigmoid(_X),
    "sigmoid": sigmoid(_X),
    "hardsigmoid": minimum(maximum(_X + 3.0, 0.0), 6.0) / 6.0,
    "hardswish": _X * (minimum(maximum(_X + 3.0, 0.0), 6.0) / 6.0),
    "hardtanh": minimum(maximum(_X, -1.0), 1.0),
    "tanh": tanh(_X),
    "exp": exp(_X),
    "sin": sin(_X),
    "cos": cos(_X),
    "softplus": _softplus(_X),
    "softsign": _X / (1.0 + abs(_X)),
    "mish": _X * tanh(_softplus(_X)),
    "logsigmoid": -_softplus(-_X),
    "elu": _elu(_X),
    "squared_relu": maximum(_X, 0.0) * maximum(_X, 0.0),
}
