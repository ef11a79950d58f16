"""The NEON text, cross-compiled by the ziglang wheel and executed under qemu-user, against float64."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernels.cases import chain_cases, gemm_cases, reduce_cases
from tests.kernels.conformance import Built, Case, Tensor, build, random_inputs
from tests.kernels.conv_cases import conv_cases
from tests.kernels.dot_cases import dot_cases
from tests.kernels.native import INCLUDE, RUNNER, round_up
from tests.kernels.pixel_cases import pixel_cases
from tests.kernels.row_cases import row_cases
from tests.kernels.winograd_cases import winograd_cases

from tracea.core.accuracy import error_bound
from tracea.core.reference import evaluate
from tracea.core.tensor_type import TensorType
from tracea.emitters.kernel_source import KernelSource
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import find
from tracea.semantic.tile_kernel import BufferRole

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
GROUPS = {
    "gemm": gemm_cases(),
    "convolutions": conv_cases(),
    "pixels": pixel_cases(),
    "dot": dot_cases(),
    "winograd": winograd_cases(),
    "rows": row_cases(),
    "chains": chain_cases(),
    "reductions": reduce_cases(),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not here"),
    pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the ziglang wheel is not installed"),
]

# Reads calls from standard input (six numbers, the integers, then sizes and bytes) and writes every buffer back.
SERVER = """
#include <stdio.h>
#include <stdlib.h>
static void* block(int64_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, static_cast<size_t>(bytes > 0 ? bytes : 1)) != 0) abort();
  memset(p, 0xFF, static_cast<size_t>(bytes));
  return p;
}
int main() {
  int64_t head[6];  // kernel, threads, pointers, integers, team bytes, bytes of a thread
  while (fread(head, 8, 6, stdin) == 6) {
    std::vector<int64_t> integers(static_cast<size_t>(head[3]) + 1);
    if (fread(integers.data(), 8, static_cast<size_t>(head[3]), stdin) != static_cast<size_t>(head[3])) return 1;
    std::vector<void*> pointers;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < head[2]; ++i) {
      int64_t bytes = 0;
      if (fread(&bytes, 8, 1, stdin) != 1) return 1;
      void* p = block(bytes);
      if (fread(p, 1, static_cast<size_t>(bytes), stdin) != static_cast<size_t>(bytes)) return 1;
      pointers.push_back(p);
      sizes.push_back(bytes);
    }
    char* team = static_cast<char*>(block(head[4]));
    char* thread = static_cast<char*>(block(head[5] * head[1]));
    const tracea_call call = {pointers.data(), integers.data(), nullptr, team, thread, head[5], nullptr, 0};
    tracea_test_run(kernels[head[0]], &call, static_cast<int32_t>(head[1]));
    for (size_t i = 0; i < pointers.size(); ++i) fwrite(pointers[i], 1, static_cast<size_t>(sizes[i]), stdout);
    fflush(stdout);
    for (void* p : pointers) free(p);
    free(team);
    free(thread);
  }
}
"""


class Emulated:
    """A process that runs the kernels of a group under qemu-user."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        sources = {source.name: source for case in cases for source in build(case, "neon").sources}
        self._index = {name: position for position, name in enumerate(sources)}
        declared = "\n".join(f'extern "C" void {name}(const tracea_call*, int32_t);' for name in sources)
        table = f"static const tracea_kernel kernels[] = {{{', '.join(sources)}}};"
        text = "\n".join([*(source.text for source in sources.values()), RUNNER, declared, table, SERVER])
        unit, binary = folder / "unit.cpp", folder / "unit"
        unit.write_text(text, encoding="utf-8")
        flags = ["-target", "aarch64-linux-musl", "-std=c++20", "-O1", "-DTRACEA_ISA_NEON", f"-I{INCLUDE}", "-static"]
        command = [sys.executable, "-m", "ziglang", "c++", *flags, str(unit), "-o", str(binary)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[:2000]
        assert QEMU is not None
        self._process = subprocess.Popen([QEMU, str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, source: KernelSource, tensors: Sequence[Tensor], values: Mapping[str, int], *, threads: int) -> None:
        """Run a kernel on copies of the tensors' memory and copy the results back."""
        integers = [values[name] for name in source.integers]
        team = round_up(int(source.team_scratch_bytes.evaluate(values)))
        thread = round_up(int(source.thread_scratch_bytes.evaluate(values)))
        head = [self._index[source.name], threads, len(tensors), len(integers), team, thread]
        send, receive = self._process.stdin, self._process.stdout
        assert send is not None
        assert receive is not None
        send.write(struct.pack(f"<{6 + len(integers)}q", *head, *integers))
        for tensor in tensors:
            send.write(struct.pack("<q", tensor.memory.size) + tensor.memory.tobytes())
        send.flush()
        for tensor in tensors:
            tensor.memory[...] = np.frombuffer(receive.read(tensor.memory.size), np.uint8)

    def close(self) -> None:
        """End the process and assert that it ended well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(timeout=60) == 0


def check(emulated: Emulated, built: Built, rng: np.random.Generator) -> None:
    """Assert that a kernel's result under emulation is within the accuracy contract."""
    op = built.case.op
    inputs = random_inputs(op, rng)
    tensors = [Tensor(type_, value) for type_, value in zip(op.operands, inputs, strict=True)]
    result = Tensor(op.infer(), None)
    values: dict[str, Any] = arguments(built.kernel, op)
    position = find(built.case.variant).constant_operand
    if built.pack is not None and built.pack_source is not None and position is not None:
        panels = next(buffer for buffer in built.pack.buffers if buffer.role is BufferRole.OUTPUT)
        packed = Tensor(TensorType(tuple(int(s.evaluate(values)) for s in panels.shape), panels.dtype), None)
        emulated.call(built.pack_source, [tensors[position], packed], arguments(built.pack, op), threads=2)
        tensors[position] = packed
    emulated.call(built.source, [*tensors, result], values, threads=2)
    got, expected = result.array.astype(np.float64), evaluate(op, inputs)
    bound = error_bound(op, inputs, worst_case=True)
    assert (np.abs(got - expected) <= bound).all(), built.case.name


@pytest.mark.parametrize("group", GROUPS)
def test_neon_kernels_match_float64_under_emulation(group: str, tmp_path: Path, rng: np.random.Generator) -> None:
    emulated = Emulated(GROUPS[group], tmp_path)
    try:
        for case in GROUPS[group]:
            check(emulated, build(case, "neon"), rng)
    finally:
        emulated.close()
