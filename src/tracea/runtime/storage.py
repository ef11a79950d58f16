"""A Program as one file: a zip of JSON, kernel sources, shared libraries and constants, each with its checksum.

The sources travel, so that another machine compiles them for itself; the shared libraries serve a machine of the same
architecture that has no compiler. Nothing in the file is a pickle. A program is code: load only files that you trust as
you would a library.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import platform
import secrets
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from tracea import __version__
from tracea.core.codec import Codec, encode
from tracea.core.dtype import DType
from tracea.core.tensor_type import TYPE_CLASSES, TensorType
from tracea.emitters.kernel_source import KernelSource, PointerParameter
from tracea.errors import InvalidGraph, InvalidInput, InvalidOption, ToolchainMissing
from tracea.runtime.buffers import aligned_empty
from tracea.runtime.cache import content_key, default_store
from tracea.runtime.compiler import Library, LoadedKernel, build_library, load_kernels, load_library
from tracea.runtime.index_range import IndexRange
from tracea.runtime.library import LibraryCall, LibraryFunction
from tracea.runtime.program import ArenaSlot, Call, ConstantSlot, InputSlot, OutputSlot, Program
from tracea.runtime.shortage import is_full, is_of_the_place
from tracea.semantic import index as semantic_index
from tracea.semantic.index import Index
from tracea.semantic.tile_kernel import BufferRole

__all__ = ["load", "save"]

_SCHEMA: Final = 1
_RECORD: Final = "program.json"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same program is the same file


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pointer:
    name: str
    dtype: DType
    role: BufferRole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    name: str
    file: str
    language: str
    isa: str
    pointers: tuple[_Pointer, ...]
    integers: tuple[str, ...]
    scalars: tuple[str, ...]
    team_scratch_bytes: Index
    thread_scratch_bytes: Index
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Kernels that were compiled together, and their shared library."""

    kernels: tuple[_Kernel, ...]
    library: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    function: str
    operands: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    unit: int
    kernel: str
    port: _Port | None
    pointers: tuple[InputSlot | OutputSlot | ConstantSlot | ArenaSlot, ...]
    integers: tuple[int, ...]
    scalars: tuple[float, ...]
    team_scratch_bytes: int
    thread_scratch_bytes: int
    parallel: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    file: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    schema_version: int
    tracea: str
    machine: str
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    arena_bytes: int
    constants: tuple[_Constant, ...]
    units: tuple[_Unit, ...]
    calls: tuple[_Call, ...]
    files: tuple[_File, ...]
    index_ranges: tuple[IndexRange, ...] = ()


