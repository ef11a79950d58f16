from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tracea.runtime.compiler as compiler_module
from tracea.errors import CacheCorrupt, CompileError, InvalidOption, RunError, ToolchainMissing
from tracea.runtime import cache, compiler_process, toolchain
from tracea.runtime.awake_clock import AwakeClock
from tracea.runtime.cache import default_store
from tracea.runtime.compiler import build_library, compile, compile_object, headers_digest, include_directory
from tracea.runtime.native import launcher_directory
from tracea.runtime.program import Call, InputSlot, OutputSlot, Program
from tracea.runtime.toolchain import ISA_FLAGS, CompilerFamily, compile_flags, compilers, find_compiler
from tracea.runtime.unit import unit_text


@pytest.fixture
def fresh(empty_cache, monkeypatch):
    """A cache of this test's own and a process that has loaded nothing."""
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    return empty_cache


@pytest.fixture
def counted(monkeypatch):
    """Every command that is given to a compiler."""
    commands = []
    real = compiler_module.run_compiler
    monkeypatch.setattr(
        compiler_module, "run_compiler", lambda command, *rest: (commands.append(command), real(command, *rest))[1]
    )
    return commands


def run_scale(kernel, kit) -> bool:
    call = Call.binding(
        kernel, pointers={"x": InputSlot(0), "y": OutputSlot(0)}, integers={"n": kit.N}, scalars={"a": 2.0}
    )
    program = Program(calls=(call,), inputs=(kit.vector(),), outputs=(kit.vector(),))
    return bool((program.run(np.ones(kit.N, np.float32)) == 2).all())


def test_several_kernels_are_one_library(kit, fresh, counted):
    sources = [kit.scale_source(f"scale_{i}") for i in range(3)]
    kernels = compile(sources)
    assert len(counted) == 2  # the precompiled header, and one unit
    assert len({kernel.library.path for kernel in kernels}) == 1
    assert len({kernel.address for kernel in kernels}) == 3
    assert all(run_scale(kernel, kit) for kernel in kernels)
    before = len(counted)  # the launcher may have been among them
    assert compile([]) == ()
    assert compile(sources)[0].library is kernels[0].library
    assert len(counted) == before


def test_a_second_process_compiles_nothing(kit, fresh, counted, monkeypatch):
    monkeypatch.setattr(toolchain, "_known", {})
    told = []
    compile([kit.scale_source()], before=lambda: told.append(1))
    before = len(counted)
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    monkeypatch.setattr(cache, "_process", cache._Process())
    monkeypatch.setattr(toolchain, "_known", {})
    monkeypatch.setattr(toolchain, "_examine", lambda *_: pytest.fail("the compiler was examined again"))
    assert run_scale(compile([kit.scale_source()], before=lambda: told.append(2))[0], kit)
    assert len(counted) == before
    assert told == [1]  # a step that is not done is not said


