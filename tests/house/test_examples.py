"""What a newcomer runs first: the README's Python and every example, as they stand, in a process of their own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What each example is given, and what it prints when it is right.
EXAMPLES = {
    "fused_ops.py": ([], r"silu\(rms_norm\(y\) \* s\) \* g: +off by \d\.\de-0[5-9] of the largest element"),
    "graph.py": ([], r"off by \d\.\de-0[5-9] of the largest element\nthe loaded program gives the same bits: True"),
    "networks.py": (["vit"], r"vit: compiled in \S+ s, error \d\.\de-0[6-9], \S+ ms a call"),
    "transformer.py": (["small"], r"(\w+: compiled in \S+ s, error \d\.\de-0[6-9], \S+ ms a call\n){4}"),
    "tune_and_emit.py": (["2"], r"// gemm_64x256x128_f32_\w+ \| gemm\.\w+ \|"),
}
BUILDERS = {"cnn.py", "mlp.py"}  # for `tracea optimize`; tests/interface/torch runs it


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES) | BUILDERS


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_is_right(name: str) -> None:
    given, expected = EXAMPLES[name]
    assert re.search(expected, run(f"examples/{name}", *given))


def test_python_of_the_readme_runs_as_it_stands() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    checked = "\ntorch.testing.assert_close(fast(x), model(x).detach(), rtol=1e-4, atol=1e-5)\nprint(tuple(y.shape))"
    assert run("-c", f"{snippet}\nwith torch.inference_mode():{_indented(checked)}").splitlines()[-1] == "(32, 96)"


@pytest.mark.parametrize("page", ["README.md", "docs/torch.md", "docs/interface.md", "docs/flow.md"])
def test_python_on_a_page_parses(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        ast.parse(block)


def test_gradients_joined_as_the_page_on_ops_says_are_those_of_torch() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/interface.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (each for each in blocks if "autograd.Function" in each)
    checked = """
found = image.grad, weight.grad
expected = torch.autograd.grad(torch.nn.functional.conv2d(image, weight, padding=1).sum(), (image, weight))
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
print("the same")
"""
    assert run("-c", block + checked).splitlines()[-1] == "the same"


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
