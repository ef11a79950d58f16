"""Static facts of hardware: the typed Target and a catalogue in which every number states its source."""

from tracea.targets.entry import Entry, Fact, load, names, read
from tracea.targets.gpu import FEATURES, GpuEntry, GpuTarget, gpu_names, load_gpu, names_gpu, read_gpu
from tracea.targets.target import ISAS, Isa, Target

__all__ = [
    "FEATURES",
    "ISAS",
    "Entry",
    "Fact",
    "GpuEntry",
    "GpuTarget",
    "Isa",
    "Target",
    "gpu_names",
    "load",
    "load_gpu",
    "names",
    "names_gpu",
    "read",
    "read_gpu",
]
