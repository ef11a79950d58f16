"""A compiled program as a torch module: the same call, the same nesting of results, for inference."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import torch
from torch.utils import _pytree as pytree

from tracea.core.tensor_type import StridedLayout, SymbolicDim, TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidOption, InvalidShape, InvalidStride, UnsupportedNode
from tracea.interface.torch.agreement import EXAMPLES
from tracea.interface.torch.lower_indexed import check_rows
from tracea.interface.torch.nesting import shapes_of
from tracea.interface.torch.others import Others
from tracea.interface.torch.specs import ByPlace, InputSpec, OutputSpec, check_facts
from tracea.interface.torch.types import check_exact, check_small, check_tensor, dtype_of, torch_dtype_of
from tracea.interface.torch.written import InputWrite, check_written, write_inputs
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.tracing import refuse_traced

__all__ = ["Compiled", "OptimizedModule", "Run"]

Run: TypeAlias = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
_recompiling: Final = ProcessLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A program for inputs of given types, and what of its results is written to the tensors of a call.

    ``checked`` are inputs whose numbers ``run`` itself checks. ``report`` is what ``plan`` and ``explain()`` of the
    module hand on to.
    """

    run: Run
    input_spec: InputSpec
    output_spec: OutputSpec
    checked: frozenset[int] = frozenset()
    writes: tuple[InputWrite, ...] = ()
    report: Any = None

    def call(self, given: Sequence[torch.Tensor], tensors: list[torch.Tensor]) -> Any:
        """Return the module's results for a call's tensors, which are ``given`` in the strides that were compiled."""
        _check_values(tensors, self.input_spec, self.checked)
        check_written(given, self.input_spec.names, self.writes)
        results = self.run(tensors)
        if self.writes:
            write_inputs(self.writes, given, results)
        return self.output_spec.unflatten(results)


