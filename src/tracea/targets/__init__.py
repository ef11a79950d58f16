"""Static facts of hardware: the typed Target and a catalogue in which every number states its source."""

from tracea.targets.entry import Entry, cpu_product_names, load, names, of_core, read
from tracea.targets.fact import Fact
from tracea.targets.gpu import (
    FEATURES,
    GpuEntry,
    GpuTarget,
    gpu_names,
    gpu_product_names,
    load_gpu,
    names_gpu,
    read_gpu,
)
from tracea.targets.part import RATES, CpuPart, GpuPart, MemoryPart, Rate
from tracea.targets.product import (
    Product,
    Reading,
    Source,
    product_names,
    product_of_core,
    product_of_device,
    read_product,
)
from tracea.targets.target import ISAS, Isa, Target
from tracea.targets.unknown import meant, near, target_names, unknown_target

__all__ = [
    "FEATURES",
    "ISAS",
    "RATES",
    "CpuPart",
    "Entry",
    "Fact",
    "GpuEntry",
    "GpuPart",
    "GpuTarget",
    "Isa",
    "MemoryPart",
    "Product",
    "Rate",
    "Reading",
    "Source",
    "Target",
    "cpu_product_names",
    "gpu_names",
    "gpu_product_names",
    "load",
    "load_gpu",
    "meant",
    "names",
    "names_gpu",
    "near",
    "of_core",
    "product_names",
    "product_of_core",
    "product_of_device",
    "read",
    "read_gpu",
    "read_product",
    "target_names",
    "unknown_target",
]
