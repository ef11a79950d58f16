from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tracea.errors import InvalidOption
from tracea.runtime.compiler import include_directory
from tracea.runtime.native import SOURCES, check_threads, launcher, launcher_directory

RUN = "import numpy as np\nx = np.ones(kit.N, np.float32)\nprogram = kit.sixfold()\n"
CHECK = "assert (program.run(x, threads={threads}) == 6).all()\n"


def test_torchs_threads_are_used_where_torch_is_loaded():
    assert "libgomp" in launcher().thread_source()
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert launcher().threads() == 3
    finally:
        torch.set_num_threads(before)
    assert launcher().threads() == before


def test_the_first_call_of_a_process_has_torchs_threads(in_child):
    ask = "from tracea.runtime.native import launcher\n"
    torchs = "import torch\ntorch.set_num_threads(3)\n"
    for before in (torchs + ask, ask + torchs, ask + "launcher().threads()\n" + torchs):
        assert in_child(before + "print(launcher().threads())\n", TRACEA_THREADS="(unset)").stdout.strip() == "3"


def test_a_call_that_has_no_program_yet_is_made_for_torchs_threads(in_child):
    in_child(
        "import numpy as np\n"
        "from tracea.runtime.extension import dispatcher\n"
        "from tracea.runtime.native import launcher\n"
        "asked = []\n"
        "ask = dispatcher(1, lambda arrays, out, attributes, threads: asked.append(threads) or 'no program')\n"
        "ask(np.ones(3, np.float32), None)\n"
        "import torch\n"
        "torch.set_num_threads(3)\n"
        "ask(torch.ones(3), None)\n"
        "torch.set_num_threads(1)\n"
        "ask(torch.ones(3), None)\n"
        "assert asked[1:] == [3, 1], asked\n",
        TRACEA_THREADS="(unset)",
    )


def test_without_an_openmp_runtime_the_launchers_own_pool_serves(in_child):
    in_child(
        RUN
        + CHECK.format(threads=3) * 20
        + "from tracea.runtime.native import launcher\n"
        + "assert launcher().thread_source() == '', launcher().thread_source()\n"
        + "assert launcher().statistics().workers == 2\n"
        + "size, came, aligned, own = kit.team_program().run(threads=3, out=np.zeros(4, np.int32))\n"
        + "assert (size, came, aligned, own) == (3, 3, 1, 1)\n"
        + "import os\n"
        + "assert launcher().threads() == len(os.sched_getaffinity(0))\n"
        + "import torch\n"
        + "assert (kit.sixfold().run(x) == 6).all()\n"
        + "assert 'libgomp' in launcher().thread_source()\n",
        TRACEA_THREADS="(unset)",
    )


def test_the_environment_sets_the_default_and_is_checked(in_child):
    read = "from tracea.runtime.native import launcher\nprint(launcher().threads())\n"
    assert in_child(read, TRACEA_THREADS="5").stdout.strip() == "5"
    for wrong in ("0", "-1", "many", "1e3", "99999", "²"):
        done = in_child(read, check=False, TRACEA_THREADS=wrong)
        assert "InvalidOption: TRACEA_THREADS" in done.stderr


@pytest.mark.parametrize(
    "module", ["", "import torch\ntorch.ones(300, 300) @ torch.ones(300, 300)\n"], ids=["pool", "torch"]
)
def test_a_program_runs_in_a_child_after_fork(in_child, module):
    in_child(
        module
        + RUN
        + CHECK.format(threads=3)
        + "import os\n"
        + "pid = os.fork()\n"
        + "if pid == 0:\n"
        + "    ok = all((program.run(x, threads=t) == 6).all() for t in (1, 2, 3, None) for _ in range(5))\n"
        + "    report = kit.team_program().run(threads=2, out=np.zeros(4, np.int32))\n"
        + "    os._exit(0 if ok and list(report) == [2, 2, 1, 1] else 1)\n"
        + "assert os.waitpid(pid, 0)[1] == 0\n"
        + CHECK.format(threads=3),
        timeout=60,
    )


