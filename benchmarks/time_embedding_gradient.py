"""Time the gradient of a table of embeddings beside PyTorch's, in turns, and record it.

    python benchmarks/time_embedding_gradient.py --compile && python benchmarks/time_embedding_gradient.py

The first command fills the cache; the second times each row in three fresh processes, ten pairs each, and writes
results/<core>/embedding-grad-1t.json and -2t. Both sides return new results, f32, of 4096 indices: drawn alike for
all rows, as often as words are (the r-th row 1/r of the first), or all one. PyTorch's is the call that its autograd
makes. Each process compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import TOLERANCE, options, record_rows

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

TABLES = ((50257, 768), (1000, 64))
INDICES = ("alike", "words", "one")
COUNT = 4096


def contenders(kind: str, shape: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    import tracea

    torch.manual_seed(shape[1])
    rows, columns = shape
    grad = torch.randn(COUNT, columns)
    weights = {"alike": torch.ones(rows), "words": 1.0 / torch.arange(1, rows + 1)}
    indices = torch.full((COUNT,), rows // 3)
    if kind in weights:
        indices = torch.multinomial(weights[kind], COUNT, replacement=True)
    call: Any = torch.ops.aten.embedding_dense_backward
    named, row_of_each = indices.unique(return_inverse=True)
    exact = torch.zeros(named.numel(), columns, dtype=torch.float64).index_add_(0, row_of_each, grad.double())
    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: tracea.ops.embedding_backward(grad, indices, rows),
        "torch": lambda: call(grad, indices, rows, -1, False),
    }
    for name, each in calls.items():
        found = each()
        off = float((found[named] - exact).abs().max() / exact.abs().max())
        if not off <= TOLERANCE or int(found.any(1).sum()) != named.numel():
            raise SystemExit(f"{kind} {shape}: {name} is off by {off:.1e} of the largest, or has other rows")
    return calls


def time_rows(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (indices, shape, both measurements) of each row in this process; without pairs, only compile."""
    import torch

    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    torch.set_num_threads(threads)
    found: list[list[Any]] = []
    with torch.inference_mode():
        for shape in TABLES:
            for kind in INDICES:
                if only not in name_of(kind, shape):
                    continue
                calls = contenders(kind, shape)
                timed = compare(calls, pairs=pairs, threads=threads, watch=PATIENT) if pairs else {}
                found.append([kind, shape, {key: msgspec.to_builtins(each) for key, each in timed.items()}])
    return found


def name_of(kind: str, shape: tuple[int, ...]) -> str:
    """Return a row's name."""
    return f"embedding_backward {'x'.join(map(str, shape))} {kind}"


def row_of(results: list[list[Any]]) -> Row:
    """Return one row from what each process measured."""
    kind, shape, _ = results[0]
    heats = [{key: msgspec.convert(each, Measurement) for key, each in result[2].items()} for result in results]
    names = {"ours": "tracea embedding_backward", "torch": "torch embedding_dense_backward"}
    return Row(
        problem=name_of(kind, shape),
        measurements=tuple(replace(heats[-1][key], name=names[key]) for key in names),
        ratios={names["torch"]: Ratio.merge([(heat["torch"], heat["ours"]) for heat in heats])},
        notes={"group": "embedding-grad", "allocation": "fresh"},
        flops=0,
        nbytes=4 * shape[1] * (COUNT + shape[0]) + 8 * COUNT,
    )


def main() -> None:
    """Compile, or measure and record."""
    given = options(__doc__).parse_args()
    record_rows(given, "time_embedding_gradient:time_rows", row_of, suite="embedding-grad")


if __name__ == "__main__":
    main()