def test_only_kernels_are_exported(kit, fresh):
    library = build_library([kit.scale_source("one"), kit.scale_source("two")])
    listed = subprocess.run(["nm", "-D", "--defined-only", library.path], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == {"one", "two"}


def test_one_name_has_one_text_and_one_unit_has_one_isa(kit):
    with pytest.raises(InvalidOption, match="one text for each name"):
        unit_text([kit.scale_source("same"), replace(kit.scale_source("same"), text="int other;")])
    with pytest.raises(InvalidOption, match="one isa"):
        compile([kit.scale_source("a"), kit.scale_source("b", isa="avx2")])
    with pytest.raises(InvalidOption, match="avx512"):
        compile([kit.scale_source("a", isa="sse; rm -rf /")])


def test_a_source_that_does_not_compile_is_an_error_with_command_and_log(kit, fresh):
    broken = replace(kit.scale_source("broken"), text="this is no C++;")
    with pytest.raises(CompileError, match=r"g\+\+.*error") as caught:
        compile([broken])
    assert caught.value.exit_code == 1
    assert str(caught.value.command[-1]).endswith("source.cpp")
    assert "source.cpp:4:1: error" in caught.value.log
    assert list((fresh / "v1" / "building").iterdir()) == []


def test_a_kernel_without_its_symbol_is_an_error(kit, fresh):
    with pytest.raises(RunError, match="no such symbol"):
        compile([replace(kit.scale_source("absent"), text='#include "tracea/team.h"\n')])


def test_a_compilation_that_takes_too_long_is_stopped_with_its_children(kit, fresh, tmp_path, monkeypatch):
    slow = tmp_path / "slow++"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "slow 1.0" && exit 0\nsleep 3157 & wait\n')
    slow.chmod(0o755)
    monkeypatch.setenv("TRACEA_CXX", str(slow))
    begin = time.monotonic()
    with pytest.raises(CompileError, match=r"stopped after 0\.3 s"):
        compile([kit.scale_source()], timeout_seconds=0.3)
    assert time.monotonic() - begin < 5
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 3157" not in listed.splitlines()


def test_time_in_which_this_process_was_stopped_is_not_the_compilers(monkeypatch, tmp_path):
    # The process is stopped for an hour at its first look after the start, and the compiler needs a moment more.
    times = iter([0.0, 0.0, 3600.0, *(3600.0 + 0.1 * step for step in range(1, 100))])
    clock = partial(AwakeClock, clock=lambda: next(times))
    monkeypatch.setattr(compiler_process, "AwakeClock", clock)
    monkeypatch.setattr(compiler_process, "_LOOK_SECONDS", 0.05)
    compiler_process.run_compiler(["sh", "-c", "sleep 0.3"], 300.0, tmp_path)
    times = iter([0.0, 0.0, 3600.0, *(3600.0 + 2.0 * step for step in range(1, 100))])
    with pytest.raises(CompileError, match="stopped after 20 s"):
        compiler_process.run_compiler(["sleep", "60"], 20.0, tmp_path)


def test_the_limit_of_a_compilation_grows_with_the_kernels_of_the_unit(kit, fresh, monkeypatch):
    allowed = []

    def stop(command, seconds, place, product):
        allowed.append(seconds)
        return real(["sleep", "60"], 0.05, place)

    real = compiler_module.run_compiler
    monkeypatch.setattr(compiler_module, "run_compiler", stop)
    for count in (1, 62, 500):
        with pytest.raises(CompileError, match="fewer programs use the machine") as caught:
            build_library([kit.scale_source(f"scale_{number}") for number in range(count)])
        assert "schedule" not in caught.value.remedy  # nobody chose one who compiles a whole model
    assert allowed == [300.0, 1240.0, 1800.0]
    with pytest.raises(CompileError):
        build_library([kit.scale_source(f"scale_{number}") for number in range(62)], timeout_seconds=2.0)
    assert allowed[-1] == 2.0


def test_every_source_is_dumped_on_request(kit, fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEA_DUMP", str(tmp_path / "dump"))
    source = kit.scale_source("dumped")
    compile([source])
    assert (tmp_path / "dump" / "dumped.plain.cpp").read_text() == source.text


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none"])
def test_a_place_that_takes_no_dump_is_named(kit, fresh, tmp_path, monkeypatch, place):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("TRACEA_DUMP", str(tmp_path / place))
    with pytest.raises(InvalidOption, match=r"TRACEA_DUMP: got .*, expected a folder.* unset TRACEA_DUMP \("):
        compile([kit.scale_source("dumped")])


def key_of(**changes) -> str:
    given = {"text": "int x;", "isa": "plain", "name": "key", **changes}
    return compile_object(given.pop("text"), **given)[0]


def test_the_key_changes_with_every_ingredient(fresh, tmp_path, monkeypatch):
    """Mutate each thing that the library depends on, and see another key; change nothing, and see the same."""
    monkeypatch.setattr(
        compiler_module, "run_compiler", lambda command, *_: Path(command[command.index("-o") + 1]).touch()
    )
    compiler = find_compiler()
    keys = {"base": key_of()}
    assert key_of(name="another label") == keys["base"]
    keys["source"] = key_of(text="int y;")
    keys["isa"] = key_of(isa="avx2")
    keys["flags"] = key_of(extra_flags=("-DX",))
    keys["compiler"] = key_of(compiler=replace(compiler, identity="another"))
    keys["identity"] = key_of(identity={"numpy": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "__version__", "999")
        keys["version"] = key_of()
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module.platform, "machine", lambda: "riscv64")
        keys["machine"] = key_of()
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module.platform, "libc_ver", lambda: ("glibc", "9.99"))
        keys["libc"] = key_of()
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "_LINK", ("-shared",))
        keys["link"] = key_of()
    with monkeypatch.context() as patch:
        folder = tmp_path / "include"
        shutil.copytree(include_directory(), folder)
        patch.setattr(compiler_module, "include_directory", lambda: folder)
        assert key_of() == keys["base"]
        abi = folder / "tracea" / "abi.h"
        abi.write_text(abi.read_text() + "\n")
        keys["header"] = key_of()
        (folder / "tracea" / "new.h").write_text("")
        keys["new header"] = key_of()
    assert len(set(keys.values())) == len(keys), keys
    assert key_of() == keys["base"]


