"""torch.export, called quietly and only as far as needed.

Functional where a model writes in place, decomposed where an operator has no lowering of its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Collection, Generator
from typing import Any, Final, TypeAlias, cast

import torch
from torch._ops import OpOverload

from tracea.errors import UnsupportedNode
from tracea.interface.torch.location import line_of_traceback
from tracea.runtime.process_lock import ProcessLock

__all__ = ["ExportedProgram", "FxNode", "decomposed", "exported", "is_node", "is_operator", "operator_name"]

# torch annotates its graphs in part only: here and in what reads them they are Any.
_exporting: Final = ProcessLock()

ExportedProgram: TypeAlias = Any
FxNode: TypeAlias = Any


@contextlib.contextmanager
def _without_torch_warnings() -> Generator[None]:
    # torch warns about its own use of its own names, and the user can do nothing about it. Warnings of the user's
    # code, of which the module is theirs, stay.
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", message=r"`?isinstance\(treespec, LeafSpec\)", category=category)
            warnings.filterwarnings("ignore", module=r"torch(\.|$)|copyreg$|copy$", category=category)
        yield


@contextlib.contextmanager
def _without_torch_dumps() -> Generator[None]:
    # Where export gives up it prints its graph on standard error beside the exception, which says the same in a line.
    text = io.StringIO()
    logs = {logging.getLogger(f"torch.{name}"): rule for name, rule in _NOISY.items()}
    for log, rule in logs.items():
        log.addFilter(rule)
    try:
        with contextlib.redirect_stderr(text):
            yield
    except Exception:
        text = io.StringIO()
        raise
    finally:
        for log, rule in logs.items():
            log.removeFilter(rule)
        sys.stderr.write(text.getvalue())


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _is_critical(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.CRITICAL


# What each logger may still say: a failing meta function logs the traceback of the exception that it also raises.
_NOISY = {"fx.experimental.symbolic_shapes": _is_error, "_subclasses.fake_tensor": _is_critical}


def exported(module: torch.nn.Module, inputs: tuple[Any, ...], dynamic: Any = None) -> ExportedProgram:
    """Return the captured program, free of writes in place.

    Raises:
        UnsupportedNode: torch.export could not follow the module; the line is the user's.
    """
    try:
        # One thread at a time: export replaces functions of torch while it runs.
        with _exporting, _without_torch_warnings(), _without_torch_dumps(), torch.no_grad():
            program: ExportedProgram = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            return program.run_decompositions({}) if _writes(program) else program
    except Exception as error:
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UnsupportedNode(
            node=f"{type(error).__name__}: {first_line}",
            location=line_of_traceback(error.__traceback__),
            remedy="call the module with these inputs; if that works, rewrite the line so that torch.export can "
            "follow it: no branches on the values of tensors, no calls into other libraries",
        ) from error


def decomposed(program: ExportedProgram, operators: Collection[OpOverload[..., Any]]) -> ExportedProgram | None:
    """Return the program with these operators replaced by what torch says they are made of; None if it says nothing."""
    with _exporting, _without_torch_warnings(), torch.no_grad():
        known: Any = torch.export.default_decompositions()
        table: dict[Any, Any] = {operator: known[operator] for operator in operators if operator in known}
        return program.run_decompositions(table) if table else None


def is_node(value: Any) -> bool:
    """Tell whether a value is a node of a captured graph, not a literal."""
    return isinstance(value, torch.fx.Node)


def is_operator(node: FxNode) -> bool:
    """Tell whether a node calls an operator of torch, not a Python function."""
    return isinstance(node.target, OpOverload)


def operator_name(target: Any) -> str:
    """Return ``aten.add.Tensor`` of an operator, or the name of another callable."""
    return (
        str(getattr(target, "__name__", target)) if not isinstance(target, OpOverload) else str(cast("object", target))
    )


def _writes(program: ExportedProgram) -> bool:
    return any(is_operator(node) and node.target._schema.is_mutable for node in program.graph.nodes)
