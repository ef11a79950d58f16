"""Whole models: the builder, the contenders, and what an optimized file tells the first and the second time."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tracea
from tracea.bench import models, session
from tracea.bench.models import CONTENDERS, load_builder, time_models
from tracea.bench.session import OptimizeReport, TableRow, optimize_file
from tracea.errors import InvalidOption, VerdictFailed
from tracea.flow import load_note
from tracea.optimizer.budget import Budget
from tracea.profiler.load import Load
from tracea.profiler.timer import compare

TEXT = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).eval()
    return module, (torch.randn(4, 8),)

not_a_function = 1
"""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny_model_of_a_test.py"
    path.write_text(TEXT, encoding="utf-8")
    return f"{path}:build"


def test_builder_is_the_function_that_is_named(builder: str) -> None:
    module, inputs = load_builder(builder)()
    assert module(*inputs).shape == (4, 8)


@pytest.mark.parametrize("text", ["", "build", ":build", "nonesuch.py:build", "nonesuch.py", "{path}:", "{path}:nope"])
def test_builder_that_is_none_is_refused(text: str, builder: str) -> None:
    with pytest.raises(InvalidOption):
        load_builder(text.format(path=builder.rpartition(":")[0]))


def test_a_module_is_no_builder(tmp_path: Path) -> None:
    path = tmp_path / "module_of_a_test.py"
    path.write_text("import torch\nmodel = torch.nn.Linear(4, 4)\n")
    with pytest.raises(InvalidOption, match=r"got model, a module: Linear.*def build\(\): return model, \(example,\)"):
        load_builder(f"{path}:model")


def test_builder_must_be_callable(builder: str) -> None:
    with pytest.raises(InvalidOption, match="not_a_function"):
        load_builder(builder.replace(":build", ":not_a_function"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(width, *rest, depth=2): return width", "got build(width), expected a function that is called with"),
        (
            "def build():\n    hidden = 3\n    return hidden / 0",
            "got ZeroDivisionError: division by zero at {path}:3 in b",
        ),
        ("import json\ndef build():\n  return json.loads('')", "at {path}:3 in build, expected a file and a function"),
        ("size = nonesuch\ndef build(): pass", "got NameError: name 'nonesuch' is not defined at {path}:1 in <module>"),
        ("def build():\n    return (", "SyntaxError: '(' was never closed ({name}, line 2) at {path}:2"),
    ],
)
def test_builder_that_cannot_be_called_is_told_by_its_rule_or_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad_model_of_a_test.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidOption, match=re.escape(said.format(path=path, name=path.name))):
        load_builder(f"{path}:build")()


def test_contender_that_computes_something_else_is_refused() -> None:
    good = torch.ones(3)
    models._check("same", good + 1e-5, good)
    models._check("same", {"a": (good,)}, {"a": (good,)})
    for wrong in (good * 1.01, good * float("nan")):
        with pytest.raises(VerdictFailed, match="inductor"):
            models._check("inductor", wrong, good)
    nothing = torch.tensor([1.0, -torch.inf, torch.nan, torch.inf])  # where eager has them too
    models._check("same", nothing.clone(), nothing)
    models._check("same", torch.tensor([True, False]), torch.tensor([True, False]))
    models._check("same", torch.ones(0), torch.ones(0))
    models._check("same", good.bfloat16() * 1.01, good.bfloat16())
    for wrong in (nothing.flip(0), torch.tensor([1.0, 5.0, torch.nan, torch.inf])):
        with pytest.raises(VerdictFailed, match="inductor"):
            models._check("inductor", wrong, nothing)


@pytest.fixture(scope="module")
def reports(builder: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[OptimizeReport, OptimizeReport, float]:
    """What the first and the second call tell, without the peers, and the seconds of the second.

    In a cache of their own: another worker's search of the same ops would add to what the first one measured.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRACEA_CACHE_DIR", str(tmp_path_factory.mktemp("reports")))
        first = optimize_file(builder, budget=Budget(trials=1), threads=1, peers=False)
        start = time.perf_counter()
        second = optimize_file(builder, budget=Budget(trials=1), threads=1, peers=False)
        return first, second, time.perf_counter() - start


class Heard:
    """A listener that keeps the order of what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, label: str, progress: Any) -> None:
        """Hear of a trial."""

    def note(self, line: str) -> None:
        self.said.append(line)

    def phase(self, text: str) -> None:
        self.said.append(text)