def test_a_compiler_that_was_replaced_is_another_compiler(fresh, tmp_path, monkeypatch):
    fake = tmp_path / "g++"
    monkeypatch.setenv("TRACEA_CXX", str(fake))
    identities = []
    for text in ("echo fake 1.0", "echo fake 1.1", "echo fake 1.1 # rebuilt"):
        fake.write_text(f"#!/bin/sh\n{text}\n")
        fake.chmod(0o755)
        identities.append(find_compiler().identity)
        assert find_compiler().identity == identities[-1]
    assert len(set(identities)) == 3


def test_a_library_whose_cache_is_gone_lies_where_it_was_built_again(kit, fresh, counted, tmp_path, monkeypatch):
    program = kit.sixfold()
    shutil.rmtree(fresh)
    monkeypatch.setenv("TRACEA_CACHE_DIR", str(tmp_path / "other"))
    counted.clear()
    again = kit.sixfold()
    assert len(counted) == 2  # the precompiled header, and one unit
    assert again.calls[0].kernel.library.path.is_relative_to(tmp_path / "other")
    assert again.calls[0].kernel.address == program.calls[0].kernel.address
    kit.sixfold()
    assert len(counted) == 2
    program.save(tmp_path / "program.tracea")
    assert len(counted) == 2


@pytest.mark.parametrize("damage", ["empty", "halved", "flipped"])
def test_a_damaged_library_is_rebuilt_and_runs(kit, fresh, counted, monkeypatch, damage):
    source = kit.scale_source(f"damaged_{damage}")
    path = compile([source])[0].library.path
    whole = path.read_bytes()
    middle = len(whole) // 2
    broken = {
        "empty": b"",
        "halved": whole[:middle],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    }
    path.unlink()  # the loaded one stays mapped
    path.write_bytes(broken[damage])
    monkeypatch.setattr(compiler_module._registry, "libraries", {})
    monkeypatch.setattr(cache, "_process", cache._Process())
    before = len(counted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = compile([source])[0]
    assert [type(one.message) for one in caught] == [CacheCorrupt]
    assert len(counted) == before + 1
    assert run_scale(kernel, kit)


def test_eight_processes_compile_one_kernel_once(in_child, tmp_path):
    log = tmp_path / "compiler.log"
    wrapper = tmp_path / "g++"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo "run $*" >> {log}\nexec {shutil.which("g++")} "$@"\n')
    wrapper.chmod(0o755)
    text = "import numpy as np\nkit.compile_kernels([kit.scale_source()])\n"
    source = str(Path(__file__).parents[2] / "src")
    prelude = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('kit', {str(Path(__file__).with_name('conftest.py'))!r})\n"
        "kit = importlib.util.module_from_spec(spec); sys.modules['kit'] = kit; spec.loader.exec_module(kit)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "TRACEA_CXX": str(wrapper),
        "TRACEA_CACHE_DIR": str(tmp_path / "cache"),
    }
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", prelude + text], env=environment) for _ in range(8)
    ]
    assert [process.wait(120) for process in processes] == [0] * 8
    runs = log.read_text().splitlines()
    assert len(runs) == 2, runs  # the precompiled header, and the unit


