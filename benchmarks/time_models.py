"""Time whole models as `tracea.optimize` compiles them beside PyTorch, Inductor, ONNX Runtime and OpenVINO.

    python benchmarks/time_models.py --compile && python benchmarks/time_models.py

GPT-2 small (128 tokens, and one token with a cache), BERT-base (128 tokens) and a block of Llama beside eager
PyTorch, Inductor, Inductor with frozen weights and ONNX Runtime; ResNet-50 and MobileNetV2 (one image) beside eager
PyTorch in either memory format, ONNX Runtime and OpenVINO, which is told to compute in f32. The first command fills
the caches of Tracea and Inductor and exports the models; the second measures all contenders in turns, ten pairs in
each of three fresh processes, and writes results/<core>/models-1t.json and -2t. Nothing is searched: Tracea's are the
default schedules. With ``--normwise`` only the two of images are timed, with convolutions accurate by norm, and the
record is models-normwise-1t.json; with ``--bf16`` all are, their weights and inputs rounded to bfloat16, beside eager
PyTorch (images channels last), Inductor with frozen weights and OpenVINO, which is told to compute in bf16:
models-bf16-1t.json; with ``--networks`` those of examples/networks.py, which nothing was tuned for, beside eager
PyTorch, Inductor with frozen weights and ONNX Runtime: networks-1t.json. Each process compares every contender with
the module in float64. Needs the extra ``bench`` and, for the export, onnxscript.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from recorded_rows import options, record_rows

from tracea.bench.peers.openvino import in_this_thread
from tracea.profiler.measurement import Measurement, Ratio
from tracea.profiler.record import Row

HERE = Path(__file__).parent
TOKENS = ("gpt2_prefill", "gpt2_decode", "bert", "llama_block")
IMAGES = ("resnet50", "mobilenet_v2")
NETWORKS = ("vit", "convnext", "efficientnet", "unet", "latent_decoder", "densenet", "speech")
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2}  # of the largest element of each result, from float64
EXPORTS = Path(tempfile.gettempdir()) / "tracea-time-models"
Call = Callable[[], Any]
Contender = tuple[Call, Callable[[Any], list[Any]]]  # a run, and the tensors that what it returned stands for


def leaves(result: Any) -> list[Any]:
    """Return the tensors of a module's result."""
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(result)


def inductor(module: Any, inputs: Any, *, frozen: bool) -> Call:
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


