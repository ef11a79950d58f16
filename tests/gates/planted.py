"""The catalogue of wrong kernels, as native code: each a fault seen in practice, with the check that is meant for it.

A kernel is a team function over ``p``, the operands and sizes of one product: ``a`` (m, k), ``b`` (k, n), ``r`` (the
residual, where the op has one) and ``c`` (m, n), all row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.emitters.kernel_source import KernelSource, PointerParameter
from tracea.gates import Run
from tracea.runtime.compiler import LoadedKernel, compile
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program
from tracea.semantic.index import Const
from tracea.semantic.tile_kernel import BufferRole

Array = np.ndarray[Any, Any]

PLAIN = GemmOp.of(m=21, n=53, k=100)
SCRATCH_BYTES = 1 << 16

_PRELUDE = """
#include <fcntl.h>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include "tracea/team.h"

namespace {NAME}_scope {
template <class T, class R>
struct Problem {
    const T* a; const T* b; const T* r; R* c; int64_t m, n, k, batch;
    explicit Problem(const tracea_call* call)
        : a(static_cast<const T*>(call->pointers[0])), b(static_cast<const T*>(call->pointers[1])),
          r({POINTERS} > 3 ? static_cast<const T*>(call->pointers[2]) : nullptr),
          c(static_cast<R*>(call->pointers[{POINTERS} - 1])),
          m(call->integers[0]), n(call->integers[1]), k(call->integers[2]), batch(call->integers[3]) {}
};
template <class T, class R>
float dot(const Problem<T, R>& p, int64_t i, int64_t j, int64_t from, int64_t to) {
    float sum = 0;
    for (int64_t k = from; k < to; ++k) sum += float(p.a[i * p.k + k]) * float(p.b[k * p.n + j]);
    return sum;
}
template <class T, class R>
void gemm(const Problem<T, R>& p) {
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = R(dot(p, i, j, 0, p.k));
}
}
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A wrong kernel: what it does, the op that shows it, and the check that must fail ("" where chance says which)."""

    body: str
    check: str
    op: GemmOp = field(default=PLAIN)
    threads: int = 1


def each(statement: str) -> str:
    """A statement for every element (i, j) of the result."""
    return f"for (int64_t i = 0; i < p.m; ++i) for (int64_t j = 0; j < p.n; ++j) {{ {statement} }}"


_RESIDUAL = GemmOp.of(m=21, n=53, k=100, residual=True)
_SQUARE = GemmOp.of(m=32, n=32, k=32)
_BATCH = GemmOp.of(m=9, n=17, k=20, batch=(2,))

PLANTED: dict[str, Planted] = {
    # Threads.
    "missing_barrier": Planted(
        # The last thread packs B for all of them; nobody waits until it is there. It is late, as a thread may be: it
        # begins when the first one has finished a row of this very call, however loaded the machine is.
        body="""
            static std::atomic<int> finished;
            float* panel = reinterpret_cast<float*>(call->team_scratch);
            const bool shared = call->team->size > 1;
            if (rank == call->team->size - 1) {
                while (shared && finished.exchange(0) == 0) std::this_thread::yield();
                std::memcpy(panel, p.b, p.k * p.n * 4);
            }
            Problem<float, float> own = p;
            own.b = panel;
            for (int64_t i = rank; i < p.m; i += call->team->size) {
                for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = dot(own, i, j, 0, p.k);
                if (shared && i == 0) finished = 1;
            }""",
        check="correct on normal",
        threads=2,
    ),
    "lost_update": Planted(
        # Two halves of K are added to the same element, each to what it read before the other wrote.
        body="""
            if (rank == 0) std::memset(p.c, 0, p.m * p.n * 4);
            const int64_t size = call->team->size, from = rank * p.k / size, to = (rank + 1) * p.k / size;
            for (int64_t i = 0; i < p.m; ++i) {
                float row[64];
                team_barrier(call, rank);
                std::memcpy(row, p.c + i * p.n, p.n * 4);
                team_barrier(call, rank);
                for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = row[j] + dot(p, i, j, from, to);
            }""",
        check="correct on normal",
        threads=2,
    ),
    "thread_dependent": Planted(
        # Rows are dealt out in equal parts: with two threads an odd number of rows loses its last.
        body="""
            const int64_t part = p.m / call->team->size;
            for (int64_t i = rank * part; i < (rank + 1) * part; ++i)
                for (int64_t j = 0; j < p.n; ++j) p.c[i * p.n + j] = dot(p, i, j, 0, p.k);""",
        check="every output written",
        threads=2,
    ),
    # Memory that holds something else than was thought.
    "uninitialised_output": Planted(body=each("p.c[i * p.n + j] += dot(p, i, j, 0, p.k);"), check="correct on normal"),
    "uninitialised_scratch": Planted(
        # Sums in scratch that is zero when the process begins, and only then.
        body="float* sums = reinterpret_cast<float*>(call->team_scratch);"
        + each("sums[i * p.n + j] += dot(p, i, j, 0, p.k); p.c[i * p.n + j] = sums[i * p.n + j];"),
        check="correct on normal",
    ),
    "first_call_only": Planted(
        # Packs B on the first call and keeps it, as if it were a weight.
        body="static float kept[1 << 14]; static bool full = false;"
        "if (!full) std::memcpy(kept, p.b, p.k * p.n * 4); full = true;"
        "Problem<float, float> own = p; own.b = kept; gemm(own);",
        check="correct on integer",
    ),
    "padding_read": Planted(
        # K is padded to whole vectors: A by zeros, the packed B by whatever the memory held, and 0 · NaN is NaN.
        body="static float panel[1 << 14]; const int64_t padded = (p.k + 15) / 16 * 16;"
        "std::memset(panel, 0xFF, sizeof panel); std::memcpy(panel, p.b, p.k * p.n * 4);"
        + each(
            "float sum = 0; for (int64_t k = 0; k < padded; ++k)"
            " sum += (k < p.k ? p.a[i * p.k + k] : 0.0f) * panel[k * p.n + j]; p.c[i * p.n + j] = sum;"
        ),
        check="correct on normal",
    ),
    "residual_from_output": Planted(
        # Takes it that the residual was added in place before.
        body=each("p.c[i * p.n + j] += dot(p, i, j, 0, p.k);"),
        check="correct on normal",
        op=_RESIDUAL,
    ),
    "result_in_static_storage": Planted(
        # Sums where every call sums: who calls meanwhile gets what is left of both. It takes its time before it copies.
        body="static float sums[1 << 14]; Problem<float, float> own = p; own.c = sums; gemm(own);"
        "std::this_thread::sleep_for(std::chrono::microseconds(300)); std::memcpy(p.c, sums, p.m * p.n * 4);",
        check="right for two callers at once",
    ),
    # Memory that is not its own.
    "read_beyond_times_zero": Planted(
        # The element after the row's end is the next row's first: it is read, and multiplied by zero.
        body=each("p.c[i * p.n + j] = dot(p, i, j, 0, p.k) + p.a[(i + 1) * p.k] * 0.0f;"),
        check="correct on normal",
    ),
    "one_beside": Planted(
        body="gemm(p); p.c[p.m * p.n] = 0.0f;",
        check="nothing written beside the output",
    ),
    "one_before": Planted(
        body="gemm(p); p.c[-1] = 0.0f;",
        check="nothing written beside the output",
    ),
    "input_damaged": Planted(
        # Flushes the subnormals of A where they lie, and computes with what was there.
        body="gemm(p); float* a = const_cast<float*>(p.a);"
        "for (int64_t i = 0; i < p.m * p.k; ++i) if (std::fabs(a[i]) < 1.17549435e-38f) a[i] = 0.0f;",
        check="inputs untouched",
    ),
    "assumed_alignment": Planted(
        # Loads whole cache lines and takes it that an operand begins on one.
        body="Problem<float, float> own = p;"
        "own.a = reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(p.a) & ~uintptr_t(63)); gemm(own);",
        check="correct on normal",
    ),
    # Numbers.
    "nan_swallowed": Planted(
        body=each(
            "float sum = 0; for (int64_t k = 0; k < p.k; ++k) { const float x = p.a[i * p.k + k] * p.b[k * p.n + j];"
            " sum += x == x ? x : 0.0f; } p.c[i * p.n + j] = sum;"
        ),
        check="correct on nonfinite",
    ),
    "infinity_clamped": Planted(
        body=each("p.c[i * p.n + j] = std::fmax(-3.4e38f, std::fmin(3.4e38f, dot(p, i, j, 0, p.k)));"),
        check="correct on nonfinite",
    ),
    "denormals_flushed": Planted(
        body=each(
            "float sum = 0; for (int64_t k = 0; k < p.k; ++k) { const float x = p.a[i * p.k + k];"
            " sum += (std::fabs(x) < 1.17549435e-38f ? 0.0f : x) * p.b[k * p.n + j]; } p.c[i * p.n + j] = sum;"
        ),
        check="correct on denormal",
    ),
    "relu_swallows_nan": Planted(
        # The maximum of the C library takes the operand that is a number.
        body=each("p.c[i * p.n + j] = std::fmax(dot(p, i, j, 0, p.k), 0.0f);"),
        check="correct on nonfinite",
        op=GemmOp.of(m=21, n=53, k=100, activation="relu"),
    ),
    "sign_lost": Planted(
        # The sign is taken from the first term, as in a reduction of magnitudes.
        body=each(
            "const float x = dot(p, i, j, 0, p.k);"
            "p.c[i * p.n + j] = std::copysign(x, p.k > 1 ? p.a[i * p.k] * p.b[j] : x);"
        ),
        check="correct on normal",
    ),
    "products_of_bf16": Planted(
        # Operands lose 16 bits on their way to the matrix unit: within a per cent, and not what f32 means.
        body=each(
            "float sum = 0; for (int64_t k = 0; k < p.k; ++k) { float x = p.a[i * p.k + k], y = p.b[k * p.n + j];"
            " uint32_t u, v; std::memcpy(&u, &x, 4); std::memcpy(&v, &y, 4); u &= 0xFFFF0000u; v &= 0xFFFF0000u;"
            " std::memcpy(&x, &u, 4); std::memcpy(&y, &v, 4); sum += x * y; } p.c[i * p.n + j] = sum;"
        ),
        check="correct on normal",
    ),
    "i16_wraps": Planted(
        body=each(
            "int16_t sum = 0; for (int64_t k = 0; k < p.k; ++k)"
            " sum = int16_t(sum + p.a[i * p.k + k] * p.b[k * p.n + j]); p.c[i * p.n + j] = sum;"
        ),
        check="correct on large",
        op=GemmOp.of(m=21, n=53, k=100, dtype=DType.I8, out_dtype=DType.I32),
    ),
    # What a caller has besides memory.
    "rounding_left": Planted(
        body="gemm(p); std::fesetround(FE_TOWARDZERO);",
        check="rounding and flushing as before",
    ),
    "rounding_of_vectors_left": Planted(
        # The control of vectors alone, which the C library's question for the rounding mode does not look at.
        body="gemm(p);"
        "\n#if defined(__x86_64__)\n"
        "__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x6000);"
        "\n#else\nstd::fesetround(FE_UPWARD);\n#endif\n",
        check="rounding and flushing as before",
    ),
    "file_left_open": Planted(
        body='gemm(p); (void)!open("/dev/null", O_RDONLY);',
        check="no files kept open",
    ),
    # Indices.
    "square_transposed": Planted(
        # Reads B transposed; it was tried on symmetric matrices only.
        body=each(
            "float sum = 0; for (int64_t k = 0; k < p.k; ++k)"
            " sum += p.a[i * p.k + k] * (p.n == p.k ? p.b[j * p.k + k] : p.b[k * p.n + j]); p.c[i * p.n + j] = sum;"
        ),
        check="correct on normal",
        op=_SQUARE,
    ),
    "aliased_operands": Planted(
        # Keeps a pointer by shape: two operands of one shape are one operand.
        body="Problem<float, float> own = p; if (p.m == p.k && p.k == p.n) own.b = p.a; gemm(own);",
        check="correct on normal",
        op=_SQUARE,
    ),
    "swapped_batch": Planted(
        body="for (int64_t g = 0; g < p.batch; ++g) { Problem<float, float> own = p;"
        "own.a += g * p.m * p.k; own.b += (p.batch - 1 - g) * p.k * p.n; own.c += g * p.m * p.n; gemm(own); }",
        check="correct on normal",
        op=_BATCH,
    ),
    "tail_twice": Planted(
        # The last vector of columns begins early so as to be whole: what it shares with the one before counts twice.
        body="std::memset(p.c, 0, p.m * p.n * 4);"
        "for (int64_t i = 0; i < p.m; ++i) for (int64_t v = 0; v < p.n; v += 16) {"
        " const int64_t j0 = v + 16 <= p.n ? v : p.n - 16;"
        " for (int64_t j = j0; j < j0 + 16; ++j) p.c[i * p.n + j] += dot(p, i, j, 0, p.k); }",
        check="correct on normal",
    ),
    "residual_forgotten": Planted(
        # Skips rows of zeros, and with them what is added to the product.
        body="for (int64_t i = 0; i < p.m; ++i) { bool zero = true;"
        " for (int64_t k = 0; k < p.k; ++k) zero = zero && p.a[i * p.k + k] == 0.0f;"
        " for (int64_t j = 0; j < p.n; ++j)"
        " p.c[i * p.n + j] = zero ? 0.0f : dot(p, i, j, 0, p.k) + p.r[i * p.n + j]; }",
        check="correct on denormal",
        op=_RESIDUAL,
    ),
    # Time.
    "wrong_now_and_then": Planted(
        # Right for longer than the first two gates look, the first time.
        body="static int calls = 0; gemm(p); if (++calls % 29 == 0) p.c[p.m * p.n - 1] = 1.25e7f;",
        check="",
    ),
    "counts_its_calls": Planted(
        # Another split of the sum in every other call: both right, never the same bits.
        body="static int64_t calls = 0; const int64_t cut = (++calls % 7) * p.k / 7;"
        + each("p.c[i * p.n + j] = dot(p, i, j, 0, cut) + dot(p, i, j, cut, p.k);"),
        check="same bits every time",
    ),
}


def source(name: str, planted: Planted) -> KernelSource:
    symbol, operands = f"catalogue_{name}", planted.op.operands
    numbers = f"{_cpp(planted.op.a.dtype)}, {_cpp(planted.op.infer().dtype)}"
    body = f'extern "C" void {symbol}(const tracea_call* call, int32_t rank) {{\n    using namespace {symbol}_scope;\n'
    body += "    using namespace tracea::plain;\n"
    body += "" if planted.threads > 1 else "    if (rank != 0) return;\n"
    body += f"    const Problem<{numbers}> p(call);\n    {planted.body.strip()}\n}}\n"
    types = [
        PointerParameter(name=name, dtype=operand.dtype, role=BufferRole.INPUT)
        for name, operand in zip(("a", "b", "r"), operands, strict=False)
    ]
    result = PointerParameter(name="c", dtype=planted.op.infer().dtype, role=BufferRole.OUTPUT)
    return KernelSource(
        name=symbol,
        text=_PRELUDE.replace("{NAME}", symbol).replace("{POINTERS}", str(len(operands) + 1)) + body,
        language="c++",
        isa="plain",
        pointers=(*types, result),
        integers=("m", "n", "k", "batch"),
        scalars=(),
        team_scratch_bytes=Const(SCRATCH_BYTES),
        thread_scratch_bytes=Const(0),
        headers=("tracea/team.h",),
    )


def programs() -> dict[str, Program]:
    """Compile the catalogue as one unit; each kernel as a program of one call, launched as Tracea's own are."""
    kernels = compile([source(name, planted) for name, planted in PLANTED.items()])
    return {name: _bound(name, PLANTED[name].op, kernel) for name, kernel in zip(PLANTED, kernels, strict=True)}


def run_of(program: Program, threads: int) -> Run:
    """Return a program as the gates run one."""

    def run(inputs: Sequence[Array], out: Array) -> object:
        return program.run(*inputs, out=out, threads=threads)

    return run


def _bound(name: str, op: GemmOp, kernel: LoadedKernel) -> Program:
    pointers = {"c": OutputSlot(0), **dict(zip(("a", "b", "r"), map(InputSlot, range(len(op.operands))), strict=False))}
    integers = {"m": op.m, "n": op.n, "k": op.k, "batch": op.batch[0] if op.batch else 1}
    call = Call.binding(kernel, pointers=pointers, integers=integers)  # type: ignore[arg-type]
    return Program(calls=(call,), inputs=op.operands, outputs=(op.infer(),), name=name)


def _cpp(dtype: DType) -> str:
    return {DType.F32: "float", DType.I8: "int8_t", DType.I32: "int32_t"}[dtype]
