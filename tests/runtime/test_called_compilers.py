"""A compiler called with arguments, or under variables that it reads, is another one: what it made is never mixed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

import tracea.runtime.compiler as compiler_module
from tracea.doctor import identify, probe_machine
from tracea.errors import InvalidOption
from tracea.runtime import cache, toolchain
from tracea.runtime.compiler import compile_object
from tracea.runtime.toolchain import find_compiler

TEXT = """
#ifndef VALUE
#define VALUE 1
#endif
extern "C" __attribute__((visibility("default"))) int value() { return VALUE; }
"""


@pytest.fixture(autouse=True)
def _fresh(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*toolchain._READ, "TRACEA_CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compiler_module, "_registry", compiler_module._Registry())
    monkeypatch.setattr(cache, "_process", cache._Process())
    monkeypatch.setattr(toolchain, "_known", {})


def value_of_library() -> int:
    import ctypes

    _, path = compile_object(TEXT, isa="plain", name="value")
    return int(ctypes.CDLL(str(path)).value())


def command() -> str:
    return shlex.join(find_compiler().command)


def test_a_library_built_under_other_arguments_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = command()
    monkeypatch.setenv("TRACEA_CXX", f"{plain} -DVALUE=2")
    assert value_of_library() == 2
    monkeypatch.setenv("TRACEA_CXX", f"{plain} -DVALUE=3")
    assert value_of_library() == 3
    monkeypatch.delenv("TRACEA_CXX")
    assert value_of_library() == 1


@pytest.mark.parametrize("name", ["CPLUS_INCLUDE_PATH", "CPATH", "COMPILER_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX"])
def test_a_variable_that_compilers_read_is_part_of_the_identity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_compiler()
    monkeypatch.setenv(name, "/some/where")
    other = find_compiler()
    assert other.identity != plain.identity
    assert (other.command, other.version) == (plain.command, plain.version)
    monkeypatch.setenv(name, "")  # as if it were not there
    assert find_compiler().identity == plain.identity


def test_names_that_are_no_text_tell_compilers_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = find_compiler()
    identities = {plain.identity}
    for name in (b"/caf\xe9", b"/caf\xe8", "/café".encode()):
        monkeypatch.setenv("CPATH", os.fsdecode(name))
        identities.add(find_compiler().identity)
    assert len(identities) == 4
    assert value_of_library() == 1
    monkeypatch.delenv("CPATH")
    link = os.fsdecode(bytes(tmp_path) + b"/g\xe9")
    os.symlink(plain.path, link)
    monkeypatch.setenv("TRACEA_CXX", f"{link} -DVALUE=2")
    assert value_of_library() == 2


def test_headers_of_a_search_path_do_not_get_into_another_runs_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chosen.h").write_text("#define CHOSEN 2\n")
    text = TEXT.replace(
        "#ifndef", '#if __has_include("chosen.h")\n#include "chosen.h"\n#define VALUE CHOSEN\n#endif\n#ifndef'
    )

    def chosen() -> int:
        import ctypes

        return int(ctypes.CDLL(str(compile_object(text, isa="plain", name="chosen")[1])).value())

    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(tmp_path))
    assert chosen() == 2
    monkeypatch.delenv("CPLUS_INCLUDE_PATH")
    assert chosen() == 1


def test_measurements_of_another_call_of_the_compiler_have_another_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = identify(probe_machine())
    monkeypatch.setenv("TRACEA_CXX", f"{command()} -DOTHER")
    found = identify(probe_machine())
    assert found.hardware == plain.hardware
    assert found.toolchain != plain.toolchain
    monkeypatch.setenv("TRACEA_CXX", "no-such-compiler")
    assert identify(probe_machine()) == plain  # nothing compiles, and who asks for it is told


@pytest.mark.parametrize("argument", sorted(toolchain._REFUSED))
def test_arguments_that_reach_beyond_the_library_are_refused(argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = command()
    monkeypatch.setenv("TRACEA_CXX", f"{plain} {argument}")
    with pytest.raises(InvalidOption, match=argument) as caught:
        find_compiler()
    assert "leave" in caught.value.remedy
    monkeypatch.setenv("TRACEA_CXX", f"{plain} -fno{argument[2:]}" if argument.startswith("-f") else plain)
    assert find_compiler().path == Path(os.path.realpath(shlex.split(plain)[0]))
