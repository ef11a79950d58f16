"""Write primitives/wgmma_shapes.h: wgmma names each of its registers, so that every n is a text of its own.

Run it after a change of this file, ``python tools/write_wgmma_header.py``; a test compares the header with it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tracea.emitters.cuda.primitives import WGMMA_EXTENTS

HEADER = Path("src/tracea/emitters/cuda/include/tracea/primitives/wgmma_shapes.h")
WIDTH = 116

_HEAD = """\
// Written by tools/write_wgmma_header.py: the register lists of wgmma for each n, and the instructions over them.
// clang-format off
#ifndef TRACEA_PRIMITIVES_WGMMA_SHAPES_H
#define TRACEA_PRIMITIVES_WGMMA_SHAPES_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {
namespace detail {

template <class A, class B>
inline constexpr bool same_type = false;
template <class A>
inline constexpr bool same_type<A, A> = true;

template <int n>
struct Wgmma {
    static_assert(n < 0, "wgmma: this n is not in wgmma_shapes.h");
};
template <int n>
struct WgmmaS8 {
    static_assert(n < 0, "wgmma of int8: this n is not in wgmma_shapes.h");
};

// One instruction. registers: "%0, ..."; the operands after them are a, b, accumulate (p), and what `more` names.
#define TRACEA_WGMMA_TEXT(shape_and_types, registers, a, b, p, more) \\
    "{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, " p ", 0;\\n\\t" \\
    "wgmma.mma_async.sync.aligned." shape_and_types " {" registers "}, " a ", " b ", p" more ";\\n\\t}"

// The functions of one n; `list` gives the accumulators as operands, a to tb are the operands after them.
#define TRACEA_WGMMA_FLOAT(n, list, registers, a, b, p, ta, tb) \\
template <> \\
struct Wgmma<n> { \\
    template <bool transpose_a, bool transpose_b> \\
    static TRACEA_DEVICE void f16(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k16.f32.f16.f16", registers, a, b, p, ", 1, 1, " ta ", " tb) \\
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)), \\
                       "n"(transpose_a ? 1 : 0), "n"(transpose_b ? 1 : 0) : "memory"); \\
    } \\
    template <bool transpose_a, bool transpose_b> \\
    static TRACEA_DEVICE void bf16(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k16.f32.bf16.bf16", registers, a, b, p, ", 1, 1, " ta ", " tb) \\
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)), \\
                       "n"(transpose_a ? 1 : 0), "n"(transpose_b ? 1 : 0) : "memory"); \\
    } \\
    static TRACEA_DEVICE void tf32(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k8.f32.tf32.tf32", registers, a, b, p, ", 1, 1") \\
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \\
    } \\
    static TRACEA_DEVICE void e4m3(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.f32.e4m3.e4m3", registers, a, b, p, ", 1, 1") \\
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \\
    } \\
    static TRACEA_DEVICE void e5m2(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.f32.e5m2.e5m2", registers, a, b, p, ", 1, 1") \\
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \\
    } \\
};

#define TRACEA_WGMMA_INT(n, list, registers, a, b, p) \\
template <> \\
struct WgmmaS8<n> { \\
    static TRACEA_DEVICE void s8(int32_t (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \\
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.s32.s8.s8", registers, a, b, p, "") \\
                     : list("+r") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \\
    } \\
};
"""

_TAIL = """
#undef TRACEA_WGMMA_TEXT
#undef TRACEA_WGMMA_FLOAT
#undef TRACEA_WGMMA_INT

}  // namespace detail
}  // namespace tracea

#endif
"""


def header() -> str:
    """Return the header's text."""
    return _HEAD + "".join(f"\n{line}" for n in WGMMA_EXTENTS for line in _extent(n)) + "\n" + _TAIL


def _extent(n: int) -> Iterator[str]:
    count = n // 2  # 64 × n numbers over 128 threads
    yield ""
    yield f"// n = {n}: {count} registers"
    yield from _continued(f"#define TRACEA_WGMMA_D{n}(c)", ", ".join(f"c(d[{i}])" for i in range(count)))
    yield from _continued(
        f"#define TRACEA_WGMMA_R{n}", *(f'"{part}"' for part in _quoted(", ".join(f"%{i}" for i in range(count))))
    )
    a, b, p, ta, tb = (f'"%{count + i}"' for i in range(5))
    yield f"TRACEA_WGMMA_FLOAT({n}, TRACEA_WGMMA_D{n}, TRACEA_WGMMA_R{n}, {a}, {b}, {p}, {ta}, {tb})"
    if n in {8, 24} or n % 16 == 0:
        yield f"TRACEA_WGMMA_INT({n}, TRACEA_WGMMA_D{n}, TRACEA_WGMMA_R{n}, {a}, {b}, {p})"
    yield f"#undef TRACEA_WGMMA_D{n}"
    yield f"#undef TRACEA_WGMMA_R{n}"


def _quoted(text: str) -> list[str]:
    """Break a list into pieces that keep their spaces, so that the strings of the pieces join to the list."""
    lines = textwrap.wrap(text, WIDTH - 6)
    return [line + " " for line in lines[:-1]] + lines[-1:]


def _continued(*parts: str) -> list[str]:
    """Lay a macro out over lines of at most WIDTH characters."""
    lines = [parts[0]]
    for part in parts[1:]:
        lines += ["    " + line for line in ([part] if part.startswith('"') else textwrap.wrap(part, WIDTH - 6))]
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def main() -> int:
    """Write the header below the working directory's project."""
    root = Path(__file__).parents[1]
    (root / HEADER).write_text(header(), encoding="utf-8")
    print(f"{HEADER}: {len(WGMMA_EXTENTS)} extents")
    return 0


if __name__ == "__main__":
    sys.exit(main())
