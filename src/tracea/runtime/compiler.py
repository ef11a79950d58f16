"""Compile kernel sources into one shared library through the cache, and load each library once."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from tracea import __version__
from tracea.emitters.kernel_source import KernelSource
from tracea.errors import CacheCorrupt, CacheUnwritable, InvalidOption, RunError
from tracea.runtime.at_once import at_once
from tracea.runtime.cache import content_key, default_store
from tracea.runtime.compiler_process import run_compiler
from tracea.runtime.dump import dump
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.shortage import DISK_REMEDY, free_bytes
from tracea.runtime.toolchain import Compiler, CompilerFamily, common_isa, compile_flags, find_compiler
from tracea.runtime.unit import by_code, in_units, unit_text

__all__ = [
    "Library",
    "LoadedKernel",
    "build_library",
    "compile",
    "compile_object",
    "compile_text",
    "include_directory",
    "load_kernels",
    "load_library",
    "unit_seconds",
]

COMPILE_SECONDS: Final = 300.0  # zig builds its runtime library on first use: a minute or two on a slow machine
# Time on the wall, which other programs take their part of: a kernel takes one to three seconds of an idle core, and
# the 62 of MobileNetV2 in one unit took more than 300 s beside other work.
_KERNEL_SECONDS: Final = 20.0
_MOST_SECONDS: Final = 1800.0  # half of what a cache takes for abandoned: see ABANDONED_SECONDS of garbage.py
_LINK: Final = ("-shared", "-Wl,--as-needed")
_LIBRARY: Final = "library.so"
_OF_ONE_ISA: Final = "vec_"  # vec.h includes the one that the flags choose
_PRELUDE_BYTES: Final = 48 << 20  # what the precompiled headers take at most, by g++ 12 for AVX-512


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Library:
    """A shared library that is loaded into this process and stays; ``key`` names it in the cache."""

    key: str
    path: Path
    handle: ctypes.CDLL

    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol.

        Raises: RunError: the library exports no such symbol.
        """
        try:
            found = ctypes.cast(getattr(self.handle, symbol), ctypes.c_void_p).value
        except AttributeError:
            found = None
        if not found:
            raise RunError(kernel=symbol, detail=f"{self.path} exports no such symbol")
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedKernel:
    """One kernel of a loaded library: its source and the address of its team function, which others may share."""

    source: KernelSource
    library: Library
    address: int

    @property
    def name(self) -> str:
        """The name that it was printed under."""
        return self.source.name


def compile(
    sources: Sequence[KernelSource],
    *,
    compiler: Compiler | None = None,
    timeout_seconds: float | None = None,
    extra_flags: Sequence[str] = (),
    before: Callable[[], object] | None = None,
) -> tuple[LoadedKernel, ...]:
    """Compile kernels of one instruction set and load them, in the order given.

    Kernels of one code are compiled once, and many kernels in several units, by as many compilers at once as there are
    cores. ``timeout_seconds`` None allows a unit what `unit_seconds` says. ``before`` is called once, before a compiler
    runs, where the cache has not all of them.

    Raises: CompileError: the compiler failed or took longer than ``timeout_seconds``. ToolchainMissing: there is none.
        InvalidOption: the sources disagree on the instruction set, or two differ under one name; TRACEA_DUMP.
    """
    if not sources:
        return ()
    units = in_units(sources)
    for source in sources:
        dump(f"{source.name}.{source.isa}.cpp", source.text)
    told = None if before is None else _once(before)
    libraries = at_once(
        [
            partial(
                build_library,
                unit,
                compiler=compiler,
                timeout_seconds=timeout_seconds,
                extra_flags=extra_flags,
                before=told,
            )
            for unit in units
        ]
    )
    home = {source.name: library for unit, library in zip(units, libraries, strict=True) for source in unit}
    return tuple(kernel for source in sources for kernel in load_kernels((source,), home[by_code(source).name]))


def load_kernels(sources: Sequence[KernelSource], library: Library) -> tuple[LoadedKernel, ...]:
    """Return kernels of a library that was built of them, in the order given.

    Raises: RunError: the library exports none of that name.
    """
    return tuple(
        LoadedKernel(source=source, library=library, address=library.address(by_code(source).name))
        for source in sources
    )


