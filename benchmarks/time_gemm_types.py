"""Time products of 16-bit floats beside PyTorch's, alone and as linear layers with GELU, in turns, and record them.

    python benchmarks/time_gemm_types.py --compile && python benchmarks/time_gemm_types.py

The first command fills the cache; the second times each row in three fresh processes, ten pairs each, and writes
results/<core>/gemm-types-1t.json and -2t. Both sides return new results; ours are Tracea's kernels, with the library's
variants forbidden. Each process compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import close_sides, options, record_rows, time_cases

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

SHAPES = (  # rows, columns, steps
    (16, 3072, 768),
    (128, 768, 768),
    (512, 3072, 768),
    (512, 768, 3072),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
)
TYPES = {"bfloat16": 1e-2, "float16": 2e-3}  # of the largest element, of either side from float64
KINDS = ("product", "linear layer with GELU")
ROWS = tuple((kind, dtype, shape) for kind in KINDS for dtype in TYPES for shape in SHAPES)


def contenders(kind: str, dtype: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    torch.manual_seed(sum(shape))
    m, n, k = shape
    given = [torch.randn(*size).to(getattr(torch, dtype)) for size in ((m, k), (n, k), (n,))]
    ours, theirs = _calls(kind, given)
    calls = {"ours": ours, "torch": theirs}
    wanted = _calls(kind, [tensor.double() for tensor in given])[1]()
    close_sides(calls, wanted, TYPES[dtype], name_of(kind, dtype, shape))
    return calls


def _calls(kind: str, given: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    import tracea

    x, weight, bias = given
    nn = torch.nn.functional

    def ours(**fused: Any) -> Any:
        with tracea.ops.library(False):
            return (tracea.ops.gemm(x, weight.t(), **fused),)

    if kind == "product":
        return ours, lambda: (torch.mm(x, weight.t()),)
    return lambda: ours(bias=bias, activation="gelu"), lambda: (nn.gelu(nn.linear(x, weight, bias)),)


def time_rows(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (kind, type, shape, both measurements) of each row in this process; without pairs, only compile."""
    return time_cases(ROWS, name_of, contenders, threads=threads, pairs=pairs, only=only)


def name_of(kind: str, dtype: str, shape: tuple[int, ...]) -> str:
    """Return a row's name."""
    return f"{kind} {dtype} {'x'.join(map(str, shape))}"


def row_of(results: list[list[Any]]) -> Row:
    """Return one row from what each process measured."""
    kind, dtype, (m, n, k), _ = results[0]
    heats = [{key: msgspec.convert(each, Measurement) for key, each in result[3].items()} for result in results]
    names = {"ours": f"tracea {kind}", "torch": f"torch {kind}"}
    return Row(
        problem=name_of(kind, dtype, (m, n, k)),
        measurements=tuple(replace(heats[-1][key], name=names[key]) for key in names),
        ratios={names["torch"]: Ratio.merge([(heat["torch"], heat["ours"]) for heat in heats])},
        notes={"group": "gemm-types", "allocation": "fresh"},
        flops=2 * m * n * k,
        nbytes=2 * (m * k + k * n + m * n),
    )


def main() -> None:
    """Compile, or measure and record."""
    record_rows(options(__doc__).parse_args(), "time_gemm_types:time_rows", row_of, suite="gemm-types")


if __name__ == "__main__":
    main()
