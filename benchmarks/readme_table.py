"""Write the README's table of measured results from the records.

    python benchmarks/readme_table.py

A row is a group of problems, a column a core that has a folder in ``results``. A cell is the geometric mean of the
ratios of one thread and of two, each to the fastest peer of its problem, with the least of them in brackets. A question
mark says that at least half of the problems are in doubt by their record, as `tracea.bench.doubt` judges for every
table: other programs took the cores meanwhile, or an interval decides nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tracea.bench.doubt import why_in_doubt, why_row_in_doubt
from tracea.profiler.measurement import Measurement
from tracea.profiler.record import read

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- results: python benchmarks/readme_table.py -->\n", "<!-- /results -->"
CORES = {
    "sapphirerapids": "Xeon, AVX-512 and AMX",
    "sapphirerapids-without-amx_bf16": "Xeon, AVX-512 alone",
    "zen5": "Zen 5, AVX-512",
    "zen4": "Zen 4, AVX-512",
    "zen3": "Zen 3, AVX2",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One row: the problems of ``groups`` in the records ``record``, or those of them whose name holds ``only``."""

    what: str
    against: str
    record: str
    groups: tuple[str, ...]
    only: str = ""


_FUSED = "torch, Inductor, ONNX Runtime"
_ORT, _MODEL = "torch, ONNX Runtime", "eager, Inductor (default, frozen), ONNX Runtime"
_MODEL_BF16 = "eager, Inductor (frozen), OpenVINO (bf16)"
_NETWORKS = "eager, Inductor (frozen), ONNX Runtime"
_CONV, _TWICE = "torch, Inductor, ONNX Runtime, OpenVINO", "torch.mm twice"
LINES = {
    "tracea bench --suite gemm": (
        Line("GEMM, 18 shapes, 32³ to 2048³", _ORT, "gemm", ("squares", "transformer", "skinny", "odd")),
        Line(
            "prepacked weights, 8 to 64 rows of 4096²", "MKL and ONNX Runtime, each prepacked", "gemm", ("prepacked",)
        ),
        Line("512×3072×768 with bias, GELU, residual", "torch", "gemm", ("epilogue",)),
        Line("`ops.gemm` in Python, 32³ and 128³", "torch.mm", "gemm", ("face",)),
    ),
    "tracea bench --suite rows --against torch,inductor,onnxruntime": (
        Line("softmax, layer norm, RMS norm, 4096² and 512×768", _FUSED, "rows", ("rows",)),
        Line("elementwise chains of three and four ops", _FUSED, "rows", ("chains",)),
    ),
    "tracea bench --suite attention --against torch,inductor,onnxruntime": (
        Line("attention, 512 to 2048 tokens", _FUSED, "attention", ("dense",)),
        Line("the same, causal", _FUSED, "attention", ("causal",)),
        Line(
            "windows of 128 and 256, 4096 tokens",
            "torch, Inductor (flex_attention)",
            "attention",
            ("window",),
            "window",
        ),
        Line("decoding 1 and 8 tokens over 32 768 keys", _FUSED, "attention", ("decode",)),
    ),
    "tracea bench --suite sparse --against torch": (
        Line("block-sparse 2048³, density 0.25", "torch.mm, dense", "sparse", ("blocks of 32", "blocks of 64"), "0.25"),
        Line("two thin factors, ranks 8 to 256", _TWICE, "sparse", ("low rank",)),
        Line("mixtures of 8 and of 64 experts", "torch.mm for each", "sparse", ("experts",)),
    ),
    "tracea bench --suite conv --against torch,inductor,onnxruntime,openvino": (
        Line("convolutions 3×3 of ResNet-50", _CONV, "conv", ("3x3",)),
        Line("1×1 of ResNet-50 and MobileNetV2", _CONV, "conv", ("1x1",)),
        Line("depthwise", _CONV, "conv", ("depthwise",)),
        Line("3 channels, and odd numbers of them", _CONV, "conv", ("3 channels", "odd")),
    ),
    "tracea bench --suite conv-normwise --against torch,inductor,onnxruntime,openvino": (
        Line("3×3 of ResNet-50, accurate by norm", _CONV, "conv-normwise", ("3x3",)),
        Line("with 8 images, odd channels, groups", _CONV, "conv-normwise", ("batch 8", "odd", "grouped")),
    ),
    "python benchmarks/time_conv_gradients.py": (
        Line(
            "gradients of convolutions for images", "torch", "conv-grad-input", ("grad-input rows", "grad-input last")
        ),
        Line(
            "gradients of convolutions for filters",
            "torch",
            "conv-grad-weight",
            ("grad-weight rows", "grad-weight last"),
        ),
    ),
    "python benchmarks/time_row_gradients.py": (
        Line("gradients of norms, softmax, log-softmax", "torch", "rows-grad", ("rows-grad",)),
    ),
    "python benchmarks/time_gemm_types.py": (
        Line("products and linear layers with GELU of bf16 and f16", "torch", "gemm-types", ("gemm-types",)),
    ),
    "python benchmarks/time_attention_types.py": (
        Line("attention of bf16 and f16, and gradients", "torch", "attention-types", ("attention-types",)),
    ),
    "python benchmarks/time_models.py": (
        Line("GPT-2 small, 128 tokens", _MODEL, "models", ("tokens",), "gpt2_prefill"),
        Line("GPT-2 small, one token with a cache", _MODEL, "models", ("tokens",), "gpt2_decode"),
        Line("BERT-base, 128 tokens", _MODEL, "models", ("tokens",), "bert"),
        Line("block of Llama, 128 tokens", _MODEL, "models", ("tokens",), "llama"),
        Line("ResNet-50, one image", "eager, ONNX Runtime, OpenVINO", "models", ("images",), "resnet50"),
        Line("MobileNetV2, one image", "eager, ONNX Runtime, OpenVINO", "models", ("images",), "mobilenet_v2"),
    ),
    "python benchmarks/time_models.py --bf16": (
        Line("GPT-2, a token of it, BERT, Llama, in bf16", _MODEL_BF16, "models-bf16", ("tokens",)),
        Line("ResNet-50 and MobileNetV2 in bf16", _MODEL_BF16, "models-bf16", ("images",)),
    ),
    "python benchmarks/time_models.py --networks": (
        Line("seven networks that nothing was tuned for", _NETWORKS, "networks", ("networks",)),
    ),
    "python benchmarks/time_models.py --normwise": (
        Line(
            "ResNet-50, accurate by norm", "eager, ONNX Runtime, OpenVINO", "models-normwise", ("images",), "resnet50"
        ),
    ),
    "make demo": (Line("MLP block, searched", "eager, Inductor (default, frozen)", "mlp", ()),),
}