def build_library(
    sources: Sequence[KernelSource],
    *,
    compiler: Compiler | None = None,
    timeout_seconds: float | None = None,
    extra_flags: Sequence[str] = (),
    before: Callable[[], object] | None = None,
) -> Library:
    """Compile kernels in one translation unit and load the library, of which `load_kernels` knows the symbols."""
    isa = common_isa(source.isa for source in sources)
    if isa is None:
        isas = sorted({source.isa for source in sources})
        raise InvalidOption(
            field="sources",
            got=isas,
            expected="one isa, or one that has the others' flags",
            remedy="compile each isa by itself",
        )
    coded = [by_code(source) for source in sources]
    return compile_text(
        unit_text(coded),
        isa=isa,
        name=sources[0].name,
        precompiled=any(source.headers for source in sources),
        compiler=compiler,
        timeout_seconds=unit_seconds(len({source.name for source in coded}))
        if timeout_seconds is None
        else timeout_seconds,
        extra_flags=extra_flags,
        before=before,
    )


def unit_seconds(kernels: int) -> float:
    """Return how long the compiler may take for a unit of so many kernels before it is stopped."""
    return min(max(COMPILE_SECONDS, _KERNEL_SECONDS * kernels), _MOST_SECONDS)


def compile_text(
    text: str,
    *,
    isa: str,
    name: str,
    precompiled: bool = False,
    compiler: Compiler | None = None,
    timeout_seconds: float = COMPILE_SECONDS,
    extra_flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    identity: Mapping[str, Any] | None = None,
    before: Callable[[], object] | None = None,
) -> Library:
    """Compile one C++ text through the cache and load it; see `compile_object`."""
    key, path = compile_object(
        text,
        isa=isa,
        name=name,
        precompiled=precompiled,
        compiler=compiler,
        timeout_seconds=timeout_seconds,
        extra_flags=extra_flags,
        include=include,
        identity=identity,
        before=before,
    )
    return load_library(key, path)


def compile_object(
    text: str,
    *,
    isa: str,
    name: str,
    precompiled: bool = False,
    compiler: Compiler | None = None,
    timeout_seconds: float = COMPILE_SECONDS,
    extra_flags: Sequence[str] = (),
    include: Sequence[Path] = (),
    identity: Mapping[str, Any] | None = None,
    before: Callable[[], object] | None = None,
) -> tuple[str, Path]:
    """Compile one C++ text through the cache; return its key and the shared object's path.

    ``precompiled``: the text reads our headers, which are compiled beforehand, once for all texts of these flags;
    ``include`` are more folders to search, whose content ``identity`` must name; ``before`` is called where the cache
    has it not.
    """
    compiler = compiler or find_compiler()
    folders = (include_directory(), *include)
    flags = (*compile_flags(compiler, isa), *extra_flags)
    ingredients = _ingredients(text, compiler, flags, isa, identity)
    key = content_key(ingredients)
    loaded = _registry.libraries.get(key)
    if loaded is not None:
        if loaded.path.exists():
            return key, loaded.path
        if default_store().holds(loaded.path):  # what another cache holds of this key is as good as before
            default_store().remove(key)  # it was collected since it was loaded, perhaps in part
    search = tuple(f"-I{folder}" for folder in folders)

    def build(place: Path) -> None:
        if before is not None:
            before()
        source = place / "source.cpp"
        source.write_text(text, encoding="utf-8")
        is_wanted = precompiled and compiler.precompiles
        prelude = _prelude(compiler, flags, isa, timeout_seconds, place) if is_wanted else ()
        command = (*compiler.command, *flags, *search, *prelude, *_LINK, "-o", str(place / _LIBRARY), str(source))
        run_compiler(command, timeout_seconds, place, _LIBRARY)

    return key, _built(key, build, {**ingredients, "name": name}, _LIBRARY)


def load_library(key: str, path: Path) -> Library:
    """Load a shared library of the cache; a key that is loaded already is the same library.

    Where its file is gone, as with a cache that was removed, ``path`` is where it is from now on.

    Raises: RunError: the dynamic linker refused it.
    """
    with _registry.lock:
        known = _registry.libraries.get(key)
        if known is None:
            try:
                handle = ctypes.CDLL(str(path))
            except OSError as error:
                raise RunError(kernel=path.name, detail=str(error)) from error
            known = _registry.libraries[key] = Library(key=key, path=path, handle=handle)
        elif known.path != path and not known.path.exists():
            known = _registry.libraries[key] = replace(known, path=path)
        return known


