"""Parts of tensors that forward writes: caches of keys and values, at places that are known or given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.drawn import drawn
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tracea
from tracea.errors import InvalidIndex, InvalidInput, OverlappingOutput, UnsupportedNode
from tracea.interface.torch.capture import capture

Write = Callable[..., Any]


class Cache(nn.Module):
    """A token's features, widened, written to a cache that is given, and a number of all that is in the cache."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write, self.wide = write, nn.Linear(6, 8)

    def forward(self, x: Tensor, cache: Tensor, *at: Any) -> tuple[Tensor, Tensor]:
        cache = self.write(cache, self.wide(x), *at)
        return cache, cache.sum(dim=(1, 2))


def sliced(cache: Tensor, rows: Tensor, at: int) -> Tensor:
    cache[:, at : at + rows.shape[1]] = rows
    return cache


def selected(cache: Tensor, rows: Tensor, at: int) -> Tensor:
    cache[:, at] = rows[:, -1]
    return cache


def put(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    cache[:, at] = rows
    return cache


AT_NUMBERS: dict[str, Write] = {
    "a slice": sliced,
    "a slice of a clone": lambda cache, rows, at: sliced(cache.clone(), rows, at),
    "a place": selected,
    "narrow": lambda cache, rows, at: (cache.narrow(1, at, rows.shape[1]).copy_(rows), cache)[1],
    "slice_scatter": lambda cache, rows, at: torch.slice_scatter(cache, rows, 1, at, at + rows.shape[1]),
}
AT_TENSORS: dict[str, Write] = {
    "index_copy_": lambda cache, rows, at: cache.index_copy_(1, at, rows),
    "index_copy": lambda cache, rows, at: cache.index_copy(1, at, rows),
    "index_put": put,
}


def check(module: nn.Module, fast: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Compare results, and what a call leaves in its inputs, with eager."""
    theirs = [each.clone() if isinstance(each, Tensor) else each for each in inputs]
    wanted, found = module(*theirs), fast(*inputs)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close([*inputs], theirs)


@pytest.mark.costly
@torch.inference_mode()
@pytest.mark.parametrize("name", AT_NUMBERS)
def test_a_cache_written_at_a_number_is_what_eager_leaves(name: str) -> None:
    module = Cache(AT_NUMBERS[name]).eval()
    x, cache = torch.randn(2, 2, 6), torch.randn(2, 5, 8)
    fast = tracea.optimize(module, (x, cache, 3), budget=None, threads=1)
    for at in (3, 0):
        check(module, fast, (x, cache.clone(), at))


@pytest.mark.costly
@torch.inference_mode()
@pytest.mark.parametrize("name", AT_TENSORS)
def test_a_cache_written_at_a_tensor_is_what_eager_leaves_by_one_program(name: str) -> None:
    module = Cache(AT_TENSORS[name]).eval()
    for places in ([4], [0]), ([4, 1, 2], [0, 1, 2], [3, 0, 4]):
        x, cache = torch.randn(2, len(places[0]), 6), torch.randn(2, 5, 8)
        fast: Any = tracea.optimize(module, (x, cache, torch.tensor(places[0])), budget=None, threads=1)
        for at in places:
            check(module, fast, (x, cache.clone(), torch.tensor(at)))
        assert not fast._others
        for wrong in (5, -1):
            given = cache.clone()
            with pytest.raises(InvalidIndex, match=f"at_0: got {wrong}, expected 0 to 4, of 5"):
                fast(x, given, torch.tensor([wrong, *places[0][1:]]))
            assert torch.equal(given, cache)


@torch.inference_mode()
def test_a_written_input_may_lie_anywhere_but_over_another() -> None:
    module = Cache(AT_TENSORS["index_copy_"]).eval()
    x, both = torch.randn(2, 1, 6), torch.randn(2, 5, 2, 8)
    fast = tracea.optimize(module, (x, both[:, :, 0].contiguous(), torch.tensor([1])), budget=None, threads=1)
    other = both[:, :, 1].clone()
    check(module, fast, (x, both[:, :, 0], torch.tensor([2])))
    assert torch.equal(both[:, :, 1], other)
    memory = torch.randn(80)
    before = memory.clone()
    with pytest.raises(OverlappingOutput, match="cache"):
        fast(memory[:12].view(2, 1, 6), memory.view(2, 5, 8), torch.tensor([2]))
    with pytest.raises(OverlappingOutput, match="cache"):
        fast(x, memory[:40].view(1, 5, 8).expand(2, 5, 8), torch.tensor([2]))
    assert torch.equal(memory, before)


def test_a_cache_made_in_inference_mode_is_refused_elsewhere_before_anything_is_written() -> None:
    module = Cache(AT_TENSORS["index_copy_"]).eval()
    x, at = torch.randn(2, 1, 6), torch.tensor([1])
    with torch.inference_mode():
        cache = torch.zeros(2, 5, 8)
    fast = tracea.optimize(module, (x, torch.zeros(2, 5, 8), at), budget=None, threads=1)
    with torch.no_grad(), pytest.raises(InvalidInput, match="cache: got a tensor of torch"):
        fast(x, cache, at)
    assert not cache.any()


@pytest.mark.costly
@torch.inference_mode()
@pytest.mark.parametrize(
    "dtype", drawn(2, [torch.float64, torch.bfloat16, torch.int64, torch.bool], of="types of writes"), ids=str
)
def test_every_kind_of_write_moves_elements_of_every_type_bit_for_bit(dtype: torch.dtype) -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor, y: Tensor, at: Tensor) -> tuple[Tensor, ...]:
            x[1::2, :2] = y[:2, 1:3]
            y[:, 3] = x[0, 0]
            return x, x.index_copy(1, at, y[:, :3]), y.index_copy(0, at[:1], x[:1])

    x, y = (torch.randint(-3, 4, (4, 5)).to(dtype) for _ in range(2))
    if dtype.is_floating_point:
        x[3, 0], x[0, 0], y[1, 1] = float("nan"), float("-inf"), -0.0
    module = Writes().eval()
    fast = tracea.optimize(module, (x, y, torch.tensor([2, 0, 2])), budget=None, threads=1)
    theirs, ours = (x.clone(), y.clone()), (x.clone(), y.clone())
    wanted, found = module(*theirs, torch.tensor([1, 3, 1])), fast(*ours, torch.tensor([1, 3, 1]))
    torch.testing.assert_close([*found, *ours], [*wanted, *theirs], rtol=0, atol=0, equal_nan=True)


@torch.inference_mode()
def test_what_is_written_and_not_returned_is_written() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x[1:3] = 0.0
            x.add_(1.0)
            return x[0] * 2.0

    fast = tracea.optimize(Adds().eval(), (torch.zeros(4, 3),), budget=None, threads=1)
    check(Adds(), fast, (torch.randn(4, 3),))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda x, at: x.index_put_((at,), torch.ones(()), accumulate=True), "sums at places that indices name"),
        (lambda x, at: x.index_put_((at, at), torch.ones(())), "a write at places along several axes"),
        (lambda x, at: x.masked_scatter_(x > at, x), "no op expresses it"),
    ],
)
def test_what_no_op_writes_is_refused(write: Write, said: str) -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            return write(x, at)

    with pytest.raises(UnsupportedNode, match=said):
        capture(Writes(), (torch.ones(4, 5), torch.tensor([1])))


def test_a_slice_at_a_tensor_is_refused_and_the_remedy_says_what_to_write() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            x[at : at + 1] = 0.0
            return x

    with pytest.raises(UnsupportedNode) as caught:
        capture(Writes(), (torch.ones(4, 5), torch.tensor(1)))
    assert "index_copy_" in caught.value.remedy


@torch.inference_mode()
def test_masks_and_tables_of_a_buffer_are_read_at_the_places_of_a_tensor() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.ones(5, 5, dtype=torch.bool).tril())
            self.register_buffer("turns", torch.randn(5, 3))

        def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
            return torch.where(self.seen[at], x, 0.0), self.turns[:, at] + self.turns.index_select(1, at)

    module, x = Reads().eval(), torch.randn(2, 5)
    fast = tracea.optimize(module, (x, torch.tensor([2, 0])), budget=None, threads=1)
    check(module, fast, (x, torch.tensor([1, 2])))
    for wrong in (-1, 3):
        with pytest.raises(InvalidIndex, match=f"got {wrong}, expected 0 to 2, of 3"):
            fast(x, torch.tensor([1, wrong]))


@torch.inference_mode()
def test_places_of_an_input_that_is_written_itself_are_those_of_the_call() -> None:
    class Step(nn.Module):
        def forward(self, at: Tensor, then: Tensor, cache: Tensor, k: Tensor) -> Tensor:
            cache.index_copy_(0, at, k)
            at.copy_(then)
            return k * 2.0

    given = (torch.tensor([3]), torch.tensor([4]), torch.zeros(8, 2), torch.randn(1, 2))
    fast = tracea.optimize(Step().eval(), tuple(each.clone() for each in given), budget=None, threads=1)
    check(Step(), fast, given)


@dataclass
class Past:
    k: Tensor


pytree.register_dataclass(Past)


@pytest.mark.parametrize(
    ("change", "past"),
    [
        (lambda past, x: past.append(x), [torch.zeros(1, 2)]),
        (lambda past, x: past.update(k=x), {"k": torch.zeros(1, 2)}),
        (lambda past, x: setattr(past, "k", x), Past(torch.zeros(1, 2))),
        (lambda past, x: past[0].append(x), ([torch.zeros(1, 2)],)),
    ],
)
def test_a_container_that_forward_changes_is_refused(change: Callable[[Any, Tensor], None], past: Any) -> None:
    class Remembers(nn.Module):
        def forward(self, x: Tensor, past: Any) -> Tensor:
            change(past, x + 1.0)
            return sum(pytree.tree_leaves(past), torch.zeros(1, 2))

    held = pytree.tree_leaves(past)
    with pytest.raises(UnsupportedNode, match=r"changes what the \w+ of argument 1 holds"):
        tracea.optimize(Remembers().eval(), (torch.randn(1, 2), past), budget=None, threads=1)
    assert all(one is other for one, other in zip(pytree.tree_leaves(past), held, strict=True))
