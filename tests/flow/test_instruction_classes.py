"""Which instructions ``tracea emit --stats`` counts, by the lines of an assembly."""

from __future__ import annotations

from tracea.flow.text import _classes

OF_TILES = ["tileloadd (%rax,%rsi,1), %tmm4", "tdpbf16ps %tmm6, %tmm4, %tmm0", "tilestored %tmm0, (%rdi,%rcx,1)"]


def test_products_and_loads_of_matrix_tiles_are_counted_by_their_name() -> None:
    lines = [*OF_TILES, "tdpbssd\t%tmm6, %tmm4, %tmm0", "tilezero %tmm0", "vfmadd231ps %zmm0, %zmm1, %zmm2"]
    found = dict(_classes(lines))
    assert found["matrix-tile product"] == 2
    assert found["matrix-tile load or store"] == 2
    assert found["fused multiply-add"] == 1


def test_a_kernel_without_matrix_tiles_does_not_hear_of_them() -> None:
    found = dict(_classes(["vmovups (%rdi), %zmm0", "call exp"]))
    assert found["vector load or store"] == found["call"] == 1
    assert not any("tile" in name for name in found)
    assert found["fused multiply-add"] == 0
