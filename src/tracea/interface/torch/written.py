"""What a module writes to the tensors that it is given: the results of a program are copied there behind its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tracea.errors import InvalidInput
from tracea.runtime.buffers import check_output, view

__all__ = ["InputWrite", "check_written"]


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

    def apply(self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Write a program's result to the tensor of a call."""
        target, value = given[self.input], results[self.output]
        with torch.no_grad():
            if self.axis is None:
                target.copy_(value)
            elif isinstance(self.at, range):
                part = (slice(None),) * self.axis + (slice(self.at.start, self.at.stop, self.at.step),)
                target[part].copy_(value[part])
            else:
                places = given[self.at].reshape(-1).long()
                target.index_copy_(self.axis, places, value.index_select(self.axis, places))


def check_written(given: Sequence[torch.Tensor], writes: Sequence[InputWrite]) -> None:
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
        others = [view(tensor.detach()) for number, tensor in enumerate(given) if number != write.input]
        check_output(view(target.detach(), write.name), others, write.name)
