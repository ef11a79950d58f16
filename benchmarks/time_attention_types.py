"""Time attention of 16-bit floats and its gradients beside PyTorch's, in turns, and record them.

    python benchmarks/time_attention_types.py --compile && python benchmarks/time_attention_types.py

The first command fills the cache; the second times each row in three fresh processes, ten pairs each, and writes
results/<core>/attention-types-1t.json and -2t. Both sides return new results. PyTorch's are the calls that its
scaled_dot_product_attention makes on a CPU and their gradients, with the sums of weights that the forward pass kept,
which ours computes again. Each process compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import close_sides, options, record_rows, time_cases

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

SHAPES = ((8, 512, 64), (12, 1024, 64), (8, 2048, 128))  # heads, tokens, elements of a head
TYPES = {"bfloat16": 2e-2, "float16": 4e-3}  # of the largest element, of either side from float64
KINDS = ("attention", "causal attention", "gradients", "causal gradients")
ROWS = tuple((kind, dtype, shape) for kind in KINDS for dtype in TYPES for shape in SHAPES)


def contenders(kind: str, dtype: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    torch.manual_seed(shape[1])
    given = [torch.randn(1, *shape).to(getattr(torch, dtype)) for _ in range(4)]
    ours, theirs = _calls(kind, given)
    calls = {"ours": ours, "torch": theirs}
    wanted = _calls(kind, [tensor.double() for tensor in given])[1]()
    close_sides(calls, wanted, TYPES[dtype], name_of(kind, dtype, shape))
    return calls


def _calls(kind: str, given: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    import tracea

    aten: Any = torch.ops.aten
    q, k, v, grad = given
    causal = kind.startswith("causal")
    y, kept = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    if kind.endswith("attention"):
        forward = torch.nn.functional.scaled_dot_product_attention
        return (
            lambda: (tracea.ops.attention(q, k, v, causal=causal),),
            lambda: (forward(q, k, v, is_causal=causal),),
        )
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return (
        lambda: tracea.ops.attention_backward(grad, q, k, v, y, causal=causal),
        lambda: backward(grad, q, k, v, y, kept, 0.0, causal),
    )


def time_rows(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (kind, type, shape, both measurements) of each row in this process; without pairs, only compile."""
    return time_cases(ROWS, name_of, contenders, threads=threads, pairs=pairs, only=only)


def name_of(kind: str, dtype: str, shape: tuple[int, ...]) -> str:
    """Return a row's name."""
    return f"{kind} {dtype} {'x'.join(map(str, shape))}"


def row_of(results: list[list[Any]]) -> Row:
    """Return one row from what each process measured."""
    kind, dtype, shape, _ = results[0]
    heats = [{key: msgspec.convert(each, Measurement) for key, each in result[3].items()} for result in results]
    names = {"ours": f"tracea {kind}", "torch": f"torch {kind}"}
    heads, tokens, depth = shape
    products = 2 if kind.endswith("attention") else 5
    return Row(
        problem=name_of(kind, dtype, shape),
        measurements=tuple(replace(heats[-1][key], name=names[key]) for key in names),
        ratios={names["torch"]: Ratio.merge([(heat["torch"], heat["ours"]) for heat in heats])},
        notes={"group": "attention-types", "allocation": "fresh"},
        flops=products * 2 * heads * tokens * tokens * depth // (2 if kind.startswith("causal") else 1),
        nbytes=2 * 4 * math.prod(shape),
    )


def main() -> None:
    """Compile, or measure and record."""
    record_rows(options(__doc__).parse_args(), "time_attention_types:time_rows", row_of, suite="attention-types")


if __name__ == "__main__":
    main()