def test_the_first_call_of_all_may_be_in_a_child_whose_parent_had_torchs_threads(in_child):
    in_child(
        "import os, torch, tracea\n"
        + "torch.set_num_threads(2)\n"
        + "torch.ones(2000, 2000).exp()\n"  # the parent's threads, which a child has not
        + "pid = os.fork()\n"
        + "if pid == 0:\n"
        + "    import numpy as np\n"
        + "    x = np.ones((4096, 256), np.float32)\n"
        + "    os._exit(0 if np.allclose(tracea.ops.softmax(x), 1 / 256) else 1)\n"
        + "assert os.waitpid(pid, 0)[1] == 0\n",
        timeout=120,
    )


def test_a_program_that_runs_at_the_interpreters_end_reads_nothing_freed(in_child):
    done = in_child(
        "import atexit\n"
        + "def last():\n"
        + "    for _ in range(20): assert (program.run(x, threads=2) == 6).all()\n"
        + "    print('ran')\n"
        + "atexit.register(last)\n"  # before any finalizer's, so that it runs behind them
        + RUN
        + CHECK.format(threads=2),
        timeout=60,
    )
    assert done.stdout.strip() == "ran"


def test_a_librarys_product_runs_in_a_child_after_fork(in_child):
    in_child(
        "import os, numpy as np, torch\n"
        + "from tracea.core.op import GemmOp\n"
        + "from tracea.flow.compile import compile_node\n"
        + "torch.set_num_threads(2)\n"
        + "a, b = torch.ones(512, 512), torch.ones(512, 512)\n"
        + "program = compile_node(GemmOp.of(m=512, n=512, k=512), {}, threads=2, variant='library.gemm').program\n"
        + "assert program.run(a, b, threads=2).eq(512).all()\n"
        + "pid = os.fork()\n"
        # By NumPy: torch's own comparison would wait for the parent's threads.
        + "if pid == 0: os._exit(0 if (program.run(a, b, threads=2).numpy() == 512).all() else 1)\n"
        + "assert os.waitpid(pid, 0)[1] == 0\n",
        timeout=60,
    )


def test_a_fork_while_other_threads_run_leaves_no_lock_held(in_child):
    in_child(
        RUN
        + CHECK.format(threads=2)  # compiled now: Python allows no fork beside a thread that waits for a compiler
        + "import os, threading\n"
        + "stop = threading.Event()\n"
        + "def work():\n"
        + "    while not stop.is_set(): program.run(x, threads=2)\n"
        + "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        + "[thread.start() for thread in threads]\n"
        + "for _ in range(20):\n"
        + "    pid = os.fork()\n"
        + "    if pid == 0: os._exit(0 if (program.run(x, threads=2) == 6).all() else 1)\n"
        + "    assert os.waitpid(pid, 0)[1] == 0\n"
        + "stop.set()\n"
        + "[thread.join() for thread in threads]\n",
        timeout=60,
    )


def test_fewer_threads_than_asked_for_never_deadlock(in_child):
    done = in_child(
        "import torch\n"
        + RUN
        + CHECK.format(threads=8)
        + "print(*kit.team_program().run(threads=8, out=np.zeros(4, np.int32)))\n",
        OMP_THREAD_LIMIT="3",
        timeout=60,
    )
    size, came, aligned, own = map(int, done.stdout.split())
    assert size == came <= 3
    assert (aligned, own) == (1, 1)


NESTED = r"""
#include <omp.h>
#include "launcher.h"
extern "C" int nested(const tracea_program* program, void* const* inputs, void** outputs, int count) {
    int failed = 0;
    #pragma omp parallel for num_threads(2) reduction(+ : failed)
    for (int i = 0; i < count; ++i) failed += tracea_program_run(program, inputs, &outputs[i], 3);
    return failed;
}
"""