def test_what_came_of_a_step_is_told_before_the_next_one_begins(builder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    optimize = tracea.optimize
    timed = compare({name: lambda: sum(range(200)) for name in (*CONTENDERS, session.OURS)}, pairs=30)
    monkeypatch.setattr(session, "time_models", lambda *_, **__: [timed])
    monkeypatch.setattr(
        session.tracea,
        "optimize",
        lambda module, inputs, *, threads, **_: optimize(module, inputs, budget=None, threads=threads),
    )
    heard = Heard()
    optimize_file(builder, threads=1, progress=heard, again=True)
    made = next(index for index, line in enumerate(heard.said) if line.startswith("1 thread: 0 kernels verified; "))
    timing = next(index for index, line in enumerate(heard.said) if "time beside eager and Inductor" in line)
    assert made < timing < len(heard.said) - 1
    assert "gemm" in heard.said[made]
    time = r"[\d.]+ (ns|µs|ms|s)"
    assert re.fullmatch(rf"(\S.* {time} \([\d.]+ times ours\); )+\S.* {time}", heard.said[-1])


def test_a_busy_machine_is_a_warning_only_where_something_is_timed(
    builder: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimize, looks = tracea.optimize, []
    timed = compare({name: lambda: sum(range(200)) for name in (*CONTENDERS, session.OURS)}, pairs=30)

    def look() -> Load:
        looks.append(1)
        return Load(busy_cores=1.3, cores=2)

    monkeypatch.setattr(load_note, "measure_load", look)
    monkeypatch.setattr(load_note, "_looked", [])
    monkeypatch.setattr(session, "examine", lambda: "the machine")
    monkeypatch.setattr(session, "time_models", lambda *_, **__: [timed])
    monkeypatch.setattr(
        session.tracea,
        "optimize",
        lambda module, inputs, *, threads, **_: optimize(module, inputs, budget=None, threads=threads),
    )
    path = Path(builder.rpartition(":")[0])
    no_pair = path.with_name("no_pair_of_a_test.py")
    no_pair.write_text("build = int", encoding="utf-8")
    with pytest.raises(InvalidOption, match="example_inputs"):
        optimize_file(f"{no_pair}:build", threads=1)
    assert looks == []
    first = optimize_file(builder, threads=1)
    assert len(first.problems) == 1
    assert "1.3 of the 2 cores" in first.problems[0]
    assert "\nThe plan for 1 thread:\n" in first.graph
    monkeypatch.setattr(load_note, "_looked", [])
    heard = Heard()
    second = optimize_file(builder, threads=1, progress=heard)  # its table is the first's
    assert (second.problems, len(looks)) == ((), 1)
    date = second.table[0].measured
    assert f"1 thread: timed beside eager and Inductor before, {date}" in heard.said
    assert not any("time beside" in line or line.startswith("compile ") for line in heard.said)  # no step is done again


def test_times_of_other_code_are_measured_anew(
    builder: str, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimize, timings = tracea.optimize, []
    timed = compare({name: lambda: sum(range(200)) for name in (*CONTENDERS, session.OURS)}, pairs=30)

    def measured(*_: object, **__: object) -> list[Any]:
        timings.append(1)
        return [timed]

    monkeypatch.setattr(session, "time_models", measured)
    monkeypatch.setattr(
        session.tracea,
        "optimize",
        lambda module, inputs, *, threads, **_: optimize(module, inputs, budget=None, threads=threads),
    )
    optimize_file(builder, threads=1, again=True)
    optimize_file(builder, threads=1)
    assert len(timings) == 1
    monkeypatch.setattr(session, "code_digest", lambda packages: f"{'-'.join(packages)} with another header")
    optimize_file(builder, threads=1)
    assert len(timings) == 2
    optimize_file(builder, threads=1)
    assert len(timings) == 2
    # The same graph from another file, which may run its module differently beside it; and from the same one, edited.
    other = tmp_path / "other_model_of_a_test.py"
    other.write_text(TEXT, encoding="utf-8")
    optimize_file(f"{other}:build", threads=1)
    assert len(timings) == 3
    other.write_text(f"{TEXT}# edited\n", encoding="utf-8")
    optimize_file(f"{other}:build", threads=1)
    assert len(timings) == 4


def test_each_row_says_when_it_was_measured_and_whether_others_disturbed_it() -> None:
    timed = compare({name: lambda: sum(range(200)) for name in (*CONTENDERS, session.OURS)}, pairs=30)

    def rows(threads: int, date: str, **changes: Any) -> list[TableRow]:
        changed = {
            name: replace(each, **{"busy_cores": 0.0, "disturbed": 0, **changes}) for name, each in timed.items()
        }
        dated = {
            name: replace(each, environment=replace(each.environment, date=date)) for name, each in changed.items()
        }
        return session._rows([dated], threads)

    quiet, loaded = rows(1, "2026-05-04"), rows(2, "2026-05-05", busy_cores=0.6)
    assert {(row.measured, row.doubt) for row in quiet} == {("2026-05-04", "")}
    assert {row.measured for row in loaded} == {"2026-05-05"}
    assert all(row.doubt.startswith("others used 0.6 of ") for row in loaded)
    assert {row.doubt for row in rows(1, "", disturbed=14)} == {""}  # a median holds
    assert {row.doubt for row in rows(1, "", disturbed=15)} == {"15 of 30 rounds disturbed"}
    assert {row.doubt for row in rows(1, "", busy_cores=None)} == {""}  # nobody counted


@pytest.mark.slow
def test_file_is_optimized_verified_and_told(reports: tuple[OptimizeReport, OptimizeReport, float]) -> None:
    first, _, _ = reports
    assert first.verdicts
    assert all(verdict.passed for verdict in first.verdicts)
    assert first.table == ()
    assert "gemm" in first.graph
    assert first.machine
    assert '"verdicts"' in first.to_json()


@pytest.mark.slow
def test_without_a_budget_nothing_is_searched_and_every_kernel_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "model_that_nobody_searched.py"
    text = "import torch\ndef build(): return torch.nn.Linear(19, 23).eval(), (torch.ones(7, 19),)\n"
    path.write_text(text, encoding="utf-8")
    heard = Heard()
    report = optimize_file(f"{path}:build", budget=None, threads=1, peers=False, progress=heard)
    assert [verdict.passed for verdict in report.verdicts] == [True]
    assert len(report.judged) == 1
    assert "1 kernels verified" in heard.said[-1]


@pytest.mark.slow
def test_second_call_searches_nothing(reports: tuple[OptimizeReport, OptimizeReport, float]) -> None:
    first, second, seconds = reports
    assert not first.from_cache
    assert second.from_cache
    assert second.graph == first.graph
    assert seconds < 10


@pytest.mark.slow
def test_every_contender_is_timed_in_turns_in_a_fresh_process(builder: str) -> None:
    (timed,) = time_models(builder, threads=1, pairs=4, processes=1)
    assert set(timed) == {"tracea", *CONTENDERS}
    assert all(len(measurement.samples_us) == 4 for measurement in timed.values())


@pytest.mark.slow
def test_table_compares_every_contender_and_the_second_call_reads_its_record(builder: str) -> None:
    first = optimize_file(builder, budget=Budget(trials=1), threads=1, pairs=4, processes=1)
    assert [row.name for row in first.table] == [*CONTENDERS.values(), "Tracea"]
    for row in first.table[:-1]:
        assert row.ratio is not None
        assert (row.ratio.pairs, row.ratio.processes) == (4, 1)
    assert first.table[-1].ratio is None
    start = time.perf_counter()
    second = optimize_file(builder, budget=Budget(trials=1), threads=1, pairs=4, processes=1)
    assert time.perf_counter() - start < 10
    assert second.table == first.table
    assert second.measured == first.measured


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_frozen_code_and_the_other_are_told_apart() -> None:
    module = torch.nn.Linear(8, 8).eval()
    x = torch.randn(4, 8)
    with torch.inference_mode():
        free, frozen = (models._compiled(torch, module, (x,), frozen=frozen) for frozen in (False, True))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    with torch.inference_mode():
        assert free().abs().max() == 0
        assert frozen().abs().max() > 0
