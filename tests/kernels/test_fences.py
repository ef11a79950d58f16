"""No kernel touches a byte beyond its operands, its result and its scratch, and no two threads race."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.cases import cases_for
from tests.kernels.native import CXX, has_tiles, run_isas

ROOT = Path(__file__).parents[2]
VECTORS = [isa for isa in run_isas() if isa.values != ("plain",)]


def child(*arguments: str, preload: str | None = None, wrapper: tuple[str, ...] = (), **options: str) -> str:
    """Run tests.kernels.fenced and return what it printed."""
    environment = {**os.environ, **options}
    if preload is not None:
        environment["LD_PRELOAD"] = preload
    command = [*wrapper, sys.executable, "-m", "tests.kernels.fenced", *arguments]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, (
        f"after {result.stdout.split()[-1:]}: exit {result.returncode}\n{result.stderr[-4000:]}"
    )
    return result.stdout


def runtime_library(name: str) -> str:
    """Return the path of one of the compiler's sanitizer libraries."""
    assert CXX is not None
    path = subprocess.run([CXX, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"{CXX} has no {name}")
    return path


# The plain text's own bounds are watched by the sanitizers below.
@pytest.mark.parametrize("isa", ["amx", *VECTORS, pytest.param("plain", marks=pytest.mark.slow)])
def test_kernels_stay_between_pages_without_access(isa: str) -> None:
    if isa == "amx" and not has_tiles():
        pytest.skip("this machine has no AMX, or does not grant it")
    # Both fences in one child: building and proving all kernels takes as long as running them.
    printed = child(isa, "end,start", "-Og" if isa == "plain" else "-O1")
    assert printed.count("ran ") == len(cases_for(isa))


@pytest.mark.slow
def test_plain_build_is_clean_under_address_and_undefined_behaviour_sanitizers() -> None:
    flags = ("-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    # The driver leaks (Python's arenas); what it hands to kernels is watched block by block.
    printed = child("plain", "heap", *flags, preload=runtime_library("libasan.so"), ASAN_OPTIONS="detect_leaks=0")
    assert printed.count("ran ") == len(cases_for("plain"))


@pytest.mark.slow
def test_plain_build_has_no_race_under_thread_sanitizer() -> None:
    flags = ("-Og", "-fsanitize=thread")
    # gcc's ThreadSanitizer knows the memory map without address randomisation only.
    wrapper = (shutil.which("setarch") or "setarch", "-R")
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a process leave address randomisation")
    options = {"TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0:ignore_noninstrumented_modules=1"}
    printed = child("plain", "heap", *flags, preload=runtime_library("libtsan.so"), wrapper=wrapper, **options)
    assert printed.count("ran ") == len(cases_for("plain"))


@pytest.mark.parametrize("offset", ["before", "after"])
def test_fence_stops_a_reader_that_leaves_its_block(offset: str) -> None:
    # The fence itself is tested: a child that reads one byte outside dies by a signal.
    place = "address + 100" if offset == "after" else "address - 1"
    fence = "end" if offset == "after" else "start"
    program = (
        "import ctypes; from tests.kernels.fenced import Fenced; "
        f"address = Fenced({fence!r}).block(100); ctypes.string_at({place}, 1)"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False, timeout=120)
    assert result.returncode < 0
