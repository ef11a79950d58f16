"""tools/check_gpu_setup.py: one message names all that is missing; nothing is imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_gpu_setup", ROOT / "tools" / "check_gpu_setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_message_names_all_that_is_missing(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    absent = {"msgspec", "archspec", "cyclopts"}
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(tool, "has_driver", lambda: True)
    monkeypatch.setattr(tool, "has_package", lambda name: name not in absent)
    assert tool.main(["--wheels", str(tmp_path / "none"), "--site", str(tmp_path)]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "packages are missing" in line]
    assert all(name in line for name in absent)
    assert "numpy" not in line
    assert "gpu-wheels" in line


def test_the_hint_promises_of_the_carried_wheels_only_what_they_hold(tool: ModuleType, tmp_path: Path) -> None:
    few, many = tool.message(["msgspec"], tmp_path), tool.message(["msgspec", "rich", "cuda.bindings"], tmp_path)
    assert "1 package is missing: msgspec. Remedy: " in few
    assert "make gpu-wheels on another machine, and its folder" in few
    assert "fetches msgspec into" in many
    assert "not the others (rich, cuda.bindings)" in many
    assert "gpu-wheels" not in tool.message(["rich"], tmp_path)
    for text in (few, many):
        assert f"{sys.executable} -m pip install 'msgspec>=0.19'" in text  # the Python that ran, and not another one


def test_the_projects_own_python_is_offered_where_it_is_there_and_is_another(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    offer = "make gpu GPU_PYTHON=.venv/bin/python"
    assert offer not in tool.message(["rich"], tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    assert offer in tool.message(["rich"], tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert offer not in tool.message(["rich"], tmp_path)


def test_a_complete_machine_may_begin(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(tool, "has_driver", lambda: True)
    monkeypatch.setattr(tool, "has_package", lambda name: True)
    assert tool.main(["--wheels", str(tmp_path), "--site", str(tmp_path)]) == 0


def test_a_machine_without_a_gpu_is_told_so_in_one_line(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(tool, "DRIVER", "libcuda-of-no-machine.so.1")
    monkeypatch.setattr(tool, "has_package", lambda name: True)
    flags = ["--wheels", str(tmp_path), "--site", str(tmp_path)]
    assert tool.main(flags) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no NVIDIA driver" in line
    assert "--driver null" in line
    assert tool.main([*flags, "--without-device"]) == 0


def test_wheels_are_downloaded_for_every_python_that_may_run(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def pip(command: list[str], *, check: bool) -> subprocess.CompletedProcess[str]:
        version = command[command.index("--python-version") + 1]
        asked.append(version)
        assert command[command.index("--dest") + 1] == str(tmp_path)
        return subprocess.CompletedProcess(command, int(version == "3.12"))

    monkeypatch.setattr(tool.subprocess, "run", pip)
    assert tool.main(["--download", str(tmp_path)]) == 1, "one of them failed"
    assert asked == ["3.11", "3.12", "3.13"]
    assert capsys.readouterr().err == "make gpu-wheels: the wheels for Python 3.12 could not be downloaded\n"
    assert tool.main(["--download", str(tmp_path), "--python", "3.13"]) == 0
    assert asked[3:] == ["3.13"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.11,<3.14"' in text


def test_every_dependency_of_the_package_is_required(tool: ModuleType) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("dependencies = [")[2].partition("]")[0]
    wanted = {line.strip().strip('",') for line in block.splitlines() if line.strip()}
    assert wanted <= set(tool.REQUIRED.values())
    assert set(tool.CARRIED) <= set(tool.REQUIRED)


@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        ("", "benchmarks/results"),
        ("--every 12", "benchmarks/results"),
        ("--driver null", "build/gpu-dry-run"),
        ("--driver=null --target sm_80", "build/gpu-dry-run"),
    ],
)
def test_a_dry_run_leaves_nothing_that_git_would_see(flags: str, folder: str) -> None:
    done = subprocess.run(
        ["make", "-n", "gpu", f"GPU_FLAGS={flags}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"--output {folder} " in done.stdout
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "/build/" in ignored
    assert "/benchmarks/results/dry-run-*.json" in ignored