def include_directory() -> Path:
    """Return the folder that holds ``tracea/*.h``."""
    return Path(str(files("tracea.emitters.cpu") / "include"))


def headers_digest(folder: Path) -> str:
    """Return one digest of all headers under a folder: names and content."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in {".h", ".cpp"})
    stats = tuple((str(path), status.st_size, status.st_mtime_ns) for path in paths for status in (path.stat(),))
    if _digests.get(folder, ((), ""))[0] != stats:
        digest = hashlib.sha256()
        for path in paths:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
        _digests[folder] = (stats, digest.hexdigest())
    return _digests[folder][1]


class _Registry:
    """The libraries of this process by key: each is loaded once and stays."""

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.libraries: dict[str, Library] = {}
        self.has_warned_of_room = False


_digests: dict[Path, tuple[tuple[tuple[str, int, int], ...], str]] = {}
_registry = _Registry()


def _ingredients(
    text: str, compiler: Compiler, flags: Sequence[str], isa: str, identity: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "kind": "library",
        "source": hashlib.sha256(text.encode()).hexdigest(),
        "headers": headers_digest(include_directory()),
        "compiler": compiler.identity,
        "flags": [*flags, *_LINK],
        "isa": isa,
        "machine": platform.machine(),
        "libc": list(platform.libc_ver()),
        "tracea": __version__,
        **(identity or {}),
    }


def _prelude(
    compiler: Compiler, flags: Sequence[str], isa: str, timeout_seconds: float, place: Path
) -> tuple[str, ...]:
    """Return the flags that include our headers precompiled: 0.1 s of a kernel's compilation instead of 0.4 s.

    All of them at once: the vendor's intrinsics are most of its time and of its 46 MiB, whichever of ours follow. None
    where the disk of ``place`` has no room for them, with one warning.
    """
    names = sorted(path.name for path in (include_directory() / "tracea").glob("*.h"))
    text = "".join(f'#include "tracea/{name}"\n' for name in names if not name.startswith(_OF_ONE_ISA))
    ingredients = _ingredients(text, compiler, flags, isa, {"kind": "prelude"})
    clang = compiler.family is CompilerFamily.CLANG
    product = "prelude.pch" if clang else "prelude.h.gch"

    key = content_key(ingredients)
    free = free_bytes(place)
    if free is not None and free < _PRELUDE_BYTES and not default_store().contains(key):
        _warn_of_room(place, free)
        return ()

    def build(place: Path) -> None:
        (place / "prelude.h").write_text(text, encoding="utf-8")
        source = ("-x", "c++-header", str(place / "prelude.h"))
        run_compiler(
            (*compiler.command, *flags, f"-I{include_directory()}", *source, "-o", str(place / product)),
            timeout_seconds,
            place,
            product,
        )

    made = _built(key, build, {**ingredients, "name": "prelude"}, product)
    return ("-include-pch", str(made)) if clang else ("-include", str(made.with_name("prelude.h")))


def _built(key: str, build: Callable[[Path], None], ingredients: Mapping[str, Any], product: str) -> Path:
    """Return the product in an entry, which is built again where the entry is sound and holds none.

    Releases that believed a compiler's exit code alone could publish such a one.
    """
    made = default_store().entry(key, build, ingredients) / product
    if not made.is_file():
        damage = CacheCorrupt(path=made.parent, detail=f"holds no {product}")
        made = default_store().entry(key, build, ingredients, anew=True) / product
        warnings.warn(damage, stacklevel=4)
    return made


def _warn_of_room(place: Path, free: int) -> None:
    if not _registry.has_warned_of_room:
        _registry.has_warned_of_room = True
        detail = (
            f"{free:_} bytes are free there, and our headers precompiled take up to {_PRELUDE_BYTES:_}: kernels are "
            "compiled without, each in 0.3 s more"
        )
        warnings.warn(CacheUnwritable(path=place.parents[2], detail=detail, remedy=DISK_REMEDY), stacklevel=5)


def _once(call: Callable[[], object]) -> Callable[[], object]:
    """Return a call of which one of several threads makes the first, and none another."""
    lock = threading.Lock()
    return lambda: call() if lock.acquire(blocking=False) else None
