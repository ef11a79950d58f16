"""Find a C++ compiler on this machine and name it exactly: what it is goes into every cache key."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tracea.errors import CacheError, InvalidOption, ToolchainMissing
from tracea.runtime.cache import content_key, default_store, sha256_file

__all__ = ["ISA_FLAGS", "Compiler", "CompilerFamily", "common_isa", "compile_flags", "compilers", "find_compiler"]

_VERSION_SECONDS: Final = 60.0

# The instruction sets that kernels are printed for, with all the flags that name them; never -march=native, whose
# meaning the key lacks.
_AVX512: Final = (
    "-DTRACEA_ISA_AVX512",
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mprefer-vector-width=512",
)
ISA_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "amx": (*_AVX512, "-DTRACEA_AMX", "-mamx-tile", "-mamx-bf16"),
    "avx512": _AVX512,
    "avx2": ("-DTRACEA_ISA_AVX2", "-mavx2", "-mfma", "-mf16c"),
    "neon": ("-DTRACEA_ISA_NEON",),
    "plain": ("-DTRACEA_ISA_PLAIN",),
}

# Contraction is off because our headers say every fused multiply-add by name: the same text rounds alike on every
# compiler. errno is off because nothing reads it, which lets sqrt be an instruction. -ffast-math is never used: NaN and
# infinity propagate.
_COMMON: Final = (
    "-std=c++20",
    "-O3",
    "-g0",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fvisibility=hidden",
)


class CompilerFamily(enum.Enum):
    """Whose command line a compiler understands."""

    GCC = "gcc"
    CLANG = "clang"
    ZIG = "zig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C++ compiler: how to call it, and the identity of its binary."""

    family: CompilerFamily
    command: tuple[str, ...]
    path: Path
    version: str
    identity: str

    @property
    def precompiles(self) -> bool:
        """Tell whether a precompiled header pays.

        zig's driver keeps a cache of its own and takes none; clang refuses one whose headers were installed anew, or
        whose own text was moved since.
        """
        return self.family is CompilerFamily.GCC


class _Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    mtime_ns: int
    version: str
    sha256: str


class _Called(msgspec.Struct, frozen=True):
    """A compiler as it is called: with arguments, or where variables change what it does, it is another one."""

    binary: _Identity
    arguments: tuple[str, ...]
    environment: tuple[str, ...]


# What compilers read besides their command line: where they look for headers, libraries and their own parts, and more
# flags. They stay, since some installations need them, and are part of the identity.
_READ: Final = (
    "C_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LDEMULATION",
    "LD_RUN_PATH",
    "LIBRARY_PATH",
    "MACOSX_DEPLOYMENT_TARGET",
    "NIX_CFLAGS_COMPILE",
    "NIX_LDFLAGS",
    "SDKROOT",
    "ZIG_LIB_DIR",
)
# The first group links code that sets the processor, at load and for the whole process, to flush subnormal numbers to
# zero; what the second means depends on the machine, and a cache may be shared.
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-mdaz-ftz"),
        "it changes the arithmetic of the whole process that loads what is linked with it",
    ),
    **dict.fromkeys(("-march=native", "-mcpu=native"), "what it means is not in the cache's key"),
}

_known: dict[tuple[str, ...], Compiler] = {}


def find_compiler() -> Compiler:
    """Return the compiler to use: TRACEA_CXX, else the first of g++, clang++ and the ziglang wheel.

    Raises: ToolchainMissing: there is none. InvalidOption: TRACEA_CXX names something that does not run, or gives it an
        argument with which what it makes is not safe to load.
    """
    given = os.environ.get("TRACEA_CXX")
    if given:
        try:
            command = tuple(shlex.split(given))
        except ValueError as error:
            raise InvalidOption(field="TRACEA_CXX", got=given, expected="a command", remedy=str(error)) from error
        _require_harmless(given, command)
        compiler = _identify(command) if command else None
        if compiler is None:
            raise InvalidOption(
                field="TRACEA_CXX",
                got=given,
                expected="the command of a C++ compiler",
                remedy="name a compiler that answers --version, or unset TRACEA_CXX",
            )
        return compiler
    for command in _candidates():
        compiler = _identify(command)
        if compiler is not None:
            return compiler
    raise ToolchainMissing(tool="C++ compiler", searched=("g++", "clang++", "python -m ziglang c++"))


def compilers() -> tuple[Compiler, ...]:
    """Return every compiler on this machine in the order of preference, first the one of TRACEA_CXX, if it can be used.

    Empty where there is none.
    """
    found = [_identify(command) for command in _candidates()]
    if os.environ.get("TRACEA_CXX"):
        with contextlib.suppress(InvalidOption):  # which whoever compiles is told
            found.insert(0, find_compiler())
    return tuple(dict.fromkeys(compiler for compiler in found if compiler is not None))


