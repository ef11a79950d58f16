"""tracea.optimize: a torch module becomes a callable module of verified kernels, its weights frozen and packed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final, cast

import torch
from torch.utils import _pytree as pytree

from tracea.core.collector import collector_paused
from tracea.core.contract import Accuracy
from tracea.core.passes.accuracy import with_accuracy
from tracea.errors import InvalidInput
from tracea.flow.asked import check_library, check_listener
from tracea.flow.compile import thread_count
from tracea.flow.phases import phase
from tracea.flow.progress import Listener, shown_unless_heard
from tracea.interface.optimized import Optimized, optimize_graph
from tracea.interface.torch.capture import capture
from tracea.interface.torch.input_ranges import with_ranges
from tracea.interface.torch.lower_indexed import check_ranges
from tracea.interface.torch.module import Compiled, OptimizedModule
from tracea.interface.torch.surroundings import Modes, OutsideTensors, frozen_copy
from tracea.optimizer.budget import Budget, check_budget
from tracea.runtime.buffers import ArrayKind, empty_of, view
from tracea.runtime.huge_pages import back_by_huge_pages

__all__ = ["DEFAULT_BUDGET", "optimize"]

DEFAULT_BUDGET = Budget(trials=16)
_SHOWN: Final = 4  # shapes of a line of progress


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    budget: Budget | None = DEFAULT_BUDGET,
    threads: int | None = None,
    library: bool = True,
    accuracy: Accuracy | str = Accuracy.ELEMENTWISE,
    listener: Listener | None = None,
) -> OptimizedModule:
    """Return ``module`` for inference on inputs like the examples, as one program of the fastest kernels.

    Each distinct op is searched within ``budget`` trials; what was searched before on this machine is reused, and
    None searches nothing. ``listener(label, progress)`` hears of each trial: the node and its variant, and how many
    trials there were of how many, with the fastest so far; without one, progress is shown on standard error: a bar on a
    terminal, plain lines elsewhere. The result is called like the module. Inputs of other shapes compile another
    program at their first call, without a search. ``accuracy`` is the contract of convolutions: "elementwise" errs by
    rounding of each result's own products, "normwise" by rounding of the largest pixel times the sum of the taps, for
    images that are finite with room (docs/torch.md): 3×3 and 5×5 convolutions then take fewer products (Winograd).

    Raises:
        UnsupportedNode: the module uses what no op expresses, with the lines of your code. InvalidInput: the inputs
        do not fit, the module was optimized before or holds one that was, or budget, listener or accuracy is none.
    """
    check_budget(budget)
    check_listener(listener)
    check_library(library)
    contract = Accuracy.of(accuracy)
    _check_original(module)
    count = thread_count(threads)
    with collector_paused():
        frozen = frozen_copy(module)
    modes, outside = Modes.now(), OutsideTensors()
    kind = type(module).__name__  # the programs are not to keep the module itself, and its weights, alive

    def compiled(inputs: Any, trials: Budget | None, heard: Listener) -> Compiled:
        phase(f"export {kind}")
        with collector_paused(), modes.restored():
            captured = capture(frozen, inputs, outside=outside)
        values = {name: view(tensor.detach(), name).numpy() for name, tensor in captured.constants.items()}
        optimized = optimize_graph(
            with_accuracy(captured.graph, contract),
            values,
            budget=trials,
            threads=count,
            library=library,
            listener=heard,
            makes_tables=True,
        )
        program = with_ranges(optimized.compiled.program, captured.input_spec)
        back_by_huge_pages(program.constants)  # those that are read in place are the frozen copy's

        several = len(program.outputs) > 1

        def run(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            # A program's results are of its inputs' kind; without inputs nothing but this says which.
            out = None if tensors else tuple(empty_of(type_, ArrayKind.TORCH) for type_ in program.outputs)
            result: Any = program.run(*tensors, out=out, threads=count)
            results = result if several else (result,)
            check_ranges(results, captured.ranges)
            return results

        return Compiled(
            run=run,
            input_spec=captured.input_spec,
            checked=frozenset(each.input for each in program.index_ranges),
            output_spec=captured.output_spec,
            writes=captured.writes,
            report=_Report(optimized),
        )

    def compiled_at_once(inputs: Any, heard: Listener) -> Compiled:
        with collector_paused():
            return compiled(inputs, None, heard)

    def compiled_for_others(inputs: Any) -> Compiled:
        with shown_unless_heard(listener) as heard:
            phase(f"inputs of other shapes or types ({_shapes(inputs)}): another program of {kind}, without a search")
            return compiled_at_once(inputs, heard)

    with shown_unless_heard(listener) as heard:
        made = compiled_at_once(example_inputs, heard) if budget is None else compiled(example_inputs, budget, heard)
    return OptimizedModule(made, recompile=compiled_for_others, weights=frozen.state_dict, signature=_signature(module))


def _shapes(inputs: Any) -> str:
    """Return the shapes of the tensors among nested inputs, such as ``7x19, 7``; of many, the first."""
    found = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    named = [
        "nested" if tensor.is_nested else "x".join(map(str, tensor.shape)) or "a number" for tensor in found[:_SHOWN]
    ]
    return ", ".join((*named, "…") if len(found) > _SHOWN else named) or "no tensor"


def _signature(module: torch.nn.Module) -> inspect.Signature | None:
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):  # a forward that says nothing of its parameters
        return None


def _check_original(module: Any) -> None:
    """Refuse what was optimized before, and what holds it: a program of native code cannot be captured."""
    is_module = isinstance(module, torch.nn.Module)
    for name, inner in cast("Any", module).named_modules() if is_module else ():
        if isinstance(inner, OptimizedModule):
            raise InvalidInput(
                field=f"module.{name}" if name else "module",
                got="an optimized module",
                expected="the module that it was made from",
                remedy="optimize the original module; the optimized one takes inputs of other shapes too",
            )


class _Report:
    """What an optimized module says about itself."""

    def __init__(self, optimized: Optimized) -> None:
        self.optimized = optimized
        self.plan = optimized.plan

    def explain(self) -> str:
        """Return what was fused and chosen, and why."""
        return self.optimized.explain()
