from __future__ import annotations

import json

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Input, activation, activation_names
from tracea.core.expr_text import expr_text
from tracea.core.graph import Graph, Node
from tracea.core.op import GemmOp, PointwiseOp, ReduceKind, RowKind, SourceKind, SourceOp, ViewKind
from tracea.core.reference import run
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.errors import InvalidDType, InvalidGraph, InvalidInput, InvalidOp, InvalidShape


def block() -> Graph:
    """LayerNorm, Linear, GELU, Linear, residual."""
    graph = Graph()
    x = graph.add_input((SymbolicDim("rows", 1, 512), 8), name="x")
    weight, bias = graph.add_constant((8,), name="gamma"), graph.add_constant((8,), name="beta")
    normal = graph.add_row(RowKind.LAYER_NORM, x, weight=weight, bias=bias, eps=1e-5, name="norm")
    up = graph.add_gemm(normal, graph.add_constant((32, 8), name="w1"), transpose_b=True, name="up")
    act = graph.add_pointwise("gelu", up, name="act")
    down = graph.add_gemm(act, graph.add_constant((8, 32), name="w2"), transpose_b=True, name="down")
    graph.add_pointwise(Input(0) + Input(1), down, x, name="out")
    return graph


def test_a_graph_knows_its_inputs_constants_and_outputs() -> None:
    graph = block()
    assert [node.id for node in graph.inputs] == ["x"]
    assert list(graph.constants) == ["gamma", "beta", "w1", "w2"]
    assert [node.id for node in graph.outputs] == ["out"]
    assert [node.id for node in graph.users("x")] == ["norm", "out"]
    assert graph["down"].type.shape[1] == 8
    assert "out = pointwise(down, x)" in str(graph)


def test_a_line_of_a_graph_says_what_the_name_of_the_op_leaves_open() -> None:
    graph = Graph()
    x = graph.add_input((4, 8), name="x")
    norm = graph.add_row(RowKind.LAYER_NORM, x, eps=1e-5, name="norm")
    act = graph.add_pointwise("gelu", norm, name="act")
    both = graph.add_pointwise((Input(0) + Input(1)) * (Input(0) - 2.0), act, x, name="both")
    graph.add_gemm(both, graph.add_constant((8, 3)), activation="relu", name="out")
    lines = {line.partition(" = ")[0]: line.partition("  # ")[2] for line in str(graph).splitlines()}
    assert lines["norm"] == "layer_norm, eps 1e-05"
    assert lines["act"] == "gelu(norm)"
    assert lines["both"] == "(act + x) * (act - 2)"
    assert lines["out"] == "then relu(·)"


@pytest.mark.parametrize("name", sorted({*activation_names()} - {"identity", "logsigmoid"}))
def test_an_activation_is_written_by_its_name_simplified_or_not(name: str) -> None:
    for expr in (activation(name), activation(name).simplify()):
        assert expr_text(expr, ["x"]) == f"{name}(x)"
    assert expr_text(activation(name).substitute({0: Input(1) * 3.0}), ["x", "y"]) == f"{name}(y * 3)"


def test_an_expression_keeps_its_parentheses_and_ends_somewhere() -> None:
    product = (Input(0) + Input(1)) * (Input(0) - Cast(Input(1) * 2.0, DType.F16))
    assert expr_text(product, ["a", "b"]) == "(a + b) * (a - f16(b * 2))"
    for _ in range(6):
        product = product * product
    assert expr_text(product, ["a", "b"]).endswith("…")


def test_a_name_is_no_operand_and_the_error_says_where_its_node_is() -> None:
    graph = Graph()
    x = graph.add_input((4, 4), name="x")
    for add, field in (
        (lambda: graph.add_gemm("x", "y"), "gemm.a"),
        (lambda: graph.add_gemm(x, x, bias="y"), "gemm.bias"),
        (lambda: graph.add_row(RowKind.SOFTMAX, "x"), "softmax.x"),
        (lambda: graph.add_pointwise("relu", "x"), r"relu.inputs\[0\]"),
        (lambda: graph.add_view(ViewKind.RESHAPE, "x", shape=(16,)), "reshape.x"),
        (lambda: graph.add_attention(x, x, "v"), "attention.v"),
    ):
        with pytest.raises(InvalidGraph, match=rf"{field}: got '\w', expected a node.*graph\[\"x\"\]"):
            add()


def test_add_gemm_makes_the_inputs_that_it_is_not_given() -> None:
    graph = Graph()
    node = graph.add_gemm(m=4, n=5, k=6)
    assert [n.id for n in graph.inputs] == [f"{node.id}.a", f"{node.id}.b"]
    assert node.op == GemmOp.of(m=4, n=5, k=6)
    with pytest.raises(InvalidOp, match=r"gemm\.n"):
        graph.add_gemm(m=4, k=6)
    with pytest.raises(InvalidShape):
        graph.add_gemm(node, node)
    with pytest.raises(InvalidShape, match=r"gemm\.m"):
        graph.add_gemm(node, m=9, n=2, k=5)


