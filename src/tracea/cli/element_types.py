"""Element types as a command line says them: storage, the arithmetic of a product, and the type of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.core.dtype import DType
    from tracea.core.ops.gemm import MatrixMath

__all__ = ["DTYPES", "GPU_ELEMENTS", "parse_dtype", "parse_elements", "parse_result", "require_kernels"]

DTYPES: Final = ("f32", "f64", "f16", "bf16")
# What tensor cores multiply beside these: how it is stored, and what its product is stored as unless --out says.
GPU_ELEMENTS: Final = {"tf32": ("f32", "f32"), "s8": ("i8", "i32"), "e4m3": ("e4m3", "f32"), "e5m2": ("e5m2", "f32")}
_RESULTS: Final = (*DTYPES, "i32")
# As others call them.
_SPELLED: Final = {
    **dict.fromkeys(("fp16", "float16", "half"), "f16"),
    **dict.fromkeys(("fp32", "float32", "float"), "f32"),
    **dict.fromkeys(("fp64", "float64", "double"), "f64"),
    "bfloat16": "bf16",
    **dict.fromkeys(("int8", "i8"), "s8"),
    **dict.fromkeys(("fp8", "float8_e4m3fn", "fp8_e4m3"), "e4m3"),
    **dict.fromkeys(("float8_e5m2", "fp8_e5m2"), "e5m2"),
    **dict.fromkeys(("int32", "s32"), "i32"),
}


def parse_dtype(text: str) -> DType:
    """Return the element type that every kind of op may have.

    Raises:
        InvalidOption: there is none of the name, or products of a gemm alone have it.
    """
    if text in GPU_ELEMENTS:
        raise InvalidOption(
            field="--dtype",
            got=text,
            expected=" ".join(DTYPES),
            remedy=f"--dtype {'f32' if text == 'tf32' else 'f16'}; {text} is what the products of a gemm are made of",
        )
    return _parsed("--dtype", text, DTYPES, "these are the element types of such an op")


def require_kernels(text: str, target: str) -> None:
    """Refuse elements that tensor cores alone multiply where the target has none.

    Raises:
        InvalidOption: it is no GPU; the remedy names an element type that it takes, and a GPU that takes this one.
    """
    from tracea.targets import names_gpu, target_names

    if text not in GPU_ELEMENTS or names_gpu(target) or target not in ("host", *target_names()):
        return  # an unknown target is refused by name
    raise InvalidOption(
        field="--dtype",
        got=f"{text} on {target}",
        expected=f"{' '.join(DTYPES)} on a processor",
        remedy=f"--dtype {'f32' if text == 'tf32' else 'f16'}, or {text} on a GPU: tracea emit --target sm_90a",
    )


def parse_elements(text: str) -> tuple[DType, MatrixMath, DType]:
    """Return how a gemm's factors are stored and multiplied, and what its result is stored as by default.

    Raises:
        InvalidOption: there is no such element type.
    """
    from tracea.core.dtype import DType
    from tracea.core.ops.gemm import MatrixMath

    if text in GPU_ELEMENTS:
        stored, result = (DType.parse(name) for name in GPU_ELEMENTS[text])
        return stored, MatrixMath.TF32 if text == "tf32" else MatrixMath.IEEE, result
    dtype = _parsed("--dtype", text, (*DTYPES, *GPU_ELEMENTS), "kernels of products have no other elements yet")
    return dtype, MatrixMath.IEEE, dtype


def parse_result(text: str | None, default: DType) -> DType:
    """Return the element type of a gemm's result.

    Raises:
        InvalidOption: there is no such element type.
    """
    return default if text is None else _parsed("--out", text, _RESULTS, "results have no other elements")


def _parsed(flag: str, text: str, known: tuple[str, ...], why: str) -> DType:
    from tracea.core.dtype import DType
    from tracea.targets.unknown import meant, near

    if text in known:
        return DType.parse(text)
    spelled = _SPELLED.get(text.lower(), "")
    close = (spelled,) if spelled in known else near(text, known)
    raise InvalidOption(
        field=flag, got=text, expected=" ".join(known), remedy=f"{meant(close)}name one of these: {why}"
    )
