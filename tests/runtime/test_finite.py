from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from tracea.runtime import extension as extension_module
from tracea.runtime.extension import all_finite

TYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_one_number_of_an_array_that_is_not_finite_is_seen(dtype, native, rng, monkeypatch):
    if not native:
        monkeypatch.setattr(extension_module, "extension", lambda: None)
    memory = rng.standard_normal((5, 6, 7)).astype(dtype)
    memory[0, 0, 0], memory[0, 0, 1], memory[0, 0, 2] = ml_dtypes.finfo(dtype).max, ml_dtypes.finfo(dtype).min, 0
    for array in (memory, memory.T, memory[:, ::2, 1:], memory[2, 3, 4:5], np.broadcast_to(memory, (2, 5, 6, 7))):
        assert all_finite(array)
    for bad in (np.inf, -np.inf, np.nan, -np.nan):
        place = tuple(rng.integers(0, extent) for extent in memory.shape)
        memory[place], before = bad, memory[place]
        assert not all_finite(memory)
        assert not all_finite(memory.T)
        memory[place] = before
    assert all_finite(np.empty((3, 0), dtype))
    assert all_finite(np.array(1.0, dtype))
    assert not all_finite(np.array(np.nan, dtype))


def test_gaps_between_elements_are_not_looked_at():
    x = torch.full((4, 6), float("nan"))
    x[:, ::2] = 1.0
    assert all_finite(x[:, ::2])
    assert not all_finite(x)
    assert all_finite(torch.ones(3, dtype=torch.int64))
