"""Time the gradients of norms and of softmax beside PyTorch's, in turns, and record them.

    python benchmarks/time_row_gradients.py --compile && python benchmarks/time_row_gradients.py

The first command fills the cache; the second times each row in three fresh processes, ten pairs each, and writes
results/<core>/rows-grad-1t.json and -2t. Both sides return new results, f32; PyTorch's are the calls that its
autograd makes, with the statistics that the forward pass kept, which ours computes again where that costs no pass.
Each process compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import TOLERANCE, options, record_rows

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

SHAPES = ((4096, 4096), (512, 768))
SHORT = ((10000, 32), (4096, 64), (4096, 128))
IMAGES = ((1, 64, 56, 56), (8, 64, 28, 28), (4, 32, 112, 112), (2, 512, 7, 7))
GROUPS = 8
LAST = " last"  # of a kind: its images are channels last
# PyTorch has no kernel of RMS norm's on a CPU.
ROWS = (
    *((kind, shape) for kind in ("layer_norm", "softmax", "log_softmax") for shape in SHAPES),
    *(("layer_norm", shape) for shape in SHORT),
    *((kind + layout, shape) for kind in ("group_norm", "batch_norm") for layout in ("", LAST) for shape in IMAGES),
)
SUMMED = 1e-4  # of the largest: gradients for parameters are sums of as many as 50176 products of either sign
TENSORS = 3  # of the shape: what is read and written once, at least


def contenders(kind: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    torch.manual_seed(shape[1])
    tensors = [torch.randn(shape), torch.randn(shape)]
    if kind.endswith(LAST):
        tensors = [tensor.contiguous(memory_format=torch.channels_last) for tensor in tensors]
    tensors += [torch.randn(shape[1]), torch.randn(shape[1])]
    made = _of_softmax if "softmax" in kind else _of_norm
    ours, theirs = made(kind.removesuffix(LAST), tensors)
    wanted = made(kind.removesuffix(LAST), [tensor.double() for tensor in tensors])[1]()
    calls, most = {"ours": ours, "torch": theirs}, TOLERANCE if len(shape) == 2 else SUMMED
    for side, call in calls.items():
        for found, exact in zip(call(), wanted, strict=True):
            off = float((found - exact).abs().max() / exact.abs().max())
            if not off <= most:
                raise SystemExit(f"{kind} {shape}: {side} is off by {off:.1e} of the largest")
    return calls


def _of_softmax(kind: str, tensors: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return our gradient and PyTorch's, of which each has the forward pass's result."""
    import torch

    import tracea

    x, grad, *_ = tensors
    y, aten = getattr(torch, kind)(x, -1), getattr(torch.ops.aten, f"_{kind}_backward_data")
    backward = getattr(tracea.ops, f"{kind}_backward")
    return lambda: (backward(grad, y),), lambda: (aten(grad, y, -1, x.dtype),)


def _of_norm(kind: str, tensors: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return our gradients and PyTorch's, of which each has what the forward pass kept."""
    import torch

    import tracea

    aten: Any = torch.ops.aten
    x, grad, weight, bias = tensors
    n, channels, pixels = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    if kind == "layer_norm":
        rows = [channels]
        _, mean, root = aten.native_layer_norm(x, rows, weight, bias, 1e-5)
        theirs = (aten.native_layer_norm_backward, grad, x, rows, mean, root, weight, bias, [True] * 3)
        ours = (tracea.ops.layer_norm_backward, grad, x, weight)
    elif kind == "group_norm":
        _, mean, root = aten.native_group_norm(x, weight, bias, n, channels, pixels, GROUPS, 1e-5)
        theirs = (aten.native_group_norm_backward, grad, x, mean, root, weight, n, channels, pixels, GROUPS, [True] * 3)
        ours = (tracea.ops.group_norm_backward, grad, x, GROUPS, weight)
    else:
        _, mean, root = aten.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
        theirs = (aten.native_batch_norm_backward, grad, x, weight, None, None, mean, root, True, 1e-5, [True] * 3)
        _, center, spread = tracea.ops.batch_norm_training(x, weight, bias)
        return (
            lambda: tracea.ops.batch_norm_training_backward(grad, x, weight, mean=center, var=spread),
            lambda: theirs[0](*theirs[1:]),
        )
    return lambda: ours[0](*ours[1:]), lambda: theirs[0](*theirs[1:])


def time_rows(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (kind, shape, both measurements) of each row in this process; without pairs, only compile."""
    import torch

    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    torch.set_num_threads(threads)
    found: list[list[Any]] = []
    with torch.inference_mode():
        for kind, shape in ROWS:
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
    elements = math.prod(shape)
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