def test_a_compiler_is_found_and_named():
    compiler = find_compiler()
    assert compiler in compilers()
    assert compiler.path.is_absolute()
    assert compiler.version
    assert len(compiler.identity) == 64
    assert compiler.family in CompilerFamily


def test_flags_name_the_isa_and_never_the_machine():
    for isa in ISA_FLAGS:
        flags = compile_flags(find_compiler(), isa)
        # Tiles stand beside AVX-512's vectors: one unit holds kernels of both.
        vectors = "avx512" if isa == "amx" else isa
        assert f"-DTRACEA_ISA_{vectors.upper()}" in flags
        assert ("-DTRACEA_AMX" in flags) == (isa == "amx")
        assert not any("native" in flag or "fast-math" in flag for flag in flags)
        assert "-ffp-contract=off" in flags


def test_no_compiler_is_an_error_that_names_the_remedy(fresh, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    assert compilers() == ()
    with pytest.raises(ToolchainMissing, match="pip install ziglang"):
        find_compiler()


@pytest.mark.parametrize("given", ["/no/such/compiler", "false", "'unclosed", "   "])
def test_a_wrong_choice_of_compiler_is_named(fresh, monkeypatch, given):
    monkeypatch.setenv("TRACEA_CXX", given)
    with pytest.raises(InvalidOption, match="TRACEA_CXX"):
        find_compiler()


FAMILIES = [
    CompilerFamily.GCC,
    CompilerFamily.CLANG,
    pytest.param(CompilerFamily.ZIG, marks=pytest.mark.slow),  # builds its runtime library first: 2 minutes
]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_compiler_that_is_here_builds_a_kernel_that_runs(kit, family):
    found = [compiler for compiler in compilers() if compiler.family is family]
    if not found:
        pytest.skip(f"no {family.value} on this machine")
    for isa in ("plain", "avx2", "avx512"):
        from tracea.runtime.native import launcher

        if launcher().supports(isa):
            (kernel,) = compile([kit.scale_source(f"by_{family.value}_{isa}", isa=isa)], compiler=found[0])
            assert run_scale(kernel, kit)


def test_our_native_sources_compile_without_a_warning(tmp_path):
    import sysconfig

    flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-DTRACEA_ISA_PLAIN", "-fsyntax-only"]
    python = ["-isystem", sysconfig.get_path("include"), "-isystem", np.get_include()]
    folders = [f"-I{launcher_directory()}", f"-I{include_directory()}"]
    for source in sorted(launcher_directory().glob("*.cpp")):
        done = subprocess.run(
            ["g++", *flags, *folders, *python, str(source)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_a_kernel_compiles_fast_once_the_header_is_precompiled(kit, fresh):
    compile([kit.scale_source("first", isa="avx512")])
    begin = time.monotonic()
    compile([kit.scale_source("second", isa="avx512")])
    assert time.monotonic() - begin < 1.5


def test_headers_are_digested_by_name_and_content(tmp_path):
    (tmp_path / "a.h").write_text("one")
    first = headers_digest(tmp_path)
    (tmp_path / "a.h").write_text("two")
    os.utime(tmp_path / "a.h", ns=(1, 1))
    second = headers_digest(tmp_path)
    (tmp_path / "a.h").rename(tmp_path / "b.h")
    assert len({first, second, headers_digest(tmp_path)}) == 3
    assert default_store() is default_store()
