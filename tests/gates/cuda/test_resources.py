"""The resource gate: what a compiled kernel uses, and counter-examples that it must refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tracea.emitters.kernel_source import ArgumentField, GpuLaunch, KernelSource
from tracea.errors import CompileError, InvalidOption, ToolchainMissing, VerdictFailed
from tracea.gates import resources
from tracea.gates.resources import NotChecked, ResourceBudget, judge_binary, measure_resources, resident_blocks
from tracea.gates.verdict import Verdict
from tracea.runtime import nvrtc, sass
from tracea.runtime.cubin import CubinKernel, read_cubin
from tracea.runtime.nvrtc import compile_text, missing, parse_diagnostics
from tracea.runtime.ptxas_log import parse_ptxas_log
from tracea.runtime.sass import count_opcodes, disassemble, find_disassembler
from tracea.semantic.index import Const
from tracea.targets.gpu import load_gpu

compiles = pytest.mark.skipif(missing() is not None, reason=f"not checked: {missing()}")
disassembles = pytest.mark.skipif(find_disassembler() is None, reason="not checked: no nvdisasm")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")

HEAD = '#include "tracea/primitives.h"\nusing namespace tracea;\nstruct Args { float* a; float* c; int64_t n; };\n'
GOOD = """\
TRACEA_KERNEL(128, 1) void good(const TRACEA_GRID_CONSTANT Args args) {
    const uint32_t s = shared_base() + 4 * thread_index();
    st_shared(s, ld_global<float>(args.a + thread_index()));
    sync_block();
    st_global(args.c + thread_index(), ld_shared<float>(s ^ 4));
}
"""
# 64 numbers stay alive in a loop, and 1024 threads leave 64 registers to each, of which not all are for numbers.
SPILL = """\
TRACEA_KERNEL(1024, 1) void spill(const TRACEA_GRID_CONSTANT Args args) {
    float v[64];
    TRACEA_UNROLL
    for (int i = 0; i < 64; ++i) v[i] = ld_global<float>(args.a + thread_index() + i * args.n);
    TRACEA_NO_UNROLL
    for (int64_t k = 0; k < args.n; ++k) {
        TRACEA_UNROLL
        for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 7) & 63] + ld_global<float>(args.a + k);
    }
    TRACEA_UNROLL
    for (int i = 0; i < 64; ++i) st_global(args.c + thread_index() + i * args.n, v[i]);
}
"""
# An array whose index is known at run time only lies in local memory: nothing is spilled, and yet it is slow.
STACK = """\
TRACEA_KERNEL(128, 1) void stack(const TRACEA_GRID_CONSTANT Args args) {
    float v[32] = {};
    TRACEA_NO_UNROLL
    for (int64_t k = 0; k < args.n; ++k) v[(k * 5 + thread_index()) & 31] += ld_global<float>(args.a + k);
    st_global(args.c + thread_index(), v[thread_index() & 31]);
}
"""
UNBOUND = """\
extern "C" __global__ void unbound(const TRACEA_GRID_CONSTANT Args args) {
    setmaxnreg_inc<232>();
    st_global(args.c + thread_index(), 1.0F);
}
"""
# The sum is read while the tensor core may still write it: the compiler waits after every product.
SERIALIZED = """\
TRACEA_KERNEL(128, 1) void serialized(const TRACEA_GRID_CONSTANT Args args) {
    float d[32] = {};
    const uint64_t tile = wgmma_descriptor(shared_base(), 16, 1024, 128);
    TRACEA_NO_UNROLL
    for (int64_t k = 0; k < args.n; ++k) {
        wgmma_fence();
        wgmma_m64k16<64, bf16, false, false>(d, tile, tile, true);
        wgmma_commit();
        d[0] += 1.0F;
    }
    wgmma_wait<0>();
    for (int i = 0; i < 32; ++i) st_global(args.c + 32 * thread_index() + i, d[i]);
}
"""


def source(name: str, body: str, isa: str = "sm_90a", threads: int = 128, shared_bytes: int = 512) -> KernelSource:
    arguments = tuple(
        ArgumentField(name=field, kind="pointer", offset_bytes=8 * i, size_bytes=8) for i, field in enumerate("acn")
    )
    launch = GpuLaunch(
        threads=threads, blocks=Const(1), shared_bytes=shared_bytes, argument_bytes=24, arguments=arguments
    )
    return KernelSource(
        name=name,
        text=HEAD + body,
        language="cuda",
        isa=isa,
        pointers=(),
        integers=(),
        scalars=(),
        team_scratch_bytes=Const(0),
        thread_scratch_bytes=Const(0),
        headers=(),
        launch=launch,
    )


def judge(kernel: KernelSource, budget: ResourceBudget | None = None) -> Verdict:
    judged = judge_binary(kernel, target=load_gpu(kernel.isa), budget=budget)
    assert isinstance(judged, Verdict)
    return judged


def failures(kernel: KernelSource, budget: ResourceBudget | None = None) -> set[str]:
    return {check.name for check in judge(kernel, budget).failures}


@compiles
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_plain_kernel_passes_everywhere(architecture: str) -> None:
    judged = judge(source("good", GOOD, architecture))
    assert judged.passed, str(judged)
    assert judged.require() is judged


@compiles
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90a"])
def test_a_spilling_kernel_is_refused_with_its_bytes(architecture: str) -> None:
    kernel = source("spill", SPILL, architecture, threads=1024)
    names = failures(kernel)
    assert {"spilled bytes", "stack bytes"} <= names
    with pytest.raises(VerdictFailed, match=r"spilled bytes: spill for sm_\w+: got [1-9]\d+, limit 0"):
        judge(kernel).require()


@compiles
def test_a_budget_that_allows_the_spills_lets_them_pass() -> None:
    kernel = source("spill", SPILL, threads=1024)
    assert not failures(kernel, ResourceBudget(spill_bytes=4096, stack_bytes=2048))


@compiles
@pytest.mark.parametrize("architecture", ["sm_80", "sm_120a"])
def test_an_array_indexed_at_run_time_is_refused_though_nothing_spills(architecture: str) -> None:
    names = failures(source("stack", STACK, architecture))
    assert "stack bytes" in names
    assert "spilled bytes" not in names
    if find_disassembler() is not None:
        assert "instructions of local memory" in names


@compiles
def test_register_budgets_without_launch_bounds_are_refused() -> None:
    judged = judge(source("unbound", UNBOUND))
    (failed,) = judged.failures
    assert failed.name == "complaints of the compiler"
    assert "C7508" in failed.detail
    assert "setmaxnreg" in failed.detail


@compiles
def test_a_wgmma_that_the_compiler_serialized_is_refused() -> None:
    judged = judge(source("serialized", SERIALIZED))
    (failed,) = judged.failures
    assert failed.name == "complaints of the compiler"
    assert "C75" in failed.detail


@compiles
@disassembles
def test_a_kernel_without_the_instructions_that_it_promises_is_refused() -> None:
    assert failures(source("good", GOOD), ResourceBudget(least={"HGMMA": 1})) == {"HGMMA instructions"}
    assert not failures(source("good", GOOD), ResourceBudget(least={"LDS": 1, "BAR": 1}))


@compiles
def test_a_register_budget_is_kept_or_refused() -> None:
    assert failures(source("good", GOOD), ResourceBudget(registers=4)) == {"registers"}


@compiles
def test_more_shared_memory_than_a_block_may_have_is_refused() -> None:
    names = failures(source("good", GOOD, "sm_86", shared_bytes=131_072))
    assert names == {"shared bytes", "resident blocks"}


@compiles
def test_arguments_of_another_size_than_the_launch_passes_are_refused() -> None:
    kernel = source("good", GOOD)
    assert kernel.launch is not None
    assert failures(replace(kernel, launch=replace(kernel.launch, argument_bytes=32))) == {"parameter bytes"}


@compiles
def test_a_warning_about_the_text_is_a_complaint() -> None:
    kernel = source("good", GOOD.replace("sync_block();", "sync_block(); int unused;"))
    (failed,) = judge(kernel).failures
    assert failed.name == "complaints of the compiler"
    assert "good.cu(7): warning" in failed.detail


@compiles
def test_an_error_names_the_line_of_the_emitted_text() -> None:
    kernel = source("good", GOOD.replace("sync_block();", "cp_async_commit();"), "sm_75")
    with pytest.raises(CompileError) as refused:
        judge(kernel)
    assert "line 7 of the text, «cp_async_commit();»" in refused.value.remedy
    assert "needs sm_80 or later" in refused.value.remedy
    assert any("TRACEA_SM=75" in word for word in refused.value.command)


@compiles
def test_a_second_compilation_comes_from_the_cache() -> None:
    text = HEAD + GOOD
    first = compile_text(text, architecture="sm_80", name="cached")
    again = compile_text(text, architecture="sm_80", name="cached")
    other = compile_text(text, architecture="sm_86", name="cached")
    assert again.cached
    assert (again.cubin, again.log, again.seconds, again.key) == (first.cubin, first.log, first.seconds, first.key)
    assert other.key != first.key
    assert "--fmad=false" in first.options
    assert ".target sm_80" in first.ptx


@compiles
def test_an_architecture_that_the_compiler_lacks_is_an_error_with_those_it_has() -> None:
    with pytest.raises(InvalidOption, match=r"got sm_61.*sm_75"):
        compile_text(HEAD + GOOD, architecture="sm_61", name="good")
    with pytest.raises(InvalidOption, match="language"):
        judge_binary(replace(source("good", GOOD), language="c++"), target=load_gpu("sm_80"))


def test_without_a_compiler_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> nvrtc.Nvrtc:
        raise ToolchainMissing(tool="NVRTC", searched=("cuda.bindings",), remedy="pip install 'tracea[cuda]'")

    monkeypatch.setattr(nvrtc, "find_nvrtc", absent)
    judged = judge_binary(source("good", GOOD), target=load_gpu("sm_90a"))
    assert isinstance(judged, NotChecked)
    assert not judged.passed
    assert "not checked" in str(judged)
    assert "tracea[cuda]" in str(judged)
    assert nvrtc.missing() is not None
    with pytest.raises(ToolchainMissing):
        judged.require()


@compiles
def test_without_a_disassembler_the_rest_is_judged_and_no_instruction_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "find_disassembler", lambda: None)
    judged = judge(source("good", GOOD), ResourceBudget(least={"HGMMA": 1}))
    assert [check.name for check in judged.failures] == ["HGMMA instructions"]
    assert "not checked" in judged.failures[0].detail


@compiles
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_binary_and_the_log_agree(architecture: str) -> None:
    binary = compile_text(HEAD + GOOD + SPILL + STACK, architecture=architecture, name="several")
    facts, report = read_cubin(binary.cubin), parse_ptxas_log(binary.log)
    assert set(facts) == set(report.kernels) == {"good", "spill", "stack"}
    for name, kernel in facts.items():
        usage = report.kernels[name]
        assert (kernel.registers, kernel.stack_bytes) == (usage.registers, usage.stack_bytes)
        assert kernel.parameter_bytes == 24
        assert kernel.sm == int(architecture.strip("sm_a"))
        assert kernel.max_threads == (1024 if name == "spill" else 128)
        assert kernel.static_shared_bytes == 0
        assert kernel.code_bytes > 0


@compiles
def test_static_shared_memory_is_counted_without_what_the_system_reserves() -> None:
    body = GOOD.replace("const uint32_t", "__shared__ float own[64]; own[thread_index() & 63] = 1;\n    const uint32_t")
    body = body.replace("ld_shared<float>(s ^ 4)", "ld_shared<float>(s ^ 4) + own[3]")
    for architecture in ("sm_80", "sm_90a", "sm_120a"):
        kernel = read_cubin(compile_text(HEAD + body, architecture=architecture, name="own").cubin)["good"]
        assert kernel.static_shared_bytes == 1024  # 256, and the arena begins at a multiple of 1024
        assert kernel.reserved_shared_bytes == (0 if architecture == "sm_80" else 1024)


@compiles
@pytest.mark.parametrize("cut", [0, 5, 40, 200, 2000])
def test_a_damaged_binary_is_a_typed_error(cut: int) -> None:
    cubin = compile_text(HEAD + GOOD, architecture="sm_80", name="good").cubin
    with pytest.raises(InvalidOption, match="cubin"):
        read_cubin(cubin[:cut])
    with pytest.raises(InvalidOption, match="ELF"):
        read_cubin(b"not a binary at all" * 10)


@compiles
def test_a_kernel_that_the_text_lacks_is_an_error_with_those_it_has() -> None:
    binary = compile_text(HEAD + GOOD, architecture="sm_80", name="good")
    with pytest.raises(InvalidOption, match=r"got other.*good"):
        measure_resources(binary, "other", target=load_gpu("sm_80"), threads=128)


@compiles
@disassembles
def test_opcodes_are_counted_per_kernel_and_only_where_they_run() -> None:
    text = HEAD + GOOD + STACK
    counts = count_opcodes(disassemble(compile_text(text, architecture="sm_90a", name="two").cubin))
    assert counts["good"]["LDS"] == counts["good"]["STS"] == counts["good"]["BAR"] == 1
    assert counts["good"]["LDL"] == 0
    assert counts["stack"]["LDL"] > 0
    padded = "\n".join([
        ".text.k:",
        "        /*0070*/              @!PT LDS RZ, [RZ] ;",
        "        /*0080*/               @P0 LDS R1, [R2] ;",
        "        /*0090*/                   NOP ;",
        "        /*00a0*/              @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;",
    ])  # fmt: skip
    assert count_opcodes(padded) == {"k": {"LDS": 1, "UIADD3": 1}}


@disassembles
def test_a_file_that_the_disassembler_refuses_is_a_typed_error() -> None:
    with pytest.raises(CompileError, match="nvdisasm"):
        disassemble(b"not a binary")


def test_advisories_and_warnings_of_ptxas_are_told_apart() -> None:
    report = parse_ptxas_log(
        "ptxas warning : Value of threads per SM for entry k is out of range. .minnctapersm will be ignored\n"
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
        "ptxas info    : Function properties for k\n"
        "ptxas         .     824 bytes stack frame, 1116 bytes spill stores, 1144 bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 2 barriers, 824 bytes cumulative stack size, 1024 bytes smem\n"
        "ptxas info    : Compile time = 48.600 ms\n"
    )
    assert report.warnings == ("Value of threads per SM for entry k is out of range. .minnctapersm will be ignored",)
    assert report.advisories == ("(C7508) Potential Performance Loss: 'setmaxnreg' ignored",)
    usage = report.kernels["k"]
    assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (1116, 1144, 824)
    assert (usage.registers, usage.barriers, usage.static_shared_bytes, usage.milliseconds) == (32, 2, 1024, 48.6)


def test_diagnostics_are_read_with_their_lines() -> None:
    found = parse_diagnostics(
        'k.cu(10): error: identifier "cp_async" is undefined\n'
        "      cp_async<4>(s, g);\n"
        'k.cu(7): warning #177-D: variable "one" was declared but never referenced\n'
        '1 error detected in the compilation of "k.cu".\n'
        "ptxas info    : 0 bytes gmem\n"
    )
    assert [(entry.severity, entry.file, entry.line) for entry in found] == [
        ("error", "k.cu", 10),
        ("warning", "k.cu", 7),
    ]


@pytest.mark.parametrize(
    ("architecture", "registers", "threads", "shared_bytes", "blocks"),
    [
        ("sm_80", 128, 128, 0, 4),  # registers: 16 warps of 4096
        ("sm_80", 32, 128, 81_920, 2),  # shared memory: 167 936 bytes, each block 82 944
        ("sm_80", 32, 1024, 0, 2),  # threads: 2048
        ("sm_86", 32, 1024, 0, 1),  # threads: 1536
        ("sm_80", 16, 32, 0, 32),  # blocks
        ("sm_90a", 168, 384, 229_376, 1),  # the shape of a ping-pong kernel
        ("sm_80", 32, 128, 200_000, 0),  # cannot be launched
        ("sm_80", 255, 1024, 0, 0),  # 8 warps have registers, 32 are needed
    ],
)
def test_resident_blocks_follow_the_scarcest_resource(
    architecture: str, registers: int, threads: int, shared_bytes: int, blocks: int
) -> None:
    kernel = CubinKernel(
        name="k",
        sm=80,
        registers=registers,
        stack_bytes=0,
        static_shared_bytes=0,
        reserved_shared_bytes=0,
        parameter_bytes=0,
        max_threads=threads,
        code_bytes=1,
    )
    assert resident_blocks(kernel, load_gpu(architecture), threads=threads, shared_bytes=shared_bytes) == blocks


@pytest.mark.parametrize(("late", "answers"), [(1, True), (2, False)])
def test_a_disassembler_that_is_late_is_asked_once_more(
    late: int, answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvdisasm"
    asked = tmp_path / "asked"
    tool.write_text(f'#!/bin/sh\necho >> "{asked}"\n[ $(wc -l < "{asked}") -gt {late} ] || exec sleep 60\necho said\n')
    tool.chmod(0o700)
    monkeypatch.setattr(sass, "find_disassembler", lambda: tool)
    monkeypatch.setattr(sass, "_SECONDS", 2.0)
    if answers:
        assert disassemble(b"cubin") == "said\n"
    else:
        with pytest.raises(CompileError, match="stopped after 2 s, 2 times"):
            disassemble(b"cubin")
