"""Where in the user's code a captured node was written."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sysconfig
from collections.abc import Generator, Iterable
from pathlib import Path
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["asks_for_kinds", "forwards_named", "is_users", "line_of_node", "line_of_traceback", "trace_of_stack"]

_FRAME: Final = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<scope>.+)$', re.MULTILINE)
# Frames of these directories are machinery between the user's line and the op: torch itself, Python's library, us.
_MACHINERY: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
_LIBRARY: Final = sysconfig.get_path("stdlib")
_INSTALLED: Final = ("site-packages", "dist-packages")
_COMMANDS: Final = str(Path(__file__).parents[2] / "cli")  # a command asks by no line of the user's
_UNKNOWN: Final = "an unknown line"


def line_of_node(node: Node) -> str:
    """Return ``path:line in scope`` of the user's line that made a node; where torch kept none, the module's name.

    A module of torch itself has no line of the user's; what is then told beside its path is the line that asked for the
    capture.
    """
    found = _line_in_trace(node) or _line_within(node)
    if found is not None:
        return found
    named, asked = _module_of(node), _line_that_asked()
    return ", captured at ".join(part for part in (named, asked) if part) or _UNKNOWN


def line_of_traceback(traceback: TracebackType | None) -> str | None:
    """Return ``path:line in scope`` of the deepest frame of the user's code in a traceback; None if it has none."""
    frames: list[tuple[str, int, str]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return _last_outside_machinery(frames)


def trace_of_stack(asked_by: CodeType) -> tuple[str | None, torch.nn.Module | None]:
    """Return the line of the user's innermost forward in a call of ``asked_by``, as a traceback's text.

    Without one it is the module of torch whose forward runs that is told.
    """
    frame, module = inspect.currentframe(), None
    while frame is not None and frame.f_code is not asked_by:
        code = frame.f_code
        if code.co_name == "forward":
            if not _is_machinery(code.co_filename):
                return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n', None
            owner = frame.f_locals.get("self")
            module = owner if module is None and isinstance(owner, torch.nn.Module) else module
        frame = frame.f_back
    return None, module


@contextlib.contextmanager
def forwards_named(module: torch.nn.Module) -> Generator[None]:
    """Have each forward of the user's called so within a ``with`` block, by which torch tells the frames that it keeps.

    It may be a lambda, a method or a function of another name that was put in its place.
    """
    parts: list[torch.nn.Module] = [*module.modules()]
    renamed = [(vars(part), _as_forward(part.forward)) for part in parts]
    before = [(held, called, held.get("forward")) for held, called in renamed if called is not None]
    for held, called, _ in before:
        held["forward"] = called
    try:
        yield
    finally:
        for held, called, own in before:
            if held.get("forward") is not called:
                continue  # forward itself put another there
            if own is None:
                del held["forward"]
            else:
                held["forward"] = own


def asks_for_kinds(module: torch.nn.Module) -> bool:
    """Tell whether a forward, or a function that it names, may ask whether a value's type is torch.Tensor itself.

    Python asks nobody for a type: no stand-in can answer with another than its own.
    """
    seen: set[CodeType] = set()
    return any(_asks_for_kinds(part.forward, part, seen) for part in module.modules())


def _asks_for_kinds(called: Any, owner: torch.nn.Module, seen: set[CodeType]) -> bool:
    function = inspect.unwrap(getattr(getattr(called, "func", called), "__func__", getattr(called, "func", called)))
    if not isinstance(function, FunctionType) or not is_users(function.__code__.co_filename):
        return False
    codes, names = [function.__code__], set[str]()
    for code in codes:
        if code not in seen:
            seen.add(code)
            names.update(code.co_names)
            codes += [const for const in code.co_consts if isinstance(const, CodeType)]
    if {"type", "__class__"} & names and {"Tensor", "Parameter"} & names:
        return True
    found = (function.__globals__.get(name, inspect.getattr_static(owner, name, None)) for name in names)
    return any(_asks_for_kinds(each, owner, seen) for each in found if isinstance(each, FunctionType | MethodType))


def _as_forward(called: Any) -> Any:
    """Return a forward with its function called "forward"; None if it is so already or is not the user's."""
    if isinstance(called, functools.partial):
        inner = _as_forward(called.func)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        return inner and functools.partial(inner, *called.args, **called.keywords)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if isinstance(called, MethodType):
        function = _as_forward(called.__func__)
        return function and MethodType(function, called.__self__)
    if (
        not isinstance(called, FunctionType)
        or called.__code__.co_name == "forward"
        or not is_users(called.__code__.co_filename)
    ):
        return None
    code = called.__code__.replace(co_name="forward")
    named = FunctionType(code, called.__globals__, called.__name__, called.__defaults__, called.__closure__)
    named.__kwdefaults__ = called.__kwdefaults__
    vars(named).update(vars(called))  # such as __wrapped__, which has the signature
    return named


def is_users(path: str) -> bool:
    """Tell whether a file is code of the user's, typed at a prompt or not; none of torch, Python's library or us."""
    is_typed = path.startswith("<") and not path.startswith("<frozen ")
    return is_typed or not _is_machinery(path)


@functools.cache
def _is_machinery(path: str) -> bool:
    return _last_outside_machinery([(path, 0, "")]) is None


def _line_in_trace(node: Node) -> str | None:
    trace = str(node.meta.get("stack_trace") or "")
    return _last_outside_machinery((m["path"], m["line"], m["scope"]) for m in _FRAME.finditer(trace))


def _line_within(node: Node) -> str | None:
    """Return the first line of the region that a node runs, such as the body of an autocast."""
    for source in node.all_input_nodes:
        region = getattr(node.graph.owning_module, str(source.target), None) if source.op == "get_attr" else None
        if isinstance(region, torch.fx.GraphModule):
            return next((line for inner in region.graph.nodes if (line := _line_in_trace(inner))), None)
    return None


def _last_outside_machinery(frames: Iterable[tuple[str, object, str]]) -> str | None:
    found = None
    for path, line, scope in frames:
        is_library = path.startswith(_LIBRARY) and not any(part in path for part in _INSTALLED)
        if not path.startswith(("<", *_MACHINERY)) and not is_library:
            found = f"{path}:{line} in {scope}"
    return found


def _line_that_asked() -> str | None:
    """Return the innermost line of the user's code on this thread's stack; None where a command of ours asked."""
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_COMMANDS):
            return None
        found = _last_outside_machinery([(code.co_filename, frame.f_lineno, code.co_name)])
        if found is not None:
            return found
        frame = frame.f_back
    return None


def _module_of(node: Node) -> str | None:
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    if not stack:
        return None
    path, kind = list(stack.values())[-1]
    full_name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    name = full_name.rpartition(".")[2]
    return f"module {path!r} ({name})" if path else f"the module ({name})"