_INDEX_CLASSES: Final = tuple(
    value
    for value in vars(semantic_index).values()
    if isinstance(value, type) and issubclass(value, (Index, semantic_index.Predicate))
)
_CODEC: Final = Codec(
    (
        *TYPE_CLASSES,
        *_INDEX_CLASSES,
        *(InputSlot, OutputSlot, ConstantSlot, ArenaSlot),
        *(_File, _Pointer, _Kernel, _Unit, _Port, _Call, _Constant, _Program, IndexRange),
    )
)


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a program to one file, in one step: a reader sees the old file or the whole new one.

    Raises: InvalidOption: it is no file's path, there is no such directory, or it may not be written. OSError: the disk
        is full, for one.
    """
    target = Path(path)
    content: dict[str, bytes] = {}
    units = _save_units(program, content)
    record = _Program(
        schema_version=_SCHEMA,
        tracea=__version__,
        machine=platform.machine(),
        name=program.name,
        index_ranges=program.index_ranges,
        inputs=program.inputs,
        outputs=program.outputs,
        arena_bytes=program.arena_bytes,
        constants=tuple(_save_constant(index, array, content) for index, array in enumerate(program.constants)),
        units=tuple(units.values()),
        calls=tuple(_save_call(call, list(units)) for call in program.calls),
        files=tuple(
            _File(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()) for name, data in content.items()
        ),
    )
    draft = target.parent / f".tracea-{secrets.token_hex(6)}"  # short: a legal name may be as long as names can be
    try:
        _require_file(target)
        with zipfile.ZipFile(draft, "x") as archive:
            for name, data in {_RECORD: msgspec.json.encode(encode(record)), **content}.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        if is_full(error) or not is_of_the_place(error):
            raise
        raise InvalidOption(
            field="path",
            got=str(target),
            expected="a file in a directory that exists and may be written",
            remedy=f"give another path, or make the directory ({error.strerror})",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _require_file(target: Path) -> None:
    """Refuse what is no place for a file; a device or a pipe would be replaced by one.

    Raises: OSError.
    """
    if target.name in ("", "..") or target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "It is a device, a pipe or a socket", str(target))


# What the zip module raises over damaged bytes in memory: a place before them, an encrypted file, a broken stream.
_BROKEN: Final = (
    zipfile.BadZipFile,
    zlib.error,
    KeyError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)


def load(path: str | os.PathLike[str]) -> Program:
    """Read a program and make it ready for this machine: compiled here, or its own library where there is no compiler.

    Raises: InvalidOption: the file is damaged or not a program. CompileError. ToolchainMissing: no compiler, and the
        libraries in the file are for another architecture. OSError: it cannot be read.
    """
    whole = io.BytesIO(Path(path).read_bytes())
    try:
        with zipfile.ZipFile(whole) as archive:
            record = _CODEC.decode(msgspec.json.decode(archive.read(_RECORD)), _Program)
            content = {file.name: archive.read(file.name) for file in record.files}
    except (*_BROKEN, msgspec.MsgspecError, InvalidInput) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if record.schema_version != _SCHEMA:
        raise _damaged(path, f"schema version {record.schema_version}, expected {_SCHEMA}")
    for file in record.files:
        data = content[file.name]
        if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise _damaged(path, f"{file.name} does not match its checksum")
    try:
        units = [_load_unit(unit, record, content) for unit in record.units]
        return Program(
            calls=tuple(_load_call(call, units) for call in record.calls),
            inputs=record.inputs,
            outputs=record.outputs,
            constants=tuple(_load_constant(constant, content) for constant in record.constants),
            arena_bytes=record.arena_bytes,
            name=record.name,
            index_ranges=record.index_ranges,
        )
    except (KeyError, IndexError, ValueError, UnicodeDecodeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: str | os.PathLike[str], detail: str) -> InvalidOption:
    return InvalidOption(
        field=str(path), got=detail, expected="a program that Program.save wrote", remedy="save the program again"
    )


def _save_units(program: Program, content: dict[str, bytes]) -> dict[str, _Unit]:
    libraries: dict[str, Library] = {}
    sources: dict[str, dict[str, KernelSource]] = {}
    for call in program.calls:
        if isinstance(call.kernel, LoadedKernel):
            libraries[call.kernel.library.key] = call.kernel.library
            sources.setdefault(call.kernel.library.key, {})[call.kernel.name] = call.kernel.source
    units: dict[str, _Unit] = {}
    for key, library in libraries.items():
        kernels: list[_Kernel] = []
        for source in sources[key].values():
            file = f"kernels/{len(units)}/{source.name}.cpp"
            content[file] = source.text.encode()
            kernels.append(_save_kernel(source, file))
        name = f"libraries/{len(units)}.so"
        content[name] = _bytes_of(library, list(sources[key].values()))
        units[key] = _Unit(kernels=tuple(kernels), library=name)
    return units


def _bytes_of(library: Library, sources: Sequence[KernelSource]) -> bytes:
    """Return a library's file, built again where it was collected from the cache while it is loaded."""
    try:
        return library.path.read_bytes()
    except FileNotFoundError:
        return build_library(sources).path.read_bytes()


def _save_kernel(source: KernelSource, file: str) -> _Kernel:
    return _Kernel(
        name=source.name,
        file=file,
        language=source.language,
        isa=source.isa,
        pointers=tuple(_Pointer(name=p.name, dtype=p.dtype, role=p.role) for p in source.pointers),
        integers=source.integers,
        scalars=source.scalars,
        team_scratch_bytes=source.team_scratch_bytes,
        thread_scratch_bytes=source.thread_scratch_bytes,
        headers=source.headers,
    )


