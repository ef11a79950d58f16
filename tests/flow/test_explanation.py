"""Explanations: every part there, every number with its unit, and the text as a newcomer reads it."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

import tracea
from tracea import targets
from tracea.cli import main as cli
from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp, GemmOp, RowKind, RowOp
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.doctor import Candidate, Decision, Known, Rejection, decide, host
from tracea.doctor.plan import NOT_EXCLUDED
from tracea.doctor.policy import guide
from tracea.doctor.precision import Magnitudes
from tracea.doctor.roof import NoRoof, Roof, stated_roof
from tracea.errors import InvalidOption, InvalidShape, TraceaWarning
from tracea.flow import explanation as explaining
from tracea.flow.compile import decision_for, graph_of
from tracea.flow.explanation import Explanation, explain
from tracea.flow.explanation_text import render_graph
from tracea.flow.graph_explanation import ExplainedKernel, GraphExplanation
from tracea.kernels.registry import CUDA_VARIANTS, find
from tracea.profiler.roofline import Roofline
from tracea.semantic.schedule import Schedule
from tracea.targets.target import for_threads

GEMM = GemmOp.of(m=512, n=768, k=768)
SOFTMAX = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((64, 128), DType.F32),))
NEAR = Magnitudes(least=2.0**-10, most=100.0)

MEASURED = Explanation(
    op=GEMM,
    machine="this one: Some Processor (sapphirerapids), avx512",
    is_here=True,
    threads=1,
    decision=Decision(
        op=GEMM.key,
        variant="gemm.packed",
        schedule=Schedule(kc=768, mc=56, mr=14, nc=512, nv=2),
        reason="the fastest measured: 3154 µs",
        candidates=(
            Candidate(variant="gemm.packed", score=50, latency_us=3154.0),
            Candidate(variant="library.gemm", score=55, latency_us=3375.0),
            Candidate(variant="gemm.direct", score=25),
        ),
        rejections=(
            Rejection(
                variant="gemm.prepacked",
                requirement=NOT_EXCLUDED,
                needed="a variant that the caller allows",
                found="operand 1 is not constant, so it cannot be packed ahead",
                remedy="call it where it may run",
            ),
            Rejection(
                variant="gemm.stream",
                requirement="m <= 4",
                needed="m <= 4",
                found="m = 512",
                remedy="use gemm.packed",
            ),
        ),
    ),
    roof=Roof(
        ceilings=Roofline(peak_gflops=240.0, bandwidth_gbytes=19.0),
        peak_from="measured here: avx512 f32, 1 thread",
        bandwidth_from="measured here: copying memory, 1 thread",
        flops=GEMM.flops,
        nbytes=GEMM.bytes,
        threads=1,
    ),
    guidance=guide(GEMM, targets.load("amx"), find("gemm.packed")),
)


PAIR = {"first": MEASURED, "second": MEASURED}


def on_turing(magnitudes: list[Magnitudes]) -> Explanation:
    """Return a fallback's explanation among three variants, so that a new one changes no snapshot."""
    op, target = GemmOp.of(m=4096, n=4096, k=4096, dtype=DType.BF16), targets.load_gpu("sm_75")
    few = [each for each in CUDA_VARIANTS if each.id in ("gemm.mma_sync", "gemm.simt", "gemm.mma_cp_async")]
    decision = decide(op, target, variants=few, fallback=True, magnitudes=magnitudes)
    return Explanation(
        op=op,
        machine="sm_75 of the catalogue, for example NVIDIA T4",
        is_here=False,
        threads=1,
        decision=replace(decision, schedule=Schedule(bk=32, bm=128, bn=128)),
        roof=stated_roof(explaining._computed(op, decision), target, decision.variant),
        guidance=None,
    )


LIBRARY = replace(
    MEASURED,
    decision=replace(
        MEASURED.decision,
        variant="library.gemm",
        schedule=None,
        reason="nothing was measured, and of the 2 that can run it has the highest score, 55",
        candidates=(Candidate(variant="library.gemm", score=55), Candidate(variant="gemm.packed", score=50)),
    ),
    roof=NoRoof(because="the ceilings of this machine were not measured", remedy="tracea doctor measures them"),
    guidance=None,
)