def test_graphs_round_trip_through_json() -> None:
    graph = block()
    copy = Graph.from_json(graph.to_json())
    assert copy == graph
    assert copy.key == graph.key
    assert copy.symbolic_dims == graph.symbolic_dims
    assert Graph.from_json(graph.bind({"rows": 3}).to_json()) == graph.bind({"rows": 3})


def test_binding_replaces_symbolic_extents_everywhere() -> None:
    bound = block().bind({"rows": 5})
    assert not bound.symbolic_dims
    assert bound["out"].type == TensorType((5, 8), DType.F32)
    with pytest.raises(InvalidGraph, match="rows"):
        block().bind({"columns": 5})
    with pytest.raises(InvalidShape, match="512"):
        block().bind({"rows": 513})


def test_running_takes_symbolic_extents_from_the_data(rng) -> None:
    graph = block()
    data = {n.id: rng.standard_normal((3, 8) if n.id == "x" else n.type.shape) for n in graph if n.op.name == "source"}
    value = run(graph, data)["out"]
    np.testing.assert_array_equal(value, run(graph.bind({"rows": 3}), data)["out"])
    assert value.shape == (3, 8)
    with pytest.raises(InvalidInput, match="w2"):
        run(graph, {name: value for name, value in data.items() if name != "w2"})
    with pytest.raises(InvalidShape, match="gamma"):
        run(graph, {**data, "gamma": np.ones(9)})


def test_rounded_runs_round_every_value(rng) -> None:
    graph = Graph()
    x = graph.add_input((64,), DType.BF16)
    graph.add_pointwise(Input(0) * 3.0, graph.add_pointwise(Input(0) / 3.0, x))
    data = {x.id: rng.standard_normal(64)}
    (exact,), (rounded,) = run(graph, data).values(), run(graph, data, rounded=True).values()
    third = DType.BF16.round(DType.BF16.round(data[x.id]) / 3.0)
    np.testing.assert_array_equal(rounded, DType.BF16.round(third * 3.0))
    assert (exact != rounded).any()


def test_set_outputs_names_what_a_run_returns() -> None:
    graph = block()
    graph.set_outputs("act", graph["out"])
    assert [node.id for node in graph.outputs] == ["act", "out"]
    for bad in (["nowhere"], ["out", "out"], [["act", "out"]], [3]):
        with pytest.raises(InvalidGraph):
            graph.set_outputs(*bad)


def test_building_refuses_what_does_not_fit_and_names_the_node() -> None:
    graph = block()
    with pytest.raises(InvalidGraph, match="node up"):
        graph.add_input((2,), name="up")
    with pytest.raises(InvalidGraph, match="node bad"):
        graph.add(GemmOp.of(m=2, n=3, k=4), ("x", "w1"), name="bad")
    with pytest.raises(InvalidGraph, match="input nowhere"):
        graph.add(PointwiseOp(expr=Input(0), inputs=(TensorType((2,), DType.F32),), out_dtype=DType.F32), ("nowhere",))
    with pytest.raises(InvalidGraph, match="1 inputs"):
        graph.add(GemmOp.of(m=2, n=3, k=4), ("x",))
    with pytest.raises(InvalidGraph, match="rows"):
        graph.add_input((SymbolicDim("rows", 7),))
    with pytest.raises(InvalidGraph, match="no such node"):
        _ = graph["nowhere"]
    assert graph == block()  # nothing was added by what failed


def test_a_kind_may_be_given_by_its_name_and_one_that_is_none_is_refused_with_those_there_are() -> None:
    graph = Graph()
    x = graph.add_input((4, 8), name="x")
    assert graph.add_row("softmax", x).op == graph.add_row(RowKind.SOFTMAX, x).op
    assert graph.add_reduce("sum", x, (0,)).op == graph.add_reduce(ReduceKind.SUM, x, (0,)).op
    assert graph.add_view("permute", x, axes=(1, 0)).op == graph.add_view(ViewKind.PERMUTE, x, axes=(1, 0)).op
    nodes = len(graph)
    for call, said in (
        (lambda: graph.add_row("softmx", x), r"kind: got 'softmx', expected softmax \| .* use softmax, if that"),
        (lambda: graph.add_row(5, x), "kind: got 5, .* RowKind.SOFTMAX"),
        (lambda: graph.add_reduce(RowKind.SOFTMAX, x, (0,)), r"kind: got softmax, expected .*\bsum\b"),
        (lambda: graph.add_view(None, x), r"kind: got None, expected .*\bpermute\b"),
    ):
        with pytest.raises(InvalidOp, match=said):
            call()
    assert len(graph) == nodes


