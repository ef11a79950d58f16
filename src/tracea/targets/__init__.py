"""Static facts of hardware: the typed Target and a catalogue in which every number states its source."""

from tracea.targets.entry import Entry, Fact, load, names, read
from tracea.targets.target import ISAS, Isa, Target

__all__ = ["ISAS", "Entry", "Fact", "Isa", "Target", "load", "names", "read"]
