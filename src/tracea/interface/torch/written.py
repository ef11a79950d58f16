"""What a module writes to the tensors that it is given: the results of a program are copied there behind its run."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tracea.errors import InvalidInput
from tracea.runtime.buffers import check_output, view

__all__ = ["InputWrite", "check_written", "write_inputs"]

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWrite:
    """Input ``input`` becomes output ``output``; both differ at most at some indices of one axis, if ``axis`` is known.

    ``at`` are those indices, or the input that holds them.
    """

    name: str
    input: int
    output: int
    axis: int | None = None
    at: range | int = 0


def write_inputs(writes: Sequence[InputWrite], given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Write a program's results to the tensors of a call: where, was said before any of them is written to."""
    with torch.no_grad() if torch.is_grad_enabled() else contextlib.nullcontext():
        places = [_places(write, given, writes) for write in writes]
        for write, part in zip(writes, places, strict=True):
            target, value = given[write.input], results[write.output]
            if isinstance(part, torch.Tensor):
                assert write.axis is not None
                target.index_copy_(write.axis, part, value.index_select(write.axis, part))
            elif part:
                target[part].copy_(value[part])
            else:
                target.copy_(value)


def _places(
    write: InputWrite, given: Sequence[torch.Tensor], writes: Sequence[InputWrite]
) -> torch.Tensor | tuple[slice, ...]:
    """Return the indices of the write's axis, in memory that no write reaches, or what is written as slices."""
    if write.axis is None:
        return ()
    if isinstance(write.at, range):
        return (*(slice(None),) * write.axis, slice(write.at.start, write.at.stop, write.at.step))
    indices = given[write.at].reshape(-1).long()
    return indices.clone() if any(other.input == write.at for other in writes) else indices


def check_written(given: Sequence[torch.Tensor], names: Sequence[str], writes: Sequence[InputWrite]) -> None:
    """Check that each tensor that is written to has memory of its own, before anything is computed.

    Raises:
        OverlappingOutput: it shares an element with itself or with another input, so that a write to the one would be
            a write to the other.
        InvalidInput: it was made in inference mode, and this is no inference mode.
    """
    for write in writes:
        target = given[write.input]
        if target.is_inference() and not torch.is_inference_mode_enabled():
            raise InvalidInput(
                field=write.name,
                got="a tensor of torch.inference_mode()",
                expected="one that may be written to here",
                remedy="call under torch.inference_mode(), or give a clone",
            )
        named = enumerate(zip(names, given, strict=True))
        others = {name: tensor for number, (name, tensor) in named if number != write.input}
        if not _is_apart(target, others.values()):
            views = {name: view(tensor.detach(), name) for name, tensor in others.items()}
            check_output(view(target.detach(), write.name), views, write.name)


def _is_apart(target: torch.Tensor, others: Collection[torch.Tensor]) -> bool:
    """Tell on sight that a row-major tensor shares no byte with others; what cannot be told so is looked at closely."""
    if not all(type(each) in _PLAIN for each in (target, *others)) or not target.is_contiguous():
        return False
    try:
        low = target.data_ptr()
        high = low + target.nbytes
        for other in others:
            if other.is_contiguous():
                start, size = other.data_ptr(), other.nbytes
            else:
                memory = other.untyped_storage()
                start, size = memory.data_ptr(), memory.nbytes()
            if start < high and low < start + size:
                return False
    except RuntimeError:  # of functional tensors, which have no memory
        return False
    return True
