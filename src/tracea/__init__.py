"""Tracea finds, proves, measures and runs the fastest kernel for the machine at hand.

The names below load on first use: `import tracea` imports neither NumPy nor PyTorch and needs no GPU and no compiler.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea import forks as _forks  # pyright: ignore[reportUnusedImport]  # nothing else tells of a fork before the launcher

if TYPE_CHECKING:
    from tracea import doctor as doctor
    from tracea import errors as errors
    from tracea import optimizer as optimizer
    from tracea.core.dtype import DType as DType
    from tracea.core.graph import Graph as Graph
    from tracea.errors import TraceaError as TraceaError
    from tracea.errors import TraceaWarning as TraceaWarning
    from tracea.flow.explanation import explain as explain
    from tracea.flow.tuning import tune as tune
    from tracea.interface import functional as ops  # pyright: ignore[reportUnusedImport]  # re-exported under its public name
    from tracea.interface.context import Context as Context
    from tracea.interface.context import load as load
    from tracea.interface.torch.optimize import optimize as optimize
    from tracea.optimizer import Budget as Budget

__version__ = "0.1.0"

# Public name -> (module, attribute); an attribute of None is the module itself. A name is one line here and one above,
# where type checkers read it.
_FACE: Final[dict[str, tuple[str, str | None]]] = {
    "Budget": ("tracea.optimizer", "Budget"),
    "Context": ("tracea.interface.context", "Context"),
    "DType": ("tracea.core.dtype", "DType"),
    "Graph": ("tracea.core.graph", "Graph"),
    "TraceaError": ("tracea.errors", "TraceaError"),
    "TraceaWarning": ("tracea.errors", "TraceaWarning"),
    "doctor": ("tracea.doctor", None),
    "errors": ("tracea.errors", None),
    "explain": ("tracea.flow.explanation", "explain"),
    "load": ("tracea.interface.context", "load"),
    "ops": ("tracea.interface.functional", None),
    "optimize": ("tracea.interface.torch.optimize", "optimize"),
    "optimizer": ("tracea.optimizer", None),
    "tune": ("tracea.flow.tuning", "tune"),
}

__all__ = ["__version__", *_FACE]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name on its first use (PEP 562)."""
    if name not in _FACE:
        close = import_module("tracea.core.names").near(name, _FACE) if not name.startswith("_") else ()
        text = f"module 'tracea' has no attribute {name!r}" + (f": did you mean {' or '.join(close)}?" if close else "")
        raise AttributeError(text, name=name, obj=sys.modules[__name__])
    module_name, attribute = _FACE[name]
    with import_module("tracea.core.collector").collector_paused():
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name == "torch":
                import_module("tracea.doctor.installed").require_torch()
            raise
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, whether loaded or not, and what every module has."""
    return sorted({*(name for name in globals() if name.startswith("__")), *_FACE})
