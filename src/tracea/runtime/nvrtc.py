"""NVRTC: compile emitted CUDA text to a CUBIN for a named architecture, without a driver and without a GPU.

Worked example::

    binary = compile_text(text, architecture="sm_90a", name="gemm")  # 0.2 to 1.5 s, from the cache 1 ms
    binary.cubin, binary.ptx, binary.log, binary.seconds

The compiler is the wheel nvidia-cuda-nvrtc of the extra ``tracea[cuda]``, called through cuda-bindings; both are
imported here, at the first call.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from tracea.emitters.cuda.primitives import find, sm_of
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import CompileError, InvalidOption, ToolchainMissing
from tracea.runtime.cache import content_key, default_store
from tracea.runtime.compiler import headers_digest
from tracea.runtime.dump import dump

__all__ = [
    "CudaBinary",
    "Diagnostic",
    "Nvrtc",
    "compile_cuda",
    "compile_text",
    "cuda_include_directory",
    "cuda_options",
    "find_nvrtc",
    "missing",
    "parse_diagnostics",
]

# Contraction is off as on the CPU: the headers say every fused multiply-add by name, so that the emulator and the
# device round alike. -v has ptxas write what a kernel uses, the only source of its spill bytes.
_OPTIONS: Final = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")
_REMEDY: Final = "pip install 'tracea[cuda]'"

# name(line): error: text, and "error: text" without a place; name(line): warning #177-D: text.
_DIAGNOSTIC: Final = re.compile(
    r"^(?:(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): )?(?:catastrophic )?(?P<severity>error|warning)"
    r"(?: #(?P<number>\d+)(?:-D)?)?: (?P<message>.*)$"
)
_UNDEFINED: Final = re.compile(r'identifier "(\w+)" is undefined')
# A form of a template that this architecture lacks is declared, and nowhere defined.
_UNDEFINED_FORM: Final = re.compile(
    r'function "tracea::(\w+)<T>\(.*\[with T=tracea::(\w+)\]" was referenced but not defined'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One message of the compiler's front end; ``line`` is that of the emitted text, 0 where it has none."""

    severity: str
    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}({self.line}): " if self.file else ""
        return f"{place}{self.severity}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvrtc:
    """The compiler of this process: its version, where its library lies, and what identifies it in a cache key."""

    version: str
    path: Path
    identity: str
    architectures: tuple[int, ...]
    api: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaBinary:
    """One compiled text: the CUBIN and how it came about.

    ``seconds`` is what the compilation took when it was done; ``cached`` tells whether that was now.
    """

    key: str
    path: Path
    architecture: str
    compiler: str
    options: tuple[str, ...]
    cubin: bytes
    ptx: str
    log: str
    seconds: float
    cached: bool

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The front end's warnings about the text."""
        return tuple(found for found in parse_diagnostics(self.log) if found.severity == "warning")


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float
    options: tuple[str, ...]
    compiler: str


def cuda_include_directory() -> Path:
    """Return the folder that holds ``tracea/gpu.h``."""
    return Path(str(files("tracea.emitters.cuda") / "include"))


@functools.cache
def find_nvrtc() -> Nvrtc:
    """Return the compiler.

    Raises:
        ToolchainMissing: cuda-bindings or the NVRTC library is not installed, or does not load.
    """
    try:
        api: Any = importlib.import_module("cuda.bindings.nvrtc")
        pathfinder: Any = importlib.import_module("cuda.pathfinder")
    except ImportError as error:
        raise ToolchainMissing(tool="NVRTC", searched=(f"cuda.bindings: {error}",), remedy=_REMEDY) from error
    try:
        path = Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
        major, minor = _answer(api, api.nvrtcVersion())
        architectures = tuple(_answer(api, api.nvrtcGetSupportedArchs()))
    except (RuntimeError, OSError) as error:  # DynamicLibNotFoundError is a RuntimeError
        raise ToolchainMissing(tool="NVRTC", searched=(f"libnvrtc: {error}",), remedy=_REMEDY) from error
    status = path.stat()
    version = f"{major}.{minor}"
    mark = f"{version} {path.name} {status.st_size} {status.st_mtime_ns}"
    return Nvrtc(
        version=version,
        path=path,
        identity=hashlib.sha256(mark.encode()).hexdigest(),
        architectures=architectures,
        api=api,
    )


def missing() -> str | None:
    """Return why nothing can be compiled here, or None where it can."""
    try:
        find_nvrtc()
    except ToolchainMissing as error:
        return str(error)
    return None


def cuda_options(architecture: str) -> tuple[str, ...]:
    """Return all options of a compilation for one architecture but the include folder; they are part of the key.

    Raises:
        InvalidOption: no architecture is written so.
    """
    sm, specific = sm_of(architecture)
    defines = (f"--define-macro=TRACEA_SM={sm}", *(("--define-macro=TRACEA_ARCH_SPECIFIC",) if specific else ()))
    return (f"--gpu-architecture={architecture}", *_OPTIONS, *defines)


def compile_cuda(source: KernelSource) -> CudaBinary:
    """Compile an emitted kernel for its own architecture; see `compile_text`."""
    if source.language != "cuda":
        raise InvalidOption(
            field=f"{source.name}: language", got=source.language, expected="cuda", remedy="compile it with g++"
        )
    return compile_text(source.text, architecture=source.isa, name=source.name)


