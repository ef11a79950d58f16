"""Plot block-sparse products against density and thin factors against rank, as recorded.

    tracea bench --suite sparse --against torch && python benchmarks/plot_sparse.py

Draws docs/sparse-density.svg from sparse-1t.json and sparse-2t.json of this core, or of another folder.
Times are shares of torch's in the same turns: of the dense product, of the two products of thin factors. The dotted
lines are density times the time of our own dense product. Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path

from tracea.bench.results import folder_of_this_core

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PLOT = HERE.parent / "docs" / "sparse-density.svg"
SPARSE = re.compile(r"blocks of (\d+) density ([\d.]+)$")
THIN = re.compile(r"rank (\d+)$")
THREADS = (1, 2)
YTICKS = (0.05, 0.1, 0.2, 0.5)


def shares(record: Path) -> Mapping[str, float]:
    """Return our share of the time of the peer of each problem, the median of its pairs."""
    rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
    return {row["problem"]: 1 / next(iter(row["ratios"].values()))["median"] for row in rows}


def of_blocks(found: Mapping[str, float], block: int) -> tuple[list[float], list[float]]:
    """Return densities and shares of one size of blocks."""
    pairs = [(SPARSE.search(name), share) for name, share in found.items()]
    points = sorted((float(match[2]), share) for match, share in pairs if match and int(match[1]) == block)
    return [density for density, _ in points], [share for _, share in points]


def of_ranks(found: Mapping[str, float]) -> tuple[list[int], list[float]]:
    """Return ranks and shares of thin factors."""
    points = sorted((int(match[1]), share) for name, share in found.items() if (match := THIN.search(name)))
    return [rank for rank, _ in points], [share for _, share in points]


def draw(folder: Path, plot: Path) -> None:
    """Write the plot of the records in a folder."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sparse-density"  # the same figures give the same file
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for threads in THREADS:
        found = shares(folder / f"sparse-{threads}t.json")
        dense = next(share for name, share in found.items() if name.endswith(" dense"))
        said = f"{threads} thread{'s' if threads > 1 else ''}"
        for number, block in enumerate((32, 64)):
            densities, times = of_blocks(found, block)
            style = "-" if threads == 1 else "--"
            left.plot(densities, times, style, marker="o", markersize=3, color=f"C{number}", label=f"{block}, {said}")
        left.plot((0.05, 1), (0.05 * dense, dense), ":", color=f"C{threads + 1}", label=f"density x dense, {said}")
        right.plot(*of_ranks(found), marker="o", markersize=3, color=f"C{threads + 1}", label=said)
    left.set(xscale="log", yscale="log", xlabel="density", ylabel="share of torch.mm, dense", title="2048x2048x2048")
    right.set(xscale="log", xlabel="rank", ylabel="share of two torch.mm", title="512x1024x1024, thin factors")
    found = shares(folder / "sparse-1t.json")
    for axes, ticks in ((left, of_blocks(found, 64)[0]), (right, of_ranks(found)[0])):
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_yticks(YTICKS, [f"{tick:g}" for tick in YTICKS])
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(plot, metadata={"Date": None})


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="?", type=Path, default=folder_of_this_core(RESULTS), help="of the records")
    draw(parser.parse_args().results, PLOT)


if __name__ == "__main__":
    main()