def ratios(record: Path, line: Line) -> list[tuple[float, bool]]:
    """Return the ratio of each problem of the line to its fastest peer, and whether it is in doubt."""
    if not line.groups:  # of a model that was searched
        searched = msgspec.json.decode(record.read_bytes())
        processes = msgspec.convert(searched["processes"], list[dict[str, Measurement]])
        sides = [measured for process in processes for measured in process.values()]
        return [(min(_of_model(processes)), bool(why_in_doubt(sides)))]
    return [
        (min(ratio.median for ratio in row.ratios.values()), bool(why_row_in_doubt(row)))
        for row in read(record).rows
        if row.notes.get("group") in line.groups and line.only in row.problem
    ]


def _of_model(processes: list[dict[str, Measurement]]) -> Iterator[float]:
    """Yield the median quotient of the paired samples of each peer and of ours."""
    for peer in processes[0].keys() - {"tracea"}:
        pairs = [zip(each[peer].samples_us, each["tracea"].samples_us, strict=True) for each in processes]
        yield statistics.median(theirs / ours for process in pairs for theirs, ours in process)


def cell(core: str, line: Line) -> str:
    """Return what one core's records say of a line, of one thread and of two."""
    said: list[str] = []
    for threads in (1, 2):
        record = RESULTS / core / f"{line.record}-{threads}t.json"
        found = ratios(record, line) if record.is_file() else []
        if not found:
            said.append("–")
            continue
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in found))
        doubt = "?" if 2 * sum(doubtful for _, doubtful in found) >= len(found) else ""
        least = f" ({min(ratio for ratio, _ in found):.2f})" if len(found) > 1 else ""
        said.append(f"{mean:.2f}{doubt}{least}")
    return "" if said == ["–", "–"] else " · ".join(said)


def table() -> str:
    """Return the table in Markdown."""
    cores = {core: name for core, name in CORES.items() if (RESULTS / core).is_dir()}
    heads = [f"[{name}](benchmarks/results/{core})" for core, name in cores.items()]
    rows = [["what", "against the fastest of", *heads], ["---"] * (2 + len(heads))]
    for command, lines in LINES.items():
        rows.append([f"`{command}`", *[""] * (1 + len(heads))])
        rows += [[line.what, line.against, *(cell(core, line) for core in cores)] for line in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(text: str) -> str:
    """Return the README's text with the table as the records have it."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{README}: {BEGIN.strip()} and {END} are not there in this order")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
