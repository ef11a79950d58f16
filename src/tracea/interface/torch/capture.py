"""Capture: a torch module and example inputs become a core.Graph, its constants and the nesting of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from tracea.errors import InvalidInput, TraceaError, UnsupportedNode
from tracea.interface.torch.agreement import check_agrees, check_eager
from tracea.interface.torch.aten import LOWERINGS, WITHOUT_VALUE
from tracea.interface.torch.constants import Constants
from tracea.interface.torch.export import (
    ExportedProgram,
    FxNode,
    decomposed,
    exported,
    is_operator,
    operator_name,
    told_apart,
)
from tracea.interface.torch.facts import OF_PLACES, Questions
from tracea.interface.torch.specs import Place
from tracea.interface.torch.surroundings import OutsideTensors
from tracea.interface.torch.trace import traced
from tracea.interface.torch.types import as_pairs, check_tensor
from tracea.interface.torch.walk import Captured, Walk

__all__ = ["Captured", "capture"]

_ROUNDS_OF_DECOMPOSITION = 4


def capture(
    module: torch.nn.Module, example_inputs: Any, *, dynamic: Any = None, outside: OutsideTensors | None = None
) -> Captured:
    """Return the graph of ``module(*example_inputs)`` for inference; parameters and buffers become constants.

    ``dynamic`` is what ``torch.export`` calls ``dynamic_shapes``: a dynamic axis becomes a SymbolicDim. ``outside``
    keeps copies of tensors that the module does not own, from one capture to the next.

    Raises:
        UnsupportedNode: the module uses what no op expresses; all such lines are named at once.
        InvalidDevice, InvalidDType: a tensor is not in this machine's memory, or of a type that Tracea lacks.
        InvalidInput: the module is none, the inputs hold a sparse tensor, or the module itself does not take them.
    """
    inputs = _checked_inputs(module, example_inputs)
    followed = None if dynamic is not None else _followed(module, inputs, outside)
    if followed is not None:
        return followed
    questions = Questions()
    try:
        with questions:
            program = exported(module, inputs, dynamic)
        captured = _captured(module, program, outside)
    except UnsupportedNode as error:
        check_eager(module, inputs)  # what the module itself refuses is no shortcoming of its code
        _refuse_scripted(module)
        if shared := _shared(inputs):
            raise replace(error, remedy=f"{error.remedy}. {shared}") from error
        raise
    check_agrees(module, program, inputs)
    return captured if dynamic is not None else _of_these_alone(captured, inputs, questions.asked)


def _of_these_alone(captured: Captured, inputs: tuple[Any, ...], asked: set[str]) -> Captured:
    """Return a program that says for which layouts and gradients of its inputs it is, where forward asked for them."""
    if not asked:
        return captured
    given = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    places = tuple(map(Place.of, given)) if asked & OF_PLACES else None
    gradients = tuple(tensor.requires_grad for tensor in given) if "requires_grad" in asked else None
    strides = tuple(tensor.stride() for tensor in given) if asked - {"requires_grad"} else None
    conjugated = tuple(map(torch.Tensor.is_conj, given)) if "is_conj" in asked else None
    facts = {"strides": strides, "places": places, "gradients": gradients, "conjugated": conjugated}
    spec = replace(captured.input_spec, **facts)
    return replace(captured, input_spec=spec)


def _followed(module: torch.nn.Module, inputs: tuple[Any, ...], outside: OutsideTensors | None) -> Captured | None:
    """Return what a trace of our own sees; None where torch.export is to say what there is, or what is wrong."""
    program = traced(module, inputs)
    try:
        return None if program is None else Walk(program, outside).run()
    except TraceaError:
        return None


def _captured(module: torch.nn.Module, program: ExportedProgram, outside: OutsideTensors | None) -> Captured:
    """Return the graph of a program whose operators without a lowering are replaced by what torch makes them of."""
    unknown = _unknown_operators(program)
    attempt = program
    written = {node.name: operator_name(node.target) for node in program.graph.nodes if is_operator(node)}
    for _ in range(_ROUNDS_OF_DECOMPOSITION):
        simpler = decomposed(module, attempt, unknown) if unknown else None
        if simpler is None:
            break
        written = {node.name: _as_written(node, written) for node in simpler.graph.nodes if is_operator(node)}
        attempt, unknown = simpler, _unknown_operators(simpler)
    return Walk(attempt, outside, written=written).run()  # which says every operator that stays unknown


def _shared(inputs: tuple[Any, ...]) -> str:
    """Say which two example inputs have one storage, of which torch.export follows no write; "" where none have."""
    seen: dict[int, int] = {}
    for place, leaf in enumerate(pytree.tree_leaves(inputs)):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            first = seen.setdefault(leaf.untyped_storage().data_ptr(), place)
            if first != place:
                return f"Example inputs {first} and {place} share memory: where forward writes to one, give clones"
    return ""


def _as_written(node: FxNode, before: Mapping[str, str]) -> str:
    """Return the operator of the user's line that a node of a simpler program is a part of."""
    sources = (before.get(source.name) for source in node.meta.get("from_node", ()))
    return next((name for name in sources if name is not None), operator_name(node.target))


def _refuse_scripted(module: torch.nn.Module) -> None:
    """Refuse modules of torch.jit, of which torch.export says only that it takes none."""
    for name, inner in cast("Any", module).named_modules():
        if isinstance(inner, torch.jit.ScriptModule):
            raise InvalidInput(
                field=f"module.{name}" if name else "module",
                got=f"a {type(inner).__name__} of torch.jit",
                expected="a torch.nn.Module as it was written, before torch.jit.script or torch.jit.trace",
                remedy="give the original module; of what torch.jit.save wrote, the class that made it",
            )


def _no_module(given: object) -> InvalidInput:
    """Return the error for what is no module, with what makes one of it."""
    got, remedy = type(given).__name__, "give the module, then its example inputs: optimize(module, (x,))"
    if isinstance(given, type):
        got, remedy = f"the class {given.__name__}", f"make a module of it: {given.__name__}(...)"
    elif callable(given):
        remedy = "put the function into the forward of a module"
    return InvalidInput(field="module", got=got, expected="a torch.nn.Module", remedy=remedy)


def _checked_inputs(module: torch.nn.Module, example_inputs: Any) -> tuple[Any, ...]:
    if not isinstance(module, torch.nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _no_module(module)
    is_sequence = isinstance(example_inputs, tuple | list)
    inputs: tuple[Any, ...] = tuple(cast("Sequence[Any]", example_inputs)) if is_sequence else (example_inputs,)
    for index, leaf in enumerate(pytree.tree_leaves(inputs)):
        if isinstance(leaf, torch.Tensor):
            check_tensor(as_pairs(leaf), f"example_inputs[{index}]")
    owned = (*module.named_parameters(), *module.named_buffers())
    for name, tensor in owned:
        check_tensor(as_pairs(tensor), name, owned=True)
    return told_apart(inputs, {id(tensor) for _, tensor in owned})


def _unknown_operators(program: ExportedProgram) -> list[OpOverload[..., Any]]:
    """Return the operators without a lowering that are not computed from constants alone."""
    constants = Constants(program)
    known = {*LOWERINGS, *WITHOUT_VALUE}
    operators = [(node, cast("OpOverload[..., Any]", node.target)) for node in program.graph.nodes if is_operator(node)]
    return [
        target for node, target in operators if operator_name(target) not in known and not constants.can_compute(node)
    ]
