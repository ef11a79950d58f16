"""Comparison of a captured graph with the module, through the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tracea.core import reference
from tracea.core.graph import Graph
from tracea.core.passes.pipeline import run_pipeline
from tracea.interface.torch.capture import Captured
from tracea.interface.torch.types import as_pairs

TOLERANCE = 1e-11  # of float64 against float64: orders of summation differ


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().to(torch.float64).numpy()


def bindings_of(captured: Captured, inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the data of every source of the graph for one call."""
    tensors = captured.input_spec.with_pairs(captured.input_spec.flatten(inputs))
    bound = {name: as_array(tensor) for name, tensor in zip(captured.input_spec.names, tensors, strict=True)}
    return bound | {name: as_array(tensor) for name, tensor in captured.constants.items()}


def results_of(captured: Captured, graph: Graph, bindings: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return the reference's results, nested as the module returns them, as float64 tensors."""
    values = reference.run(graph, bindings)
    return captured.output_spec.unflatten([torch.from_numpy(np.array(value)) for value in values.values()])


def check_capture(captured: Captured, module: torch.nn.Module, inputs: Any, tolerance: float = TOLERANCE) -> None:
    """Compare the captured graph with eager, before and after the passes; types are compared too."""
    with torch.no_grad():
        expected, structure = pytree.tree_flatten(module(*inputs))
    expected = [as_pairs(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in expected]
    bindings = bindings_of(captured, inputs)
    passed = run_pipeline(captured.graph, bindings)
    for graph, bound in ((captured.graph, bindings), (passed.graph, bindings | dict(passed.values))):
        found, found_structure = pytree.tree_flatten(results_of(captured, graph, bound))
        assert found_structure == structure
        for value, wanted in zip(found, expected, strict=True):
            got = as_pairs(value) if isinstance(value, torch.Tensor) else value
            if isinstance(wanted, torch.Tensor):
                assert got.shape == wanted.shape
                scale = max(1.0, float(wanted.double().nan_to_num(0, 0, 0).abs().max())) if wanted.numel() else 1.0
                torch.testing.assert_close(got, wanted.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True)
            else:
                assert got == wanted
    for node, leaf in zip(captured.graph.outputs, _first_leaves(captured, expected), strict=True):
        assert str(leaf.dtype).removeprefix("torch.") in (str(node.type.dtype.numpy), node.type.dtype.value)


def _first_leaves(captured: Captured, expected: list[Any]) -> list[torch.Tensor]:
    firsts: dict[int, torch.Tensor] = {}
    for leaf, value in zip(captured.output_spec.leaves, expected, strict=True):
        if leaf.index is not None:
            firsts.setdefault(leaf.index, value)
    return [firsts[index] for index in sorted(firsts)]
