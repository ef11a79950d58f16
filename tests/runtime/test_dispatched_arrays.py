"""Arrays and tensors of other classes than NumPy's and torch's own, before the dispatcher."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracea.errors import OverlappingOutput
from tracea.runtime.extension import dispatcher


class Foreign:
    """Another library's array."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_subclasses_and_negated_tensors_take_the_slow_path(kit):
    misses = kit.Misses()
    run = dispatcher(1, misses)

    class Mine(torch.Tensor):
        pass

    mine = torch.ones(10).as_subclass(Mine)
    for _ in range(2):
        assert run(mine, None).eq(2).all()
    assert len(misses.asked) == 2  # never remembered
    with torch.no_grad():
        assert run(torch.nn.Parameter(torch.ones(10)), None).eq(2).all()
    assert run.statistics()["entries"] == 1
    negated = torch.view_as_complex(torch.ones(10, 2)).conj().imag
    seen = []
    watch = dispatcher(1, lambda arrays, *_: seen.append(arrays[0].is_neg()) or "slow")
    for _ in range(2):
        assert watch(negated, None) == "slow"
    assert seen == [True, True]
    assert watch.statistics()["entries"] == 0


@pytest.mark.parametrize("kind", ["mapped", "foreign", "matrix"])
def test_arrays_of_other_classes_are_remembered_as_plain_ones(kit, tmp_path, kind):
    class Mine(np.ndarray):
        pass

    np.save(tmp_path / "ones.npy", np.ones(100, np.float32))
    array = {
        "mapped": np.load(tmp_path / "ones.npy", mmap_mode="r+"),
        "foreign": Foreign(np.ones(100, np.float32)),
        "matrix": np.ones(100, np.float32).view(Mine),
    }[kind]
    misses = kit.Misses()
    run = dispatcher(1, misses)
    for _ in range(3):
        result = run(array, None)
        assert type(result) is np.ndarray
        assert (result == 2).all()
    assert (run(np.ones(100, np.float32), None) == 2).all()
    assert len(misses.asked) == 1
    out = np.zeros(100, np.float32).view(Mine)
    for _ in range(2):
        assert run(array, out) is out
    assert (out == 2).all()
    assert len(misses.asked) == 2
    if kind != "foreign":
        with pytest.raises(OverlappingOutput):
            run(array, array)


def test_masked_arrays_and_foreign_ones_that_cannot_be_read_are_left_to_the_refusal(kit):
    seen = []
    run = dispatcher(1, lambda arrays, *_: seen.append(arrays[0]) or "refused")
    for array in (np.ma.ones(3), Foreign(np.array([object()])), np.ndarray, torch.Tensor):
        assert run(array, None) == "refused"
        assert seen[-1] is array
