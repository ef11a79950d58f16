"""Mutants of GPU kernels and of their text: a sample of the kinds here, all of them by `make gpu-mutants`."""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import cache

import pytest
from tests.drawn import drawn

from tracea.emitters.cuda.emitter import emit
from tracea.errors import TraceaError
from tracea.kernels.registry import CUDA_VARIANTS
from tracea.semantic.proofs import prove
from tracea.semantic.proofs.minimal_sync import superfluous_waits
from tracea.semantic.tile_kernel import TileKernel
from tracea.testing.address_widths import narrow_addresses
from tracea.testing.equivalent_mutants import ARGUMENTS, argument_for
from tracea.testing.gpu_cases import GpuCase, edge_sizes, gpu_cases
from tracea.testing.gpu_judge import GpuJudge, certified_ways
from tracea.testing.gpu_mutants import gpu_mutants
from tracea.testing.mutant_page import LEAST_NOTICED, MOST_ARGUED
from tracea.testing.mutants import Mutant, evenly
from tracea.testing.register_bounds import register_overruns
from tracea.testing.text_mutants import TextMutant, text_mutants

CASES = gpu_cases()
SEED = int(os.environ["TRACEA_SEED"])  # printed by each run, the same in all workers
SAMPLE = 12
JUDGED = 4  # of each kernel's IR, and of its text: of another kind each
ALL = [pytest.param(case, id=case.name) for case in CASES]
# What proofs accept: a buffer that promises less alignment has narrower pieces. That is more work, which is counted.
LEFT_TO_OTHERS = {
    (f"gemm.{variant} sm_75", f"guard: {name}: aligned to 8 bytes")
    for variant, name in (("mma_sync", "a"), ("mma_sync", "b"), ("simt", "b"))
}


@cache
def judge_of(name: str) -> tuple[TileKernel, GpuJudge]:
    case = next(case for case in CASES if case.name == name)
    kernel = case.kernel()
    return kernel, case.judge(kernel, certified_ways(kernel))


def whole(mutant: Mutant | TextMutant) -> str:
    return f"{mutant.family}: {mutant.description}"


def unexplained(case: GpuCase, count: int, seed: int) -> list[str]:
    """Return what nobody notices of ``count`` mutants of a kernel's IR and as many of its text, and is not argued."""
    kernel, judge = judge_of(case.name)
    ir, text = list(gpu_mutants(kernel)), list(text_mutants(judge.emit(kernel)))
    of_ir, of_text = (evenly([m.family for m in mutants], count, seed) for mutants in (ir, text))
    missed = [whole(ir[n]) for n in of_ir if judge.of_kernel(ir[n].kernel) is None]
    missed += [whole(text[n]) for n in of_text if judge.of_text(text[n].source) is None]
    return [description for description in missed if argument_for(case.name, description) is None]


def noticed_by_proof(kernel: TileKernel, spare_waits: int) -> bool:
    try:
        prove(kernel)
    except TraceaError:
        return True
    return len(superfluous_waits(kernel)) > spare_waits


@pytest.mark.parametrize("case", drawn(4, ALL, of="mutants of the pipeline"))
def test_proofs_alone_notice_most_mutants_of_the_pipeline(case: GpuCase) -> None:
    families = {"wait", "stage", "order", "role", "guard", "sum"}
    chosen = [mutant for mutant in gpu_mutants(case.kernel()) if mutant.family in families]
    chosen = random.Random(0).sample(chosen, min(SAMPLE, len(chosen)))
    spare = len(superfluous_waits(case.kernel()))
    missed = [whole(m) for m in chosen if not noticed_by_proof(m.kernel, spare)]
    assert [d for d in missed if argument_for(case.name, d) is None and (case.name, d) not in LEFT_TO_OTHERS] == []


@pytest.mark.parametrize("case", drawn(4, ALL, of="mutants of other kinds"))
def test_a_few_mutants_of_other_kinds_in_every_run_are_noticed(case: GpuCase) -> None:
    assert unexplained(case, JUDGED, SEED) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL)
def test_a_sample_of_mutants_is_noticed_and_the_original_is_not(case: GpuCase) -> None:
    kernel, judge = judge_of(case.name)
    assert list(judge.false_alarms(kernel)) == []
    assert judge.of_kernel(kernel) is None
    missed = unexplained(case, 40, SEED)
    assert len(missed) <= (1 - LEAST_NOTICED) * 80, missed


