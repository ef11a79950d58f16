"""What a trace lets a module ask of its values: what is the same in a call of the module itself."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, Final, NoReturn, Protocol

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
    """Notes what code of the user's asks of a call's tensors, which torch.export answers by its stand-ins."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function."""
        del types
        if name_of(func) in _OF_ONE_CALL and _is_asked_by_user():
            self.asked.add(name_of(func))
        return func(*args, **(kwargs or {}))


def _is_asked_by_user() -> bool:
    """Tell whether the innermost code that is neither a mode's nor a method's of torch.Tensor is the user's."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # no frame is kept: it holds values
    while frame.f_back is not None and (
        frame.f_code.co_name == "__torch_function__" or frame.f_code.co_filename.endswith(_OF_TENSORS)
    ):
        frame = frame.f_back
    return is_users(frame.f_code.co_filename)


_OF_TENSORS: Final = ("torch/_tensor.py", "torch/overrides.py")
