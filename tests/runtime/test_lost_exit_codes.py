"""Where SIGCHLD is ignored nobody learns how a compiler ended, and Python says 0: what it was to write tells."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

import tracea.runtime.compiler as compiler_module
from tracea.errors import CacheCorrupt, CompileError
from tracea.runtime import cache
from tracea.runtime.cache import CacheStore
from tracea.runtime.compiler import compile, compile_object
from tracea.runtime.compiler_process import run_compiler

TEXT = 'extern "C" __attribute__((visibility("default"))) int value() { return 1; }\n'


@pytest.fixture
def _fresh(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "_registry", compiler_module._Registry())
    monkeypatch.setattr(cache, "_process", cache._Process())


@pytest.fixture
def _ignored() -> Generator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_fresh", "_ignored")
def test_a_failed_compilation_is_an_error_and_no_entry(kit, empty_cache: Path) -> None:
    broken = replace(kit.scale_source("broken"), text="this is no C++;")
    for _ in range(2):
        with pytest.raises(CompileError, match=r"source\.cpp:4:1: error") as caught:
            compile([broken])
        assert caught.value.log.endswith("error: it wrote no library.so")
    kinds = {entry.ingredients["kind"] for entry in CacheStore(empty_cache).entries()}
    assert kinds <= {"compiler", "prelude"}  # the first one where this process has not asked for it before
    compile([kit.scale_source("sound")])


@pytest.mark.usefixtures("_fresh")
def test_a_compiler_that_says_it_is_done_and_wrote_nothing_failed(tmp_path: Path) -> None:
    for script in ("true", "> empty.so"):
        with pytest.raises(CompileError, match=r"exit code 0: error: it wrote no empty\.so"):
            run_compiler(["sh", "-c", f"cd {tmp_path}; {script}"], 30.0, tmp_path, "empty.so")
    run_compiler(["sh", "-c", f"echo x > {tmp_path}/empty.so"], 30.0, tmp_path, "empty.so")


@pytest.mark.usefixtures("_fresh")
def test_a_sound_entry_without_its_library_is_built_again_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def believed(command, seconds, place, product):
        """As releases did that took the exit code for all there is."""

    with monkeypatch.context() as patched:
        patched.setattr(compiler_module, "run_compiler", believed)
        patched.setattr(Path, "is_file", lambda _: True)
        key, absent = compile_object(TEXT, isa="plain", name="value")
    assert not absent.exists()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert compile_object(TEXT, isa="plain", name="value") == (key, absent)
        assert compile_object(TEXT, isa="plain", name="value") == (key, absent)
    assert absent.stat().st_size > 0
    assert [each.message.detail for each in caught if isinstance(each.message, CacheCorrupt)] == ["holds no library.so"]
