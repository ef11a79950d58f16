"""What addresses of a GPU kernel's operands have to be multiples of: said in the certificate, kept by the launcher."""

from __future__ import annotations

import pytest

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.errors import InvalidStride
from tracea.flow.kernel import Built, build, choose_for_gpu
from tracea.flow.text import emit_text
from tracea.runtime.cuda.binding import bind
from tracea.runtime.nvrtc import missing
from tracea.targets import load_gpu

CASES = [
    # k = 252: rows of 504 bytes, which pieces of 8 divide and pieces of 16 do not
    ("sm_90a", DType.F16, 256, {"a": 16, "b_t": 16}),
    ("sm_80", DType.F16, 256, {"a": 16, "b_t": 16}),
    ("sm_80", DType.F16, 252, {"a": 8, "b_t": 8}),
    ("sm_75", DType.F32, 256, {"a_t": 4, "b": 4}),
]


def built(target: str, dtype: DType, k: int) -> Built:
    op, gpu = GemmOp.of(m=256, n=256, k=k, dtype=dtype, transpose_b=True, bias=True), load_gpu(target)
    return build(op, *choose_for_gpu(op, gpu), gpu)


@pytest.mark.parametrize(("target", "dtype", "k", "factors"), CASES)
def test_the_certificate_says_what_addresses_are_multiples_of(
    target: str, dtype: DType, k: int, factors: dict[str, int]
) -> None:
    guards = built(target, dtype, k).certificate.guards
    for name, nbytes in factors.items():
        assert f"{name}: begins at a multiple of {nbytes} bytes" in guards


@pytest.mark.parametrize(("target", "dtype", "k", "factors"), CASES)
def test_an_address_within_an_element_is_refused(target: str, dtype: DType, k: int, factors: dict[str, int]) -> None:
    source = built(target, dtype, k).source
    pointers = {pointer.name: 1 << 20 for pointer in source.pointers}
    integers = dict.fromkeys(source.integers, 256)
    needed = {**factors, "x1": dtype.nbytes, "c": dtype.nbytes}
    assert pointers.keys() == needed.keys()

    def launch(**moved: int) -> None:
        bind(source, pointers={**pointers, **moved}, integers=integers, encode=lambda _: bytes(128))

    for name, nbytes in needed.items():
        launch(**{name: (1 << 20) + nbytes * (16 // nbytes)})
        if name in ("c", "x1"):
            launch(**{name: (1 << 20) + nbytes})
        with pytest.raises(InvalidStride, match=f"expected a multiple of {nbytes} bytes") as caught:
            launch(**{name: (1 << 20) + nbytes // 2})
        assert caught.value.field == f"address of {name}"


def test_the_statistics_say_it_too() -> None:
    if (lacking := missing()) is not None:
        pytest.skip(str(lacking))
    op = GemmOp.of(m=256, n=256, k=256, dtype=DType.F16, transpose_b=True)
    lines = emit_text(op, target="sm_80", form="stats").splitlines()
    assert [line.split(maxsplit=2)[1:] for line in lines if line.startswith("pointer a ")] == [
        ["a", "f16, a multiple of 16 bytes"]
    ]