LIBRARY_MEASURED = (Candidate(variant="library.gemm", score=55, latency_us=3375.0),)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("measured", MEASURED),
        ("library", LIBRARY),
        ("fallback_to_f32", on_turing([])),
        ("fallback_to_f16", on_turing([NEAR, NEAR])),
    ],
)
def test_the_text_and_the_json_are_as_they_were_read(name: str, found: Explanation, golden) -> None:
    golden.check(f"explain/{name}.txt", f"{found}\n")
    golden.check(f"explain/{name}.json", json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("found", [MEASURED, LIBRARY, on_turing([]), on_turing([NEAR, NEAR])])
def test_every_part_is_there_and_every_line_says_something(found: Explanation) -> None:
    lines = str(found).splitlines()
    titles = [line[:17].strip() for line in lines if not line.startswith(" ")]
    assert titles[:3] == ["Operation", "Machine", "Chosen"]
    assert {"Limits", "Measured", "Would change it"} <= set(titles)
    for line in lines:
        assert line == line.rstrip()
        assert not re.search(r"\bNone\b|<[a-z_.]+>|\bnan\b|\binf\b|==", line), line
        assert len(line) > 17 or line == "Would change it", line


def test_a_measured_choice_says_how_far_the_limit_is_and_how_much_longer_the_others_take() -> None:
    text = str(MEASURED)
    assert "3.154 ms, 191.5 GFLOP/s, 1.25 times the limit" in text
    assert "library.gemm: 3.375 ms, 1.07 times as long" in text
    assert "library.gemm: 7.0% faster than it was measured: 3.375 ms against 3.154 ms" in text
    assert "gemm.direct: a measurement below 3.154 ms" in text
    assert MEASURED.to_dict()["roof"]["fraction"] == pytest.approx(GEMM.flops / 240e3 / 3154.0)
    flips = {flip["variant"]: flip["what"] for flip in MEASURED.to_dict()["decision"]["flips"]}
    assert flips["gemm.stream"] == "it would need m <= 4 where there is m = 512; then it would compete"
    assert "operand 1 is not constant" in flips["gemm.prepacked"]


def test_a_shipped_time_is_never_called_measured_here() -> None:
    shipped = "measured on a machine with 2 cores of Some Processor on 2026-01-02, not here"
    known = {
        name: Known(schedule=Schedule(kc=768), latency_us=us, shipped=shipped)
        for name, us in (("gemm.packed", 3154.0), ("gemm.direct", 3375.0))
    }
    found = replace(MEASURED, decision=decide(GEMM, targets.load("avx512"), known=known))
    text = str(found)
    assert f"the fastest of those shipped with Tracea: 3.154 ms, {shipped}" in text
    assert "Shipped          3.154 ms, 191.5 GFLOP/s, 1.25 times the limit; no time of this machine" in text
    assert "gemm.direct: a measurement here that turns the shipped times round" in text
    assert not re.search(r"^Measured|fastest measured|was measured", text, re.MULTILINE)
    assert found.to_dict()["shipped"] == shipped
    assert [each["shipped"] for each in found.to_dict()["decision"]["candidates"][:2]] == [shipped, shipped]
    decided = found.decision.explain()
    assert "gemm.direct: 3.375 ms shipped" in decided
    assert f"would flip it: a measurement here: the times are shipped ones, {shipped}" in decided
    kernels = tuple(ExplainedKernel(op=GEMM, nodes=(name,), explanation=each) for name, each in PAIR.items())
    model = GraphExplanation(name="m", captured=2, pipeline=run_pipeline(tracea.Graph()), kernels=kernels)
    assert "\nMeasured         6.308 ms, the kernels' times added up;" in str(model)
    half = replace(model, kernels=(kernels[0], replace(kernels[1], explanation=found)))
    assert "\nMeasured         6.308 ms, the kernels' times added up, 1 of the 2 shipped with Tracea" in str(half)
    both = replace(model, kernels=tuple(replace(each, explanation=found) for each in kernels))
    assert "\nShipped          6.308 ms, the kernels' times added up, none of them measured here" in str(both)


def test_variants_that_lack_the_same_are_told_in_a_line() -> None:
    text = str(replace(MEASURED, decision=decide(GEMM, targets.load("avx512"))))
    refused = text.split("Not possible")[1].split("Would change it", maxsplit=1)[0].splitlines()[1:]
    reasons = [line.split(": ", 1)[1] for line in refused if line]
    assert "  gemm.stream, gemm.stream_split: needs m <= 4, here: m = 512" in refused
    assert len(set(reasons)) == len(reasons)


def test_a_limit_of_vectors_is_called_one_in_every_line_where_matrix_tiles_run() -> None:
    assert isinstance(MEASURED.roof, Roof)
    noted = replace(MEASURED, roof=replace(MEASURED.roof, note="this peak is that of vectors"))
    text = str(noted)
    assert (
        "at the measured arithmetic rate of vectors, not of the matrix tiles that run, of 1 thread (240 GFLOP/s)"
        in text
    )
    assert "(measured here: avx512 f32, 1 thread; vectors, not matrix tiles)" in text
    assert "1.25 times the limit of vectors, which matrix tiles may beat" in text
    assert "matrix tiles" not in str(MEASURED).split("Also possible")[0]
    pipeline = run_pipeline(tracea.Graph())
    kernels = tuple(ExplainedKernel(op=GEMM, nodes=(name,), explanation=each) for name, each in PAIR.items())
    model = GraphExplanation(name="m", captured=2, pipeline=pipeline, kernels=kernels)
    assert "matrix tiles" not in str(model).splitlines()[2]
    tiled = replace(model, kernels=(kernels[0], replace(kernels[1], explanation=noted)))
    assert "(1 of the 2 use matrix tiles, which may beat their limits: those are of vectors)" in str(tiled)
    assert "the time is 1.25 times that" in str(tiled)


def test_this_machines_explanation_is_what_a_run_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    op = GemmOp.of(m=64, n=96, k=64)
    target = explaining.for_threads(host(), 1)
    schedule = find("gemm.packed").default_schedule(op, target)
    known = {"gemm.packed": Known(schedule=schedule, latency_us=12.5)}
    monkeypatch.setattr("tracea.flow.compile.known_variants", lambda *_: dict(known))
    found = explain(op, library=False)
    assert found.latency_us == 12.5
    assert found.decision.schedule == schedule
    assert isinstance(found.roof, Roof)
    assert f"measured here: {target.isa} f32, 1 thread" in str(found)
    assert "left out by the caller" in str(found)
    assert found.guidance is not None
    assert schedule in [found.guidance.space.schedule(row) for row in found.guidance.rows]


@pytest.mark.parametrize(
    ("target", "dtype", "peak"),
    [
        ("sm_80", DType.F16, "f16 on its matrix units"),
        ("h200", DType.BF16, "bf16 on its matrix units"),
        ("a100", DType.F32, "f32 on its vector units"),
        ("zen4", DType.F32, "32 operations of f32 a cycle and core"),
    ],
)
def test_another_machines_limit_is_what_its_vendor_states(target: str, dtype: DType, peak: str) -> None:
    found = explain(GemmOp.of(m=1024, n=1024, k=1024, dtype=dtype), target=target)
    assert isinstance(found.roof, Roof)
    assert peak in found.roof.peak_from
    assert found.latency_us is None
    assert "only the machine itself can tell" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["roof"]["least_us"] > 0


@pytest.mark.parametrize("accuracy", Accuracy)
def test_a_limit_of_fewer_products_says_how_many(accuracy: Accuracy) -> None:
    """36 products of F(2, 5) for 100; by element, all of them, and no word of it."""
    op = Conv2dOp.of(
        channels=32, size=(28, 28), filters=32, kernel=(5, 5), padding=(2, 2), channels_last=True, accuracy=accuracy
    )
    lines = [line for line in str(explain(op, target="zen4")).splitlines() if "Winograd" in line]
    by_norm = ["  the limit is of 14.5 million operations, by Winograd; rates count all 40.1 million"]
    assert lines == (by_norm if accuracy is Accuracy.NORMWISE else [])


def test_a_generic_target_has_no_limit_and_says_what_would_give_one() -> None:
    found = explain(SOFTMAX, target="avx2")
    assert isinstance(found.roof, NoRoof)
    assert "name a product as the target: " in str(found)
    assert "nothing: there is no other kernel for this" in str(found)


def test_a_node_is_explained_as_its_op_and_a_symbolic_extent_is_refused() -> None:
    graph = tracea.Graph()
    node = graph.add_gemm(m=64, n=64, k=64)
    assert tracea.explain(node, target="avx512").decision == explain(node.op, target="avx512").decision
    with pytest.raises(InvalidShape):
        str(explain(GemmOp.of(m=SymbolicDim("rows"), n=8, k=8), target="avx512"))
    with pytest.raises(InvalidOption, match="zen9"):
        explain(GEMM, target="zen9")


def test_the_order_of_what_would_run_is_said_where_the_policys_is_another() -> None:
    op = GemmOp.of(m=4096, n=4096, k=4096, dtype=DType.F16)
    lines = str(explain(op, target="h100")).splitlines()
    assert any(line.startswith("Schedule") and "order=row" in line for line in lines)
    assert "The schedule above takes its tiles in row order all the same" in lines[-1]
    assert "is wavefront: panels" in lines[-2]
    near = GemmOp.of(m=1024, n=1024, k=1024, dtype=DType.F16)
    assert "all the same" not in str(explain(near, target="h100"))


def test_the_verb_prints_text_json_and_takes_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "gemm", "-m", "256", "-n", "256", "-k", "256", "--dtype", "bf16", "--target", "t4"]
    assert cli.main(words) == 0
    assert "f16 is not used: overflow" in capsys.readouterr().out
    assert cli.main([*words, "--range", "0.001,100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["precision"]["used"] == "f16"
    for wrong in ("1", "2,1", "a,b"):
        assert cli.main([*words, "--range", wrong]) == cli.BAD_USAGE
    assert cli.main(["explain", "gemm", "-m", "8", "-n", "8", "-k", "8", "--no-measure", "--no-library"]) == 0
    text = capsys.readouterr().out
    assert "the ceilings of this machine were not measured" in text


def test_an_op_without_a_kernel_there_is_refused_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "softmax", "--rows", "8", "--columns", "8", "--target", "a100"]) == cli.BAD_USAGE
    assert "Remedy" in capsys.readouterr().err


