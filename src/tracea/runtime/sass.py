"""SASS: the machine code of a CUBIN as text, and how many of each instruction it has.

Worked example: ``count_opcodes(disassemble(cubin))["gemm"]["HMMA"]`` is 128: 128 tensor-core products in the text of
the kernel ``gemm``, in its main loop and outside of it.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tracea.errors import CompileError, ToolchainMissing

__all__ = ["count_opcodes", "disassemble", "find_disassembler"]

_SECONDS: Final = 60.0
_ATTEMPTS: Final = 2
_REMEDY: Final = "pip install 'tracea[cuda]'"
_KERNEL: Final = re.compile(r"^\.text\.(\S+):$")
# An address, the guard if there is one, the opcode with its modifiers.
_INSTRUCTION: Final = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
# Instructions that never run: padding, and loads that ptxas puts before LDGSTS to fill time.
_NEVER: Final = ("@!PT", "@!UPT")


def find_disassembler() -> Path | None:
    """Return where nvdisasm is: in the wheel nvidia-cuda-nvdisasm, else on PATH; None where there is none."""
    try:
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
        found = pathfinder.find_nvidia_binary_utility("nvdisasm")
    except (ImportError, AttributeError):
        found = shutil.which("nvdisasm")
    return Path(found) if found else None


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a CUBIN.

    Raises:
        ToolchainMissing: there is no nvdisasm.
        CompileError: it refused the file, or gave no answer in a minute, twice.
    """
    tool = find_disassembler()
    if tool is None:
        raise ToolchainMissing(tool="nvdisasm", searched=("nvidia-cuda-nvdisasm", "PATH"), remedy=_REMEDY)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--print-code", file.name]
        answer = _answer(command)
    if answer.returncode != 0:
        raise CompileError(command=command, log=answer.stderr or answer.stdout, exit_code=answer.returncode)
    return answer.stdout


def _answer(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command; once more where it was late, since the clock goes on while a machine sleeps or stops processes."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    log = f"stopped after {_SECONDS:g} s, {_ATTEMPTS} times"
    raise CompileError(command=command, log=log, exit_code=-signal.SIGKILL, remedy="choose a smaller schedule")


def count_opcodes(sass: str) -> Mapping[str, Counter[str]]:
    """Return for each kernel how often each opcode stands in its text: no modifiers, nothing that never runs."""
    found: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for line in sass.splitlines():
        if kernel := _KERNEL.match(line):
            counts = found.setdefault(kernel[1], Counter())
        elif instruction := _INSTRUCTION.match(line):
            guard, opcode = (instruction[1] or "").strip(), instruction[2]
            if opcode != "NOP" and guard not in _NEVER:
                counts[opcode] += 1
    return found
