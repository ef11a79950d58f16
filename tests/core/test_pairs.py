"""Two results a place: what they mean, what is refused, and which joins become one."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.accuracy import claim
from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PairsOp, PointwiseOp, SourceKind, SourceOp
from tracea.core.passes.fuse_pairs import FusePairs
from tracea.core.passes.memory import plan_memory
from tracea.core.passes.memory_check import check_memory
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.reference import evaluate, run
from tracea.core.tensor_type import StridedLayout, SymbolicDim, TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape

A, B, C, D = (Input(index) for index in range(4))
X = TensorType((3, 5), DType.F32)


def product(*inputs: TensorType, out: TensorType | None = None, dtype: DType = DType.F32) -> PairsOp:
    return PairsOp(first=A * C - B * D, second=A * D + B * C, inputs=inputs, out_dtype=dtype, out=out)


def source(graph: Graph, name: str, type_: TensorType = X) -> Node:
    return graph.add(SourceOp(kind=SourceKind.INPUT, type=type_), name=name)


def joined(graph: Graph, *parts: Node, first: int = 0, halves: bool = False) -> Node:
    """Join two parts in turns or half and half, the one of that number first."""
    rows, half = parts[0].type.static_shape
    starts = tuple((0, (number + first) % 2 * (half if halves else 1)) for number in range(2))
    steps = ((1, 1 if halves else 2),) * 2
    op = JoinOp(parts=tuple(part.type for part in parts), starts=starts, steps=steps, shape=(rows, 2 * half))
    return graph.add(op, parts, name="pairs")


def chain(graph: Graph, expr: Expr, *inputs: Node, name: str) -> Node:
    types = tuple(node.type for node in inputs)
    return graph.add(PointwiseOp(expr=expr, inputs=types, out_dtype=types[0].dtype), inputs, name=name)


def kinds(graph: Graph) -> list[str]:
    return [node.op.name for node in graph if node.op.name not in ("source", "view")]


def assert_same(before: Graph, rng: np.random.Generator) -> Graph:
    after = run_pipeline(before).graph
    values = {node.id: rng.standard_normal(node.type.static_shape) for node in before if node.op.name == "source"}
    found = run(after, values)
    for name, value in run(before, values).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
    check_memory(after, plan_memory(after))
    return after


def test_a_complex_product_is_what_numpy_says(rng: np.random.Generator) -> None:
    z, f = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in ((3, 4, 5), (4, 5)))
    wide, narrow = TensorType((3, 4, 5), DType.F32), TensorType((4, 5), DType.F32)
    op = product(wide, wide, narrow, narrow)
    arrays = [z.real, z.imag, f.real, f.imag]
    assert op.shape == (3, 4, 10)
    assert op.flops == 60 * 6
    np.testing.assert_allclose(evaluate(op, arrays), np.ascontiguousarray(z * f).view(np.float64), rtol=1e-12)
    expected, bound = claim(op, arrays)
    assert expected.shape == bound.shape == op.shape
    assert (bound > 0).all()
    assert (bound < 1e-5).all()


@pytest.mark.parametrize(("halves", "strides"), [(False, (40, 2, 1)), (True, (40, 1, 5))])
def test_the_two_results_of_a_place_lie_where_the_op_says(
    halves: bool, strides: tuple[int, ...], rng: np.random.Generator
) -> None:
    whole = TensorType((3, 10), DType.F32, StridedLayout((40, 1)))
    op = PairsOp(first=A, second=-A, inputs=(X,), out_dtype=DType.F32, halves=halves, out=whole)
    assert (op.places.shape, op.places.strides) == ((3, 5, 2), strides)
    x = rng.standard_normal((3, 5))
    wanted = np.concatenate((x, -x), 1) if halves else np.stack((x, -x), 2).reshape(3, 10)
    np.testing.assert_array_equal(evaluate(op, [x]), wanted)


def test_of_one_place_a_row_the_two_lie_side_by_side_either_way() -> None:
    x = TensorType((8, 1), DType.F32)
    made = [PairsOp(first=A, second=-A, inputs=(x,), out_dtype=DType.F32, halves=halves) for halves in (False, True)]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (InvalidOp, lambda: product(X, X, X)),
        (InvalidShape, lambda: product(X, X, X, TensorType((3, 4), DType.F32))),
        (InvalidShape, lambda: product(*(TensorType((), DType.F32),) * 4)),
        (InvalidShape, lambda: product(*(TensorType((3, SymbolicDim("n", 1)), DType.F32),) * 4)),
        (InvalidShape, lambda: product(X, X, X, X, out=X)),
        (InvalidDType, lambda: product(X, X, X, X, out=TensorType((3, 10), DType.F64))),
    ],
)
def test_what_is_no_pair_of_chains_is_refused(error: type[InvalidInput], make: object) -> None:
    assert callable(make)
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_both_parts_become_one_op(first: int, halves: bool, rng: np.random.Generator) -> None:
    graph = Graph()
    a, b = source(graph, "a"), source(graph, "b")
    parts = chain(graph, A * B, a, b, name="even"), chain(graph, A - B, b, a, name="odd")
    joined(graph, *parts, first=first, halves=halves)
    after = assert_same(graph, rng)
    assert kinds(after) == ["pairs"]
    assert set(after.outputs[0].fused) >= {"even", "odd"}


def test_one_part_may_be_a_copy(rng: np.random.Generator) -> None:
    graph = Graph()
    a = source(graph, "a")
    joined(graph, chain(graph, -A, a, name="even"), a)
    assert kinds(assert_same(graph, rng)) == ["pairs"]


@pytest.mark.parametrize(
    "why", ["another reads a part", "two copies", "three parts", "computed in f64", "nothing in common", "rows"]
)
def test_other_joins_stay(why: str, rng: np.random.Generator) -> None:
    graph = Graph()
    a = source(graph, "a")
    if why == "two copies":
        joined(graph, a, source(graph, "b"))
    elif why == "three parts":
        parts = [chain(graph, A * float(each), a, name=f"part{each}") for each in (2, 3, 4)]
        starts = tuple((0, each) for each in range(3))
        types = tuple(part.type for part in parts)
        graph.add(JoinOp(parts=types, starts=starts, steps=((1, 3),) * 3, shape=(3, 15)), parts)
    elif why == "nothing in common":
        joined(graph, chain(graph, -A, a, name="one"), chain(graph, -A, source(graph, "b"), name="other"))
    elif why == "rows":
        parts = (chain(graph, -A, a, name="one"), chain(graph, A * A, a, name="other"))
        graph.add(JoinOp.along([part.type for part in parts], 0), parts)
    elif why == "computed in f64":
        wide = source(graph, "wide", TensorType((3, 5), DType.I32))
        op = PointwiseOp(expr=A * 0.5, inputs=(wide.type,), out_dtype=DType.F32)
        joined(graph, graph.add(op, (wide,), name="even"), chain(graph, -A, a, name="odd"))
    else:
        even = chain(graph, A * 2.0, a, name="even")
        joined(graph, even, chain(graph, -A, a, name="odd"))
        chain(graph, -A, even, name="other")
    assert "pairs" not in kinds(FusePairs().apply(graph))
    assert_same(graph, rng)
