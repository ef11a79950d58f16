"""What GEMM kernels on GPUs require, with the numbers that they find instead; which product an element type takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.tensor_type import BlockedLayout
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.operands import MOST_EXTENT
from tracea.kernels.gemm.gpu.products import WarpProduct
from tracea.kernels.requirements import condition, non_negative_strides, strided_layouts
from tracea.kernels.variant import Requirement, Unmet, Variant
from tracea.targets.gpu import GpuTarget, gpu_names, load_gpu

__all__ = [
    "AS_STORED",
    "CUDA",
    "EXTENTS",
    "GPU_GEMM_REQUIREMENTS",
    "NO_FP8",
    "SIMT_REQUIREMENTS",
    "TENSOR_CORES",
    "features",
    "on_tensor_cores",
    "warp_product",
]


def _check_backend(op: object, target: Any) -> Unmet | None:
    del op
    if target.backend == "cuda":
        return None
    return Unmet(needed="cuda", found=f"{target.backend}: {target.isa}", remedy="choose a GPU target such as sm_80")


CUDA = Requirement(name="backend", check=_check_backend, of_target=True)

# Element type, the arithmetic allowed -> what PTX calls it, and the feature that has it.
_ELEMENTS: Final[Mapping[tuple[DType, MatrixMath], tuple[str, str]]] = {
    (DType.F16, MatrixMath.IEEE): ("f16", "mma_f16"),
    (DType.BF16, MatrixMath.IEEE): ("bf16", "bf16"),
    (DType.F32, MatrixMath.TF32): ("tf32", "tf32"),
    (DType.I8, MatrixMath.IEEE): ("s8", "mma_s8"),
    (DType.E4M3, MatrixMath.IEEE): ("e4m3", "fp8"),
    (DType.E5M2, MatrixMath.IEEE): ("e5m2", "fp8"),
}
_NATIVE: Final[Mapping[str, str]] = {
    "f16": "m16n8k16",
    "bf16": "m16n8k16",
    "tf32": "m16n8k8",
    "s8": "m16n8k32",
    "e4m3": "m16n8k32",
    "e5m2": "m16n8k32",
}
_TURING: Final[Mapping[str, str]] = {"f16": "m16n8k8", "s8": "m8n8k16"}
RESULTS: Final = (DType.F32, DType.F16, DType.BF16, DType.I32)
_OF_FLOATS: Final = RESULTS[:-1]  # a float sum is rounded to a float; only sums of integers are stored as integers


def warp_product(op: GemmOp, target: GpuTarget) -> WarpProduct:
    """Return the product of a warp for the op's element type.

    Raises:
        InvalidSchedule: the target's tensor cores do not multiply this type.
    """
    unmet = _check_element(op, target)
    if unmet is not None:
        raise InvalidSchedule(field="element type", got=unmet.found, expected=unmet.needed, remedy=unmet.remedy)
    element, _ = _ELEMENTS[op.a.dtype, op.math]
    native = (_TURING if not target.has("cp_async") else _NATIVE)[element]
    converted = element in ("e4m3", "e5m2") and not target.has("mma_fp8")
    return WarpProduct(
        element=element, storage=op.a.dtype, accumulator=op.accumulator, native=native, converted=converted
    )


def _check_element(op: Any, target: Any) -> Unmet | None:
    found = _ELEMENTS.get((op.a.dtype, op.math))
    if op.a.dtype is not op.b.dtype or found is None:
        rounded = "gemm.simt multiplies f32 as it is; --dtype tf32 (math tf32) rounds it for tensor cores"
        remedy = rounded if op.a.dtype is op.b.dtype is DType.F32 else "use gemm.simt"
        return Unmet(needed=f"{_either(_NATIVE)}, for both", found=_elements_of(op), remedy=remedy)
    if not target.has(found[1]):
        having = [name for name in gpu_names() if load_gpu(name).has(found[1])]
        rounded = found[1] == "tf32"
        remedy = f"targets with {found[0]}: {' '.join(having)}"
        if not rounded:
            remedy += "; gemm.simt takes it too" if found[1] != "fp8" else ""
        element = found[0] if found[0] in found[1] else f"{found[0]} ({found[1]})"
        return Unmet(
            needed=f"tensor cores that take {element}", found=f"the tensor cores of {target.name}", remedy=remedy
        )
    return None


def _either(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def _elements_of(op: Any) -> str:
    """Return how a command line says the element types of an op's factors, both where they differ."""
    said = [_ELEMENTS.get((kind.dtype, op.math), (kind.dtype.value, ""))[0] for kind in (op.a, op.b)]
    return " and ".join(dict.fromkeys(said))


TENSOR_CORES = Requirement(name="element types of tensor cores", check=_check_element)


def _check_stored(op: Any, target: Any) -> Unmet | None:
    if DType.F32 not in (op.a.dtype, op.b.dtype):
        return TENSOR_CORES.check(op, target)
    rounded = op.math is MatrixMath.TF32
    return Unmet(
        needed="f16, bf16, s8, e4m3 or e5m2, for both",
        found="tf32: wgmma would truncate f32 in shared memory instead of rounding it" if rounded else "f32",
        remedy="gemm.mma_tma and gemm.mma_cp_async round f32 to tf32" + ("" if rounded else ": --dtype tf32"),
    )


AS_STORED = Requirement(name="factors multiplied as they are stored", check=_check_stored)


def on_tensor_cores(variant: Variant) -> bool:
    """Tell whether a variant's products are those of tensor cores."""
    return TENSOR_CORES in variant.requirements or AS_STORED in variant.requirements


