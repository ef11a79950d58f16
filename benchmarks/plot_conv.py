"""Plot the time and the extra memory of a 3×3 convolution against the size of its image, beside PyTorch's.

    python benchmarks/plot_conv.py --compile && python benchmarks/plot_conv.py

The first command fills the cache; the second measures, in turns, each side allocating its result, and writes
results/<core>/conv-size.json and docs/conv-size.svg. ``--draw`` draws the recorded figures again. Tracea's filters
are packed beforehand, PyTorch's by each call. Extra memory is all that a call needs beside its operands, packed
weights and result: the program's arena and the scratch of the team and of each thread, by the proofs' own numbers.
Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from recorded_rows import rows_of_processes

from tracea import __version__
from tracea.bench.results import folder_of_this_core
from tracea.core.op import Conv2dOp
from tracea.doctor import probe_machine
from tracea.flow.compile import Compiled, compile_node

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RECORD = "conv-size.json"
PLOT = HERE.parent / "docs" / "conv-size.svg"
SIZES = (7, 14, 28, 56, 112, 224)
CHANNELS = 64
THREADS = (1, 2)
ROUNDS = 15
BATCH_NS = 4_000_000


def conv_of(size: int) -> Conv2dOp:
    """Return the layer of an image of ``size`` rows and columns."""
    return Conv2dOp.of(
        channels=CHANNELS,
        size=(size, size),
        filters=CHANNELS,
        kernel=(3, 3),
        padding=(1, 1),
        channels_last=True,
        bias=True,
        activation="relu",
    )


def compiled(op: Conv2dOp, weight: np.ndarray[Any, Any], threads: int) -> Compiled:
    """Return the layer's program, filters packed."""
    return compile_node(op, {1: weight}, threads=threads, library=False)


def extra_bytes(made: Compiled, threads: int) -> int:
    """Return the arena, and the most scratch that one of the calls needs."""
    calls = made.program.calls
    return made.program.arena_bytes + max(
        call.team_scratch_bytes + threads * call.thread_scratch_bytes for call in calls
    )


def measured(contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median latency of each in µs; each round takes them in turn."""
    repeats: dict[str, int] = {}
    for name, call in contestants.items():
        call()
        started = time.perf_counter_ns()
        call()
        repeats[name] = max(1, BATCH_NS // max(1, time.perf_counter_ns() - started))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            started = time.perf_counter_ns()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter_ns() - started) / repeats[name] / 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def row(size: int, threads: int) -> dict[str, Any]:
    """Measure one size, after a comparison with float64."""
    import torch

    rng = np.random.default_rng(size)
    op = conv_of(size)
    weight = rng.standard_normal(op.w.static_shape, dtype=np.float32)
    made = compiled(op, weight, threads)
    torch.set_num_threads(threads)
    x = torch.from_numpy(rng.standard_normal(op.x.static_shape, dtype=np.float32))
    last = x.to(memory_format=torch.channels_last)
    w, bias = torch.from_numpy(weight), torch.from_numpy(rng.standard_normal(CHANNELS, dtype=np.float32))
    w_last = w.to(memory_format=torch.channels_last)
    rows = bias.reshape(-1, 1, 1)
    conv = torch.nn.functional.conv2d
    with torch.inference_mode():
        wanted = torch.relu(conv(x.double(), w.double(), bias.double(), padding=1))
        out = made.program.run(last, rows, threads=threads)
        error = float((out - wanted).abs().max() / wanted.abs().max())
        assert error < 1e-5, error
        times = measured(
            {
                "tracea": lambda: made.program.run(last, rows, threads=threads),
                "torch": lambda: torch.relu_(conv(x, w, bias, padding=1)),
                "torch channels last": lambda: torch.relu_(conv(last, w_last, bias, padding=1)),
            }
        )
    return {
        "size": size,
        "threads": threads,
        "variant": made.plan["y"].variant,
        "latency_us": {name: round(value, 2) for name, value in times.items()},
        "extra_bytes": extra_bytes(made, threads),
        "result_bytes": op.infer().nbytes,
        "windows_bytes": op.taps * size * size * 4,
        "scaled_error": error,
    }


def rows(*, threads: int) -> list[dict[str, Any]]:
    """Measure all of them in this process."""
    return [row(size, threads) for size in SIZES]


def draw(record: dict[str, Any]) -> None:
    """Write the plot of a record."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "conv-size"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = {"tracea": "C0", "torch": "C1", "torch channels last": "C2"}
    for threads, style in zip(THREADS, ("-", "--"), strict=True):
        rows = [item for item in record["rows"] if item["threads"] == threads]
        for name, colour in colours.items():
            label = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            latencies = [item["latency_us"][name] for item in rows]
            left.plot(SIZES, latencies, style, marker="o", markersize=3, color=colour, label=label)
        label = f"tracea, {threads} thread{'s' if threads > 1 else ''}"
        right.plot(SIZES, [item["extra_bytes"] for item in rows], style, marker="o", markersize=3, label=label)
    rows = [item for item in record["rows"] if item["threads"] == THREADS[0]]
    right.plot(SIZES, [item["result_bytes"] for item in rows], ":", color="0.5", label="the result itself")
    right.plot(SIZES, [item["windows_bytes"] for item in rows], "-.", color="0.5", label="a buffer of windows (im2col)")
    for axes, unit in ((left, "µs"), (right, "bytes of extra memory")):
        axes.set(xscale="log", yscale="log", xlabel="rows and columns of the image", ylabel=unit)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(f"3×3 convolution, {CHANNELS} to {CHANNELS} channels, bias and ReLU, batch 1, f32", fontsize=10)
    figure.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    """Compile, measure, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--draw", action="store_true", help="draw what was recorded")
    options = parser.parse_args()
    if options.compile:
        for size in SIZES:
            for threads in THREADS:
                op = conv_of(size)
                compiled(op, np.zeros(op.w.static_shape, np.float32), threads)
        return
    path = folder_of_this_core(RESULTS) / RECORD
    if not options.draw:
        record = {
            "command": shlex.join(["python", *sys.argv]),
            "tracea": __version__,
            "torch": version("torch"),
            "processor": probe_machine().hardware.processor.label,
            "system": platform.platform(),
            "rows": rows_of_processes("plot_conv:rows", THREADS),
        }
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
