"""The house's own checks refuse what they are for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [(400, 0, "1 files"), (401, 0, "above 400"), (600, 0, "above 400"), (601, 1, "limit 600")],
)
def test_file_size_is_refused_above_600_lines(
    lines: int, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "src/long.h", "\n" * lines)
    write(tmp_path, "tests/golden/emitted.cpp", "\n" * 5000)
    assert load("check_file_size").main(tmp_path) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/string_utils.py", ""),
        ("src/a.py", "class PoolManager: ..."),
        ("src/a.py", "def f(smart_mode): ..."),
        ("src/a.py", '"""A universal kernel."""'),
        ("tests/a.py", "smart = 1"),
        ("src/a.py", 'def f():\n    """Needs zero-config."""'),
    ],
)
def test_words_that_say_nothing_are_refused(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    assert load("check_words").main(tmp_path) == 1


def test_words_inside_other_words_are_not_refused(tmp_path: Path) -> None:
    write(tmp_path, "src/a.py", "from contextlib import contextmanager\ndef smartness_of(universality): ...")
    assert load("check_words").main(tmp_path) == 0


def test_requirements_of_an_unknown_extra_are_an_error() -> None:
    requirements = load("list_requirements").requirements
    assert set(requirements([])) < set(requirements(["tune"]))
    with pytest.raises(KeyError, match="no-such-extra"):
        requirements(["no-such-extra"])
