"""Check, before anything is imported, that a machine has what ``make gpu`` needs; take what is missing from wheels.

Standard library only: this runs where none of the dependencies may be there. ``--wheels FOLDER --site FOLDER`` installs
the missing packages from wheels, without a network, into a folder of their own; ``--download FOLDER`` fills the folder.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# Import name -> what to install.
REQUIRED = {
    "archspec": "archspec>=0.2.5",
    "cyclopts": "cyclopts>=4",
    "filelock": "filelock>=3.16",
    "ml_dtypes": "ml_dtypes>=0.5",
    "msgspec": "msgspec>=0.19",
    "numpy": "numpy>=2.0",
    "platformdirs": "platformdirs>=4.2",
    "rich": "rich>=13.9",
    "scipy": "scipy>=1.13",
    "sklearn": "scikit-learn>=1.5",
    "cuda.bindings": "cuda-bindings==13.0.*",
    "cuda.pathfinder": "cuda-pathfinder",
    "nvidia.cu13": "nvidia-cuda-nvrtc==13.0.*",
}
# Wheels that a machine with PyTorch for CUDA lacks, and what those need in turn.
CARRIED = ("archspec", "cyclopts", "filelock", "msgspec", "platformdirs")
# Without these a part of the run is «not checked», or has no peer; the run goes on.
OPTIONAL = {
    "torch": "no cuBLAS and no Triton to compare with",
    "triton": "no Triton to compare with",
}
TOOLS = {
    "ncu": "bank conflicts are not compared with the hardware's counters",
    "compute-sanitizer": "no sanitizer's sample",
}
DRIVER = "libcuda.so.1"
ROOT = Path(__file__).resolve().parents[1]
PROJECTS_PYTHON = ".venv/bin/python"
COMPILERS = ("g++", "clang++")
PYTHONS = ("3.11", "3.12", "3.13")
DOWNLOAD = ("--only-binary=:all:", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64")


def missing(names: Sequence[str], has: Callable[[str], bool]) -> list[str]:
    """Return the packages that are not there."""
    return [name for name in names if not has(name)]


def has_package(name: str) -> bool:
    """Tell whether a package can be imported, without importing it; its parents are looked up one by one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def has_driver() -> bool:
    """Tell whether this machine has an NVIDIA driver, without starting it."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def message(absent: Sequence[str], wheels: Path) -> str:
    """Return the one message that names all that is missing, and what to do."""
    wanted = " ".join(f"'{REQUIRED[name]}'" for name in absent)
    carried = [name for name in absent if name in CARRIED]
    others = [name for name in absent if name not in CARRIED]
    ways = [f"where there is a network: {sys.executable} -m pip install {wanted}"]
    if (ROOT / PROJECTS_PYTHON).exists() and Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        ways.insert(0, f"take the project's own Python, which may have them: make gpu GPU_PYTHON={PROJECTS_PYTHON}")
    if carried and not others:
        ways.append(f"without a network: make gpu-wheels on another machine, and its folder {wheels} carried here")
    elif carried:
        ways.append(
            f"without a network: make gpu-wheels on another machine fetches {', '.join(carried)} into {wheels}, to be "
            f"carried here; not the others ({', '.join(others)}), which pip download can add to that folder"
        )
    else:
        ways.append(f"without a network: pip download them on another machine into {wheels}, to be carried here")
    are = "package is" if len(absent) == 1 else "packages are"
    return f"make gpu: {len(absent)} {are} missing: {', '.join(absent)}. Remedy: {'; or '.join(ways)}"


def install(absent: Sequence[str], wheels: Path, site: Path) -> bool:
    """Install packages from a folder of wheels into a folder of their own; return whether all of them were there."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheels)]
    command += ["--upgrade", "--target", str(site), *(REQUIRED[name] for name in absent)]
    return subprocess.run(command, check=False).returncode == 0


def download(wheels: Path, pythons: Sequence[str]) -> int:
    """Fill a folder with the wheels that are carried, for each version of Python; return pip's worst exit code."""
    codes: list[int] = []
    for python in pythons:
        command = [sys.executable, "-m", "pip", "download", "--quiet", *DOWNLOAD, "--python-version", python]
        command += ["--dest", str(wheels), *(REQUIRED[name] for name in CARRIED)]
        codes.append(subprocess.run(command, check=False).returncode)
        if codes[-1] != 0:
            print(f"make gpu-wheels: the wheels for Python {python} could not be downloaded", file=sys.stderr)
    return max(codes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check; return 0 where the run can begin."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    parser.add_argument("--site", type=Path, default=Path("build/gpu-site"))
    parser.add_argument("--download", type=Path)
    parser.add_argument("--python", choices=PYTHONS, help="download for this version alone, and not for each of them")
    parser.add_argument("--without-device", action="store_true", help="the run is dry: no driver is needed")
    options = parser.parse_args(arguments)
    if options.download is not None:
        return download(options.download, PYTHONS if options.python is None else (options.python,))
    if not options.without_device and not has_driver():
        print(
            f"make gpu: this machine has no NVIDIA driver ({DRIVER} is not found). Remedy: install a driver of 580 or "
            "later, so that nvidia-smi lists the GPU; without one, make gpu GPU_FLAGS='--driver null' is a dry run, "
            "with GPU_PYTHON=.venv/bin/python where python3 lacks the packages",
            file=sys.stderr,
        )
        return 1
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        print(
            f"make gpu: Python {sys.version.split()[0]}, needed 3.11 to 3.13: say GPU_PYTHON=python3.12",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(options.site))
    absent = missing(list(REQUIRED), has_package)
    if absent and options.wheels.is_dir():
        install(absent, options.wheels, options.site)
        importlib.invalidate_caches()
        absent = missing(absent, has_package)
    if not any(map(shutil.which, COMPILERS)):
        print("make gpu: no g++ and no clang++: bank conflicts have no prediction by the emulator", file=sys.stderr)
    for name, loss in (*OPTIONAL.items(), *TOOLS.items()):
        if (name in OPTIONAL and not has_package(name)) or (name in TOOLS and shutil.which(name) is None):
            print(f"make gpu: {name} is missing: {loss}", file=sys.stderr)
    if absent:
        print(message(absent, options.wheels), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
