"""A graph's explanation: each different kernel once, sums over what was measured, refusals in their place."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import tracea
from tracea import targets
from tracea.cli import main as cli
from tracea.core.op import RowKind
from tracea.doctor.roof import NoRoof, Roof
from tracea.errors import InvalidOption
from tracea.flow.explanation import explain
from tracea.flow.graph_explanation import ExplainedKernel, GraphExplanation, explain_graph

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """
import torch
def build():
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.Linear(48, 32))
    return made.eval(), (torch.randn(8, 32),)
"""


def two_products_and_a_softmax() -> tracea.Graph:
    graph = tracea.Graph()
    x, w = graph.add_input((64, 64)), graph.add_input((64, 64))
    first = graph.add_pointwise("gelu", graph.add_gemm(x, w))
    second = graph.add_pointwise("gelu", graph.add_gemm(first, w))
    graph.add_row(RowKind.SOFTMAX, second)
    return graph


def test_every_different_kernel_is_explained_once_and_fused_as_a_run_fuses_it() -> None:
    found = tracea.explain(two_products_and_a_softmax(), target="zen4")
    assert [(len(kernel.nodes), kernel.op.name) for kernel in found.kernels] == [(2, "gemm"), (1, "row")]
    assert (found.captured, found.nodes) == (5, 3)
    product, rows = (kernel.explanation for kernel in found.kernels)
    assert product is not None
    assert product.decision == explain(found.kernels[0].op, target="zen4").decision
    assert rows is not None
    text = str(found)
    assert "5 nodes captured, 3 kernels after fusion, 2 of them different" in text
    assert "(2 times)" in text
    assert len(re.findall(r"^Machine ", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^Chosen ", text, re.MULTILINE)) == 2
    assert json.loads(json.dumps(found.to_dict()))["kernels"][0]["explanation"]["decision"]["variant"]


def test_sums_count_each_node_and_are_unknown_where_one_part_is() -> None:
    found = tracea.explain(two_products_and_a_softmax(), target="zen4")
    product, rows = found.kernels
    assert isinstance(product.explanation.roof, Roof)
    assert product.least_us == pytest.approx(2 * product.explanation.roof.least_us)
    assert found.least_us == pytest.approx(product.least_us + rows.least_us)
    assert found.latency_us is None
    assert "Measured         none was;" in str(found)
    timed = replace(found, kernels=(_measured(product, 100.0), _measured(rows, 50.0)))
    assert timed.latency_us == 250.0
    assert "250 µs, the kernels' times added up; their limits together are" in str(timed)
    roofless = replace(rows, explanation=replace(rows.explanation, roof=NoRoof(because="b", remedy="r")))
    assert replace(found, kernels=(product, roofless)).least_us is None


def _measured(kernel: ExplainedKernel, latency_us: float) -> ExplainedKernel:
    assert kernel.explanation is not None
    decision = kernel.explanation.decision
    first = replace(decision.candidates[0], latency_us=latency_us)
    candidates = (first, *decision.candidates[1:])
    return replace(kernel, explanation=replace(kernel.explanation, decision=replace(decision, candidates=candidates)))


def test_what_no_variant_runs_is_said_in_its_place() -> None:
    found: GraphExplanation = explain_graph(two_products_and_a_softmax(), target="sm_80")
    assert [kernel.explanation is None for kernel in found.kernels] == [False, True]
    assert found.least_us is None
    assert "Not possible" in str(found)
    assert "got 0, expected a variant for row" in found.kernels[1].refused
    assert found.to_dict()["kernels"][1]["explanation"] is None
    with pytest.raises(InvalidOption, match="zen9"):
        explain_graph(two_products_and_a_softmax(), target="zen9")


def test_what_says_something_of_one_op_is_refused_for_a_graph() -> None:
    with pytest.raises(InvalidOption, match="none for a graph"):
        tracea.explain(two_products_and_a_softmax(), constants=(1,))  # type: ignore[call-overload]


def test_a_model_is_captured_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL, encoding="utf-8")
    assert cli.main(["explain", f"{file}:build", "--target", "zen4"]) == 0
    shown = capsys.readouterr()
    assert "3 nodes captured, 2 kernels after fusion, 2 of them different" in shown.out
    assert "gemm of linear + gelu" in shown.out
    assert "gemm.prepacked" in shown.out  # the weights are known
    assert "export Sequential" in shown.err
    assert cli.main(["explain", f"{file}:build", "--target", "zen4", "--json"]) == 0
    assert [len(kernel["nodes"]) for kernel in json.loads(capsys.readouterr().out)["kernels"]] == [1, 1]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["-m", "8"], "got -m, expected none"),
        (["--dtype", "f16"], "got --dtype"),
        (["--epilogue", "relu"], "got --epilogue"),
        (["--range", "1,2"], "--range: got 1,2, expected none for a model"),
        (["--target", "mi300x"], "there is no emitter for gfx942 yet"),
        (["--target", "zen"], "use zen3 or zen4 or zen5, if that was meant"),
    ],
)
def test_what_a_model_cannot_take_is_refused_before_it_is_built(
    more: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.py"
    file.write_text("raise SystemExit('it was run')", encoding="utf-8")
    assert cli.main(["explain", f"{file}:build", *more]) == cli.BAD_USAGE
    assert complaint in capsys.readouterr().err


def test_row_kinds_of_the_graph_are_those_of_the_op() -> None:
    (_, rows) = explain_graph(two_products_and_a_softmax(), target="avx2").kernels
    assert rows.op.kind is RowKind.SOFTMAX  # type: ignore[attr-defined]
    assert targets.load("avx2").isa in str(rows.explanation)


def test_a_graph_that_computes_nothing_is_explained() -> None:
    graph = tracea.Graph()
    graph.add_input((4, 4))
    assert "0 " in str(tracea.explain(graph))
