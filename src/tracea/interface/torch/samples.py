"""Which rows of an image each row of another size is made of, and their weights: constants, computed as torch does."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

__all__ = ["Places", "between", "cubic", "nearest_of", "smoothed"]

Places = tuple[torch.Tensor, torch.Tensor]  # rows of each sum and their weights, (n, k) both
Array = np.ndarray[Any, Any]

_TAPS: Final = 4  # of a cubic
_KEYS: Final = -0.5  # the parameter of the cubic convolution where torch smooths
_SHARP: Final = -0.75  # and where it does not


@lru_cache(maxsize=256)
def between(old: int, new: int, align: bool, factor: float | None, kind: torch.dtype) -> Places:
    """Return the two pixels between which each new one lies, and their shares of it.

    With ``align`` the first and the last pixels are those of the image; else pixel i lies at (i + 0.5) / factor - 0.5,
    in the arithmetic of ``kind``, and beyond the first and the last centre the value stays. Of as many pixels each is
    itself, whatever the factor.

    Source: ATen, native/UpSample.h, area_pixel_compute_scale and compute_source_index_and_lambda.
    """
    at = np.arange(new, dtype=_real(kind)) if old == new else np.maximum(_sources(old, new, align, factor, kind), 0)
    first, later = _parted(at, old)
    both = np.stack([first, np.minimum(first + 1, old - 1)], 1)
    return _tensors(both, np.stack([1 - later, later], 1))


@lru_cache(maxsize=256)
def cubic(old: int, new: int, align: bool, factor: float | None, kind: torch.dtype) -> Places:
    """Return the four pixels about each new one, and their shares of it, by the cubic convolution with -0.75.

    Beyond the first and the last pixel these are taken again.

    Source: ATen, native/UpSample.h, get_cubic_upsample_coefficients; R. Keys, "Cubic convolution interpolation for
    digital image processing", 1981.
    """
    first, later = _parted(_sources(old, new, align, factor, kind), old)
    if old == new and not later.any():
        return _tensors(first[:, None], np.ones((new, 1), _real(kind)))
    apart = np.stack([later + 1, later, 1 - later, 2 - later], 1)
    places = np.clip(first[:, None] + np.arange(-1, _TAPS - 1), 0, old - 1)
    return _tensors(places, _convolution(apart, _SHARP).astype(_real(kind)))


@lru_cache(maxsize=256)
def smoothed(old: int, new: int, align: bool, factor: float | None, kind: torch.dtype, *, is_cubic: bool) -> Places:
    """Return the pixels that each new one of a smaller image covers, and their shares, which sum to 1.

    The weight of a pixel is that of a triangle, or of a cubic convolution with -0.5, as wide as a new pixel. Of as many
    pixels each is itself, whatever the factor.

    Source: ATen, native/cpu/UpSampleKernel.cpp, HelperInterpBase::_compute_indices_min_size_weights_aa.
    """
    real = _real(kind)
    if old == new:
        return _tensors(np.arange(old)[:, None], np.ones((old, 1), real))
    scale = _step(old, new, align, factor, kind)
    half = real(_TAPS / 2 if is_cubic else 1) * max(scale, real(1))
    shrink = real(1) / scale if scale >= 1 else real(1)
    center = scale * (np.arange(new, dtype=real) + real(0.5))
    begin = np.maximum((center - half + real(0.5)).astype(np.int64), 0)
    count = np.clip(np.minimum((center + half + real(0.5)).astype(np.int64), old) - begin, 0, math.ceil(half) * 2 + 1)
    tap = np.arange(int(count.max()))
    apart = np.abs((tap + begin[:, None] - center[:, None] + real(0.5)) * shrink)
    weights = _convolution(apart, _KEYS) if is_cubic else np.maximum(1 - apart, 0)
    weights = np.where(tap < count[:, None], weights, 0).astype(real)
    weights /= weights.sum(1, keepdims=True)
    places = begin[:, None] + np.minimum(tap, count[:, None] - 1)
    return _tensors(places, _spread(weights, count))


def _spread(weights: Array, count: Array) -> Array:
    """Return weights of which those behind the last of a row share that one's, exactly: each names its pixel again.

    A weight of 0 would make NaN of an infinite pixel.
    """
    for row, used in zip(weights, count, strict=True):
        for at in range(int(used), len(row)):
            row[at - 1 : at + 1] = row[at - 1] / 2
    return weights


def _real(kind: torch.dtype) -> Any:
    return np.float64 if kind is torch.float64 else np.float32


def _step(old: int, new: int, align: bool, factor: float | None, kind: torch.dtype) -> Any:
    """Return how far pixels of the image apart two neighbours lie."""
    real = _real(kind)
    if align:
        return real(old - 1) / real(new - 1) if new > 1 else real(0)
    return real(1.0 / factor) if factor else real(old) / real(new)


def _sources(old: int, new: int, align: bool, factor: float | None, kind: torch.dtype) -> Array:
    """Return where among the pixels of the image each new one lies."""
    step, places = _step(old, new, align, factor, kind), np.arange(new, dtype=_real(kind))
    return places * step if align else step * (places + _real(kind)(0.5)) - _real(kind)(0.5)


def _parted(at: Array, old: int) -> tuple[Array, Array]:
    """Return the pixel before each of some places, and how far behind it the place lies, 0 to 1."""
    first = np.minimum(np.floor(at.astype(np.float32)).astype(np.int64), old - 1)
    return first, np.clip(at - first.astype(at.dtype), 0, 1)


def _convolution(apart: Array, a: float) -> Array:
    """Return the weight of a pixel so far apart, 0 from two pixels on."""
    near = ((a + 2) * apart - (a + 3)) * apart * apart + 1
    far = ((a * apart - 5 * a) * apart + 8 * a) * apart - 4 * a
    return np.where(apart <= 1, near, np.where(apart < 2, far, 0))


def _tensors(places: Array, weights: Array) -> Places:
    return torch.from_numpy(places), torch.from_numpy(weights)  # pyright: ignore[reportUnknownMemberType]


@lru_cache(maxsize=256)
def nearest_of(old: int, new: int, exact: bool, factor: float | None, kind: torch.dtype, *, small: bool) -> Places:
    """Return the pixel that each new one is, as torch finds it for images of ``kind``, and a weight of 1.

    Of ``small`` images torch's kernel finds it in another arithmetic, which is that for channels last as well.
    """
    named = "_upsample_nearest_exact" if exact else "upsample_nearest"
    every = torch.arange(old, dtype=kind, device="cpu")
    if small:
        image = every.expand(1, 4, 1, old).contiguous(memory_format=torch.channels_last)
        found = getattr(torch.ops.aten, f"{named}2d").default(image, [1, new], None, factor)[0, 0, 0]
    else:
        found = getattr(torch.ops.aten, f"{named}1d").default(every.reshape(1, 1, old), [new], factor)[0, 0]
    return found.reshape(new, 1).to(torch.int64), torch.ones(new, 1, dtype=kind, device="cpu")