def onnxruntime(path: Path, inputs: Any, threads: int) -> Contender:
    """Return a run of a model with its operands bound."""
    import onnxruntime as ort
    import torch

    given = ort.SessionOptions()
    given.intra_op_num_threads, given.inter_op_num_threads = threads, 1
    given.add_session_config_entry("session.force_spinning_stop", "1")  # not on into the turn of the next contender
    session = ort.InferenceSession(path, given, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for operand, value in zip(session.get_inputs(), leaves(inputs), strict=True):
        binding.bind_cpu_input(operand.name, value.numpy())
    for made in session.get_outputs():
        binding.bind_output(made.name, "cpu")
    return lambda: session.run_with_iobinding(binding), lambda _: [
        torch.from_numpy(value) for value in binding.copy_outputs_to_cpu()
    ]


def openvino(path: Path, inputs: Any, threads: int, precision: str) -> Contender:
    """Return a run of a model that computes in ``precision``, compiled for latency, with its operands bound."""
    import openvino as ov
    import torch

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    request = ov.Core().compile_model(path, "CPU", settings).create_infer_request()
    for place, value in enumerate(leaves(inputs)):
        request.set_input_tensor(place, ov.Tensor(value.numpy(), shared_memory=True))

    return in_this_thread(request), lambda _: [torch.from_numpy(made.data.copy()) for made in request.output_tensors]


def contenders(name: str, module: Any, inputs: Any, threads: int, accuracy: str) -> dict[str, Contender]:
    """Return our run and the peers', each with what reads its result."""
    import torch

    import tracea

    path = exported(name, module, inputs)
    ours = tracea.optimize(module, inputs, budget=None, threads=threads, accuracy=accuracy)
    calls: dict[str, Call] = {"tracea": lambda: ours(*inputs), "torch eager": lambda: module(*inputs)}
    bound = {"onnxruntime": onnxruntime(path, inputs, threads)}
    if name not in TOKENS and inputs[0].dim() == 4:
        last = deepcopy(module).to(memory_format=torch.channels_last)
        (image,) = (each.contiguous(memory_format=torch.channels_last) for each in inputs)
        calls["torch eager, channels last"] = lambda: last(image)
    if name in IMAGES:
        bound["openvino f32"] = openvino(path, inputs, threads, "f32")
    if name in TOKENS:
        calls["inductor"] = inductor(module, inputs, frozen=False)
    if name not in IMAGES:
        calls["inductor, frozen"] = inductor(module, inputs, frozen=True)
    return {each: (call, leaves) for each, call in calls.items()} | bound


def contenders_bf16(name: str, module: Any, inputs: Any, threads: int) -> dict[str, Contender]:
    """Return our run and the peers' of a module in bfloat16, each with what reads its result."""
    import torch
    from torch.utils import _pytree as pytree

    import tracea

    bound = {"openvino bf16": openvino(exported(name, module, inputs), inputs, threads, "bf16")}
    low = deepcopy(module).bfloat16()
    given = rounded(inputs)
    ours = tracea.optimize(low, given, budget=None, threads=threads)
    theirs, operands = low, given
    if name in IMAGES:
        theirs = deepcopy(low).to(memory_format=torch.channels_last)
        operands = pytree.tree_map(lambda each: each.contiguous(memory_format=torch.channels_last), given)
    calls: dict[str, Call] = {
        "tracea": lambda: ours(*given),
        "torch eager": lambda: theirs(*operands),
        "inductor, frozen": inductor(theirs, operands, frozen=True),
    }
    return {each: (call, leaves) for each, call in calls.items()} | bound


def rounded(values: Any) -> Any:
    """Return the floating-point tensors among ``values`` in bfloat16, the others as they are."""
    from torch.utils import _pytree as pytree

    return pytree.tree_map(lambda value: value.bfloat16() if value.is_floating_point() else value, values)


def time_models(
    *, threads: int, pairs: int, only: str, accuracy: str = "elementwise", dtype: str = "f32"
) -> list[list[Any]]:
    """Return (model, what each contender took) in this process; without pairs, only compile."""
    names = [name for name in (*TOKENS, *IMAGES) if only in name and (accuracy != "normwise" or name in IMAGES)]
    return [timed(name, threads, pairs, accuracy, dtype) for name in names]


def time_networks(*, threads: int, pairs: int, only: str) -> list[list[Any]]:
    """Return (network, what each contender took) in this process; without pairs, only compile."""
    return [timed(name, threads, pairs) for name in NETWORKS if only in name]


def timed(name: str, threads: int, pairs: int, accuracy: str = "elementwise", dtype: str = "f32") -> list[Any]:
    """Return a model's name and what each contender took, all in turns, after each was compared with float64."""
    import torch

    from tracea.profiler.timer import compare
    from tracea.profiler.watch import PATIENT

    sys.path.insert(0, str(HERE.parent / "examples"))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    example = "cnn" if name in IMAGES else "transformer" if name in TOKENS else "networks"
    module, inputs = getattr(import_module(example), name)()
    with torch.inference_mode():
        if dtype == "bf16":
            runs, expected = contenders_bf16(name, module, inputs, threads), exact(module.bfloat16(), rounded(inputs))
        else:
            runs, expected = contenders(name, module, inputs, threads, accuracy), exact(module, inputs)
        check(name, runs, expected, TOLERANCE[dtype])
        calls = {each: run for each, (run, _) in runs.items()}
        found = compare(calls, pairs=pairs, threads=threads, watch=PATIENT) if pairs else {}
    torch._dynamo.reset()
    return [name, {each: msgspec.to_builtins(measured) for each, measured in found.items()}]


def exact(module: Any, inputs: Any) -> list[Any]:
    """Return the module's results in float64."""
    from torch.utils import _pytree as pytree

    wide = pytree.tree_map(lambda value: value.double() if value.is_floating_point() else value, inputs)
    return leaves(deepcopy(module).double()(*wide))


def check(name: str, runs: dict[str, Contender], expected: Iterable[Any], tolerance: float) -> None:
    """End the process where a contender computes something else."""
    for contender, (run, read) in runs.items():
        for got, wanted in zip(read(run()), expected, strict=True):
            off = float((got - wanted).abs().max() / wanted.abs().max())
            if not off <= tolerance:
                raise SystemExit(f"{name}: {contender} is off by {off:.1e} of the largest element")


def row_of(results: list[list[Any]]) -> Row:
    """Return one row from what each process measured."""
    name = results[0][0]
    heats = [{each: msgspec.convert(found, Measurement) for each, found in times.items()} for _, times in results]
    return Row(
        problem=name,
        measurements=tuple(replace(measured, name=each) for each, measured in heats[-1].items()),
        ratios={
            each: Ratio.merge([(heat[each], heat["tracea"]) for heat in heats]) for each in heats[0] if each != "tracea"
        },
        notes={
            "group": "images" if name in IMAGES else "tokens" if name in TOKENS else "networks",
            "allocation": "fresh; bound by ONNX Runtime, OpenVINO",
        },
    )


def main() -> None:
    """Compile, or measure and record."""
    parser = options(__doc__)
    parser.add_argument("--normwise", action="store_true", help="only images, with convolutions accurate by norm")
    parser.add_argument("--bf16", action="store_true", help="all of them in bfloat16")
    parser.add_argument("--networks", action="store_true", help="those of examples/networks.py instead")
    given = parser.parse_args()
    if given.networks:
        record_rows(given, "time_models:time_networks", row_of, suite="networks")
        return
    more = {"accuracy": "normwise"} if given.normwise else {"dtype": "bf16"} if given.bf16 else {}
    record_rows(given, "time_models:time_models", row_of, suite="models", **more)


if __name__ == "__main__":
    main()
