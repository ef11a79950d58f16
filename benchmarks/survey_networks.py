"""Capture networks that others wrote: the smallest of each family of timm, and architectures of transformers.

    pip install timm transformers torchvision
    python benchmarks/survey_networks.py                  # captures each, and writes results/captured.json
    python benchmarks/survey_networks.py --run vit swin   # compiles those whose name contains a word, beside eager

Weights are random. timm's are taken at their own image size, transformers' in a small configuration of the same
layers. A record says of each network whether it was captured, into how many nodes, and else the first line that was
refused; with ``--run``, which is printed and not recorded, how far from float64 the program and eager PyTorch are, and
the time of either by one thread.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "captured.json"
MOST_PARAMETERS = 130_000_000
PAIRS = 5
LARGE = re.compile("giant|huge|large|gigantic|_[ghl]_|so400|xxl")
SMALL = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff"), 128),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "moe_intermediate_size", "image_size"), 64),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "eos_token_id"), 2),
    **{"rotary_dim": 8, "state_size": 8, "vocab_size": 120, "pad_token_id": 0, "bos_token_id": 1},
    "decoder_start_token_id": 0,
}
ENCODERS = """
    Bert Roberta XLMRoberta Electra Camembert MPNet DistilBert Albert DebertaV2 Deberta ModernBert SqueezeBert
    MobileBert Nystromformer RoFormer MegatronBert Ernie ConvBert IBert LayoutLM BigBird FNet Esm
"""
DECODERS = """
    GPTJ GPTNeoX OPT Bloom Llama Mistral Mixtral Qwen2 Qwen3 Qwen3Moe Qwen2Moe Phi Phi3 Gemma Gemma2 Falcon
    StableLm Olmo Olmo2 Olmoe Cohere Starcoder2 Mamba Granite CodeGen Persimmon SmolLM3 Helium Jamba Rwkv Mpt
    Glm Nemotron BioGpt GptOss Lfm2
"""
TRANSLATORS = """
    T5 MT5 Bart MBart Pegasus Marian Blenderbot
"""
IMAGES = """
    ViT DeiT Beit Swinv2 ConvNext ConvNextV2 MobileViT MobileViTV2 MobileNetV1 MobileNetV2 ResNet RegNet
    Segformer PoolFormer Dinov2 PvtV2 FocalNet Cvt Data2VecVision EfficientNet GLPN DPT
"""
WHOLE = {"ConvNext", "ConvNextV2", "EfficientNet"}  # whose configuration's numbers follow from each other


def of_timm(words: list[str]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, module and inputs of the smallest network of each family, or of those that are named."""
    import timm
    import torch

    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in timm.list_models():
        family = timm.models._registry._model_to_module[name], re.sub(r"\d.*$", "", name.partition("_")[0])
        families[family].append(name)
    for names in families.values():
        if words and not any(word in name for word in words for name in names):
            continue
        sizes: list[tuple[int, str]] = []
        for name in [each for each in names if not LARGE.search(each)] or names:
            with torch.device("meta"):
                sizes.append((sum(each.numel() for each in timm.create_model(name).parameters()), name))
        count, name = min(sizes)
        if count <= MOST_PARAMETERS:
            module = timm.create_model(name).eval()
            yield f"timm/{name}", module, (torch.randn(1, *module.default_cfg.get("input_size", (3, 224, 224))),)


def of_transformers(words: list[str]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, module and inputs of each architecture, in a small configuration."""
    import torch

    ids, mask = torch.randint(3, 100, (2, 16)), torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    text = {"input_ids": ids, "attention_mask": mask}
    kinds = (
        (ENCODERS, "Model", text, {}),
        ("GPT2", "LMHeadModel", text, {"use_cache": False}),
        (DECODERS, "ForCausalLM", text, {"use_cache": False}),
        (TRANSLATORS, "Model", text | {"decoder_input_ids": ids[:, :8]}, {"use_cache": False}),
        (IMAGES, "Model", {"pixel_values": torch.randn(1, 3, 64, 64)}, {}),
    )
    for names, ending, tensors, others in kinds:
        for name in names.split():
            if not words or any(word.lower() in name.lower() for word in words):
                yield f"transformers/{name}", _small(name, ending, tensors, others), tuple(tensors.values())


def _small(name: str, ending: str, tensors: dict[str, Any], others: dict[str, Any]) -> Any:
    import torch
    import transformers

    kind = getattr(transformers, f"{name}Config")
    whole, chosen = kind(), dict[str, Any]()
    for key, value in SMALL.items():
        given = getattr(whole, key, None)
        if (hasattr(whole, key) or key in kind.attribute_map) and not isinstance(given, (list, tuple)):
            chosen[key] = value
    is_listed = any(isinstance(getattr(whole, key, 0), (list, tuple)) for key in ("num_heads", "num_attention_heads"))
    if name in WHOLE or is_listed:
        chosen = {}
    if name == "Falcon":  # which has a head_dim that follows from others
        del chosen["head_dim"]
    module = getattr(transformers, f"{name}{ending}")(kind(**chosen)).eval()

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return self.module(**dict(zip(tensors, inputs, strict=True)), **others, return_dict=True)[0]

    return First()


def captured(module: Any, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return what a record says of a network."""
    from tracea.errors import TraceaError
    from tracea.interface.torch.capture import capture

    begin = time.perf_counter()
    try:
        nodes = len(capture(module, inputs).graph.nodes)
    except TraceaError as error:
        return {"captured": False, "refused": re.sub(r" at /\S*/site-packages/| at /\S*/", " at ", str(error))[:300]}
    return {"captured": True, "nodes": nodes, "seconds": round(time.perf_counter() - begin, 1)}


def compared(module: Any, inputs: tuple[Any, ...]) -> str:
    """Return how far from float64 the program and eager are, and how the times of both compare."""
    import tracea

    fast = tracea.optimize(module, inputs, budget=None, threads=1, listener=lambda *_: None)
    found, eager = fast(*inputs).double(), module(*inputs).double()
    wide = [each.double() if each.is_floating_point() else each for each in inputs]
    right = module.double()(*wide)
    module.float()
    errors = [float((each - right).abs().max() / right.abs().max()) for each in (found, eager)]
    pairs = [[_seconds(call, inputs) for call in (fast, module)] for _ in range(PAIRS)]
    times = [statistics.median(each) for each in zip(*pairs, strict=True)]
    said = f"{'right' if errors[0] < 1e-4 else 'WRONG'}: {errors[0]:.1e} (eager {errors[1]:.1e})"
    return f"{said}, {times[0] * 1e3:.2f} ms, eager {times[1] / times[0]:.2f} of it"


def _seconds(call: Any, inputs: tuple[Any, ...]) -> float:
    begin = time.perf_counter()
    call(*inputs)
    return time.perf_counter() - begin


def main() -> None:
    """Survey what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only networks whose name contains one of them; nothing is recorded")
    parser.add_argument("--run", action="store_true", help="compile and run what is captured")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    record: dict[str, Any] = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "networks": {}}
    for library, networks in (("timm", of_timm), ("transformers", of_transformers)):
        record[library] = __import__(library).__version__
        with torch.inference_mode():
            for name, module, inputs in networks(given.words):
                record["networks"][name] = found = captured(module, inputs)
                result = compared(module, inputs) if given.run and found["captured"] else found
                print(name, result, flush=True)
    count = sum(each["captured"] for each in record["networks"].values())
    print(f"{count} of {len(record['networks'])} captured")
    if not given.words and not given.run:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
