"""Winograd's F(m, r) in float32 against both accuracy contracts, on the gates' distributions.

    python benchmarks/winograd_error.py

Prints the largest error of each, in units of what the contract by element and then that by norm allow there (above 1:
refused), beside a plain float32 sum; "inf" is an error where none is allowed. docs/adr/0005 and 0006 draw the
conclusions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp
from tracea.gates import ALL, Case, build_cases
from tracea.gates.case import case_of
from tracea.semantic.winograd import ALGORITHMS, Algorithm

Array = np.ndarray[Any, np.dtype[Any]]


def winograd(x: Array, w: Array, algorithm: Algorithm) -> Array:
    """Return the convolution of (n, c, h, h) by (k, c, r, r), padded to a result of h by h, all in float32."""
    b, g, a = (np.array(matrix, np.float32) for matrix in (algorithm.image, algorithm.filters, algorithm.result))
    step, size = a.shape
    n, c, h, _ = x.shape
    count = -(-h // step)
    extent, edge = count * step + algorithm.taps - 1, algorithm.taps // 2
    padded = np.zeros((n, c, extent, extent), np.float32)
    padded[:, :, edge : h + edge, edge : h + edge] = x
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::step, ::step]
    image = both_sides(b, tiles)  # n, c, tile rows, tile columns, size, size
    filters = both_sides(g, w)  # k, c, size, size
    products = np.einsum("ncijuv,kcuv->nkijuv", image, filters, dtype=np.float32, optimize=False)
    result = both_sides(a, products)  # n, k, tile rows, tile columns, step, step
    whole = result.transpose(0, 1, 2, 4, 3, 5).reshape(n, w.shape[0], count * step, count * step)
    return whole[:, :, :h, :h]


def both_sides(matrix: Array, values: Array) -> Array:
    """Return matrix · values · matrixᵀ over the last two axes, leaving out what a zero would be multiplied with."""
    once = left(matrix, values)
    return left(matrix, once.swapaxes(-1, -2)).swapaxes(-1, -2)


def left(matrix: Array, values: Array) -> Array:
    """Return matrix · values over the axis before the last, zeros left out."""
    rows: list[Array] = []
    for line in matrix:
        terms = [factor * values[..., index, :] for index, factor in enumerate(line) if factor]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        rows.append(total)
    return np.stack(rows, axis=-2)


def plain(x: Array, w: Array) -> Array:
    """Return the same convolution as one float32 sum after the other."""
    taps = w.shape[2:]
    edge = (taps[0] // 2,) * 2
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, (2, 3))
    return np.einsum("ncijuv,kcuv->nkij", windows, w, dtype=np.float32, optimize=False)


def worst(found: Array, case: Case) -> float:
    """Return the largest error in units of the bound; infinite where NaN or infinity differ, or none is allowed."""
    expected, bound = case.expected, case.bound
    same = (np.isnan(found) & np.isnan(expected)) | (found == expected) | np.isinf(bound)
    with np.errstate(all="ignore"):
        share = np.abs(found.astype(np.float64) - expected) / bound
    return float(np.where(same, 0.0, np.nan_to_num(share, nan=np.inf, posinf=np.inf)).max())


def main() -> None:
    """Print a line for each distribution and number of channels."""
    rng = np.random.default_rng(0)
    for taps in (3, 5):
        known = {f"F({m},{r})": algorithm for (m, r), algorithm in ALGORITHMS.items() if r == taps}
        names = ("plain", *known)
        heads = [f"{name}{contract}" for contract in ("", " norm") for name in names]
        print(f"{'inputs':12s} {'channels':>8s} " + " ".join(f"{head:>11s}" for head in heads))
        for channels in (1, 3, 16, 64, 512):
            edge = (taps // 2,) * 2
            op = Conv2dOp.of(channels=channels, size=(16, 16), filters=16, kernel=(taps, taps), padding=edge)
            for case in build_cases(op, rng, ALL):
                x, w, *_ = case.inputs
                with np.errstate(all="ignore"):
                    found = (plain(x, w), *(winograd(x, w, algorithm) for algorithm in known.values()))
                by_norm = case_of(replace(op, accuracy=Accuracy.NORMWISE), case.inputs, name=case.name)
                shares = [worst(result, contract) for contract in (case, by_norm) for result in found]
                print(f"{case.name:12s} {channels:8d} " + " ".join(f"{share:11.3g}" for share in shares))


if __name__ == "__main__":
    main()
