"""The GPUs of this machine, asked for lazily: what each is, which target it runs, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracea.doctor.diagnosis import Problem
from tracea.doctor.nvml import NvmlState, diagnose_nvml, read_nvml
from tracea.doctor.other_gpus import OtherGpu, probe_amd, probe_apple
from tracea.errors import RunError, ToolchainMissing
from tracea.targets.gpu import gpu_names, load_gpu
from tracea.targets.product import product_of_device

if TYPE_CHECKING:
    from tracea.runtime.cuda.driver import DeviceFacts

__all__ = ["Gpu", "GpuReport", "diagnose_cuda", "probe_gpus", "target_for"]

_KERNEL_MODULE: Final = "proc/driver/nvidia/version"
_TOOLKIT: Final = (13, 0)  # of the NVRTC wheel that tracea[cuda] pins: its cubins need a driver of this CUDA version


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device; ``target`` is the catalogue's name for what it runs, None where the catalogue has none.

    ``product`` is the catalogue's name for the product, found by the name that the driver gives the device, or None.

    Units: bytes; ``compute_capability`` is 10 · major + minor; ``driver_version`` is the CUDA version it speaks.
    """

    number: int
    name: str
    compute_capability: int
    target: str | None
    memory_bytes: int
    sm_count: int
    driver_version: str
    product: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """The CUDA devices, why there are none where there are none, GPUs of other vendors, and the problems."""

    devices: tuple[Gpu, ...]
    absent: str
    problems: tuple[Problem, ...]
    others: tuple[OtherGpu, ...] = ()


def target_for(compute_capability: int) -> str | None:
    """Return the target whose machine code runs on a device, or None.

    An ``a`` target runs on its own compute capability only, another one on later ones of the same major version.

    Source: CUDA C Programming Guide, "Binary Compatibility" and "Family-Specific Features".
    """
    exact = [name for name in gpu_names() if load_gpu(name).compute_capability == compute_capability]
    if exact:
        return exact[-1]
    related = [
        target
        for target in map(load_gpu, gpu_names())
        if not target.arch_specific
        and target.compute_capability // 10 == compute_capability // 10
        and target.compute_capability < compute_capability
    ]
    return max(related, key=lambda target: target.compute_capability).name if related else None


def probe_gpus(root: Path = Path("/")) -> GpuReport:
    """Ask each vendor's driver for its devices; a machine without one is reported, not an error.

    Nothing of CUDA is imported where there is no driver, nothing of HIP or Metal where there is no such GPU.
    """
    amd, amd_problems = probe_amd(root)
    state = read_nvml()
    try:
        from tracea.runtime.cuda.cuda_driver import CudaDriver, device_count

        found = describe([CudaDriver(number).facts() for number in range(device_count())])
    except (ToolchainMissing, RunError) as error:
        found = GpuReport(devices=(), absent=_why_absent(error), problems=())
    module = (root / _KERNEL_MODULE).exists()
    problems = (*diagnose_cuda(found, state, module=module, compiler=_nvrtc_missing(found)), *amd_problems)
    return replace(found, problems=(*found.problems, *problems), others=(*amd, *probe_apple()))


def _why_absent(error: ToolchainMissing | RunError) -> str:
    """Say in words of no error why there is no CUDA device: that a machine has no GPU is none."""
    if not isinstance(error, ToolchainMissing):
        return error.statement()
    where = ", ".join(error.searched)
    match error.tool:
        case "the CUDA driver":
            return f"no NVIDIA driver is installed ({where} is not found)"
        case "cuda-bindings":
            return "NVIDIA's driver is installed, but Python cannot ask it: the package cuda-bindings is missing"
        case "a CUDA device":
            return f"NVIDIA's driver is installed and finds no GPU ({where})"
        case _:
            return f"{error.tool} is not found ({where})"


def diagnose_cuda(
    found: GpuReport, state: NvmlState | None, *, module: bool, compiler: str | None
) -> tuple[Problem, ...]:
    """Return what keeps NVIDIA's GPUs from being used.

    ``module`` tells whether the kernel has loaded their driver, ``compiler`` why nothing can be compiled for them.
    """
    problems = list(diagnose_nvml(state))
    if module and not found.devices and not problems:
        problems.append(
            Problem(
                what=f"NVIDIA's kernel driver is loaded, but CUDA finds no GPU: {found.absent}",
                remedy="install the driver's libraries (libcuda.so.1) and tracea[cuda]; in a container, start it with "
                "--gpus all; see that CUDA_VISIBLE_DEVICES names one",
            )
        )
    if found.devices and compiler is not None:
        problems.append(
            Problem(
                what=f"There are {len(found.devices)} CUDA GPUs, but kernels cannot be compiled for them: {compiler}",
                remedy="pip install 'tracea[cuda]'",
            )
        )
    return tuple(problems)


def _nvrtc_missing(found: GpuReport) -> str | None:
    if not found.devices:
        return None  # not asked: importing the compiler's bindings takes a while
    from tracea.runtime.nvrtc import missing

    return missing()


def describe(facts: list[DeviceFacts]) -> GpuReport:
    """Return the report on devices with these facts."""
    devices = tuple(
        Gpu(
            number=number,
            name=fact.name,
            compute_capability=fact.compute_capability,
            target=target_for(fact.compute_capability),
            memory_bytes=fact.memory_bytes,
            sm_count=fact.sm_count,
            driver_version=fact.driver_version,
            product=_product(fact.name),
        )
        for number, fact in enumerate(facts)
    )
    return GpuReport(
        devices=devices,
        absent="" if devices else "the driver lists no device",
        problems=tuple(problem for device in devices for problem in _problems(device)),
    )


def _product(device: str) -> str | None:
    found = product_of_device(device)
    return None if found is None else found.name


def _problems(device: Gpu) -> list[Problem]:
    found: list[Problem] = []
    if device.target is None:
        found.append(
            Problem(
                what=f"GPU {device.number} ({device.name}) has compute capability "
                f"{device.compute_capability / 10:.1f}; there are targets {', '.join(gpu_names())}",
                remedy="kernels for it cannot be compiled yet; its library calls still run",
            )
        )
    version = tuple(int(part) for part in device.driver_version.split("."))
    if version < _TOOLKIT:
        needed = ".".join(map(str, _TOOLKIT))
        found.append(
            Problem(
                what=f"The driver of GPU {device.number} speaks CUDA {device.driver_version}, "
                f"older than the compiler's {needed}",
                remedy="update the NVIDIA driver to 580 or later",
            )
        )
    return found
