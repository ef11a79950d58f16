"""Time GPT-2 small, BERT-base and a block of Llama beside eager PyTorch, Inductor, Inductor frozen and ONNX Runtime.

    python benchmarks/time_models.py --warm && python benchmarks/time_models.py

The first command fills the caches of Tracea and Inductor and exports the models; the second measures every contender
in turns, a fresh process for each model and number of threads, and writes results/models.json. Each process checks that
all contenders compute the same. Needs the extra ``bench`` and, for the export, onnxscript.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tracea import __version__

HERE = Path(__file__).parent
RESULT = HERE / "results" / "models.json"
MODELS = ("gpt2_prefill", "gpt2_decode", "bert", "llama_block")
THREADS = (1, 2)
TOLERANCE = 1e-4  # of the largest element of each result
EXPORTS = Path(tempfile.gettempdir()) / "tracea-time-models"


def inductor(module: Any, inputs: Any, *, frozen: bool) -> Callable[[], Any]:
    """Return a call of the module as Inductor compiles it, its weights frozen or not."""
    import torch

    settings: Any = import_module("torch._inductor.config")
    with settings.patch(freezing=frozen):
        compiled = torch.compile(module, options={"freezing": frozen})
        compiled(*inputs)
    return lambda: compiled(*inputs)


def exported(name: str, module: Any, inputs: Any) -> Path:
    """Return the model's ONNX file, exported once."""
    import torch

    path = EXPORTS / f"{name}.onnx"
    if not path.is_file():
        EXPORTS.mkdir(exist_ok=True)
        torch.onnx.export(module, inputs, path, dynamo=True, verbose=False)
    return path


def onnxruntime(path: Path, inputs: Any, threads: int) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    """Return a run of a model with its operands bound, and what the run gave."""
    import onnxruntime as ort
    import torch
    from torch.utils import _pytree as pytree

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")  # not on into the turn of the next contender
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for given, value in zip(session.get_inputs(), pytree.tree_leaves(inputs), strict=True):
        binding.bind_cpu_input(given.name, value.numpy())
    for made in session.get_outputs():
        binding.bind_output(made.name, "cpu")
    return lambda: session.run_with_iobinding(binding), lambda: [
        torch.from_numpy(value) for value in binding.copy_outputs_to_cpu()
    ]


def measure(name: str, threads: int, pairs: int) -> dict[str, Any]:
    """Return the medians of all contenders in ms and their times over ours; without pairs, warm the caches alone."""
    import torch
    from torch.utils import _pytree as pytree

    import tracea
    from tracea.profiler.measurement import Ratio
    from tracea.profiler.timer import compare

    sys.path.insert(0, str(HERE.parent / "examples"))
    torch.set_num_threads(threads)
    module, inputs = getattr(import_module("transformer"), name)()
    path = exported(name, module, inputs)
    with torch.inference_mode():
        ours = tracea.optimize(module, inputs, budget=None, threads=threads)
        run, given = onnxruntime(path, inputs, threads)
        calls: dict[str, Callable[[], Any]] = {
            "tracea": lambda: ours(*inputs),
            "eager": lambda: module(*inputs),
            "inductor": inductor(module, inputs, frozen=False),
            "frozen": inductor(module, inputs, frozen=True),
            "onnxruntime": run,
        }
        expected = pytree.tree_leaves(module(*inputs))
        for contender, call in calls.items():
            result = call()
            found = given() if contender == "onnxruntime" else pytree.tree_leaves(result)
            for got, wanted in zip(found, expected, strict=True):
                off = float((got - wanted).abs().max() / wanted.abs().max())
                if not off <= TOLERANCE:
                    raise SystemExit(f"{name}: {contender} is off by {off:.1e} of eager's largest element")
        if not pairs:
            return {}
        timed = compare(calls, pairs=pairs, threads=threads)
    ratios = {each: Ratio.merge([(timed[each], timed["tracea"])]).median for each in calls if each != "tracea"}
    return {
        "model": name,
        "threads": threads,
        "ms": {each: round(timed[each].median_us / 1e3, 3) for each in calls},
        "ratio": {each: round(ratio, 3) for each, ratio in ratios.items()},
    }


def main() -> None:
    """Measure each model in a process of its own, print a line for each, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm", action="store_true", help="fill the caches and export the models, measure nothing")
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--threads", nargs="*", type=int, default=THREADS)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "THREADS", "PAIRS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), int(given.one[2]))))
        return
    kept = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.is_file() else []
    rows = {(row["model"], row["threads"]): row for row in kept}
    for name in given.models:
        for threads in given.threads:
            words = [sys.executable, __file__, "--one", name, str(threads), "0" if given.warm else str(given.pairs)]
            surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
            done = subprocess.run(words, env=surroundings, stdout=subprocess.PIPE, text=True, check=True)
            row = json.loads(done.stdout.splitlines()[-1])
            if row:
                rows[name, threads] = row | {"date": time.strftime("%Y-%m-%d")}
                ratios = ", ".join(f"{each} {ratio:.2f}" for each, ratio in row["ratio"].items())
                print(f"{name}, {threads} threads: {row['ms']['tracea']:.2f} ms; times ours: {ratios}", flush=True)
    if not given.warm:
        versions = {each: version(each) for each in ("torch", "onnxruntime")} | {"tracea": __version__}
        record = {"schema_version": 1, "versions": versions, "rows": [rows[key] for key in sorted(rows)]}
        RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
