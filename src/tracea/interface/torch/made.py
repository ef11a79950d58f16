"""Tensors that a module makes of numbers while it is traced: masks, positions. They are computed, as in any call."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from tracea.interface.torch.aliases import returning
from tracea.interface.torch.constants import is_computable
from tracea.interface.torch.export import FxNode, operator_name
from tracea.interface.torch.result_types import RESULT_TYPES

__all__ = ["Made", "copy_of", "place_of"]

# Beside what has a rule: others change where a tensor's memory is, or how large.
_WRITES: Final = frozenset(
    {"copy", "fill", "index_copy", "index_fill", "index_put", "masked_fill", "scatter", "tril", "triu", "zero"}
)


class Made:
    """What operators of no value returned: whoever keeps it, a cache outside the module, has a tensor like any other.

    ``nodes`` has those whose elements a program reads, by their place in memory. What was made in an ``earlier`` run,
    and may be kept outside, is as if it were made in this one.
    """

    def __init__(self, earlier: Made | None = None) -> None:
        # By storage, which lives with them.
        self._tensors: dict[int, torch.Tensor] = {} if earlier is None else dict(earlier._tensors)
        self.nodes: dict[Any, FxNode] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor with memory is one of them, or a view of one."""
        return _storage_of(tensor) in self._tensors

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor among them."""
        self._tensors[_storage_of(tensor)] = tensor
        return tensor

    @staticmethod
    def can_run(called: OpOverload[..., Any]) -> bool:
        """Tell whether an operator's arguments alone decide its result; it may write that to the first of them."""
        instead = returning(called)
        if instead is None:
            return is_computable(called)
        name = operator_name(instead)
        return name in RESULT_TYPES or name.split(".")[1] in _WRITES

    def run(self, called: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what an operator makes of numbers and such tensors."""
        if returning(called) is not None:  # who read elements before has a copy
            storage = _storage_of(args[0])
            self.nodes = {place: node for place, node in self.nodes.items() if place[-1] != storage}
        with torch.inference_mode(False), torch.no_grad(), _without_views():
            result = called(*args, **kwargs)
        return pytree.tree_map(self.keep, result)


def place_of(tensor: torch.Tensor) -> Any:
    """Return where a tensor's elements are and what they are, by which two tensors are one; its storage is the last."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, _storage_of(tensor)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same elements, whatever mode torch is in."""
    with torch.inference_mode(False), torch.no_grad():
        return tensor.clone()


def _storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore


@contextlib.contextmanager
def _without_views() -> Generator[None]:
    """Leave it to torch, which called the trace, to note what is a view of what: it refuses to do so twice."""
    keys: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # pyright: ignore
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(keys):  # pyright: ignore
        yield
