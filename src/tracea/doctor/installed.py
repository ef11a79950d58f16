"""The PyTorch that is installed: its version and what its matrix products call, without importing it."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tracea.errors import ToolchainMissing

__all__ = ["INSTALL_TORCH", "TorchInstall", "require_torch", "torch_install", "torch_version"]

INSTALL_TORCH: Final = "pip install 'torch>=2.11,<2.15'"  # the extra of pyproject.toml
_BLAS: Final = re.compile(r"BLAS_INFO=(\w+)")
_MKL: Final = re.compile(r"Math Kernel Library Version ([\d.]+)")
# What the installed CMake package links PyTorch with.
_LINKED: Final = Path("share/cmake/Caffe2/Caffe2Targets.cmake")
_BUNDLED: Final = (("openblas", "libopenblas*"), ("arm performance libraries", "libarmpl*"), ("mkl", "libmkl_*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchInstall:
    """An installed PyTorch; ``blas`` is what its matrix products call, ``loaded`` whether this process imported it."""

    version: str
    blas: str
    path: Path
    loaded: bool


def require_torch() -> None:
    """Raise where PyTorch is needed and is not installed, without importing it.

    Raises: ToolchainMissing: there is none.
    """
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        raise ToolchainMissing(tool="PyTorch", searched=("torch",), remedy=INSTALL_TORCH)


def torch_install() -> TorchInstall | None:
    """Describe the installed PyTorch, or return None where there is none."""
    loaded = sys.modules.get("torch")
    if loaded is not None and hasattr(loaded, "__config__"):
        return _of_module(loaded)
    try:
        version = metadata.version("torch")
        spec = importlib.util.find_spec("torch")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return TorchInstall(version=version, blas=_blas_of(folder), path=folder, loaded=False)


@cache
def torch_version() -> str:
    """Return the version of the installed PyTorch as its package says it, loaded or not; empty where there is none.

    A module that is loaded names its build as well (+cpu), which its package may not: the two are no two versions.
    """
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _of_module(torch: Any) -> TorchInstall:
    shown = str(torch.__config__.show())
    blas, mkl = _BLAS.search(shown), _MKL.search(shown)
    name = blas.group(1) if blas else "unknown"
    return TorchInstall(
        version=str(torch.__version__),
        blas=f"{name} {mkl.group(1)}" if name == "mkl" and mkl else name,
        path=Path(str(torch.__file__)).parent,
        loaded=True,
    )


def _blas_of(folder: Path) -> str:
    """Read what the package says that it links, else look at the libraries that it brings along."""
    try:
        linked = (folder / _LINKED).read_text(encoding="utf-8", errors="replace")
    except OSError:
        linked = ""
    if "caffe2::mkl" in linked.replace("caffe2::mkldnn", ""):
        return "mkl"
    for name, pattern in _BUNDLED:
        if any(found for place in (folder / "lib", folder.parent / "torch.libs") for found in place.glob(pattern)):
            return name
    return "accelerate" if sys.platform == "darwin" else "unknown"
