"""The eight wrong kernels as native code, compiled, loaded and launched as Tracea's own are, beside the right one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.emitters.kernel_source import KernelSource, PointerParameter
from tracea.gates import Run, judge, time_verified
from tracea.runtime.compiler import compile
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program
from tracea.semantic.index import Const
from tracea.semantic.tile_kernel import BufferRole

OP = GemmOp.of(m=21, n=53, k=100)

Array = np.ndarray[Any, Any]

PRELUDE = """
#include <cstring>

namespace {NAME}_scope {
struct Problem {
    const float* a; const float* b; float* c; int64_t m, n, k;
    explicit Problem(const tracea_call* call)
        : a(static_cast<const float*>(call->pointers[0])), b(static_cast<const float*>(call->pointers[1])),
          c(static_cast<float*>(call->pointers[2])), m(call->integers[0]), n(call->integers[1]), k(call->integers[2]) {}
};
float dot(const Problem& p, int64_t i, int64_t j, int64_t from, int64_t to) {
    float sum = 0;
    for (int64_t k = from; k < to; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
    return sum;
}
void gemm(const Problem& p) {
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = dot(p, i, j, 0, p.k);
}
}
"""

BODIES = {
    "right": "gemm(p);",
    "zero_output": "std::memset(p.c, 0, p.m * p.n * 4);",
    "stale_buffer": """
        static float buffer[1 << 16];
        std::memcpy(p.c, buffer, p.m * p.n * 4);
        Problem other = p;
        other.c = buffer;
        gemm(other);""",
    "wrong_tail": """
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n / 16 * 16; ++j) p.c[i * p.n + j] = dot(p, i, j, 0, p.k);""",
    "off_by_one_in_k": """
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = dot(p, i, j, 0, p.k - 1);""",
    # Whole vectors of 16: a row's tail is overwritten by the next row, the last row's lies behind the output.
    "missing_mask": """
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < (p.n + 15) / 16 * 16; ++j)
                p.c[i * p.n + j] = j < p.n ? dot(p, i, j, 0, p.k) : 0.0f;""",
    "f16_overflow": """
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
                _Float16 sum = 0;
                for (int64_t k = 0; k < p.k; ++k)
                    sum = _Float16(float(sum) + float(_Float16(p.a[i * p.k + k])) * float(_Float16(p.b[k * p.n + j])));
                p.c[i * p.n + j] = float(sum);
            }""",
    # Another split of the sum in each call, as a race for the next block of K would give.
    "nondeterministic_sum": """
        static int64_t calls = 0;
        const int64_t cut = (calls++ * 37) % (p.k + 1);
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = dot(p, i, j, 0, cut) + dot(p, i, j, cut, p.k);""",
    "cached_by_shape": """
        static float kept[1 << 16];
        static int64_t m, n, k;
        if (m != p.m || n != p.n || k != p.k) {
            Problem other = p;
            other.c = kept;
            gemm(other);
            m = p.m, n = p.n, k = p.k;
        }
        std::memcpy(p.c, kept, p.m * p.n * 4);""",
}
MEANT_FOR = {
    "zero_output": "correct on normal",
    "stale_buffer": "correct on normal",
    "wrong_tail": "every output written",
    "off_by_one_in_k": "correct on edges",
    "missing_mask": "nothing written beside the output",
    "f16_overflow": "correct on large",
    "nondeterministic_sum": "same bits every time",
    "cached_by_shape": "correct on integer",
}


def source(name: str) -> KernelSource:
    symbol = f"planted_{name}"
    body = f'extern "C" void {symbol}(const tracea_call* call, int32_t rank) {{\n'
    body += f"    using namespace {symbol}_scope;\n    if (rank != 0) return;\n    const Problem p(call);\n"
    body += f"    {BODIES[name].strip()}\n}}\n"
    pointer = {"a": BufferRole.INPUT, "b": BufferRole.INPUT, "c": BufferRole.OUTPUT}
    return KernelSource(
        name=symbol,
        text=PRELUDE.replace("{NAME}", symbol) + body,
        language="c++",
        isa="plain",
        pointers=tuple(PointerParameter(name=n, dtype=DType.F32, role=role) for n, role in pointer.items()),
        integers=("m", "n", "k"),
        scalars=(),
        team_scratch_bytes=Const(0),
        thread_scratch_bytes=Const(0),
        headers=(),
    )


@pytest.fixture(scope="module")
def kernels() -> dict[str, Run]:
    """Every kernel as a program of one call: run(inputs, out)."""
    found: dict[str, Run] = {}
    for name, kernel in zip(BODIES, compile([source(name) for name in BODIES]), strict=True):
        call = Call.binding(
            kernel,
            pointers={"a": InputSlot(0), "b": InputSlot(1), "c": OutputSlot(0)},
            integers={"m": 21, "n": 53, "k": 100},
        )
        program = Program(calls=(call,), inputs=OP.operands, outputs=(OP.infer(),), name=name)

        def run(inputs: Sequence[Array], out: Array, program: Program = program) -> object:
            return program.run(*inputs, out=out, threads=1)

        found[name] = run
    return found


def test_the_right_kernel_passes(kernels: dict[str, Run], seed: int) -> None:
    verdict = judge(kernels["right"], OP, seed=seed)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("name", MEANT_FOR)
def test_a_planted_native_kernel_is_rejected_by_the_check_meant_for_it(
    kernels: dict[str, Run], name: str, seed: int
) -> None:
    verdict = judge(kernels[name], OP, subject=name, seed=seed)
    assert MEANT_FOR[name] in [failure.name for failure in verdict.failures], str(verdict)


def test_only_the_right_native_kernel_is_timed(kernels: dict[str, Run], seed: int) -> None:
    result = time_verified(kernels, OP, seed=seed, pairs=3, batch_us=100.0, warmup_us=100.0)
    assert {name for name, verdict in result.verdicts.items() if not verdict.passed} == set(MEANT_FOR)
    assert set(result.measurements) == {"right"}
