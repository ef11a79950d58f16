"""What a torch tensor may say beside shape, strides and elements: a memory that was resized, a tangent, its writes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tracea.errors import InvalidDevice, InvalidInput

__all__ = ["check_storage", "count_write", "refuse_tangent"]


def check_storage(tensor: Any, field: str) -> None:
    """Check that a tensor of torch lies within its memory, which its owner may have resized since.

    Raises: InvalidDevice.
    """
    try:
        held_bytes = tensor.untyped_storage().nbytes()
    except RuntimeError:  # functional and vmapped tensors, of which the address says that they have no memory
        return
    reach = zip(tensor.shape, tensor.stride(), strict=True)
    needed = tensor.storage_offset() + sum((dim - 1) * stride for dim, stride in reach) + 1 if tensor.numel() else 0
    needed_bytes = needed * tensor.element_size()
    if needed_bytes > held_bytes:
        raise InvalidDevice(
            field=field,
            got=f"a storage of {held_bytes} bytes",
            expected=f"{needed_bytes}, to the end of the last element",
            remedy=f"give a tensor whose storage is whole: it was resized, untyped_storage().resize_({needed_bytes}) "
            "gives it room again",
        )


def count_write(array: Any) -> None:
    """Tell autograd that a caller's tensor is written: what was saved of it for a gradient no longer holds."""
    if not isinstance(array, np.ndarray):
        sys.modules["torch"].autograd.graph.increment_version(array)


def refuse_tangent(tensor: Any, torch: Any, field: str) -> None:
    """Refuse a dual tensor of forward-mode differentiation, whose tangent no program would carry on.

    Raises: InvalidInput.
    """
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        raise InvalidInput(
            field=field,
            got="a dual tensor",
            expected="inference",
            remedy="give the primal, torch.autograd.forward_ad.unpack_dual(tensor).primal, or differentiate eager code",
        )
