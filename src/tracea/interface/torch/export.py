"""torch.export, called quietly and only as far as needed: functional where a model writes in place, decomposed where
an operator has no lowering of its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch._ops import OpOverload

from tracea.errors import UnsupportedNode
from tracea.interface.torch.location import line_of_traceback

__all__ = ["decomposed", "exported", "operator_name"]


@contextlib.contextmanager
def _without_torch_warnings() -> Iterator[None]:
    # torch warns about its own use of its own names, and the user can do nothing about it. Warnings of the user's
    # code, of which the module is theirs, stay.
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", message=r"`?isinstance\(treespec, LeafSpec\)", category=category)
            warnings.filterwarnings("ignore", module=r"torch(\.|$)|copyreg$|copy$", category=category)
        yield


def exported(module: torch.nn.Module, inputs: tuple[Any, ...], dynamic: Any = None) -> torch.export.ExportedProgram:
    """Return the captured program, free of writes in place.

    Raises:
        UnsupportedNode: torch.export could not follow the module; the line is the user's.
    """
    try:
        with _without_torch_warnings(), torch.no_grad():
            program = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            return program.run_decompositions({}) if _writes(program) else program
    except Exception as error:
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UnsupportedNode(
            node=f"{type(error).__name__}: {first_line}",
            location=line_of_traceback(error.__traceback__),
            remedy="call the module with these inputs; if that works, rewrite the line so that torch.export can "
            "follow it: no branches on the values of tensors, no calls into other libraries",
        ) from error


def decomposed(
    program: torch.export.ExportedProgram, operators: Collection[OpOverload]
) -> torch.export.ExportedProgram | None:
    """Return the program with these operators replaced by what torch says they are made of; None if it says nothing."""
    with _without_torch_warnings(), torch.no_grad():
        known = torch.export.default_decompositions()
        table = {operator: known[operator] for operator in operators if operator in known}
        return program.run_decompositions(table) if table else None


def operator_name(target: Any) -> str:
    """Return ``aten.add.Tensor`` of an operator, or the name of another callable."""
    return str(target) if isinstance(target, OpOverload) else getattr(target, "__name__", str(target))


def _writes(program: torch.export.ExportedProgram) -> bool:
    return any(
        isinstance(node.target, OpOverload) and node.target._schema.is_mutable  # pyright: ignore[reportPrivateUsage]
        for node in program.graph.nodes
    )