class OptimizedModule(torch.nn.Module):
    """A module that runs a compiled program; weights are frozen as they were when it was compiled.

    Inputs of other strides are copied to those that were compiled. Inputs of another shape, type or nesting are
    compiled when they first come if ``recompile`` was given (from the call's positional arguments), else refused. Of 16
    programs, the first and those that were used last, the one that rested longest makes room for the next.

    Results record no gradient: ``backward`` on one raises torch's own error. Train the original module.

    Raises:
        InvalidInput: a gradient is asked for, or the nesting differs.
        InvalidShape, InvalidDType, InvalidDevice: a tensor is not of the compiled type.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        recompile: Callable[[tuple[Any, ...]], Compiled] | None = None,
        weights: Callable[..., dict[str, Any]] | None = None,
        signature: inspect.Signature | None = None,
    ) -> None:
        super().__init__()
        self._compiled = compiled
        self._weights = weights  # the state_dict of the module as it was compiled
        self._recompile = recompile
        self._signature = signature  # of the original forward: where a keyword's place is
        self._by_place = None if signature is None else ByPlace(signature)
        self._others: Others[Compiled] = Others()
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returned, computed by the program."""
        if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]  # a shape is a tensor then
            refuse_traced("module")
        if kwargs and self._by_place is not None and (places := self._by_place(args, kwargs)):
            return self.forward(*places)
        if not kwargs:
            compiled, tensors = self._compiled, self._compiled.input_spec.taken(args)
            if tensors is None:
                compiled, tensors = self._other_of(args)
            if tensors is not None:
                return compiled.call(tensors, compiled.input_spec.with_pairs(tensors))
        return self._run_other(args, kwargs)

    @property
    def plan(self) -> Any:
        """What was chosen for each node."""
        return self._compiled.report.plan

    @property
    def optimized(self) -> Any:
        """The optimized graph behind the module: plan, searches, verdicts."""
        return self._compiled.report.optimized

    def explain(self) -> Any:
        """Return what was fused and chosen, and why."""
        return self._compiled.report.explain()

    def extra_repr(self) -> str:
        """Say in one line what runs."""
        spec = self._compiled.input_spec
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in zip(spec.names, spec.types, strict=True))
        report = self._compiled.report
        kernels = "" if report is None else f", {len(report.plan)} kernels"
        return f"{inputs}{kernels}"

    def __copy__(self) -> OptimizedModule:
        """Return another module of the same programs, which never change."""
        other = OptimizedModule(
            self._compiled, recompile=self._recompile, weights=self._weights, signature=self._signature
        )
        other._others = self._others.copy()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        """Return another module of the same programs: their weights are frozen, so that there is nothing to part."""
        memo[id(self)] = other = self.__copy__()
        return other

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse: native code is no value that another process could read.

        Raises:
            InvalidOption: always.
        """
        raise InvalidOption(
            field="module",
            got="pickle (torch.save, multiprocessing)",
            expected="a module of this process",
            remedy="save the state_dict of the original module and optimize it where it is loaded; its kernels come "
            "from the cache",
        )

    def train(self, mode: bool = True) -> OptimizedModule:
        """Stay in inference mode.

        Raises:
            InvalidOption: training was asked for.
        """
        if mode:
            raise InvalidOption(
                field="train", got=True, expected=False, remedy="train the original module and optimize it again"
            )
        return self

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a copy of the original module's, as it was compiled: what is written there changes no program."""
        del keep_vars
        own = copy.deepcopy({} if self._weights is None else self._weights(prefix=prefix))
        if destination is None:
            return own
        destination.update(own)
        getattr(destination, "_metadata", {}).update(getattr(own, "_metadata", {}))
        return destination

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Refuse: the weights are part of the programs.

        Raises:
            InvalidOption: always.
        """
        del state_dict, strict, assign
        raise InvalidOption(
            field="module",
            got="load_state_dict",
            expected="the weights that were compiled",
            remedy="load them into the original module and optimize it again; its kernels come from the cache",
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del others
        if any(key.startswith(prefix) for key in state_dict):  # a module that holds this one loads
            self.load_state_dict(state_dict)

    def _apply(self, fn: Any, recurse: bool = True) -> OptimizedModule:
        del fn, recurse
        raise InvalidOption(
            field="module",
            got="a conversion (.to, .half, .cuda, ...)",
            expected="the device and type that were compiled",
            remedy="convert the original module and optimize it again",
        )

    def _other_of(self, args: tuple[Any, ...]) -> tuple[Compiled, list[torch.Tensor] | None]:
        """Return the program of another call that is exactly as compiled, found by its shapes, and its tensors."""
        other = self._others.find(shapes_of(args)) if self._others else None
        tensors = None if other is None else other.program.input_spec.taken(args)
        if other is None or tensors is None:
            return self._compiled, None
        self._others.use(other)
        return other.program, tensors

    def _run_other(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that is not exactly the compiled one: other strides, nested inputs, or another program."""
        refuse_traced("module")
        first_error: InvalidInput | None = None
        known, overlaps = self._others.added, False
        for other in (None, *self._others):
            compiled = self._compiled if other is None else other.program
            try:
                given = _checked(compiled.input_spec, compiled.input_spec.flatten(args, kwargs))
            except InvalidInput as error:
                first_error = first_error or error
                continue
            try:
                tensors = _arranged(compiled.input_spec, given)
            except InvalidStride as error:
                first_error, overlaps = first_error or error, True
                continue
            if other is not None:
                self._others.use(other)
            return compiled.call(given, tensors)
        assert first_error is not None
        if self._recompile is None or kwargs:
            raise first_error
        with _recompiling:
            if self._others.added == known:  # else another thread was first: look again
                self._compile_other(args, first_error, overlaps)
        return self._run_other(args, kwargs)

    def _compile_other(self, args: tuple[Any, ...], first_error: InvalidInput, overlaps: bool) -> None:
        assert self._recompile is not None  # asked before
        try:
            # Where the examples' elements overlap, one program of row-major inputs takes all other strides.
            other = self._recompile(pytree.tree_map(_row_major, args) if overlaps else args)
            # A program that does not take what it was made for would be made again.
            given = _checked(other.input_spec, other.input_spec.flatten(args))
            _arranged(other.input_spec, given)
        except (InvalidInput, UnsupportedNode) as error:  # not what the model takes, as far as a capture can tell
            if isinstance(error, InvalidInput) and error.got == first_error.got:  # the capture says the same again
                raise first_error from error
            said = error.got if isinstance(error, InvalidInput) and error.field == EXAMPLES else error.statement()
            expected = f"{first_error.expected} as compiled; no program can be made for these: {said}"
            is_type = isinstance(first_error, InvalidDType)  # whose remedies are two, and the module takes the first
            remedy = first_error.remedy if is_type else "give what was compiled, or let the module take this too"
            raise replace(first_error, expected=expected, remedy=remedy) from error
        self._others.add(other, shapes_of(args))


