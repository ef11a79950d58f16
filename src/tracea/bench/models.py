"""Whole models beside PyTorch: eager, Inductor, Inductor frozen, and ours, in turns, in fresh processes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tracea.core.names import meant, near
from tracea.errors import InvalidOption, TraceaError, VerdictFailed
from tracea.profiler.environment import equal_terms
from tracea.profiler.machine import cores_allowed
from tracea.profiler.measurement import Measurement
from tracea.profiler.processes import run_in_processes
from tracea.profiler.timer import compare

__all__ = ["CONTENDERS", "find_builder", "load_builder", "time_model", "time_models"]

OURS: Final = "tracea"
CONTENDERS: Final = {
    "eager": "torch eager",
    "inductor": "torch.compile (Inductor)",
    "frozen": "torch.compile (Inductor, frozen weights)",
}
# Of the largest result, by its type: whether a contender computes the same thing.
_TOLERANCE: Final = {"torch.bfloat16": 4e-2, "torch.float16": 5e-3}
_TOLERANCE_OF_OTHERS: Final = 1e-3


def find_builder(text: str) -> tuple[Path, str]:
    """Return the file and the function's name that ``file.py:function`` says, without running the file.

    Raises:
        InvalidOption: there is no such file, or its text names no such function.
    """
    path_text, _, name = text.rpartition(":")
    path, example = Path(path_text), text if text.endswith(".py") else "examples/mlp.py"
    if not path_text or not name or "\0" in text:
        raise InvalidOption(
            field="builder",
            got=text,
            expected="file.py:function",
            remedy=f"name a file and a function in it, such as {example}:build",
        )
    if not os.path.isfile(path):  # Path.is_file raises where a name is too long for a file
        raise InvalidOption(
            field="builder",
            got=f"{path}: {'a directory' if os.path.isdir(path) else 'no such file'}",
            expected="a Python file",
            remedy=f"name a file that exists; {path_text} is looked for from {Path.cwd()}",
        )
    names = _names_in(path)
    if names and name not in names:
        raise InvalidOption(
            field="builder",
            got=name,
            expected=f"a function in {path}",
            remedy=f"{meant(near(name, names))}name a function without arguments",
        )
    return path, name


def _names_in(path: Path) -> frozenset[str]:
    """Return the names that a file's text binds, in any place of it; none where only running it says which."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    bound: set[str] = set()
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case ast.Call(func=ast.Name(id="globals" | "setattr" | "exec" | "vars")):
                return frozenset()
            case _:
                pass
    return frozenset() if "*" in bound else frozenset(bound)


