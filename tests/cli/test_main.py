from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import tracea
from tracea.cli import main as cli
from tracea.cli.problem_flags import KIND_NAMES, KINDS
from tracea.errors import CacheCorrupt, InvalidOption, ToolchainMissing, UnsupportedNode, VerdictFailed

VERBS = ("bench", "cache", "doctor", "emit", "explain", "optimize", "tune")

PROBE = """
import json, sys
from tracea.cli.main import main
code = main(["--help"])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracea", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )


def raising(error: BaseException):
    def examine(**_: object) -> None:
        raise error

    return examine


@pytest.fixture
def failing_doctor(monkeypatch: pytest.MonkeyPatch):
    """Make ``tracea doctor`` raise."""

    def install(error: BaseException) -> None:
        monkeypatch.setattr("tracea.doctor.examine", raising(error))

    return install


INTERRUPTED = """
import sys
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "tracea.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from tracea.__main__ import start
sys.exit(start())
"""


def test_an_interrupt_while_the_command_is_loaded_ends_it_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "interrupted before anything was begun\n"


def test_help_names_every_verb_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)
    assert "Example: tracea optimize" in text


@pytest.mark.parametrize("verb", [*VERBS, "cache ls"])
def test_every_verb_has_help_with_an_example_and_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*verb.split(), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: tracea {verb}" in text
    assert "--json" in text or verb == "cache"


@pytest.mark.parametrize("verb", ["emit", "explain", "tune", "verify"])
def test_help_names_every_kind_of_op_that_the_verb_takes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([verb, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert " ".join(KIND_NAMES.split()) in text
    assert all(kind in KIND_NAMES for kind in KINDS)


def test_help_loads_no_numpy_and_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert {"numpy", "torch", "msgspec", "sqlite3", "ml_dtypes"} & set(modules) == set()


def test_help_takes_little_beside_the_parser_that_prints_it() -> None:
    # Of the processor, since another test shares the machine; as a multiple, since processors differ: 2.3 to 2.8 here.
    def cpu_ms(*words: str) -> float:
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return 1e3 * (usage.ru_utime + usage.ru_stime)

    parser = min(cpu_ms("-c", "import cyclopts, rich.console") for _ in range(5))
    assert min(cpu_ms("-m", "tracea", "--help") for _ in range(5)) <= 4 * parser


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == tracea.__version__


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-verb"],
        ["doctor", "--no-such-flag"],
        ["tune"],
        ["tune", "gemm", "-m"],
        ["tune", "gemm", "-m", "many"],
        ["tune", "gemm", "-m", "9" * 5000],
        ["tune", "gemm", "--trials", "1e3"],
        ["optimize"],
        ["cache", "no-such-verb"],
        ["\x1b[31mred\n\x00"],
        ["--\u202e"],
        ["doctor", "'; rm -rf /"],
    ],
)
def test_bad_usage_is_one_line_and_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == cli.BAD_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.removesuffix("\n")
    assert line.isprintable()
    assert line.startswith("bad usage: ")
    assert "--help" in line


def test_bad_usage_under_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", "gemm", "-m", "many", "--json"]) == cli.BAD_USAGE
    assert json.loads(capsys.readouterr().out)["remedy"] == "tracea tune --help"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidOption(field="x", got="\x1b[2J\n", expected="y", remedy="z"), 2),
        (UnsupportedNode(node="aten.sort", location="model.py:3 in forward", remedy="leave it out"), 2),
        (VerdictFailed(gate="float64", kernel="k", got=1.0, limit=0.5), 1),
        (ToolchainMissing(tool="C++ compiler"), 1),
    ],
)
def test_a_typed_error_is_one_line_with_its_remedy(
    error: tracea.TraceaError, code: int, failing_doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_doctor(error)
    assert cli.main(["doctor"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.removesuffix("\n")
    assert line.isprintable()
    assert "Remedy: " + error.remedy in line
    assert cli.main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(error.to_dict()))


def test_an_unexpected_error_is_one_line_and_a_traceback_only_for_debugging(
    failing_doctor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_doctor(ZeroDivisionError("a\nb"))
    monkeypatch.delenv("TRACEA_LOG", raising=False)
    assert cli.main(["doctor"]) == cli.FAILED
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "ZeroDivisionError: a b" in text
    monkeypatch.setenv("TRACEA_LOG", "debug")
    assert cli.main(["doctor"]) == cli.FAILED
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_name_that_is_too_long_for_a_file_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["optimize", f"{'x' * 5000}.py:build"]) == cli.BAD_USAGE
    assert "expected a Python file" in capsys.readouterr().err


@pytest.mark.parametrize("swallowed", [False, True])
def test_an_interrupt_says_that_trials_are_kept(
    failing_doctor, swallowed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    error: BaseException = KeyboardInterrupt()
    if swallowed:  # as NumPy does while it is imported
        error = ImportError("a part failed to import")
        error.__cause__ = KeyboardInterrupt()
    failing_doctor(error)
    assert cli.main(["doctor"]) == 130
    assert "kept" in capsys.readouterr().err


def test_a_warning_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def examine(**_: object) -> str:
        warnings.warn(CacheCorrupt(path="/x/y", detail="bad\nchecksum"), stacklevel=1)
        return "a report"

    monkeypatch.setattr("tracea.doctor.examine", examine)
    assert cli.main(["doctor"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "a report\n"
    assert captured.err.startswith("warning: CacheCorrupt: /x/y: bad checksum. Remedy: ")
    assert captured.err.count("\n") == 1


def test_the_module_and_its_exit_codes_in_a_process() -> None:
    assert command("--version").stdout.strip() == tracea.__version__
    done = command("tune", "no-such-op", "-m", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m tracea tune --help | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("U", "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "ascii:surrogateescape"])
def test_output_in_an_encoding_without_our_signs_is_spelled_out(encoding: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tracea", "explain", "softmax", "--rows", "4", "--columns", "4", "--no-measure"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert (found.returncode, found.stderr) == (0, b"")
    text = found.stdout.decode(encoding.partition(":")[0])
    assert "row softmax_4x4_f32" in text
    assert "\\x" not in text


def test_a_name_that_no_encoding_has_is_escaped() -> None:
    found = command("targets", "show", "\udcff\u6f22", PYTHONIOENCODING="ascii")
    assert found.returncode == cli.BAD_USAGE
    assert "\\udcff" in found.stderr
    assert "\\u6f22" in found.stderr


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"$0" -m tracea {line}', sys.executable], capture_output=True, text=True, check=False
    )


def test_a_closed_standard_output_is_bad_usage() -> None:
    found = shell("targets ls >&-")
    assert found.returncode == cli.BAD_USAGE
    assert found.stderr.startswith("InvalidOption: standard output: got closed")
    assert found.stderr.count("\n") == 1


FULL = "the output could not be written: No space left on device. Remedy: make room, or write elsewhere\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("targets ls", 1, FULL),
        ("targets show h100", 1, FULL),
        ("targets ls --json", 1, FULL),
        ("targets show nothing --json", 2, "InvalidOption: name: got nothing"),
        ("--jsonn --json", 2, "bad usage: "),
    ],
)
def test_a_full_disk_is_said_in_a_line(line: str, code: int, said: str) -> None:
    found = shell(f"{line} >/dev/full")
    assert found.returncode == code
    assert found.stderr.startswith(said)
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(("line", "code"), [("targets ls", 0), ("targets show nothing", 2)])
def test_a_closed_standard_error_is_silent(line: str, code: int) -> None:
    found = shell(f"{line} 2>&-")
    assert found.returncode == code
    assert ("zen4" in found.stdout) == (code == 0)


def test_an_unknown_log_is_refused() -> None:
    found = command("targets", "ls", TRACEA_LOG="zzz")
    assert (found.returncode, found.stdout) == (cli.BAD_USAGE, "")
    assert found.stderr.startswith("InvalidOption: TRACEA_LOG: got zzz, expected debug")
    assert command("targets", "ls", TRACEA_LOG="debug").returncode == 0


def test_a_reader_that_goes_away_does_not_change_the_verdict(tmp_path: Path) -> None:
    verdict = {"subject": "s", "checks": [{"name": "correct", "passed": False, "figure": 1, "limit": 0}], "seed": 1}
    fresh, baseline = tmp_path / "fresh.json", tmp_path / "baseline.json"
    fresh.write_text(json.dumps(verdict))
    baseline.write_text(json.dumps(verdict | {"checks": [verdict["checks"][0] | {"passed": True, "figure": 0}]}))
    line = f"{sys.executable} -m tracea gate fresh.json --baseline baseline.json --junit report.xml"
    script = f"{line} | sleep 0; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert (tmp_path / "report.xml").read_text().count("<failure") == 1