def compile_text(text: str, *, architecture: str, name: str, extra_options: Sequence[str] = ()) -> CudaBinary:
    """Compile one CUDA text through the cache.

    Raises:
        ToolchainMissing: there is no NVRTC here.
        InvalidOption: NVRTC has no such architecture.
        CompileError: the text does not compile; the remedy names the first wrong line of the text.
    """
    nvrtc = find_nvrtc()
    sm, _ = sm_of(architecture)
    if sm not in nvrtc.architectures:
        raise InvalidOption(
            field="architecture",
            got=architecture,
            expected=tuple(f"sm_{number}" for number in nvrtc.architectures),
            remedy=f"name one that NVRTC {nvrtc.version} has",
        )
    options = (*cuda_options(architecture), *extra_options)
    ingredients: dict[str, Any] = {
        "kind": "cubin",
        "source": hashlib.sha256(text.encode()).hexdigest(),
        "headers": headers_digest(cuda_include_directory()),
        "compiler": nvrtc.identity,
        "options": list(options),
        "name": name,
    }
    dump(f"{name}.{architecture}.cu", text)
    key = content_key(ingredients)
    built: list[float] = []

    def build(place: Path) -> None:
        cubin, ptx, log, seconds = _compile(nvrtc, text, f"{name}.cu", options, architecture)
        built.append(seconds)
        (place / "kernel.cubin").write_bytes(cubin)
        (place / "kernel.ptx").write_text(ptx, encoding="utf-8")
        (place / "kernel.log").write_text(log, encoding="utf-8")
        record = _Record(seconds=seconds, options=options, compiler=nvrtc.version)
        (place / "record.json").write_bytes(msgspec.json.encode(record))

    entry = default_store().entry(key, build, ingredients)
    record = msgspec.json.decode((entry / "record.json").read_bytes(), type=_Record)
    return CudaBinary(
        key=key,
        path=entry / "kernel.cubin",
        architecture=architecture,
        compiler=record.compiler,
        options=record.options,
        cubin=(entry / "kernel.cubin").read_bytes(),
        ptx=(entry / "kernel.ptx").read_text(encoding="utf-8"),
        log=(entry / "kernel.log").read_text(encoding="utf-8"),
        seconds=record.seconds,
        cached=not built,
    )


def parse_diagnostics(log: str) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings of the front end in a log, in order."""
    found: list[Diagnostic] = []
    for line in log.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match is not None:
            found.append(
                Diagnostic(
                    severity=match["severity"],
                    message=match["message"],
                    file=match["file"] or "",
                    line=int(match["line"] or 0),
                )
            )
    return tuple(found)


def _compile(
    nvrtc: Nvrtc, text: str, name: str, options: tuple[str, ...], architecture: str
) -> tuple[bytes, str, str, float]:
    api = nvrtc.api
    arguments = (*options, f"--include-path={cuda_include_directory()}")
    program = _answer(api, api.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
    try:
        start = time.perf_counter()
        (code,) = api.nvrtcCompileProgram(program, len(arguments), [argument.encode() for argument in arguments])
        seconds = time.perf_counter() - start
        log = _read(api, program, api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog).decode(errors="replace")
        if int(code) != 0:
            log = log.rstrip("\0 ") or str(code)
            raise CompileError(
                command=("nvrtc", *arguments, name),
                log=log,
                exit_code=int(code),
                remedy=_remedy(log, text, name, architecture),
            )
        cubin = _read(api, program, api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN)
        ptx = _read(api, program, api.nvrtcGetPTXSize, api.nvrtcGetPTX).decode()
    finally:
        api.nvrtcDestroyProgram(program)
    return cubin, ptx.rstrip("\0"), log.rstrip("\0 "), seconds


def _remedy(log: str, text: str, name: str, architecture: str) -> str:
    """Name the first wrong line of the text, and the architecture that a missing primitive needs."""
    error = next((found for found in parse_diagnostics(log) if found.severity == "error"), None)
    if error is None:
        return "read the log; the text is what the emitter printed"
    lines = text.splitlines()
    where = f"line {error.line} of the text"
    if error.file == name and 1 <= error.line <= len(lines):
        where += f", «{lines[error.line - 1].strip()}»"
    elif error.file:
        where = f"{Path(error.file).name}({error.line})"
    unknown = _UNDEFINED.search(error.message) or _UNDEFINED_FORM.search(error.message)
    primitive = find(unknown[1]) if unknown is not None else None
    if unknown is not None and primitive is not None:
        form = unknown[2] if unknown.re is _UNDEFINED_FORM else None
        if not primitive.runs_on(architecture, form):
            what, needs = primitive.name, primitive.needs
            if form is not None:
                what, needs = f"{what}<{form}>", f"sm_{dict(primitive.forms).get(form, 0)} or later"
            return f"{where}: {what} needs {needs}, and the text is compiled for {architecture}"
    return f"{where}: {error.message}"


def _answer(api: Any, result: tuple[Any, ...]) -> Any:
    """Return what a call of the bindings gave beside its code."""
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"NVRTC: {code.name}")
    return values[0] if len(values) == 1 else tuple(values)


def _read(api: Any, program: Any, size: Any, read: Any) -> bytes:
    buffer = bytearray(int(_answer(api, size(program))))
    if buffer:
        _answer(api, read(program, buffer))
    return bytes(buffer)