def load_builder(text: str) -> Callable[[], Any]:
    """Return the function that ``file.py:function`` names; it returns (module, example_inputs).

    Raises:
        InvalidOption: there is no such file or function, it takes arguments, or its file raises; so does the function
            that is returned where it raises, or returns something else.
    """
    path, name = find_builder(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidOption(field="builder", got=text, expected="a Python file", remedy="name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    with _errors_of(path):
        spec.loader.exec_module(module)
    builder = getattr(module, name, None)
    if not callable(builder):
        raise InvalidOption(
            field="builder", got=name, expected=f"a function in {path}", remedy="name a function without arguments"
        )
    if hasattr(builder, "state_dict") and not isinstance(builder, type):
        raise InvalidOption(
            field="builder",
            got=f"{name}, a module: {type(builder).__name__}",
            expected="a function that returns (module, example_inputs)",
            remedy=f"write one, def build(): return {name}, (example,), and name that",
        )

    needed = _needed_arguments(builder)
    if needed:
        raise InvalidOption(
            field="builder",
            got=f"{name}({', '.join(needed)})",
            expected="a function that is called without arguments",
            remedy=f"give each a default, or name a function that calls {name} with them",
        )

    def checked() -> tuple[Any, Any]:
        with _errors_of(path):
            built: Any = builder()
        kind = type(built).__name__
        if not (isinstance(built, tuple) and len(cast("tuple[Any, ...]", built)) == 2):
            raise InvalidOption(field=text, got=kind, expected="(module, example_inputs)", remedy="return that pair")
        return cast("tuple[Any, Any]", built)

    return checked


def _needed_arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters that a call has to give; none where only a call tells, as of some of C."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(each.name for each in parameters if each.default is each.empty and each.kind not in optional)


def _text_of(error: BaseException) -> str:
    """Return an error's text, which code of its own makes, and may fail to."""
    try:
        return str(error)
    except Exception as failed:
        return f"whose text raises {type(failed).__name__}"


@contextmanager
def _errors_of(path: Path) -> Generator[None]:
    """Have what the code of a file raises told as the file's, with the last of its lines that the error came through.

    Raises:
        InvalidOption: it raised. TraceaError: as it was raised.
    """
    try:
        yield
    except TraceaError:
        raise
    except (Exception, SystemExit) as error:
        name, where = str(path), ""
        if isinstance(error, SyntaxError) and error.filename == name:
            where = f" at {name}:{error.lineno}"
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == name:
                where = f" at {name}:{frame.lineno} in {frame.name}"
        raise InvalidOption(
            field="builder",
            got=f"{type(error).__name__}: {_text_of(error)}{where}",
            expected="a file and a function that run",
            remedy="mend that line; TRACEA_LOG=debug shows all of the traceback",
        ) from error


def time_models(
    builder: str, *, threads: int, pairs: int, processes: int, library: bool = True, accuracy: str = "elementwise"
) -> list[dict[str, Measurement]]:
    """Return the measurements of each fresh process, by contender."""
    results = run_in_processes(
        "tracea.bench.models:time_model",
        {"builder": str(builder), "threads": threads, "pairs": pairs, "library": library, "accuracy": accuracy},
        processes=processes,
        cores=cores_allowed()[:threads],
        variables=equal_terms(threads),
    )
    return [msgspec.convert(result, dict[str, Measurement]) for result in results]


def time_model(*, builder: str, threads: int, pairs: int, library: bool, accuracy: str) -> Any:
    """Time every contender in this process; called in fresh ones. Returns measurements by contender as JSON values."""
    import torch

    import tracea

    torch.set_num_threads(threads)
    module, inputs = load_builder(builder)()
    with torch.inference_mode():
        ours = tracea.optimize(module, inputs, budget=None, threads=threads, library=library, accuracy=accuracy)
        calls: Mapping[str, Callable[[], Any]] = {
            OURS: lambda: ours(*inputs),
            "eager": lambda: module(*inputs),
            **{name: _compiled(torch, module, inputs, frozen=name == "frozen") for name in ("inductor", "frozen")},
        }
        expected = calls["eager"]()
        for name, call in calls.items():
            _check(name, call(), expected)
        timed = compare(calls, pairs=pairs, threads=threads)
    names = {OURS: "Tracea", **CONTENDERS}
    return msgspec.to_builtins({name: replace(measurement, name=names[name]) for name, measurement in timed.items()})


def _compiled(torch: Any, module: Any, inputs: Any, *, frozen: bool) -> Callable[[], Any]:
    settings: Any = importlib.import_module("torch._inductor.config")

    # The setting freezes, the option tells the two backends apart: without it Dynamo finds the code of the one that was
    # compiled last for both, and both are timed with that.
    with settings.patch(freezing=frozen):
        compiled = torch.compile(module, options={"freezing": frozen})
        compiled(*inputs)
    return lambda: compiled(*inputs)


def _check(name: str, result: Any, expected: Any) -> None:
    for got, wanted in zip(_tensors(result), _tensors(expected), strict=True):
        if not wanted.numel():
            continue
        limit = _TOLERANCE.get(str(wanted.dtype), _TOLERANCE_OF_OTHERS)
        found, right = _as_doubles(got), _as_doubles(wanted)
        same = (found == right) | (found.isnan() & right.isnan())  # infinities and NaN where eager has them too
        error = float((found - right).masked_fill(same, 0.0).abs().max())
        limit *= max(1.0, float(right.abs().nan_to_num(0.0, 0.0, 0.0).max()))
        if not error <= limit:
            raise VerdictFailed(gate="same result as eager", kernel=name, got=error, limit=limit)


def _as_doubles(tensor: Any) -> Any:
    import torch

    return torch.view_as_real(tensor).double() if tensor.is_complex() else tensor.double()


def _tensors(value: Any) -> list[Any]:
    from torch.utils import _pytree

    leaves: list[Any] = _pytree.tree_leaves(value)
    return [leaf for leaf in leaves if hasattr(leaf, "abs")]
