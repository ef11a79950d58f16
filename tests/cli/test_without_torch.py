"""Installed without PyTorch: what needs it says so at once, and what to install."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tracea.bench.peers import require_peers
from tracea.errors import ToolchainMissing

REMEDY = "pip install 'torch>=2.11,<2.15'"

WITHOUT = """
import contextlib, importlib.machinery, io, json, time

real = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name == "torch" else real(name, path, target)
)
import tracea
from tracea.cli import main as cli

said = {}
MODEL = "examples/mlp.py:build"
for words in (["optimize", MODEL], ["explain", MODEL], ["bench", "--suite", "gemm"]):
    errors, started = io.StringIO(), time.monotonic()
    with contextlib.redirect_stderr(errors):
        code = cli.main(words)
    said[words[0]] = [code, time.monotonic() - started, errors.getvalue()]
try:
    tracea.optimize
except Exception as error:
    said["tracea.optimize"] = [1, 0.0, str(error)]
said["a op without it"] = [1, 0.0, type(tracea.ops).__name__]
print(json.dumps(said))
"""


def test_what_needs_pytorch_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True, timeout=120)
    said = json.loads(done.stdout)
    assert said.pop("a op without it")[2] == "module"
    for who, (code, seconds, text) in said.items():
        assert (code, REMEDY in text, "PyTorch: found none" in text, "Traceback" in text) == (
            1,
            True,
            True,
            False,
        ), (
            who,
            text,
        )
        assert seconds < 10.0, who
        assert len(text.strip().splitlines()) == 1, text


def test_a_peer_that_is_not_installed_is_named_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracea.bench.peers.find_spec", lambda name: None if name == "onnx" else name)
    with pytest.raises(ToolchainMissing) as caught:
        require_peers(("torch", "onnxruntime"))
    assert str(caught.value) == (
        "onnxruntime: found none, looked for onnx. Remedy: pip install 'tracea[bench]', or compare with what is "
        "installed: --against torch"
    )
    with pytest.raises(ToolchainMissing, match=r"--against torch,openvino$"):
        require_peers(("torch", "onnxruntime", "openvino"))
    with pytest.raises(ToolchainMissing, match=r"--against torch$"):
        require_peers(("onnxruntime",))
    require_peers(("torch", "openvino"))
