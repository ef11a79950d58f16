"""The extension: the same runs as `Program.run`, from Python objects to native code in a fraction of a microsecond.

It is compiled once by the user's compiler against this interpreter and this NumPy. Where that is impossible (no
Python.h), everything still runs, by ctypes, with one warning.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import platform
import struct
import sys
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.tensor_type import TensorType
from tracea.errors import CompileError, InvalidOption, TraceaError, TraceaWarning
from tracea.runtime.buffers import DTYPE_CODES, expected_array, view
from tracea.runtime.compiler import compile_object, headers_digest
from tracea.runtime.native import launcher, launcher_directory
from tracea.runtime.process_lock import ProcessLock
from tracea.runtime.tracing import is_traced

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["MOST_RANGES", "Dispatcher", "all_finite", "dispatcher", "extension", "make_runner"]

_SOURCES: Final = (
    "operand.cpp",
    "tensor_storage.cpp",
    "index_range.cpp",
    "finite.cpp",
    "runner.cpp",
    "dispatcher.cpp",
    "extension.cpp",
)
_MODULE: Final = "tracea_extension"
_MOST_OPERANDS: Final = 4096
_MOST_DIMS: Final = 8
MOST_RANGES: Final = 4

Miss = Callable[[tuple[Any, ...], Any, tuple[Any, ...], int], Any]
_loaded: list[Any] = []  # the module, or None where it could not be built
_lock = ProcessLock()


def extension() -> Any | None:
    """Return the extension module, built on first use on this machine; None where it cannot be, after one warning."""
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load_or_warn())
    return _loaded[0]


def _load_or_warn() -> Any | None:
    try:
        return _load()
    except InvalidOption:  # what the user set, which would stop every call as well
        raise
    except (TraceaError, ImportError, OSError) as error:
        reason = error.log.strip().splitlines()[0] if isinstance(error, CompileError) and error.log else str(error)
        warnings.warn(
            TraceaWarning(f"calls go through ctypes, about 60 µs more each: the extension was not built: {reason}"),
            stacklevel=3,
        )
        return None


def make_runner(program: Program) -> Any | None:
    """Return the extension's runner of a program; None where there is none, or it does not take such a program."""
    module = extension()
    types = (*program.inputs, *program.outputs)
    if module is None or max(len(program.inputs), len(program.outputs)) > _MOST_OPERANDS:
        return None
    if len(program.index_ranges) > MOST_RANGES or any(len(expected_array(type_)[0]) > _MOST_DIMS for type_ in types):
        return None
    return module.Runner(
        program.handle,
        tuple(_signature(type_) for type_ in program.inputs),
        tuple(_signature(type_) for type_ in program.outputs),
        tuple((each.input, each.least, each.count, each.ignored) for each in program.index_ranges),
    )


def all_finite(array: Any) -> bool:
    """Tell whether an array has neither infinities nor NaN."""
    module = extension()
    found = None if module is None else module.all_finite(array)
    return bool(np.isfinite(view(array).numpy()).all()) if found is None else found


class Dispatcher:
    """``dispatcher`` without the extension: the same calls and the same table, in Python."""

    def __init__(self, arrays: int, miss: Miss) -> None:
        self._arrays = arrays
        self._miss = miss
        self._programs: dict[Any, Program] = {}
        self._hits = 0
        self._misses = 0

    def __call__(self, *arguments: Any) -> Any:
        """Run on ``(array..., out, attribute...)``."""
        from tracea.runtime.program import Program

        arrays, out, attributes = (
            arguments[: self._arrays],
            arguments[self._arrays],
            arguments[self._arrays + 1 :],
        )
        threads = launcher().threads()
        views = [None if array is None else view(array) for array in (*arrays, out)]
        typed_attributes = tuple((type(attribute).__name__, _bits(attribute)) for attribute in attributes)
        shapes = tuple(None if v is None else (v.kind, v.dtype, v.shape, v.strides) for v in views)
        key = (threads, shapes, typed_attributes)
        program = self._programs.get(key)
        if program is None:
            self._misses += 1
            program = self._miss(arrays, out, attributes, threads)
            if not isinstance(program, Program):
                return program
            if len(self._programs) >= 4096:
                self._programs.clear()
            self._programs[key] = program
        else:
            self._hits += 1
        return program.run(*(array for array in arrays if array is not None), out=out, threads=threads)

    def clear(self) -> None:
        """Forget every program."""
        self._programs.clear()

    def statistics(self) -> dict[str, int]:
        """Return the number of entries now, and of hits and misses ever."""
        return {"entries": len(self._programs), "hits": self._hits, "misses": self._misses}


