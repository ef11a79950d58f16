"""What torch.export would say of a plain module, found without it: one run of the module on values without memory.

Importing torch.export's tracer takes longer than all the rest of a compile from the cache (benchmarks/NOTES.md). A
module that only calls operators whose results :mod:`result_types` can tell is followed by torch's dispatcher instead,
and gives the same nodes. Whatever else a module does is left to torch.export: a number taken from a tensor, a write in
place, a region with modes of its own, an operator without a rule, a value that is kept beyond the call.
"""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from tracea.interface.torch.export import exporting, is_node
from tracea.interface.torch.facts import OF_STRIDES
from tracea.interface.torch.location import asks_for_kinds, forwards_named
from tracea.interface.torch.made import Made
from tracea.interface.torch.recording import Recording, Untraceable, literal
from tracea.interface.torch.state import State
from tracea.interface.torch.streams import kept_apart, tell
from tracea.interface.torch.surroundings import Contents

__all__ = ["Traced", "traced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """How the leaves of a call and of its result are nested."""

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A program in the form of torch's ExportedProgram, as far as capture reads it; no axis of it is dynamic.

    ``strides`` has those of the inputs where forward asked for them: the program is one of these alone. ``gradients``
    has what it was told where it asked which of the inputs require one.
    """

    graph: Any
    graph_signature: ExportGraphSignature
    call_spec: CallSpec
    state_dict: Mapping[str, torch.Tensor]
    constants: Mapping[str, torch.Tensor]
    range_constraints: Mapping[Any, Any]
    strides: tuple[tuple[int, ...], ...] | None
    gradients: tuple[bool, ...] | None

    def is_same(self, other: Traced) -> bool:
        """Tell whether another trace of the module and inputs found the same operators, tensors and numbers."""
        return (
            str(self.graph) == str(other.graph)
            and self.graph_signature.output_specs == other.graph_signature.output_specs
            and self.call_spec.out_spec == other.call_spec.out_spec
            and self.constants.keys() == other.constants.keys()
            and all(_is_equal(tensor, other.constants[name]) for name, tensor in self.constants.items())
        )


def traced(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Traced | None:
    """Return the module's program for these inputs; None where torch.export is to be asked.

    The module runs as a copy that shares its tensors, so that it is left as it was. What it prints and warns of
    appears if the trace counts.
    """
    try:
        with (
            exporting(),
            warnings.catch_warnings(record=True) as heard,
            kept_apart("stdout", "stderr") as written,
        ):
            program, made = _trace(module, inputs, Made())
            _check_repeats(program, module, inputs, made)
    except Exception:  # also of the module's own code: torch.export meets it again and tells it
        return None
    for name, text in written.items():
        tell(name, text)
    for each in heard:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno, source=each.source)
    return program


def _check_repeats(program: Traced, module: torch.nn.Module, inputs: tuple[Any, ...], made: Made) -> None:
    """Check that another run gives the same program: what Python counts outside the module is seen in none alone.

    ``made`` are the tensors of the first run, of which a cache outside may have some.

    Raises:
        Untraceable: it gives another one.
    """
    with warnings.catch_warnings(), kept_apart("stdout", "stderr"):
        warnings.simplefilter("ignore")
        again, _ = _trace(module, inputs, Made(made))
    if not program.is_same(again):
        raise Untraceable("another program at the second run")


def _trace(module: torch.nn.Module, inputs: tuple[Any, ...], made: Made) -> tuple[Traced, Made]:
    recording = Recording(_run.__code__, made)
    peculiar = State.of(module).copied_in_their_way
    if peculiar:
        raise Untraceable(f"{peculiar[0]} is copied in a way of its own")
    if asks_for_kinds(module):  # whose answer is compared with that of a call, behind torch.export
        raise Untraceable("forward asks whether a type is torch.Tensor")
    with torch.inference_mode():
        try:
            outputs, out_spec = _run_alone(recording, module, inputs)
            failure = None
        except Exception as error:
            outputs, out_spec, failure = [], None, f"{type(error).__name__}: {error}"
            _let_go(error)
    if out_spec is None:
        raise Untraceable(failure)
    recording.check()
    recording.graph.output(tuple(outputs))
    for node in reversed(recording.graph.nodes):
        if not node.users and node.op == "call_function":
            recording.graph.erase_node(node)
    results = [
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(item.name) if is_node(item) else literal(item), None)
        for item in outputs
    ]
    program = Traced(
        graph=recording.graph,
        graph_signature=ExportGraphSignature(recording.specs, results),
        call_spec=CallSpec(in_spec=pytree.tree_structure((inputs, {})), out_spec=out_spec),
        state_dict={},
        constants=recording.tensors,
        range_constraints={},
        strides=tuple(recording.strides) if recording.asked & OF_STRIDES else None,
        gradients=tuple(recording.gradients) if "requires_grad" in recording.asked else None,
    )
    return program, made


def _run_alone(
    recording: Recording, module: torch.nn.Module, inputs: tuple[Any, ...]
) -> tuple[list[Any], pytree.TreeSpec]:
    alone = recording.hold(module)
    before = State.of(alone)
    given = recording.enter(_names_of_inputs(module, inputs), inputs)
    contents = Contents(given)
    outputs, out_spec = _run(recording, alone, given)
    changed = before.changed(State.of(alone)) or contents.changed()
    if changed is not None:
        raise Untraceable(f"forward changes {changed}")
    return outputs, out_spec


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.dtype is other.dtype and torch.equal(one, other))


def _let_go(error: BaseException | None) -> None:
    """Free what an exception's frames hold: a guard of torch's among it would put the trace's modes back after it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _run(recording: Recording, module: torch.nn.Module, given: Any) -> tuple[list[Any], pytree.TreeSpec]:
    with forwards_named(module), recording.all_of_it():
        result = module(*given)
    leaves, spec = pytree.tree_flatten(result)
    return [recording.node_of(leaf) if isinstance(leaf, torch.Tensor) else literal(leaf).value for leaf in leaves], spec


def _names_of_inputs(module: torch.nn.Module, inputs: tuple[Any, ...]) -> list[str]:
    """Return a name for each leaf: the argument's of forward, and the keys that lead to the leaf within it."""
    bound = inspect.signature(module.forward).bind(*inputs)
    names: list[str] = []
    for path, _ in cast("Any", pytree).tree_flatten_with_path(dict(bound.arguments))[0]:
        keys = [next(getattr(key, kind) for kind in ("key", "idx", "name") if hasattr(key, kind)) for key in path]
        names.append(re.sub(r"[^a-z0-9]", "_", "_".join(str(key) for key in keys).lower()))
    return names
