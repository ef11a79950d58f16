"""Time the gradients of layer norm and of softmax beside PyTorch's, in turns, and record them.

    python benchmarks/time_row_gradients.py --compile && python benchmarks/time_row_gradients.py

The first command fills the cache; the second times each row in three fresh processes, ten pairs each, and writes
results/<core>/rows-grad-1t.json and -2t. Both sides return new results, f32; PyTorch's are the calls that its
autograd makes, with the mean and root that layer norm's forward pass kept, which ours computes again. Each process
compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import TOLERANCE, options, record_rows

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

SHAPES = ((4096, 4096), (512, 768))
KINDS = ("layer_norm", "softmax", "log_softmax")  # PyTorch has no kernel of RMS norm's on a CPU
TENSORS = 3  # of the shape: what is read and written once, at least


def contenders(kind: str, shape: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    import tracea

    aten: Any = torch.ops.aten
    torch.manual_seed(shape[1])
    rows = [shape[1]]
    x, grad, weight, bias = torch.randn(shape), torch.randn(shape), torch.randn(rows), torch.randn(rows)

    def theirs_of(x: Any, grad: Any, weight: Any, bias: Any) -> Callable[[], Any]:
        if kind == "layer_norm":
            _, mean, root = torch.native_layer_norm(x, rows, weight, bias, 1e-5)
            return lambda: aten.native_layer_norm_backward(grad, x, rows, mean, root, weight, bias, [True] * 3)
        y = getattr(torch, kind)(x, -1)
        call = getattr(aten, f"_{kind}_backward_data")
        return lambda: (call(grad, y, -1, x.dtype),)

    def ours() -> Any:
        if kind == "layer_norm":
            return tracea.ops.layer_norm_backward(grad, x, weight)
        return (getattr(tracea.ops, f"{kind}_backward")(grad, y),)

    y = getattr(torch, kind)(x, -1) if "softmax" in kind else x
    wanted = theirs_of(*(tensor.double() for tensor in (x, grad, weight, bias)))()
    theirs = theirs_of(x, grad, weight, bias)
    for call in (ours, theirs):
        for found, exact in zip(call(), wanted, strict=True):
            off = float((found - exact).abs().max() / exact.abs().max())
            if not off <= TOLERANCE:
                raise SystemExit(f"{kind} {shape}: {call.__name__} is off by {off:.1e} of the largest")
    return {"ours": ours, "torch": theirs}


def time_rows(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (kind, shape, both measurements) of each row in this process; without pairs, only compile."""
    import torch

    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    torch.set_num_threads(threads)
    found: list[list[Any]] = []
    with torch.inference_mode():
        for kind in KINDS:
            for shape in SHAPES:
                if only not in name_of(kind, shape):
                    continue
                calls = contenders(kind, shape)
                timed = compare(calls, pairs=pairs, threads=threads, watch=PATIENT) if pairs else {}
                found.append([kind, shape, {key: msgspec.to_builtins(each) for key, each in timed.items()}])
    return found


def name_of(kind: str, shape: tuple[int, ...]) -> str:
    """Return a row's name."""
    return f"{kind}_backward {'x'.join(map(str, shape))}"


def row_of(results: list[list[Any]]) -> Row:
    """Return one row from what each process measured."""
    kind, shape, _ = results[0]
    heats = [{key: msgspec.convert(each, Measurement) for key, each in result[2].items()} for result in results]
    names = {"ours": f"tracea {kind}_backward", "torch": f"torch {kind}_backward"}
    elements = shape[0] * shape[1]
    return Row(
        problem=name_of(kind, shape),
        measurements=tuple(replace(heats[-1][key], name=names[key]) for key in names),
        ratios={names["torch"]: Ratio.merge([(heat["torch"], heat["ours"]) for heat in heats])},
        notes={"group": "rows-grad", "allocation": "fresh"},
        flops=0,
        nbytes=4 * TENSORS * elements,
    )


def main() -> None:
    """Compile, or measure and record."""
    record_rows(options(__doc__).parse_args(), "time_row_gradients:time_rows", row_of, suite="rows-grad")


if __name__ == "__main__":
    main()
