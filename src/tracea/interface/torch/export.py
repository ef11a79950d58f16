"""torch.export, called quietly and only as far as needed.

Functional where a model writes in place, decomposed where an operator has no lowering of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import operator
import re
import traceback
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias, cast

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from tracea.errors import UnsupportedNode
from tracea.interface.torch.instead import BY_SCORE, NO_OP, OF_WINDOWS
from tracea.interface.torch.location import forwards_named, is_users, line_of_traceback
from tracea.interface.torch.state import State
from tracea.interface.torch.streams import kept_apart, tell
from tracea.runtime.process_lock import ProcessLock

__all__ = [
    "ExportedProgram",
    "FxNode",
    "arguments_in_order",
    "decomposed",
    "described",
    "exported",
    "exporting",
    "headline",
    "is_node",
    "is_operator",
    "items_read",
    "line_of_forward",
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
        # Whether it matters is seen by a second call (agreement.py), and the attribute is put back.
        warnings.filterwarnings("ignore", message=r"The tensor attributes? .* assigned during export")
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
        tell("stderr", text)


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
    """Return the captured program, free of writes in place; dicts and lists of the module hold what they held before.

    Raises:
        UnsupportedNode: torch.export could not follow the module; the line is the user's.
    """
    before = State.of(module)
    try:
        with exporting(), _without_torch_dumps(), _groups_of_any_floats(), forwards_named(module):
            program: ExportedProgram = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            if _writes(program):
                _take_out_dropout(program)
                program = program.run_decompositions({})
    except Exception as error:
        raise _unfollowed(error, module) from error
    finally:
        after = State.of(module)
        if before.changed(after) is not None:
            before.restore()  # also stand-ins for tensors that forward keeps
    _check_tensors_stay(module, before, after)
    return program


@contextlib.contextmanager
def _groups_of_any_floats() -> Generator[None]:
    """Let torch.export follow products of groups of rows as eager code runs them, not of bfloat16 alone.

    torch 2.13 checks them by a function that is for CUDA; where that is no more, nothing is changed.
    """
    checks: Any = import_module("torch._meta_registrations")
    name = "_meta_grouped_mm_common"
    common = getattr(checks, name, None)
    if common is None:
        yield
        return

    def told(mat_a: torch.Tensor, mat_b: torch.Tensor, *others: Any, offs: Any = None, **named: Any) -> torch.Tensor:
        is_plain = not others and all(named.get(each) is None for each in ("scale_a", "bias", "out_dtype"))
        is_of_rows = mat_a.dim() == 2 and mat_b.dim() == 3 and offs is not None and mat_a.shape[1] == mat_b.shape[1]
        if is_plain and is_of_rows and mat_a.dtype is mat_b.dtype in (torch.float32, torch.float16):
            return mat_a.new_empty((mat_a.shape[0], mat_b.shape[2]))
        return common(mat_a, mat_b, *others, offs=offs, **named)

    setattr(checks, name, told)
    try:
        yield
    finally:
        setattr(checks, name, common)


def _unfollowed(error: Exception, module: torch.nn.Module) -> UnsupportedNode:
    kind = _KIND.search(headline(error))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if kind is not None:
        kinds: set[type] = {type(value) for frame in frames for value in frame.f_locals.values()}
        is_dataclass = any(dataclasses.is_dataclass(each) for each in kinds if str(each) == kind["class"])
        return _of_unknown_kind(kind["name"], module, is_result=kind["output"] is not None, is_dataclass=is_dataclass)
    if any(frame.f_globals.get("__name__") in _OF_SCORES for frame in frames):
        return UnsupportedNode(
            node=f"flex_attention: {NO_OP}",
            location=line_of_traceback(error.__traceback__) or line_of_forward(module),
            remedy=BY_SCORE,
        )
    if any(isinstance(frame.f_locals.get("batch_sizes"), torch.Tensor) for frame in frames):  # of nn.RNNBase.forward
        return UnsupportedNode(
            node="a packed sequence",
            location=line_of_traceback(error.__traceback__) or line_of_forward(module),
            remedy="give recurrent layers the padded sequences, and take from the result what lies before their ends; "
            "a layer that goes backwards needs each sequence alone, at its own length",
        )
    if "executing unfold" in headline(error) and "internal overlap" in headline(error):
        reason, remedy = OF_WINDOWS
        return UnsupportedNode(
            node=reason, location=line_of_traceback(error.__traceback__) or line_of_forward(module), remedy=remedy
        )
    return UnsupportedNode(
        node=headline(error),
        location=line_of_traceback(error.__traceback__) or line_of_forward(module),
        remedy="rewrite the line so that torch.export can follow it: no branches on the values of tensors, no "
        "slices at them (x.index_copy_(axis, places, values) writes at places of a tensor), no input that is given "
        "another shape in place (squeeze_, unsqueeze_, t_), no calls into other libraries",
    )


# Whether torch.export follows flex_attention depends on what was compiled before, and what it stumbles over, torch's
# own insides, says nothing to a caller.
_OF_SCORES: Final = ("torch.nn.attention.flex_attention", "torch._higher_order_ops.flex_attention")
_KIND: Final = re.compile(
    r"(?:Found|Unsupported input type) (?P<class><class '(?P<name>[^']+)'>)(?P<output> in output)?"
)


def _of_unknown_kind(name: str, module: torch.nn.Module, *, is_result: bool, is_dataclass: bool) -> UnsupportedNode:
    """Return the error for an object among the arguments or the results whose tensors nothing names."""
    kind = name if name.startswith(("numpy.", "torch.")) else name.rpartition(".")[2]
    if name.endswith(".BlockMask"):
        return UnsupportedNode(
            node=f"flex_attention, whose BlockMask forward is given: {NO_OP}",
            location=line_of_forward(module),
            remedy=BY_SCORE,
        )
    return UnsupportedNode(
        node=f"a {kind} among the {'results' if is_result else 'arguments'} of forward, which is no structure of torch",
        location=line_of_forward(module),
        remedy=f"{'return' if is_result else 'give'} {_in_place_of(name)}"
        + (f"; torch.export.register_dataclass({kind}) once before makes the dataclass one" if is_dataclass else ""),
    )


def _in_place_of(name: str) -> str:
    """Return what is taken in place of an object of a class."""
    if name == "numpy.ndarray":
        return "a tensor, torch.from_numpy(x)"
    if name == "complex":
        return "a tensor, torch.tensor(x)"
    if name.startswith("numpy."):
        return "a number of Python, float(x) or int(x)"
    return "tensors alone or in tuples, lists, dicts or named tuples, beside numbers, strings and None"


def _take_out_dropout(program: ExportedProgram) -> None:
    """Let what dropout returns where it is off be its input, as it is: torch takes it for a tensor of its own."""
    for node in program.graph.nodes:
        if is_operator(node) and operator_name(node.target) in _DROPOUTS:
            source, _, is_training = arguments_in_order(node.target, node.args, node.kwargs)
            if not is_training:
                node.replace_all_uses_with(source)
                program.graph.erase_node(node)
    program.graph_module.recompile()


_DROPOUTS: Final = ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default")


def _check_tensors_stay(module: torch.nn.Module, before: State, after: State) -> None:
    """Check that forward left the module's tensors where they were, not others in their place.

    Raises:
        UnsupportedNode: it did not, so that the next call would compute something else.
    """
    place = before.rebound(after)
    if place is None:
        return
    raise UnsupportedNode(
        node=f"a tensor in place of another, {place}",
        location=line_of_forward(module),
        remedy="return the new tensor instead: a compiled module has the state of the time at which it was optimized",
    )


def line_of_forward(module: torch.nn.Module) -> str:
    """Return where the module's forward begins; its kind, where that is not the user's code."""
    code = getattr(getattr(module.forward, "func", module.forward), "__code__", None)  # a partial has it in ``func``
    if code is None or not is_users(code.co_filename):
        return type(module).__name__
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def headline(error: Exception) -> str:
    """Return what an exception says in its first line."""
    try:
        text = str(error)
    except Exception:  # an exception of the user's, which cannot say what it is
        return type(error).__name__
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def described(inputs: tuple[Any, ...]) -> str:
    """Return the shapes and types of a call's tensors."""
    leaves = pytree.tree_leaves(inputs)
    kinds = [
        f"{tuple(leaf.shape)} of {leaf.dtype}" if isinstance(leaf, torch.Tensor) else type(leaf).__name__
        for leaf in leaves
    ]
    return ", ".join(kinds[:8]) + (", …" if len(kinds) > 8 else "") if kinds else "none"


def decomposed(
    module: torch.nn.Module, program: ExportedProgram, operators: Collection[OpOverload[..., Any]]
) -> ExportedProgram | None:
    """Return a module's program with these operators replaced by what torch says they are made of; None if nothing.

    Raises:
        UnsupportedNode: torch cannot follow its own program, such as one that gives an input another shape.
    """
    with exporting(), _groups_of_any_floats():
        known: Any = torch.export.default_decompositions()
        table: dict[Any, Any] = {operator: known[operator] for operator in operators if operator in known}
        if not table:
            return None
        try:
            return program.run_decompositions(table)
        except Exception as error:
            raise _unfollowed(error, module) from error


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


def items_read(node: FxNode) -> frozenset[int]:
    """Return which of an operator's several results others read."""
    return frozenset(user.args[1] for user in node.users if user.target is operator.getitem and user.users)


def _writes(program: ExportedProgram) -> bool:
    return any(is_operator(node) and node.target._schema.is_mutable for node in program.graph.nodes)
