"""Arithmetic on whole numbers, as before an embedding: what torch computes, or a refusal where f64 could not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interface.torch.compare import check_capture
from torch import nn

import tracea
from tracea.errors import InvalidIndex, InvalidInput, UnsupportedNode
from tracea.interface.torch.capture import capture

BASE = 2**29  # where f32 no longer tells neighbours apart


class Line(nn.Module):
    def __init__(self, line: Callable[..., Any]) -> None:
        super().__init__()
        self.line = line

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.line(ids)


LINES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one more": lambda ids: ids + 1,
    "from the end": lambda ids: 9 - ids,
    "by two": lambda ids: ids * 2 - ids,
    "by places": lambda ids: ids + torch.arange(ids.shape[-1]),
    "clamped": lambda ids: ids.clamp(1, 3),
    "negative ones": lambda ids: torch.where(ids - 3 < 0, ids + 4, ids),
    "by a mask": lambda ids: (ids.ne(1).long() * 2) + ids.ne(2),
    "products": lambda ids: ids * ids + ids * 3,
    "bloom": lambda ids: ((ids.gt(2).long().cumsum(-1) - 1) * ids.gt(2))[:, None],
    "places of an input's": lambda ids: (ids.cumsum(1) * ids - 1).long(),
    "int32": lambda ids: ids.int() * 3,
    "quotients": lambda ids: ((ids - 7) // 3, (7 - ids) // ids.ne(-1).long().add(1), (ids - 3) // -2, 5 - ids // 2),
    "what is left": lambda ids: ((ids - 7) % 3, (3 - ids) % 4 * 2, (ids - 3) % -2, torch.arange(9) % 4 + ids[0, 0]),
    "torch's": lambda ids: (torch.div(ids - 9, 4, rounding_mode="floor"), torch.remainder(9 - ids, 4)),
    "cancelled": lambda ids: (ids + BASE) * 3 - 3 * BASE - ids,
}


@pytest.mark.parametrize("name", LINES)
def test_sums_products_and_choices_are_those_of_torch(name: str) -> None:
    module, ids = Line(LINES[name]), torch.tensor([[1, 2, 5], [0, 4, 3]])
    check_capture(capture(module, (ids,)), module, (ids,))


OF_FLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clamped": lambda x: x.clamp(-128.0, 127.0).long() + 1,
    "rounded": lambda x: x.round().clamp(0, 255).to(torch.int64) // 16,
    "from one side after the other": lambda x: x.clamp(min=0).clamp(max=5).int() * 3,
    "steps": lambda x: x.clamp(0, 9).floor().long() % 4,
    "chosen": lambda x: torch.where(x > 0, 1.0, -2.5).long() + 1,
    "views": lambda x: x.clamp(-3, 3).T.reshape(-1).long() * 2,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_between_bounds_become_integers_that_are_computed_with(name: str, dtype: torch.dtype) -> None:
    module, x = Line(OF_FLOATS[name]), (torch.arange(-12.0, 12.0) * 17.25).reshape(4, 6).to(dtype)
    check_capture(capture(module, (x,)), module, (x,))


@pytest.mark.parametrize("line", [lambda x: x.clamp(min=0).long() + 1, lambda x: (x.clamp(0, 1) * 2).long() + 1])
def test_floats_without_bounds_are_not(line: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(UnsupportedNode, match="clamp floats before they become integers"):
        capture(Line(line), (torch.randn(3),))


def roberta(ids: torch.Tensor) -> torch.Tensor:
    """Return the places of RoBERTa's tokens: counted from 2, padding (1) at 1."""
    mask = ids.ne(1).int()
    return (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + 1


COUNTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "places": roberta,
    "masks": lambda ids: ((ids > 2).cumsum(0), (~(ids > 2)).cumsum(1, dtype=torch.float32) * 0.5),
    "types": lambda ids: (ids.cumsum(-1), ids.to(torch.uint8).cumsum(0, dtype=torch.float64), ids.int().cumsum(-1)),
    "one": lambda ids: ids[0, 0].cumsum(0) + 1,
    "differences": lambda ids: (1 - 2 * (ids > 2).long()).cumsum(1) - ids,
    "of nothing": lambda ids: (ids[:, :0] > 1).cumsum(1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_cumulative_sums_of_integers_are_those_of_torch(name: str) -> None:
    module, ids = Line(COUNTS[name]), torch.tensor([[1, 2, 5], [0, 1, 3]])
    captured = capture(module, (ids,))
    check_capture(captured, module, (ids,))
    is_bounded = name not in ("types", "one", "differences")
    assert captured.input_spec.small == ({} if is_bounded else {"ids": 2**30})


@pytest.mark.slow
def test_programs_count_beyond_what_f32_holds_and_check_what_they_sum(rng) -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(40, 4)

        def forward(self, ids: torch.Tensor) -> Any:
            return ids.cumsum(1), self.places(roberta(ids)), ids.ne(1).cumsum(0), ids.cumsum(0, dtype=torch.bfloat16)

    module, ids = Counted(), torch.from_numpy(rng.integers(-(2**30), 2**30, (5, 37)))
    ids[torch.from_numpy(rng.random((5, 37)) < 0.3)] = 1
    fast = tracea.optimize(module, ids, budget=None, threads=1)
    with torch.inference_mode():
        for found, wanted in zip(fast(ids), module(ids), strict=True):
            assert found.dtype is wanted.dtype
            torch.testing.assert_close(found, wanted, rtol=2**-6 if wanted.dtype is torch.bfloat16 else 0.0, atol=0.0)
        assert torch.equal(fast(ids)[0], module(ids)[0])
        with pytest.raises(InvalidInput, match="forward computes with them"):
            fast(torch.full_like(ids, 2**30 + 1))
    assert capture(module, (ids,)).ranges == ()  # 39 is the last place
    wider = torch.ones(2, 39, dtype=torch.int64)
    assert [item.rows for item in capture(module, (wider,)).ranges] == [40]


def test_counts_that_may_pass_what_f64_holds_are_refused() -> None:
    with pytest.raises(
        UnsupportedNode, match=r"cumulative sums of i32.* to i32, .*\(2147483647\).*sum masks or smaller"
    ):
        capture(Line(lambda ids: ids.cumsum(0, dtype=torch.int32)), torch.ones(2**15, dtype=torch.int32))
    with pytest.raises(UnsupportedNode, match=r"cumulative sums of f32.* to i64"):
        capture(Line(lambda x: x.cumsum(0, dtype=torch.int64)), torch.ones(3))


@pytest.mark.slow
def test_a_program_computes_them_exactly_and_checks_what_it_is_given() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(12, 4)

        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
            return self.table(ids - BASE + 1), x * (ids - BASE), ids * 3

    module, x, ids = Rows(), torch.randn(2, 4), BASE + torch.arange(8).reshape(2, 4)
    fast = tracea.optimize(module, (x, ids), budget=None)
    with torch.inference_mode():
        for found, wanted in zip(fast(x, ids), module(x, ids), strict=True):
            torch.testing.assert_close(found, wanted)
        with pytest.raises(InvalidIndex, match="12"):
            fast(x, ids + 4)
        with pytest.raises(InvalidInput, match=r"got 1073741825, expected integers within ±1073741824"):
            fast(x, torch.full_like(ids, 2**30 + 1))


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        (lambda ids: ids * ids * ids * ids, torch.int64),  # up to 2^64
        (lambda ids: ids * ids * 3, torch.int32),  # which wraps around
        (lambda ids: ids + 1, torch.int8),
        (lambda ids: ids // (ids - 9), torch.int64),  # by 0
        (lambda ids: ids % (ids - 9), torch.int64),
        (lambda ids: ids**2, torch.int64),
        (lambda ids: (ids * 1.5).long() + 1, torch.int64),  # of floats nothing says how large they are
    ],
    ids=["product", "int32", "int8", "quotient", "rest", "power", "floats"],
)
def test_what_may_not_be_exact_is_refused_with_a_remedy(line: Callable[..., Any], dtype: torch.dtype) -> None:
    with pytest.raises(UnsupportedNode, match=r"arithmetic on i\d+.*Remedy: compute it before the call") as e:
        capture(Line(line), torch.arange(4, dtype=dtype))
    assert "test_integers.py:" in e.value.location


def test_inputs_are_held_to_what_the_arithmetic_needs_and_quotients_are_torchs_up_to_it(seed: int) -> None:
    class Line(nn.Module):
        def forward(self, ids: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (ids + 5).cumsum(0) * ids, (i - 3) // 7, i % 10007, (5 - i) // -123, (i + 1) % -4096

    rng = torch.Generator().manual_seed(seed)
    ids, i = torch.randint(-(2**23), 2**23, (33,), generator=rng), torch.randint(-(2**30), 2**30, (999,), generator=rng)
    i[:3] = torch.tensor([-(2**30), 2**30, 0])
    captured = capture(Line(), (ids, i))
    assert captured.input_spec.small == {"ids": 2**23, "i": 2**30}
    fast = tracea.optimize(Line(), (ids, i), budget=None, threads=1, listener=lambda *_: None)
    for got, wanted in zip(fast(ids, i), Line()(ids, i), strict=True):
        assert torch.equal(got, wanted)
    with pytest.raises(InvalidInput, match=r"got 8388609, expected integers within ±8388608 \(2\^23\)"):
        fast(torch.full_like(ids, 2**23 + 1), i)


def test_long_chains_are_captured_in_time_that_follows_their_length() -> None:
    class Chain(nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            for _ in range(40):  # of which each takes the one before it twice
                ids = (ids + (ids % 3)) % 97
                ids = torch.where(ids > 3, ids - 3, ids)
            return ids

    inputs = (torch.randint(0, 50, (3, 9)),)
    check_capture(capture(Chain(), inputs), Chain(), inputs)


def test_rows_named_by_a_quotient_or_what_it_leaves_need_no_check(seed: int) -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
            places = scores.topk(4)[1]
            return x[places // 3], x[places % 5]

    torch.manual_seed(seed)
    inputs = torch.randn(7, 4), torch.randn(18)
    captured = capture(Halves(), inputs)
    assert captured.ranges == ()
    assert not captured.input_spec.rows
    check_capture(captured, Halves(), inputs)


class Counted(nn.Module):
    """Sums and extremes of whole numbers and of a mask."""

    def forward(self, i: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one, several = (i * m).sum(-1), i.sum((0, 1), keepdim=True)
        ends = i.amin(-1), i.amax((0, 2)), i.min(), i.max()
        counts = m.sum(1), m.sum(), m.sum(-1, dtype=torch.float32), m.sum(-1) - 1
        return one, several, *ends, *counts, i.to(torch.int32).sum(1), i.sum(1, dtype=torch.float64)


def test_sums_and_extremes_of_whole_numbers_are_those_of_torch(seed: int) -> None:
    torch.manual_seed(seed)
    module, shape = Counted(), [int(torch.randint(1, 9, ())) for _ in range(3)]
    inputs = [
        (torch.randint(-(2**20), 2**20, shape), torch.randint(2, shape).bool()),
        (torch.full(shape, -(2**30)), torch.ones(shape, dtype=torch.bool)),
        (torch.full(shape, 2**30), torch.zeros(shape, dtype=torch.bool)),
    ]
    fast = tracea.optimize(module, inputs[0], budget=None, threads=1, listener=lambda *_: None)
    for given in inputs:
        for got, wanted in zip(fast(*given), module(*given), strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8], ids=str)
def test_extremes_of_masks_and_bytes_are_of_their_type(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)

    class Extremes(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.amax(-1), x.amin((0, 2), keepdim=True), x.max(), x.min()

    x = torch.randint(-(2**20), 2**20, (3, 4, 5)).to(dtype)
    for got, wanted in zip(tracea.optimize(Extremes(), (x,), budget=None, threads=1)(x), Extremes()(x), strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)


def test_sums_that_may_pass_what_is_counted_are_refused() -> None:
    class Line(nn.Module):
        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return i.sum(-1, dtype=torch.int32)

    with pytest.raises(UnsupportedNode, match="may pass what is counted exactly"):
        capture(Line(), (torch.arange(2**15),))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_narrow_integers_are_whole_already(dtype: torch.dtype) -> None:
    module = Line(lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.sign()))
    ends = torch.iinfo(dtype)
    x = torch.tensor([ends.min, 0, 1, 3, ends.max], dtype=dtype)
    check_capture(capture(module, (x,)), module, (x,), 0.0)
