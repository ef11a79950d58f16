"""Hand-written GPU kernels as KernelSource: the argument struct is printed and laid out from a list of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import ArgumentField, GpuLaunch, KernelSource, PointerParameter, TensorMapSpec
from tracea.semantic.index import Const, Index, as_index
from tracea.semantic.tile_kernel import BufferRole

__all__ = ["IN", "OUT", "SCRATCH", "kernel", "line_of"]

_C_TYPES: Final = {
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.E4M3: "e4m3",
    DType.E5M2: "e5m2",
    DType.I32: "int32_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
}
IN: Final = BufferRole.INPUT
OUT: Final = BufferRole.OUTPUT
SCRATCH: Final = BufferRole.SCRATCH


def kernel(
    body: str,
    *,
    pointers: Mapping[str, tuple[DType, BufferRole]],
    integers: tuple[str, ...] = (),
    scalars: tuple[str, ...] = (),
    threads: int = 32,
    blocks: int | Index = 1,
    shared_bytes: int = 0,
    isa: str = "sm_80",
    maps: tuple[TensorMapSpec, ...] = (),
    mapped: Mapping[str, tuple[DType, BufferRole]] | None = None,
    workspace: tuple[tuple[str, Index], ...] = (),
    zeroed: tuple[str, ...] = (),
    head: str = "",
    name: str = "handwritten",
) -> KernelSource:
    """Return the kernel whose function body is ``body``; ``head`` stands before the argument struct.

    ``mapped`` are buffers that only tensor maps name, without a pointer among the arguments.
    """
    fields: list[ArgumentField] = []
    members: list[str] = []
    offset = 0

    def add(
        kind: Literal["tensor_map", "pointer", "integer", "scalar"], field: str, declaration: str, size: int
    ) -> None:
        nonlocal offset
        fields.append(ArgumentField(name=field, kind=kind, offset_bytes=offset, size_bytes=size))
        members.append(f"    {declaration};")
        offset += size

    for spec in maps:
        add("tensor_map", spec.name, f"TensorMap {spec.name}", 128)
    for field, (dtype, role) in pointers.items():
        const = "const " if role is IN else ""
        add("pointer", field, f"{const}{_C_TYPES[dtype]}* {field}", 8)
    for field in integers:
        add("integer", field, f"int64_t {field}", 8)
    for field in scalars:
        add("scalar", field, f"float {field}", 4)
    alignment = 64 if maps else 8 if pointers or integers else 4
    size = -(-max(offset, 1) // alignment) * alignment
    text = "\n".join(
        [
            f"// hand-written · {name}",
            '#include "tracea/primitives.h"',
            "using namespace tracea;",
            *([head.strip("\n")] if head else []),
            f"struct {name}_args {{",
            *members,
            "};",
            f"TRACEA_KERNEL({threads}, 1) void {name}(const TRACEA_GRID_CONSTANT {name}_args args) {{",
            body.strip("\n"),
            "}",
            "",
        ]
    )
    return KernelSource(
        name=name,
        text=text,
        language="cuda",
        isa=isa,
        pointers=tuple(
            PointerParameter(name=n, dtype=d, role=r) for n, (d, r) in {**pointers, **(mapped or {})}.items()
        ),
        integers=integers,
        scalars=scalars,
        team_scratch_bytes=Const(0),
        thread_scratch_bytes=Const(0),
        headers=(),
        launch=GpuLaunch(
            threads=threads,
            blocks=as_index(blocks),
            shared_bytes=shared_bytes,
            argument_bytes=size,
            arguments=tuple(fields),
            tensor_maps=maps,
            workspace=workspace,
            zeroed=zeroed,
        ),
    )


def line_of(source: KernelSource, fragment: str, occurrence: int = 0) -> int:
    """Return the number of the line of the text that holds a fragment."""
    lines = [number for number, line in enumerate(source.text.splitlines(), start=1) if fragment in line]
    return lines[occurrence]