def test_a_program_runs_inside_a_parallel_region(kit, tmp_path):
    import ctypes

    source = tmp_path / "nested.cpp"
    source.write_text(NESTED)
    library = tmp_path / "libnested.so"
    folders = [f"-I{launcher_directory()}", f"-I{include_directory()}"]
    subprocess.run(
        [
            "g++",
            "-shared",
            "-fPIC",
            "-fopenmp",
            *folders,
            str(source),
            "-o",
            str(library),
            str(launcher().library.path),
        ],
        check=True,
        capture_output=True,
    )
    nested = ctypes.CDLL(str(library)).nested
    program = kit.sixfold()
    x = np.ones(kit.N, np.float32)
    results = [np.zeros(kit.N, np.float32) for _ in range(6)]
    inputs = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 6)(*(result.ctypes.data for result in results))
    assert nested(ctypes.c_void_p(program.handle), inputs, outputs, 6) == 0
    assert all((result == 6).all() for result in results)


RACE = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "launcher.h"
#include "tracea/team.h"

static void fill(const tracea_call* call, int32_t rank) {
    int64_t* out = static_cast<int64_t*>(call->pointers[1]);
    const int64_t* in = static_cast<const int64_t*>(call->pointers[0]);
    int64_t* mine = reinterpret_cast<int64_t*>(tracea::thread_scratch(call, rank));
    *mine = rank;
    for (tracea::TaskLoop loop(call, rank, 0, 40); loop.next();) out[loop.task()] = in[39 - loop.task()] + 1;
}

struct Job {
    const tracea_program* program;
    int failed;
};

static void* work(void* argument) {
    Job* job = static_cast<Job*>(argument);
    int64_t in[40];
    int64_t out[40];
    for (int round = 0; round < 60; ++round) {
        for (int i = 0; i < 40; ++i) in[i] = i * round;
        void* inputs[] = {in};
        void* outputs[] = {out};
        job->failed += tracea_program_run(job->program, inputs, outputs, 1 + round % 4);
        for (int i = 0; i < 40; ++i) job->failed += out[i] != in[i] + 2;
    }
    return nullptr;
}

int main() {
    const int64_t kernel = static_cast<int64_t>(reinterpret_cast<uintptr_t>(&fill));
    // arena <- f(input); output <- f(arena)
    const int64_t words[] = {1, 1, 1, 320, 2,
                             0, kernel, 1, 0, 64, 2, 0, 0, 0, 0, 0, 3, 0, 0,
                             0, kernel, 1, 0, 64, 2, 0, 0, 3, 0, 0, 1, 0, 0};
    tracea_program* program = nullptr;
    if (tracea_program_create(words, sizeof(words) / 8, &program) != 0) return 2;
    pthread_t threads[3];
    Job jobs[3];
    for (int i = 0; i < 3; ++i) {
        jobs[i] = {program, 0};
        pthread_create(&threads[i], nullptr, work, &jobs[i]);
    }
    int failed = 0;
    for (int i = 0; i < 3; ++i) {
        pthread_join(threads[i], nullptr);
        failed += jobs[i].failed;
    }
    tracea_statistics statistics;
    tracea_get_statistics(&statistics);
    tracea_trim();
    tracea_program_destroy(program);
    printf("workers %ld\n", static_cast<long>(statistics.workers));
    return failed == 0 && statistics.workers > 0 ? 0 : 1;
}
"""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_launcher_is_clean_under_a_sanitizer(tmp_path, sanitizer):
    program = tmp_path / "race"
    (tmp_path / "race.cpp").write_text(RACE)
    folders = [f"-I{launcher_directory()}", f"-I{include_directory()}"]
    sources = [str(launcher_directory() / name) for name in SOURCES]
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-DTRACEA_ISA_PLAIN"]
    built = subprocess.run(
        ["g++", *flags, *folders, str(tmp_path / "race.cpp"), *sources, "-o", str(program), "-pthread", "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find -l" in built.stderr:
        pytest.skip(f"this compiler has no runtime for -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    # TSan needs the address space as it expects it; newer kernels randomise more of it.
    command = (
        ["setarch", "-R", str(program)]
        if sanitizer == "thread" and Path("/usr/bin/setarch").exists()
        else [str(program)]
    )
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_thread_count_in_quotes_is_told_with_them():
    with pytest.raises(InvalidOption, match="threads: got '1', expected a whole number from 1 to 1024"):
        check_threads("1")
