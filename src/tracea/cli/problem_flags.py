"""The flags that say one op to every verb, and which of them belong to which kind of op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

__all__ = ["FLAGS_OF_KIND", "KINDS", "KIND_NAMES", "ROW_FLAGS", "Kind", "ProblemFlags", "flag_of"]

KINDS: Final = (
    "gemm",
    "conv1d",
    "conv2d",
    "attention",
    "attention_gradient",
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "pointwise",
)
KIND_NAMES: Final = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
Kind = Annotated[str, Parameter(help=f"{KIND_NAMES}.")]  # a verb's first argument
ROW_FLAGS: Final = ("--rows", "--columns")
_CONVOLUTION: Final = (
    "--channels",
    "--size",
    "--filters",
    "--kernel",
    "--stride",
    "--padding",
    "--dilation",
    "--groups",
    "--batch",
    "--channels-last",
    "--constant-w",
    "--accuracy",
)
_ATTENTION: Final = ("--heads", "--kv-heads", "--seq", "--kv-seq", "--dim", "--causal", "--window", "--batch")
FLAGS_OF_KIND: Final = {
    "gemm": ("-m", "-n", "-k", "--batch", "--transpose-a", "--transpose-b", "--constant-b", "--out"),
    "conv1d": _CONVOLUTION,
    "conv2d": _CONVOLUTION,
    "attention": _ATTENTION,
    "attention_gradient": _ATTENTION,
}


@Parameter(name="*", group="Problem")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFlags:
    """Sizes, element type and epilogue of the op."""

    m: Annotated[int | None, Parameter(name="-m")] = None
    """gemm: rows of the result"""
    n: Annotated[int | None, Parameter(name="-n")] = None
    """gemm: columns of the result"""
    k: Annotated[int | None, Parameter(name="-k")] = None
    """gemm: terms of each sum"""
    batch: str = ""
    """gemm: leading axes, such as 8 or 4,12; conv1d: signals; conv2d: images; attention: sequences"""
    transpose_a: Annotated[bool, Parameter(negative=())] = False
    """gemm: a is stored (k, m)"""
    transpose_b: Annotated[bool, Parameter(negative=())] = False
    """gemm: b is stored (n, k), as torch.nn.Linear stores its weight"""
    constant_b: Annotated[bool, Parameter(negative=())] = False
    """gemm: b is known beforehand, as a layer's weight is, and may be packed ahead"""
    channels: int | None = None
    """conv1d, conv2d: channels of the signal or image"""
    size: str | None = None
    """conv1d: length of the signal, such as 4000; conv2d: rows and columns of the image, such as 56,56 or 56"""
    filters: int | None = None
    """conv1d, conv2d: channels of the result"""
    kernel: str | None = None
    """conv1d: taps of a filter; conv2d: its rows and columns, such as 3,3 or 3"""
    stride: str | None = None
    """conv1d: elements from window to window; conv2d: rows and columns; by default 1"""
    padding: str | None = None
    """conv1d: zeros on each side; conv2d: rows and columns of them; by default 0"""
    dilation: str | None = None
    """conv1d: elements from tap to tap; conv2d: rows and columns; by default 1"""
    groups: int | None = None
    """conv1d, conv2d: parts of the channels that do not meet; by default 1"""
    channels_last: Annotated[bool, Parameter(negative=())] = False
    """conv1d, conv2d: the channels of a pixel lie next to each other"""
    constant_w: Annotated[bool, Parameter(negative=())] = False
    """conv1d, conv2d: the filters are known beforehand, as a layer's are, and may be packed ahead"""
    accuracy: str | None = None
    """conv1d, conv2d: elementwise, the default, or normwise, for finite images, which allows fewer products"""
    heads: int | None = None
    """attention and its gradient: heads of the queries"""
    kv_heads: int | None = None
    """attention and its gradient: heads of the keys, which the others share; by default as many"""
    seq: int | None = None
    """attention and its gradient: queries"""
    kv_seq: int | None = None
    """attention and its gradient: keys; by default as many as queries"""
    dim: int | None = None
    """attention and its gradient: elements of a head"""
    causal: Annotated[bool, Parameter(negative=())] = False
    """attention and its gradient: no query sees a later key"""
    window: int | None = None
    """attention and its gradient: keys on each side that a query sees, itself among them"""
    rows: int | None = None
    """softmax, log_softmax, layer_norm, rms_norm, pointwise: number of rows"""
    columns: int | None = None
    """softmax, log_softmax, layer_norm, rms_norm, pointwise: elements of a row"""
    dtype: str = "f32"
    """f32, f64, f16 or bf16; of a gemm for a GPU also tf32, s8, e4m3 or e5m2"""
    out: str | None = None
    """gemm: f32, f64, f16, bf16 or i32, the result's; by default f32 of tf32, e4m3 and e5m2, i32 of s8, else as a's"""
    epilogue: str | None = None
    """what follows, in order: bias, weight, residual, gate and activations, such as bias,gelu,residual"""


def flag_of(name: str) -> str:
    """Return how the command line spells an argument's name: ``-m``, ``--transpose-a``."""
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
