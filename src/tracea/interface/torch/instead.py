"""What to do in place of operators that no op expresses, by the operator of the user's line."""

from __future__ import annotations

from typing import Final

__all__ = ["BY_SCORE", "NO_OP", "OF_WINDOWS", "told"]

NO_OP: Final = "no op expresses it"
_TRANSFORMS: Final = [f"{kind}fft{axes}" for kind in ("", "r", "h") for axes in ("", "2", "n")]
_OUTSIDE: Final = "call it outside of the optimized module, before or after it"
_REWRITE: Final = f"rewrite the line with supported operators (docs/torch.md lists them), or {_OUTSIDE}"
_FOURIER: Final = f"of real numbers it is torch.matmul with a matrix of cosines and with one of sines; else {_OUTSIDE}"
BY_SCORE: Final = (  # for torch's flex_attention
    "use torch.nn.functional.scaled_dot_product_attention, whose attn_mask may hold what score_mod adds and what a "
    "block_mask hides, or call tracea.ops.attention(score=..., block_mask=...) outside of the optimized module"
)
_INSTEAD: Final = {
    "flex_attention": BY_SCORE,
    **dict.fromkeys((f"fft_{inverse}{name}" for inverse in ("", "i") for name in _TRANSFORMS), _FOURIER),
    **dict.fromkeys(("stft", "istft", "_fft_r2c", "_fft_c2c", "_fft_c2r"), _FOURIER),
    **dict.fromkeys(("scatter_add", "scatter_reduce"), f"x.index_add(axis, places, rows) adds rows; else {_OUTSIDE}"),
}
# What torch makes of a write to a view, of which no line of the user's tells.
OF_WINDOWS: Final = (
    "a write to a part of windows, which unfold makes views of one tensor",
    "write to the tensor before it is unfolded, or to windows of their own: x.unfold(...).clone()",
)
_OF_VIEWS: Final = {"unfold_backward": OF_WINDOWS}
# Parts that are refused for what only a line that has them can change, not one whose operator torch takes apart.
_OF_PARTS: Final = frozenset({"aten.index.Tensor"})


def told(written: str, part: str, reason: str, remedy: str = "") -> tuple[str, str]:
    """Return reason and remedy of a refusal as they are told of the operator of the user's line, ``written``.

    ``part`` is the operator that was refused: the same, or one of those that torch makes of it. A remedy that is for
    the part does not help who wrote the whole.
    """
    name = written.removeprefix("aten.").partition(".")[0]
    if name in _OF_VIEWS:
        return _OF_VIEWS[name]
    known = _INSTEAD.get(name)
    if known is None and written != part and part in _OF_PARTS:
        known = _REWRITE
    return (reason, remedy or _REWRITE) if known is None else (NO_OP, known)
