"""The proofs that every TileKernel passes before it is emitted."""

from tracea.semantic.proofs.certificate import Certificate, Fact
from tracea.semantic.proofs.prove import prove

__all__ = ["Certificate", "Fact", "prove"]
