"""The hot loop of the register tile as the compiler made it: sums in registers, no instruction too many."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, random_inputs, run
from tests.kernels.native import Unit, compile_text, host_isas, upper_halves_left_by

from tracea.core.dtype import DType
from tracea.core.op import BlockSparseOp, GemmOp, GroupedGemmOp
from tracea.kernels.registry import find
from tracea.targets import load

OBJDUMP = shutil.which("objdump")
OPS = {
    "f32": GemmOp.of(m=512, n=512, k=512),
    "f64": GemmOp.of(m=512, n=512, k=512, dtype=DType.F64),
    "blocks": BlockSparseOp.of(m=512, n=512, k=512, block=32, chunk=8),
    "groups": GroupedGemmOp.of(m=512, n=512, k=512, groups=8),
    "fused": GemmOp.of(m=512, n=3072, k=768, bias=True, activation="gelu", residual=True),
}
PRODUCT = re.compile(r"\bvfmadd\d+p[sd]\b")
STACK = re.compile(r"\(%r[sb]p\)|\(%r[sb]p,|,%r[sb]p\)")
VECTOR = re.compile(r"%[xyz]mm")
JUMP = re.compile(r"^j[a-z]+\s+([0-9a-f]+)")


def loops(text: str) -> list[list[str]]:
    """Return the instructions of each innermost loop of a disassembly: a backward jump with no other jump inside."""
    found = []
    for function in re.split(r"\n\n", text):
        lines = [(int(m[1], 16), m[2].strip()) for m in re.finditer(r"^\s+([0-9a-f]+):\t(.*)$", function, re.MULTILINE)]
        position = {address: index for index, (address, _) in enumerate(lines)}
        for index, (_, instruction) in enumerate(lines):
            jump = JUMP.match(instruction)
            target = position.get(int(jump[1], 16)) if jump else None
            if target is None or target > index:
                continue
            body = [text for _, text in lines[target : index + 1]]
            if not any(JUMP.match(text) for text in body[:-1]):
                found.append(body)
    return found


@pytest.mark.skipif(OBJDUMP is None, reason="objdump is not here")
@pytest.mark.parametrize("isa", [isa for isa in host_isas() if isa != "plain"])
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("gemm.packed", "f32"),
        ("gemm.packed", "f64"),
        ("gemm.packed", "fused"),
        ("gemm.direct", "f32"),
        ("gemm.block_sparse", "blocks"),
        ("gemm.grouped", "groups"),
    ],
)
def test_hot_loop_has_the_products_of_its_steps_and_no_stack_access(variant: str, name: str, isa: str) -> None:
    assert OBJDUMP is not None
    op, target, found = OPS[name], load(isa), find(variant)
    assert found.default_schedule is not None
    schedule = found.default_schedule(op, target)
    source = build(Case.of(name, variant, op), isa).source
    binary = compile_text(source.text, isa, extra=("-O3", "-c"), suffix=".o")
    listing = subprocess.run(
        [OBJDUMP, "-d", "-C", "--no-show-raw-insn", str(binary)], capture_output=True, text=True, check=True
    ).stdout
    products = schedule.integer("mr") * schedule.integer("nv") * schedule.integer("unroll")
    hot = [body for body in loops(listing) if sum(bool(PRODUCT.search(line)) for line in body) == products]
    assert hot, (
        f"no loop has {products} products: {sorted({sum(bool(PRODUCT.search(t)) for t in b) for b in loops(listing)})}"
    )
    # Tails are masked: on AVX2 a mask is a vector register, and the tile of full registers has none left for it.
    for body in [lines for lines in hot if isa != "avx2" or "vmaskmov" not in " ".join(lines)]:
        # Rows of A in place need an address each: some live on the stack, next to registers that all hold sums.
        spilled = [line for line in body if STACK.search(line)]
        assert not [line for line in spilled if variant != "gemm.direct" or VECTOR.search(line)]
        # Products, B's vectors, A's broadcasts (some compilers fold them into the product), the loop's own few; rows
        # of A in place add an address computation each.
        loads = schedule.integer("unroll") * (schedule.integer("mr") + schedule.integer("nv"))
        addresses = 0 if variant == "gemm.packed" else 2 * schedule.integer("unroll") * schedule.integer("mr")
        assert len(body) - len(spilled) <= products + loads + addresses + 16, "\n".join(body)


@pytest.mark.parametrize("isa", [isa for isa in host_isas() if isa != "plain"])
def test_what_ships_leaves_no_upper_half_in_use(isa: str, rng: np.random.Generator) -> None:
    """Code without VEX prefixes would run at a twentieth of its speed behind a kernel that does."""
    case = Case.of("small", "gemm.packed", GemmOp.of(m=20, n=40, k=30, bias=True, activation="gelu"))
    built, inputs = build(case, isa), random_inputs(case.op, rng)
    left = {}
    for flags in (("-O3",), ("-O3", "-mno-vzeroupper")):
        unit = Unit(built.sources, isa, extra=(*flags, "-shared"))
        run(unit, built, case.op, inputs)
        left[flags[-1]] = upper_halves_left_by(unit)
    if left["-O3"] == -1:
        pytest.skip("this processor does not say which registers are in use")
    assert left["-O3"] == 0
    assert left["-mno-vzeroupper"] != 0, "the check sees nothing"
