"""Plot the time of attention against the number of tokens: dense, causal, windowed, gradients, beside PyTorch's.

    python benchmarks/plot_attention.py --compile && python benchmarks/plot_attention.py

The first command fills the cache; the second measures, in turns, each side into what it allocates, compares with
PyTorch's results, and writes results/<core>/attention-size.json and docs/attention-size.svg. ``--draw`` draws the
recorded figures again. PyTorch takes a window as a mask of booleans; its gradients are those of its own kernel for
CPUs, from the sums that its forward pass saved. Needs the extra ``bench``.
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

from recorded_rows import rows_of_processes

import tracea
from tracea import __version__
from tracea.bench.results import folder_of_this_core
from tracea.doctor import probe_machine

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RECORD = "attention-size.json"
PLOT = HERE.parent / "docs" / "attention-size.svg"
SIZES = (128, 256, 512, 1024, 2048, 4096)
KINDS = ("dense", "causal", "window 128", "gradient", "gradient causal")
HEADS, DEPTH, WINDOW = 8, 64, 128
THREADS = (1, 2)
ROUNDS = 5
BATCH_NS = 4_000_000
MOST_GRADIENT = 2048  # tokens: beyond, a round would take a second


def calls(kind: str, size: int) -> dict[str, Callable[[], Any]]:
    """Return both sides' calls of one problem."""
    import torch

    q, k, v, grad = (torch.randn(1, HEADS, size, DEPTH) for _ in range(4))
    causal = "causal" in kind
    if kind.startswith("gradient"):
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        differentiate = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        y, sums = attend(q, k, v, 0.0, causal)
        return {
            "tracea": lambda: tracea.ops.attention_backward(grad, q, k, v, y, causal=causal),
            "torch": lambda: differentiate(grad, q, k, v, y, sums, 0.0, causal),
        }
    attend = torch.nn.functional.scaled_dot_product_attention
    if kind.startswith("window"):
        places = torch.arange(size)
        mask = (places[:, None] - places).abs() < WINDOW
        return {
            "tracea": lambda: tracea.ops.attention(q, k, v, window=WINDOW),
            "torch": lambda: attend(q, k, v, mask),
        }
    return {
        "tracea": lambda: tracea.ops.attention(q, k, v, causal=causal),
        "torch": lambda: attend(q, k, v, is_causal=causal),
    }


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


def row(kind: str, size: int, threads: int) -> dict[str, Any]:
    """Measure one problem, after a comparison of both sides."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(size)
    with torch.inference_mode():
        contestants = calls(kind, size)
        ours, theirs = (
            result if isinstance(result, tuple) else (result,) for result in map(_run, contestants.values())
        )
        differences = ((a - b).abs().max() / b.abs().max() for a, b in zip(ours, theirs, strict=True))
        error = max(float(difference) for difference in differences)
        assert error < 1e-4, error
        times = measured(contestants)
    return {
        "kind": kind,
        "size": size,
        "threads": threads,
        "latency_us": {name: round(value, 2) for name, value in times.items()},
        "scaled_difference": error,
    }


def _run(call: Callable[[], Any]) -> Any:
    return call()


def problems() -> list[tuple[str, int]]:
    """Return what is measured: kind and number of tokens."""
    return [
        (kind, size) for kind in KINDS for size in SIZES if size <= MOST_GRADIENT or not kind.startswith("gradient")
    ]


def rows(*, threads: int) -> list[dict[str, Any]]:
    """Measure all of them in this process."""
    return [row(kind, size, threads) for kind, size in problems()]


def draw(record: dict[str, Any]) -> None:
    """Write the plot of a record."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "attention-size"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    for axes, threads in zip(both, THREADS, strict=True):
        for number, kind in enumerate(KINDS):
            rows = [item for item in record["rows"] if item["threads"] == threads and item["kind"] == kind]
            sizes = [item["size"] for item in rows]
            for name, style in (("tracea", "-"), ("torch", "--")):
                latencies = [item["latency_us"][name] for item in rows]
                axes.plot(
                    sizes, latencies, style, marker="o", markersize=3, color=f"C{number}", label=f"{name}, {kind}"
                )
        axes.set(xscale="log", yscale="log", xlabel="tokens", title=f"{threads} thread{'s' if threads > 1 else ''}")
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    both[0].set_ylabel("µs")
    both[0].legend(fontsize=7)
    figure.suptitle(f"Attention of {HEADS} heads of {DEPTH}, f32, and its gradients", fontsize=10)
    figure.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    """Compile, measure, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--draw", action="store_true", help="draw what was recorded")
    options = parser.parse_args()
    if options.compile:
        import torch

        with torch.inference_mode():
            for threads in THREADS:
                torch.set_num_threads(threads)
                for kind, size in problems():
                    calls(kind, size)["tracea"]()
        return
    path = folder_of_this_core(RESULTS) / RECORD
    if not options.draw:
        record = {
            "command": shlex.join(["python", *sys.argv]),
            "tracea": __version__,
            "torch": version("torch"),
            "processor": probe_machine().hardware.processor.label,
            "system": platform.platform(),
            "rows": rows_of_processes("plot_attention:rows", THREADS),
        }
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
