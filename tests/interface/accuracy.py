"""Judges what an op returned by the float64 reference and the accuracy contract of the op's meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tracea.core import reference
from tracea.core.dtype import DType
from tracea.core.op import Op
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.runtime.buffers import empty, view

__all__ = ["assert_meaning", "poisoned", "strided", "type_of", "values"]

TORCH = {DType.F64: torch.float64, DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}


def values(array: Any) -> np.ndarray:
    """The elements as NumPy sees them, bf16 included, whatever array it is."""
    return view(array).numpy()


def type_of(array: Any) -> TensorType:
    """The type that an op has of this array."""
    found = view(array)
    return TensorType(found.shape, found.dtype, StridedLayout(found.strides))


def assert_meaning(result: Any, op: Op, *inputs: Any) -> None:
    """Fail where an element is further from float64 than the contract of ``op`` allows."""
    given = [values(array) for array in inputs]
    with np.errstate(all="ignore"):
        expected = np.asarray(reference.evaluate(op, given))
        bound = np.broadcast_to(reference.error_bound(op, given), expected.shape)
    found = values(result).astype(np.float64)
    assert found.shape == expected.shape
    same = (np.isnan(found) & np.isnan(expected)) | (found == expected)
    with np.errstate(all="ignore"):
        wrong = ~(same | (np.abs(found - expected) <= bound))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} elements of {op.key} are wrong, the first at {where}: "
            f"{found[where]} instead of {expected[where]} ± {bound[where]}"
        )


def strided(rng: np.random.Generator, kind: str, dtype: DType, shape: tuple[int, ...], layout: str) -> Any:
    """Normal numbers in a layout: rows, columns (the last two axes swapped), gaps, or broadcast along axis 0."""
    if layout == "columns" and len(shape) >= 2:
        made = strided(rng, kind, dtype, (*shape[:-2], shape[-1], shape[-2]), "rows")
        return made.mT if kind == "torch" else np.swapaxes(made, -1, -2)
    if layout == "gaps":
        made = strided(rng, kind, dtype, tuple(2 * dim + 1 for dim in shape), "rows")
        return made[tuple(slice(1, 2 * dim + 1, 2) for dim in shape)]
    if layout == "broadcast" and shape:
        made = strided(rng, kind, dtype, (1, *shape[1:]), "rows")
        return made.expand(shape) if kind == "torch" else np.broadcast_to(made, shape)
    numbers = rng.standard_normal(shape)
    if kind == "torch":
        return torch.from_numpy(np.asarray(numbers)).to(TORCH[dtype])
    return np.asarray(numbers).astype(dtype.numpy)


def poisoned(kind: str, dtype: DType, shape: tuple[int, ...], layout: str = "rows") -> Any:
    """An output full of NaN, so that an element that nobody wrote is seen."""
    if layout == "columns" and len(shape) >= 2:
        made = poisoned(kind, dtype, (*shape[:-2], shape[-1], shape[-2]))
        return made.mT if kind == "torch" else np.swapaxes(made, -1, -2)
    made = empty(shape, dtype, view(np.empty(0)).kind if kind == "numpy" else view(torch.empty(0)).kind)
    made[...] = float("nan")
    return made
