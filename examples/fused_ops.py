"""Single ops on NumPy arrays: a product with what follows it, and chains of steps, as one kernel each.

Run it with ``python examples/fused_ops.py``. The first call of a shape lowers, proves and compiles its kernel.
"""

import math

import numpy as np

import tracea

ROWS, WIDTH, HIDDEN = 48, 64, 96


def gelu(x: np.ndarray) -> np.ndarray:
    """Return what the kernels are compared with, in float64."""
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def off_by(result: np.ndarray, exact: np.ndarray) -> str:
    """Say how far a result is from the exact one, as a share of the largest element."""
    return f"off by {np.abs(result - exact).max() / np.abs(exact).max():.1e} of the largest element"


def main() -> None:
    """Run three fused ops and print how far each is from float64."""
    rng = np.random.default_rng(0)
    x, w, bias, residual = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((ROWS, WIDTH), (WIDTH, HIDDEN), (HIDDEN,), (ROWS, HIDDEN))
    )
    exact = x.astype(np.float64) @ w

    # The epilogue is part of the product: its result never goes to memory in between.
    y = tracea.ops.gemm(x, w, bias=bias, activation="gelu", residual=residual)
    print(f"gelu(x @ w + bias) + residual: {off_by(y, gelu(exact + bias) + residual)}")

    # A weight that does not change is packed once, for each kernel that multiplies by it.
    packed = tracea.ops.prepack(w)
    out = np.empty((ROWS, HIDDEN), np.float32)
    tracea.ops.gemm(x, packed, bias=bias, out=out)
    print(f"x @ packed + bias, in place:   {off_by(out, exact + bias)}")

    # A chain is named once and called like a function; its operands come in the order of the steps that take them.
    gate = tracea.ops.fuse(["rms_norm", "mul", "silu", "mul"])
    z = gate(y, bias, residual)
    normal = y / np.sqrt(np.mean(y.astype(np.float64) ** 2, axis=-1, keepdims=True) + 1e-6) * bias
    print(f"silu(rms_norm(y) * s) * g:     {off_by(z, normal / (1.0 + np.exp(-normal)) * residual)}")


if __name__ == "__main__":
    main()