def dispatcher(arrays: int, miss: Miss) -> Any:
    """Return a callable ``(array..., out, *attributes)`` that runs the program of this signature.

    The signature is each array's kind, type, shape and strides, ``out``'s, the attributes and the thread count. A new
    one is given to ``miss(arrays, out, attributes, threads)``, once: it returns the Program whose inputs are the arrays
    that are not None, in order, and which has one output, or several where no ``out`` is given; or anything else, which
    is the call's result and is not remembered. Subclasses of arrays (memory-mapped files), other libraries' arrays and
    subclasses of strings are taken for the plain ones that they hold. ``miss`` is also asked, each time, about arrays
    that only Python can read (subclasses of tensors).

    Attributes are compared by value: None, bool, int, float, str. An ``out`` that overlaps an input raises
    OverlappingOutput.
    """
    module = extension()
    if module is None:
        return Dispatcher(arrays, miss)

    def plain_or_missed(given: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Any:
        plain, target, values = tuple(map(_plain, given)), _plain(out), tuple(map(_plain_text, attributes))
        before = (*given, out, *attributes)
        if all(new is old for new, old in zip((*plain, target, *values), before, strict=True)):
            return miss(given, out, attributes, threads)
        result = made(*plain, target, *values)
        return out if result is target and _is_numpy(out) else result

    made = module.Dispatcher(arrays, plain_or_missed)
    return made


def _plain(array: Any) -> Any:
    """Return an array of NumPy's own class on the same memory; what has none, or is a tensor, is itself."""
    if _is_numpy(array):
        return array if type(array) is np.ndarray or _is_masked(array) else array.view(np.ndarray)
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(array, torch.Tensor)
    if is_tensor or isinstance(array, type) or not hasattr(array, "__dlpack__"):
        return array
    try:
        return view(array).owner
    except TraceaError:  # which `miss` raises again, with the operand's name
        return array


def _is_numpy(array: Any) -> bool:
    return isinstance(array, np.ndarray)


def _is_masked(array: Any) -> bool:
    return isinstance(array, np.ma.MaskedArray)


def _bits(attribute: Any) -> Any:
    """Return what tells an attribute from others: -0.0 equals 0.0 and is another, and NaN is the same as itself."""
    return struct.pack("d", attribute) if isinstance(attribute, float) else attribute


def _plain_text(attribute: Any) -> Any:
    return str.__str__(attribute) if isinstance(attribute, str) and type(attribute) is not str else attribute


def _signature(type_: TensorType) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    shape, strides = expected_array(type_)
    return DTYPE_CODES[type_.dtype], shape, strides


def _load() -> Any:
    include = Path(sysconfig.get_path("include"))
    numpy_include = Path(np.get_include())
    if not (include / "Python.h").exists():
        raise ImportError(f"{include} holds no Python.h (Debian: apt install python3-dev)")
    folder = launcher_directory()
    path = compile_object(
        "".join(f'#include "{name}"\n' for name in _SOURCES),
        isa="plain",
        name="extension",
        include=(folder, include, numpy_include),
        identity={
            "kind": "extension",
            "launcher": headers_digest(folder),
            "python": [sys.implementation.cache_tag, platform.python_version(), sysconfig.get_config_var("SOABI")],
            "numpy": np.__version__,
        },
    )[1]
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    library = launcher().library
    module.bind(
        library.address("tracea_program_run"),
        library.address("tracea_threads"),
        library.address("tracea_refresh"),
        library.address("tracea_program_is_long"),
        DType.BF16.numpy.num,
        _runner_of,
        _run_slowly,
        _raise_status,
        is_traced,
    )
    return module


def _runner_of(program: Any) -> Any:
    from tracea.runtime.program import Program

    if not isinstance(program, Program):
        return None
    runner = program.runner
    return NotImplemented if runner is None else runner


def _run_slowly(program: Program, arrays: tuple[Any, ...], out: Any, threads: int) -> Any:
    return program.run_explaining(arrays, out, threads)


def _raise_status(program: Program, status: int, threads: int) -> None:
    launcher().check(status, program.name, program.workspace_bytes(threads))
