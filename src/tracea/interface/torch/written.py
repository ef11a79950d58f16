"""What a module writes to the tensors that it is given: the results of a program are copied there behind its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tracea.errors import InvalidInput
from tracea.runtime.buffers import check_output, view

__all__ = ["InputWrite", "check_written", "write_inputs"]


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
    with torch.no_grad():
        places = [_places(write, given, writes) for write in writes]
        for write, part in zip(writes, places, strict=True):
            target, value = given[write.input], results[write.output]
            if isinstance(part, torch.Tensor):
                assert write.axis is not None
                target.index_copy_(write.axis, part, value.index_select(write.axis, part))
            else:
                target[part].copy_(value[part])


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
        others = {
            name: view(tensor.detach(), name)
            for number, (name, tensor) in enumerate(zip(names, given, strict=True))
            if number != write.input
        }
        check_output(view(target.detach(), write.name), others, write.name)