def test_each_argument_covers_as_many_mutants_as_it_says() -> None:
    covered: Counter[object] = Counter()
    total = 0
    for case in CASES:
        kernel = case.kernel()
        found = [whole(m) for m in (*gpu_mutants(kernel), *text_mutants(emit(kernel, case.target)))]
        covered.update(argument_for(case.name, description) for description in found)
        total += len(found)
    assert [(a.kernel, a.pattern, covered[a]) for a in ARGUMENTS if covered[a] != a.count] == []
    assert sum(argument.count for argument in ARGUMENTS) <= MOST_ARGUED * total


def test_mutants_cover_every_variant_and_family() -> None:
    assert {case.variant.id for case in CASES} == {v.id for v in CUDA_VARIANTS if v.build is not None}
    wanted = {"bound", "guard", "mask", "order", "role", "split", "stage", "stride", "sum", "swizzle", "wait", "width"}
    found = {mutant.family for case in CASES for mutant in gpu_mutants(case.kernel())}
    assert found >= wanted - {"sum", "width"}
    case = CASES[2]
    texts = text_mutants(emit(case.kernel(), case.target))
    assert {mutant.family for mutant in texts} == {"sync", "call", "index", "bound", "mask", "swizzle", "width"}


@pytest.mark.parametrize("case", ALL)
def test_sizes_meet_the_edges_of_tiles_and_warps(case: GpuCase) -> None:
    warp = (32, 32)
    sizes = edge_sizes(case.changes, warp=warp)
    tile = tuple(case.changes[name] for name in ("bm", "bn", "bk"))
    for axis in range(3):
        remainders = {size[axis] % tile[axis] for size in sizes}
        assert {0, 1} <= remainders
        assert axis == 0 or tile[axis] - 1 in remainders
    assert any(m == warp[0] and n == warp[1] for m, n, _ in sizes)
    assert any(m > tile[0] and n > tile[1] for m, n, _ in sizes)
    assert any(k < tile[2] * case.changes["stages"] for *_, k in sizes)


def test_an_even_selection_takes_each_kind_in_turn() -> None:
    kinds = ["wait"] * 20 + ["stage"] * 3 + ["order"]
    chosen = evenly(kinds, 5, seed=1)
    assert Counter(kinds[number] for number in chosen) == {"wait": 2, "stage": 2, "order": 1}
    assert evenly(kinds, 99, seed=1) == list(range(24))
    assert evenly(kinds, 5, seed=2) != chosen


@pytest.mark.parametrize("case", ALL)
def test_every_number_of_an_address_that_is_cut_to_32_bits_is_noticed(case: GpuCase) -> None:
    source = emit(case.kernel(), case.target)
    assert list(narrow_addresses(source.text)) == []
    widths = [mutant for mutant in text_mutants(source) if mutant.family == "width"]
    assert len(widths) >= source.text.count("args.")
    assert [whole(mutant) for mutant in widths if not any(narrow_addresses(mutant.source.text))] == []


def test_some_calls_have_rows_of_results_that_wide_stores_may_not_take() -> None:
    for case in CASES:
        _, judge = judge_of(case.name)
        pitches = {call.arrays[call.output].strides[0] % 16 for call in judge.calls}
        assert {0} < pitches, case.name


def test_a_product_of_32_bits_in_an_address_is_found() -> None:
    head = "const f16* const a = args.a;\nconst int64_t a_stride0 = args.a_stride0;\n"
    good = head + "copy(a + (row + 16) * a_stride0 + first * 32 + p * 32, a_stride0, row * 3 * k);\n"
    assert list(narrow_addresses(good)) == []
    narrow = good.replace("const int64_t a_stride0", "const int32_t a_stride0")
    assert list(narrow_addresses(narrow)) == [
        "line 2: a_stride0: an argument of 64 bits, cut to 32",
        "line 3: a + … (row + 16) * a_stride0: a product of 32 bits",
    ]
    assert list(narrow_addresses(head + "take(a + peer * int64_t{4} + warp * int64_t{2});\n")) == []
    assert list(narrow_addresses(head + "take(a + peer * int64_t{4} + warp * int32_t{2});\n")) == [
        "line 3: a + … warp * int32_t{2}: a product of 32 bits"
    ]


def test_registers_beyond_their_array_are_found() -> None:
    text = "float sums[2][4];\nfor (int32_t i = 0; i <= 2; ++i) {\n  clear(sums[i]);\n}\n"
    assert list(register_overruns(text)) == ["line 3: sums[i]: i is 2, the array has 2"]
    assert list(register_overruns(text.replace("<=", "<"))) == []
