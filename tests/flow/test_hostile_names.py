"""Names that others choose, of nodes, schedules, files and flags, are data: never a command, never code."""

from __future__ import annotations

import ast
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tracea
from tracea.cli import main as cli
from tracea.core.graph import Graph
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.emitters import kernel_source
from tracea.errors import InvalidInput, InvalidSchedule, TraceaError
from tracea.flow.compile import compile_op
from tracea.flow.kernel import build
from tracea.runtime import compiler
from tracea.semantic.schedule import Schedule
from tracea.targets.target import for_threads

PACKAGE = Path(tracea.__file__).parent
MARK = "hostile_mark"
HOSTILE = (
    f"x\n#include <{MARK}>",
    f'"; system("{MARK}"); //',
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"; touch {MARK};",
    f"*/ {MARK} /*",
    f"\\\n{MARK}",
    f"??/\n{MARK}",
    f"../../{MARK}",
    f"-o{MARK}",
    f"{MARK}\0",
    f"\u2028{MARK}",
    f"@{MARK}",
)


def test_no_command_goes_through_a_shell() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            shell = any(keyword.arg == "shell" for keyword in node.keywords)
            is_kit = path.relative_to(PACKAGE).parts[0] == "testing"  # evaluates numbers of our own emitted text
            evaluated = name in {"eval", "exec"} and not is_kit
            if shell or evaluated or name in {"os.system", "os.popen", "subprocess.getoutput"}:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
    assert found == []


def hostile_words(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    special = "\n\r\0;$`'\"\\<>(){}[]#&|*? \t/@,=%"
    letters = "abcXYZ019_.-+" + special
    made = ("".join(rng.choices(letters, k=rng.randint(1, 24))) for _ in range(count))
    return [word for word in (*HOSTILE, *made) if set(word) & set(special)]


def test_a_word_of_a_schedule_is_a_word_or_refused(seed: int) -> None:
    for word in hostile_words(seed, 20_000):
        with pytest.raises(InvalidSchedule):
            Schedule({"split": word})
        with pytest.raises(InvalidSchedule):
            Schedule({word: 1})
        try:
            parsed = Schedule.parse(word)
        except InvalidSchedule:
            continue
        assert Schedule.parse(parsed.key) == parsed
        assert not set(parsed.key) & set("\n\r\0;$`'\"\\<>(){}#&|*? \t/@")


def test_the_name_of_a_node_is_in_no_text_and_no_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts: list[str] = []
    commands: list[tuple[str, ...]] = []
    unit_text, run_compiler = compiler.unit_text, compiler.run_compiler

    def seen_text(sources: list[kernel_source.KernelSource]) -> str:
        texts.append(unit_text(sources))
        return texts[-1]

    def seen_command(command: tuple[str, ...], seconds: float, place: Path, product: str) -> None:
        commands.append(tuple(command))
        run_compiler(command, seconds, place, product)

    monkeypatch.setattr(compiler, "unit_text", seen_text)
    monkeypatch.setattr(compiler, "run_compiler", seen_command)
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    ran = 0
    for name in HOSTILE:
        graph = Graph()
        try:
            x, w = graph.add_input((4, 8), name=name), graph.add_input((8, 4), name=f"w{name}")
            graph.add_gemm(x, w, name=f"y{name}")
            program = tracea.Context().optimize_graph(graph)
        except TraceaError:
            continue
        np.testing.assert_allclose(program.run(np.ones((4, 8), "f4"), np.ones((8, 4), "f4")), 8.0)
        ran += 1
    assert ran  # some of them are allowed
    compile_op(GemmOp.of(m=4, n=4, k=8), threads=1, library=False)
    assert texts
    assert commands
    assert not [text for text in texts if MARK in text]
    assert not [command for command in commands if MARK in " ".join(command)]
    assert not list(tmp_path.glob(f"**/*{MARK}*"))


@pytest.mark.parametrize("word", HOSTILE)
def test_a_flag_of_the_command_line_is_refused_before_anything_runs(
    word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = subprocess.Popen.__init__

    def watched(self: object, command: object, *arguments: object, **options: object) -> None:
        assert MARK not in str(command), command  # the compiler's identity may be asked for, by our words only
        start(self, command, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    monkeypatch.chdir(tmp_path)
    problem = ["gemm", "-m", "4", "-n", "4", "-k", "8"]
    for words in (
        ["emit", *problem, f"--schedule=mr={word}"],
        ["emit", *problem, f"--target={word}"],
        ["emit", *problem, f"--epilogue={word}"],
        ["emit", word],
        ["tune", *problem, f"--variant={word}"],
        ["cache", "rm", word],
        ["cache", "import", f"./{word}"],
    ):
        assert cli.main(words) in {cli.BAD_USAGE, cli.FAILED}
        out, err = capsys.readouterr()
        assert "\0" not in out + err
        lines = [line.strip() for line in (out + err).splitlines()]
        assert not [line for line in lines if line.startswith((MARK, "#include"))]  # whatever the name holds
    assert list(tmp_path.iterdir()) == []


def test_a_name_in_a_schedule_that_a_kernel_has_not_is_refused_before_emission() -> None:
    for text in ("mr=4,evil=1", "mr=word"):
        with pytest.raises(InvalidInput):
            build(GemmOp.of(m=4, n=4, k=8), "gemm.direct", Schedule.parse(text), for_threads(host(), 1))
