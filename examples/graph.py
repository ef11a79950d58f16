"""A graph built by hand, fused, compiled, asked why, saved and loaded: no PyTorch in it.

Run it with ``python examples/graph.py``; ``python examples/graph.py 8`` searches schedules first, 8 trials an op.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import tracea

ROWS, WIDTH, HIDDEN = 32, 64, 128


def main(trials: int = 0) -> None:
    """Optimize the graph of a small multilayer perceptron and run it."""
    graph = tracea.Graph()
    x = graph.add_input((ROWS, WIDTH), name="x")
    w_up = graph.add_constant((HIDDEN, WIDTH), name="w_up")  # stored (out, in), as a linear layer's weight is
    w_down = graph.add_constant((WIDTH, HIDDEN), name="w_down")
    up = graph.add_gemm(x, w_up, transpose_b=True, activation="relu", name="up")
    graph.add_gemm(up, w_down, transpose_b=True, residual=x, name="down")

    rng = np.random.default_rng(0)
    values = {
        "w_up": rng.standard_normal((HIDDEN, WIDTH)).astype(np.float32),
        "w_down": rng.standard_normal((WIDTH, HIDDEN)).astype(np.float32),
    }
    context = tracea.Context(threads=1)
    budget = tracea.Budget(trials=trials) if trials else None  # None searches nothing: scores decide
    program = context.optimize_graph(graph, values, budget=budget)
    print(program.plan[up].explain())  # what runs it, what was rejected, and what would change the choice

    given = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    y = program.run({"x": given})
    exact = np.maximum(given.astype(np.float64) @ values["w_up"].T, 0.0) @ values["w_down"].T + given
    print(f"off by {np.abs(y - exact).max() / np.abs(exact).max():.1e} of the largest element")

    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "mlp.tracea")
        again = tracea.load(Path(folder) / "mlp.tracea")
        print(f"the loaded program gives the same bits: {np.array_equal(again.run(given), y)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