def _check_extents(op: Any, target: Any) -> Unmet | None:
    del target
    named = (("m", op.m), ("n", op.n), *(("batch", dim) for dim in op.batch))
    empty = [name for name, dim in named if dim == 0]
    if empty:
        least = " and ".join(f"{name}=1" for name in dict.fromkeys(empty))
        needed = "m, n and batch of 1 at least"
        return Unmet(needed=needed, found=f"{empty[0]} = 0: nothing to compute", remedy=f"use {least} or more")
    for name, dim in (("m", op.m), ("n", op.n), ("k", op.k)):
        if isinstance(dim, int) and dim > MOST_EXTENT:
            remedy = f"use {name}={MOST_EXTENT} at most in a call"
            return Unmet(needed=f"{name} of {MOST_EXTENT} at most", found=f"{name} = {dim}", remedy=remedy)
    return None


EXTENTS = Requirement(name="extents", check=_check_extents)
_REACH: Final = 2**31 - 1


def _steps(op: Any) -> list[int]:
    """Return the strides that are walked, of operands and result, as far as they are known."""
    types = (*op.operands, op.infer())
    known = [type_ for type_ in types if type_.is_static and not isinstance(type_.layout, BlockedLayout)]
    return [step for type_ in known for dim, step in zip(type_.shape, type_.strides, strict=True) if dim != 1]


_STRIDES = condition(
    "strides within reach",
    lambda op, _: max(_steps(op), default=0) <= _REACH,
    needed=f"strides of {_REACH} elements at most",
    found=lambda op: f"a stride of {max(_steps(op))} elements",
    remedy="one call for each part of the batch, whose matrices lie so far apart",
)
_SUMS = condition(
    "sums of the op's kind",
    lambda op, _: op.accumulator in (DType.F32, DType.I32),
    needed="sums in f32, or i32 of integers",
    found=lambda op: f"sums in {op.accumulator.value}",
    remedy="use gemm.simt for f64",
)


def _check_result(op: Any, target: Any) -> Unmet | None:
    del target
    sums, result = op.accumulator, op.infer().dtype
    if sums is DType.F64:
        if result is DType.F64 and op.epilogue.is_identity:
            return None
        beside = "" if op.epilogue.is_identity else " with an epilogue"
        advice = [] if result is DType.F64 else ["store the result as f64 (--out f64)"]
        advice += ["compute the epilogue apart, or multiply f32, which takes one"] if beside else []
        return Unmet(
            needed="f64 without an epilogue for sums in f64",
            found=f"{result.value}{beside}",
            remedy=" and ".join(advice),
        )
    legal = RESULTS if sums is DType.I32 else _OF_FLOATS
    if result not in legal:
        names = _either(dtype.value for dtype in legal)
        return Unmet(
            needed=f"a result of {names} for sums in {sums.value}",
            found=result.value,
            remedy=f"store the result as one of these, such as {legal[0].value} (--out {legal[0].value})",
        )
    strange = [kind.dtype.value for kind in op.epilogue.operands if kind.dtype not in RESULTS]
    if strange:
        return Unmet(
            needed=f"an epilogue's operands of {_either(dtype.value for dtype in RESULTS)}",
            found=", ".join(strange),
            remedy=f"convert them to {DType.F32.value}",
        )
    return None


_RESULT = Requirement(name="result type", check=_check_result)
_EXACT = condition(
    "integers stay as they are",
    lambda op, _: op.accumulator is not DType.I32 or op.infer().dtype.is_float or op.epilogue.is_identity,
    needed="no epilogue on an integer result",
    found=lambda op: f"an epilogue on {op.infer()}",
    remedy="let the result be a float type, such as out f16",
)

GPU_GEMM_REQUIREMENTS = (
    strided_layouts,
    non_negative_strides,
    _STRIDES,
    EXTENTS,
    TENSOR_CORES,
    _SUMS,
    _RESULT,
    _EXACT,
)

_ANY_SUMS = condition(
    "sums in the operands' kind",
    lambda op, _: op.a.dtype is op.b.dtype and op.accumulator in (DType.F32, DType.F64, DType.I32),
    needed="a and b of one type, sums in f32, f64 or i32",
    found=lambda op: f"{op.a.dtype.value}, {op.b.dtype.value}, sums {op.accumulator.value}",
    remedy="cast one of them",
)
_IEEE = condition(
    "products of unrounded factors",
    lambda op, _: op.math is MatrixMath.IEEE,
    needed="math = ieee",
    found=lambda op: f"math = {op.math.value}",
    remedy="TF32 is the arithmetic of tensor cores: leave math at ieee here",
)
SIMT_REQUIREMENTS = (strided_layouts, non_negative_strides, _STRIDES, EXTENTS, _ANY_SUMS, _IEEE, _RESULT, _EXACT)


NO_FP8 = condition(
    "elements that registers bring",
    lambda op, _: op.a.dtype not in (DType.E4M3, DType.E5M2),
    needed="f16, bf16, tf32 or s8",
    found=lambda op: op.a.dtype.value,
    remedy="every target with fp8 has gemm.mma_cp_async",
)


def features(*names: str) -> Requirement:
    """Return the requirement that the target has these features."""

    def check(op: object, target: Any) -> Unmet | None:
        del op
        missing = [name for name in names if not target.has(name)]
        if not missing:
            return None
        return Unmet(
            needed=", ".join(names),
            found=f"{target.name} without {', '.join(missing)}",
            remedy="choose a target that has it",
        )

    return Requirement(name=" and ".join(names), check=check, of_target=True)