@pytest.mark.parametrize("name", ["f64", "f16", "torch.bfloat16"])
def test_a_name_for_an_element_type_is_told_the_type_that_it_names(name: str) -> None:
    remedy = f'use DType.parse("{DType.parse(name).value}")'
    for call in (lambda: GemmOp.of(m=2, n=3, k=4, dtype=name), lambda: Graph().add_input((2,), dtype=name)):
        with pytest.raises(InvalidDType, match="expected a DType") as caught:
            call()
        assert caught.value.remedy == remedy
    with pytest.raises(InvalidDType, match=r"got f23, expected .*\bf32\b"):
        Graph().add_input((2,), dtype="f23")


def test_an_order_with_a_user_before_its_input_is_refused() -> None:
    nodes = block().nodes
    with pytest.raises(InvalidGraph, match="come before"):
        Graph.of(reversed(nodes), ["out"])
    with pytest.raises(InvalidGraph, match="another node"):
        Graph.of((*nodes, nodes[0]), ["out"])
    with pytest.raises(InvalidGraph, match="fused"):
        Graph.of((*nodes, Node(id="late", op=nodes[0].op, fused=("up",))), ["out"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(schema_version=99),
        lambda d: d.pop("schema_version"),
        lambda d: d.pop("nodes"),
        lambda d: d.update(output=["out"]),
        lambda d: d.update(outputs=["nowhere"]),
        lambda d: d.update(outputs="out"),
        lambda d: d["nodes"].reverse(),
        lambda d: d["nodes"][3].update(inputs=["x"]),
        lambda d: d["nodes"][0]["op"].update(kind="network"),
        lambda d: d["nodes"][0].update(id=7),
        lambda d: d["nodes"].append({"class": "GemmOp"}),
    ],
)
def test_json_that_is_no_graph_is_refused(spoil) -> None:
    data = json.loads(block().to_json())
    spoil(data)
    with pytest.raises(InvalidGraph):
        Graph.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"schema_version": 1}'])
def test_text_that_is_no_graph_is_refused(text: str) -> None:
    with pytest.raises(InvalidGraph):
        Graph.from_json(text)


def test_a_field_that_is_there_twice_is_refused() -> None:
    text = block().to_json().replace('"outputs"', '"outputs": [], "outputs"', 1)
    with pytest.raises(InvalidGraph, match="outputs twice"):
        Graph.from_json(text)


def test_only_norms_take_an_epsilon() -> None:
    graph = Graph()
    x = graph.add_input((4, 8))
    with pytest.raises(InvalidOp, match="softmax has no root"):
        graph.add_row("softmax", x, eps=1e-5)
    assert graph.add_row("layer_norm", x, eps=0.0).op.eps == 0.0


def test_a_transposed_weight_is_a_view() -> None:
    graph = block()
    (view,) = (node for node in graph if node.inputs == ("w1",))
    assert view.op.kind is ViewKind.PERMUTE
    assert graph["up"].op.b.strides == (1, 8)


@pytest.mark.parametrize("name", [3, 0, False, b"x", ("x",), 1.5])
def test_a_name_that_is_no_text_is_refused_and_adds_nothing(name) -> None:
    graph = Graph()
    for add in (
        lambda: graph.add_input((2, 3), name=name),
        lambda: graph.add_constant((2, 3), name=name),
        lambda: graph.add_gemm(m=2, n=3, k=4, name=name),
        lambda: graph.add(SourceOp(kind=SourceKind.INPUT, type=TensorType((2,), DType.F32)), name=name),
    ):
        with pytest.raises(InvalidGraph, match=r"name of .*expected text"):
            add()
    assert len(graph) == 0


@pytest.mark.parametrize("shape", [None, 3, 2.5, object()])
def test_a_shape_that_is_none_is_refused(shape) -> None:
    for add in (Graph().add_input, Graph().add_constant):
        with pytest.raises(InvalidShape, match=r"shape: got .*expected extents"):
            add(shape)


def test_a_convolution_takes_one_number_for_both_axes() -> None:
    graphs = []
    for stride, padding, dilation in ((2, 3, 2), ((2, 2), (3, 3), (2, 2))):
        graph = Graph()
        x, w = graph.add_input((1, 3, 12, 12), name="x"), graph.add_input((4, 3, 3, 3), name="w")
        graph.add_conv2d(x, w, stride=stride, padding=padding, dilation=dilation, name="y")
        graphs.append(graph.to_json())
    assert graphs[0] == graphs[1]
    with pytest.raises(InvalidOp, match="stride"):
        graph.add_conv2d(x, w, stride=0)