def test_a_limit_that_a_measured_time_beats_is_doubtful_and_no_kernel_is_held_to_it() -> None:
    assert isinstance(MEASURED.roof, Roof)
    text = str(MEASURED)
    assert "at the measured arithmetic rate of 1 thread (240 GFLOP/s) the arithmetic would take 2.517 ms" in text
    assert "no kernel can" not in text
    assert "doubtful" not in text
    # The peak of 100 GFLOP/s would take 6 ms, where the choice took 3.2: a load spoiled the peak.
    slow = replace(MEASURED.roof, ceilings=Roofline(peak_gflops=100.0, bandwidth_gbytes=19.0))
    beaten = str(replace(MEASURED, roof=slow))
    assert "doubtful: gemm.packed was measured at 3.154 ms, below that: a rate is too low (tracea doctor" in beaten
    slow = replace(MEASURED.roof, ceilings=Roofline(peak_gflops=240.0, bandwidth_gbytes=1.0), holder="L3 cache")
    beaten = str(replace(MEASURED, roof=slow))
    assert "at the measured read rate of 1 thread (1 GB/s) moving the bytes would take 5.505 ms" in beaten
    assert "with operands in the L3 cache" in beaten
    assert "doubtful: gemm.packed was measured at 3.154 ms" in beaten
    # A library may use matrix tiles, to which the peak of vectors is no limit.
    assert (
        replace(MEASURED.roof, ceilings=Roofline(peak_gflops=100.0, bandwidth_gbytes=19.0)).beaten_by(LIBRARY_MEASURED)
        is None
    )
    loaded = replace(MEASURED.roof, doubt="they were measured at a load of 3.0 on 2 cores")
    assert "doubtful: they were measured at a load of 3.0 on 2 cores: rates may be" in str(
        replace(MEASURED, roof=loaded)
    )


