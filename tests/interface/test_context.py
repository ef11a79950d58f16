"""Contexts: graphs become programs bound to their plans, equal to float64, saved and loaded, run by several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from tests.interface.graphs import Case, cases

import tracea
from tracea.core import reference
from tracea.core.dtype import DType
from tracea.errors import InvalidDevice, InvalidDType, InvalidGraph, InvalidInput, InvalidOption, InvalidShape
from tracea.interface.context import PlannedProgram, RunnableProgram
from tracea.runtime.cache import default_store


def assert_equals_meaning(case: Case, results: object) -> None:
    meant = reference.run(case.graph, case.inputs | case.constants)
    outputs = results if isinstance(results, tuple) else (results,)
    assert len(outputs) == len(case.graph.outputs)
    for node, found in zip(case.graph.outputs, outputs, strict=True):
        expected = meant[node.id]
        size = max(1.0, float(np.abs(expected).max(initial=0.0)))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=2e-3 * size, err_msg=node.id)


@pytest.fixture(params=[False, True], ids=["ours", "library"], scope="module")
def library(request):
    return request.param


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_random_graphs_equal_their_meaning(library, case):
    program = tracea.Context(threads=1).optimize_graph(case.graph, case.constants, library=library)
    given_inputs = [case.inputs[node.id] for node in case.graph.inputs]
    before = [array.copy() for array in given_inputs]
    assert_equals_meaning(case, program.run(*given_inputs))
    for array, copy in zip(given_inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def block() -> Case:
    """LayerNorm, two products with frozen weights, a residual: two outputs."""
    rng = np.random.default_rng(7)
    case = Case(tracea.Graph())
    graph = case.graph

    def constant(name, *shape):
        case.constants[name] = rng.standard_normal(shape).astype(np.float32)
        return graph.add_constant(shape, name=name)

    x = graph.add_input((12, 32), name="x")
    case.inputs["x"] = rng.standard_normal((12, 32)).astype(np.float32)
    norm = graph.add_row(tracea_row("LAYER_NORM"), x, weight=constant("gain", 32), eps=1e-5, name="norm")
    up = graph.add_gemm(norm, constant("up.w", 64, 32), transpose_b=True, bias=constant("up.b", 64), name="up")
    hidden = graph.add_pointwise("gelu", up, name="hidden")
    down = graph.add_gemm(hidden, constant("down.w", 64, 32), name="down")
    graph.set_outputs(graph.add_pointwise(add(), down, x, name="y"), norm)
    return case


def tracea_row(name):
    from tracea.core.op import RowKind

    return RowKind[name]


def add():
    from tracea.core.expr import Input

    return Input(0) + Input(1)


@pytest.fixture(scope="module")
def planned():
    case = block()
    return case, tracea.Context(threads=1).optimize_graph(case.graph, case.constants, library=False)


def test_a_graph_of_one_product():
    graph = tracea.Graph()
    node = graph.add_gemm(m=24, n=40, k=16)
    program = tracea.Context(threads=1).optimize_graph(graph)
    a, b = torch.randn(24, 16), torch.randn(16, 40)
    torch.testing.assert_close(program.run(a, b), a @ b)
    torch.testing.assert_close(program.run([a, b]), a @ b)
    torch.testing.assert_close(program.run({"gemm_0.a": a, "gemm_0.b": b}), a @ b)
    out = torch.full((24, 40), float("nan"))
    assert program.run(a, b, out=out) is out
    decision = program.plan[node]
    assert decision.variant in {candidate.variant for candidate in decision.candidates}
    assert {rejection.variant for rejection in decision.rejections} >= {"gemm.prepacked", "gemm.empty"}
    assert decision.measurement is None or decision.measurement.latency_us > 0
    assert decision.variant in decision.explain()
    assert program.plan["gemm_0"] == decision


def test_fused_nodes_answer_with_what_runs_them(planned):
    case, program = planned
    assert isinstance(program, PlannedProgram)
    assert program.plan["up"] == program.plan["hidden"]
    assert program.plan["down"] == program.plan["y"]
    assert program.plan["up"].variant.endswith("prepacked")  # its weight is known
    assert len(program.plan) == len(list(program.plan)) == 3
    assert "hidden: gemm of up + hidden" in program.explain()
    assert_equals_meaning(case, program.run(case.inputs["x"]))


def test_a_node_that_nothing_runs_is_named(planned):
    _, program = planned
    with pytest.raises(InvalidOption, match="hidden"):
        _ = program.plan["x"]
    with pytest.raises(InvalidOption):
        _ = program.plan["no such node"]


def test_outputs_are_written_in_place(planned):
    case, program = planned
    out = (np.full((12, 32), np.nan, np.float32), np.full((12, 32), np.nan, np.float32))
    results = program.run(case.inputs["x"], out=out)
    assert results[0] is out[0]
    assert results[1] is out[1]
    assert_equals_meaning(case, out)


def test_constants_are_frozen():
    case = block()
    program = tracea.Context(threads=1).optimize_graph(case.graph, case.constants, library=False)
    kept = {name: array.copy() for name, array in case.constants.items()}
    for array in case.constants.values():
        array.fill(np.nan)
    found = program.run(case.inputs["x"])
    case.constants = kept
    assert_equals_meaning(case, found)


def test_several_threads_run_one_program(planned):
    case, program = planned
    expected = program.run(case.inputs["x"])
    wrong = []

    def work():
        for _ in range(100):
            found = program.run(case.inputs["x"])
            if not all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_a_program_is_saved_and_loaded(planned, tmp_path):
    case, program = planned
    program.save(tmp_path / "block.tracea")
    loaded = tracea.load(tmp_path / "block.tracea")
    assert isinstance(loaded, RunnableProgram)
    found, expected = loaded.run([case.inputs["x"]]), program.run(case.inputs["x"])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    (tmp_path / "block.tracea").write_bytes(b"not a program")
    with pytest.raises(InvalidOption):
        tracea.load(tmp_path / "block.tracea")


@pytest.mark.parametrize(
    ("name", "said"),
    [("gone.tracea", "No such file or directory"), ("", "Is a directory"), ("null\0byte", "null byte")],
)
def test_a_program_that_cannot_be_read_is_refused_with_a_remedy(name, said, tmp_path):
    with pytest.raises(InvalidOption, match=rf"path: got .*{said}.*Remedy: give the path"):
        tracea.load(tmp_path / name)


def test_a_librarys_product_and_our_epilogue_make_one_node():
    graph = tracea.Graph()
    graph.add_input((24, 16), name="y.product")  # the name that the product would like to have
    x, w = graph["y.product"], graph.add_input((16, 40), name="w")
    y = graph.add_gemm(x, w, bias=graph.add_input((40,), name="b"), activation="gelu", name="y")
    from tracea.doctor import Candidate, Decision
    from tracea.flow.compile import compile_graph

    library = Decision(
        op=y.op.key,
        variant="library.gemm",
        schedule=None,
        reason="stated by the test",
        candidates=(Candidate(variant="library.gemm", score=0.0),),
        rejections=(),
    )
    compiled = compile_graph(graph, threads=1, decisions={"y": library})
    assert len(compiled.program.calls) == 2
    a, b, bias = torch.randn(24, 16), torch.randn(16, 40), torch.randn(40)
    torch.testing.assert_close(compiled.program.run(a, b, bias), torch.nn.functional.gelu(a @ b + bias))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "cuda"}, InvalidDevice),
        ({"device": "; rm -rf /"}, InvalidDevice),
        ({"threads": 0}, InvalidOption),
        ({"threads": -1}, InvalidOption),
        ({"threads": 2.5}, InvalidOption),
        ({"threads": 10**9}, InvalidOption),
        ({"cache_dir": ""}, InvalidOption),
    ],
)
def test_a_context_refuses_what_cannot_be(options, error):
    with pytest.raises(error):
        tracea.Context(**options)


def test_bad_graphs_and_bad_inputs_are_refused(planned):
    case, program = planned
    x = case.inputs["x"]
    context = tracea.Context(threads=1)
    for call, error in (
        (program.run, InvalidShape),
        (lambda: program.run(x, x), InvalidShape),
        (lambda: program.run(x[:, :31]), InvalidShape),
        (lambda: program.run(x.astype(np.float64)), InvalidInput),
        (lambda: program.run({"z": x}), InvalidOption),
        (lambda: program.run(torch.empty(12, 32, device="meta")), InvalidDevice),
        (lambda: context.optimize_graph(case.graph), InvalidOption),
        (lambda: context.optimize_graph(case.graph, {**case.constants, "gain": np.ones(31, np.float32)}), InvalidInput),
        (lambda: context.optimize_graph(case.graph, {**case.constants, "gain": np.ones(32)}), InvalidInput),
        (lambda: tracea.Graph().add_gemm(m=2, n=2), InvalidInput),
        (lambda: tracea.Graph().add_gemm(m=-1, n=2, k=2), InvalidInput),
        (lambda: tracea.Graph()["x"], InvalidGraph),
    ):
        with pytest.raises(error):
            call()


def test_what_is_no_graph_or_no_constant_of_it_is_refused_by_name_before_a_search(monkeypatch):
    monkeypatch.setattr("tracea.interface.optimized.prepare", lambda *_: pytest.fail("a pass was run"))
    graph = tracea.Graph()
    graph.add_gemm(graph.add_input((4, 8), name="x"), graph.add_constant((8, 6), name="w"), name="y")
    w, given = np.ones((8, 6), np.float32), tracea.Context(threads=1).optimize_graph
    for call, error, said in (
        (lambda: given("g", {}), InvalidGraph, "graph: got 'g', expected a tracea.Graph"),
        (lambda: given(tracea.Graph(), {}), InvalidGraph, "a graph without nodes"),
        (lambda: given(graph, {"w": w, "zz": w}), InvalidOption, r"got zz, expected .* constants: w\."),
        (lambda: given(graph, {"w": w, "x": w, 5: w}), InvalidOption, "got x, 5, expected"),
        (lambda: given(graph, [w]), InvalidOption, "values: got"),
        (lambda: given(graph, {"w": w[:7]}), InvalidShape, r"values\['w'\]: got float32\[7, 6\], expected f32\[8×6\]"),
        (lambda: given(graph, {"w": w.astype(np.float64)}), InvalidDType, "the constant w as"),
        (lambda: given(graph, {"w": w}, listener=5), InvalidOption, "listener: got 5"),
    ):
        with pytest.raises(error, match=said):
            call()


def test_constants_may_be_tensors_of_any_float_type():
    weight = torch.randn(6, 8).bfloat16()
    graph = tracea.Graph()
    x = graph.add_input((4, 8), dtype=DType.BF16)
    graph.add_gemm(x, graph.add_constant((6, 8), dtype=DType.BF16, name="w"), transpose_b=True)
    given = torch.randn(4, 8).bfloat16()
    y = tracea.Context(threads=1).optimize_graph(graph, {"w": weight}).run(given)
    torch.testing.assert_close(y.float(), (given.float() @ weight.float().T).bfloat16().float(), rtol=2**-7, atol=1e-6)
    with pytest.raises(InvalidDType, match=r"values\['w'\]"):
        tracea.Context(threads=1).optimize_graph(graph, {"w": weight.tolist()})


def test_a_norm_without_eps_takes_its_usual_one():
    graph = tracea.Graph()
    x = graph.add_input((2, 8))
    graph.set_outputs(graph.add_row("layer_norm", x), graph.add_row("rms_norm", x))
    x = np.full((2, 8), 1e-3, np.float32)
    layer, rms = tracea.Context(threads=1).optimize_graph(graph).run(x)
    assert (layer == 0).all()
    np.testing.assert_allclose(rms, x / np.sqrt(1e-6 + 1e-6), rtol=1e-5)


def test_what_names_no_node_or_no_input_is_refused(planned):
    case, program = planned
    for node in (999, None, [1]):
        with pytest.raises(InvalidOption, match="node: got"):
            program.plan[node]
    with pytest.raises(InvalidOption, match="give each input by its name"):
        program.run({5: case.inputs["x"], "x": case.inputs["x"]})


def test_a_cache_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "before"))
    context = tracea.Context(threads=1, cache_dir=tmp_path / "mine")
    graph = tracea.Graph()
    graph.add_pointwise("relu", graph.add_input((5, 7)))
    result = context.optimize_graph(graph).run(np.full((5, 7), -1.0, np.float32))
    assert not result.any()
    assert any((tmp_path / "mine").rglob("*.so"))
    assert not (tmp_path / "before").exists()


def test_a_relative_cache_directory_stays_where_it_was_meant(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACEA_CACHE_DIR", "before")
    tracea.Context(cache_dir="mine")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert default_store().root == tmp_path / "mine"


def test_integers_that_f64_does_not_tell_apart_are_refused_before_a_run():
    graph = tracea.Graph()
    graph.set_outputs(graph.add_input((4,), DType.I64))
    program = tracea.Context(threads=1).optimize_graph(graph)
    near, far = np.array([2**53 - 1, -1, 0, 5]), np.array([1, 2**53 + 1, 0, 0])
    np.testing.assert_array_equal(program.run(near), near)
    with pytest.raises(InvalidInput, match=r"inputs\[0\].*2\^53"):
        program.run(far)


@pytest.mark.parametrize("given", [b"x", 1j, [1], 3, "", "a\0b", "\ud800"])
def test_what_is_no_path_is_no_cache_directory(given):
    with pytest.raises(InvalidOption, match="cache_dir"):
        tracea.Context(cache_dir=given)


@pytest.mark.parametrize("given", [None, 1.5, [1]])
def test_what_is_no_path_is_no_program(given):
    with pytest.raises(InvalidOption, match="path"):
        tracea.load(given)
    with pytest.raises(InvalidGraph):
        tracea.Graph.from_json(given)


def test_graphs_without_work(tmp_path):
    graph = tracea.Graph()
    x = graph.add_input((3, 0))
    graph.add_gemm(x, graph.add_input((0, 4)), name="y")
    found = (
        tracea.Context(threads=1).optimize_graph(graph).run(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))
    )
    np.testing.assert_array_equal(found, np.zeros((3, 4)))
