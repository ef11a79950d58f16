"""What torch.export says of a module, compared with the module: its program and two calls of a copy, by torch itself.

torch.export follows one call, with stand-ins for tensors. What a module makes of errors that only stand-ins raise, of
numbers that Python counts or draws, and of an operator that returns its own input, is not in its program.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from tracea.core.dtype import DType
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidInput, UnsupportedNode
from tracea.interface.torch.export import ExportedProgram, described, headline, line_of_forward
from tracea.interface.torch.location import line_of_traceback
from tracea.interface.torch.streams import kept_apart
from tracea.interface.torch.surroundings import Contents, sharing_copy
from tracea.interface.torch.types import as_pairs

__all__ = ["EXAMPLES", "check_agrees", "check_eager"]

EXAMPLES: Final = "example_inputs"  # the field of what says that the module itself refuses them
_SHARE: Final = 0.01  # of a result's elements that may differ more: a step (floor, a comparison) that rounding moved
_TOLERANCES: Final = {torch.float64: 1e-7, torch.float32: 1e-3}  # of a result's largest element
_OF_NARROW: Final = 5e-2
_STAND_IN: Final = "FakeTensor"  # which torch.export gives a module


_OF_UNSEEN: Final = (
    "write to the argument itself; torch.export does not see that it and what an operator that returns its own input "
    "(type_as, sum_to_size, broadcast_tensors, ...) returned are one"
)
_OF_NESTED: Final = (
    "build it as nn.TransformerEncoder(..., enable_nested_tensor=False), or set use_nested_tensor = False of the one "
    "that is built: padding is then computed, where eager's nested tensors leave zeros that torch.export does not see"
)
_OF_CALLS: Final = (
    "take out of forward what a call hands on to the next (counters, caches, lists of results), random numbers of "
    "Python and NumPy, branches on errors that it catches, and type(x) is torch.Tensor, which isinstance answers; "
    "where it only fills a buffer or a cache once, call the module once before"
)


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


def check_eager(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    """Check that a module takes the inputs that it could not be captured with, by a run of a copy.

    Raises:
        InvalidInput: the module refuses them itself.
    """
    try:
        alone = copy.deepcopy(module)
    except Exception:  # a module that cannot be copied is not run: a run could change it
        return
    result = _called(alone, pytree.tree_map(_own, inputs))
    if isinstance(result, _Raised) and not _is_of_compiler(result.error):
        raise _refused_by_module(module, inputs, result.error) from result.error


def check_agrees(module: torch.nn.Module, program: ExportedProgram, inputs: tuple[Any, ...]) -> None:
    """Check that the program computes what two calls of the module do, the second one with elements in other places.

    Raises:
        UnsupportedNode: it does not. InvalidInput: the module refuses the inputs.
    """
    try:
        alone = sharing_copy(module)
    except Exception:  # nobody can tell what a call of it changes
        return
    for which, given in (("first", inputs), ("second", pytree.tree_map(_elsewhere, inputs))):
        own = pytree.tree_map(_own, given)
        contents = Contents(own)
        with _nested_tensors() as nested:
            wanted = _called(alone, own)
        if isinstance(wanted, _Raised):
            if which == "second" or _is_of_compiler(wanted.error):  # a module may check what it is given
                return
            raise _refused_by_module(module, inputs, wanted.error) from wanted.error
        if nested:
            raise UnsupportedNode(
                node="nn.TransformerEncoder of nested tensors, which leave out what src_key_padding_mask hides",
                location=line_of_forward(module),
                remedy=_OF_NESTED,
            )
        changed = contents.changed()
        if changed is not None:
            raise UnsupportedNode(
                node=f"a forward that changes {changed}, which a program leaves as it is",
                location=line_of_forward(module),
                remedy="return the new values, and let the caller put them into the list, dict or object",
            )
        unseen = _unseen_write(program, given, own)
        if unseen is not None:
            raise UnsupportedNode(
                node=f"a forward that writes to {unseen} through an operator that returns its own input",
                location=line_of_forward(module),
                remedy=_OF_UNSEEN,
            )
        with torch.no_grad():
            found = _results(program, pytree.tree_leaves(pytree.tree_map(_own, given)))
        left = _left(program, wanted, own)
        difference = _difference(left, found)
        if difference is None:
            continue
        node = f"a program of torch.export whose result is not that of the module's {which} call: {difference}"
        remedy = _OF_CALLS
        written = _written_otherwise(program, left, found)
        if written is not None:
            node = f"a program of torch.export that does not write to {written} what the module's {which} call does"
            remedy = f"{_OF_UNSEEN}; else {_OF_CALLS}"
        raise UnsupportedNode(node=node, location=line_of_forward(module), remedy=remedy)


def _is_of_compiler(error: Exception) -> bool:
    """Whether torch's own compiler refused what a module asked of it, as ``torch.cond`` does: no fault of inputs."""
    return type(error).__module__.startswith("torch._dynamo")


def _refused_by_module(module: torch.nn.Module, inputs: tuple[Any, ...], error: Exception) -> InvalidInput:
    kind, line = type(module).__name__, line_of_traceback(error.__traceback__)
    return InvalidInput(
        field=EXAMPLES,
        got=f"{described(inputs)}, with which {kind} raises {headline(error)}{f' at {line}' if line else ''}",
        expected=f"inputs that {kind} takes",
        remedy=next((remedy for said, remedy in _OF_MODULES.items() if said in headline(error)), _OF_INPUTS),
    )


