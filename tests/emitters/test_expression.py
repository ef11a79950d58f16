"""Scalar expressions as C++: each function means what its NumPy meaning says, each node is printed once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import run_isas

from tracea.core.activation_slope import backward_of
from tracea.core.dtype import DType
from tracea.core.expr import (
    MAX_DEPTH,
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
)
from tracea.core.op import PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.emitters.cpu.expression import C_TYPES, print_expression
from tracea.emitters.writer import Writer
from tracea.errors import EmitError

SHAPE = (7, 61)


def case(name: str, expr: Expr, dtype: DType = DType.F32) -> Case:
    used = max(expr.inputs(), default=0) + 1
    x = TensorType(SHAPE, dtype)
    return Case.of(name, "pointwise.chain", PointwiseOp(expr=expr, inputs=(x,) * used, out_dtype=dtype), rows=4)


POSITIVE = abs(Input(0)) + 0.25
OF_POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt")
FUNCTIONS = tuple(case(f.value, Unary(f, POSITIVE if f.value in OF_POSITIVE else Input(0))) for f in UnaryFunction)
PAIRS = tuple(
    case(f.value, Binary(f, POSITIVE if f is BinaryFunction.POW else Input(0), Input(1))) for f in BinaryFunction
)
ACTIVATIONS = tuple(case(name, activation(name)) for name in activation_names())
CASTS = tuple(case(f"cast_{dtype.value}", Cast(Input(0) * 100.0, dtype)) for dtype in C_TYPES)
CASTS_F64 = tuple(case(f"cast_{dtype.value}_f64", Cast(Input(0) * 100.0, dtype), DType.F64) for dtype in C_TYPES)
ROUNDED = tuple(case(f"rounded_{dtype.value}", Cast(Input(0), dtype), DType.F64) for dtype in C_TYPES)
ALL = (*FUNCTIONS, *PAIRS, *ACTIVATIONS, *CASTS, *CASTS_F64, *ROUNDED)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("index", range(len(ALL)), ids=[case.name for case in ALL])
def test_function_means_what_its_numpy_meaning_says(index: int, isa: str, rng: np.random.Generator) -> None:
    chosen = ALL[index]
    unit = unit_of(ALL, isa)
    inputs = random_inputs(chosen.op, rng)
    check(unit, build(chosen, isa), chosen.op, inputs)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize(
    "name", ["max", "min", "fmod", "lt", "ne", "relu", "abs", "neg", "floor", "cast_i32", "cast_bf16", "cast_bool"]
)
def test_special_values_pass_as_the_meaning_says(name: str, isa: str) -> None:
    chosen = next(case for case in ALL if case.name == name)
    specials = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -1.5], np.float32)
    inputs = [np.resize(np.roll(specials, shift), SHAPE) for shift in range(len(chosen.op.operands))]
    check(unit_of(ALL, isa), build(chosen, isa), chosen.op, inputs)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("chosen", ROUNDED, ids=lambda chosen: chosen.name)
def test_a_cast_in_a_chain_of_doubles_rounds_each_of_them(chosen: Case, isa: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal(SHAPE) * 10.0 ** rng.integers(-3, 3, SHAPE)
    found = run(unit_of(ALL, isa), build(chosen, isa), chosen.op, [values])
    np.testing.assert_array_equal(found, chosen.op.expr.evaluate([values]))


def lines(expr: Expr, inputs: dict[int, str] | None = None) -> tuple[str, list[str]]:
    writer = Writer()
    value = print_expression(writer, expr, inputs or {0: "x0", 1: "x1"})
    return value, writer.text().splitlines()


def test_equal_subexpressions_are_computed_once() -> None:
    x = Input(0)
    _, printed = lines((x + 1.0) * (x + 1.0))
    assert sum("add(" in line for line in printed) == 1


def test_known_chains_become_one_routine() -> None:
    value, printed = lines(activation("gelu").substitute({0: Input(0) + Input(1)}))
    assert printed == ["const auto t0 = add(x0, x1);", "const auto t1 = gelu(t0);"]
    _, printed = lines(backward_of("gelu"))
    assert printed == ["const auto t0 = gelu_slope(x1);", "const auto t1 = mul(x0, t0);"]
    assert value == "t1"


def test_condition_stays_a_mask_and_becomes_a_number_where_one_is_asked_for() -> None:
    _, printed = lines(Input(0) < Input(1))
    assert printed[0] == "const auto m0 = less(x0, x1);"
    assert "select(m0" in printed[-1]


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "__builtin_inf()"), (-math.inf, "-__builtin_inf()"), (0.1, "0.1")]
)
def test_constant_is_spelled_exactly(value: float, text: str) -> None:
    _, printed = lines(Constant(value))
    assert f"element({text})" in printed[0]


def test_deepest_expression_prints() -> None:
    expr: Expr = Input(0)
    while expr.depth < MAX_DEPTH:
        expr = expr + 1.0
    assert len(lines(expr)[1]) == MAX_DEPTH  # a constant and the sums


def test_unbound_input_is_an_error() -> None:
    with pytest.raises(EmitError, match="input 3 is not bound"):
        lines(Input(3))
