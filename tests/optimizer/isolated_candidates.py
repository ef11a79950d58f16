"""Functions that the isolation tests run in a child process: each misbehaves in one way, as its request asks."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tracea.errors import CacheUnwritable, ProofFailed, VerdictFailed

_CALLS: list[str] = []


def misbehave(request: dict[str, Any]) -> Any:  # noqa: PLR0912  # one branch a misbehaviour
    """Do what ``request["act"]`` says, and otherwise answer how many calls this process has served."""
    act = request.get("act", "answer")
    _CALLS.append(act)
    match act:
        case "answer":
            return {"pid": os.getpid(), "calls": len(_CALLS), "echo": request.get("echo")}
        case "segfault":
            ctypes.string_at(0)
        case "segfault_unless_fresh":
            if len(_CALLS) > 1:
                ctypes.string_at(0)
            return {"pid": os.getpid(), "calls": len(_CALLS), "echo": None}
        case "killed_from_outside":
            with open(request["note"], "a", encoding="ascii") as file:
                file.write("x")
            if len(Path(request["note"]).read_text()) <= request["times"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"pid": os.getpid(), "calls": len(_CALLS), "echo": None}
        case "abort":
            os.abort()
        case "exit":
            os._exit(7)
        case "sleep":
            time.sleep(request["seconds"])
            return {"pid": os.getpid(), "calls": len(_CALLS), "echo": None}
        case "hang":
            while True:
                time.sleep(1.0)
        case "hang_in_native_code":
            ctypes.PyDLL(None).sleep(1000)  # PyDLL keeps the GIL: no Python thread of the child can help
        case "hang_with_grandchild":
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            print(f"grandchild {process.pid}", flush=True)
            with open(request["note"], "w", encoding="ascii") as file:
                file.write(str(process.pid))
            time.sleep(1000)
        case "eat_memory":
            blocks = []
            while True:
                blocks.append(np.ones(8 * 1024 * 1024, dtype=np.float64))
        case "eat_mapped_memory":
            libc = ctypes.CDLL(None)
            libc.mmap.restype = ctypes.c_void_p
            while True:  # shared pages, which RLIMIT_DATA does not count
                address = libc.mmap(None, ctypes.c_size_t(1 << 26), 3, 0x21, -1, ctypes.c_long(0))
                ctypes.memset(address, 1, 1 << 26)
                time.sleep(0.01)
        case "print_much":
            for _ in range(40_000):
                print("a line that fills the pipe")
            return {"pid": os.getpid(), "calls": len(_CALLS), "echo": None}
        case "raise":
            raise ValueError("not this one")
        case "refuse_proof":
            raise ProofFailed(proof="bounds", node="store", detail="row 64 of 64", remedy="mask the tail")
        case "refuse_result":
            raise VerdictFailed(gate="correctness", kernel="gemm", got=0.5, limit=1e-5)
        case "scribble_on_reply_pipe":
            for fd in range(3, 1024):
                try:
                    os.write(fd, b"\xff\xfe not JSON\n")
                except OSError:
                    continue
            return None
        case _:
            raise AssertionError(act)
    return None


def time_schedule(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as an evaluation does: tile 16 crashes, 32 hangs, 64 eats memory, 128 is wrong, 256 refused, 512 NaN."""
    tile = request["schedule"]["tile"]
    match tile:
        case 16:
            misbehave({"act": "segfault"})
        case 32:
            misbehave({"act": "hang"})
        case 64:
            misbehave({"act": "eat_memory"})
        case 128:
            return {"kind": "wrong", "detail": "max error 0.5"}
        case 256:
            return misbehave({"act": "refuse_proof"})
        case 512:
            return {"kind": "ok", "latency_ms": float("nan")}
        case _:
            pass
    return {"kind": "ok", "latency_ms": 1.0 + 1.0 / tile, "samples_ms": [1.0, 2.0]}


def time_or_be_killed(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as an evaluation does; each schedule is killed as often as the directory named in KILLS says of it."""
    tile = request["schedule"]["tile"]
    place = Path(os.environ["KILLS"], str(tile))
    left = int(place.read_text()) if place.exists() else 0
    if left:
        place.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"kind": "ok", "latency_ms": float(tile)}


NOT_CALLABLE = 3


def find_no_place(_: dict[str, Any]) -> Any:
    """Fail as a cache on a full disk does."""
    raise CacheUnwritable(path="/full", detail="0 bytes are free there", remedy="free space")