def compile_flags(compiler: Compiler, isa: str) -> tuple[str, ...]:
    """Return all flags of a compilation for one instruction set; they are part of the key.

    Raises: InvalidOption: no such instruction set is known.
    """
    if isa not in ISA_FLAGS:
        raise InvalidOption(field="isa", got=isa, expected=tuple(ISA_FLAGS), remedy="choose one of those")
    own = {
        CompilerFamily.GCC: ("-fno-gnu-unique", "-fno-semantic-interposition"),
        CompilerFamily.CLANG: (),
        # zig's driver adds the undefined-behaviour sanitizer and the host's CPU unless told otherwise.
        CompilerFamily.ZIG: (
            "-fno-sanitize=undefined",
            *(("-mcpu=baseline",) if platform.machine() == "x86_64" else ()),
        ),
    }[compiler.family]
    return (*_COMMON, *own, *ISA_FLAGS[isa])


def common_isa(isas: Iterable[str]) -> str | None:
    """Return the instruction set whose flags hold those of all the others: one unit may have kernels of all of them."""
    wanted = set(isas)
    if len(wanted) == 1:
        return wanted.pop()  # known or not: the flags tell
    for isa in sorted(wanted):
        if all(set(ISA_FLAGS.get(other, (other,))) <= set(ISA_FLAGS.get(isa, ())) for other in wanted):
            return isa
    return None


def _require_harmless(given: str, command: tuple[str, ...]) -> None:
    for word in command[1:]:
        if word in _REFUSED:
            raise InvalidOption(
                field="TRACEA_CXX",
                got=given,
                expected=f"a compiler without {word}: {_REFUSED[word]}",
                remedy=f"leave {word} out of TRACEA_CXX",
            )


def _candidates() -> tuple[tuple[str, ...], ...]:
    found: list[tuple[str, ...]] = [("g++",), ("clang++",)]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "c++"))
    return tuple(found)


def _identify(command: tuple[str, ...]) -> Compiler | None:
    where = shutil.which(command[0])
    if where is None:
        return None
    path = _binary(command, Path(where).resolve())
    status = path.stat()
    memo = (*command, str(path), str(status.st_size), str(status.st_mtime_ns))
    environment = tuple(f"{name}={_sayable(value)}" for name in _READ if (value := os.environ.get(name)))
    if (*memo, *environment) not in _known:
        identity = _remember(command, path, memo)
        if identity is None:
            return None
        called = _Called(binary=identity, arguments=tuple(map(_sayable, command[1:])), environment=environment)
        is_plain = not called.arguments and not called.environment  # whose entries and measurements stay what they are
        _known[(*memo, *environment)] = Compiler(
            family=_family(command, identity.version),
            command=(where, *command[1:]),
            path=path,
            version=identity.version.splitlines()[0],
            identity=hashlib.sha256(msgspec.json.encode(identity if is_plain else called)).hexdigest(),
        )
    return _known[(*memo, *environment)]


def _sayable(text: str) -> str:
    """Return a text of the system's as one that can be written down: its bytes, where they are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"bytes {os.fsencode(text).hex()}"
    return text


def _binary(command: tuple[str, ...], path: Path) -> Path:
    """Return the file whose change means another compiler: for `python -m ziglang` that is zig's binary."""
    if "ziglang" in command:
        spec = importlib.util.find_spec("ziglang")
        if spec is not None and spec.origin is not None:
            zig = Path(spec.origin).parent / "zig"
            return zig if zig.exists() else path
    return path


def _family(command: tuple[str, ...], version: str) -> CompilerFamily:
    if "ziglang" in command or Path(command[0]).name.startswith("zig"):
        return CompilerFamily.ZIG
    return CompilerFamily.CLANG if re.search(r"\bclang\b", version) else CompilerFamily.GCC


def _remember(command: tuple[str, ...], path: Path, memo: tuple[str, ...]) -> _Identity | None:
    """Return the compiler's identity; a machine asks each compiler once and keeps the answer in the cache."""

    def build(place: Path) -> None:
        identity = _examine(command, path)
        if identity is None:
            raise _NotACompilerError
        (place / "identity.json").write_bytes(msgspec.json.encode(identity))

    key = content_key({"kind": "compiler", "memo": memo})
    try:
        entry = default_store().entry(key, build, {"kind": "compiler", "command": tuple(map(_sayable, command))})
        return msgspec.json.decode((entry / "identity.json").read_bytes(), type=_Identity)
    except _NotACompilerError:
        return None
    except (CacheError, msgspec.MsgspecError):
        return _examine(command, path)  # no directory can be written: the memo is a convenience


class _NotACompilerError(Exception):
    pass


def _examine(command: tuple[str, ...], path: Path) -> _Identity | None:
    try:
        answer = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = answer.stdout.strip()
    if answer.returncode != 0 or not version:
        return None
    status = path.stat()
    return _Identity(
        path=_sayable(str(path)),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        version=version,
        sha256=sha256_file(path),
    )