_OF_INPUTS: Final = (
    "call module(*example_inputs) with inputs that work, and give the same ones; where none work, mend that line"
)
_OF_MODULES: Final = {  # what the module is at fault for, whatever the inputs, by a part of the message
    "padding='same' is not supported for strided": "give the padding as numbers, dilation * (kernel - 1) // 2 for each "
    "axis (padding=1 of a 3x3 kernel), or pad by torch.nn.functional.pad where both sides differ",
}


def _called(module: torch.nn.Module, given: tuple[Any, ...]) -> Any:
    """Return what a call gives, or what it raises; nothing is said."""
    try:
        with warnings.catch_warnings(), kept_apart("stdout", "stderr"):
            warnings.simplefilter("ignore")
            with torch.no_grad(), torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
                return module(*given)
    except Exception as error:
        return _Raised(error)


def _own(leaf: Any) -> Any:
    """Return a tensor of the same elements in the same strides, which say what of it is a view and what a copy."""
    return _laid_out(leaf.clone(), leaf) if isinstance(leaf, torch.Tensor) else leaf


def _elsewhere(leaf: Any) -> Any:
    """Return the elements of a tensor of floats in other places: of the same kind, and another call."""
    if not isinstance(leaf, torch.Tensor) or not leaf.dtype.is_floating_point:
        return leaf
    return _laid_out(torch.empty_like(leaf).copy_(leaf.flatten().roll(1).view(leaf.shape)), leaf)


def _laid_out(own: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the strides of ``like``, whose gaps torch leaves out; of elements that overlap, as it is."""
    if like.layout is not torch.strided or own.stride() == like.stride():
        return own
    if TensorType(tuple(like.shape), DType.F32, StridedLayout(like.stride())).overlaps_itself:  # of whatever elements
        return own
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(own)


def _results(program: ExportedProgram, leaves: Sequence[Any]) -> list[Any]:
    """Return what a program that writes nowhere gives, as torch computes it."""
    given, values = iter(leaves), list[Any]()
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            values.append(next(given))
        else:
            target = str(spec.target)
            values.append(program.state_dict.get(target, program.constants.get(target)))
    return pytree.tree_leaves(torch.fx.Interpreter(program.graph_module).run(*values))


def _left(program: ExportedProgram, result: Any, given: tuple[Any, ...]) -> list[Any]:
    """Return what a call left: the inputs that it wrote to and what it returned, in the order of the program."""
    signature = program.graph_signature
    names = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    inputs, results = dict(zip(names, pytree.tree_leaves(given), strict=True)), iter(pytree.tree_leaves(result))
    left = [
        inputs[str(spec.target)] if spec.kind is OutputKind.USER_INPUT_MUTATION else next(results, None)
        for spec in signature.output_specs
    ]
    return [*left, *results]


def _unseen_write(program: ExportedProgram, before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    """Return the name of an input that a call changed and that the program leaves as it is; None if there is none."""
    signature = program.graph_signature
    names = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    written = {str(spec.target) for spec in signature.output_specs if spec.kind is OutputKind.USER_INPUT_MUTATION}
    pairs = zip(names, pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True)
    for name, one, other in pairs:
        if name in written or not isinstance(one, torch.Tensor):
            continue
        if one.shape == other.shape and bool(((one != other) & ~((one != one) & (other != other))).any()):  # noqa: PLR0124
            return name
    return None


def _written_otherwise(program: ExportedProgram, left: Sequence[Any], found: Sequence[Any]) -> str | None:
    """Return the name of an input to which a call wrote something else than the program; None if there is none."""
    for spec, one, other in zip(program.graph_signature.output_specs, left, found, strict=False):
        if spec.kind is OutputKind.USER_INPUT_MUTATION and _difference([one], [other]) is not None:
            return str(spec.target)
    return None


@contextlib.contextmanager
def _nested_tensors() -> Generator[list[None]]:
    """Note each time that torch's encoder makes a nested tensor of what a mask leaves, be it all.

    A mode, or a hook of a layer, would keep it from doing so.
    """
    made: list[None] = []
    name = "_nested_tensor_from_mask"
    make = getattr(torch, name)

    def noted(*arguments: Any, **named: Any) -> Any:
        made.append(None)
        return make(*arguments, **named)

    setattr(torch, name, noted)
    try:
        yield made
    finally:
        setattr(torch, name, make)


def _difference(wanted: Sequence[Any], found: Sequence[Any]) -> str | None:
    """Return how the results differ by more than rounding; None if they do not."""
    if len(wanted) != len(found):
        return f"{len(found)} values instead of {len(wanted)}"
    for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor):
            return f"value {index} is {type(other).__name__} instead of {type(one).__name__}"
        if not isinstance(one, torch.Tensor):
            if type(one) is not type(other) or (one != other and other == other):  # noqa: PLR0124  # NaN is itself
                return f"value {index} is {other!r} instead of {one!r}"
        elif any(type(each).__name__ == _STAND_IN for each in (one, other)):
            return f"value {index} has no elements: a stand-in of torch.export's, which forward kept"
        elif one.shape != other.shape or one.dtype is not other.dtype:
            return f"value {index} is {described((other,))} instead of {described((one,))}"
        else:
            count = int(_differing(one, other).count_nonzero())
            if count > _SHARE * one.numel():
                return f"{count} of {one.numel()} elements of value {index}"
    return None


def _differing(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.is_complex():
        return _differing(as_pairs(one), as_pairs(other))
    if not one.dtype.is_floating_point:
        return one != other
    finite = one[one.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    tolerance = _TOLERANCES.get(one.dtype, _OF_NARROW)
    return ~torch.isclose(other.double(), one.double(), rtol=tolerance, atol=tolerance * largest, equal_nan=True)
