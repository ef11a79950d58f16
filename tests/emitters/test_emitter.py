"""The emitter prints what nodes say and refuses what it has no line for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.kernels.cases import gemm_cases
from tests.kernels.conformance import build

from tracea.core.op import GemmOp
from tracea.emitters.cpu.emitter import emit
from tracea.emitters.cpu.index_text import index_text, predicate_text
from tracea.errors import EmitError
from tracea.semantic.access import Intrinsic
from tracea.semantic.index import TRUE, Const, Index, Param, Var, ceil_div, minimum
from tracea.semantic.nodes import Block, For, Level, MicroKernel, Node, Parallel, block
from tracea.semantic.tile_kernel import TileKernel

A, B, C = Var("a"), Param("b"), Var("c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Node):
    """A node that no emitter knows."""


def kernel() -> TileKernel:
    return build(gemm_cases()[1], "avx512").kernel


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (A + B * C - C, "a + b * c - c"),
        ((A + B) * C, "(a + b) * c"),
        (A * (B // C), "a * (b / c)"),
        (A // B // C, "a / b / c"),
        (A // (B * C), "a / (b * c)"),
        (A - (B - C), "a - (b - c)"),
        (ceil_div(A, 14), "(a + 13) / 14"),
        (minimum(A + 1, B), "min_index(a + 1, b)"),
        ((A - B) % C, "(a - b) % c"),
        (-A, "(-1) * a"),
    ],
)
def test_index_is_spelled_with_the_parentheses_that_it_needs(index: Index, text: str) -> None:
    assert index_text(index) == text
    values = {"a": 37, "b": 3, "c": 2}
    python = text.replace(" / ", " // ").replace("min_index", "min")
    assert eval(python, {"min": min}, values) == index.evaluate(values)  # C and Python agree on what is not negative


def test_predicate_is_spelled_in_c() -> None:
    assert predicate_text((A < B) & ~(B <= C)) == "a < b && !(b <= c)"
    assert predicate_text(TRUE) == "true"


def test_unknown_node_is_refused_by_name() -> None:
    with pytest.raises(EmitError, match="Unknown"):
        emit(replace(kernel(), body=block(Unknown())), "avx512")


def test_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(EmitError, match="headers"):
        emit(kernel(), "sse2; rm -rf")


@pytest.mark.parametrize("level", [Level.BLOCK, Level.SUBGROUP, Level.LANE, Level.ROLE])
def test_levels_of_a_gpu_are_refused(level: Level) -> None:
    loop = Parallel(level=level, var=Var("i"), extent=Const(4), body=block())
    with pytest.raises(EmitError, match=level.value):
        emit(replace(kernel(), body=block(loop)), "avx512")


def test_more_task_loops_than_counters_are_refused() -> None:
    loops = [Parallel(level=Level.TASK, var=Var(f"i{n}"), extent=Const(4), body=block()) for n in range(9)]
    with pytest.raises(EmitError, match="task loop 9 of 8"):
        emit(replace(kernel(), body=Block(nodes=tuple(loops))), "avx512")


def tiles(body: Block, change: dict[str, object]) -> Block:
    """Return a block whose register tiles have another intrinsic."""
    nodes: list[Node] = []
    for node in body.nodes:
        if isinstance(node, MicroKernel):
            nodes.append(replace(node, **change))  # type: ignore[arg-type]
        elif isinstance(node, For | Parallel):
            nodes.append(replace(node, body=tiles(node.body, change)))
        else:
            nodes.append(node)
    return Block(nodes=tuple(nodes))


def test_unknown_routine_is_refused_by_name() -> None:
    intrinsic = Intrinsic(name="amx_tile", meaning=lambda a, b: a @ b, source="nowhere")
    with pytest.raises(EmitError, match="amx_tile"):
        emit(replace(kernel(), body=tiles(kernel().body, {"intrinsic": intrinsic})), "avx512")


def test_source_says_what_a_caller_has_to_bind() -> None:
    source = emit(kernel(), "avx512")
    assert [pointer.name for pointer in source.pointers] == ["a", "b", "x1", "x2", "c"]
    assert source.integers == tuple(param.name for param in kernel().params)
    assert f'extern "C" __attribute__((visibility("default"))) void {source.name}(' in source.text
    assert all(f'#include "{header}"' in source.text for header in source.headers)


def test_op_of_another_shape_has_a_name_of_its_own() -> None:
    names = {build(case, "avx512").source.name for case in gemm_cases()}
    assert len(names) == len(gemm_cases())
    assert isinstance(kernel().op, GemmOp)
