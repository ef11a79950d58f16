"""torch.export, called quietly and only as far as needed.

Functional where a model writes in place, decomposed where an operator has no lowering of its own.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from tracea.errors import InvalidInput, UnsupportedNode
from tracea.interface.torch.location import line_of_traceback
from tracea.interface.torch.state import State
from tracea.interface.torch.streams import kept_apart
from tracea.runtime.process_lock import ProcessLock

__all__ = [
    "ExportedProgram",
    "FxNode",
    "arguments_in_order",
    "check_eager",
    "decomposed",
    "exported",
    "exporting",
    "is_node",
    "is_operator",
    "operator_name",
    "told_apart",
]

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
def exporting() -> Generator[None]:
    """Have a module followed by this thread alone, for inference: export replaces functions of torch while it runs."""
    with _exporting, _without_torch_warnings(), torch.no_grad():
        yield


@contextlib.contextmanager
def _without_torch_dumps() -> Generator[None]:
    # Where export gives up it prints its graph on standard error beside the exception, which says the same in a line.
    text = ""
    logs = {logging.getLogger(f"torch.{name}"): rule for name, rule in _NOISY.items()}
    for log, rule in logs.items():
        log.addFilter(rule)
    try:
        with kept_apart("stderr") as written:
            yield
        text = written["stderr"]
    finally:
        for log, rule in logs.items():
            log.removeFilter(rule)
        sys.stderr.write(text)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _is_critical(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.CRITICAL


# What each logger may still say: a failing meta function logs the traceback of the exception that it also raises.
_NOISY = {"fx.experimental.symbolic_shapes": _is_error, "_subclasses.fake_tensor": _is_critical}


def told_apart(inputs: tuple[Any, ...], taken: set[int]) -> tuple[Any, ...]:
    """Return the inputs with no tensor twice: export takes one object for one value, and a call need not repeat it."""

    def alone(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        other = leaf.detach() if id(leaf) in taken else leaf
        taken.add(id(other))
        return other

    return pytree.tree_map(alone, inputs)


def exported(module: torch.nn.Module, inputs: tuple[Any, ...], dynamic: Any = None) -> ExportedProgram:
    """Return the captured program, free of writes in place.

    Raises:
        UnsupportedNode: torch.export could not follow the module; the line is the user's.
    """
    before = State.of(module)
    try:
        with exporting(), _without_torch_dumps():
            program: ExportedProgram = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            if _writes(program):
                program = program.run_decompositions({})
    except Exception as error:
        raise UnsupportedNode(
            node=_headline(error),
            location=line_of_traceback(error.__traceback__),
            remedy="rewrite the line so that torch.export can follow it: no branches on the values of tensors, no "
            "slices at them (x.index_copy_(axis, places, values) writes at places of a tensor), no calls into other "
            "libraries",
        ) from error
    _check_tensors_stay(module, before)
    return program


def _check_tensors_stay(module: torch.nn.Module, before: State) -> None:
    """Check that forward left the module's tensors where they were, not others in their place; put them back.

    Raises:
        UnsupportedNode: it did not, so that the next call would compute something else.
    """
    place = before.rebound(State.of(module))
    if place is None:
        return
    before.restore()
    code = getattr(module.forward, "__code__", None)
    raise UnsupportedNode(
        node=f"a tensor in place of another, {place}",
        location=f"{code.co_filename}:{code.co_firstlineno} in forward" if code else type(module).__name__,
        remedy="return the new tensor instead: a compiled module has the state of the time at which it was optimized",
    )


def check_eager(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    """Check that a module takes the inputs that it could not be captured with, by a run of a copy.

    Raises:
        InvalidInput: the module refuses them itself.
    """
    try:
        alone = copy.deepcopy(module)
    except Exception:  # a module that cannot be copied is not run: a run could change it
        return

    def own(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    given = pytree.tree_map(own, inputs)
    try:
        with warnings.catch_warnings(), kept_apart("stdout", "stderr"):
            warnings.simplefilter("ignore")
            with torch.no_grad(), torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
                alone(*given)
    except Exception as error:
        raise InvalidInput(
            field="example_inputs",
            got=f"{_described(inputs)}, with which {type(module).__name__} raises {_headline(error)}",
            expected=f"inputs that {type(module).__name__} takes",
            remedy="call module(*example_inputs) with inputs that work, and give the same ones",
        ) from error


def _headline(error: Exception) -> str:
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _described(inputs: tuple[Any, ...]) -> str:
    leaves = pytree.tree_leaves(inputs)
    kinds = [
        f"{tuple(leaf.shape)} of {leaf.dtype}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__
        for leaf in leaves
    ]
    return ", ".join(kinds[:8]) + (", …" if len(kinds) > 8 else "") if kinds else "none"


def decomposed(program: ExportedProgram, operators: Collection[OpOverload[..., Any]]) -> ExportedProgram | None:
    """Return the program with these operators replaced by what torch says they are made of; None if it says nothing."""
    with exporting():
        known: Any = torch.export.default_decompositions()
        table: dict[Any, Any] = {operator: known[operator] for operator in operators if operator in known}
        return program.run_decompositions(table) if table else None


def is_node(value: Any) -> bool:
    """Tell whether a value is a node of a captured graph, not a literal."""
    return isinstance(value, torch.fx.Node)


def is_operator(node: FxNode) -> bool:
    """Tell whether a node calls an operator of torch, not a Python function."""
    return isinstance(node.target, OpOverload)


def arguments_in_order(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return a call's arguments in the order of the operator's schema, defaults filled in."""
    wanted = operator._schema.arguments  # pyright: ignore
    given = enumerate(wanted)
    return [args[i] if i < len(args) else kwargs.get(each.name, each.default_value) for i, each in given]


def operator_name(target: Any) -> str:
    """Return ``aten.add.Tensor`` of an operator, or the name of another callable."""
    return (
        str(getattr(target, "__name__", target)) if not isinstance(target, OpOverload) else str(cast("object", target))
    )


def _writes(program: ExportedProgram) -> bool:
    return any(is_operator(node) and node.target._schema.is_mutable for node in program.graph.nodes)