def test_a_stated_variant_is_explained_in_place_of_what_would_run() -> None:
    would = explain(GEMM, target="avx512", library=False)
    found = explain(GEMM, target="avx512", library=False, variant="gemm.direct")
    assert would.decision.variant != found.decision.variant == "gemm.direct"
    assert found.decision.schedule == find("gemm.direct").default_schedule(GEMM, for_threads(targets.load("avx512"), 1))
    text = str(found)
    assert "gemm.direct, a kernel of Tracea: stated by the caller" in text
    assert "Would change it  leaving the variant out: it was stated" in text
    assert found.guidance is not None
    assert found.guidance.variant == "gemm.direct"


def test_a_stated_variant_shows_what_was_measured_of_it_here(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = find("gemm.packed").default_schedule(GEMM, for_threads(host(), 1))
    for schedule, latency in ((fitting, 3000.0), (Schedule(none=1), None)):
        known = {
            "gemm.packed": Known(schedule=schedule, latency_us=3000.0),
            "library.gemm": Known(schedule=None, latency_us=5.0),
        }
        monkeypatch.setattr(explaining, "known_variants", lambda *_, known=known: known)
        with nullcontext() if latency else pytest.warns(TraceaWarning, match="passed over"):
            found = explain(GEMM, library=False, measure=False, variant="gemm.packed")
        assert found.latency_us == latency
        assert found.decision.schedule == fitting


def test_a_stated_variant_that_does_not_fit_is_refused_as_the_op_was_asked_for() -> None:
    half = GemmOp.of(m=64, n=64, k=64, dtype=DType.F16)
    with pytest.raises(InvalidOption, match=r"gemm\.wgmma does not fit") as raised:
        explain(half, target="sm_80", variant="gemm.wgmma")
    assert "found f32" not in str(raised.value)
    with pytest.raises(InvalidOption, match=r"use gemm\.direct"):
        explain(GEMM, target="avx512", variant="gemm.dirct")
    with pytest.raises(InvalidOption, match="explain one of its nodes"):
        explain(graph_of(GEMM), variant="gemm.packed")


def test_a_stated_decision_of_a_run_says_what_would_flip_it() -> None:
    assert decision_for(GEMM, host(), threads=1, variant="gemm.packed").flip == "leaving the variant out: it was stated"


def test_a_model_counts_fusions_of_a_kind_and_names_each_on_request() -> None:
    graph = Graph()
    last = graph.add_input((64, 64))
    for layer in range(3):
        last = graph.add_pointwise("gelu", graph.add_gemm(last, last, name=f"up_{layer}"), name=f"act_{layer}")
    found = explain(graph, target="avx2", library=False)
    (line,) = (line for line in str(found).splitlines() if line.startswith("Fused"))
    assert line.split(maxsplit=1)[1].endswith("gemm of up + act: 3 times, first act_0")
    whole = render_graph(found, verbose=True)
    assert all(f"act_{layer}: gemm of up_{layer} + act_{layer}" in whole for layer in range(3))
    assert len(found.to_dict()["fusions"]) == 3


def test_verbose_is_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "softmax", "--rows", "4", "--columns", "4", "--target", "avx2", "--verbose"]) == 2
    assert "--verbose: got softmax, expected a model" in capsys.readouterr().err
