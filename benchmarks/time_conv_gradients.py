"""Time the gradients of convolutions beside PyTorch's, in turns, and record them.

    python benchmarks/time_conv_gradients.py --compile && python benchmarks/time_conv_gradients.py

The first command fills the cache; the second times each layer in three fresh processes, ten pairs each, and writes
results/<core>/conv-grad-input-1t.json and so on. Both sides return new results, f32, batch 1, from images of the same
order; PyTorch is asked for one gradient at a time (``aten.convolution_backward``), which is the call that autograd
makes. Library variants of ours take no part. Each process compares both with float64. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from recorded_rows import TOLERANCE, options, record_rows

from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

# Channels, filters, taps, stride, rows, groups: of ResNet-50 and MobileNetV2, the large, the small and the odd.
LAYERS = (
    (3, 64, 7, 2, 224, 1),
    (64, 64, 3, 1, 56, 1),
    (128, 128, 3, 1, 28, 1),
    (128, 128, 3, 2, 56, 1),
    (256, 256, 3, 1, 14, 1),
    (512, 512, 3, 1, 7, 1),
    (64, 256, 1, 1, 56, 1),
    (256, 64, 1, 1, 56, 1),
    (256, 512, 1, 2, 56, 1),
    (1024, 256, 1, 1, 14, 1),
    (512, 2048, 1, 1, 7, 1),
    (24, 144, 1, 1, 56, 1),
    (192, 32, 1, 1, 28, 1),
    (144, 144, 3, 1, 56, 144),
)
WHICH = ("input", "weight")
ORDERS = ("rows", "last")


def name_of(layer: tuple[int, ...], order: str, which: str) -> str:
    """Return a row's name."""
    channels, filters, taps, stride, size, groups = layer
    step = f"/{stride}" if stride > 1 else ""
    kind = " depthwise" if groups > 1 else ""
    return f"{channels}-{filters} {taps}x{taps}{step}@{size}{kind} {order} grad-{which}"


def contenders(layer: tuple[int, ...], order: str, which: str) -> dict[str, Callable[[], Any]]:
    """Return our call and PyTorch's, after a comparison of both with float64."""
    import torch

    import tracea

    channels, filters, taps, stride, size, groups = layer
    torch.manual_seed(size)
    layout = torch.channels_last if order == "last" else torch.contiguous_format
    padding, shape = taps // 2, (filters, channels // groups, taps, taps)
    x = torch.randn(1, channels, size, size).contiguous(memory_format=layout)
    w = torch.randn(shape).contiguous(memory_format=layout)
    grad = torch.randn(1, filters, size // stride, size // stride).contiguous(memory_format=layout)
    mask = [which == "input", which == "weight", False]
    rest = (None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, mask)
    backward: Any = torch.ops.aten.convolution_backward

    def theirs() -> Any:
        return backward(grad, x, w, *rest)[WHICH.index(which)]

    given: dict[str, Any] = {"stride": stride, "padding": padding, "groups": groups}

    def ours() -> Any:
        if which == "input":
            return tracea.ops.conv2d_grad_input(grad, w, x.shape, **given)
        return tracea.ops.conv2d_grad_weight(x, grad, shape, **given)

    wanted = backward(grad.double(), x.double(), w.double(), *rest)[WHICH.index(which)]
    for call in (ours, theirs):
        off = float((call() - wanted).abs().max() / wanted.abs().max())
        if not off <= TOLERANCE:
            raise SystemExit(f"{name_of(layer, order, which)}: {call.__name__} is off by {off:.1e} of the largest")
    return {"ours": ours, "torch": theirs}


def time_layers(*, threads: int, pairs: int, which: str, only: str) -> list[list[Any]]:
    """Return (layer, order, gradient, both measurements) of each row in this process; without pairs, only compile."""
    import torch

    import tracea
    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    torch.set_num_threads(threads)
    found: list[list[Any]] = []
    with torch.inference_mode(), tracea.ops.library(False):
        for layer in LAYERS:
            for order in ORDERS:
                if only not in name_of(layer, order, which):
                    continue
                calls = contenders(layer, order, which)
                timed = compare(calls, pairs=pairs, threads=threads, watch=PATIENT) if pairs else {}
                found.append([layer, order, which, {key: msgspec.to_builtins(each) for key, each in timed.items()}])
    return found


def row_of(results: list[list[Any]]) -> Row:
    """Return the row of one layer from what each process measured."""
    layer, order, which, _ = results[0]
    heats = [{key: msgspec.convert(each, Measurement) for key, each in result[3].items()} for result in results]
    names = {"ours": f"tracea conv2d_grad_{which}", "torch": "torch convolution_backward"}
    channels, filters, taps, stride, size, groups = layer
    return Row(
        problem=name_of(layer, order, which),
        measurements=tuple(replace(heats[-1][key], name=names[key]) for key in names),
        ratios={names["torch"]: Ratio.merge([(heat["torch"], heat["ours"]) for heat in heats])},
        notes={"group": f"grad-{which} {order}", "allocation": "fresh", "library": "disabled"},
        flops=2 * (size // stride) ** 2 * filters * (channels // groups) * taps * taps,
        nbytes=4 * (channels * size**2 + filters * (size // stride) ** 2 + filters * channels // groups * taps * taps),
    )


def main() -> None:
    """Compile, or measure and record."""
    parser = options(__doc__)
    parser.add_argument("--which", nargs="*", default=WHICH, choices=WHICH)
    given = parser.parse_args()
    for which in given.which:
        record_rows(given, "time_conv_gradients:time_layers", row_of, suite="conv-grad", which=which)


if __name__ == "__main__":
    main()
