from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tracea

ROOT = Path(__file__).parents[2]
PACKAGE = Path(tracea.__file__).parent
MAY_IMPORT_TORCH = {"bench", "distributed", "interface", "testing", "cli"}
PICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}

PROBE = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


def layers() -> list[set[str]]:
    """The layers of the import contract, from the top; siblings share a set."""
    config: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(item for item in config["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    return [{name.strip(" ()") for name in line.split("|")} for line in contract["layers"]]


def existing() -> list[str]:
    names = {name for layer in layers() for name in layer}
    return sorted(name for name in names if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file())


@pytest.mark.parametrize("name", existing())
def test_a_layer_loads_no_layer_above_it_and_no_torch(name: str) -> None:
    order = layers()
    depth = next(index for index, layer in enumerate(order) if name in layer)
    above = {f"tracea.{other}" for layer in order[: depth + 1] for other in layer} - {f"tracea.{name}"}
    done = subprocess.run([sys.executable, "-c", PROBE, f"tracea.{name}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert loaded & above == set()
    if name not in MAY_IMPORT_TORCH:
        assert "torch" not in loaded


def test_nothing_reads_a_pickle() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    modules = {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module)):
                    modules = {module.partition(".")[0]}
                case ast.Call() if ast.unparse(node.func) in {"torch.load", "pandas.read_pickle"}:
                    modules = {"pickle"}
                case ast.keyword(arg="allow_pickle", value=value) if ast.unparse(value) != "False":
                    modules = {"pickle"}
                case _:
                    continue
            found += [f"{path.relative_to(PACKAGE)}:{node.lineno}" for _ in modules & PICKLERS]
    assert found == []