def _row_major(leaf: Any) -> Any:
    return leaf.contiguous() if isinstance(leaf, torch.Tensor) else leaf


def _checked(spec: InputSpec, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the program's tensors for a call's, which are what the module would be told the same of."""
    extents: dict[str, int] = {}
    check_facts(spec, tensors)
    given = spec.with_pairs(tensors)
    for tensor, wanted, name in zip(given, spec.types, spec.names, strict=True):
        _check_type(tensor, wanted, name, extents)
    return given


def _arranged(spec: InputSpec, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return checked tensors in the compiled strides: themselves, or copies.

    Raises:
        InvalidStride: no copy can be in these strides, in which elements overlap.
    """
    return [
        _in_strides(tensor, wanted, name) for tensor, wanted, name in zip(tensors, spec.types, spec.names, strict=True)
    ]


def _has_strides(tensor: torch.Tensor, wanted: TensorType) -> bool:
    if tensor.layout is not torch.strided or not isinstance(wanted.layout, StridedLayout):
        return tensor.layout is torch.strided and tensor.is_contiguous()
    given = zip(tensor.shape, tensor.stride(), wanted.layout.strides, strict=False)
    return all(extent == 1 or stride == other for extent, stride, other in given)


def _check_type(tensor: torch.Tensor, wanted: TensorType, name: str, extents: dict[str, int]) -> None:
    check_tensor(tensor, name)
    if dtype_of(tensor.dtype, name) is not wanted.dtype:
        raise InvalidDType(
            field=name,
            got=str(tensor.dtype),
            expected=wanted.dtype.value,
            remedy=f"convert it with .to({torch_dtype_of(wanted.dtype)}), or convert the original module too "
            "(module.to(dtype)) and optimize that",
        )
    shape = tuple(tensor.shape)
    fits = len(shape) == wanted.rank and all(
        extents.setdefault(dim.name, dim.check(extent)) == extent if isinstance(dim, SymbolicDim) else dim == extent
        for extent, dim in zip(shape, wanted.shape, strict=True)
    )
    if not fits:
        raise InvalidShape(
            field=name,
            got=shape,
            expected=tuple(dim if isinstance(dim, int) else extents.get(dim.name, dim.name) for dim in wanted.shape),
            remedy="optimize the module again with example inputs of this shape, or make the axis dynamic",
        )


def _in_strides(tensor: torch.Tensor, wanted: TensorType, name: str) -> torch.Tensor:
    if not isinstance(wanted.layout, StridedLayout):
        return tensor.contiguous()
    if _has_strides(tensor, wanted):
        return tensor
    shape, strides = tuple(tensor.shape), wanted.layout.strides
    if TensorType(shape, wanted.dtype, wanted.layout).overlaps_itself:
        raise InvalidStride(
            field=name,
            got=tensor.stride(),
            expected=f"{strides}, in which elements of the example input overlap",
            remedy="optimize the module with an example input that has memory for each element (x.contiguous())",
        )
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device="cpu").copy_(tensor)


def _check_values(tensors: Sequence[torch.Tensor], spec: InputSpec, checked: Collection[int]) -> None:
    """Refuse rows that there are not, and what a program would drop: gradients, and the low bits of large integers."""
    for index in spec.limited:
        if index in checked:
            continue
        tensor, name = tensors[index], spec.names[index]
        if name in spec.rows:
            check_rows(tensor, spec.rows[name], name)
        if name in spec.small:
            check_small(tensor, spec.small[name], name)
        elif name not in spec.rows:
            check_exact(tensor, name)
    if not torch.is_grad_enabled():
        return
    for tensor, name in zip(tensors, spec.names, strict=True):
        if tensor.requires_grad:
            raise InvalidInput(
                field=name,
                got="requires_grad=True",
                expected="inference",
                remedy="inference only in this version: call under torch.inference_mode() or torch.no_grad()",
            )
