"""A fused chain equals the unfused, within the contract of the fused op."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.interface.accuracy import poisoned, strided

import tracea
from tracea.core.dtype import DType
from tracea.errors import InvalidOp, InvalidShape

F = torch.nn.functional
ELEMENTWISE = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
HEADS = {
    "gemm": torch.matmul,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
}


def unfused(steps, operands):
    """The steps one by one in float64."""
    operands = [operand.double() for operand in operands]
    taken = 2 if steps[0] == "gemm" else 1
    value = HEADS[steps[0]](*operands[:taken]) if steps[0] in HEADS else operands[0]
    for step in steps[1:] if steps[0] in HEADS else steps:
        if step in ("add", "sub", "mul", "maximum", "minimum"):
            value = ELEMENTWISE[step](value, operands[taken])
            taken += 1
        else:
            value = ELEMENTWISE[step](value)
    return value


@pytest.mark.costly
@pytest.mark.parametrize("allowed", [False, True], ids=["ours", "library"])
def test_random_chains(rng, allowed):
    for _ in range(4):
        head = [*HEADS, None][rng.integers(5)]
        steps = [head] if head else []
        steps += [list(ELEMENTWISE)[rng.integers(len(ELEMENTWISE))] for _ in range(rng.integers(1, 5))]
        first = [(9, 12), (12, 20)] if head == "gemm" else [(9, 20)]
        extra = sum(step in ("add", "sub", "mul", "maximum", "minimum") for step in steps)
        shapes = first + [((9, 20), (20,), (9, 1), (1,))[rng.integers(4)] for _ in range(extra)]
        operands = [strided(rng, "torch", DType.F32, shape, "rows") for shape in shapes]
        fused = tracea.ops.fuse(steps)
        assert fused.operands == len(operands)
        out = poisoned("torch", DType.F32, (9, 20))
        with tracea.ops.library(allowed):
            assert fused(*operands, out=out) is out
            torch.testing.assert_close(fused(*operands), out, rtol=0, atol=0)
        torch.testing.assert_close(out.double(), unfused(steps, operands), rtol=2e-4, atol=2e-4)


def test_a_block_of_a_transformer_in_numpy(rng):
    a, b, bias, residual = (
        strided(rng, "numpy", DType.F32, shape, "rows") for shape in ((16, 24), (24, 32), (32,), (16, 32))
    )
    block = tracea.ops.fuse(["gemm", "add", "gelu", "add"])
    expected = tracea.ops.gemm(a, b, bias=bias, activation="gelu", residual=residual)
    np.testing.assert_allclose(block(a, b, bias, residual), expected, rtol=1e-5, atol=1e-5)


def test_functions_of_ours_are_steps(rng):
    x = strided(rng, "torch", DType.F32, (4, 16), "rows")
    fused = tracea.ops.fuse([tracea.ops.softmax, "mul"])
    torch.testing.assert_close(fused(x, x), torch.softmax(x, -1) * x)
    assert repr(fused) == "fuse(['softmax', 'mul'])"


def test_integers_pass_through_elementwise_steps():
    x = torch.tensor([[1, 2], [3, 250]], dtype=torch.int32)
    assert tracea.ops.fuse(["mul", "add"])(x, x, x).equal(x * x + x)


def test_elementwise_operands_may_enlarge_each_other(rng):
    row, column = strided(rng, "torch", DType.F32, (1, 5), "rows"), strided(rng, "torch", DType.F32, (4, 1), "rows")
    torch.testing.assert_close(tracea.ops.fuse(["mul"])(row, column), row * column)


def test_a_step_that_is_not_known_lists_those_that_are():
    with pytest.raises(InvalidOp, match="layer_norm"):
        tracea.ops.fuse(["layernorm"])
    with pytest.raises(InvalidOp, match="list of steps"):
        tracea.ops.fuse("relu")
    with pytest.raises(InvalidShape, match="3"):
        tracea.ops.fuse(["gemm", "add"])(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (["gemm", "gleu"], "use gelu, if that was meant"),
        (["gem"], "use gemm, if that was meant"),
        (["gemm", "maxium"], "use maximum, if that was meant"),
    ],
)
def test_a_misspelt_step_is_told_what_it_may_have_meant(steps: list[str], said: str) -> None:
    with pytest.raises(InvalidOp, match=said):
        tracea.ops.fuse(steps)


def test_a_step_at_the_wrong_place_is_told_where_it_belongs() -> None:
    with pytest.raises(InvalidOp, match="Remedy: a product or a normalisation comes first"):
        tracea.ops.fuse(["relu", "gemm"])