def _save_call(call: Call, units: list[str]) -> _Call:
    kernel = call.kernel
    is_port = isinstance(kernel, LibraryCall)
    return _Call(
        unit=-1 if is_port else units.index(kernel.library.key),
        kernel=kernel.name,
        port=_Port(function=kernel.function.name, operands=kernel.operands) if is_port else None,
        pointers=call.pointers,
        integers=call.integers,
        scalars=call.scalars,
        team_scratch_bytes=call.team_scratch_bytes,
        thread_scratch_bytes=call.thread_scratch_bytes,
        parallel=call.parallel,
    )


def _save_constant(index: int, array: np.ndarray[Any, Any], content: dict[str, bytes]) -> _Constant:
    dtype = DType.of(array.dtype)
    file = f"constants/{index}.npy"
    buffer = io.BytesIO()
    # NumPy's format has no bfloat16: its bits are stored, and the record names the type.
    np.save(buffer, array.view(np.uint16) if dtype is DType.BF16 else array, allow_pickle=False)
    content[file] = buffer.getvalue()
    return _Constant(file=file, dtype=dtype, shape=array.shape)


def _load_constant(constant: _Constant, content: Mapping[str, bytes]) -> np.ndarray[Any, Any]:
    stored = np.load(io.BytesIO(content[constant.file]), allow_pickle=False)
    array = aligned_empty(constant.shape, constant.dtype)
    array[...] = stored.view(constant.dtype.numpy) if constant.dtype is DType.BF16 else stored
    return array


def _load_unit(unit: _Unit, record: _Program, content: Mapping[str, bytes]) -> dict[str, LoadedKernel]:
    sources = [_load_source(kernel, content) for kernel in unit.kernels]
    try:
        library = build_library(sources)
    except ToolchainMissing:
        if record.machine != platform.machine():
            raise
        library = _embedded(content[unit.library], unit)
    return {kernel.name: kernel for kernel in load_kernels(sources, library)}


def _embedded(data: bytes, unit: _Unit) -> Library:
    """Load the library that came with the file, by way of the cache: only a file on disk can be loaded."""
    ingredients = {"kind": "embedded", "library": hashlib.sha256(data).hexdigest(), "name": unit.kernels[0].name}
    key = content_key(ingredients)
    entry = default_store().entry(key, lambda place: _write(place / "library.so", data), ingredients)
    return load_library(key, entry / "library.so")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _load_source(kernel: _Kernel, content: Mapping[str, bytes]) -> KernelSource:
    return KernelSource(
        name=kernel.name,
        text=content[kernel.file].decode(),
        language=kernel.language,
        isa=kernel.isa,
        pointers=tuple(PointerParameter(name=p.name, dtype=p.dtype, role=p.role) for p in kernel.pointers),
        integers=kernel.integers,
        scalars=kernel.scalars,
        team_scratch_bytes=kernel.team_scratch_bytes,
        thread_scratch_bytes=kernel.thread_scratch_bytes,
        headers=kernel.headers,
    )


def _load_call(call: _Call, units: list[dict[str, LoadedKernel]]) -> Call:
    if call.port is not None:
        kernel: LoadedKernel | LibraryCall = LibraryCall(
            function=LibraryFunction[call.port.function], operands=call.port.operands
        )
    else:
        if not 0 <= call.unit < len(units):
            raise InvalidGraph(field="unit", got=call.unit, expected=len(units), remedy="save the program again")
        kernel = units[call.unit][call.kernel]
    return Call(
        kernel=kernel,
        pointers=call.pointers,
        integers=call.integers,
        scalars=call.scalars,
        team_scratch_bytes=call.team_scratch_bytes,
        thread_scratch_bytes=call.thread_scratch_bytes,
        parallel=call.parallel,
    )
