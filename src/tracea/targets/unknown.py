"""Names that no target has: what is near them, why one that is described has no kernels, and where all names are."""

from __future__ import annotations

from tracea.core.names import meant, near
from tracea.errors import InvalidOption
from tracea.targets.entry import cpu_product_names, names
from tracea.targets.gpu import gpu_names, gpu_product_names
from tracea.targets.product import product_names, read_product

__all__ = ["meant", "near", "target_names", "unknown_target"]


def target_names() -> tuple[str, ...]:
    """Return every name that kernels are made for, beside ``host``."""
    return (*names(), *gpu_names(), *cpu_product_names(), *gpu_product_names())


def unknown_target(name: str) -> InvalidOption:
    """Return the error that says why there are no kernels for a name, and which names are near it."""
    if name in product_names():
        product = read_product(name)
        architecture = "its architecture" if product.gpu is None else product.gpu.architecture
        return InvalidOption(
            field="target",
            got=name,
            expected="a target that kernels are made for, such as host, avx512, zen4, sm_90a or h200",
            remedy=f"{product.title} is described, but there is no emitter for {architecture} yet, so nothing can be "
            f"chosen, judged or printed for it; its numbers: tracea targets show {name}",
        )
    close = near(name, ("host", *target_names()))
    return InvalidOption(
        field="target",
        got=name,
        expected=f"{' '.join(('host', *names(), *gpu_names()))}, or a product such as zen4 or h200",
        remedy=f"{meant(close)}tracea targets ls lists every name",
    )
