"""What a trace lets a module ask of its values: what is the same in a call of the module itself."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, Final, NoReturn, Protocol, cast

import torch
from torch.overrides import TorchFunctionMode

from tracea.interface.torch.location import is_users

__all__ = [
    "OF_MEMORY",
    "OF_PLACES",
    "OF_STRIDES",
    "Questions",
    "Watch",
    "Watched",
    "asked_of_torch",
    "is_fact",
    "name_of",
]

OF_MEMORY: Final = frozenset(
    {"__array__", "__dlpack__", "data", "data_ptr", "numpy", "storage", "tolist", "untyped_storage"}
)
OF_STRIDES: Final = frozenset({"is_contiguous", "stride"})
OF_PLACES: Final = frozenset({"_base", "_is_view", "_typed_storage", "storage", "storage_offset", "untyped_storage"})
_OF_ONE_CALL: Final = OF_STRIDES | OF_PLACES | {"dim_order", "is_conj", "requires_grad"}
_FACTS: Final = frozenset(
    {
        *("shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "dtype", "device", "layout"),
        *("get_device", "element_size", "itemsize", "nbytes", "requires_grad", "contiguous"),
        *("is_floating_point", "is_complex", "is_signed", "is_nested", "is_sparse", "is_sparse_csr", "is_quantized"),
        "_set_grad_enabled",  # no_grad; whether the mode is another is asked at each operator
        *("is_mkldnn", "is_cpu", "is_cuda", "is_meta", "is_mps", "is_xpu"),
    }
)
# What these return is their operand's own memory or a copy, by its strides.
_OF_EITHER: Final = frozenset({"contiguous", "flatten", "ravel", "reshape", "reshape_as"})
# What these return where they are off is their operand itself, and to torch.export a tensor of its own.
_OF_ITSELF: Final = frozenset(
    {"alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "feature_dropout"}
)
_UNVERSIONED: Final = "_foreach_"  # of what these write, stand-ins count no version
_IN_A_FORMAT: Final = frozenset(
    {"bfloat16", "bool", "cpu", "double", "float", "half", "int", "long", "to"}  # where a memory_format is given
)
_is_grad_enabled: Final = torch.is_grad_enabled
_is_inference_mode_enabled: Final = torch.is_inference_mode_enabled


def name_of(called: Any) -> str:
    """Return the name of a function of torch, or of the attribute that is read."""
    name = str(getattr(called, "__name__", ""))
    return str(getattr(called.__self__, "__name__", "")) if name == "__get__" else name


def is_fact(called: Any) -> bool:
    """Tell whether a call that reaches no operator says of a value what it says of the tensor in its place."""
    return name_of(called) in _FACTS


@contextlib.contextmanager
def asked_of_torch(fail: Callable[[str], object]) -> Generator[None]:
    """Have ``fail`` called where code of the user's asks in this thread for a mode that is the trace's own."""
    thread = threading.get_ident()

    def asking(function: Callable[[], bool]) -> Callable[[], bool]:
        def asked() -> bool:
            asker = sys._getframe(1).f_code  # pyright: ignore[reportPrivateUsage]  # no frame is kept: it holds values
            if threading.get_ident() == thread and is_users(asker.co_filename):
                fail(f"the module asks {function.__name__}")
            return function()

        return asked

    ours = {
        "is_grad_enabled": asking(_is_grad_enabled),
        "is_inference_mode_enabled": asking(_is_inference_mode_enabled),
    }
    before = {name: getattr(torch, name) for name in ours}
    for name, function in ours.items():
        setattr(torch, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch, name, function)


class Watched(Protocol):
    """What a watch tells of: ``watched`` calls are under way, ``reached`` operators were seen."""

    watched: int
    reached: int

    def watch(self, called: Any) -> None:
        """Check a call before it is made."""

    def check_fact(self, called: Any, args: tuple[Any, ...]) -> None:
        """Check a call that reached no operator."""

    def fail(self, reason: str) -> NoReturn:
        """Give the trace up."""
        ...


class Watch(TorchFunctionMode):
    """Sees every call of torch's functions before the dispatcher does, and the modes in which it is made."""

    def __init__(self, recording: Watched) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function; what it raises, such as for the memory of a value, a module may not catch unseen."""
        del types
        self._recording.watch(func)
        self._recording.watched += 1
        reached = self._recording.reached
        try:
            result = func(*args, **(kwargs or {}))
            if self._recording.reached == reached:
                self._recording.check_fact(func, args)
            return result
        except Exception as error:
            self._recording.fail(f"{func}: {error}")
        finally:
            self._recording.watched -= 1


class Questions(TorchFunctionMode):
    """Notes what code of the user's asks of a call's tensors, which torch.export answers by its stand-ins.

    What forward writes to what ``reshape`` returned, or was given, is a question too: whether both are one memory is
    answered by the strides of the call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[str] = set()
        self._either: list[tuple[torch.Tensor, int]] = []  # what may be one memory or two, and what was written so far
        self._calls_that_write = 0
        self._unversioned_writes = 0

    @property
    def asked(self) -> set[str]:
        """Return the names of what was asked, "stride" where what a write reaches depends on it."""
        is_written = any(self._written(tensor) != before for tensor, before in self._either)
        return self._asked | ({"stride"} if is_written else set())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function."""
        del types
        name, named = name_of(func), cast("dict[str, Any]", kwargs or {})
        if torch.compiler.is_dynamo_compiling():  # a region of torch.cond: what is noted here would be its side effect
            return func(*args, **named)
        if name in _OF_ONE_CALL and _is_asked_by_user():
            self._asked.add(name)
        may_write = _may_write(func, args, named)
        self._calls_that_write += may_write
        self._unversioned_writes += may_write and name.startswith(_UNVERSIONED)
        result = func(*args, **named)
        is_either = name in _OF_EITHER or (name in _IN_A_FORMAT and named.get("memory_format") is not None)
        if is_either or (name in _OF_ITSELF and any(map(self._is_either, args))):
            both = [each for each in (*args, *named.values(), result) if isinstance(each, torch.Tensor)]
            self._either += [(tensor, self._written(tensor)) for tensor in both]
        return result

    def _written(self, tensor: torch.Tensor) -> int:
        """Return a count that is another behind each write to a tensor's memory; in inference mode behind any write."""
        if tensor.is_inference():
            return self._calls_that_write
        return tensor._version + self._unversioned_writes  # pyright: ignore

    def _is_either(self, value: Any) -> bool:
        """Return whether a value has the memory of one that may be of another memory in other strides."""
        if not isinstance(value, torch.Tensor):
            return False
        place = value.untyped_storage()._cdata  # pyright: ignore
        return any(place == tensor.untyped_storage()._cdata for tensor, _ in self._either)  # pyright: ignore


def _may_write(called: Any, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Tell whether a call may write in place: by its name, or by ``inplace``, which may be given by its place."""
    name = name_of(called)
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    by_place = args if getattr(called, "__module__", None) == "torch.nn.functional" else ()
    is_told = named.get("out") is not None or any(each is True for each in (*by_place, named.get("inplace")))
    return is_told or name.endswith("_")


def _is_asked_by_user() -> bool:
    """Tell whether the innermost code that is neither a mode's nor a method's of torch.Tensor is the user's."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # no frame is kept: it holds values
    while frame.f_back is not None and (
        frame.f_code.co_name == "__torch_function__" or frame.f_code.co_filename.endswith(_OF_TENSORS)
    ):
        frame = frame.f_back
    return is_users(frame.f_code.co_filename)


_OF_TENSORS: Final = ("torch/_tensor.py", "torch/overrides.py")
