from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidGraph, InvalidIndex, InvalidInput
from tracea.runtime.extension import Dispatcher, dispatcher
from tracea.runtime.index_range import IndexRange, Named
from tracea.runtime.program import InputSlot, OutputSlot, Program

N = 100
FAR = 2**53 + 1
DTYPES = {np.dtype(np.int64): DType.I64, np.dtype(np.int32): DType.I32}


@pytest.fixture(params=["extension", "python"])
def make(request):
    return Dispatcher if request.param == "python" else dispatcher


def checked(kit, places, count, ignored=None):
    """Return the program that doubles its first input, whose second one may name ``count`` places."""
    strides = tuple(stride // places.itemsize for stride in places.strides)
    layout = StridedLayout(strides)
    return Program(
        calls=(kit.scale_call(InputSlot(0), OutputSlot(0), 2.0, N),),
        inputs=(kit.vector(N), TensorType(places.shape, DTYPES[places.dtype], layout)),
        outputs=(kit.vector(N),),
        index_ranges=(IndexRange(input=1, count=count, name="places", what=Named.PLACES, ignored=ignored),),
    )


def orders():
    whole, half = np.zeros((40, 60), np.int64), np.zeros((40, 60), np.int32)
    repeated = np.lib.stride_tricks.as_strided(whole.copy(), (40, 60), (480, 0))
    strided = (whole.T.copy().T, whole.copy()[::2, 1::3], repeated, half.copy()[:, ::2])
    return [whole, *strided, whole[3].copy(), np.zeros((), np.int64), half, np.zeros((3, 5, 100), np.int64)]


@pytest.mark.parametrize("places", orders(), ids=lambda places: f"{places.dtype}{places.shape}{places.strides}")
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_every_number_is_checked_on_every_run(kit, make, places, kind):
    run = make(2, lambda arrays, out, attributes, threads: checked(kit, places, 7))
    x, given = kind(np.ones(N, np.float32)), kind(places)
    places[...] = 6
    assert float(run(x, given, None).max()) == 2.0
    for at in {(0,) * places.ndim, tuple(extent - 1 for extent in places.shape)}:
        for wrong in (7, -1, 2**31 - 1, -(2**31)):
            places[at] = wrong
            out = kind(np.full(N, 5.0, np.float32))
            for target in (None, out):
                with pytest.raises(InvalidIndex, match=rf"places: got {wrong}, expected 0 to 6, of 7 places"):
                    run(x, given, target)
            assert float(out.max()) == 5.0
            places[at] = 0
    assert float(run(x, given, None).max()) == 2.0


def test_a_bound_call_says_what_no_longer_holds(kit):
    places, x, out = np.zeros(5, np.int64), np.ones(N, np.float32), np.zeros(N, np.float32)
    run = checked(kit, places, 7).bound(x, places, out=out)
    assert run() is out
    places[3] = 7
    with pytest.raises(InvalidIndex, match="places: got 7"):
        run()


def test_numbers_beyond_those_that_f64_tells_apart_are_said_exactly(kit):
    for places, count, wrong in (
        (np.array([0, FAR]), 2**53, FAR),
        (np.array([0, FAR]), FAR, FAR),
        (np.array([-FAR, FAR]), 3, -FAR),
        (np.array([np.iinfo(np.int64).max]), 1, np.iinfo(np.int64).max),
        (np.array([np.iinfo(np.int64).min]), 1, np.iinfo(np.int64).min),
    ):
        with pytest.raises(InvalidIndex, match=rf"got {wrong}, "):
            checked(kit, places, count).run(np.ones(N, np.float32), places)
    checked(kit, np.array([FAR]), FAR + 1).run(np.ones(N, np.float32), np.array([FAR]))
    most = np.array([np.iinfo(np.int32).max], np.int32)
    checked(kit, most, 2**40).run(np.ones(N, np.float32), most)


def test_the_ignored_number_may_stand_anywhere(kit, make):
    places = np.array([[0, -100], [4, 2]] * 600)
    run = make(2, lambda arrays, out, attributes, threads: checked(kit, places, 5, -100))
    x = np.ones(N, np.float32)
    assert run(x, places, None).max() == 2.0
    places[700, 1] = -99
    with pytest.raises(InvalidIndex, match=r"got -99, expected 0 to 4, of 5 places"):
        run(x, places, None)


def test_of_nothing_any_number_is_wrong_but_the_ignored_one(kit):
    x, ignored = np.ones(N, np.float32), np.full(3, -1)
    checked(kit, ignored, 0, -1).run(x, ignored)
    checked(kit, ignored[:0], 0).run(x, ignored[:0])
    for wrong in (0, -1, 5):
        with pytest.raises(InvalidIndex, match=rf"got {wrong}, expected none: there are no places"):
            checked(kit, ignored, 0).run(x, np.full(3, wrong))


def test_a_saved_program_keeps_its_ranges(kit, tmp_path):
    places = np.array([1, 2, 3])
    checked(kit, places, 4, -1).save(tmp_path / "checked.tracea")
    loaded = Program.load(tmp_path / "checked.tracea")
    assert loaded.run(np.ones(N, np.float32), places).max() == 2.0
    with pytest.raises(InvalidIndex, match="got 4, expected 0 to 3, of 4 places"):
        loaded.run(np.ones(N, np.float32), places + 1)


@pytest.mark.parametrize("limit", [0, 5, 2**20, 2**30, 2**31 - 1, 2**53], ids=str)
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_numbers_are_within_a_limit_on_either_side(kit, make, dtype, limit):
    numbers = np.zeros(700, dtype)
    ends = np.iinfo(dtype)

    def limited(arrays, out, attributes, threads):
        of = IndexRange.within(limit, input=1, name="numbers")
        return replace(checked(kit, numbers, 1), index_ranges=(of,))

    run = make(2, limited)
    x = np.ones(N, np.float32)
    for fits in {number for number in (-limit, limit, 0) if ends.min <= number <= ends.max}:
        numbers[513] = fits
        assert run(x, numbers, None).max() == 2.0
    for wrong in {limit + 1, -limit - 1, ends.min, ends.max}:
        if not (ends.min <= wrong <= ends.max) or abs(wrong) <= limit:
            continue
        numbers[513] = wrong
        with pytest.raises(InvalidInput, match=rf"numbers: got {wrong}, expected .* within ±{limit} "):
            run(x, numbers, None)


def test_a_range_is_of_an_input_of_whole_numbers(kit):
    program = checked(kit, np.array([1]), 4)
    for of in (0, 2, -1):
        with pytest.raises(InvalidGraph, match="range of places"):
            Program(
                calls=program.calls,
                inputs=program.inputs,
                outputs=program.outputs,
                index_ranges=(IndexRange(input=of, count=4, name="places", what=Named.PLACES),),
            )
