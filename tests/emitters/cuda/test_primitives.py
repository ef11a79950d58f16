"""The primitives: the list is the headers', each compiles where it claims to, and is the instruction it names."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.emitters.cuda.probes import PROBES, probe_text
from tools.write_wgmma_header import HEADER, header

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.emitters.cuda.primitives import ARCHITECTURES, PRIMITIVES, Primitive, find, sm_of, unavailable
from tracea.errors import CompileError, InvalidOption
from tracea.flow.text import emit_text
from tracea.runtime.nvrtc import compile_text, cuda_include_directory, cuda_options, missing
from tracea.runtime.sass import count_opcodes, disassemble, find_disassembler

compiles = pytest.mark.skipif(missing() is not None, reason=f"not checked: {missing()}")
disassembles = pytest.mark.skipif(find_disassembler() is None, reason="not checked: no nvdisasm")
PREPROCESSOR = shutil.which("g++") or shutil.which("clang++")

WIDE = {name for name in PROBES if name.startswith("wgmma_m64")}
# The first statement of each, as the machine's opcode; on the architectures that are named, else on all that have it.
OPCODES = {
    "warp_index": "SHFL",
    "to_float": "HADD2",
    "ld_shared": "LDS",
    "st_shared": "STS",
    "ld_global": "LDG",
    "st_global": "STG",
    "atomic_add": "RED",
    "thread_fence": "MEMBAR",
    "sync_block": "BAR",
    "named_barrier_sync": "BAR",
    "named_barrier_arrive": "BAR",
    "elect_one": "ELECT",
    "setmaxnreg_inc": "USETMAXREG",
    "setmaxnreg_dec": "USETMAXREG",
    "cp_async": "LDGSTS",
    "cp_async_zfill": "LDGSTS",
    "cp_async_commit": "LDGDEPBAR",
    "cp_async_wait": "DEPBAR",
    "ldmatrix_x1": "LDSM",
    "ldmatrix_x4": "LDSM",
    "ldmatrix_x4_trans": "LDSM",
    "stmatrix_x4": "STSM",
    "stmatrix_x2_trans": "STSM",
    "mma_m16n8k8": "HMMA",
    "mma_m8n8k16_s8": "IMMA",
    "mma_m16n8k16": "HMMA",
    "mma_m16n8k4_tf32": "HMMA",
    "mma_m16n8k8_tf32": "HMMA",
    "mma_m16n8k32_s8": "IMMA",
    "mma_m16n8k32": "QMMA",
    "prefetch_tensor_map": "UTMACCTL",
    "tma_load": "UTMALDG",
    "tma_store_2d": "UTMASTG",
    "tma_store_commit": "UTMACMDFLUSH",
    "fence_proxy_async": "FENCE",
    "wgmma_m64k16": "HGMMA",
    "wgmma_m64k8_tf32": "HGMMA",
    "wgmma_m64k32": "QGMMA",
    "wgmma_m64k32_s8": "IGMMA",
}


def statements(primitive: Primitive, architecture: str) -> tuple[str, ...]:
    """Return the statements of a primitive whose form the architecture has."""
    forms = [form for form, _ in primitive.forms if not primitive.runs_on(architecture, form)]
    return tuple(text for text in PROBES[primitive.name] if not any(f"<{form}>" in text for form in forms))


def declared(architecture: str) -> set[str]:
    """Return the functions that the headers declare for an architecture, after the preprocessor."""
    defines = [option.replace("--define-macro=", "-D") for option in cuda_options(architecture) if "define" in option]
    path = cuda_include_directory()
    command = [str(PREPROCESSOR), "-E", "-P", "-C", "-x", "c++", *defines, f"-I{path}"]
    text = subprocess.run(
        [*command, str(path / "tracea" / "primitives.h")], capture_output=True, text=True, check=True
    ).stdout
    text = re.sub(r"namespace detail \{.*?\}\s*// namespace detail", "", text, flags=re.DOTALL)
    return set(re.findall(r"__device__ __forceinline__ (?:constexpr )?[\w:]+ (\w+)(?:<\w+>)?\(", text))


@pytest.mark.skipif(PREPROCESSOR is None, reason="no C++ preprocessor on the path")
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "sm_90"])
def test_the_list_is_what_the_headers_declare(architecture: str) -> None:
    listed = {primitive.name for primitive in PRIMITIVES if primitive.runs_on(architecture)}
    assert declared(architecture) == listed


def test_each_primitive_is_listed_once_and_probed() -> None:
    names = [primitive.name for primitive in PRIMITIVES]
    assert len(names) == len(set(names))
    assert set(names) == set(PROBES)


def test_every_primitive_states_its_section_beside_its_architecture() -> None:
    text = "".join(path.read_text() for path in (cuda_include_directory() / "tracea" / "primitives").glob("*.h"))
    for primitive in PRIMITIVES:
        chapter = primitive.section.split()[0]
        assert chapter in text or primitive.section == "none", primitive.name


def test_the_wgmma_header_is_what_its_tool_writes() -> None:
    assert (cuda_include_directory() / "tracea/primitives" / HEADER.name).read_text() == header()


def test_architectures_are_read_strictly() -> None:
    assert sm_of("sm_90a") == (90, True)
    assert sm_of("sm_120") == (120, False)
    with pytest.raises(InvalidOption, match="compute_90"):
        sm_of("compute_90")


def test_wgmma_is_hoppers_alone_and_mma_of_bf16_begins_with_ampere() -> None:
    wgmma, mma = find("wgmma_m64k16"), find("mma_m16n8k8")
    assert wgmma is not None
    assert mma is not None
    assert [architecture for architecture in (*ARCHITECTURES, "sm_90") if wgmma.runs_on(architecture)] == ["sm_90a"]
    assert mma.runs_on("sm_75", "f16")
    assert not mma.runs_on("sm_75", "bf16")
    assert find("mma_m1n1k1") is None


@compiles
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_form_compiles_where_it_claims_to(architecture: str) -> None:
    texts = [
        text
        for primitive in PRIMITIVES
        if primitive.runs_on(architecture) and primitive.name not in WIDE
        for text in statements(primitive, architecture)
    ]
    binary = compile_text(probe_text(tuple(texts)), architecture=architecture, name="primitives")
    assert binary.log.count("Compiling entry function") == len(texts)
    assert not [line for line in binary.log.splitlines() if "(C7" in line]


@compiles
@pytest.mark.parametrize("name", sorted(WIDE))
def test_every_wgmma_shape_compiles_without_being_serialized(name: str) -> None:
    binary = compile_text(probe_text(PROBES[name]), architecture="sm_90a", name=name)
    # C7510 would say that wgmma waits for itself, because its registers are touched in between.
    assert not [line for line in binary.log.splitlines() if "(C7" in line]
    assert "0 bytes spill stores" in binary.log
    if find_disassembler() is not None:
        counts = count_opcodes(disassemble(binary.cubin))
        assert all(count[OPCODES[name]] == 1 for count in counts.values())
        assert len(counts) == len(PROBES[name])


@compiles
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "sm_90"])
def test_a_primitive_below_its_least_architecture_is_refused_by_name(architecture: str) -> None:
    for primitive in unavailable(architecture):
        with pytest.raises(CompileError) as refused:
            compile_text(probe_text(PROBES[primitive.name][-1:]), architecture=architecture, name="probe")
        assert f"needs {primitive.needs}" in refused.value.remedy or "wgmma_fence needs" in refused.value.remedy


@compiles
def test_a_form_below_its_least_architecture_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match=r"mma_m16n8k8<bf16> needs sm_80 or later"):
        compile_text(probe_text(PROBES["mma_m16n8k8"][1:]), architecture="sm_75", name="probe")


@compiles
@disassembles
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_each_primitive_becomes_the_instruction_that_it_names(architecture: str) -> None:
    sm, _ = sm_of(architecture)
    wanted = [
        (primitive, opcode)
        for name, opcode in OPCODES.items()
        if (primitive := find(name)) is not None and primitive.runs_on(architecture)
    ]
    texts = tuple(PROBES[primitive.name][0] for primitive, _ in wanted)
    counts = count_opcodes(disassemble(compile_text(probe_text(texts), architecture=architecture, name="p").cubin))
    for index, (primitive, opcode) in enumerate(wanted):
        found = {name for name, count in counts[f"probe_{index}"].items() if count and name.startswith(opcode)}
        assert bool(found) == (sm not in primitive.rewritten_on), (primitive.name, counts[f"probe_{index}"])


@compiles
@disassembles
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90a"])
def test_the_widest_accesses_are_single_instructions_of_16_bytes(architecture: str) -> None:
    texts = ("st_global(g + 64, ld_global<Words<4>>(g));", "st_shared(s, ld_shared<Words<4>>(s + 64));")
    sass = disassemble(compile_text(probe_text(texts), architecture=architecture, name="p").cubin)
    for opcode in ("LDG.E.128", "STG.E.128", "LDS.128", "STS.128"):
        assert opcode in sass.replace("LDS.U.128", "LDS.128"), opcode


@compiles
def test_the_architecture_on_the_command_line_must_be_that_of_the_compilation() -> None:
    with pytest.raises(CompileError, match="TRACEA_SM is not the architecture"):
        compile_text(
            probe_text(("sync_block();",)),
            architecture="sm_80",
            name="p",
            extra_options=("--undefine-macro=TRACEA_SM", "--define-macro=TRACEA_SM=90"),
        )


@pytest.mark.skipif(PREPROCESSOR is None, reason="no C++ compiler on the path")
def test_the_integers_are_the_standard_headers_where_there_are_any(tmp_path: Path) -> None:
    text = (
        "#include <cstdint>\n#include <stdint.h>\n"
        '#include "tracea/primitives/config.h"\n'
        "static_assert(sizeof(int64_t) == 8 && sizeof(uint8_t) == 1);\n"
    )
    source = tmp_path / "config.cpp"
    source.write_text(text, encoding="utf-8")
    command = [str(PREPROCESSOR), "-std=c++17", "-fsyntax-only", "-DTRACEA_SM=90", f"-I{cuda_include_directory()}"]
    found = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    # Beside the standard headers NVRTC's own definitions clash, which is what the guard is for.
    clash = subprocess.run([*command, "-D__CUDACC_RTC__", str(source)], capture_output=True, text=True, check=False)
    assert clash.returncode != 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="not checked: no nvcc on the path")
@pytest.mark.parametrize(
    ("target", "variant", "defines"),
    [
        ("sm_80", "gemm.mma_cp_async", ["-DTRACEA_SM=80"]),
        ("sm_90a", "gemm.wgmma", ["-DTRACEA_SM=90", "-DTRACEA_ARCH_SPECIFIC"]),
    ],
)
def test_nvcc_compiles_what_is_printed_by_the_line_of_the_docs(
    tmp_path: Path, target: str, variant: str, defines: list[str]
) -> None:
    op = GemmOp.of(m=128, n=128, k=64, dtype=DType.F16, transpose_b=True)
    source = tmp_path / "kernel.cu"
    source.write_text(emit_text(op, target=target, variant=variant), encoding="utf-8")
    command = ["nvcc", "-std=c++17", f"-arch={target}", "-fmad=false", *defines, f"-I{cuda_include_directory()}"]
    command += ["-cubin", "-o", str(tmp_path / "kernel.cubin"), str(source)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    statistics = emit_text(op, target=target, variant=variant, form="stats") if missing() is None else ""
    for needed in ("blocks", "threads", "shared memory bytes", "argument bytes", "argument at byte 0"):
        assert f"\n{needed}" in statistics or missing() is not None
